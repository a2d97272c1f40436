"""Go-back-0: after a loss, the whole message is sent again.

What NICs did before go-back-N, and why Microsoft's fabric stood still at one loss in 256: a message
longer than the distance between losses is never received. The responder gives up the message it was
receiving and asks for its first packet; only whole messages are acknowledged, so `ack_every` has no
effect, and the timeout must be longer than the longest message takes. A NAK is a sign of life and does
not count as a retry.

Source: Guo et al., RDMA over Commodity Ethernet at Scale (SIGCOMM'16), section 4.1.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from actors.nic.queue_pair.endpoint import Endpoint
from actors.nic.queue_pair.queue_pair import QueuePair
from actors.nic.recovery.scheme import Recovery
from actors.wire.frame import SYNDROME_ACK, SYNDROME_NAK_SEQUENCE, Frame

NEVER_PACKETS = 1 << 40


@mypyc_attr(allow_interpreted_subclasses=True)
class GoBack0(Recovery):
    """All of a message or nothing."""

    def __init__(self, mtu_bytes: int, knobs: object = None) -> None:
        super().__init__(mtu_bytes, knobs)
        self.whole_messages = True

    def prepare(self, pair: QueuePair) -> None:
        super().prepare(pair)
        pair.ack_every = NEVER_PACKETS

    def on_gap(self, nic: Endpoint, pair: QueuePair, frame: Frame, psn: i64, port: i64, now: i64) -> None:
        if pair.nak_sent:
            return
        pair.nak_sent = True
        pair.expected_psn = pair.message_psn
        pair.message_bytes = 0
        nic.answer(pair, pair.message_psn, SYNDROME_NAK_SEQUENCE, 0, port, now)

    def on_duplicate(
        self, nic: Endpoint, pair: QueuePair, frame: Frame, psn: i64, port: i64, now: i64
    ) -> None:
        nic.duplicate_request += 1
        if psn < pair.message_psn:
            nic.answer(pair, pair.message_psn - 1, SYNDROME_ACK, 0, port, now)
            return
        # The requester's timer ran out and it has begun the message again.
        pair.expected_psn = pair.message_psn
        pair.message_bytes = 0
        pair.nak_sent = False
        if psn == pair.message_psn:
            nic.respond(pair, frame, port, now)
        else:
            self.on_gap(nic, pair, frame, psn, port, now)

    def on_nak(self, nic: Endpoint, pair: QueuePair, frame: Frame, now: i64) -> None:
        pair.retries = 0
        pair.deadline_ps = now + nic.timeout_ps
        pair.go_back(pair.una_psn)
