"""What does each rank do in each operation of a job, and whom must it be connected to?

A schedule asks the algorithm of an operation for one rank's steps on one channel when that rank begins it,
and not before: the graphs of all ranks together are never in memory. Connections are found by asking every
rank once for each kind of operation, with 64 B for each rank and channel, so an algorithm may not choose
peers by size.

The operations of `actors.ncclx.ring` have no graph: there a rank sends to the next one in the order of the
channel's ring.

A job that is split has several communicators, each of which does every operation by itself, at once. An
algorithm knows ranks by their place in their communicator; what leaves here has those of the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Final

from actors.fabric.model import Topology
from actors.ncclx.algorithms.given import Given
from actors.ncclx.algorithms.table import LIBRARY
from actors.ncclx.checking import GraphError, check
from actors.ncclx.collectives import POINT_TO_POINT
from actors.ncclx.graph import NOBODY, Algorithm, Call, Step, waits
from actors.ncclx.graph_channel import TaskPlan
from actors.ncclx.operations import Operation, benchmark, payload_bytes
from actors.ncclx.ring import OPERATION_CODES, RingCursor
from emu.errors import Problem, ScenarioError
from emu.scenario.plugins import load_plugin
from emu.scenario.schema import Scenario
from emu.scenario.sections.algorithm import AUTO, GRAPH
from emu.scenario.sections.graph import GraphSection
from emu.scenario.sections.jobs import CollectiveWorkload
from emu.scenario.sections.ncclx import NcclxSection
from emu.scenario.tuner import pick

_NOMINAL_BYTES: Final = 64

Edge = tuple[int, int]
"""Peer and lane."""


def is_ring(operation: Operation) -> bool:
    """Whether an operation is one of `actors.ncclx.ring`."""
    return operation.algorithm == "ring" and operation.op in OPERATION_CODES


def byte_counts(weights: Sequence[Sequence[int]], size_bytes: int) -> tuple[tuple[int, ...], ...]:
    """Bytes from each rank to each: `size_bytes` is what the rank that sends most sends in all."""
    most = max(sum(row) for row in weights)
    return tuple(tuple(size_bytes * weight // most for weight in row) for row in weights)


class Schedule:
    """The operations of one job. `nodes` says which server each rank is on."""

    def __init__(
        self,
        ncclx: NcclxSection,
        operations: Sequence[Operation],
        nodes: Sequence[int],
        graph: GraphSection | None = None,
        groups: Sequence[Sequence[int]] = (),
    ) -> None:
        self.ncclx = ncclx
        self.groups = tuple(map(tuple, groups)) or (tuple(range(len(nodes))),)
        """Ranks of each communicator, in their order."""
        self.members = {rank: group for group in self.groups for rank in group}
        """By rank, the communicator that it is in."""
        self._own: dict[str, Algorithm] = {} if graph is None else {GRAPH: Given(graph)}
        self._rings: dict[tuple[int, int], tuple[int, ...]] = {}
        """By the first rank of a communicator, and channel."""
        self.operations = tuple(operations)
        self.nodes = tuple(nodes)
        point_to_point = all(one.op in POINT_TO_POINT for one in operations)
        self.cut = ncclx.cut(point_to_point=point_to_point)
        """How its channel buffers are used."""

    def with_operations(self, operations: Sequence[Operation]) -> Schedule:
        """The same ranks with other operations; this one if they are the same."""
        if tuple(operations) == self.operations:
            return self
        other = copy(self)
        other.operations = tuple(operations)
        return other

    def ring(self, rank: int, channel: int) -> tuple[int, ...]:
        """The ring of a rank's communicator on a channel, by the ranks' places in it."""
        group = self.members[rank]
        known = self._rings.get((group[0], channel))
        if known is None:
            known = self._rings[group[0], channel] = self.call(self.operations[0], channel, group).ring()
        return known

    def cursor(self, rank: int, channel: int) -> RingCursor:
        """A rank's way through the ring of its communicator on a channel."""
        group, ring, ncclx = self.members[rank], self.ring(rank, channel), self.ncclx
        place = ring.index(group.index(rank))
        return RingCursor(
            len(ring), place, ncclx.channels, channel, ncclx.chunk_bytes, ncclx.slice_bytes, ring
        )

    def neighbours(self, rank: int, channel: int) -> tuple[int, int]:
        """Of a rank in the ring of its communicator: the one before and the one after."""
        group = self.members[rank]
        ring = self.ring(rank, channel)
        place = ring.index(group.index(rank))
        return group[ring[place - 1]], group[ring[(place + 1) % len(ring)]]

    def call(self, operation: Operation, channel: int, group: Sequence[int]) -> Call:
        """An operation as a channel of a communicator sees it."""
        ncclx = self.ncclx
        return Call(
            op=operation.op,
            ranks=len(group),
            size_bytes=operation.size_bytes,
            channels=ncclx.channels,
            channel=channel,
            chunk_bytes=self.cut.chunk_bytes,
            step_bytes=ncclx.step_bytes,
            root=operation.root,
            counts=byte_counts(operation.weights, operation.size_bytes) if operation.weights else (),
            nodes=tuple(self.nodes[rank] for rank in group),
            turned=ncclx.ring_order == "by_channel",
        )

    def edges(self, channel: int) -> list[list[Edge]]:
        """For each rank, whom it sends to on a channel, in the order of first use."""
        found: list[dict[Edge, None]] = [{} for _ in self.nodes]
        ranks = len(self.nodes)
        for operation in self._kinds():
            for rank in range(ranks):
                if is_ring(operation):
                    found[rank][self.neighbours(rank, channel)[1], 0] = None
                    continue
                for step in self._steps(operation, channel, rank):
                    found[rank].update(((peer, step.lane), None) for peer in step.sends)
        return [list(edges) for edges in found]

    def payload_bytes(self) -> int:
        """What all ranks together send in all operations, up to rounding: in proportion to the size."""
        per_kind: dict[Operation, int] = {}
        for kind in self._kinds():
            if not is_ring(kind):
                per_kind[kind] = sum(
                    step.size_bytes * len(step.sends)
                    for channel in range(self.ncclx.channels)
                    for rank in range(len(self.nodes))
                    for step in self._steps(kind, channel, rank)
                )
        sent = 0
        for operation in self.operations:
            if is_ring(operation):
                sent += sum(payload_bytes(operation, len(group)) for group in self.groups)
            else:
                kind = self._nominal(operation)
                sent += per_kind[kind] * operation.size_bytes // kind.size_bytes
        return sent

    def tasks(
        self, number: int, channel: int, rank: int, sends: Sequence[Edge], receives: Sequence[Edge]
    ) -> list[TaskPlan]:
        """A rank's steps of operation `number`, with the places of peers in `sends` and `receives`."""
        to = {edge: place for place, edge in enumerate(sends)}
        back = {edge: place for place, edge in enumerate(receives)}
        steps = self.steps(number, channel, rank)
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
        group = self.members[rank]
        call = self.call(operation, channel, group)
        steps = self._algorithm(operation.algorithm).steps(call, group.index(rank))
        if len(self.groups) == 1:
            return steps
        return [
            step._replace(
                receive=group[step.receive] if step.receive != NOBODY else NOBODY,
                sends=tuple(group[peer] for peer in step.sends),
            )
            for step in steps
        ]

    def _algorithm(self, name: str) -> Algorithm:
        """Of the library, handed in as a graph, or a class of the user's."""
        if name in LIBRARY:
            return LIBRARY[name]
        if name not in self._own:
            self._own[name] = load_plugin(name)()
        return self._own[name]

    def faults(self) -> Iterator[tuple[Operation, str]]:
        """Operations of which an algorithm of the user's is no correct collective, and why."""
        ncclx = self.ncclx
        for operation in dict.fromkeys(one._replace(iteration=0, warmup=False) for one in self.operations):
            if operation.algorithm in LIBRARY:
                continue
            own = self._algorithm(operation.algorithm)
            for group in {len(group): group for group in self.groups}.values():
                calls = [self.call(operation, channel, group) for channel in range(ncclx.channels)]
                try:
                    graphs = [[own.steps(call, rank) for rank in range(len(group))] for call in calls]
                    check(calls, graphs, self.cut.slice_bytes, self.cut.slots)
                except GraphError as error:
                    yield operation, str(error)

    def _nominal(self, operation: Operation) -> Operation:
        size = _NOMINAL_BYTES * len(self.nodes) * self.ncclx.channels
        if operation.weights:
            size *= max(sum(row) for row in operation.weights)
        return operation._replace(size_bytes=size, iteration=0, warmup=False)

    def _kinds(self) -> Iterable[Operation]:
        return dict.fromkeys(map(self._nominal, self.operations))


