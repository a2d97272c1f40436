"""Selective repeat: after a loss, only what was lost is sent again.

The responder keeps every packet within the window and answers each one beyond a gap with a NAK that
carries two numbers: the PSN it expects (in the BTH) and the PSN that came (in the 24 bits of AETH's MSN;
`immediate` in our frame). The requester notes what is held there. A packet is lost if one more than
`reorder_packets` later is held; each lost packet is sent again once, before anything new. If a packet
sent again is lost too, nothing tells until the timer runs out; then `una_psn` is sent again, and after it
whatever else is missing.

At most a window is in flight, sized to the bandwidth-delay product, which bounds both bitmaps.

Source: Mittal et al., Revisiting Network Support for RDMA (IRN, SIGCOMM'18), sections 3.1 and 3.2.

Not modelled: IRN's two timeouts (short while few packets are in flight); adaptive retransmission does that.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from actors.nic.queue_pair.endpoint import Endpoint
from actors.nic.queue_pair.queue_pair import NO_PSN, QueuePair, unwrap
from actors.nic.recovery.scheme import Recovery
from actors.wire.frame import PSN_MASK, SYNDROME_NAK_SEQUENCE, Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class SelectiveRepeat(Recovery):
    """Bitmaps at both ends, bounded by a window."""

    def __init__(self, mtu_bytes: int, knobs: object = None) -> None:
        super().__init__(mtu_bytes, knobs)
        self.selective = True

    def prepare(self, pair: QueuePair) -> None:
        super().prepare(pair)
        held = pair.held
        assert held is not None and self.window_packets <= self.hold_packets, self.window_packets
        pair.resent_psn = pair.una_psn
        pair.sacked_psn = pair.una_psn

    def on_gap(self, nic: Endpoint, pair: QueuePair, frame: Frame, psn: i64, port: i64, now: i64) -> None:
        expected: i64 = pair.expected_psn
        held = pair.held
        assert held is not None and psn - expected < held.window, (psn, expected)
        if not held.put(psn, frame):
            nic.duplicate_request += 1
        nic.answer(pair, expected, SYNDROME_NAK_SEQUENCE, psn & PSN_MASK, port, now)

    def on_progress(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        pair.limit_psn = pair.una_psn + self.window_packets
        if pair.sacked_psn > pair.una_psn or pair.resend_psn >= 0:
            self._look(pair)

    def on_nak(self, nic: Endpoint, pair: QueuePair, frame: Frame, now: i64) -> None:
        psn: i64 = unwrap(frame.immediate, pair.una_psn)
        if psn < pair.una_psn or psn >= pair.next_psn:
            return
        pair.sacked[psn & (len(pair.sacked) - 1)] = psn + 1
        if psn >= pair.sacked_psn:
            pair.sacked_psn = psn + 1
        self._look(pair)

    def on_response_gap(self, nic: Endpoint, pair: QueuePair, psn: i64, now: i64) -> None:
        if psn >= pair.sacked_psn:
            pair.sacked_psn = psn + 1
        # A request that the responder held was executed before a later response came: it says no more.
        slot: i64 = len(pair.sacked) - 1
        past: i64 = pair.response_psn
        while past < psn and past <= pair.response_psn + slot:
            pair.sacked[past & slot] = 0
            past += 1
        self._look(pair)
        if pair.resend_psn >= 0:
            nic.packet_seq_err += 1

    def on_timeout(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        pair.resent_psn = pair.una_psn
        pair.resend_psn = pair.una_psn

    def on_resent(self, pair: QueuePair) -> None:
        pair.resent_psn = pair.resend_psn + 1
        self._look(pair)

    def _look(self, pair: QueuePair) -> None:
        """Find the first packet that counts as lost and was not sent again yet."""
        psn: i64 = pair.resent_psn
        if psn < pair.una_psn:
            psn = pair.una_psn
        end: i64 = pair.sacked_psn - 1 - self.reorder_packets
        mask: i64 = len(pair.sacked) - 1
        while psn < end and (pair.sacked[psn & mask] == psn + 1 or pair.came[psn & mask] == psn + 1):
            psn += 1
        pair.resent_psn = psn
        pair.resend_psn = psn if psn < end else NO_PSN
