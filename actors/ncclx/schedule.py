"""What each rank of a communicator does in each call, and whom it is connected to.

A schedule asks the algorithm of a call for one rank's steps on one channel when that rank begins it, and not
before: the graphs of all ranks together are never in memory. Connections are found by asking every rank once
for each kind of call, with 64 B for each rank and channel, so an algorithm may not choose peers by size.

The operations of `actors.ncclx.algorithms.ring` have no graph: there a rank sends to the next one in the
order of the channel's ring. A transfer is the direct algorithm's between two.

Ranks are known by their places in the communicator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from typing import Final, Protocol

from actors.ncclx.algorithms.bruck import Bruck
from actors.ncclx.algorithms.chain import Chain
from actors.ncclx.algorithms.direct import Direct
from actors.ncclx.algorithms.hierarchical import Hierarchical, Pxn
from actors.ncclx.algorithms.nvls import Nvls, NvlsTree
from actors.ncclx.algorithms.pat import Pat
from actors.ncclx.algorithms.recursive import HalvingDoubling, RecursiveDoubling
from actors.ncclx.algorithms.ring import OPERATION_CODES, RingCursor
from actors.ncclx.algorithms.trees import DoubleBinaryTree
from actors.ncclx.checking import FORM, GraphError, check
from actors.ncclx.graph import NOBODY, Algorithm, Call, Step, waits
from actors.ncclx.operations import POINT_TO_POINT, SIMPLE_ONLY, Operation
from actors.ncclx.protocols import PROTOCOLS, SIMPLE
from actors.ncclx.script import TRANSFER, GroupCall
from actors.ncclx.settings import Cut, Settings
from actors.ncclx.transport.channel import StepPlans, TaskPlan

LIBRARY: Final[dict[str, Algorithm]] = {
    "ring": Chain(),
    "direct": Direct(),
    "recursive_doubling": RecursiveDoubling(),
    "halving_doubling": HalvingDoubling(),
    "bruck": Bruck(),
    "double_binary_tree": DoubleBinaryTree(),
    "hierarchical": Hierarchical(),
    "pxn": Pxn(),
    "pat": Pat(),
    "nvls": Nvls(),
    "nvls_tree": NvlsTree(),
}
"""By the names of `actors.ncclx.operations.ALGORITHMS`. Collectives whose ring closes its circle
(`actors.ncclx.algorithms.ring`) are no graphs and not here."""

_NOMINAL_BYTES: Final = 64
_KNOWN_STEPS: Final = 16_384
"""Most steps that are kept for ranks that have the same ones."""
_WHOLE_LOOPS: Final = 3
"""That are worked out behind the first: two to compare, and one that the last channel may have in part."""

Edge = tuple[int, int]
"""Peer and lane."""


def is_ring(operation: Operation) -> bool:
    """Whether an operation is one of `actors.ncclx.algorithms.ring`."""
    return operation.algorithm == "ring" and operation.op in OPERATION_CODES


def byte_counts(weights: Sequence[Sequence[int]], size_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Bytes from each rank to each: `size_bytes` is what the rank that sends most sends in all."""
    most = max(sum(row) for row in weights)
    return tuple(tuple(size_bytes * weight // most for weight in row) for row in weights)


def operations_of(calls: Iterable[GroupCall]) -> list[Operation]:
    """Calls of a script as operations."""
    return [
        Operation(
            call.op,
            call.algorithm,
            call.size_bytes,
            0,
            warmup=False,
            root=call.root,
            weights=call.weights,
            own=call.own,
            protocol=call.protocol,
            channels=call.channels,
        )
        for call in calls
    ]


class Proofs(Protocol):
    """Which graphs were proved to be the collective that they claim to be, by a digest of their content."""

    def __contains__(self, key: str) -> bool: ...

    def add(self, key: str) -> None:
        """Remember one."""


class Schedule:
    """The calls of one communicator. `nodes` says which server each of its ranks is on, `channels` how many
    there are.
    """

    def __init__(
        self, settings: Settings, operations: Sequence[Operation], nodes: Sequence[int], channels: int
    ) -> None:
        self.settings = settings
        self._rings: dict[int, tuple[tuple[int, ...], list[int]]] = {}
        """By channel: the ring, and where in it each rank is."""
        self.operations: Sequence[Operation] = tuple(operations)
        self.nodes = tuple(nodes)
        pairs = (*POINT_TO_POINT, TRANSFER)
        exchange = all(one.op in pairs for one in operations)
        self.cuts = [settings.cut(point_to_point=exchange, protocol=one) for one in PROTOCOLS.values()]
        """How its channel buffers are used, by protocol."""
        self.channels = channels
        """Channels of the communicator."""
        self._cut_as_bytes = 0
        self._known_loops: dict[Operation, tuple[int, int]] = {}

    def with_operations(self, operations: Sequence[Operation]) -> Schedule:
        """The same ranks with other operations; this one if they are the same."""
        if len(operations) == len(self.operations) and tuple(operations) == tuple(self.operations):
            return self
        other = copy(self)
        other.operations = tuple(operations)
        return other

    def part(self, operation: Operation, size_bytes: int) -> Schedule:
        """One operation of this size, cut into chunks as a larger one is."""
        other = copy(self)
        other.operations = (operation._replace(size_bytes=size_bytes),)
        other._cut_as_bytes = operation.size_bytes
        other._known_loops = {}
        return other

    def loop(self, operation: Operation) -> tuple[int, int]:
        """With how many bytes more an operation has every slice once more; loops under way."""
        algorithm = LIBRARY[operation.algorithm] if operation.own is None else operation.own
        return algorithm.loop(self.call(operation, 0))

    def ring(self, channel: int) -> tuple[int, ...]:
        """The ranks in the order of a channel's ring."""
        return self._ring(channel)[0]

    def _ring(self, channel: int) -> tuple[tuple[int, ...], list[int]]:
        known = self._rings.get(channel)
        if known is None:
            ring = self.call(self.operations[0], channel).ring()
            places = [0] * len(ring)
            for at, rank in enumerate(ring):
                places[rank] = at
            known = self._rings[channel] = ring, places
        return known

    def cursor(self, rank: int, channel: int) -> RingCursor:
        """A rank's way through the ring of a channel."""
        ring, places = self._ring(channel)
        settings = self.settings
        return RingCursor(
            len(ring),
            places[rank],
            self.channels,
            channel,
            settings.chunk_bytes,
            settings.slice_bytes,
            ring,
            settings.even_slices,
        )

    def neighbours(self, rank: int, channel: int) -> tuple[int, int]:
        """Neighbours of a rank in the ring of a channel: the one before and the one after."""
        ring, places = self._ring(channel)
        place = places[rank]
        return ring[place - 1], ring[(place + 1) % len(ring)]

    def protocol(self, operation: Operation) -> int:
        """The protocol of an operation. Sends and receives, algorithms that have no other, and what a user
        wrote go by Simple.
        """
        if operation.own is not None or operation.op in (*POINT_TO_POINT, TRANSFER):
            return int(SIMPLE)
        if operation.algorithm in SIMPLE_ONLY:
            return int(SIMPLE)
        return PROTOCOLS.get(operation.protocol or self.settings.protocol, int(SIMPLE))

    def slots(self) -> int:
        """Slots of an end of a connection: the most that an operation uses."""
        return max(self.cuts[self.protocol(one)].slots for one in self.operations)

    def call(self, operation: Operation, channel: int) -> Call:
        """An operation as a channel sees it."""
        settings = self.settings
        protocol = self.protocol(operation)
        cut = self.cuts[protocol]
        return Call(
            op=operation.op,
            ranks=len(self.nodes),
            size_bytes=operation.size_bytes,
            channels=operation.channels or self.channels,
            channel=channel,
            chunk_bytes=cut.chunk_bytes,
            step_bytes=cut.slice_bytes if protocol else settings.step_bytes,
            root=operation.root,
            counts=byte_counts(operation.weights, operation.size_bytes) if operation.weights else (),
            nodes=self.nodes,
            turned=settings.turned_rings,
            crossing=settings.crossing_rings,
            rings=self.channels,
            cut_as_bytes=self._cut_as_bytes,
            protocol=protocol,
        )

    def edges(self, channel: int) -> list[list[Edge]]:
        """For each rank, whom it sends to on a channel, in the order of first use."""
        found: list[dict[Edge, None]] = [{} for _ in self.nodes]
        for operation in self._kinds():
            for rank in range(len(self.nodes)):
                if is_ring(operation):
                    found[rank][self.neighbours(rank, channel)[1], 0] = None
                    continue
                for step in self._steps(operation, channel, rank):
                    for peer in step.sends:
                        found[rank][peer, step.lane] = None
        return [list(edges) for edges in found]

    def tasks(
        self, number: int, channel: int, rank: int, sends: Sequence[Edge], receives: Sequence[Edge]
    ) -> StepPlans:
        """A rank's steps of operation `number`, with the places of peers in `sends` and `receives`.

        Of a long one the first loops and the last are worked out; those between are as one of them.
        """
        operation = self.operations[number]
        loop_bytes, reach = self._loops(operation)
        more = operation.size_bytes // loop_bytes - reach - _WHOLE_LOOPS if loop_bytes else 0
        if more > 0:
            size_bytes = operation.size_bytes - more * loop_bytes
            plans = self.part(operation, size_bytes)._tasks(channel, rank, sends, receives)
            period = len(self.part(operation, loop_bytes).steps(0, channel, rank))
            first = reach * period
            if _repeats(plans, first, period):
                return StepPlans(plans, first, period, more)
        return StepPlans(self.with_operations([operation])._tasks(channel, rank, sends, receives))

    def _loops(self, operation: Operation) -> tuple[int, int]:
        """Bytes of a loop, and how many loops back a step may have to wait for."""
        known = self._known_loops.get(operation)
        if known is None:
            algorithm = LIBRARY[operation.algorithm] if operation.own is None else operation.own
            call = self.call(operation, 0)
            known = self._known_loops[operation] = algorithm.loop(call)[0], algorithm.reach(call)
        return known

    def _tasks(
        self, channel: int, rank: int, sends: Sequence[Edge], receives: Sequence[Edge]
    ) -> list[TaskPlan]:
        """All steps of the one operation."""
        to = {edge: place for place, edge in enumerate(sends)}
        back = {edge: place for place, edge in enumerate(receives)}
        steps = self.steps(0, channel, rank)
        return [
            (
                back[step.receive, step.lane] if step.receive != NOBODY else -1,
                [to[peer, step.lane] for peer in step.sends],
                step.size_bytes,
                step.receive != NOBODY and bool(step.source),
                list(after),
            )
            for step, after in zip(steps, waits(steps), strict=True)
        ]

    def steps(self, number: int, channel: int, rank: int) -> list[Step]:
        """A rank's steps of operation `number` on a channel."""
        return self._steps(self.operations[number], channel, rank)

    def _steps(self, operation: Operation, channel: int, rank: int) -> list[Step]:
        own = operation.own
        algorithm = LIBRARY[operation.algorithm] if own is None else own
        return algorithm.steps(self.call(operation, channel), rank)

    def faults(self, proofs: Proofs) -> Iterator[tuple[Operation, str]]:
        """Operations of which an algorithm of the user's is no correct collective, and why.

        What `proofs` has is not proved again.
        """
        for operation in dict.fromkeys(one._replace(iteration=0, warmup=False) for one in self.operations):
            own = operation.own
            if own is None:
                continue
            calls = [self.call(operation, channel) for channel in range(self.channels)]
            cut = self.cuts[self.protocol(operation)]
            try:
                content = own.content()
                key = "" if content is None else _key(content, calls, cut)
                if key and key in proofs:
                    continue
                _check_types(own, calls[0])
                graphs = [[own.steps(call, rank) for rank in range(len(self.nodes))] for call in calls]
                key = key or _key(graphs, calls, cut)
                if key not in proofs:
                    check(calls, graphs, cut.slice_bytes, cut.slots)
                    proofs.add(key)
            except GraphError as error:
                yield operation, str(error)

    def _nominal(self, operation: Operation) -> Operation:
        size = _NOMINAL_BYTES * len(self.nodes) * self.channels
        if operation.weights:
            size *= max(sum(row) for row in operation.weights)
        if operation.own is not None:
            size *= operation.own.pieces
        return operation._replace(size_bytes=size, iteration=0, warmup=False, protocol="", channels=0)

    def _kinds(self) -> Iterable[Operation]:
        return dict.fromkeys(map(self._nominal, self.operations))


def _check_types(own: Algorithm, call: Call) -> None:
    """Raises GraphError if an algorithm of the user's answers with another type than `Algorithm` does."""
    for name, found, kind, accepted in (
        ("pieces", own.pieces, int, "a whole number"),
        ("loop", own.loop(call), tuple, "two whole numbers"),
        ("reach", own.reach(call), int, "a whole number"),
        ("steps", own.steps(call, 0), list, "a list of Step"),
    ):
        parts: list[object] = list(found) if isinstance(found, (tuple, list)) else []
        part = Step if name == "steps" else int
        if (
            not isinstance(found, kind)
            or not all(isinstance(one, part) for one in parts)
            or (name == "loop" and len(parts) != 2)
        ):
            raise GraphError(f"`{name}` of {type(own).__name__} is {repr(found)[:80]}, not {accepted}")


class KnownPlans:
    """The steps of calls, of which ranks of a job have the same: those at one place in groups that are alike,
    and each rank again where its calls repeat.
    """

    def __init__(self) -> None:
        self._plans: dict[tuple[int, int], StepPlans] = {}
        self._kinds: dict[Operation, int] = {}
        """Operations, those with the same steps under one number."""
        self._places: dict[Hashable, int] = {}
        """What else than the operation decides on steps, numbered: it is long to look up."""
        self._steps = 0

    def of(
        self, schedule: Schedule, channel: int, rank: int, sends: Sequence[Edge], receives: Sequence[Edge]
    ) -> Callable[[int], StepPlans]:
        """`Schedule.tasks` by number of the operation. Servers count by which ranks share one, but for
        algorithms of the user's, which see their numbers.
        """
        at: dict[int, int] = {}
        servers = tuple([at.setdefault(node, len(at)) for node in schedule.nodes])
        places = self._places
        fixed = (tuple(schedule.cuts), schedule.channels, channel, rank, tuple(sends), tuple(receives))
        equal = places.setdefault((fixed, servers), len(places))
        own = places.setdefault((fixed, schedule.nodes), len(places))

        def tasks(number: int) -> StepPlans:
            operation = schedule.operations[number]
            kind = self._kinds.get(operation)
            if kind is None:
                usual = operation._replace(iteration=0, warmup=False)
                kind = self._kinds[operation] = self._kinds.setdefault(usual, len(self._kinds))
            key = (kind, equal if operation.own is None else own)
            found = self._plans.get(key)
            if found is None:
                found = schedule.tasks(number, channel, rank, sends, receives)
                self._steps += len(found.plans)
                if self._steps > _KNOWN_STEPS:
                    self._plans.clear()
                    self._steps = len(found.plans)
                self._plans[key] = found
            return found

        return tasks


def _key(content: object, calls: Sequence[Call], cut: Cut) -> str:
    """By what a proof is remembered: what the graphs follow from, or the graphs, and what they are to do."""
    return hashlib.sha256(repr((FORM, content, calls, cut.slice_bytes, cut.slots)).encode()).hexdigest()


def _repeats(plans: Sequence[TaskPlan], first: int, period: int) -> bool:
    """Whether the loop from step `first` on is as the next one."""
    if len(plans) < first + 2 * period:
        return False
    return all(
        plans[number][:4] == plans[number + period][:4]
        and [one + period for one in plans[number][4]] == plans[number + period][4]
        for number in range(first, first + period)
    )
