"""Connections of the ranks of a job.

Every group has connections of its own, as a communicator of its own has: on each channel, from each member to
those that its calls send to, whatever their algorithms (see `actors.ncclx.schedule`). A connection has the
data queue pairs, then the control queue pair on which clear-to-sends travel back; each direction between two
ranks has its own. Channel c of a rank uses the NIC c modulo the number of NICs of its GPU, in collectives and
in transfers alike. Ranks of one server with an NVSwitch talk over NVLink: there a connection has a pair of
the GPUs for data and one for clear-to-sends, and no queue pairs. With `qp_policy: least_loaded` a connection
to another host has data pairs on every NIC, each to the NIC of the same place (the same rail) there.

Source: NCCL 2.30, `src/channel.cc` (a peer's connectors serve rings and trees; those of sends and receives
are apart), `src/enqueue.cc` (a transfer is cut over channels).

Not modelled: connections made on demand, several ranks on one NIC that talk to each other through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.ncclx.operations import Operation
from actors.ncclx.schedule import Schedule, operations_of
from actors.ncclx.script import Group, GroupCall, ScriptPlan
from actors.ncclx.settings import Settings
from actors.ncclx.transport.queue_pair_plan import ConnectionBook, connect_inside, rails_between, share_domain


class Side(NamedTuple):
    """One side of a connection: data queue pairs by index at `nic`; control is -1 where there is none.

    With `rails`, data queue pairs are on those instead, NIC by NIC and equally many on each. With `inside`,
    the connection is over NVLink, and both NICs are GPUs.
    """

    group: int
    channel: int
    lane: int
    """Of several connections between the same two ranks (see `actors.ncclx.graph`)."""
    sends: bool
    peer: int
    peer_nic: int
    nic: int
    pairs: tuple[int, ...]
    control: int
    inside: bool = False
    rails: tuple[tuple[int, int], ...] = ()
    """NICs here, each with the one that it reaches."""


@dataclass(frozen=True, slots=True)
class WiredJob:
    """The scripts of a job, with the schedules and the connections that the library has made for them."""

    job: int
    start_ps: int
    """NEVER_PS if its operations wait to be submitted, or if it does not run."""
    settings: Settings
    script: ScriptPlan = field(compare=False)
    gpus: tuple[int, ...]
    """Of each rank."""
    nodes: tuple[int, ...]
    """The host of each."""
    schedules: tuple[Schedule, ...] = field(compare=False)
    """Of each group of the script."""
    sides: tuple[tuple[Side, ...], ...]
    """Of the connections of each rank."""
    absent: tuple[int, ...] = ()
    """Ranks that never come."""
    meetings: int = 0
    """How often every rank comes to the store before the first operation."""
    payload_seed: int | None = None
    """What its data is drawn from; None where slices are sizes only."""


def connect_groups(
    settings: Settings,
    topology: Topology,
    book: ConnectionBook,
    job: int,
    gpus: Sequence[int],
    groups: Sequence[Group],
    schedules: Sequence[Schedule],
) -> list[list[Side]]:
    """The sides of each rank, group by group and channel by channel."""
    sides: list[list[Side]] = [[] for _ in gpus]
    for number, (group, schedule) in enumerate(zip(groups, schedules, strict=True)):
        data_class = settings.data_priority if group.data_priority is None else group.data_priority
        control_class = data_class if settings.control_priority is None else settings.control_priority
        for channel, source, destination, lane in _joined(group, schedule):
            ranks = source, destination
            both = gpus[source], gpus[destination]
            if share_domain(topology, *both):
                data, flags = connect_inside(book, *both, settings.admitted)
                for place in (0, 1):
                    peer, other, mine = ranks[1 - place], both[1 - place], both[place]
                    pair, cts = (data[place],), flags[place]
                    side = Side(number, channel, lane, place == 0, peer, other, mine, pair, cts, inside=True)
                    sides[ranks[place]].append(side)
                continue
            ends = [topology.nics_of_gpu(gpu) for gpu in both]
            nics = [of_gpu[channel % len(of_gpu)] for of_gpu in ends]
            rails: list[tuple[int, int]] = []
            if settings.qp_policy == "least_loaded":
                rails = rails_between(topology, *both)
            made = [
                book.connect(here, there, data_class, job)
                for here, there in rails or [(nics[0], nics[1])]
                for _ in range(settings.qps_per_connection)
            ]
            control = (-1, -1)
            if settings.admitted:
                control = book.connect(nics[0], nics[1], control_class, job)
            pairs = tuple(zip(*made, strict=True))
            for place in (0, 1):
                peer, other, mine = ranks[1 - place], nics[1 - place], nics[place]
                pair, cts = pairs[place], control[place]
                side = Side(number, channel, lane, place == 0, peer, other, mine, pair, cts)
                ways = tuple((rail[place], rail[1 - place]) for rail in rails)
                sides[ranks[place]].append(side._replace(rails=ways))
    return sides


def _joined(group: Group, schedule: Schedule) -> Iterator[tuple[int, int, int, int]]:
    """(channel, from, to, lane) of every connection of a group."""
    members = group.members
    for channel in range(schedule.settings.channels):
        for source, edges in enumerate(schedule.edges(channel)):
            yield from ((channel, members[source], members[peer], lane) for peer, lane in edges)


def schedules_of(settings: Settings, plan: ScriptPlan, nodes: Sequence[int]) -> tuple[Schedule, ...]:
    """The schedule of each group, of all that its members call; `nodes` are the servers of the ranks."""
    return tuple(
        Schedule(settings, operations_of(calls), tuple(nodes[rank] for rank in group.members))
        for group, calls in zip(plan.groups, _called(plan), strict=True)
    )


def _called(plan: ScriptPlan) -> list[Sequence[GroupCall]]:
    """By group, what its members call: their list where they share one, else each kind of call once."""
    lists: list[list[list[GroupCall]]] = [[] for _ in plan.groups]
    for script in plan.scripts:
        for number, calls in zip(script.groups, script.calls, strict=True):
            known = lists[number]
            if not known or known[-1] is not calls:
                known.append(calls)
    return [
        known[0] if len(known) == 1 else list(dict.fromkeys(call for calls in known for call in calls))
        for known in lists
    ]


def own_faults(plan: ScriptPlan, schedules: Sequence[Schedule]) -> Iterator[tuple[int, Operation, str]]:
    """Calls, by their label, of which an algorithm of the user's is no correct collective, and why."""
    for schedule, calls in zip(schedules, _called(plan), strict=True):
        for operation, fault in schedule.faults():
            yield calls[schedule.operations.index(operation)].label, operation, fault
