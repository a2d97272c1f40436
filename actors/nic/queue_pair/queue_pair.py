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

from mypy_extensions import i16, i32, i64

from actors.kernel.device import Plain
from actors.kernel.event import NEVER_PS
from actors.kernel.state import (
    as_bytes,
    as_list,
    load_fields,
    load_frame,
    save_event,
    save_fields,
)
from actors.kernel.vectors import vec
from actors.nic.congestion.control import ANSWERED, CongestionControl
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


class Repair:
    """What loss recovery remembers of a queue pair that sends from `una_psn` on, where it does."""

    def __init__(self, una_psn: i64) -> None:
        self.resent_psn: i64 = una_psn
        """Selective repeat: lost packets below this PSN were sent again already."""
        self.sacked_psn: i64 = una_psn
        """Selective repeat: the end of what the responder is known to have or to hold."""
        self.sacked: vec[i64] = vec[i64]()
        """Selective repeat: PSN + 1 in the slot of each packet that the responder holds."""
        self.came: vec[i64] = vec[i64]()
        """Schemes that keep what overtook: PSN + 1 in the slot of each response that is here."""
        self.late_nak_psn: i64 = NO_PSN
        """The end of what had been sent when the last NAK came that was overtaken."""
        self.timer_ps: i64 = 0
        """For when the scheme's timer is pending; 0 if it is not."""
        self.due_ps: i64 = 0
        """When the scheme is to be called; 0 for not at all."""

    def begin_at(self, psn: i64) -> None:
        """The first packet has this PSN, and nothing is known of any."""
        self.resent_psn = psn
        self.sacked_psn = psn
        at: i64 = 0
        while at < len(self.came):
            self.came[at] = 0
            if at < len(self.sacked):
                self.sacked[at] = 0
            at += 1


class Reads:
    """The READs of a queue pair that sends from `una_psn` on, once one was posted."""

    def __init__(self, una_psn: i64) -> None:
        self.outstanding: i64 = 0
        self.asked_psn: i64 = una_psn
        """READs below this PSN were asked for before."""
        self.acked_psn: i64 = una_psn
        """What the responder acknowledged, responses that are missing included."""
        self.response_psn: i64 = una_psn
        """Responses below this PSN are here."""
        self.asked_again: bool = False
        """Whether missing responses were asked for again since there was progress."""

    def begin_at(self, psn: i64) -> None:
        """The first packet has this PSN."""
        self.asked_psn = psn
        self.acked_psn = psn
        self.response_psn = psn


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
WAIT_READ: Final[i16] = 1
"""As many READs are outstanding as may be."""
WAIT_PSN: Final[i16] = 2
"""As many PSNs are outstanding as may be."""
WAIT_RNR: Final[i16] = 4
"""The responder was not ready, and its time is not over. This holds back what is sent again, too."""
WAIT_DRAIN: Final[i16] = 8
"""The send queue is being drained, and the next work request was not begun."""
WAIT_RECOVERY: Final[i16] = 16
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
    "backoff",
    "paced",
    "port",
    "waits",
    "rnr_retries",
    "receives",
    "receive_taken",
)
_REPAIR: Final = (
    *("resent_psn", "sacked_psn", "sacked", "came"),
    *("late_nak_psn", "timer_ps", "due_ps"),
)
_READS: Final = ("outstanding", "asked_psn", "acked_psn", "response_psn", "asked_again")
_PACED: Final = ("timed_psn", "timed_ps", "left_ps", "pending_ps", "cnp_from_ps", "cnp_port")
"""What the NIC keeps of a queue pair in its control."""


_NO_PIECES: Final[list[bytes]] = []
"""One for all: where payload is real, the first piece of a message begins a list of its own."""


