"""One reliable connection: what it has sent and expects, its next packet, reorder buffer and states.

A queue pair is a requester (work requests, segmented into packets with consecutive PSNs, kept until they are
acknowledged) and a responder (the PSN it expects, the message it is receiving, what it holds beyond a gap).
PSNs are unbounded integers here and 24 bits on the wire; `unwrap` finds the nearest. What is sent next is an
pending response (`actors.nic.queue_pair.pending_answers`), else a packet that the recovery scheme wants again
(`resend_psn`), else the one with `next_psn`, as long as that is below `limit_psn` and nothing holds the queue
pair back (`waits`). Window-bound schemes and congestion control move the limit, for the others it is out of
reach.

A READ takes a PSN for each packet of its response (at least one), and its request has the first of them; a
request sent again may ask for a part. At most `max_reads` READs are outstanding. No more than 2^23 PSNs are,
whatever they belong to: beyond that a PSN on the wire would have two meanings.

States. Which may follow which is the table of `ibv_modify_qp` for reliable connections:

    from    to RESET  INIT  RTR  RTS  SQD  ERR
    RESET      x       x
    INIT       x       x     x              x
    RTR        x                  x         x
    RTS        x                  x    x    x
    SQD        x                  x    x    x
    SQE        x                  x         x
    ERR        x                            x

Anything else is refused (status EINVAL of MODIFIED) and changes nothing. SQE is in the standard for other
transports; a reliable connection never enters it.

    state   work requests posted           packets that arrive
    RESET   refused (LOC_QP_OP_ERR)        dropped, silently
    INIT    refused                        dropped; receives may be posted
    RTR     refused                        requests are answered
    RTS     sent                           answered; acknowledgements and responses are taken
    SQD     wait, once those begun are done  as in RTS
    ERR     flushed                        dropped

Connections exist when time begins, in RTS; a host that wants another state asks for it (MODIFY), with the PSN
that its packets begin with (RTS) or that it expects first (RTR). On the way into ERR what is posted comes
back flushed, in order, work requests first and then receives; on the way into RESET it is forgotten.

Source: InfiniBand Architecture Specification volume 1, sections 9.7, 10.3.1 and 11.5; `qp_state_table` of the
Linux kernel (`drivers/infiniband/core/verbs.c`).

Not modelled: atomics, the attributes that each transition must name, the event of a drained queue, migration.

The reorder buffer (`HeldPackets`) has packets that arrived before one they follow. It is a ring with a slot
for each PSN of the window, as a NIC's reorder bitmap has a bit. The payload itself is in memory already (a
WRITE says where it goes); what the ring remembers is what becomes due once the gap is filled: the end of a
message, its immediate, whether an acknowledgement was asked for.

Source of the reorder buffer: Mittal et al., Revisiting Network Support for RDMA (IRN, SIGCOMM'18), section 5.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.event import NEVER_PS
from actors.kernel.state import (
    as_bytes,
    as_list,
    load_fields,
    load_frame,
    load_integers,
    save_event,
    save_fields,
    save_integers,
)
from actors.kernel.vectors import vec
from actors.nic.congestion.control import CongestionControl
from actors.nic.queue_pair.packets import REQUEST_FIELDS, Connection, WorkRequest
from actors.nic.queue_pair.pending_answers import PendingAnswer, load_pending, save_pending
from actors.wire.frame import PSN_HALF, PSN_MASK, Frame
from actors.wire.message import POST_READ


class HeldPackets:
    """At most `window` packets, a power of two, beyond the expected one."""

    def __init__(self, window: int) -> None:
        assert window > 0 and window & (window - 1) == 0, window
        self.window: i64 = window
        self.count: i64 = 0
        self._frames: vec[Frame | None] = vec[Frame | None]([None] * window)

    def put(self, psn: i64, frame: Frame) -> bool:
        """Keep a packet less than `window` beyond the expected one; False if it is there already."""
        slot: i64 = psn & (self.window - 1)
        there = self._frames[slot]
        if there is not None:
            assert there.psn == psn & PSN_MASK, (there.psn, psn)
            return False
        self._frames[slot] = frame
        self.count += 1
        return True

    def holds(self, psn: i64) -> bool:
        """Whether a packet less than `window` beyond the expected one is kept."""
        return self._frames[psn & (self.window - 1)] is not None

    def take(self, psn: i64) -> Frame | None:
        """Take out the packet that is now expected; None if it has not come."""
        slot: i64 = psn & (self.window - 1)
        frame = self._frames[slot]
        if frame is not None:
            self._frames[slot] = None
            self.count -= 1
        return frame

    def save(self) -> list[Plain]:
        """What is held, by slot."""
        rows: list[Plain] = []
        for slot, frame in enumerate(self._frames):
            if frame is not None:
                row: list[Plain] = [slot, save_event(frame)]
                rows.append(row)
        return rows

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        window: int = self.window
        frames: list[Frame | None] = [None] * window
        self.count = 0
        for row in as_list(state):
            slot, frame = as_list(row)
            assert isinstance(slot, int), slot
            frames[slot] = load_frame(frame)
            self.count += 1
        self._frames = vec[Frame | None](frames)


RESET: Final[i64] = 0
INITIALISED: Final[i64] = 1
READY_TO_RECEIVE: Final[i64] = 2
READY: Final[i64] = 3
"""Ready to send (RTS)."""
SEND_QUEUE_DRAINED: Final[i64] = 4
SEND_ERROR: Final[i64] = 5
ERROR: Final[i64] = 6
"""In error: everything posted is flushed."""
TRANSITIONS: Final[dict[int, tuple[int, ...]]] = {
    int(RESET): (int(RESET), int(INITIALISED)),
    int(INITIALISED): (int(RESET), int(INITIALISED), int(READY_TO_RECEIVE), int(ERROR)),
    int(READY_TO_RECEIVE): (int(RESET), int(READY), int(ERROR)),
    int(READY): (int(RESET), int(READY), int(SEND_QUEUE_DRAINED), int(ERROR)),
    int(SEND_QUEUE_DRAINED): (int(RESET), int(READY), int(SEND_QUEUE_DRAINED), int(ERROR)),
    int(SEND_ERROR): (int(RESET), int(READY), int(ERROR)),
    int(ERROR): (int(RESET), int(ERROR)),
}
"""State to the states that may follow."""
NO_PSN: Final[i64] = -1
UNLIMITED_PSN: Final[i64] = NEVER_PS
"""A limit that no PSN reaches."""
WAIT_READ: Final[i64] = 1
"""As many READs are outstanding as may be."""
WAIT_PSN: Final[i64] = 2
"""As many PSNs are outstanding as may be."""
WAIT_RNR: Final[i64] = 4
"""The responder was not ready, and its time is not over. This holds back what is sent again, too."""
WAIT_DRAIN: Final[i64] = 8
"""The send queue is being drained, and the next work request was not begun."""
ANSWERED: Final[i64] = -1
"""In place of the time at which a packet left: it was answered already."""
LEFT_AGAIN: Final[i64] = -2
"""In place of that time: it left more than once, or never."""
WAIT_RECOVERY: Final[i64] = 16
"""The loss recovery scheme holds new packets back."""

_FIELDS: Final = (
    "state",
    "next_psn",
    "una_psn",
    "end_psn",
    "high_psn",
    "retries",
    "deadline_ps",
    "timer_pending",
    "active",
    "expected_psn",
    "message_bytes",
    "messages",
    "message_psn",
    "nak_sent",
    "limit_psn",
    "resend_psn",
    "resent_psn",
    "sacked_psn",
    "backoff",
    "late_nak_psn",
    "next_send_ps",
    "paced",
    "timed_psn",
    "timed_ps",
    "control_timer_ps",
    "cnp_from_ps",
    "cnp_port",
    "port",
    "waits",
    "reads",
    "asked_psn",
    "acked_psn",
    "response_psn",
    "asked_again",
    "rnr_retries",
    "recovery_timer_ps",
    "recovery_due_ps",
    "receives",
    "receive_taken",
)


_NO_PIECES: Final[list[bytes]] = []
"""One for all: where payload is real, the first piece of a message begins a list of its own."""


class QueuePair(Connection):
    """One end of a reliable connection."""

    def __init__(  # noqa: PLR0915  a line for each field
        self,
        index: int,
        qpn: int,
        remote_qpn: int,
        address: int,
        remote_address: int,
        udp_source: int,
        priority: int,
        ack_priority: int,
        mtu_bytes: int,
        ack_every: int,
        first_psn: int,
        remote_first_psn: int,
        log_deliveries: int,
    ) -> None:
        super().__init__(
            index,
            qpn,
            remote_qpn,
            address,
            remote_address,
            udp_source,
            priority,
            ack_priority,
            mtu_bytes,
            ack_every,
        )
        # What a packet that arrives reads and writes comes first, then what one that leaves does.
        self.state: i64 = READY
        # Responder.
        self.expected_psn: i64 = remote_first_psn
        self.message_bytes: i64 = 0
        self.pending: PendingAnswer | None = None
        """Responses that the requester waits for."""
        self.held: HeldPackets | None = None
        """Packets beyond a gap, for schemes that keep them."""
        self.nak_sent: bool = False
        self.receive_taken: bool = False
        """Whether the message being received has taken its own."""
        # Requester: una <= next <= end; [una, next) is in flight, high is the end of what was ever sent.
        self.active: bool = False
        """Whether the queue pair stands in its NIC's round."""
        self.paced: bool = False
        """Whether it waits for `next_send_ps`, with an event pending."""
        self.timer_pending: bool = False
        self.asked_again: bool = False
        """Whether missing responses were asked for again since there was progress."""
        self.una_psn: i64 = first_psn
        self.next_psn: i64 = first_psn
        self.high_psn: i64 = first_psn
        self.limit_psn: i64 = UNLIMITED_PSN
        """New packets are sent below this PSN."""
        self.waits: i64 = 0
        """What keeps `next_psn` from being sent: WAIT_*."""
        self.resend_psn: i64 = NO_PSN
        """The packet to send again before any other."""
        self.head: WorkRequest | None = None
        self.sending: WorkRequest | None = None
        self.control: CongestionControl | None = None
        """What paces it; None for the port alone."""
        self.active_next: QueuePair | None = None
        self.deadline_ps: i64 = 0
        self.port: i64 = 0
        """Through which port it sends now."""
        self.reads: i64 = 0
        """READs that are outstanding."""
        self.retries: i64 = 0
        self.rnr_retries: i64 = 0
        self.backoff: i64 = 0
        """Adaptive retransmission: how often the timer ran out since there was progress."""
        self.late_nak_psn: i64 = NO_PSN
        """The end of what had been sent when the last NAK came that was overtaken."""
        # What is rare, or is a message's.
        self.tail: WorkRequest | None = None
        self.end_psn: i64 = first_psn
        self.messages: i64 = 0
        self.message_psn: i64 = remote_first_psn
        """With which PSN the message being received began."""
        self.log_deliveries: i64 = log_deliveries
        self.resent_psn: i64 = first_psn
        """Selective repeat: lost packets below this PSN were sent again already."""
        self.sacked_psn: i64 = first_psn
        """Selective repeat: the end of what the responder is known to have or to hold."""
        self.sacked: vec[i64] = vec[i64]()
        """Selective repeat: PSN + 1 in the slot of each packet that the responder holds."""
        self.came: vec[i64] = vec[i64]()
        """Schemes that keep what overtook: PSN + 1 in the slot of each response that is here."""
        self.home_port: i64 = 0
        """Through which port of the NIC it sends as long as that is up."""
        self.next_send_ps: i64 = 0
        self.timed_psn: i64 = NO_PSN
        self.timed_ps: i64 = 0
        """Which packet in flight is timed, and since when."""
        self.left_ps: vec[i64] = vec[i64]()
        """Controls with echo: when the packet with the PSN of a slot left, or LEFT_AGAIN, or ANSWERED."""
        self.control_timer_ps: i64 = 0
        self.cnp_from_ps: i64 = 0
        """As receiver: when the next CNP may go out."""
        self.cnp_port: i64 = -1
        """As receiver: through which port the CNP leaves that waits for its delay; below 0 for none."""
        self.max_reads: i64 = 16
        """READs that may be outstanding (max_rd_atomic)."""
        self.asked_psn: i64 = first_psn
        """READs below this PSN were asked for before."""
        self.acked_psn: i64 = first_psn
        """What the responder acknowledged, responses that are missing included."""
        self.response_psn: i64 = first_psn
        """Responses below this PSN are here."""
        self.recovery_timer_ps: i64 = 0
        """For when the timer of the loss recovery scheme is pending; 0 if it is not."""
        self.recovery_due_ps: i64 = 0
        """When the scheme is to be called; 0 for not at all."""
        self.receives: i64 = 0
        """Receives that are posted and not taken."""
        self.pieces: list[bytes] = _NO_PIECES  # of the message being received, where payload is real

    def post(self, number: i64, size_bytes: i64, flags: i64, immediate: i64) -> WorkRequest:
        """Queue a work request of `size_bytes` (0 is one empty packet); `flags` are POST_*."""
        packets: i64 = (size_bytes + self.mtu_bytes - 1) // self.mtu_bytes
        if packets == 0:
            packets = 1
        request = WorkRequest(number, size_bytes, flags, immediate, self.end_psn, packets)
        self.end_psn += packets
        tail = self.tail
        if tail is None:
            self.head = request
        else:
            tail.following = request
        self.tail = request
        if self.sending is None:
            self.sending = request
            self.hold()
        return request

    def has_packets(self) -> bool:
        """Whether a packet waits to be sent."""
        if self.sending is not None and self.next_psn < self.limit_psn and self.waits == 0:
            return True
        return self.pending is not None or (self.resend_psn >= 0 and self.waits & WAIT_RNR == 0)

    def hold(self) -> None:
        """See whether what is to be sent next must wait for room among READs or PSNs."""
        self.waits &= ~(WAIT_READ | WAIT_PSN | WAIT_DRAIN)
        request = self.sending
        if request is None:
            return
        if self.state == SEND_QUEUE_DRAINED and request.first_psn >= self.high_psn:
            self.waits |= WAIT_DRAIN
        if request.flags & POST_READ:
            end: i64 = request.first_psn + request.packets
            if request.first_psn >= self.asked_psn and self.reads >= self.max_reads:
                self.waits |= WAIT_READ
            if end - self.una_psn > PSN_HALF:
                self.waits |= WAIT_PSN
        elif self.next_psn - self.una_psn >= PSN_HALF:
            self.waits |= WAIT_PSN

    def next_frame(self) -> Frame:
        """Build the packet with `next_psn` and step over it; there is one to send."""
        sending = self.sending
        assert sending is not None, self.qpn
        request: WorkRequest = sending  # what is narrowed is checked again at each use
        psn: i64 = self.next_psn
        end: i64 = request.first_psn + request.packets
        if request.flags & POST_READ:
            if request.first_psn >= self.asked_psn:
                self.asked_psn = end
                self.reads += 1
            self.next_psn = end
            self.sending = request.following
            self.hold()
            return self.ask(request, psn, end)
        self.next_psn = psn + 1
        if psn + 1 == end:
            self.sending = request.following
            self.hold()
        elif psn + 1 - self.una_psn >= PSN_HALF:
            self.waits |= WAIT_PSN
        frame = self.packet(request, psn)
        if psn + 1 == self.limit_psn:
            frame.ack_request = 1  # nothing that would ask may follow before an answer
        return frame

    def frame_again(self, psn: i64) -> Frame:
        """Build the packet with a PSN that was sent before and is not acknowledged."""
        request = self.head
        while request is not None and request.first_psn + request.packets <= psn:
            request = request.following
        assert request is not None and request.first_psn <= psn < self.next_psn, (self.qpn, psn)
        if request.flags & POST_READ:
            # What is missing from here on, up to a response that is here, is asked for with one request.
            end: i64 = psn + 1
            mask: i64 = len(self.came) - 1
            while end < request.first_psn + request.packets and self.came[end & mask] != end + 1:
                end += 1
            self.resend_psn = end - 1
            return self.ask(request, psn, end)
        return self.packet(request, psn)

    def next_response(self) -> Frame:
        """Build the next pending response; there is one, and it is no acknowledgement."""
        pending = self.pending
        assert pending is not None and pending.syndrome < 0, self.qpn
        frame = self.frame(pending.step_opcode(), pending.psn, pending.step_bytes(self.mtu_bytes))
        if pending.step(self.mtu_bytes):
            self.pending = pending.following
        return frame

    def time_each(self, packets: int) -> None:
        """Remember when the last packets left; `packets` is a power of two."""
        never: int = LEFT_AGAIN
        self.left_ps = vec[i64]([never] * packets)

    def round_trip_ps(self, psn: i64, now: i64) -> i64:
        """How long the packet with this PSN on the wire, answered now, took; -1 if it left twice, or longer
        ago than is remembered."""
        slots: i64 = len(self.left_ps)
        whole: i64 = unwrap(psn, self.una_psn)
        if whole >= self.high_psn or self.high_psn - whole > slots:
            return -1
        left: i64 = self.left_ps[whole & (slots - 1)]
        if left < 0:
            return -1
        return now - left

    def leaves(self, psn: i64, left_ps: i64) -> None:
        """A packet leaves, for the first time at `left_ps`, or (LEFT_AGAIN) once more."""
        slot: i64 = psn & (len(self.left_ps) - 1)
        if left_ps >= 0 or self.left_ps[slot] != ANSWERED:
            self.left_ps[slot] = left_ps

    def first_answered(self, before: i64, psn: i64) -> i64:
        """How many packets an answer to the one with this PSN on the wire is the first to answer; what is
        below `before` was acknowledged by others."""
        mask: i64 = len(self.left_ps) - 1
        count: i64 = 0
        while before < self.una_psn:
            if self.left_ps[before & mask] != ANSWERED:
                count += 1
            before += 1
        whole: i64 = unwrap(psn, self.una_psn)
        if self.una_psn <= whole < self.high_psn and self.left_ps[whole & mask] != ANSWERED:
            self.left_ps[whole & mask] = ANSWERED
            count += 1
        return count

    def forget(self) -> None:
        """Drop everything that is posted, owed or held."""
        self.head = None
        self.tail = None
        self.sending = None
        self.pending = None
        self.waits = 0
        self.reads = 0
        self.receives = 0
        self.cnp_port = -1
        self.recovery_due_ps = 0
        self.resend_psn = NO_PSN
        self.expect_from(self.expected_psn)
        self.begin_at(self.end_psn)

    def expect_from(self, psn: i64) -> None:
        """As responder: the first packet has this PSN."""
        self.expected_psn = psn
        self.message_psn = psn
        self.message_bytes = 0
        self.nak_sent = False
        self.receive_taken = False
        if self.held is not None:
            self.held.load([])

    def begin_at(self, psn: i64) -> None:
        """As requester, with nothing posted: the first packet has this PSN."""
        assert self.head is None, self.qpn
        self.una_psn = psn
        self.next_psn = psn
        self.end_psn = psn
        self.high_psn = psn
        self.asked_psn = psn
        self.acked_psn = psn
        self.response_psn = psn
        self.resent_psn = psn
        self.sacked_psn = psn
        self.timed_psn = NO_PSN
        self.retries = 0
        self.rnr_retries = 0
        self.backoff = 0
        at: i64 = 0
        while at < len(self.came):
            self.came[at] = 0
            if at < len(self.sacked):
                self.sacked[at] = 0
            at += 1

    def go_back(self, psn: i64) -> None:
        """Send again from `psn` on (una <= psn <= end)."""
        assert self.una_psn <= psn <= self.end_psn, (self.una_psn, psn, self.end_psn)
        self.next_psn = psn
        request = self.head
        while request is not None and request.first_psn + request.packets <= psn:
            request = request.following
        self.sending = request
        if psn < self.response_psn:
            self.response_psn = psn
        self.hold()

    def drop_head(self) -> WorkRequest:
        """Take the oldest work request off the list."""
        request = self.head
        assert request is not None, self.qpn
        self.head = request.following
        if request.following is None:
            self.tail = None
        if self.sending is request:
            self.sending = request.following
        if request.flags & POST_READ and request.first_psn < self.asked_psn:
            self.reads -= 1
        return request

    def save(self) -> list[Plain]:
        """The queue pair's state."""
        requests: list[Plain] = []
        request = self.head
        while request is not None:
            requests.append(save_fields(request, REQUEST_FIELDS))
            request = request.following
        held: Plain = None if self.held is None else self.held.save()
        control: Plain = None if self.control is None else self.control.save()
        pending = save_pending(self.pending)
        rings: list[Plain] = [
            save_integers(self.sacked),
            save_integers(self.came),
            save_integers(self.left_ps),
        ]
        return [save_fields(self, _FIELDS), requests, held, rings, control, pending, list[Plain](self.pieces)]

    def load(self, state: Plain) -> None:
        """Take the state that `save` of an equally built queue pair returned; the NIC relinks active ones."""
        fields, requests, held, rings, control, pending, pieces = as_list(state)
        self.pieces = [as_bytes(piece) for piece in as_list(pieces)]
        load_fields(self, _FIELDS, fields)
        self.head = self.tail = self.sending = None
        self.active_next = None
        tail: WorkRequest | None = None
        for saved in as_list(requests):
            request = WorkRequest(0, 0, 0, 0, 0, 0)
            load_fields(request, REQUEST_FIELDS, saved)
            if tail is None:
                self.head = request
            else:
                tail.following = request
            tail = request
        self.tail = tail
        self.go_back(self.next_psn)
        sacked, came, left = as_list(rings)
        self.sacked = load_integers(sacked)
        self.came = load_integers(came)
        self.left_ps = load_integers(left)
        if self.held is not None:
            self.held.load(held)
        if self.control is not None:
            self.control.load(as_list(control))
        self.pending = load_pending(pending)


def unwrap(psn: i64, near: i64) -> i64:
    """The unbounded PSN nearest to `near` whose low 24 bits are `psn`."""
    ahead: i64 = (psn - near) & PSN_MASK
    if ahead >= PSN_HALF:
        return near + ahead - (PSN_MASK + 1)
    return near + ahead
