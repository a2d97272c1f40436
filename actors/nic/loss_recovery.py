"""Loss recovery of queue pairs: its hooks, go-back-N, go-back-0 and selective repeat.

A packet that is the expected one is the NIC's own business, and so is an acknowledgement that covers more
than the last. A scheme is asked about the rest: `on_gap` and `on_duplicate` at the responder,
`on_progress`, `on_nak` and `on_timeout` at the requester. One scheme serves all queue pairs of a NIC;
what the schemes here remember of one is in the queue pair.

To write one: derive from `Recovery` or from a scheme, list its knobs in `knobs`, override hooks, and `save`
and `load` if it keeps state of its own, by `pair.index`. An interpreted subclass works in a compiled install.
One that is to act later sets a timer of the queue pair (`Endpoint.set_recovery_timer`, then `on_timer`), and
holds back new packets until then with `pair.waits |= WAIT_RECOVERY`.

Go-back-N, whose rules are the defaults of the hooks, sends everything again from the lost packet on. The
responder takes packets in order only and answers the first one out of order with a NAK; the requester goes
back to the PSN that is expected, and likewise when its timer runs out. A loss wastes what was sent in a round
trip. With out-of-order placement the responder keeps what overtook, so that a fabric which reorders within
`reorder_packets` costs nothing; after a loss the same packets come again nevertheless.

Go-back-0, what NICs did before: after a loss the whole message is sent again, and Microsoft's fabric stood
still at one loss in 256, because a message longer than the distance between losses is never received. The
responder gives up the message it was receiving and asks for its first packet; only whole messages are
acknowledged, so `ack_every` has no effect, and the timeout must be longer than the longest message takes. A
NAK is a sign of life and does not count as a retry.

Selective repeat sends only what was lost. The responder keeps every packet within the window and answers each
one beyond a gap with a NAK that carries two numbers: the PSN it expects (in the BTH) and the PSN that came
(in the 24 bits of AETH's MSN; `immediate` in our frame). The requester notes what is held there. A packet is
lost if one more than `reorder_packets` later is held; each lost packet is sent again once, before anything
new. If a packet sent again is lost too, nothing tells until the timer runs out; then `una_psn` is sent again,
and after it whatever else is missing. At most a window is in flight, sized to the bandwidth-delay product,
which bounds both bitmaps.

Source: InfiniBand Architecture Specification volume 1, section 9.7.5; Guo et al., RDMA over Commodity
Ethernet at Scale (SIGCOMM'16), section 4.1; Mittal et al., Revisiting Network Support for RDMA (IRN,
SIGCOMM'18), sections 3.1 and 3.2.

Not modelled: IRN's two timeouts (short while few packets are in flight); adaptive retransmission does that.
"""

from __future__ import annotations

from typing import ClassVar

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.knobs import AUTO, MTU, Knob, Knobs
from actors.kernel.vectors import vec
from actors.nic.queue_pair.endpoint import Endpoint
from actors.nic.queue_pair.queue_pair import NO_PSN, HeldPackets, QueuePair, Repair, unwrap
from actors.wire.frame import PSN_MASK, SYNDROME_ACK, SYNDROME_NAK_SEQUENCE, Frame


