"""Paths from one NIC to another, and the unloaded flight time of a message.

The path set follows the equal-cost groups switch by switch, as hashing would with every outcome. A NIC with
several ports may start on each of them. Paths are sequences of link numbers, in the order of travel, listed
by the port numbers chosen: a path set depends on the topology and on the links that are down alone. Large
fabrics have half a million paths between two NICs: `count_paths` counts them without listing them, and
`first_paths` lists the first few.

Unloaded flight time, between the proxies of two hosts. Every term is configuration: the doorbell over the
host link (and the proxy's cost), serialisation of the packet on every link of a shortest path, propagation,
the fixed latency of each device that it passes (of a modular switch with a report and a grant of credit), the
completion at the other end. Of equal-cost paths the first counts: where they differ in length or rate,
another may be quicker or slower. Distance is counted in switches on that path: one is the same rack, three
the same zone (leaf, spine, leaf), more is another pod.

Not modelled: what a routing policy narrows down (pinning, traffic engineering).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC, Attachment, Role, Topology
from actors.fabric.routes import NOTHING_DOWN, Routes, routes
from actors.kernel.units import serialisation_ps
from actors.wire.frame import HEAD_WIRE_BYTES, WRITE_ONLY_IMM, wire_size
from actors.wire.message import MESSAGE_BYTES

Path = tuple[int, ...]
_CROSSED: Final = "hops between NICs with flows"
"""In `Topology.derived`: the hops of the first shortest path, by source and target."""


def first_paths(
    topology: Topology, source: int, target: int, most: int, down: frozenset[int] = NOTHING_DOWN
) -> tuple[Path, ...]:
    """The first `most` paths of the path set."""
    return tuple(islice(_from_nic(topology, routes(topology, down), source, target, down), most))


def count_paths(topology: Topology, source: int, target: int, down: frozenset[int] = NOTHING_DOWN) -> int:
    """How many paths the path set has."""
    found = routes(topology, down)
    address = topology.address_of(target)
    known: dict[int, int] = {}

    def from_switch(switch: int) -> int:
        if switch not in known:
            local, members = found.towards(switch, address)
            ports = topology.ports(switch)
            known[switch] = 1 if local is not None else sum(from_switch(ports[at].peer) for at in members)
        return known[switch]

    total = 0
    for port in topology.ports(source):
        if port.kind == FABRIC and port.link not in down:
            if port.peer == target:
                total += 1
            elif topology.nodes[port.peer].role is Role.SWITCH:
                total += from_switch(port.peer)
    return total


def path_text(topology: Topology, source: int, path: Path) -> str:
    """The devices on the way: `nic-0-0 rtsw-0 ctsw-3 rtsw-1 nic-2-0`."""
    names = [topology.nodes[source].name]
    here = source
    for number in path:
        link = topology.links[number]
        here = link.b if link.a == here else link.a
        names.append(topology.nodes[here].name)
    return " ".join(names)


def _from_nic(
    topology: Topology, found: Routes, source: int, target: int, down: frozenset[int]
) -> Iterator[Path]:
    for port in topology.ports(source):
        if port.kind != FABRIC or port.link in down:
            continue
        if port.peer == target:
            yield (port.link,)
        elif topology.nodes[port.peer].role is Role.SWITCH:
            for rest in _from_switch(topology, found, port.peer, target):
                yield (port.link, *rest)


def _from_switch(topology: Topology, found: Routes, switch: int, target: int) -> Iterator[Path]:
    ports = topology.ports(switch)
    local, members = found.towards(switch, topology.address_of(target))
    if local is not None:
        yield (ports[local].link,)
        return
    for member in members:
        for rest in _from_switch(topology, found, ports[member].peer, target):
            yield (ports[member].link, *rest)


class Delays(NamedTuple):
    """What a message meets in the devices that it passes."""

    proxy_ps: int
    """Time of one operation of a host's proxy."""
    nic_ps: int
    switch_ps: int
    """Between a switch's ports; a modular one adds the credit exchange."""
    cuts_through: bool
    """Whether a switch sends a packet on once it has its head."""
    elsewhere: Mapping[int, Delays] | None = None
    """The delays of devices that are configured otherwise, by number."""

    def at(self, device: int) -> Delays:
        """What a message meets in this device."""
        return self.elsewhere.get(device, self) if self.elsewhere else self