class QueuePair(Connection):
    """One end of a reliable connection."""

    def __init__(
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
        # Small numbers share words, and what few queue pairs need is an object of its own: large jobs have
        # millions of ends. What every packet reads comes first.
        self.nak_sent: bool = False
        self.receive_taken: bool = False
        """Whether the message being received has taken its own."""
        self.active: bool = False
        """Whether the queue pair stands in its NIC's round."""
        self.paced: bool = False
        """Whether it waits for a time to send, with an event pending."""
        self.timer_pending: bool = False
        self.waits: i16 = 0
        """What keeps `next_psn` from being sent: WAIT_*."""
        self.retries: i16 = 0
        self.backoff: i16 = 0
        """Adaptive retransmission: how often the timer ran out since there was progress."""
        self.max_reads: i16 = 16
        """READs that may be outstanding (max_rd_atomic)."""
        self.rnr_retries: i32 = 0
        self.messages: i32 = 0
        self.state: i64 = READY
        # Responder.
        self.expected_psn: i64 = remote_first_psn
        self.message_bytes: i64 = 0
        # Requester: una <= next <= end; [una, next) is in flight, high is the end of what was ever sent. What
        # an acknowledgement reads is one cache line, and what else packets read the next.
        self.una_psn: i64 = first_psn
        self.next_psn: i64 = first_psn
        self.high_psn: i64 = first_psn
        self.limit_psn: i64 = UNLIMITED_PSN
        """New packets are sent below this PSN."""
        self.head: WorkRequest | None = None
        self.control: CongestionControl | None = None
        """What paces it; None for the port alone."""
        self.reading: Reads | None = None
        """Its READs; None before the first."""
        self.deadline_ps: i64 = 0
        self.pending: PendingAnswer | None = None
        """As responder: responses that the requester waits for."""
        self.held: HeldPackets | None = None
        """As responder: packets beyond a gap, for schemes that keep them."""
        self.resend_psn: i64 = NO_PSN
        """The packet to send again before any other."""
        self.sending: WorkRequest | None = None
        self.active_next: QueuePair | None = None
        self.port: i64 = 0
        """Through which port it sends now."""
        self.repair: Repair | None = None
        """What loss recovery remembers; None for nothing."""
        # What is rare, or is a message's.
        self.tail: WorkRequest | None = None
        self.end_psn: i64 = first_psn
        self.message_psn: i64 = remote_first_psn
        """With which PSN the message being received began."""
        self.log_deliveries: i32 = log_deliveries
        self.receives: i32 = 0
        """Receives that are posted and not taken."""
        self.pieces: list[bytes] = _NO_PIECES  # of the message being received, where payload is real
        self.filling: tuple[i64, i64] = (0, 0)
        """Nothing, so that it begins with a cache line: 320 bytes with the collector's header."""

    @property
    def reads(self) -> i64:
        """READs that are outstanding."""
        reading = self.reading
        return 0 if reading is None else reading.outstanding

    def begun_reads(self) -> Reads:
        """Its READs, the first of which is posted if there was none."""
        if self.reading is None:
            self.reading = Reads(self.una_psn)
        return self.reading

    def begun_repair(self) -> Repair:
        """What loss recovery remembers, from now on if there was nothing."""
        if self.repair is None:
            self.repair = Repair(self.una_psn)
        return self.repair

    def post(self, number: i64, size_bytes: i64, flags: i64, immediate: i64) -> WorkRequest:
        """Queue a work request of `size_bytes` (0 is one empty packet); `flags` are POST_*."""
        packets: i64 = (size_bytes + self.mtu_bytes - 1) // self.mtu_bytes
        if packets == 0:
            packets = 1
        request = WorkRequest(number, size_bytes, flags, immediate, self.end_psn, packets)
        if flags & POST_READ:
            self.begun_reads()
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
            reading = self.begun_reads()
            if request.first_psn >= reading.asked_psn and reading.outstanding >= i64(self.max_reads):
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
            reading = self.begun_reads()
            if request.first_psn >= reading.asked_psn:
                reading.asked_psn = end
                reading.outstanding += 1
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
            came = self.begun_repair().came
            mask: i64 = len(came) - 1
            while end < request.first_psn + request.packets and came[end & mask] != end + 1:
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

    def round_trip_ps(self, control: CongestionControl, psn: i64, now: i64) -> i64:
        """How long the packet with this PSN on the wire, answered now, took; -1 if it left twice, or longer
        ago than is remembered."""
        slots: i64 = len(control.left_ps)
        whole: i64 = unwrap(psn, self.una_psn)
        if whole >= self.high_psn or self.high_psn - whole > slots:
            return -1
        left: i64 = control.left_ps[whole & (slots - 1)]
        if left < 0:
            return -1
        return now - left

    def first_answered(self, control: CongestionControl, before: i64, psn: i64) -> i64:
        """How many packets an answer to the one with this PSN on the wire is the first to answer; what is
        below `before` was acknowledged by others."""
        mask: i64 = len(control.left_ps) - 1
        count: i64 = 0
        while before < self.una_psn:
            if control.left_ps[before & mask] != ANSWERED:
                count += 1
            before += 1
        whole: i64 = unwrap(psn, self.una_psn)
        if self.una_psn <= whole < self.high_psn and control.left_ps[whole & mask] != ANSWERED:
            control.left_ps[whole & mask] = ANSWERED
            count += 1
        return count

    def forget(self) -> None:
        """Drop everything that is posted, owed or held."""
        self.head = None
        self.tail = None
        self.sending = None
        self.pending = None
        self.waits = 0
        self.receives = 0
        if self.reading is not None:
            self.reading.outstanding = 0
        if self.control is not None:
            self.control.cnp_port = -1
        if self.repair is not None:
            self.repair.due_ps = 0
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
        self.retries = 0
        self.rnr_retries = 0
        self.backoff = 0
        if self.reading is not None:
            self.reading.begin_at(psn)
        if self.repair is not None:
            self.repair.begin_at(psn)
        if self.control is not None:
            self.control.timed_psn = NO_PSN

    def go_back(self, psn: i64) -> None:
        """Send again from `psn` on (una <= psn <= end)."""
        assert self.una_psn <= psn <= self.end_psn, (self.una_psn, psn, self.end_psn)
        self.next_psn = psn
        request = self.head
        while request is not None and request.first_psn + request.packets <= psn:
            request = request.following
        self.sending = request
        reading = self.reading
        if reading is not None and psn < reading.response_psn:
            reading.response_psn = psn
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
        reading = self.reading
        if reading is not None and request.flags & POST_READ and request.first_psn < reading.asked_psn:
            reading.outstanding -= 1
        return request

    def save(self) -> list[Plain]:
        """The queue pair's state."""
        requests: list[Plain] = []
        request = self.head
        while request is not None:
            requests.append(save_fields(request, REQUEST_FIELDS))
            request = request.following
        held: Plain = None if self.held is None else self.held.save()
        control: list[Plain] = []
        if self.control is not None:
            control = [self.control.save(), save_fields(self.control, _PACED)]
        repair: Plain = None if self.repair is None else save_fields(self.repair, _REPAIR)
        reading: Plain = None if self.reading is None else save_fields(self.reading, _READS)
        rare: list[Plain] = [repair, reading]
        pending = save_pending(self.pending)
        return [save_fields(self, _FIELDS), requests, held, rare, control, pending, list[Plain](self.pieces)]

    def load(self, state: Plain) -> None:
        """Take the state that `save` of an equally built queue pair returned; the NIC relinks active ones."""
        fields, requests, held, rare, control, pending, pieces = as_list(state)
        self.pieces = [as_bytes(piece) for piece in as_list(pieces)]
        load_fields(self, _FIELDS, fields)
        repair, reading = as_list(rare)
        self.repair = self.reading = None
        if repair is not None:
            load_fields(self.begun_repair(), _REPAIR, repair)
        if reading is not None:
            load_fields(self.begun_reads(), _READS, reading)
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
        if self.held is not None:
            self.held.load(held)
        if self.control is not None:
            own, paced = as_list(control)
            self.control.load(as_list(own))
            load_fields(self.control, _PACED, paced)
        self.pending = load_pending(pending)


def unwrap(psn: i64, near: i64) -> i64:
    """The unbounded PSN nearest to `near` whose low 24 bits are `psn`."""
    ahead: i64 = (psn - near) & PSN_MASK
    if ahead >= PSN_HALF:
        return near + ahead - (PSN_MASK + 1)
    return near + ahead
