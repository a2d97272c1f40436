"""TCP's loss recovery: acknowledgements, scoreboard, retransmission and timer of a byte stream's transport.

A scheme for queue pairs that makes TCP connections of them; PSNs stand for segments of `mtu`, and the window
is that of a `TcpWindow` (`actors.optional.tcp_window`), which has to be the congestion control.

Receiver (RFC 5681, section 4.2, and RFC 2018). It acknowledges every second segment, and one that waits for a
second after `delayed_ack`. It acknowledges at once the last segment of a message, as a host does that has
read what was pushed, a segment that fills a gap, one that came before, and one beyond a gap. While there is a
gap an acknowledgement carries up to three blocks of what is held (SACK), the newest first. With ECN it says
whether a segment since the last one was marked.

Sender (RFC 6675). The scoreboard knows which segments are held. A segment is lost once `reorder` (DupThresh)
segments beyond it are held. The first loss since the recovery point closes the window (fast retransmit), and
what was sent so far is the new recovery point. What is in flight (pipe) is all but what is held or lost, plus
what was sent again. As long as that is below the window the sender sends lost segments again, the first one
in any case, and then new ones. A segment that is sent again and lost again waits for the timer.

Timer (RFC 6298). SRTT and RTTVAR follow one timed segment a round trip, never one of a window with losses
(Karn). RTO = SRTT + 4 RTTVAR, between `least_timeout` and `most_timeout`, and `first_timeout` before there is
a sample. When it runs out, all that is not held counts as lost, the window closes to one segment, and RTO
doubles until something is acknowledged. After `retries` in a row the queue pair is in error.

The window grows only if it was full in the round trip before (RFC 7661 and Linux, in short), and begins anew
after an idle time of an RTO (RFC 5681, section 4.1).

A connection has one pending timer for both halves (`Endpoint.set_recovery_timer`). It looks at what is due at
least every min(`least_timeout`, `delayed_ack`), so that nothing is found late.

Not modelled: handshake and closing, Nagle, sizes of TCP's own headers (frames keep RoCE's), receive windows
smaller than `window`, RACK, TLP, early and rescue retransmissions, PRR (the window is the threshold at once),
timestamps, F-RTO and other undoing, D-SACK, ECE that is repeated until CWR, READs.
"""

from __future__ import annotations

from typing import ClassVar, Final

from mypy_extensions import i64, mypyc_attr

from actors.kernel.device import Plain
from actors.kernel.knobs import MTU, Knob, Knobs
from actors.kernel.state import load_fields, save_fields
from actors.kernel.vectors import vec
from actors.nic.loss_recovery import Recovery
from actors.nic.queue_pair.endpoint import Endpoint
from actors.nic.queue_pair.queue_pair import NO_PSN, QueuePair, unwrap
from actors.optional.tcp_window import TcpWindow
from actors.wire.fault import TIMER_EXPIRED
from actors.wire.frame import (
    ECN_CONGESTED,
    PSN_MASK,
    SYNDROME_ACK,
    SYNDROME_NAK_SEQUENCE,
    Frame,
)
from actors.wire.message import STATUS_RETRY_EXCEEDED

OPEN: Final[i64] = 0
FAST_RECOVERY: Final[i64] = 1
AFTER_TIMEOUT: Final[i64] = 2

_BLOCKS: Final[i64] = 3
_EDGE_BYTES: Final[i64] = 4
_FIELDS: Final = (
    "una_psn",
    "state",
    "recover_psn",
    "cut_psn",
    "frontier_psn",
    "beyond",
    "held",
    "lost",
    "again",
    "forced",
    "srtt_ps",
    "rttvar_ps",
    "backoff",
    "due_ps",
    "idle_ps",
    "round_psn",
    "peak",
    "was_full",
    "answered_psn",
    "answer_due_ps",
    "answer_port",
    "at_once",
    "marked",
    "known",
    "blocks",
)


