"""A switch whose links have credits.

Nothing that it does with a frame. Each frame counts as arrived once it has been dealt with; what of it is in
the buffer then is held under the lane of the port by which it came, until its transmission begins. The
buffer has no thresholds and admits everything, since nobody may send what it has no room for.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.event import Message
from actors.kernel.vectors import append, vec
from actors.port.credits import Credits
from actors.switch.buffer import ADMITTED, Buffer
from actors.switch.switch import Switch
from actors.wire.frame import PREAMBLE_GAP_BYTES, Frame


class CreditBuffer(Buffer):
    """The buffers of all lanes of a switch's ports."""

    def __init__(self, pool_bytes: int) -> None:
        super().__init__(pool_bytes, 1, 0)
        self.credits: vec[Credits] = vec[Credits]()

    def add_port(self, lanes: Credits) -> None:
        """The credits of the next port in the order of their numbers."""
        self.credits = append(self.credits, lanes)

    def admit(self, number: i64, size_bytes: i64, now: i64) -> i64:
        group = self.groups[number]
        self.credits[number >> 3].hold(number & 7, size_bytes + PREAMBLE_GAP_BYTES)
        group.shared_bytes += size_bytes
        self.shared_used_bytes += size_bytes
        group.held_bytes += size_bytes
        if group.held_bytes > group.peak_bytes:
            group.peak_bytes = group.held_bytes
        self.held_bytes += size_bytes
        if self.held_bytes > self.peak_bytes:
            self.peak_bytes = self.held_bytes
        return ADMITTED

    def release(self, number: i64, size_bytes: i64, now: i64) -> None:
        group = self.groups[number]
        group.shared_bytes -= size_bytes
        self.shared_used_bytes -= size_bytes
        group.held_bytes -= size_bytes
        self.held_bytes -= size_bytes
        assert group.held_bytes >= 0, (number, group.held_bytes, size_bytes)
        self.credits[number >> 3].free(number & 7, size_bytes + PREAMBLE_GAP_BYTES, now)


class CreditSwitch(Switch):
    """A switch whose links have credits."""

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        now: i64 = self.queue.now_ps
        port = self.ports[port_number]
        lanes = port.credits
        assert lanes is not None, (self.number, port_number)
        lost: bool = port.ever_down and port.was_down(frame.sent_ps, now - port.own_ingress_latency_ps)
        lane: i64 = frame.priority
        size: i64 = frame.wire_bytes
        super().on_frame(frame, port_number)
        if not lost and not (port.apart and frame.ingress < 0):  # not while a cut frame waits for its tail
            lanes.arrived(lane, size, now)

    def on_pause(self, message: Message, port: i64) -> None:
        lanes = self.ports[port].credits
        assert lanes is not None, (self.number, port)
        lanes.hear(message, self.queue.now_ps)
