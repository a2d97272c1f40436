"""Real payload of the collectives of a job.

Each communicator of a rank has buffers of its own: its memory goes by the group's number and the rank's place
in it, and its turns are the calls of that group. The rows name an operation by its number in a benchmark, by
its place in a program's list over all groups and steps. A transfer is a broadcast to one: the receiver ends
with the sender's bytes.

Every rank's input is drawn from the scenario's seed, the job, the operation and the rank, so that whoever
compares works out what all ranks had without asking them, as nccl-tests' verifiable data is made. What must
come out is worked out from `actors.ncclx.checking.ending`, which says of every byte whose contributions are
in it: for operations that reduce, in whole numbers, with no word about the order in which an algorithm did
it.

So inputs are such that the order does not matter and the result is exact in the type. Floating-point addition
is not associative, and a ring adds in another order than a tree; with these numbers numpy's sum, the ring's
and the tree's are the same bit for bit, and one wrong bit is not taken for rounding:

    sum         fp32, int32: 0 to 255; bf16: 0 to 3
    prod        fp32, bf16: 1 or 2, with either sign; int32: odd numbers, modulo 2^32
    min, max    -128 to 127, times 1,000,003 for int32

For bf16 and for products no more than 64 ranks have such a number at any one place, the others 0 (for a
product 1): sums stay below 257 and products within 2^64. What is only moved is any bits at all.

Source: nccl-tests 2.17, `verifiable/verifiable.cu`.

Not modelled: data that goes from one collective to the next.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial, reduce
from typing import Final

from actors.gpu.memory import ELEMENT_BYTES, GROUP_MEMORIES, Contents, Filled, RankMemory, encode
from actors.ncclx.checking import MOST_NAMED, beginning, ending
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.graph import Call, Step
from actors.ncclx.operations import REDUCING, Operation
from actors.ncclx.schedule import Schedule, is_ring, operations_of
from actors.ncclx.script import TRANSFER, UNLABELLED, GroupCall
from actors.ncclx.transport.wiring import WiredJob

_BLOCK_BYTES: Final = 4096
"""Content is drawn block by block, so that any part of a large buffer is known without the rest."""
_MOST_AT_A_PLACE: Final = 64
"""Ranks that add something at one place where sums are inexact (bf16, products): more would round."""
_LARGE: Final = 1_000_003
"""Lets int32 values of min and max go beyond 2^24, where a reduction in fp32 would round them."""

Name = tuple[int, int, int, int]
"""Seed, job, first rank of the communicator, and operation: what tells apart data of the same place."""


@lru_cache(maxsize=4096)
def _block(name: Name, rank: int, number: int) -> bytes:
    key = ",".join(map(str, (*name, rank, number)))
    return hashlib.shake_128(key.encode()).digest(_BLOCK_BYTES)


def stream(name: Name, rank: int, first: int, count: int) -> bytes:
    """Bytes of a rank's stream from `first` on, any bits at all."""
    start = first // _BLOCK_BYTES
    end = -(-(first + count) // _BLOCK_BYTES)
    blocks = b"".join(_block(name, rank, number) for number in range(start, end))
    return blocks[first - start * _BLOCK_BYTES :][:count]


def _value(dtype: str, reduction: str) -> Callable[[int], float]:
    """What a byte of the stream stands for."""
    if reduction == "sum":
        return (lambda byte: byte & 3) if dtype == "bf16" else (lambda byte: byte)
    if reduction == "prod":
        return (lambda byte: byte | 1) if dtype == "int32" else (lambda byte: (1, 2, -1, -2)[byte & 3])
    scale = _LARGE if dtype == "int32" else 1
    return lambda byte: (byte - 128) * scale


def numbers(
    name: Name, rank: int, ranks: int, dtype: str, reduction: str, first: int, count: int
) -> list[float]:
    """A rank's input of an operation that reduces: elements from `first` on."""
    table = [_value(dtype, reduction)(byte) for byte in range(256)]
    found = [table[byte] for byte in stream(name, rank, first, count)]
    thin = -(-ranks // _MOST_AT_A_PLACE) if dtype == "bf16" or reduction == "prod" else 1
    if thin > 1 and reduction in ("sum", "prod"):
        nothing = 0 if reduction == "sum" else 1
        found = [one if (rank + first + at) % thin == 0 else nothing for at, one in enumerate(found)]
    return found


def _product(column: Iterable[float]) -> float:
    return reduce(operator.mul, column)


_COMBINE: Final[dict[str, Callable[[Iterable[float]], float]]] = {
    "sum": sum,
    "prod": _product,
    "min": min,
    "max": max,
}


@lru_cache(maxsize=64)
def reduced(name: Name, ranks: int, dtype: str, reduction: str, first: int, count: int) -> bytes:
    """All ranks' inputs, reduced."""
    combine = _COMBINE[reduction]
    columns = zip(
        *(numbers(name, rank, ranks, dtype, reduction, first, count) for rank in range(ranks)), strict=True
    )
    return encode(dtype, [combine(column) for column in columns])


class RankContents(Contents):
    """One rank's data. `calls` are what it calls, as its communicator sees them, whose ranks are `group`."""

    def __init__(
        self,
        seed: int,
        job: int,
        rank: int,
        calls: Sequence[Call],
        group: Sequence[int],
        kinds: Sequence[tuple[str, str]],
        labels: Sequence[int] = (),
    ) -> None:
        super().__init__(job, rank, kinds)
        assert len(calls) == len(kinds), (len(calls), len(kinds))
        self._labels = labels
        self._calls = calls
        self._place = group.index(rank)
        self._names: list[Name] = [(seed, job, group[0], operation) for operation in range(len(calls))]

    def label(self, operation: int) -> int:
        return self._labels[operation] if self._labels else operation

    def beginning(self, operation: int) -> list[Filled]:
        """The rank's own input."""
        call = self._calls[operation]
        return [
            (
                extent.buffer,
                extent.offset_bytes,
                self._part(operation, self._place, origin, extent.size_bytes),
            )
            for extent, origin, _ in beginning(call, self._place)
            if extent.size_bytes
        ]

    def ending(self, operation: int) -> list[Filled]:
        """What it must have; nothing is compared after a barrier."""
        call = self._calls[operation]
        if call.op == "barrier":
            return []
        found: list[Filled] = []
        for extent, origin, mask in ending(call, self._place):
            size = extent.size_bytes
            if not size:
                continue
            if call.op in REDUCING:
                width = self.width(operation)
                name = self._names[operation]
                data = reduced(name, call.ranks, *self.kinds[operation], origin // width, size // width)
            else:
                data = self._part(operation, mask.bit_length() - 1, origin, size)
            found.append((extent.buffer, extent.offset_bytes, data))
        return found

    def _part(self, operation: int, rank: int, origin: int, size: int) -> bytes:
        call = self._calls[operation]
        name = self._names[operation]
        if call.op not in REDUCING:
            return stream(name, rank, origin % MOST_NAMED, size)
        width = self.width(operation)
        kind = self.kinds[operation]
        values = numbers(name, rank, call.ranks, *kind, origin // width, -(-size // width))
        return encode(kind[0], values)[:size]


class Part:
    """One rank in one group, of a job with real payload."""

    def __init__(self, job: WiredJob, rank: int, place: int) -> None:
        assert job.payload_seed is not None, job.job
        script = job.script.scripts[rank]
        self.number = script.groups[place]
        """The group's number."""
        self.calls: Sequence[GroupCall] = script.calls[place]
        self.ranks = len(job.script.groups[self.number].members)
        self._at = job.script.groups[self.number].members.index(rank)
        self._schedule: Schedule = job.schedules[self.number].with_operations(operations_of(self.calls))
        self._job = job.job
        self._seed = job.payload_seed
        self._in_line = job.settings.in_line

    def contents(self) -> RankContents:
        """What the rank works on."""
        first = self.number * GROUP_MEMORIES
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
        call = self._schedule.call(operation, 0)._replace(channels=1)
        return call._replace(op="broadcast") if call.op == TRANSFER else call

    def orders(self, first_channel: int) -> Orders:
        """`first_channel` is the number of the group's first channel at its rank."""
        contents = self.contents()
        steps = partial(steps_of, self._schedule, first_channel, self._at)
        found = Orders(self._job, contents.rank, steps)
        if self._in_line:
            found.memory = RankMemory(contents)
        return found

    def cutting(self) -> Iterator[GroupCall]:
        """Calls that reduce, and of which some rank's steps begin or end within an element."""
        for number, call in enumerate(self.calls):
            if call.op in REDUCING and not _aligned(self._schedule, number, ELEMENT_BYTES[call.dtype]):
                yield call


def steps_of(schedule: Schedule, first: int, rank: int, operation: int, walker: int) -> Sequence[Step]:
    """A rank's steps of an operation, on the channel of one of the group's walkers, from `first` on."""
    return schedule.steps(operation, (walker - first) % schedule.channels, rank)


def _aligned(schedule: Schedule, number: int, width: int) -> bool:
    """Whether no step of an operation begins or ends within an element of so many bytes."""
    operation = schedule.operations[number]
    if operation.size_bytes % width or schedule.cuts[schedule.protocol(operation)].slice_bytes % width:
        return False
    if is_ring(operation):
        ranks = len(schedule.nodes)
        return operation.op == "all_reduce" or operation.size_bytes % (ranks * width) == 0
    return all(
        extent.offset_bytes % width == 0 and extent.size_bytes % width == 0
        for rank in range(len(schedule.nodes))
        for channel in range(schedule.channels)
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