class TcpFlow:
    """What both halves of one connection remember, beside the queue pair."""

    def __init__(self, una_psn: int, expected_psn: int) -> None:
        # Sender; the counts are of [una, next).
        self.una_psn: i64 = una_psn
        self.state: i64 = OPEN
        self.recover_psn: i64 = una_psn
        """The recovery point: a loss before it closes the window no more."""
        self.cut_psn: i64 = una_psn
        """The same for marks."""
        self.frontier_psn: i64 = una_psn
        """What is not held before it is lost."""
        self.beyond: i64 = 0
        """Segments at or beyond the frontier that are held."""
        self.held: i64 = 0
        self.lost: i64 = 0
        """Segments that are lost, those sent again included."""
        self.again: i64 = 0
        """Lost segments that were sent again."""
        self.forced: bool = False
        """Whether the next lost segment is sent whatever the window says (fast retransmit)."""
        self.srtt_ps: i64 = 0
        self.rttvar_ps: i64 = 0
        self.backoff: i64 = 0
        self.due_ps: i64 = 0
        """When the retransmission timer runs out; 0 for never."""
        self.idle_ps: i64 = -1
        """Since when nothing is in flight; -1 if something is, or nothing was yet."""
        self.round_psn: i64 = una_psn
        self.peak: i64 = 0
        """The most that was in flight in this round trip."""
        self.was_full: bool = True
        """Whether the window was full in the round trip before."""
        self.known: vec[i64] = vec[i64]([0] * 6)
        """Blocks that are on the scoreboard whole."""
        # Receiver.
        self.answered_psn: i64 = expected_psn
        """Everything before was acknowledged."""
        self.answer_due_ps: i64 = 0
        """When the delayed acknowledgement leaves; 0 if none waits."""
        self.answer_port: i64 = 0
        self.at_once: bool = False
        self.marked: bool = False
        self.blocks: vec[i64] = vec[i64]([0] * 6)
        """Blocks of what is held, the newest first: begin and end in turn; both 0 for none."""

    def save(self) -> list[Plain]:
        """The state."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        load_fields(self, _FIELDS, state)


@mypyc_attr(allow_interpreted_subclasses=True)
class Tcp(Recovery):
    """The scheme that makes a TCP connection of a queue pair."""

    knobs: ClassVar[tuple[Knob, ...]] = (
        Knob(
            "reorder",
            "number",
            3,
            1,
            65536,
            "DupThresh: a segment is lost once so many beyond it are held (RFC 5681).",
        ),
        Knob(
            "window", "bytes", "4MB", MTU, doc="The receive window: at most so much is in flight. A choice."
        ),
        Knob(
            "least_timeout",
            "ps",
            "200ms",
            "1us",
            doc="The least RTO; it has to be above the round trip. 200 ms is Linux's, RFC 6298 says 1 s.",
        ),
        Knob("first_timeout", "ps", "1s", "1us", doc="RTO before the first sample (RFC 6298)."),
        Knob("most_timeout", "ps", "60s", "1us", doc="The largest RTO (RFC 6298 allows 60 s)."),
        Knob(
            "retries",
            "number",
            15,
            0,
            30,
            "Timeouts in a row before the queue pair is in error. 15 is Linux's tcp_retries2.",
        ),
        Knob(
            "delayed_ack",
            "ps",
            "40ms",
            "1us",
            doc="How long a segment waits for a second before it is acknowledged. 40 ms is Linux's least.",
        ),
    )

    def __init__(self, mtu_bytes: int, knobs: Knobs) -> None:
        super().__init__(mtu_bytes, knobs)
        self.selective = True
        self.self_clocked = True
        self.hold_packets = knobs.window_bytes // mtu_bytes
        self.reorder_packets = knobs.reorder
        self.least_timeout_ps: i64 = knobs.least_timeout_ps
        self.first_timeout_ps: i64 = knobs.first_timeout_ps
        self.most_timeout_ps: i64 = knobs.most_timeout_ps
        self.retries: i64 = knobs.retries
        self.delayed_ack_ps: i64 = knobs.delayed_ack_ps
        self.look_ps: i64 = min(self.least_timeout_ps, self.delayed_ack_ps)
        """At least so often a connection's timer looks at what is due."""
        self._flows: list[TcpFlow] = []

    @staticmethod
    def out_of_order(knobs: Knobs) -> bool:
        found: bool = knobs.reorder > 3
        return found

    # ---- beginnings

    def prepare(self, pair: QueuePair) -> None:
        assert pair.index == len(self._flows), (pair.index, len(self._flows))
        self._flows.append(TcpFlow(pair.una_psn, pair.expected_psn))
        super().prepare(pair)
        pair.ack_every = 1  # when to acknowledge is the receiver's business

    def begin(self, pair: QueuePair) -> None:
        self._flows[pair.index] = TcpFlow(pair.una_psn, pair.expected_psn)
        pair.limit_psn = pair.una_psn + 1  # the window says more once a segment is about to leave
        if pair.control is not None:
            _window(pair).restart()

    def on_start(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        flow = self._flows[pair.index]
        if flow.idle_ps >= 0 and now - flow.idle_ps > self._timeout_ps(flow):
            _window(pair).restart()
        self._allow(pair, flow)
        flow.idle_ps = -1
        flow.due_ps = now + self._timeout_ps(flow)
        self._arm(nic, pair, flow, now)

    def on_cut_off(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        flow = self._flows[pair.index]
        flow.due_ps = now + self._timeout_ps(flow)
        self._arm(nic, pair, flow, now)

    # ---- receiver

    def acknowledgement(
        self, nic: Endpoint, pair: QueuePair, psn: i64, syndrome: i64, port: i64, now: i64
    ) -> Frame | None:
        flow = self._flows[pair.index]
        held = pair.held
        gap: bool = held is not None and held.count > 0
        if syndrome == SYNDROME_ACK:
            one: bool = psn == flow.answered_psn and pair.message_psn != pair.expected_psn
            if one and not gap and not flow.at_once:
                if flow.answer_due_ps == 0:
                    flow.answer_due_ps = now + self.delayed_ack_ps
                    flow.answer_port = port
                    self._arm(nic, pair, flow, now)
                return None
            if gap:
                psn += 1
                syndrome = SYNDROME_NAK_SEQUENCE  # which is an acknowledgement with blocks
        elif syndrome != SYNDROME_NAK_SEQUENCE:
            return pair.acknowledgement(psn, int(syndrome))
        flow.answered_psn = pair.expected_psn
        flow.answer_due_ps = 0
        answer = pair.acknowledgement(psn, int(syndrome))
        if gap:
            answer.tail = _packed(flow.blocks, pair.expected_psn)
        if flow.marked:
            answer.ecn = ECN_CONGESTED
            flow.marked = False
        return answer

    def on_gap(self, nic: Endpoint, pair: QueuePair, frame: Frame, psn: i64, port: i64, now: i64) -> None:
        expected: i64 = pair.expected_psn
        held = pair.held
        assert held is not None, pair.qpn
        if psn - expected < self.hold_packets and held.put(psn, frame):
            _note(self._flows[pair.index].blocks, pair, psn)
        else:
            nic.duplicate_request += 1
        nic.answer(pair, expected, SYNDROME_NAK_SEQUENCE, 0, port, now)

    def on_mark(self, pair: QueuePair) -> None:
        self._flows[pair.index].marked = True

    # ---- sender

    def on_progress(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        flow = self._flows[pair.index]
        window = _window(pair)
        una: i64 = pair.una_psn
        in_flight: i64 = pair.next_psn - flow.una_psn - flow.held - flow.lost + flow.again
        if in_flight > flow.peak:
            flow.peak = in_flight
        timed = _window(pair)
        if timed.timed_psn != NO_PSN and una > timed.timed_psn:
            self._sample(flow, now - timed.timed_ps)
        newly: i64 = una - flow.una_psn
        growing: bool = flow.state != FAST_RECOVERY
        self._forget(pair, flow, una)
        flow.backoff = 0
        if flow.state != OPEN and una >= flow.recover_psn:
            flow.state = OPEN
        if growing:
            full: bool = flow.was_full or flow.peak >= window.window_packets
            if window.window < window.threshold:  # slow start doubles, so half of it was the last round's
                full = 2 * flow.peak >= window.window_packets
            if full:
                window.grow(newly, flow.srtt_ps, now)
        if una >= flow.round_psn:
            flow.round_psn = pair.next_psn
            flow.was_full = flow.peak >= window.window_packets
            flow.peak = 0
        if window.marked:
            window.marked = False
            if una > flow.cut_psn and flow.state == OPEN:  # at most one cut a round trip (RFC 3168)
                flow.cut_psn = pair.next_psn
                window.cut(in_flight, now)
        if una == pair.next_psn:
            flow.due_ps = 0
            flow.idle_ps = now
        else:
            flow.due_ps = now + self._timeout_ps(flow)
            self._arm(nic, pair, flow, now)
        self._allow(pair, flow)

    def on_nak(self, nic: Endpoint, pair: QueuePair, frame: Frame, now: i64) -> None:
        blocks = frame.tail
        if blocks is None:
            return
        flow = self._flows[pair.index]
        if frame.ecn == ECN_CONGESTED:
            _window(pair).marked = True
        self._mark_held(pair, flow, blocks)
        if flow.state == OPEN and flow.lost > 0:
            _window(pair).cut(pair.next_psn - pair.una_psn, now)
            flow.state = FAST_RECOVERY
            flow.recover_psn = pair.next_psn
            flow.cut_psn = pair.next_psn
            flow.forced = True
        self._allow(pair, flow)

    def on_resent(self, pair: QueuePair) -> None:
        flow = self._flows[pair.index]
        flow.again += 1
        flow.forced = False
        pair.begun_repair().resent_psn = pair.resend_psn + 1
        self._allow(pair, flow)

    def on_timeout(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        flow = self._flows[pair.index]
        if pair.una_psn == pair.next_psn:
            return
        _window(pair).collapse(pair.next_psn - pair.una_psn, flow.backoff <= 1, now)
        flow.state = AFTER_TIMEOUT
        flow.recover_psn = pair.next_psn
        flow.cut_psn = pair.next_psn
        flow.frontier_psn = pair.next_psn
        flow.beyond = 0
        flow.lost = pair.next_psn - pair.una_psn - flow.held
        flow.again = 0
        flow.forced = False
        pair.begun_repair().resent_psn = pair.una_psn
        _window(pair).timed_psn = NO_PSN
        flow.due_ps = now + self._timeout_ps(flow)
        self._arm(nic, pair, flow, now)
        self._allow(pair, flow)

    def on_timer(self, nic: Endpoint, pair: QueuePair, now: i64) -> None:
        flow = self._flows[pair.index]
        if 0 < flow.answer_due_ps <= now:
            flow.at_once = True
            nic.answer(pair, pair.expected_psn - 1, SYNDROME_ACK, 0, flow.answer_port, now)
            flow.at_once = False
        waits: bool = pair.una_psn == pair.next_psn
        if waits and 0 < flow.due_ps <= now and not nic.cut_off(pair):
            flow.due_ps = 0
        if 0 < flow.due_ps <= now:
            nic.local_ack_timeout_err += 1
            nic.note(int(TIMER_EXPIRED), int(pair.index), [int(pair.qpn), int(self._timeout_ps(flow)), 0])
            flow.backoff += 1
            if flow.backoff > self.retries:
                nic.flush(pair, STATUS_RETRY_EXCEEDED)
                return
            if waits:
                flow.due_ps = now + self._timeout_ps(flow)
            else:
                self.on_timeout(nic, pair, now)
        self._arm(nic, pair, flow, now)

    def _allow(self, pair: QueuePair, flow: TcpFlow) -> None:
        """Say what may be sent now: a lost segment again, or new ones."""
        una: i64 = pair.una_psn
        window: i64 = _window(pair).window_packets
        room: i64 = window - (pair.next_psn - una - flow.held - flow.lost + flow.again)
        if flow.forced and room <= 0:
            room = 1
        pair.resend_psn = NO_PSN
        if flow.lost > flow.again:
            repair = pair.begun_repair()
            mask: i64 = len(repair.sacked) - 1
            psn: i64 = max(repair.resent_psn, una)
            while repair.sacked[psn & mask] == psn + 1:
                psn += 1
            repair.resent_psn = psn
            pair.limit_psn = pair.next_psn
            if room > 0:
                pair.resend_psn = psn
            return
        limit: i64 = pair.next_psn + max(room, 0)
        pair.limit_psn = min(limit, una + self.hold_packets)

    # ---- scoreboard

    def _forget(self, pair: QueuePair, flow: TcpFlow, una: i64) -> None:
        """Everything before `una` is acknowledged: take it off the scoreboard."""
        repair = pair.begun_repair()
        if flow.held > 0 or flow.lost > 0:
            mask: i64 = len(repair.sacked) - 1
            psn: i64 = flow.una_psn
            while psn < una:
                if repair.sacked[psn & mask] == psn + 1:
                    flow.held -= 1
                    if psn >= flow.frontier_psn:
                        flow.beyond -= 1
                elif psn < flow.frontier_psn:
                    flow.lost -= 1
                    if psn < repair.resent_psn:
                        flow.again -= 1
                psn += 1
        flow.una_psn = una
        flow.frontier_psn = max(flow.frontier_psn, una)
        repair.resent_psn = max(repair.resent_psn, una)

    def _mark_held(self, pair: QueuePair, flow: TcpFlow, blocks: bytes) -> None:
        """Put blocks on the scoreboard, and see what is lost by that."""
        repair = pair.begun_repair()
        mask: i64 = len(repair.sacked) - 1
        at: i64 = 0
        found: vec[i64] = vec[i64]([0] * 6)
        while at < len(blocks):
            begin: i64 = unwrap(_edge(blocks, at), pair.una_psn)
            end: i64 = unwrap(_edge(blocks, at + _EDGE_BYTES), pair.una_psn)
            place: i64 = at // _EDGE_BYTES
            at += 2 * _EDGE_BYTES
            if end > pair.next_psn or begin >= end:
                continue
            psn: i64 = max(begin, pair.una_psn)
            while psn < end:
                known: i64 = 0
                while known < 2 * _BLOCKS:
                    if flow.known[known] <= psn < flow.known[known + 1]:
                        psn = flow.known[known + 1]
                    known += 2
                if psn < end and repair.sacked[psn & mask] != psn + 1:
                    repair.sacked[psn & mask] = psn + 1
                    flow.held += 1
                    if psn >= flow.frontier_psn:
                        flow.beyond += 1
                    else:
                        flow.lost -= 1
                        if psn < repair.resent_psn:
                            flow.again -= 1
                psn += 1
            found[place] = begin
            found[place + 1] = end
        flow.known = found
        while flow.beyond >= self.reorder_packets:
            psn = flow.frontier_psn
            while repair.sacked[psn & mask] != psn + 1:
                psn += 1
                flow.lost += 1
            flow.frontier_psn = psn + 1
            flow.beyond -= 1

    # ---- timer

    def _sample(self, flow: TcpFlow, rtt_ps: i64) -> None:
        """A round trip was measured (RFC 6298, section 2)."""
        if flow.srtt_ps == 0:
            flow.srtt_ps = rtt_ps
            flow.rttvar_ps = rtt_ps >> 1
            return
        away: i64 = flow.srtt_ps - rtt_ps
        if away < 0:
            away = -away
        flow.rttvar_ps += (away - flow.rttvar_ps) // 4
        flow.srtt_ps += (rtt_ps - flow.srtt_ps) // 8

    def _timeout_ps(self, flow: TcpFlow) -> i64:
        """RTO now."""
        timeout_ps: i64 = self.first_timeout_ps
        if flow.srtt_ps > 0:
            timeout_ps = max(flow.srtt_ps + 4 * flow.rttvar_ps, self.least_timeout_ps)
        doubled: i64 = flow.backoff
        while doubled > 0 and timeout_ps < self.most_timeout_ps:
            timeout_ps *= 2
            doubled -= 1
        return min(timeout_ps, self.most_timeout_ps)

    def _arm(self, nic: Endpoint, pair: QueuePair, flow: TcpFlow, now: i64) -> None:
        """Have the connection's timer look in time."""
        due_ps: i64 = flow.due_ps
        if flow.answer_due_ps > 0 and (due_ps == 0 or flow.answer_due_ps < due_ps):
            due_ps = flow.answer_due_ps
        if due_ps > now + self.look_ps:
            due_ps = now + self.look_ps
        nic.set_recovery_timer(pair, due_ps)

    def save(self) -> list[Plain]:
        return [flow.save() for flow in self._flows]

    def load(self, state: list[Plain]) -> None:
        for flow, saved in zip(self._flows, state, strict=True):
            flow.load(saved)


def _window(pair: QueuePair) -> TcpWindow:
    """The connection's congestion window."""
    control = pair.control
    assert isinstance(control, TcpWindow), pair.qpn
    return control


def _note(blocks: vec[i64], pair: QueuePair, psn: i64) -> None:
    """A segment beyond a gap is held now: its block becomes the first of the three."""
    held = pair.held
    assert held is not None, pair.qpn
    begin: i64 = psn
    end: i64 = psn + 1
    at: i64 = 0
    while at < 2 * _BLOCKS:  # blocks that it touches are part of it
        if blocks[at] == end:
            end = blocks[at + 1]
            blocks[at + 1] = blocks[at]
        elif blocks[at + 1] == begin and blocks[at] < begin:
            begin = blocks[at]
            blocks[at + 1] = blocks[at]
        at += 2
    while end - pair.expected_psn < held.window and held.holds(end):
        end += 1
    while begin - 1 > pair.expected_psn and held.holds(begin - 1):
        begin -= 1
    kept: i64 = 2
    made: vec[i64] = vec[i64]([0] * 6)
    made[0] = begin
    made[1] = end
    at = 0
    while at < 2 * _BLOCKS and kept < 2 * _BLOCKS:
        fits: bool = blocks[at] < blocks[at + 1] and blocks[at] > pair.expected_psn
        if fits and (blocks[at + 1] <= begin or blocks[at] >= end):
            made[kept] = blocks[at]
            made[kept + 1] = blocks[at + 1]
            kept += 2
        at += 2
    at = 0
    while at < 2 * _BLOCKS:
        blocks[at] = made[at]
        at += 1


def _packed(blocks: vec[i64], expected_psn: i64) -> bytes:
    """Blocks beyond the expected segment, as an acknowledgement carries them: begin and end in turn."""
    packed = b""
    at: i64 = 0
    while at < 2 * _BLOCKS:
        if blocks[at] > expected_psn:
            begin: int = blocks[at] & PSN_MASK
            end: int = blocks[at + 1] & PSN_MASK
            packed += begin.to_bytes(_EDGE_BYTES, "big") + end.to_bytes(_EDGE_BYTES, "big")
        at += 2
    return packed


def _edge(blocks: bytes, at: i64) -> i64:
    """The PSN at a place in a packed list."""
    number: int = int.from_bytes(blocks[at : at + _EDGE_BYTES], "big")
    return number
