"""A channel that walks a ring, slice by slice.

It has one connection to the next rank and one from the previous. The GPU's operations are done in the order
of `actors.ncclx.algorithms.ring`: what is received is copied or reduced straight into the next send slot
where the ring goes on.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import as_list
from actors.ncclx.algorithms.ring import RECEIVES, REDUCES, SENDS, RingCursor
from actors.ncclx.orders import Orders
from actors.ncclx.transport.channel import Channel
from actors.ncclx.transport.clear_to_send import ReceiveEnd, SendEnd
from actors.wire.message import COPY_PLAIN, COPY_REDUCE


class RingChannel(Channel):
    """One channel of one rank of a ring. `operations` holds (code, bytes) of each operation of the job."""

    def __init__(
        self,
        number: int,
        gpu_port: int,
        send: SendEnd,
        receive: ReceiveEnd,
        cursor: RingCursor,
        operations: list[tuple[int, int]],
        orders: Orders | None = None,
    ) -> None:
        super().__init__(number, gpu_port)
        self.send: SendEnd = send
        self.receive: ReceiveEnd = receive
        self.cursor: RingCursor = cursor
        """The next slice to give to the GPU."""
        self.operations: list[tuple[int, int]] = operations
        self.orders: Orders | None = orders
        """Where payload is real: writes the GPU's orders."""

    def begin(self, host: Host, operation: i64) -> None:
        self.send.channel = self.number
        self.receive.channel = self.number
        op, size_bytes = self.operations[operation]
        self.cursor.begin(op, size_bytes)
        self.receive.expect(host, self.cursor.receives())
        self._issue(host)

    def walked(self) -> bool:
        return self.cursor.done

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
                self.send.take(size)
                self.sent += 1
            kind: i64 = COPY_REDUCE if flags & REDUCES != 0 else COPY_PLAIN
            orders = self.orders
            if orders is not None:
                reads: bool = flags & RECEIVES == 0 or flags & REDUCES != 0
                place: i64 = cursor.place_bytes()
                data = orders.piece(place, size, reads, cursor.keeps(), flags & SENDS != 0, data)
            cursor.advance()
            self.give(host, size, kind, flags, data)

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
