"""What the jobs of a plan send over each link, for the placement of devices on workers.

Bytes between two NICs, as `emu estimate` counts them, spread evenly over the shortest paths. Each data packet
has an acknowledgement, so a link carries as many packets in one direction as in the other. An estimate: it
decides which worker hosts what, and never touches a result.

Not in it: what a hash or a controller makes of the paths, retransmissions, how jobs meet in time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC, Role, Topology, prefix_of
from actors.fabric.routes import Groups, Routes
from emu.devices.plan import Plan
from emu.devices.pricing.estimate import planned_bytes
from emu.scenario.schema import Scenario

MOST_EXCHANGES: Final = 100_000
"""A plan of more is not looked at: to count it takes longer than a better placement saves, and what so many
exchange is mostly even."""
UNIT_BYTES: Final = 1024
HOST_SHARE: Final = 16
GPU_SHARE: Final = 32
"""Of what their NICs handle, what hosts and GPUs work: as in `expected_loads`."""


class PlannedTraffic(NamedTuple):
    """How much each device handles, by its number, and each link carries, by its."""

    loads: tuple[int, ...]
    links: tuple[int, ...]
    between: dict[tuple[int, int], int]
    """What two NICs send each other, both ways, the lower one first."""


def planned_traffic(scenario: Scenario, topology: Topology, plan: Plan) -> PlannedTraffic | None:
    """What the enabled jobs of a plan send; None where they send nothing, or too much to be counted."""
    between: dict[tuple[int, int], int] = defaultdict(int)
    counted = planned_bytes(scenario, topology, plan, MOST_EXCHANGES)
    for (source, destination), size in (counted or {}).items():
        if source != destination:
            between[min(source, destination), max(source, destination)] += -(-size // UNIT_BYTES)
    if not between:
        return None
    loads = [0 if node.role is Role.CONTROLLER else 1 for node in topology.nodes]
    links = [0] * len(topology.links)
    _spread_over_paths(topology, between, loads, links)
    for nic in topology.nics:
        loads[topology.host_of(nic)] += loads[nic] // HOST_SHARE
    for gpu in topology.gpus:
        loads[gpu] += sum(loads[nic] for nic in topology.nics_of_gpu(gpu)) // GPU_SHARE
    return PlannedTraffic(tuple(loads), tuple(links), dict(between))


def _spread_over_paths(
    topology: Topology, between: dict[tuple[int, int], int], loads: list[int], links: list[int]
) -> None:
    """Add what every pair sends, both ways, to the devices and links of its shortest paths."""
    towards: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    """By prefix and switch, what enters there for it."""
    for (one, other), size in between.items():
        for source, destination in ((one, other), (other, one)):
            ends = [end for end in topology.ports(source) if end.kind == FABRIC]
            for end in ends:
                links[end.link] += size // len(ends)
                towards[prefix_of(topology.address_of(destination))][end.peer] += size // len(ends)
            ends = [end for end in topology.ports(destination) if end.kind == FABRIC]
            for end in ends:  # from a switch of its prefix, whichever
                links[end.link] += size // len(ends)
            loads[source] += size
            loads[destination] += size
    found = Routes(topology)  # apart from those that devices keep: a worker holds its own switches' alone
    groups: dict[int, Groups] = {}
    for prefix, entering in sorted(towards.items()):
        waiting: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        """By distance, what is at a switch."""
        for switch, size in sorted(entering.items()):
            waiting[found.distance(switch, prefix)][switch] += size
        while waiting:
            distance = max(waiting)
            for switch, size in sorted(waiting.pop(distance).items()):
                loads[switch] += size
                if distance > 0 and switch not in groups:
                    groups[switch] = found.groups(switch)
                ports = groups[switch][prefix] if distance > 0 else ()
                for port in ports:
                    end = topology.ports(switch)[port]
                    links[end.link] += size // len(ports)
                    waiting[found.distance(end.peer, prefix)][end.peer] += size // len(ports)
