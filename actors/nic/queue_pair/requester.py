"""The requester: what a NIC does about acknowledgements, timeouts, refusals and the responses of READs.

Acknowledgements. One covers everything up to its PSN, a NAK everything before it, and asks for it again. Work
requests complete in order. What is sent again is for the recovery scheme to say.

Late NAKs. A responder that expects a packet asks for it once. If the packet was not lost but late, the
responder goes on from there, and its acknowledgements may overtake the NAK where paths reorder. Such a NAK
asks for what is acknowledged, and is dropped, as the specification has it of every response before the oldest
packet in flight. What the responder had thrown away meanwhile is asked for again by the next packet out of
order; behind the last packet sent there is none, and the timer is what is left (`nic_late_naks`).

Timeouts. The retransmission timer is one pending event per queue pair, pushed when a packet goes out and
looked at again when it fires, so that an acknowledgement costs no timer operation. After `retry_count`
timeouts without progress the queue pair is in error and everything posted is flushed. With adaptive
retransmission the first timeout is short and each that follows twice as long, up to the configured one; only
those of full length count as retries. A queue pair whose port's link is down gives up in the same way, even
if nothing of it is in flight. A long timer that is pending when progress is made runs out first.

Receiver not ready. An RNR NAK carries a timer code. The requester waits the time that the code stands for,
and goes on from there; after `rnr_retry` such waits without progress (7: any number) the queue pair is in
error.

Congestion control. CNPs, acknowledgements, losses and timers are handed to a queue pair's control; the limit
of what may be in flight follows its window. For controls that ask for it one packet at a time is timed, from
its turn until an acknowledgement covers it; with echo each packet is, until it is answered. A packet that was
sent again is not timed (Karn).

READs. Responses are the acknowledgement: one with PSN p says that everything before p was done. So the
requester takes nothing for acknowledged that lies beyond a response it misses. Missing responses show in
three ways. A later response has come: `on_response_gap` of the recovery scheme. An acknowledgement beyond
them has come, and acknowledgements have the priority of data, so that it cannot have overtaken them (an
implied NAK). Or the timer runs out. Go-back-N asks again for everything from there on, go-back-0 for the
whole message, selective repeat for what is missing. Schemes that keep what overtook keep responses within
their window, too. Nothing acknowledges responses, so controls that live on acknowledgements (Swift) do not
govern them.

Source: InfiniBand Architecture Specification volume 1, sections 9.4.4, 9.7.3, 9.7.5.1, 9.7.5.2.8 and 9.7.6,
and table 46 (RNR timer codes); adaptive retransmission as MegaScale (NSDI'24) describes its use; the doubling
is a choice.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.event import RATE_TIMER, RETRANSMIT
from actors.kernel.queue import EventQueue
from actors.kernel.vectors import vec
from actors.nic.congestion.control import CongestionControl
from actors.nic.loss_recovery import Recovery
from actors.nic.queue_pair.endpoint import RNR_PORT, Endpoint, EndpointSettings
from actors.nic.queue_pair.packets import WorkRequest
from actors.nic.queue_pair.queue_pair import (
    ERROR,
    NO_PSN,
    READY,
    UNLIMITED_PSN,
    WAIT_RNR,
    QueuePair,
    unwrap,
)
from actors.port.link import MessagePort
from actors.wire.fault import TIMER_EXPIRED
from actors.wire.frame import (
    ACKNOWLEDGE,
    ECN_CONGESTED,
    SYNDROME_ACK,
    SYNDROME_NAK_INVALID,
    SYNDROME_NAK_SEQUENCE,
    Frame,
)
from actors.wire.message import (
    POST_READ,
    STATUS_REMOTE_INVALID,
    STATUS_RETRY_EXCEEDED,
    STATUS_RNR_RETRY_EXCEEDED,
    STATUS_SUCCESS,
)

MOST_TIMERS_NOTED: Final = 128
"""Notes in a NIC's log beyond which timers that expire are counted only: half of `LOG_ROWS`, so that the rest
of it is for what else happens."""
FOR_EVER: Final[i64] = 7
"""The value of `rnr_retry` that never gives up."""
_UNITS: Final = (
    *(65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
    *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152),
)
"""Units of 10 us, by timer code."""


def rnr_wait_ps(code: i64) -> i64:
    """How long a requester waits after an RNR NAK with this timer code."""
    wait: i64 = _UNITS[code]
    return wait * 10_000_000


class Requester(Endpoint):
    """The requester's half of all queue pairs of one NIC."""

    def __init__(
        self,
        number: int,
        queue: EventQueue,
        host: MessagePort,
        settings: EndpointSettings,
        recovery: Recovery,
    ) -> None:
        super().__init__(number, queue, host, settings, recovery.whole_messages)
        self.recovery: Recovery = recovery
        self.self_clocked = recovery.self_clocked
        self.late_naks: i64 = 0
        self.rnr_nak_retry_err: i64 = 0
        self.roce_adp_retrans: i64 = 0
        self.rp_cnp_handled: i64 = 0

    # ---- acknowledgements

    def acknowledged(self, pair: QueuePair, frame: Frame, now: i64) -> None:
        """An acknowledgement or a NAK came."""
        number: int = frame.psn
        psn: i64 = unwrap(number, pair.una_psn)
        nak: bool = frame.syndrome != SYNDROME_ACK
        una: i64 = psn if nak else psn + 1
        if una > pair.high_psn or pair.state < READY or pair.state == ERROR:
            return
        if pair.reading is not None and pair.reads > 0:
            una = self._bounded(pair, una, frame, now)
        if una > pair.una_psn:
            self._advance(pair, una, frame, now)
        elif self.echoes:
            self._echoed(pair, frame, now)
        if nak and self.ahead_ps >= now:
            self.uncouple(now, self.place_now())
        if nak and frame.syndrome != SYNDROME_NAK_SEQUENCE:
            if frame.syndrome < SYNDROME_NAK_SEQUENCE:
                self._refused(pair, i64(frame.syndrome & 0x1F), now)
            else:  # 0x61 to 0x63 are fatal, and in the order of the statuses
                self.flush(pair, STATUS_REMOTE_INVALID + i64(frame.syndrome - SYNDROME_NAK_INVALID))
        elif nak and (una == pair.una_psn or self.recovery.selective):
            self.packet_seq_err += 1
            self._lost(pair, now)
            self.recovery.on_nak(self, pair, frame, now)
            if pair.has_packets():
                self.activate(pair, now)
        elif nak:  # overtaken by an acknowledgement of what it asks for
            self.late_naks += 1
            pair.begun_repair().late_nak_psn = pair.high_psn

    def _advance(self, pair: QueuePair, una: i64, frame: Frame, now: i64) -> None:
        """Everything before `una` is acknowledged, by this frame."""
        packets: i64 = una - pair.una_psn
        pair.una_psn = una
        pair.retries = 0
        pair.rnr_retries = 0
        pair.backoff = 0
        pair.deadline_ps = now + self.first_timeout_ps
        head = pair.head
        while head is not None and head.first_psn + head.packets <= una:
            pair.drop_head()
            self.complete(pair, head.number, head.size_bytes, STATUS_SUCCESS)
            head = pair.head
        if pair.next_psn < una:
            pair.go_back(una)
        held_back: bool = pair.limit_psn != UNLIMITED_PSN or pair.waits != 0
        if pair.waits != 0:
            pair.hold()
        if pair.limit_psn != UNLIMITED_PSN:
            self.recovery.on_progress(self, pair, now)
        if pair.control is not None:
            self._progressed(pair, pair.control, packets, frame, now)
        if held_back and pair.has_packets():
            self.activate(pair, now)

    # ---- timeouts, and receivers that are not ready

    def timed_out(self, pair: QueuePair, now: i64) -> bool:
        """A queue pair's timer fired: nothing outstanding, or early, or the acknowledgement is overdue.
        Returns whether it is."""
        pair.timer_pending = False
        if pair.state == ERROR:
            return False
        waits: bool = pair.una_psn == pair.high_psn
        if waits and not self.cut_off(pair):
            return False
        overdue: bool = now >= pair.deadline_ps
        if overdue:
            timeout_ps: i64 = self.settings.timeout_ps
            backed_off_ps: i64 = self.first_timeout_ps << i64(pair.backoff)
            if len(self.log) < MOST_TIMERS_NOTED:
                repair = pair.repair
                late: int = 1 if repair is not None and pair.una_psn < repair.late_nak_psn else 0
                ran_ps: int = min(backed_off_ps, timeout_ps)
                self.note(int(TIMER_EXPIRED), int(pair.index), [int(pair.qpn), ran_ps, late])
            if backed_off_ps < timeout_ps:
                self.roce_adp_retrans += 1
                pair.backoff += 1
                timeout_ps = min(2 * backed_off_ps, timeout_ps)
            else:
                pair.retries += 1
                self.local_ack_timeout_err += 1
            if i64(pair.retries) > self.settings.retry_count:
                self.flush(pair, STATUS_RETRY_EXCEEDED)
                return True
            pair.deadline_ps = now + timeout_ps
        pair.timer_pending = True
        self.push_timer(pair.deadline_ps, RETRANSMIT, 0, pair.index)
        if overdue and not waits:
            self.send_again(pair, now)
            self.activate(pair, now)
        return overdue

    def send_again(self, pair: QueuePair, now: i64) -> None:
        """What a queue pair has in flight is taken for lost."""
        self._lost(pair, now)
        self.recovery.on_timeout(self, pair, now)

    def _refused(self, pair: QueuePair, code: i64, now: i64) -> None:
        """An RNR NAK for `una_psn` came: wait, or give up."""
        if pair.waits & WAIT_RNR:
            return
        if self.settings.rnr_retry < FOR_EVER and i64(pair.rnr_retries) >= self.settings.rnr_retry:
            self.flush(pair, STATUS_RNR_RETRY_EXCEEDED)
            return
        self.rnr_nak_retry_err += 1
        pair.rnr_retries += 1
        pair.waits |= WAIT_RNR
        pair.resend_psn = NO_PSN
        until_ps: i64 = now + rnr_wait_ps(code)
        pair.deadline_ps = until_ps + self.settings.timeout_ps
        self.push_timer(until_ps, RETRANSMIT, RNR_PORT, pair.index)

    def rnr_over(self, pair: QueuePair, now: i64) -> bool:
        """The wait for a receiver is over: send again from what was refused. Returns whether the queue pair
        still waited.
        """
        pair.waits &= ~WAIT_RNR
        if pair.state == ERROR:
            return False
        if pair.una_psn < pair.high_psn:
            self.recovery.on_timeout(self, pair, now)
        if pair.has_packets():
            self.activate(pair, now)
        return True

    def recovery_timer(self, pair: QueuePair, now: i64) -> bool:
        """The timer of the loss recovery scheme fired; one that was set anew meanwhile is not due. Returns
        whether it is."""
        repair = pair.begun_repair()
        repair.timer_ps = 0
        due_ps: i64 = repair.due_ps
        if due_ps == 0 or pair.state == ERROR:
            return False
        if due_ps > now:
            self.set_recovery_timer(pair, due_ps)
            return False
        repair.due_ps = 0
        self.recovery.on_timer(self, pair, now)
        if pair.has_packets():
            self.activate(pair, now)
        return True

    # ---- congestion control

    def notified(self, pair: QueuePair, now: i64) -> None:
        """A CNP came."""
        control = pair.control
        if control is not None:
            self.rp_cnp_handled += 1
            control.on_cnp(now)
            self._set_timer(pair, control)

    def rate_timer(self, pair: QueuePair, now: i64) -> bool:
        """The timer of a queue pair's control fired; one that was set anew meanwhile is not due. Returns
        whether it is."""
        control = pair.control
        assert control is not None, pair.qpn
        control.pending_ps = 0
        due: bool = control.timer_ps > 0 and control.timer_ps <= now
        if due:
            control.timer_ps = 0
            control.on_timer(now)
        self._set_timer(pair, control)
        return due

    def _progressed(
        self, pair: QueuePair, control: CongestionControl, packets: i64, frame: Frame, now: i64
    ) -> None:
        """`packets` more of a queue pair are acknowledged."""
        rtt_ps: i64 = -1
        marked: bool = False
        if control.wants_echo:
            if frame.opcode == ACKNOWLEDGE:
                marked = frame.ecn == ECN_CONGESTED
                rtt_ps = pair.round_trip_ps(control, frame.immediate, now)
                packets = pair.first_answered(control, pair.una_psn - packets, frame.immediate)
                control.on_path(i64(frame.udp_source), marked, now)
        elif control.timed_psn != NO_PSN and pair.una_psn > control.timed_psn:
            rtt_ps = now - control.timed_ps
            control.timed_psn = NO_PSN
        if self.self_clocked:
            control.on_ack(packets, rtt_ps, now, frame.opcode == ACKNOWLEDGE and frame.ecn == ECN_CONGESTED)
            return
        hops = frame.tail if control.wants_telemetry else None
        if hops is not None:
            control.on_telemetry(hops, pair.una_psn, pair.next_psn, now)
        control.on_ack(packets, rtt_ps, now, marked)
        window: i64 = control.window_packets
        if window > 0:
            bound: i64 = self.recovery.window_packets
            if bound > 0 and bound < window:
                window = bound
            pair.limit_psn = pair.una_psn + window
            in_flight: i64 = pair.next_psn - pair.una_psn
            if in_flight >= window and 0 < in_flight < pair.ack_every:
                # The window closed behind packets of which maybe none asks for an answer; one more does.
                pair.limit_psn = pair.next_psn + 1
        self._set_timer(pair, control)

    def _echoed(self, pair: QueuePair, frame: Frame, now: i64) -> None:
        """An answer that acknowledges nothing new came: the packet that it answers overtook others."""
        control = pair.control
        if control is not None and control.wants_echo:
            self._progressed(pair, control, 0, frame, now)
            if pair.has_packets():
                self.activate(pair, now)

    def _lost(self, pair: QueuePair, now: i64) -> None:
        """The responder asked for packets again, or a timer ran out."""
        control = pair.control
        if control is not None:
            control.timed_psn = NO_PSN
            control.on_loss(now)
            self._set_timer(pair, control)

    def _set_timer(self, pair: QueuePair, control: CongestionControl) -> None:
        """Make the control's timer pending, unless one is; a later one is looked at when that fires."""
        if control.timer_ps > 0 and control.pending_ps == 0:
            due: i64 = control.timer_ps
            now: i64 = self.queue.now_ps
            if due <= now:
                due = now + 1
            control.pending_ps = due
            self.push_timer(due, RATE_TIMER, 0, pair.index)

    # ---- READs

    def responded(self, pair: QueuePair, frame: Frame, now: i64) -> None:
        """A response came."""
        request = _due(pair)
        number: int = frame.psn
        psn: i64 = unwrap(number, pair.una_psn)
        reading = pair.reading
        if request is None or reading is None or psn >= reading.asked_psn:
            return
        expected: i64 = max(reading.response_psn, request.first_psn)
        if psn < expected:
            return
        if frame.carried is not None:
            frame.tail = None  # what it collected is about the way here, not about the way of requests
        if psn > expected:
            self.out_of_sequence += 1
            reading.response_psn = expected
            before: i64 = request.first_psn if self.whole_messages else expected
            if before > pair.una_psn:
                self._advance(pair, before, frame, now)
            repair = pair.repair
            if repair is not None and psn - expected < len(repair.came):
                slot: i64 = psn & (len(repair.came) - 1)
                if repair.came[slot] == psn + 1:
                    return
                repair.came[slot] = psn + 1
                self._response_came(i64(frame.payload_bytes))
            self._missing(pair, psn, now)
            return
        self._response_came(i64(frame.payload_bytes))
        reading.asked_again = False
        una: i64 = self._taken(pair, request, psn + 1, now)
        if una > pair.una_psn:
            self._advance(pair, una, frame, now)
        else:
            pair.retries = 0
            pair.deadline_ps = now + self.first_timeout_ps

    def _bounded(self, pair: QueuePair, una: i64, frame: Frame, now: i64) -> i64:
        """How far an acknowledgement of everything before `una` reaches: not beyond a missing response."""
        request = _due(pair)
        reading = pair.reading
        if request is None or reading is None:
            return una
        expected: i64 = max(reading.response_psn, request.first_psn)
        if una <= expected:
            return una
        if una > reading.acked_psn:
            reading.acked_psn = una
        if frame.priority == pair.priority and frame.syndrome == SYNDROME_ACK:
            beyond: i64 = request.first_psn + request.packets + self.recovery.reorder_packets
            self._missing(pair, beyond, now)
        return request.first_psn if self.whole_messages else expected

    def _taken(self, pair: QueuePair, request: WorkRequest, psn: i64, now: i64) -> i64:
        """All responses of a READ before `psn` are here: go on over what came before it was expected, to the
        READs that follow too. Returns what is acknowledged by that.
        """
        reading = pair.begun_reads()
        came: vec[i64] = vec[i64]()
        if pair.repair is not None:
            came = pair.repair.came
        mask: i64 = len(came) - 1
        whole: bool = self.whole_messages
        while True:
            end: i64 = request.first_psn + request.packets
            while mask >= 0 and psn < end and came[psn & mask] == psn + 1:
                psn += 1
            reading.response_psn = psn
            if psn < end:
                return request.first_psn if whole else psn
            if whole:
                self.delivered_bytes += request.size_bytes
                self.progress += request.size_bytes
            self.delivered(pair, request.size_bytes, now)
            following = _due(pair)
            if following is None:
                return max(end, reading.acked_psn)
            request = following
            psn = max(reading.response_psn, request.first_psn)
            if mask < 0 or came[psn & mask] != psn + 1:
                return max(end, min(psn, reading.acked_psn))

    def _response_came(self, payload_bytes: i64) -> None:
        """Bytes of a READ are here for good."""
        if not self.whole_messages:
            self.delivered_bytes += payload_bytes
            self.progress += payload_bytes

    def _missing(self, pair: QueuePair, psn: i64, now: i64) -> None:
        """Something at or beyond `psn` has come, and responses before it have not."""
        self._lost(pair, now)
        self.recovery.on_response_gap(self, pair, psn, now)
        if pair.has_packets():
            self.activate(pair, now)


def _due(pair: QueuePair) -> WorkRequest | None:
    """The first READ whose responses are not all here; None if none was asked for."""
    reading = pair.reading
    if reading is None:
        return None
    request = pair.head
    while request is not None:
        if request.first_psn >= reading.asked_psn:
            return None
        if request.flags & POST_READ and request.first_psn + request.packets > reading.response_psn:
            return request
        request = request.following
    return None
