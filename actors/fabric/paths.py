"""Paths from one NIC to another.

The path set follows the equal-cost groups switch by switch, as hashing would with every outcome. A NIC with
several ports may start on each of them. Paths are sequences of link numbers, in the order of travel, listed
by the port numbers chosen: a path set depends on the topology and on the links that are down alone. Large
fabrics have half a million paths between two NICs: `count_paths` counts them without listing them, and
`first_paths` lists the first few.

Not modelled: what a routing policy narrows down (pinning, traffic engineering).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from actors.fabric.model import FABRIC, Role, Topology
from actors.fabric.routing import NOTHING_DOWN, Routes, routes

Path = tuple[int, ...]


def path_set(
    topology: Topology, source: int, target: int, down: frozenset[int] = NOTHING_DOWN
) -> tuple[Path, ...]:
    """Every shortest path between two NICs over links that are not `down`; empty where there is none."""
    assert source != target, f"{topology.nodes[source].name} needs no path to itself"
    return tuple(_from_nic(topology, routes(topology, down), source, target, down))


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
