"""What is different in a NIC whose links have credits?

What comes counts as arrived once it has been dealt with. It is held only where the way to memory is slow
(`actors.nic.receive`): then the NIC has no pause to send, and its leaf runs out of credits instead.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.event import Message
from actors.nic.nic import Nic
from actors.wire.frame import Frame


class CreditNic(Nic):
    """A NIC whose links have credits."""

    def on_frame(self, frame: Frame, port_number: i64) -> None:
        now: i64 = self.queue.now_ps
        port = self._ports[port_number]
        lanes = port.credits
        assert lanes is not None, (self.number, port_number)
        lost: bool = port.ever_down and port.was_down(frame.sent_ps, now - port.own_ingress_latency_ps)
        lane: i64 = frame.priority
        size: i64 = frame.wire_bytes
        super().on_frame(frame, port_number)
        if not lost:
            lanes.arrived(lane, size, now)

    def on_pause(self, message: Message, port: i64) -> None:
        lanes = self._ports[port].credits
        assert lanes is not None, (self.number, port)
        lanes.hear(message, self.queue.now_ps)