def scheduled(
    scenario: Scenario, topology: Topology, number: int, gpus: Sequence[int], workload: CollectiveWorkload
) -> Schedule:
    """The schedule of a benchmark. ScenarioError if an algorithm of the user's is no such collective."""
    groups = workload.groups(len(gpus))
    ranks = max(map(len, groups))
    operations = benchmark(
        workload.op,
        workload.known_algorithm,
        workload.sizes_bytes,
        workload.iterations,
        workload.warmup,
        workload.root,
        workload.counts * (ranks if len(workload.counts) == 1 else 1),
    )
    if workload.algorithm == AUTO:
        among = [[gpus[rank] for rank in group] for group in groups]
        operations = tuple(
            one._replace(
                algorithm=pick(scenario.ncclx, scenario.host.pcie, topology, among, one.op, one.size_bytes)
            )
            for one in operations
        )
    nodes = [topology.host_of(gpu) for gpu in gpus]
    schedule = Schedule(scenario.ncclx, operations, nodes, workload.graph, groups)
    for operation, fault in schedule.faults():
        raise no_collective(scenario, f"jobs[{number}].workload", operation, fault)
    return schedule


def no_collective(scenario: Scenario, key: str, operation: Operation, fault: str) -> ScenarioError:
    """What is told where an algorithm of the user's is not what it is used for."""
    reason = f"{operation.algorithm} is no {operation.op} of {operation.size_bytes} B: {fault}"
    accepted = "an algorithm after which everybody has every contribution once"
    return ScenarioError([Problem(scenario.name, 0, f"{key}.algorithm", reason, accepted)])
