"""Packets that each device of a fabric handles if everybody sends to everybody.

An estimate for placement: it decides how devices are spread over workers and never touches a result. Every
NIC sends at its full rate to all others evenly; switches pass upwards what does not stay below them, in
proportion to the rates of their links upwards, and as much comes back down. A NIC handles what it sends and
what it receives; a host and a GPU work per message, a small fraction of that.

Loads are integers without a unit, comparable within one fabric, at least 1 for every device but the
controller.

Not modelled: what jobs really send (pass other loads to placement), links between switches of the same
tier, the cost of one kind of packet against another.
"""

from __future__ import annotations

from typing import Final

from actors.fabric.model import FABRIC, Role, Topology

UNIT_BPS: Final = 10**6
HOST_SHARE: Final = 8
GPU_SHARE: Final = 16


def expected_loads(topology: Topology) -> tuple[int, ...]:
    """A load for each node, by node number; 0 for the controller."""
    nodes = topology.nodes
    loads = [0 if node.role is Role.CONTROLLER else 1 for node in nodes]
    from_below = [0] * len(nodes)
    below: dict[int, int] = {}
    for nic in topology.nics:
        sent = 0
        for port in topology.ports(nic):
            if port.kind == FABRIC:
                sent += port.rate_bps // UNIT_BPS
                from_below[port.peer] += port.rate_bps // UNIT_BPS
        loads[nic] += 2 * sent
        loads[topology.host_of(nic)] += sent // HOST_SHARE
    for gpu in topology.gpus:
        for nic in topology.nics_of_gpu(gpu):
            loads[gpu] += loads[nic] // (2 * GPU_SHARE)
    for prefix in range(topology.prefixes):
        for switch in topology.prefix_switches(prefix):
            below[switch] = below.get(switch, 0) | 1 << prefix
    for switch in sorted(topology.switches, key=lambda number: (nodes[number].tier, number)):
        arriving = from_below[switch]
        beneath = below.get(switch, 0)
        upwards = [port for port in topology.ports(switch) if nodes[port.peer].tier > nodes[switch].tier]
        crossing = arriving * (len(topology.nics) - _nics_in(topology, beneath)) // len(topology.nics)
        total_bps = sum(port.rate_bps for port in upwards)
        crossing = min(crossing, total_bps // UNIT_BPS)
        for port in upwards:
            from_below[port.peer] += crossing * port.rate_bps // total_bps
            below[port.peer] = below.get(port.peer, 0) | beneath
        loads[switch] += arriving + crossing
    return tuple(loads)


def _nics_in(topology: Topology, prefixes: int) -> int:
    """How many NICs have one of these prefixes."""
    if prefixes == (1 << topology.prefixes) - 1:
        return len(topology.nics)
    count = 0
    while prefixes:
        lowest = prefixes & -prefixes
        count += len(topology.prefix_nics(lowest.bit_length() - 1))
        prefixes ^= lowest
    return count
