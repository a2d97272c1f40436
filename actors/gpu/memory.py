"""A GPU's memory, the orders carried out on it, and its reductions, where payload is real.

For each rank of a job the three buffers of the operation under way: what the collective works on, where
all_to_all and sendrecv put theirs, and scratch. An order of a new turn finds what the operation begins with,
and what the one before it left is compared with what it should have left: as many elements as differ are
*wrong*. The last operation is compared when the run's results are asked for; so is one that never gave this
GPU anything to do.

What an operation begins and ends with is told by a `Contents`, which knows the job. Slices in channel buffers
are not here: they ride in the messages of their DMA (`actors.wire.message`).

Orders. An *order* rides in a COPY, as a kernel's arguments do: whose memory, which turn (operations of the
job that the rank has begun, from 0), what is read, where the result goes, and the bytes that arrived from
another rank. As 64-bit little-endian integers, then the bytes:

    job, rank, turn, flags, how many stretches are read, how many are written,
    then for each of them: buffer, offset, size

With what is received and something that is read, the two are reduced; else there is one of them, and that is
the result. It is written into the stretches one after the other, and if ORDER_SENDS is set returned in
COPIED.

An order may come from another worker: `read_order` trusts nothing.

Reductions go element by element, in the order in which the algorithm brings them together, and are rounded
after each step to the type's precision: floating point to nearest, ties to even; integers wrap. A sum or
product of two fp32 is worked out in double precision and rounded once more, which gives what fp32 arithmetic
gives (2 x 24 + 2 bits are enough; for bf16 and fp16 a fortiori).

Where numpy is installed it does the same, to the bit (`actors.gpu.array_reductions`).

Source: IEEE 754; NCCL 2.30, `src/device/reduce_kernel.h` (bf16 is reduced in fp32 and rounded back).

Not modelled: subnormals flushed to zero, NaN payloads, addresses, allocation, memory that runs out.
"""

import math
import operator
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from actors.gpu.array_reductions import LEAST_BYTES, library, reduced
from actors.kernel.device import Plain
from actors.kernel.errors import ProtocolError
from actors.kernel.state import as_bytes, as_int, as_list

ORDER_RECEIVES: Final = 1
"""Bytes that arrived come with it."""
ORDER_SENDS: Final = 2
"""The result goes on to other ranks."""
BUFFERS: Final = 3
"""Buffers of a rank: what it works on, where all_to_all and sendrecv put theirs, and an algorithm's scratch.
"""
MOST_STRETCHES: Final = 1 << 14
MOST_OFFSET_BYTES: Final = 1 << 30
"""No buffer reaches beyond."""

_HEAD: Final = struct.Struct("<6q")
_STRETCH: Final = struct.Struct("<3q")

Stretch = tuple[int, int, int]
"""Buffer, offset in it, and how many bytes."""


class Order(NamedTuple):
    """See above. `data` is empty where nothing was received."""

    job: int
    rank: int
    turn: int
    flags: int
    reads: tuple[Stretch, ...]
    writes: tuple[Stretch, ...]
    data: bytes

    @property
    def size_bytes(self) -> int:
        """How many bytes it is about."""
        if self.flags & ORDER_RECEIVES:
            return len(self.data)
        return sum(size for _, _, size in self.reads)


def write_order(
    job: int,
    rank: int,
    turn: int,
    reads: Sequence[Stretch],
    writes: Sequence[Stretch],
    data: bytes | None,
    *,
    sends: bool,
) -> bytes:
    """An order as bytes; `data` is None where nothing was received."""
    flags = (ORDER_RECEIVES if data is not None else 0) | (ORDER_SENDS if sends else 0)
    stretches = b"".join(_STRETCH.pack(*one) for one in (*reads, *writes))
    return _HEAD.pack(job, rank, turn, flags, len(reads), len(writes)) + stretches + (data or b"")


