"""How does a channel send to one rank, or receive from one, and nothing else?

The way of a point-to-point transfer: the sender's GPU copies slice after slice into free send slots, the
receiver's copies them out. One side of it is one channel, with a send end or a receive end.

Source: NCCL 2.30, `src/device/sendrecv.h`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import as_list, load_fields, save_fields
from actors.ncclx.channel import Channel
from actors.ncclx.ends import ReceiveEnd, SendEnd
from actors.ncclx.orders import Orders
from actors.wire.message import COPY_PLAIN

_FIELDS: Final = ("total_bytes", "left_bytes", "left_slices")


class LineChannel(Channel):
    """One side of a line. `sizes` holds the bytes of each transfer of the job; one end is None."""

    def __init__(
        self,
        number: int,
        gpu_port: int,
        send: SendEnd | None,
        receive: ReceiveEnd | None,
        slice_bytes: int,
        sizes: list[int],
        orders: Orders | None = None,
    ) -> None:
        assert (send is None) != (receive is None), number
        super().__init__(number, gpu_port)
        self.send: SendEnd | None = send
        self.receive: ReceiveEnd | None = receive
        self.slice_bytes: i64 = slice_bytes
        self.sizes: list[int] = sizes
        self.orders: Orders | None = orders
        """Where payload is real: writes the GPU's orders."""
        self.total_bytes: i64 = 0
        self.left_bytes: i64 = 0
        self.left_slices: i64 = 0

    def begin(self, host: Host, operation: i64) -> None:
        size: i64 = self.sizes[operation]
        slices: i64 = (size + self.slice_bytes - 1) // self.slice_bytes
        if slices == 0:
            slices = 1
        self.total_bytes = size
        self.left_bytes = size
        self.left_slices = slices
        receive = self.receive
        if receive is not None:
            receive.expect(host, slices)
        self._issue(host)

    def walked(self) -> bool:
        return self.left_slices == 0

    def on_room(self, host: Host, end: SendEnd) -> None:
        self._issue(host)

    def on_ready(self, host: Host, end: ReceiveEnd) -> None:
        self._issue(host)

    def finish(self, host: Host, note: i64, data: bytes | None) -> None:
        send, receive = self.send, self.receive
        if send is not None:
            send.on_filled(host, data)
        elif receive is not None:
            receive.on_emptied(host)

    def _issue(self, host: Host) -> None:
        """Give the GPU, in order, each slice that has a free slot, or is here."""
        send, receive = self.send, self.receive
        while self.left_slices > 0:
            size: i64 = self.left_bytes
            if size > self.slice_bytes:
                size = self.slice_bytes
            data: bytes | None = None
            if send is not None:
                if send.full():
                    return
                send.take(size)
                self.unacknowledged += 1
            elif receive is not None:
                if receive.taken == receive.ready:
                    return
                data = receive.take()
            orders = self.orders
            if orders is not None:
                sends: bool = send is not None
                place: i64 = self.total_bytes - self.left_bytes
                data = orders.piece(place, size, sends, not sends, sends, data)
            self.left_bytes -= size
            self.left_slices -= 1
            self.give(host, size, COPY_PLAIN, 0, data)

    def waits_for(self) -> str:
        send, receive = self.send, self.receive
        if send is not None:
            if send.admitted and send.posted < send.filled and send.posted == send.granted:
                return f"a clear-to-send from rank {send.peer} (slice {send.posted})"
            if send.freed < send.posted:
                return f"an acknowledgement from rank {send.peer} (slice {send.freed})"
        elif receive is not None and self.left_slices > 0 and receive.taken == receive.ready:
            return f"data from rank {receive.peer} (slice {receive.ready})"
        return ""

    def save(self) -> list[Plain]:
        return [super().save(), save_fields(self, _FIELDS)]

    def load(self, state: list[Plain]) -> None:
        base, fields = state
        super().load(as_list(base))
        load_fields(self, _FIELDS, fields)