@mypyc_attr(allow_interpreted_subclasses=True)
class Recovery:
    """Base of the schemes, built from the MTU in bytes and the values of the scheme's knobs."""

    knobs: ClassVar[tuple[Knob, ...]] = ()

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
        self.self_clocked: bool = False
        """Whether it decides itself what is acknowledged when, how far a window reaches, and when time is up:
        `on_start`, `acknowledgement` and `on_mark` are for such schemes (`actors.optional.tcp`)."""

    @staticmethod
    def out_of_order(knobs: Knobs) -> bool:
        """Whether packets may overtake each other without being taken for lost."""
        del knobs
        return False

    def prepare(self, pair: QueuePair) -> None:
        """Set up a queue pair of the NIC, once, before time begins."""
        window: int = 1
        hold: int = self.hold_packets
        while window < hold:
            window *= 2
        if hold > 0:
            pair.held = HeldPackets(window)
            repair = pair.repair = Repair(pair.una_psn)
            if self.selective or self.self_clocked:
                repair.sacked = vec[i64]([0] * window)
            repair.came = vec[i64]([0] * window)
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
        reading = pair.begun_reads()
        if not reading.asked_again and psn - reading.response_psn > self.reorder_packets:
            reading.asked_again = True
            nic.packet_seq_err += 1
            pair.go_back(pair.una_psn)

    def on_timeout(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """Nothing was heard of `una_psn` for a timeout (`Requester.timed_out`): what to send again."""
        pair.go_back(pair.una_psn)

    def on_resent(self, pair: QueuePair) -> None:
        """The packet `resend_psn` has just been sent: say which is next, `NO_PSN` for none."""
        pair.resend_psn = NO_PSN

    def on_timer(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """The time of `nic.set_recovery_timer` has come. What may be sent then is sent."""

    def on_start(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """A first packet is about to leave; nothing is in flight. For schemes that are `self_clocked`."""

    def on_cut_off(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        """Packets wait, none is in flight, and every link that they could leave by is down: have the timer
        run, so that the queue pair gives up in the end. For schemes that are `self_clocked`."""

    def acknowledgement(
        self, nic: Endpoint, pair: QueuePair, psn: i64, syndrome: i64, port: i64, now: i64
    ) -> Frame | None:
        """What to answer now; None for nothing yet. For schemes that are `self_clocked`."""
        return pair.acknowledgement(psn, int(syndrome))

    def on_mark(self, pair: QueuePair) -> None:
        """The responder received a packet that a switch marked. For schemes that are `self_clocked`."""

    def save(self) -> list[Plain]:
        """The scheme's own state."""
        return []

    def load(self, state: list[Plain]) -> None:
        """Take the state that `save` of an equally built scheme returned."""


@mypyc_attr(allow_interpreted_subclasses=True)
class GoBackN(Recovery):
    """The scheme whose rules are the defaults."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "placement",
            ("in_order", "out_of_order"),
            "in_order",
            doc="Whether a responder keeps only what is in sequence, or also what overtook within `window`.",
        ),
        Knob(
            "reorder",
            "number",
            0,
            0,
            65536,
            "With `out_of_order`: a packet counts as lost, and is asked for, once one that is more than so "
            "many later has come. 0: half of what `window` holds.",
        ),
        Knob(
            "window",
            "bytes",
            AUTO,
            MTU,
            doc="With `out_of_order`: what a responder keeps beyond a gap. `auto`: what the NIC's port sends "
            "in 64 us, as long as a queue at Kmax (3.2 MB at 400G) holds a packet; at least twice `reorder`.",
        ),
    )

    def __init__(self, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(mtu_bytes, knobs)
        if knobs.placement == "out_of_order":
            self.hold_packets = knobs.window_bytes // mtu_bytes
            self.reorder_packets = knobs.reorder or max(self.hold_packets // 2, 1)

    @staticmethod
    def out_of_order(knobs: Knobs) -> bool:
        found: bool = knobs.placement == "out_of_order"
        return found


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
        pair.deadline_ps = now + nic.settings.timeout_ps
        pair.go_back(pair.una_psn)


@mypyc_attr(allow_interpreted_subclasses=True)
class SelectiveRepeat(Recovery):
    """Bitmaps at both ends, bounded by a window."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "reorder",
            "number",
            0,
            0,
            65536,
            "A packet counts as lost once one that is more than so many later has come; more than 0 where "
            "paths reorder.",
        ),
        Knob(
            "window",
            "bytes",
            "1MB",
            MTU,
            doc="At most so much of a queue pair is in flight: the bandwidth-delay product (IRN, SIGCOMM'18)."
            " 1 MB is 20 us at 400G.",
        ),
    )

    def __init__(self, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(mtu_bytes, knobs)
        window_packets: i64 = knobs.window_bytes // mtu_bytes
        self.selective = True
        self.hold_packets = window_packets
        self.window_packets = window_packets
        self.reorder_packets = knobs.reorder

    @staticmethod
    def out_of_order(knobs: Knobs) -> bool:
        found: bool = knobs.reorder > 0
        return found

    def prepare(self, pair: QueuePair) -> None:
        super().prepare(pair)
        assert pair.held is not None and self.window_packets <= self.hold_packets, self.window_packets

    def on_gap(self, nic: Endpoint, pair: QueuePair, frame: Frame, psn: i64, port: i64, now: i64) -> None:
        expected: i64 = pair.expected_psn
        held = pair.held
        assert held is not None and psn - expected < held.window, (psn, expected)
        if not held.put(psn, frame):
            nic.duplicate_request += 1
        nic.answer(pair, expected, SYNDROME_NAK_SEQUENCE, psn & PSN_MASK, port, now)

    def on_progress(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        pair.limit_psn = pair.una_psn + self.window_packets
        if pair.begun_repair().sacked_psn > pair.una_psn or pair.resend_psn >= 0:
            self._look(pair)

    def on_nak(self, nic: Endpoint, pair: QueuePair, frame: Frame, now: i64) -> None:
        psn: i64 = unwrap(frame.immediate, pair.una_psn)
        if psn < pair.una_psn or psn >= pair.next_psn:
            return
        repair = pair.begun_repair()
        repair.sacked[psn & (len(repair.sacked) - 1)] = psn + 1
        if psn >= repair.sacked_psn:
            repair.sacked_psn = psn + 1
        self._look(pair)

    def on_response_gap(self, nic: Endpoint, pair: QueuePair, psn: i64, now: i64) -> None:
        repair = pair.begun_repair()
        if psn >= repair.sacked_psn:
            repair.sacked_psn = psn + 1
        # A request that the responder held was executed before a later response came: it says no more.
        slot: i64 = len(repair.sacked) - 1
        response_psn: i64 = pair.begun_reads().response_psn
        past: i64 = response_psn
        while past < psn and past <= response_psn + slot:
            repair.sacked[past & slot] = 0
            past += 1
        self._look(pair)
        if pair.resend_psn >= 0:
            nic.packet_seq_err += 1

    def on_timeout(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        pair.begun_repair().resent_psn = pair.una_psn
        pair.resend_psn = pair.una_psn

    def on_resent(self, pair: QueuePair) -> None:
        pair.begun_repair().resent_psn = pair.resend_psn + 1
        self._look(pair)

    def _look(self, pair: QueuePair) -> None:
        """Find the first packet that counts as lost and was not sent again yet."""
        repair = pair.begun_repair()
        psn: i64 = repair.resent_psn
        if psn < pair.una_psn:
            psn = pair.una_psn
        end: i64 = repair.sacked_psn - 1 - self.reorder_packets
        mask: i64 = len(repair.sacked) - 1
        while psn < end and (repair.sacked[psn & mask] == psn + 1 or repair.came[psn & mask] == psn + 1):
            psn += 1
        repair.resent_psn = psn
        pair.resend_psn = psn if psn < end else NO_PSN