def read_order(packed: bytes) -> Order:
    """The order that `write_order` wrote. Raises ProtocolError."""
    if len(packed) < _HEAD.size:
        raise ProtocolError(f"an order of {len(packed)} bytes; its head has {_HEAD.size}")
    job, rank, turn, flags, read, written = _HEAD.unpack_from(packed)
    if not (0 <= read <= MOST_STRETCHES and 0 <= written <= MOST_STRETCHES) or min(job, rank, turn) < 0:
        raise ProtocolError(
            f"an order of job {job}, rank {rank}, turn {turn} with {read} and {written} stretches"
        )
    end = _HEAD.size + (read + written) * _STRETCH.size
    if flags & ~(ORDER_RECEIVES | ORDER_SENDS) or len(packed) < end:
        raise ProtocolError(
            f"an order with flags {flags} and {read + written} stretches in {len(packed)} bytes"
        )
    if len(packed) > end and not flags & ORDER_RECEIVES:
        raise ProtocolError(f"an order that receives nothing has {len(packed) - end} bytes more")
    stretches = tuple(_STRETCH.iter_unpack(packed[_HEAD.size : end]))
    for buffer, offset, size in stretches:
        if not 0 <= buffer < BUFFERS or offset < 0 or size < 0 or offset + size > MOST_OFFSET_BYTES:
            raise ProtocolError(f"an order names {size} bytes from {offset} on of buffer {buffer}")
    order = Order(job, rank, turn, flags, stretches[:read], stretches[read:], packed[end:])
    for one in (order.reads, order.writes):
        size = sum(size for _, _, size in one)
        if one and size != order.size_bytes:
            raise ProtocolError(f"an order about {order.size_bytes} bytes reads or writes {size}")
    return order


ELEMENT_BYTES: Final = {
    "fp32": 4,
    "bf16": 2,
    "int32": 4,
    "fp16": 2,
    "fp64": 8,
    "int64": 8,
    "int8": 1,
    "uint8": 1,
}
"""Data type -> size of an element. Data drawn from a seed (`actors.ncclx.payload`) is of the first three."""
_LAYOUTS: Final = {
    "fp32": "f",
    "int32": "i",
    "fp16": "e",
    "fp64": "d",
    "int64": "q",
    "int8": "b",
    "uint8": "B",
}
"""Letters of `struct`."""
_UNSIGNED: Final = {"int32": "I", "int64": "Q", "int8": "B", "uint8": "B"}
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": min,
    "max": max,
}
REDUCTIONS: Final = tuple(_COMBINE)


def decode(dtype: str, data: bytes) -> Iterable[float]:
    """The elements as numbers."""
    if dtype != "bf16":
        layout = _LAYOUTS[dtype]
        return struct.unpack(f"<{len(data) // ELEMENT_BYTES[dtype]}{layout}", data)
    wide = array("I", [half << 16 for half in memoryview(data).cast("H")])
    return memoryview(wide.tobytes()).cast("f")