class Unloaded:
    """How long one packet of a size takes through an empty fabric.

    The way on from a switch is worked out once for all whose way leads there.
    """

    def __init__(self, delays: Delays, topology: Topology, size_bytes: int) -> None:
        self._delays = delays
        self._topology = topology
        self._wire_bytes = int(wire_size(int(WRITE_ONLY_IMM), size_bytes))
        self._behind: dict[tuple[int, int], int | None] = {}
        """By switch and NIC; None: there is no way."""
        self._posted: dict[int, int] = {}

    def ps(self, source: int, target: int) -> int:
        """From a post at the source NIC's host until the target NIC's host has the packet's completion."""
        for nic in (source, target):
            if nic not in self._posted:
                self._posted[nic] = posted_ps(self._delays, self._topology, nic)
        total = self._posted[source] + self._posted[target]
        for port in self._topology.ports(source):
            if port.kind == FABRIC:
                behind = self._behind_ps(port.peer, target)
                if behind is not None:
                    return total + self._hop_ps(port) + behind
        return total

    def _behind_ps(self, here: int, target: int) -> int | None:
        """From a device on the first shortest path to the NIC; None where it is on none."""
        if here == target:
            return 0
        if (here, target) in self._behind:
            return self._behind[here, target]
        found: int | None = None
        if self._topology.nodes[here].role is Role.SWITCH:
            local, members = routes(self._topology).towards(here, self._topology.address_of(target))
            if local is not None or members:
                port = self._topology.ports(here)[members[0] if local is None else local]
                rest = self._behind_ps(port.peer, target)
                found = None if rest is None else self._hop_ps(port) + rest
        self._behind[here, target] = found
        return found

    def _hop_ps(self, hop: Attachment) -> int:
        to_switch = self._topology.nodes[hop.peer].role is Role.SWITCH
        own = self._delays.at(hop.peer)
        on_wire = int(HEAD_WIRE_BYTES) if own.cuts_through and to_switch else self._wire_bytes
        passed_ps = serialisation_ps(on_wire, hop.rate_bps) + hop.delay_ps
        return passed_ps + (own.switch_ps if to_switch else own.nic_ps)


def posted_ps(delays: Delays, topology: Topology, nic: int) -> int:
    """From a post of a host until its NIC has it."""
    end = topology.ports(nic)[-1]
    doorbell_ps = serialisation_ps(int(MESSAGE_BYTES), end.rate_bps) + end.delay_ps
    return delays.at(topology.host_of(nic)).proxy_ps + doorbell_ps


def crossing_ps(
    delays: Delays, topology: Topology, source: int, target: int, wire_bytes: int, largest_bytes: int
) -> int:
    """From a NIC to another through an empty fabric, of packets with so many bytes on a wire together.

    The slowest link carries all of them, and each of the others the largest one alone: with equal links that
    is the time of a flow shop whose jobs take a machine in proportion to their size.
    """
    total, longest = 0, 0
    hops = _hops(topology, source, target)
    topology.derived.setdefault(_CROSSED, {})[source, target] = hops  # who prices the flow asks again
    for hop in hops:
        to_switch = topology.nodes[hop.peer].role is Role.SWITCH
        own = delays.at(hop.peer)
        alone = int(HEAD_WIRE_BYTES) if own.cuts_through and to_switch else largest_bytes
        total += serialisation_ps(alone, hop.rate_bps) + hop.delay_ps
        total += own.switch_ps if to_switch else own.nic_ps
        longest = max(longest, serialisation_ps(wire_bytes - largest_bytes, hop.rate_bps))
    return total + longest


def switches_between(topology: Topology, source: int, target: int) -> int:
    """How many switches are on the way from one NIC to another."""
    return len(_hops(topology, source, target)) - 1


def _hops(topology: Topology, source: int, target: int) -> list[Attachment]:
    """The sending end of each link on the first shortest path; none where there is no path."""
    known: dict[tuple[int, int], list[Attachment]] = topology.derived.get(_CROSSED, {})
    if (source, target) in known:
        return known[source, target]
    found = routes(topology)
    address = topology.address_of(target)
    for port in topology.ports(source):
        if port.kind != FABRIC:
            continue
        hops = [port]
        while hops[-1].peer != target:
            here = hops[-1].peer
            if topology.nodes[here].role is not Role.SWITCH:
                break
            local, members = found.towards(here, address)
            if local is None and not members:
                break
            hops.append(topology.ports(here)[members[0] if local is None else local])
        else:
            return hops
    return []
