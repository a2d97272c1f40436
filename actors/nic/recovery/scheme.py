"""The hooks of a loss recovery scheme, and go-back-N, whose rules are their defaults.

A packet that is the expected one is the NIC's own business, and so is an acknowledgement that covers more
than the last. A scheme is asked about the rest: `on_gap` and `on_duplicate` at the responder,
`on_progress`, `on_nak` and `on_timeout` at the requester. One scheme serves all queue pairs of a NIC;
what the schemes here remember of one is in the queue pair.

To write one: derive from `Recovery` or from a scheme, name the model of its knobs in `knobs` (a subclass of
`emu.scenario.sections.nic.RecoverySection`), override hooks, and `save` and `load` if it keeps state of its
own, by `pair.index`. An interpreted subclass works in a compiled install. One that is to act later sets a
timer of the queue pair (`Endpoint.set_recovery_timer`, then `on_timer`), and holds back new packets until
then with `pair.waits |= WAIT_RECOVERY`.

Go-back-N sends everything again from the lost packet on. The responder takes packets in order only and
answers the first one out of order with a NAK; the requester goes back to the PSN that is expected, and
likewise when its timer runs out. A loss wastes what was sent in a round trip. With out-of-order placement the
responder keeps what overtook, so that a fabric which reorders within `reorder_packets` costs nothing; after a
loss the same packets come again nevertheless.

Source: InfiniBand Architecture Specification volume 1, section 9.7.5.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.vectors import vec
from actors.nic.queue_pair.endpoint import Endpoint
from actors.nic.queue_pair.queue_pair import NO_PSN, QueuePair
from actors.nic.queue_pair.reorder_buffer import HeldPackets
from actors.wire.frame import SYNDROME_ACK, SYNDROME_NAK_SEQUENCE, Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class Recovery:
    """Base of the schemes, built from the MTU in bytes and the section of the scheme's knobs."""

    def __init__(self, mtu_bytes: int, knobs: object = None) -> None:
        self.mtu_bytes: i64 = mtu_bytes
        self.hold_packets: i64 = 0
        """How many packets beyond a gap a responder keeps; 0 for none."""
        self.reorder_packets: i64 = 0
        """How far a packet may be overtaken before it counts as lost."""
        self.window_packets: i64 = 0
        """How many a requester has in flight at most; 0 for no bound."""
        self.selective: bool = False
        """Whether it is told of a NAK although a later one overtook it."""
        self.whole_messages: bool = False
        """Whether what came of a message counts for nothing before all of it is there."""

    def prepare(self, pair: QueuePair) -> None:
        """Set up a queue pair of the NIC, once, before time begins."""
        window: int = 1
        hold: int = self.hold_packets
        while window < hold:
            window *= 2
        if hold > 0:
            pair.held = HeldPackets(window)
            pair.sacked = vec[i64]([0] * window)
            pair.came = vec[i64]([0] * window)
        self.begin(pair)

    def begin(self, pair: QueuePair) -> None:
        """A queue pair begins to send, at `una_psn`."""
        if self.window_packets > 0:
            pair.limit_psn = pair.una_psn + self.window_packets

    def on_gap(self, nic: Endpoint, pair: QueuePair, frame: Frame, psn: i64, port: i64, now: i64) -> None:
        """The responder received `psn`, which is beyond the expected one: keep it if there is room for
        it, and say what is missing, once, when it counts as lost.
        """
        expected: i64 = pair.expected_psn
        held = pair.held
        if held is not None and psn - expected < self.hold_packets and not held.put(psn, frame):
            nic.duplicate_request += 1
            return
        if not pair.nak_sent and psn - expected > self.reorder_packets:
            pair.nak_sent = True
            nic.answer(pair, expected, SYNDROME_NAK_SEQUENCE, 0, port, now)

    def on_duplicate(
        self, nic: Endpoint, pair: QueuePair, frame: Frame, psn: i64, port: i64, now: i64
    ) -> None:
        """The responder received `psn`, which it has: acknowledge again, the first time may have been
        lost.
        """
        nic.duplicate_request += 1
        nic.answer(pair, pair.expected_psn - 1, SYNDROME_ACK, 0, port, now)

    def on_progress(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """The requester's `una_psn` moved: with a window, more may be sent."""
        if self.window_packets > 0:
            pair.limit_psn = pair.una_psn + self.window_packets

    def on_nak(self, nic: Endpoint, pair: QueuePair, frame: Frame, now: i64) -> None:
        """The responder asks for `una_psn` again."""
        pair.go_back(pair.una_psn)

    def on_response_gap(self, nic: Endpoint, pair: QueuePair, psn: i64, now: i64) -> None:
        """The requester has a response with `psn`, and some before it have not come: ask for those again,
        once, when they count as lost. What came is noted in `came`, where there is room for it.
        """
        if not pair.asked_again and psn - pair.response_psn > self.reorder_packets:
            pair.asked_again = True
            nic.packet_seq_err += 1
            pair.go_back(pair.una_psn)

    def on_timeout(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """Nothing was heard of `una_psn` for a timeout."""
        pair.go_back(pair.una_psn)

    def on_resent(self, pair: QueuePair) -> None:
        """The packet `resend_psn` has just been sent: say which is next, `NO_PSN` for none."""
        pair.resend_psn = NO_PSN

    def on_timer(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """The time of `nic.set_recovery_timer` has come. What may be sent then is sent."""

    def save(self) -> list[Plain]:
        """The scheme's own state."""
        return []

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built scheme returned."""


@mypyc_attr(allow_interpreted_subclasses=True)
class GoBackN(Recovery):
    """The scheme whose rules are the defaults."""
