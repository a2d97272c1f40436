"""Calls of the library at flow level: a collective or a transfer as a few transfers with latencies around.

Every *leg* of a call begins with what precedes its first byte on a link (the first copy, or the first
clear-to-send, whichever is later) and ends with what follows its last one.

Rings. All connections of a channel's ring go at one rate, that of the slowest: nobody can be further ahead
than its buffers. Slices follow one another round the ring, and a chunk is passed on as soon as it is here, so
an operation of `parts` chunks takes the links' time of all slices, or a step for every chunk, whichever is
longer, and not less than its buffer slots allow (slots x slice a turn).

Direct. Every connection is a leg of its own.

Source of the forms: `tests.ncclx.test_closed_forms`, where the packet level is held against them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from actors.fabric.paths import Delays
from actors.flow.filling import UNIT
from actors.flow.progress import Shape, Strand
from actors.ncclx.algorithms.ring import OPERATION_CODES
from actors.ncclx.operations import Operation
from actors.ncclx.protocols import on_wire
from actors.ncclx.schedule import Schedule, is_ring
from actors.ncclx.script import COLLECTIVE, LINE, TRANSFER, Group
from actors.ncclx.transport.channel import SENDS
from actors.ncclx.transport.wiring import Side, WiredJob
from emu.flow.connections import PS_OF_BIT_AT_KBPS, Connection, Connections, Slices
from emu.flow.isolated import Part, Result
from emu.flow.requests import Request, Requests

PACKETS: Final = "fidelity: packet"
MOST_WALKED: Final = 1024
"""Ranks of a ring of which each one's slices are looked at; of more, the first one's count for all."""
SETTLED: Final = 4
"""How many times as many loops as are under way at once go before those whose cost stands for others. After
one, a loop of a tree still takes up to a tenth more than later ones: slices of all begin at once, and drift
apart until each finds its links free."""
FEWEST: Final = 7
"""How many times as many a call has at least that is not gone through whole."""

DIRECT: Final = (
    "all_to_all",
    "all_to_allv",
    "gather",
    "scatter",
    "sendrecv",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
)
"""What `direct` does in one round: its connections are independent of one another."""


class Leg(NamedTuple):
    """A transfer of a call."""

    first_ps: int
    shape: Shape
    bits: int
    tail_ps: int
    fixed_ps: int = -1
    """What it takes on links that nobody else uses; -1: a matter of rates."""


class Carried(NamedTuple):
    """What a connection carries in a call: channel, members that send and receive, lane."""

    channel: int
    ranks: tuple[int, int]
    lane: int
    slices: Slices
    connection: Connection


class Parts(NamedTuple):
    """An operation of a group: what its connections carry (of rings, one by one), and by which schedule.

    A long one is gone through in part: by `schedule`, and by `longer`, which has one loop more.
    """

    group: Group
    schedule: Schedule
    rings: list[list[Carried]]
    longer: Schedule | None = None
    loops: int = 0


class Launch(NamedTuple):
    """A call: its transfers, what it takes at least, and by how much sooner than the last single ranks are
    through."""

    legs: list[Leg]
    least_ps: int
    sooner_ps: dict[int, int]


class Calls:
    """The calls of one job."""

    def __init__(
        self, job: WiredJob, connections: Connections, requests: Requests | None, delays: Delays
    ) -> None:
        self._job = job
        self._connections = connections
        self._requests = requests
        self._delays = delays
        self._slices: dict[Hashable, dict[_Connection, list[int]]] = {}
        """Known ones of operations of groups."""
        self._ring_slices: dict[Hashable, dict[int, Slices]] = {}
        """By ring and operation: what each rank of it sends. Groups that are plain share it."""
        self._sides: dict[tuple[int, int, int, int, int, bool], Side] = {}
        for rank, sides in enumerate(job.sides):
            for side in sides:
                self._sides[side.group, side.channel, rank, side.peer, side.lane, side.sends] = side

    def begin(
        self,
        number: int,
        operation: Operation,
        early_ps: Mapping[int, int],
        launch: Callable[[Launch], None],
    ) -> None:
        """A group begins an operation, to which its ranks came so early: say what it is, when all calls of
        this time are known.
        """
        assert self._requests is not None, "nobody to ask"
        known = self._parts(number, operation)
        group = known.group
        carried = [one for each in known.rings for one in each]
        if not carried:
            launch(Launch([], 0, {}))
            return
        late_ps = max(early_ps.values(), default=0)
        whole, hops = known.schedule.operations[0], sum(one.connection.hops for one in carried)
        if known.longer is not None:
            hops = hops * known.longer.operations[0].size_bytes // operation.size_bytes
        part = self._part(number, known, known.schedule, operation, carried)
        if is_ring(operation) or group.kind == LINE:
            part = part._replace(slices=sum(one.slices.count for one in carried))
        if late_ps:
            part = part._replace(delays_ps=tuple(late_ps - early_ps[rank] for rank in group.members))

        def answer(result: Result | None) -> None:
            if result is not None:
                own = [one - late_ps for one in result.of_ranks]
                result = Result(result.end_ps - late_ps, tuple(own))
            launch(self._launch(operation, group, known.rings, result))

        self._requests.ask(
            Request(
                (
                    self._key(number, group, whole, carried),
                    known.longer and known.longer.operations[0].size_bytes,
                    *(early_ps.get(rank, 0) for rank in group.members),
                ),
                {link for one in carried for _, links, _, _ in one.connection.loads for link in links},
                hops,
                sum(one.connection.pairs for one in carried),
                not has_closed_form(operation),
                lambda: [part],
                part.slices,
                answer,
                [self._part(number, known, known.longer, operation, carried)] if known.longer else [],
                known.loops,
            )
        )

    def _part(
        self,
        number: int,
        known: Parts,
        schedule: Schedule,
        operation: Operation,
        carried: Sequence[Carried],
    ) -> Part:
        """What is run of an operation of a group by a schedule: its own one, or one of a part of it."""
        group = known.group
        places = {rank: place for place, rank in enumerate(group.members)}
        outside = [one for one in carried if not one.connection.inside]
        at: Hashable = number
        if not outside:
            at = self._lines(group, carried)
        own = self._job.schedules[number]
        if known.longer is None:
            schedule = own
        firsts, counts = (
            {
                (one.channel, places[one.ranks[0]], places[one.ranks[1]], one.lane): value
                for one, value in zip(outside, values, strict=True)
            }
            for values in (
                [one.connection.first for one in outside],
                [one.slices.count for one in outside],
            )
        )
        plain = operation._replace(iteration=0, warmup=False)
        place = schedule.operations.index(plain) if schedule is own else 0
        key = self._job.job, at, None if schedule is own else (plain, schedule.operations[0].size_bytes)
        return Part(self._job, number, group.members, schedule, place, key, (), firsts, counts)

    def legs(self, number: int, operation: Operation) -> list[Leg]:
        """The transfers of an operation of a group, by closed forms."""
        known = self._parts(number, operation)
        return self._launch(operation, known.group, known.rings, None).legs if any(known.rings) else []

    def _parts(self, number: int, operation: Operation, *, whole: bool = False) -> Parts:
        """Who does an operation by which schedule, and what connections carry."""
        group, schedule = self._job.script.groups[number], self._job.schedules[number]
        if is_ring(operation):
            rings = list(self._rings(number, group, schedule, operation))
            return Parts(group, schedule.with_operations([operation]), rings)
        more_bytes, loops = loops_of(schedule, operation)
        if loops and not whole:
            size_bytes = operation.size_bytes - loops * more_bytes
            shorter = schedule.part(operation, size_bytes)
            longer = schedule.part(operation, size_bytes + more_bytes)
            short, long = self._sent(number, shorter), self._sent(number, longer)
            if all(long[key][len(long[key]) - len(sizes) :] == sizes for key, sizes in short.items()):
                each = {
                    key: Slices(tuple(sizes), 1, tuple(long[key][: len(long[key]) - len(sizes)]), loops)
                    for key, sizes in short.items()
                }
                return Parts(group, shorter, [self._graph(number, group, shorter, each)], longer, loops)
        schedule = schedule.with_operations([operation])
        each = {key: Slices(tuple(sizes)) for key, sizes in self._sent(number, schedule).items()}
        return Parts(group, schedule, [self._graph(number, group, schedule, each)])

    def _key(self, number: int, group: Group, operation: Operation, carried: Sequence[Carried]) -> Hashable:
        """What an isolated run depends on. Calls inside servers are plain where their NVLinks are."""
        if any(not one.connection.inside for one in carried):
            return (
                self._job.job,
                number,
                operation,
                tuple(one.connection.first % one.connection.pairs for one in carried),
            )
        return self._job.job, operation, self._lines(group, carried)

    def _lines(self, group: Group, carried: Sequence[Carried]) -> Hashable:
        """What connections inside servers are like."""
        places = {rank: place for place, rank in enumerate(group.members)}
        return tuple(
            (one.channel, places[one.ranks[0]], places[one.ranks[1]], one.lane, *one.connection.shape())
            for one in carried
        )

    def copied_ps(self, number: int, operation: Operation) -> int:
        """What the sender of a transfer takes to copy it into its slots; -1 if they do not hold it."""
        schedule = self._job.schedules[number]
        protocol = schedule.protocol(operation)
        cut = schedule.cuts[protocol]
        if operation.size_bytes > cut.slots * cut.slice_bytes * (operation.channels or schedule.channels):
            return -1
        return self._connections.copy_ps(operation.size_bytes, protocol)

    def _ends(self, group: int, one: Carried) -> tuple[Side, Side]:
        """Both sides of a connection."""
        rank, peer = one.ranks
        send = self._sides[group, one.channel, rank, peer, one.lane, True]
        return send, self._sides[group, one.channel, peer, rank, one.lane, False]

    def _carried(
        self,
        group: int,
        channel: int,
        ranks: tuple[int, int],
        slices: Slices,
        cut: tuple[int, int],
        lane: int,
    ) -> Carried:
        """The connection between two ranks; `cut` are slots and protocol."""
        rank, peer = ranks
        send = self._sides[group, channel, rank, peer, lane, True]
        receive = self._sides[group, channel, peer, rank, lane, False]
        alone = self._job.script.groups[group].kind != COLLECTIVE
        block = self._job.gpus[rank], -2 - (channel << 24 | (peer + 1 if alone else 0))
        connection = self._connections.connection(send, receive, rank, slices, cut, block)
        return Carried(channel, ranks, lane, slices, connection)

    def _launch(
        self, operation: Operation, group: Group, rings: Sequence[Sequence[Carried]], result: Result | None
    ) -> Launch:
        """A call, with the result of its isolated run."""
        carried = [one for each in rings for one in each]
        over_ps = result.end_ps if result else 0
        if result is not None:  # legs are of what follows the launch
            result = result._replace(end_ps=max(result.end_ps - self._job.settings.launch_ps, 1))
        begun_ps = result.end_ps if result else 0
        legs: list[Leg] = []
        if is_ring(operation):
            sharing = Counter(one.connection.nic for one in carried if not one.connection.inside)
            for each in rings:
                known = each[-1].slices
                connections = [one.connection for one in each]
                legs.append(_ring_leg(connections, len(known.sizes), known.parts, sharing, begun_ps))
        elif result is not None:
            legs = [_graph_leg([one.connection for one in carried], result)]
        elif _independent(operation):
            written = Counter(one.connection.block for one in carried)
            legs = [_lone_leg(one.connection, written[one.connection.block]) for one in carried]
        else:
            raise AssertionError(operation)  # it was rejected before the run
        launch_ps = self._job.settings.launch_ps
        legs = [leg._replace(first_ps=leg.first_ps + launch_ps) for leg in legs]
        sooner_ps: dict[int, int] = {}
        if result is not None:
            ends = zip(group.members, result.of_ranks, strict=True)
            sooner_ps = {rank: over_ps - end_ps for rank, end_ps in ends}
        return Launch(legs, over_ps, sooner_ps)

    # ---- what connections carry

    def _rings(
        self, number: int, group: Group, schedule: Schedule, operation: Operation
    ) -> Iterator[list[Carried]]:
        protocol = schedule.protocol(operation)
        cut = schedule.cuts[protocol]
        channels = operation.channels or schedule.channels
        for channel in range(channels):
            ring = schedule.ring(channel)
            equal = len(ring) > MOST_WALKED or _equal_slices(operation, len(ring), channels)
            key = ring, schedule.channels, channel, cut, operation._replace(iteration=0, warmup=False)
            walked = self._ring_slices.setdefault(key, {})
            found: list[Carried] = []
            for at, place in enumerate(ring):
                first = ring[0] if equal else place
                if first not in walked:
                    walked[first] = _ring_slices(schedule, operation, first, channel)
                known = walked[first]
                if not known.sizes:
                    break
                ranks = group.members[place], group.members[ring[(at + 1) % len(ring)]]
                found.append(self._carried(number, channel, ranks, known, (cut.slots, protocol), 0))
            if found:
                yield found

    def _graph(
        self, number: int, group: Group, schedule: Schedule, sent: Mapping[_Connection, Slices]
    ) -> list[Carried]:
        (operation,) = schedule.operations
        protocol = schedule.protocol(operation)
        cut = schedule.cuts[protocol].slots, protocol
        known: dict[Slices, Slices] = {}
        members = group.members
        return [
            self._carried(
                number, channel, (members[place], members[peer]), known.setdefault(one, one), cut, lane
            )
            for (channel, place, peer, lane), one in sent.items()
        ]

    def _sent(self, group: int, schedule: Schedule) -> dict[_Connection, list[int]]:
        """The slices that connections carry in the one operation of a schedule."""
        (operation,) = schedule.operations
        key = group, operation._replace(iteration=0, warmup=False), schedule.loop(operation)
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = _sent(schedule, operation)
        return found


_Connection = tuple[int, int, int, int]
"""Channel, places of both ends, lane."""


def _sent(schedule: Schedule, operation: Operation) -> dict[_Connection, list[int]]:
    """The slices that connections carry in an operation."""
    protocol = schedule.protocol(operation)
    slice_bytes = schedule.cuts[protocol].slice_bytes
    found: dict[_Connection, list[int]] = {}
    for channel in range(operation.channels or schedule.channels):
        for place in range(len(schedule.nodes)):
            for step in schedule.steps(0, channel, place):
                for peer in step.sends:
                    found.setdefault((channel, place, peer, step.lane), []).extend(
                        int(on_wire(protocol, size)) for size in _slices(step.size_bytes, slice_bytes)
                    )
    return found


def _walk(
    schedule: Schedule, operation: Operation, rank: int, channel: int
) -> Iterator[tuple[int, int, bool]]:
    """What a rank does in the ring of a channel: flags and bytes of each slice, and if it begins a chunk."""
    slice_bytes, _, chunk_bytes = schedule.cuts[schedule.protocol(operation)]
    cursor = schedule.cursor(rank, channel)
    cursor.use(operation.channels or schedule.channels, chunk_bytes, slice_bytes)
    cursor.begin(OPERATION_CODES[operation.op], operation.size_bytes)
    while not cursor.done:
        yield int(cursor.flags), int(cursor.size_bytes), cursor.offset_bytes == 0
        cursor.advance()


def _ring_slices(schedule: Schedule, operation: Operation, rank: int, channel: int) -> Slices:
    """What a rank sends in the ring of a channel."""
    protocol = schedule.protocol(operation)
    sizes: list[int] = []
    parts = 0
    for flags, size, begins in _walk(schedule, operation, rank, channel):
        if flags & SENDS:
            sizes.append(int(on_wire(protocol, size)))
            parts += begins
    return Slices(tuple(sizes), parts)


def loops_of(schedule: Schedule, operation: Operation) -> tuple[int, int]:
    """The bytes of as many loops as are in flight at once, and how often these are left out, for an operation
    that is run in part: with `SETTLED` times as many, and once more; 0 and 0 for one that is run whole.
    """
    if is_ring(operation):
        return 0, 0
    loop_bytes, fill = schedule.loop(operation)
    more_bytes = loop_bytes << (fill - 1).bit_length()  # a power of two, as sizes are: same parts of all
    fills = operation.size_bytes // more_bytes if more_bytes else 0
    return (more_bytes, fills - SETTLED) if fills >= FEWEST else (0, 0)


def has_closed_form(operation: Operation) -> bool:
    """Whether it need not be run alone."""
    return is_ring(operation) or _independent(operation)


def _independent(operation: Operation) -> bool:
    """Whether the connections of a call do not wait for one another."""
    return operation.algorithm == "direct" and operation.op in (*DIRECT, TRANSFER)


def _slices(size_bytes: int, slice_bytes: int) -> list[int]:
    """How a step is cut."""
    whole, rest = divmod(size_bytes, slice_bytes)
    return [slice_bytes] * whole + ([rest] if rest or not whole else [])


def _equal_slices(operation: Operation, ranks: int, channels: int) -> bool:
    """Whether every rank of a ring sends slices of the same sizes, in the same order."""
    if operation.op != "all_reduce":
        return operation.size_bytes % ranks == 0
    return operation.size_bytes % (ranks * channels * 16) == 0


def _ring_leg(
    connections: Sequence[Connection], slices: int, parts: int, sharing: Mapping[int, int], over_ps: int
) -> Leg:
    """The one transfer of a channel's ring, of whose connections each carries `slices` in `parts` chunks.

    `over_ps` is when an isolated run had the last slice copied out. Without one (0) closed forms say it:

    Slices of all channels that leave by one NIC (`sharing`) leave it together where they go in step: the
    first ones, and those that wait for a slot; others no longer meet.
    """
    whole = max(connection.bits for connection in connections)
    strands: list[Strand] = []
    for connection in connections:
        strands += connection.strands(whole)
    firsts_ps = [max(connection.copy_ps, connection.clear_ps) for connection in connections]
    first_ps = max(firsts_ps)
    tail_ps = max(connection.fixed_ps + connection.copy_ps for connection in connections)
    steps_ps = [connection.step_ps for connection in connections]
    others_ps = [connection.slice_ps * (sharing.get(connection.nic, 1) - 1) for connection in connections]
    begins_ps = [first + more for first, more in zip(firsts_ps, others_ps, strict=True)]
    rounds_ps = _longest_way(begins_ps, steps_ps, parts) - first_ps - tail_ps
    rounds_ps += max(connection.slice_ps for connection in connections) * (slices - parts) // parts
    turns_ps = [
        (connection.turn_ps + more) // connection.slots
        for connection, more in zip(connections, others_ps, strict=True)
    ]
    slots_ps = slices * max(turns_ps)
    written_ps = max(connection.written_ps() for connection in connections)
    alone_ps = max(over_ps - first_ps - tail_ps, 1) if over_ps else max(rounds_ps, slots_ps, written_ps)
    line_ps = max(connection.bits * PS_OF_BIT_AT_KBPS // connection.line_kbps for connection in connections)
    most = whole * PS_OF_BIT_AT_KBPS // alone_ps if alone_ps > line_ps else 0
    weight = max(connection.pairs for connection in connections) * UNIT
    window = max(connection.slots * connection.slice_bits for connection in connections)
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


def _lone_leg(connection: Connection, written: int) -> Leg:
    """The transfer of a connection by itself, whose thread block writes so many."""
    line_ps = connection.bits * PS_OF_BIT_AT_KBPS // connection.line_kbps
    alone_ps = connection.written_ps(written)
    if connection.slice_bits and connection.turn_ps > connection.slots * connection.slice_ps:
        turning_ps = (
            max(line_ps, connection.written_ps())
            * connection.turn_ps
            // (connection.slots * max(connection.slice_ps, 1))
        )
        alone_ps = max(alone_ps, turning_ps)
    most = connection.bits * PS_OF_BIT_AT_KBPS // alone_ps if alone_ps > line_ps else 0
    first_ps = max(connection.copy_ps, connection.clear_ps)
    window = connection.slots * connection.slice_bits
    shape = Shape(tuple(connection.strands(connection.bits)), connection.pairs * UNIT, most, window)
    return Leg(first_ps, shape, connection.bits, connection.fixed_ps + connection.copy_ps)


def _graph_leg(connections: Sequence[Connection], result: Result) -> Leg:
    """The one transfer of a call by an algorithm whose connections wait for one another."""
    whole = max(connection.bits for connection in connections)
    strands = tuple(strand for connection in connections for strand in connection.strands(whole))
    first_ps = min(max(connection.copy_ps, connection.clear_ps) for connection in connections)
    line_ps = max(connection.bits * PS_OF_BIT_AT_KBPS // connection.line_kbps for connection in connections)
    # What a small call waits for overlaps, so less is left behind its last byte than the connections say.
    tail_ps = min(connection.fixed_ps + connection.copy_ps for connection in connections)
    tail_ps = max(min(tail_ps, result.end_ps - first_ps - line_ps), 0)
    alone_ps = result.end_ps - first_ps - tail_ps
    most = whole * PS_OF_BIT_AT_KBPS // alone_ps if alone_ps > line_ps else 0
    window = max(connection.slots * connection.slice_bits for connection in connections)
    weight = max(connection.pairs for connection in connections) * UNIT
    return Leg(first_ps, Shape(strands, weight, most, window), whole, tail_ps)
