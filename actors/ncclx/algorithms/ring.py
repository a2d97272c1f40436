"""The ring algorithm of one rank, slice by slice, and the channel that walks it.

A ring algorithm is a fixed sequence of *primitives* per rank: send, receive-and-send, .., receive. At
primitive p rank r handles chunk (r + shift - p) modulo n, so that what a rank sends at p is what its
successor receives at p + 1. Three numbers tell the operations apart:

    operation        primitives   shift   reduces at
    all_reduce       2n - 1       -1      1 <= p <= n - 1
    reduce_scatter   n            -1      1 <= p <= n - 1
    all_gather       n             0      never

The first primitive only sends, the last only receives, all between do both in one GPU operation
(recvReduceSend, recvCopySend): out of the receive slot, into the send slot.

Chunks. A channel's share of an all_reduce is worked off in loops of n chunks of `chunk_bytes`; the last
loop's chunks are what is left, divided by n, rounded up to 16 B, and its last chunks may be shorter or
empty. all_gather and reduce_scatter have a block per rank, S / n rounded up (the last blocks shorter or
empty), and take `chunk_bytes` of every block per loop. An empty chunk still makes its way round as an empty
slice.

Slices. A chunk is cut into slices of at most `slice_bytes`: filled ones with a shorter last, or (`even`, as
NCCL does) as many equal ones as the largest chunk has, rounded up to 64 B, each of a 32nd of `slice_bytes` at
least. So a small chunk is one slice, and what is left of it goes on while its first half is reduced.

Order. A channel's ring may go through the ranks in another order than theirs
(`actors.ncclx.graph`): r is then a place in the ring, and a block is its rank's, whatever its
place.

Shares. S (or a block) is divided by the channels, rounded up to 16 B; the last channels may have less, or
nothing.

The channel. It has one connection to the next rank and one from the previous. The GPU's operations are done
in the order of the primitives: what is received is copied or reduced straight into the next send slot where
the ring goes on.

Source: NCCL 2.30, `src/device/all_reduce.h` (runRing), `all_gather.h`, `reduce_scatter.h`, `prims_simple.h`.

Not modelled: empty slices of a chunk below its least slice, in-place variants.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import as_list, load_fields, save_fields
from actors.kernel.vectors import vec
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.protocols import on_wire
from actors.ncclx.transport.channel import RECEIVES, REDUCES, SENDS, Channel
from actors.ncclx.transport.clear_to_send import ReceiveEnd, SendEnd
from actors.wire.message import COPY_BLOCK, COPY_FROM_NIC, COPY_ORDERED, COPY_PLAIN, COPY_REDUCE, COPY_TO_NIC

ALL_REDUCE: Final[i64] = 0
ALL_GATHER: Final[i64] = 1
REDUCE_SCATTER: Final[i64] = 2
OPERATION_CODES: Final = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 2}


_ALIGN: Final[i64] = 16
_SLICE_ALIGN: Final[i64] = 64
"""16 elements of 4 B."""
_COUNTED: Final[i64] = 5
_LEAST_PART: Final[i64] = 32
"""An even slice is at least so small a part of the largest."""

_FIELDS: Final = (
    "done",
    "channels",
    "chunk_bytes",
    "slice_bytes",
    "cut_bytes",
    "flags",
    "chunk",
    "offset_bytes",
    "size_bytes",
    "op",
    "total_bytes",
    "block_bytes",
    "share_start_bytes",
    "share_bytes",
    "loop_start_bytes",
    "loop_chunk_bytes",
    "primitive",
    "chunk_size_bytes",
)


def _up(value: i64, unit: i64) -> i64:
    return (value + unit - 1) // unit * unit


def _clamp(value: i64, most: i64) -> i64:
    if value < 0:
        return 0
    if value > most:
        return most
    return value


class RingCursor:
    """A place in a rank's sequence of slices on one channel.

    While not `done`: `flags` say what the slice's primitive does, `chunk` is whose chunk, `offset_bytes` is
    the slice's place in the chunk and `size_bytes` its size, 0 for an empty one.
    """

    def __init__(
        self,
        ranks: int,
        rank: int,
        channels: int,
        channel: int,
        chunk_bytes: int,
        slice_bytes: int,
        owners: tuple[int, ...] = (),
        even: bool = False,
    ) -> None:
        assert ranks >= 1 and 0 <= rank < ranks, (rank, ranks)
        self.ranks: i64 = ranks
        self.rank: i64 = rank
        """Its place in the ring."""
        self.owners: tuple[int, ...] = owners
        """By place in the ring, whose block it is; nothing where ranks and places are the same."""
        self.channels: i64 = channels
        self.channel: i64 = channel
        self.chunk_bytes: i64 = chunk_bytes
        self.slice_bytes: i64 = slice_bytes
        self.even: bool = even
        """Whether a chunk is cut into as many slices as the largest one."""
        self.cut_bytes: i64 = slice_bytes
        """Slices of the present chunk."""
        self.done: bool = True
        self.flags: i64 = 0
        self.chunk: i64 = 0
        self.offset_bytes: i64 = 0
        self.size_bytes: i64 = 0
        self.op: i64 = 0
        self.total_bytes: i64 = 0
        self.block_bytes: i64 = 0
        self.share_start_bytes: i64 = 0
        self.share_bytes: i64 = 0
        self.loop_start_bytes: i64 = 0
        self.loop_chunk_bytes: i64 = 0
        self.primitive: i64 = 0
        self.chunk_size_bytes: i64 = 0
        self._counted: vec[i64] = vec[i64]([-1] * (_COUNTED * len(OPERATION_CODES)))
        """By operation, the last one of which slices were counted: bytes, channels, bytes of a chunk and of
        a slice, and how many it receives. No state: it is counted anew."""

    def use(self, channels: i64, chunk_bytes: i64, slice_bytes: i64) -> None:
        """Go by these from the next operation on, of which `channels` have a share."""
        self.channels = channels
        self.chunk_bytes = chunk_bytes
        self.slice_bytes = slice_bytes

    def begin(self, op: i64, total_bytes: i64) -> None:
        """Go to the first slice of an operation; `done` at once if this channel has no part in it."""
        self.op = op
        self.total_bytes = total_bytes
        self.block_bytes = total_bytes
        if op != ALL_REDUCE:
            self.block_bytes = (total_bytes + self.ranks - 1) // self.ranks
        share: i64 = _up((self.block_bytes + self.channels - 1) // self.channels, _ALIGN)
        self.share_start_bytes = self.channel * share
        self.share_bytes = _clamp(self.block_bytes - self.share_start_bytes, share)
        self.done = self.share_bytes == 0 or self.ranks == 1
        self.loop_start_bytes = 0
        if not self.done:
            self._begin_loop()

    def receives(self) -> i64:
        """How many slices of the operation that has just begun this rank receives. Walks it once, unless the
        one before of its kind was the same."""
        at: i64 = _COUNTED * self.op
        counted = self._counted
        if (
            counted[at] == self.total_bytes
            and counted[at + 1] == self.channels
            and counted[at + 2] == self.chunk_bytes
            and counted[at + 3] == self.slice_bytes
        ):
            return counted[at + 4]
        count: i64 = 0
        while not self.done:
            if self.flags & RECEIVES != 0:
                count += 1
            self.advance()
        self.begin(self.op, self.total_bytes)
        counted[at] = self.total_bytes
        counted[at + 1] = self.channels
        counted[at + 2] = self.chunk_bytes
        counted[at + 3] = self.slice_bytes
        counted[at + 4] = count
        return count

    def place_bytes(self) -> i64:
        """Where in the rank's buffer the slice is."""
        chunk_bytes: i64 = self.loop_chunk_bytes if self.op == ALL_REDUCE else self.block_bytes
        start: i64 = self.share_start_bytes + self.loop_start_bytes + self.offset_bytes
        return start + self.chunk * chunk_bytes

    def keeps(self) -> bool:
        """Whether what is received goes into the buffer: it is whole."""
        if self.flags & RECEIVES == 0:
            return False
        return self.flags & REDUCES == 0 or self.primitive == self.ranks - 1

    def advance(self) -> None:
        """Go to the next slice."""
        assert not self.done, (self.rank, self.channel)
        self.offset_bytes += self.cut_bytes
        if self.offset_bytes < self.chunk_size_bytes:
            self._measure_slice()
            return
        last: i64 = self._last_primitive()
        if self.primitive < last:
            self.primitive += 1
            self._begin_primitive()
            return
        self.loop_start_bytes += self.loop_chunk_bytes * (self.ranks if self.op == ALL_REDUCE else 1)
        if self.loop_start_bytes < self.share_bytes:
            self._begin_loop()
        else:
            self.done = True

    def _last_primitive(self) -> i64:
        return 2 * self.ranks - 2 if self.op == ALL_REDUCE else self.ranks - 1

    def _begin_loop(self) -> None:
        left: i64 = self.share_bytes - self.loop_start_bytes
        self.loop_chunk_bytes = self.chunk_bytes
        if self.op == ALL_REDUCE and left < self.ranks * self.chunk_bytes:
            even: i64 = _up((left + self.ranks - 1) // self.ranks, _ALIGN)
            if even < self.chunk_bytes:
                self.loop_chunk_bytes = even
        self.primitive = 0
        self._begin_primitive()

    def _begin_primitive(self) -> None:
        at: i64 = self.primitive
        flags: i64 = 0
        if at > 0:
            flags |= RECEIVES
        if at < self._last_primitive():
            flags |= SENDS
        if at > 0 and at < self.ranks and self.op != ALL_GATHER:
            flags |= REDUCES
        self.flags = flags
        # As in NCCL: all_gather begins with a rank's own chunk, reductions with that of the rank before it:
        # each rank then ends with its own.
        shift: i64 = -1
        if self.op == ALL_GATHER:
            shift = 0
        self.chunk = (self.rank + shift - at + 2 * self.ranks) % self.ranks
        if self.op != ALL_REDUCE and len(self.owners) > 0:
            self.chunk = self.owners[self.chunk]
        if self.op == ALL_REDUCE:
            before: i64 = self.loop_start_bytes + self.chunk * self.loop_chunk_bytes
            self.chunk_size_bytes = _clamp(self.share_bytes - before, self.loop_chunk_bytes)
        else:
            block: i64 = _clamp(self.total_bytes - self.chunk * self.block_bytes, self.block_bytes)
            part: i64 = _clamp(block - self.share_start_bytes, self.share_bytes)
            self.chunk_size_bytes = _clamp(part - self.loop_start_bytes, self.loop_chunk_bytes)
        self.offset_bytes = 0
        self.cut_bytes = self.slice_bytes
        slices: i64 = self.chunk_bytes // self.slice_bytes
        # As in NCCL: slices of a chunk are equal, of 16 elements each or a multiple, and not below a part.
        if self.even and slices > 1:
            even: i64 = _up((self.chunk_size_bytes + slices - 1) // slices, _SLICE_ALIGN)
            least: i64 = self.slice_bytes // _LEAST_PART
            if even < least:
                even = least
            self.cut_bytes = _clamp(even, self.slice_bytes)
        self._measure_slice()

    def _measure_slice(self) -> None:
        self.size_bytes = _clamp(self.chunk_size_bytes - self.offset_bytes, self.cut_bytes)

    def save(self) -> list[Plain]:
        """The cursor's place."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take the place that `save` returned."""
        load_fields(self, _FIELDS, state)


class RingChannel(Channel):
    """One channel of one rank of a ring. `operations` holds (code, bytes, channels, protocol) of each
    operation of the job, `cuts` (slice, slots, chunk) of each protocol.
    """

    def __init__(
        self,
        number: int,
        gpu_port: int,
        send: SendEnd,
        receive: ReceiveEnd,
        cursor: RingCursor,
        operations: list[tuple[int, int, int, int]],
        cuts: list[tuple[int, int, int]],
        orders: Orders | None = None,
    ) -> None:
        super().__init__(number, gpu_port)
        self.send: SendEnd = send
        self.receive: ReceiveEnd = receive
        self.cursor: RingCursor = cursor
        """The next slice to give to the GPU."""
        self.operations: list[tuple[int, int, int, int]] = operations
        self.cuts: list[tuple[int, int, int]] = cuts
        self.orders: Orders | None = orders
        """Where payload is real: writes the GPU's orders."""

    def begin(self, host: Host, operation: i64) -> None:
        self.send.channel = self.number
        self.receive.channel = self.number
        op, size_bytes, channels, protocol = self.operations[operation]
        slice_bytes, slots, chunk_bytes = self.cuts[protocol]
        self.protocol = protocol
        self.send.limit = slots
        self.send.sender.use(protocol)
        self.receive.limit = slots
        self.cursor.use(channels, chunk_bytes, slice_bytes)
        self.cursor.begin(op, size_bytes)
        self.receive.expect(host, self.cursor.receives())
        self._issue(host)

    def walked(self) -> bool:
        return self.cursor.done

    def connect(self) -> i64:
        made: i64 = self.send.unmade + self.receive.unmade
        self.send.unmade = 0
        self.receive.unmade = 0
        return made

    def on_room(self, host: Host, end: SendEnd) -> None:
        self._issue(host)

    def on_ready(self, host: Host, end: ReceiveEnd) -> None:
        self._issue(host)

    def finish(self, host: Host, note: i64, data: bytes | None) -> None:
        flags: i64 = note
        if flags & RECEIVES != 0:
            self.receive.on_emptied(host)
        if flags & SENDS != 0:
            self.send.on_filled(host, data)

    def moves(self, note: i64) -> i64:
        return note

    def _issue(self, host: Host) -> None:
        """Give the GPU, in order, each slice whose data is here and whose send slot is free."""
        cursor = self.cursor
        while not cursor.done:
            flags: i64 = cursor.flags
            if flags & RECEIVES != 0 and self.receive.taken == self.receive.ready:
                return
            if flags & SENDS != 0 and self.send.full():
                return
            size: i64 = cursor.size_bytes
            data: bytes | None = None
            if flags & RECEIVES != 0:
                data = self.receive.take()
            if flags & SENDS != 0:
                self.send.take(on_wire(self.protocol, size))
                self.sent += 1
            kind: i64 = COPY_REDUCE if flags & REDUCES != 0 else COPY_PLAIN
            orders = self.orders
            if orders is not None:
                reads: bool = flags & RECEIVES == 0 or flags & REDUCES != 0
                place: i64 = cursor.place_bytes()
                data = orders.piece(place, size, reads, cursor.keeps(), flags & SENDS != 0, data)
            cursor.advance()
            self.give(host, size, kind, flags, data, self._nics(flags) if self.by_nic else 0)

    def _nics(self, flags: i64) -> i64:
        """What NICs have to do with a slice."""
        nics: i64 = 0
        blocks: i64 = COPY_BLOCK
        if flags & SENDS != 0:
            if self.send.sender.inside:
                blocks = 0
            else:
                nics = COPY_TO_NIC | COPY_BLOCK
        if flags & RECEIVES != 0 and not self.receive.inside:
            nics |= COPY_FROM_NIC | blocks
        return nics | COPY_ORDERED

    def has_nics(self) -> bool:
        return not self.send.sender.inside or not self.receive.inside

    def polled(self) -> i64:
        count: i64 = 0
        if not self.cursor.done or self.copies > 0:
            if not self.send.sender.inside:
                count += 1
            if not self.receive.inside:
                count += 1
        return count

    def waits_for(self) -> str:
        send, receive = self.send, self.receive
        if send.admitted and send.posted < send.filled and send.posted == send.granted:
            return f"a clear-to-send from the next rank (slice {send.posted})"
        if not self.cursor.done and self.cursor.flags & RECEIVES != 0 and receive.taken == receive.ready:
            return f"data from the previous rank (slice {receive.ready})"
        if send.freed < send.posted:
            return f"an acknowledgement (slice {send.freed})"
        return ""

    def save(self) -> list[Plain]:
        return [super().save(), self.cursor.save()]

    def load(self, state: list[Plain]) -> None:
        base, cursor = state
        super().load(as_list(base))
        self.cursor.load(cursor)
