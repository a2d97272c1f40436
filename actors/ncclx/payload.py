"""Real payload of the collectives of a job.

Each communicator of a rank has buffers of its own: its memory goes by the group's number and the rank's place
in it, and its turns are the calls of that group. Data is drawn and compared as `actors.ncclx.verifying` says,
of the type and with the reduction that each call says. The rows name an operation by its number in a
benchmark, by its place in a program's list over all groups and steps. A transfer is a broadcast to one: the
receiver ends with the sender's bytes.

Not modelled: data that goes from one collective to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from actors.gpu.memory import Contents, RankMemory
from actors.gpu.reductions import ELEMENT_BYTES
from actors.ncclx.collectives import REDUCING
from actors.ncclx.graph import Call, Step
from actors.ncclx.operations import Operation
from actors.ncclx.orders import Orders
from actors.ncclx.schedule import Schedule, is_ring, operations_of
from actors.ncclx.script import TRANSFER, UNLABELLED, GroupCall
from actors.ncclx.transport.wiring import WiredJob
from actors.ncclx.verifying import RankContents

_GROUP: Final = 1 << 20
"""A group's memories go by numbers from its own times this on."""


class Part:
    """One rank in one group, of a job with real payload."""

    def __init__(self, job: WiredJob, rank: int, place: int) -> None:
        assert job.payload_seed is not None, job.job
        script = job.script.scripts[rank]
        self.number = script.groups[place]
        """Of the group."""
        self.calls: Sequence[GroupCall] = script.calls[place]
        self.ranks = len(job.script.groups[self.number].members)
        self._at = job.script.groups[self.number].members.index(rank)
        self._schedule: Schedule = job.schedules[self.number].with_operations(operations_of(self.calls))
        self._job = job.job
        self._seed = job.payload_seed
        self._zero_copy = job.settings.zero_copy

    def contents(self) -> RankContents:
        """What the rank works on."""
        first = self.number * _GROUP
        labels = [call.label for call in self.calls]
        return RankContents(
            self._seed,
            self._job,
            first + self._at,
            [self._whole(one) for one in self._schedule.operations],
            range(first, first + self.ranks),
            [(call.dtype, call.redop) for call in self.calls],
            [] if UNLABELLED in labels else labels,
        )

    def _whole(self, operation: Operation) -> Call:
        call = replace(self._schedule.call(operation, 0), channels=1)
        return replace(call, op="broadcast") if call.op == TRANSFER else call

    def orders(self, first_channel: int) -> Orders:
        """`first_channel` is the number of the group's first channel at its rank."""
        contents = self.contents()
        steps = partial(_steps, self._schedule, first_channel, self._at)
        found = Orders(self._job, contents.rank, steps)
        if self._zero_copy:
            found.memory = RankMemory(contents)
        return found

    def cutting(self) -> Iterator[GroupCall]:
        """Calls that reduce, and of which some rank's steps begin or end within an element."""
        for number, call in enumerate(self.calls):
            if call.op in REDUCING and not _aligned(self._schedule, number, ELEMENT_BYTES[call.dtype]):
                yield call


def _steps(schedule: Schedule, first: int, rank: int, operation: int, walker: int) -> Sequence[Step]:
    return schedule.steps(operation, (walker - first) % schedule.settings.channels, rank)


def _aligned(schedule: Schedule, number: int, width: int) -> bool:
    """Whether no step of an operation begins or ends within an element of so many bytes."""
    operation = schedule.operations[number]
    if operation.size_bytes % width or schedule.cut.slice_bytes % width:
        return False
    if is_ring(operation):
        ranks = len(schedule.nodes)
        return operation.op == "all_reduce" or operation.size_bytes % (ranks * width) == 0
    return all(
        extent.offset_bytes % width == 0 and extent.size_bytes % width == 0
        for rank in range(len(schedule.nodes))
        for channel in range(schedule.settings.channels)
        for step in schedule.steps(number, channel, rank)
        for extent in (*step.source, *step.destination)
    )


def parts_of(job: WiredJob, rank: int) -> Iterator[Part]:
    """A rank in each of its groups; nothing where slices are sizes only."""
    if job.payload_seed is not None:
        for place in range(len(job.script.scripts[rank].groups)):
            yield Part(job, rank, place)


def group_orders(job: WiredJob, rank: int, place: int, first_channel: int) -> Orders | None:
    """What tells the GPU what to do with slices of one group; None where they are sizes only."""
    return None if job.payload_seed is None else Part(job, rank, place).orders(first_channel)


def contents_of(jobs: Iterable[WiredJob], gpu: int) -> list[Contents]:
    """What the ranks on a GPU work on."""
    return [
        part.contents()
        for job in jobs
        for rank, mine in enumerate(job.gpus)
        if mine == gpu
        for part in parts_of(job, rank)
    ]