def encode(dtype: str, values: Iterable[float]) -> bytes:
    """Numbers as elements, rounded to nearest, ties to even; integers modulo 2 to the power of their bits."""
    if dtype in ("fp32", "fp64"):
        return array(_LAYOUTS[dtype], values).tobytes()
    if dtype == "fp16":
        return b"".join(map(_half, values))
    if dtype in _UNSIGNED:
        mask = (1 << 8 * ELEMENT_BYTES[dtype]) - 1
        return array(_UNSIGNED[dtype], [int(value) & mask for value in values]).tobytes()
    wide = memoryview(array("f", values).tobytes()).cast("I")
    return array("H", [((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF for bits in wide]).tobytes()


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", math.copysign(math.inf, value))


def reduce(dtype: str, reduction: str, one: bytes, other: bytes) -> bytes:
    """The two, reduced element by element. They are equally long, and whole elements."""
    assert len(one) == len(other) and len(one) % ELEMENT_BYTES[dtype] == 0, (dtype, len(one), len(other))
    if len(one) >= LEAST_BYTES:
        np = library()
        if np is not None:
            return reduced(np, dtype, reduction, one, other)
    return one_by_one(dtype, reduction, one, other)


def one_by_one(dtype: str, reduction: str, one: bytes, other: bytes) -> bytes:
    """The same, in Python."""
    return encode(dtype, map(_COMBINE[reduction], decode(dtype, one), decode(dtype, other)))


GROUP_MEMORIES: Final = 1 << 20
"""The memories of a group of ranks go by numbers from its own times this on."""

Filled = tuple[int, int, bytes]
"""Buffer, offset in it, and what is there."""


class Contents:
    """What one rank's operations begin and end with, and how they reduce: `kinds` has the type of an element
    and the reduction of each operation of a round. `period` operations are a round, after which they come
    again."""

    def __init__(self, job: int, rank: int, kinds: Sequence[tuple[str, str]]) -> None:
        self.job = job
        self.rank = rank
        self.period = len(kinds)
        self.kinds = tuple(kinds)

    def operation(self, turn: int) -> int:
        """The number of the operation of that turn."""
        return turn % self.period

    def kind(self, turn: int) -> tuple[str, str]:
        """Type of an element, and reduction, of the operation of that turn."""
        return self.kinds[self.operation(turn)]

    def width(self, turn: int) -> int:
        """Bytes of an element of the operation of that turn."""
        return ELEMENT_BYTES[self.kind(turn)[0]]

    def label(self, operation: int) -> int:
        """Under which number an operation is in the results."""
        return operation

    def beginning(self, operation: int) -> list[Filled]:
        """What is in the buffers before an operation."""
        raise NotImplementedError

    def ending(self, operation: int) -> list[Filled]:
        """What must be there afterwards."""
        raise NotImplementedError


class RankMemory:
    """The buffers of one rank."""

    posted = False
    """Whether what its operations work on comes from outside (`actors.gpu.posted_memory`)."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.turn = -1
        """Operations begun before the one that is in memory; -1 before the first."""
        self.buffers = [bytearray() for _ in range(BUFFERS)]
        self.rows: dict[int, list[int]] = {}
        """By operation: wrong elements over all rounds, elements compared, checksum of the last."""

    def carry_out(self, order: Order) -> bytes | None:
        """Do an order; what goes on to other ranks, if anything does."""
        if order.turn != self.turn:
            self._begin(order.turn)
        found = self._read(order.reads)
        if order.flags & ORDER_RECEIVES:
            found = reduce(*self.contents.kind(self.turn), order.data, found) if found else order.data
        self._write(order.writes, found)
        return found if order.flags & ORDER_SENDS else None

    def flip(self, bit: int) -> bool:
        """Turn over one bit of what the collective works on, counted from its start and round again; whether
        there was any."""
        data = self.buffers[0]
        if not data:
            return False
        at = bit % (8 * len(data))
        data[at // 8] ^= 1 << at % 8
        return True

    def compared(self) -> list[list[int]]:
        """Operation, wrong elements, elements compared, checksum: of all operations up to the end of this
        round, the present one as far as it is."""
        rows = {operation: list(row) for operation, row in self.rows.items()}
        period = self.contents.period
        present = max(self.turn, 0)
        for turn in range(present, (present // period + 1) * period):
            self._compare(turn, rows)
        return [[self.contents.label(operation), *row] for operation, row in sorted(rows.items())]

    def _begin(self, turn: int) -> None:
        """Compare what was left, and fill the buffers for an operation."""
        for before in range(max(self.turn, 0), turn):
            self._compare(before, self.rows)
        self.turn = turn
        self._fill(turn)

    def _fill(self, turn: int) -> None:
        self.buffers = [bytearray() for _ in range(BUFFERS)]
        for buffer, offset, data in self.contents.beginning(self.contents.operation(turn)):
            self._write([(buffer, offset, len(data))], data)

    def _compare(self, turn: int, rows: dict[int, list[int]]) -> None:
        buffers = self.buffers
        if turn != self.turn:  # nothing was ever done here
            self._fill(turn)
        operation = turn % self.contents.period
        width = self.contents.width(operation)
        wrong, count, checksum = rows[operation][0] if operation in rows else 0, 0, 0
        for buffer, offset, expected in self.contents.ending(operation):
            got = self._read([(buffer, offset, len(expected))])
            count += -(-len(expected) // width)
            checksum = zlib.crc32(got, checksum)
            if got != expected:
                wrong += sum(
                    got[at : at + width] != expected[at : at + width] for at in range(0, len(expected), width)
                )
        rows[operation] = [wrong, count, checksum]
        self.buffers = buffers

    def _read(self, stretches: Sequence[Stretch]) -> bytes:
        """What is there; nothing but zeros where nothing was ever written."""
        parts: list[bytes] = []
        for buffer, offset, size in stretches:
            part = bytes(self.buffers[buffer][offset : offset + size])
            parts.append(part + bytes(size - len(part)))
        return b"".join(parts)

    def _write(self, stretches: Sequence[Stretch], data: bytes) -> None:
        at = 0
        for buffer, offset, size in stretches:
            memory = self.buffers[buffer]
            assert offset + size <= MOST_OFFSET_BYTES, (buffer, offset, size)
            if len(memory) < offset + size:
                memory += bytes(offset + size - len(memory))
            memory[offset : offset + size] = data[at : at + size]
            at += size

    def save(self) -> list[Plain]:
        """The rank's memory."""
        buffers: list[Plain] = [bytes(buffer) for buffer in self.buffers]
        rows: list[Plain] = [[operation, *row] for operation, row in self.rows.items()]
        return [self.turn, buffers, rows]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        turn, buffers, rows = as_list(state)
        self.turn = as_int(turn)
        self.buffers = [bytearray(as_bytes(buffer)) for buffer in as_list(buffers)]
        self.rows = {}
        for row in as_list(rows):
            operation, *values = [as_int(value) for value in as_list(row)]
            self.rows[operation] = values


class GpuMemory:
    """The memory of one GPU."""

    def __init__(self, contents: Sequence[Contents]) -> None:
        self._ranks = {(one.job, one.rank): RankMemory(one) for one in contents}
        self.flips: list[int] = []
        """Bits that turned over while no call had its bytes here: those of the next one that is posted."""

    def add(self, memory: RankMemory) -> None:
        """Have the memory of one more rank."""
        self._ranks[memory.contents.job, memory.contents.rank] = memory

    def knows(self, order: Order) -> bool:
        """Whether an order is about a rank of this GPU, and about whole elements if it reduces."""
        rank = self._ranks.get((order.job, order.rank))
        if rank is None:
            return False
        reduces = bool(order.flags & ORDER_RECEIVES and order.reads)
        return not reduces or order.size_bytes % rank.contents.width(order.turn) == 0

    def carry_out(self, order: Order) -> bytes | None:
        """Do an order; what goes on to other ranks, if anything does."""
        return self._ranks[order.job, order.rank].carry_out(order)

    def flip(self, bit: int) -> bool:
        """Turn over a bit of every rank's buffer; whether there was any, or will be."""
        if sum(rank.flip(bit) for rank in self._ranks.values()) > 0:
            return True
        awaited = any(rank.posted for rank in self._ranks.values())
        if awaited:
            self.flips.append(bit)
        return awaited

    def rows(self) -> list[list[int]]:
        """Rows for the table `payload`: job, operation, rank, wrong elements, elements compared, checksum."""
        found: list[list[int]] = []
        for (job, number), rank in self._ranks.items():
            found += [[job, row[0], number, *row[1:]] for row in rank.compared()]
        return found

    def save(self) -> list[Plain]:
        """Every rank's memory."""
        flips: list[Plain] = list[Plain](self.flips)
        return [flips, *(rank.save() for rank in self._ranks.values())]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        flips, *ranks = as_list(state)
        self.flips = [as_int(bit) for bit in as_list(flips)]
        for rank, saved in zip(self._ranks.values(), ranks, strict=True):
            rank.load(saved)
