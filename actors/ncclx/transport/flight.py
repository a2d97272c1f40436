"""Unloaded flight time of a message between the proxies of two hosts.

Every term is configuration: the doorbell over the host link (and the proxy's cost), serialisation of the
packet on every link of a shortest path, propagation, the fixed latency of each device that it passes (of a
modular switch with a report and a grant of credit), the completion at the other end. Of equal-cost paths
the first counts: where they differ in length or rate, another may be quicker or slower.

Distance is counted in switches on that path: one is the same rack, three the same zone (leaf, spine, leaf),
more is another pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from actors.fabric.model import Attachment, Role, Topology
from actors.fabric.paths import first_paths
from actors.kernel.units import serialisation_ps
from actors.wire.frame import HEAD_WIRE_BYTES, WRITE_ONLY_IMM, wire_size
from actors.wire.message import MESSAGE_BYTES


class Delays(NamedTuple):
    """What a message meets in the devices that it passes."""

    proxy_ps: int
    """Of one operation of a host's proxy."""
    nic_ps: int
    switch_ps: int
    """Between a switch's ports; a modular one adds the credit exchange."""
    cuts_through: bool
    """Whether a switch sends a packet on once it has its head."""
    elsewhere: Mapping[int, Delays] | None = None
    """Of devices that are configured otherwise, by number."""

    def at(self, device: int) -> Delays:
        """What a message meets in this device."""
        return self.elsewhere.get(device, self) if self.elsewhere else self


def unloaded_ps(delays: Delays, topology: Topology, source: int, target: int, size_bytes: int) -> int:
    """From a post at the source NIC's host until the target NIC's host has the completion of one packet."""
    wire_bytes = int(wire_size(int(WRITE_ONLY_IMM), size_bytes))
    total = 0
    for nic in (source, target):
        total += delays.at(topology.host_of(nic)).proxy_ps
        end = topology.ports(nic)[-1]
        total += serialisation_ps(int(MESSAGE_BYTES), end.rate_bps) + end.delay_ps
    for hop in _hops(topology, source, target):
        to_switch = topology.nodes[hop.peer].role is Role.SWITCH
        own = delays.at(hop.peer)
        on_wire = int(HEAD_WIRE_BYTES) if own.cuts_through and to_switch else wire_bytes
        total += serialisation_ps(on_wire, hop.rate_bps) + hop.delay_ps
        total += own.switch_ps if to_switch else own.nic_ps
    return total


def switches_between(topology: Topology, source: int, target: int) -> int:
    """How many switches are on the way from one NIC to another."""
    return len(_hops(topology, source, target)) - 1


def _hops(topology: Topology, source: int, target: int) -> list[Attachment]:
    """The sending end of each link on the first shortest path."""
    paths = first_paths(topology, source, target, 1)
    return list(_ends(topology, source, paths[0])) if paths else []


def _ends(topology: Topology, source: int, path: tuple[int, ...]) -> Iterator[Attachment]:
    here = source
    for number in path:
        end = next(end for end in topology.ports(here) if end.link == number)
        yield end
        here = end.peer
