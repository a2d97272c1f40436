"""Orders to a GPU: what to do with bytes, where payload is real.

An *order* rides in a COPY, as a kernel's arguments do: whose memory, which turn (operations of the job that
the rank has begun, from 0), what is read, where the result goes, and the bytes that arrived from another
rank. As 64-bit little-endian integers, then the bytes:

    job, rank, turn, flags, how many stretches are read, how many are written,
    then for each of them: buffer, offset, size

With what is received and something that is read, the two are reduced; else there is one of them, and that is
the result. It is written into the stretches one after the other, and if ORDER_SENDS is set returned in
COPIED.

An order may come from another worker: `read_order` trusts nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.kernel.errors import ProtocolError

ORDER_RECEIVES: Final = 1
"""Bytes that arrived come with it."""
ORDER_SENDS: Final = 2
"""The result goes on to other ranks."""
BUFFERS: Final = 3
"""Of a rank: what it works on, where all_to_all and sendrecv put theirs, and an algorithm's scratch."""
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
