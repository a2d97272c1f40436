"""Calls of the library at flow level: a collective or a transfer as a few transfers with latencies around.

Every *leg* of a call begins with what precedes its first byte on a link (the first copy, or the first
clear-to-send, whichever is later) and ends with what follows its last one.

Rings. All edges of a channel's ring go at one rate, that of the slowest: nobody can be further ahead than its
buffers. Slices follow one another round the ring, and a chunk is passed on as soon as it is here, so an
operation of `parts` chunks takes the links' time of all slices, or a step for every chunk, whichever is
longer, and not less than its buffer slots allow (slots x slice a turn).

Direct. Every connection is a leg of its own.

Source of the forms: `tests.ncclx.test_closed_forms`, where the packet level is held against them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from actors.flow.filling import UNIT
from actors.flow.progress import Shape, Strand
from actors.ncclx.algorithms.ring import OPERATION_CODES
from actors.ncclx.operations import Operation
from actors.ncclx.protocols import on_wire
from actors.ncclx.schedule import Schedule, is_ring
from actors.ncclx.script import Group
from actors.ncclx.transport.channel import SENDS
from actors.ncclx.transport.wiring import Side, WiredJob
from emu.flow.edges import PS_OF_BIT_AT_KBPS, Edge, Edges, Slices

MOST_WALKED: Final = 1024
"""Ranks of a ring of which each one's slices are looked at; of more, the first one's count for all."""


class Leg(NamedTuple):
    """A transfer of a call."""

    first_ps: int
    shape: Shape
    bits: int
    tail_ps: int
    copy_ps: int = 0
    """Of its first slice."""
    fixed_ps: int = -1
    """What it takes on links that nobody else uses; -1: a matter of rates."""


class Calls:
    """The calls of one job."""

    def __init__(self, job: WiredJob, edges: Edges) -> None:
        self._job = job
        self._edges = edges
        self._sides: dict[tuple[int, int, int, int, int, bool], Side] = {}
        for rank, sides in enumerate(job.sides):
            for side in sides:
                self._sides[side.group, side.channel, rank, side.peer, side.lane, side.sends] = side

    def legs(self, number: int, operation: Operation) -> list[Leg]:
        """What a group of the job does in one operation."""
        group, schedule = self._job.script.groups[number], self._job.schedules[number]
        if is_ring(operation):
            return list(self._ring(number, group, schedule, operation))
        return list(self._direct(number, group, schedule.with_operations([operation])))

    def fits(self, number: int, operation: Operation) -> bool:
        """Whether the buffer slots of its connections hold all that a group sends."""
        schedule = self._job.schedules[number]
        cut = schedule.cuts[schedule.protocol(operation)]
        return operation.size_bytes <= cut.slots * cut.slice_bytes * (operation.channels or schedule.channels)

    def _edge(
        self,
        group: int,
        channel: int,
        ranks: tuple[int, int],
        slices: Slices,
        cut: tuple[int, int],
        lane: int = 0,
    ) -> Edge:
        """The edge between two ranks; `cut` are slots and protocol."""
        rank, peer = ranks
        send = self._sides[group, channel, rank, peer, lane, True]
        receive = self._sides[group, channel, peer, rank, lane, False]
        return self._edges.edge(send, receive, rank, slices, *cut)

    # ---- rings

    def _ring(self, number: int, group: Group, schedule: Schedule, operation: Operation) -> Iterator[Leg]:
        protocol = schedule.protocol(operation)
        cut = schedule.cuts[protocol]
        channels = operation.channels or schedule.channels
        found: list[tuple[list[Edge], Slices]] = []
        for channel in range(channels):
            ring = schedule.ring(channel)
            known: Slices | None = None
            edges: list[Edge] = []
            for at, place in enumerate(ring):
                if known is None or not (len(ring) > MOST_WALKED or _alike(operation, len(ring), channels)):
                    known = self._ring_slices(schedule, operation, place, channel)
                if not known.sizes:
                    break
                ranks = group.members[place], group.members[ring[(at + 1) % len(ring)]]
                edges.append(self._edge(number, channel, ranks, known, (cut.slots, protocol)))
            if known is not None and known.sizes:
                found.append((edges, known))
        crowds = Counter(edge.nic for edges, _ in found for edge in edges if edge.nic >= 0)
        for edges, known in found:
            yield _ring_leg(edges, len(known.sizes), known.parts, crowds)

    def _ring_slices(self, schedule: Schedule, operation: Operation, rank: int, channel: int) -> Slices:
        """What a rank sends in the ring of a channel."""
        protocol = schedule.protocol(operation)
        slice_bytes, _, chunk_bytes = schedule.cuts[protocol]
        cursor = schedule.cursor(rank, channel)
        cursor.use(operation.channels or schedule.channels, chunk_bytes, slice_bytes)
        cursor.begin(OPERATION_CODES[operation.op], operation.size_bytes)
        sizes: list[int] = []
        parts = 0
        while not cursor.done:
            if cursor.flags & SENDS:
                sizes.append(int(on_wire(protocol, cursor.size_bytes)))
                parts += cursor.offset_bytes == 0
            cursor.advance()
        return Slices(tuple(sizes), parts)

    # ---- direct

    def _direct(self, number: int, group: Group, schedule: Schedule) -> Iterator[Leg]:
        (operation,) = schedule.operations
        protocol = schedule.protocol(operation)
        cut = schedule.cuts[protocol]
        known: dict[tuple[int, ...], Slices] = {}
        for channel in range(operation.channels or schedule.channels):
            for place, rank in enumerate(group.members):
                sent: dict[tuple[int, int], list[int]] = {}
                for step in schedule.steps(0, channel, place):
                    for peer in step.sends:
                        sent.setdefault((peer, step.lane), []).extend(
                            int(on_wire(protocol, size)) for size in _slices(step.size_bytes, cut.slice_bytes)
                        )
                for (peer, lane), sizes in sent.items():
                    slices = known.setdefault(tuple(sizes), Slices(tuple(sizes)))
                    ranks = rank, group.members[peer]
                    edge = self._edge(number, channel, ranks, slices, (cut.slots, protocol), lane)
                    yield _lone_leg(edge)


def _slices(size_bytes: int, slice_bytes: int) -> list[int]:
    """How a step is cut."""
    whole, rest = divmod(size_bytes, slice_bytes)
    return [slice_bytes] * whole + ([rest] if rest or not whole else [])


def _alike(operation: Operation, ranks: int, channels: int) -> bool:
    """Whether every rank of a ring sends slices of the same sizes, in the same order."""
    if operation.op != "all_reduce":
        return operation.size_bytes % ranks == 0
    return operation.size_bytes % (ranks * channels * 16) == 0


def _ring_leg(edges: Sequence[Edge], slices: int, parts: int, crowds: Mapping[int, int]) -> Leg:
    """The one transfer of a channel's ring, of whose edges each carries so many slices in so many chunks.

    Slices of all channels that leave by one NIC (`crowds`) leave it together where they go in step: the first
    ones, and those that wait for a slot; others no longer meet.
    """
    whole = max(edge.bits for edge in edges)
    strands: list[Strand] = []
    for edge in edges:
        strands += edge.strands(whole)
    firsts_ps = [max(edge.copy_ps, edge.clear_ps) for edge in edges]
    first_ps = max(firsts_ps)
    tail_ps = max(edge.fixed_ps + edge.copy_ps for edge in edges)
    steps_ps = [edge.step_ps for edge in edges]
    others_ps = [edge.slice_ps * (crowds.get(edge.nic, 1) - 1) for edge in edges]
    begins_ps = [first + more for first, more in zip(firsts_ps, others_ps, strict=True)]
    rounds_ps = _longest_way(begins_ps, steps_ps, parts) - first_ps - tail_ps
    rounds_ps += max(edge.slice_ps for edge in edges) * (slices - parts) // parts
    turns_ps = [(edge.turn_ps + more) // edge.slots for edge, more in zip(edges, others_ps, strict=True)]
    slots_ps = slices * max(turns_ps)
    alone_ps = max(rounds_ps, slots_ps)
    line_ps = max(edge.bits * PS_OF_BIT_AT_KBPS // edge.line_kbps for edge in edges)
    most = whole * PS_OF_BIT_AT_KBPS // alone_ps if alone_ps > line_ps else 0
    weight = max(edge.pairs for edge in edges) * UNIT
    window = max(edge.slots * edge.slice_bits for edge in edges)
    return Leg(first_ps, Shape(tuple(strands), weight, most, window), whole, tail_ps)


def _longest_way(firsts_ps: Sequence[int], steps_ps: Sequence[int], many: int) -> int:
    """The longest time of so many steps one after another round a ring, from what precedes the first."""
    turns, rest = divmod(many, len(steps_ps))
    window = sum(steps_ps[:rest])
    most = firsts_ps[0] + window
    for at in range(1, len(steps_ps)):
        window += steps_ps[(at + rest - 1) % len(steps_ps)] - steps_ps[at - 1]
        most = max(most, firsts_ps[at] + window)
    return turns * sum(steps_ps) + most


def _lone_leg(edge: Edge) -> Leg:
    """The transfer of a connection by itself."""
    line_ps = edge.bits * PS_OF_BIT_AT_KBPS // edge.line_kbps
    most = 0
    if edge.slice_bits and edge.turn_ps > edge.slots * edge.slice_ps:
        alone_ps = line_ps * edge.turn_ps // (edge.slots * max(edge.slice_ps, 1))
        most = edge.bits * PS_OF_BIT_AT_KBPS // alone_ps if alone_ps > line_ps else 0
    first_ps = max(edge.copy_ps, edge.clear_ps)
    window = edge.slots * edge.slice_bits
    shape = Shape(tuple(edge.strands(edge.bits)), edge.pairs * UNIT, most, window)
    return Leg(first_ps, shape, edge.bits, edge.fixed_ps + edge.copy_ps, edge.copy_ps)
