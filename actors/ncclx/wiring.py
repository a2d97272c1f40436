"""Whom must the ranks of a scripted job be connected to?

Every group has connections of its own, as a communicator of its own has: a ring from each member to the next
on every channel; a line from its first member to its second; a mesh from every member to every other; a graph
from each member to those that its algorithm sends to, on every channel. Which NICs and queue pairs a
connection has is as for a benchmark (`actors.ncclx.plan`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.ncclx.operations import Operation
from actors.ncclx.pairs import ConnectionBook, connect_inside, rails_between, share_domain
from actors.ncclx.ring_order import ring_order
from actors.ncclx.schedule import Schedule
from actors.ncclx.script import GRAPH, LINE, RING, Group, GroupCall, ScriptPlan
from emu.scenario.schema import Scenario
from emu.scenario.sections.graph import GraphSection
from emu.scenario.sections.ncclx import NcclxSection


class Side(NamedTuple):
    """One side of a connection: data queue pairs by index at `nic`; control is -1 where there is none.

    With `rails`, data queue pairs are on those instead, NIC by NIC and equally many on each. With `inside`,
    the connection is over NVLink, and both NICs are GPUs.
    """

    group: int
    channel: int
    """Of the ring or graph; 0 elsewhere."""
    lane: int
    """Of a graph; 0 elsewhere."""
    sends: bool
    peer: int
    peer_nic: int
    nic: int
    pairs: tuple[int, ...]
    control: int
    inside: bool = False
    rails: tuple[tuple[int, int], ...] = ()
    """NICs here, each with the one that it reaches."""


def connect_groups(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    job: int,
    data_priority: int,
    gpus: Sequence[int],
    plan: ScriptPlan,
) -> list[list[Side]]:
    """The sides of each rank, group by group."""
    ncclx = scenario.ncclx
    admitted = ncclx.admission == "receiver_driven"
    sides: list[list[Side]] = [[] for _ in gpus]
    nodes = [topology.host_of(gpu) for gpu in gpus]
    called = _called(plan)
    for number, group in enumerate(plan.groups):
        data_class = data_priority if group.data_priority is None else group.data_priority
        control_class = scenario.transport.control_priority if ncclx.control == "own_class" else data_class
        for channel, source, destination, lane in _joined(ncclx, group, called[number], nodes):
            ranks = source, destination
            both = gpus[source], gpus[destination]
            if share_domain(topology, *both):
                data, flags = connect_inside(book, *both, admitted)
                for place in (0, 1):
                    peer, other, mine = ranks[1 - place], both[1 - place], both[place]
                    pair, cts = (data[place],), flags[place]
                    side = Side(number, channel, lane, place == 0, peer, other, mine, pair, cts, inside=True)
                    sides[ranks[place]].append(side)
                continue
            ends = [topology.nics_of_gpu(gpu) for gpu in both]
            nics = [of_gpu[channel % len(of_gpu)] for of_gpu in ends]
            rails: list[tuple[int, int]] = []
            if ncclx.qp_policy == "least_loaded":
                rails = rails_between(topology, *both)
            made = [
                book.connect(here, there, data_class, job)
                for here, there in rails or [(nics[0], nics[1])]
                for _ in range(ncclx.qps_per_connection)
            ]
            control = (-1, -1)
            if admitted:
                control = book.connect(nics[0], nics[1], control_class, job)
            pairs = tuple(zip(*made, strict=True))
            for place in (0, 1):
                peer, other, mine = ranks[1 - place], nics[1 - place], nics[place]
                pair, cts = pairs[place], control[place]
                side = Side(number, channel, lane, place == 0, peer, other, mine, pair, cts)
                ways = tuple((rail[place], rail[1 - place]) for rail in rails)
                sides[ranks[place]].append(side._replace(rails=ways))
    return sides


def _joined(
    ncclx: NcclxSection, group: Group, calls: Sequence[GroupCall], nodes: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """(channel, from, to, lane) of every connection of a group."""
    members = group.members
    if group.kind == GRAPH:
        schedule = group_schedule(ncclx, group, calls, nodes)
        for channel in range(ncclx.channels):
            for source, edges in enumerate(schedule.edges(channel)):
                yield from ((channel, members[source], members[peer], lane) for peer, lane in edges)
    elif group.kind == RING:
        for channel in range(ncclx.channels):
            ring = group_ring(ncclx, group, channel, nodes)
            for at, place in enumerate(ring):
                yield channel, members[place], members[ring[(at + 1) % len(ring)]], 0
    elif group.kind == LINE:
        yield 0, members[0], members[1], 0
    else:
        yield from ((0, one, other, 0) for one in members for other in members if one != other)


def group_ring(ncclx: NcclxSection, group: Group, channel: int, nodes: Sequence[int]) -> tuple[int, ...]:
    """The places of a group's ranks in the order of a channel's ring."""
    if ncclx.ring_order == "same":
        return tuple(range(len(group.members)))
    return ring_order(tuple(nodes[rank] for rank in group.members), ncclx.channels, channel)


def _called(plan: ScriptPlan) -> list[list[GroupCall]]:
    """By group, what its members call, each kind of call once."""
    found: list[dict[GroupCall, None]] = [{} for _ in plan.groups]
    for script in plan.scripts:
        for place, number in enumerate(script.groups):
            found[number].update(dict.fromkeys(script.calls[place]))
    return [list(calls) for calls in found]


def group_schedule(
    ncclx: NcclxSection, group: Group, calls: Sequence[GroupCall], nodes: Sequence[int]
) -> Schedule:
    """What the members of a ring or graph do in some calls, by their places in the group."""
    algorithm = group.algorithm or "ring"
    operations = [
        Operation(call.op, algorithm, call.size_bytes, 0, warmup=False, root=call.root, weights=call.weights)
        for call in calls
    ]
    graph = group.graph if isinstance(group.graph, GraphSection) else None
    return Schedule(ncclx, operations, [nodes[rank] for rank in group.members], graph)


def own_faults(
    ncclx: NcclxSection, plan: ScriptPlan, nodes: Sequence[int]
) -> Iterator[tuple[int, Operation, str]]:
    """Calls, by their label, of which an algorithm of the user's is no correct collective, and why."""
    for group, calls in zip(plan.groups, _called(plan), strict=True):
        if group.kind == GRAPH:
            schedule = group_schedule(ncclx, group, calls, nodes)
            for operation, fault in schedule.faults():
                yield calls[schedule.operations.index(operation)].label, operation, fault
