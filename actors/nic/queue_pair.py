"""What does one reliable connection know, and what is its next packet?

A queue pair is a requester (work requests, segmented into packets with consecutive PSNs, kept until they
are acknowledged) and a responder (the PSN it expects, the message it is receiving, what it holds beyond a
gap). PSNs are unbounded integers here and 24 bits on the wire; `unwrap` finds the nearest. What is sent
next is a packet that the recovery scheme wants again (`resend_psn`), else the one with `next_psn`, as
long as that is below `limit_psn`: window-bound schemes and congestion control move the limit, for the
others it is out of reach.

Source: InfiniBand Architecture Specification volume 1, sections 9.7 and 11.5.

Not modelled: RNR, READ, atomics, and the states before RTS: connections exist when time begins.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.nic.congestion import CongestionControl
from actors.nic.held import HeldPackets
from emu.kernel.device import Plain
from emu.kernel.state import as_list, load_fields, load_integers, save_fields, save_integers
from emu.vectors import vec
from emu.wire.event import NEVER_PS
from emu.wire.frame import (
    ECN_NOT_CAPABLE,
    PSN_HALF,
    PSN_MASK,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
    Frame,
    wire_size,
)
from emu.wire.message import POST_WITH_IMMEDIATE

READY: Final[i64] = 3
"""Ready to send (RTS)."""
ERROR: Final[i64] = 6
"""In error: everything posted is flushed."""
NO_PSN: Final[i64] = -1
UNLIMITED_PSN: Final[i64] = NEVER_PS
"""A limit that no PSN reaches."""

_REQUEST_FIELDS: Final = ("number", "size_bytes", "flags", "immediate", "first_psn", "packets")
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
    "next_send_ps",
    "paced",
    "timed_psn",
    "timed_ps",
    "control_timer_ps",
    "cnp_from_ps",
    "port",
)


class WorkRequest:
    """One posted WRITE: `number` is the poster's own, `first_psn` and `packets` say which PSNs it takes."""

    __slots__ = ("first_psn", "flags", "following", "immediate", "number", "packets", "size_bytes")

    def __init__(
        self, number: i64, size_bytes: i64, flags: i64, immediate: i64, first_psn: i64, packets: i64
    ) -> None:
        self.number: i64 = number
        self.size_bytes: i64 = size_bytes
        self.flags: i64 = flags
        self.immediate: i64 = immediate
        self.first_psn: i64 = first_psn
        self.packets: i64 = packets
        self.following: WorkRequest | None = None


class QueuePair:
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
        mtu_bytes: int,
        ack_every: int,
        first_psn: int,
        remote_first_psn: int,
        log_deliveries: bool,
    ) -> None:
        self.index: i64 = index
        self.qpn: i64 = qpn
        self.remote_qpn: i64 = remote_qpn
        self.address: i64 = address
        self.remote_address: i64 = remote_address
        self.udp_source: i64 = udp_source
        self.priority: i64 = priority
        self.mtu_bytes: i64 = mtu_bytes
        self.ack_every: i64 = ack_every
        self.log_deliveries: bool = log_deliveries
        self.state: i64 = READY
        # Requester: una <= next <= end; [una, next) is in flight, high is the end of what was ever sent.
        self.head: WorkRequest | None = None
        self.tail: WorkRequest | None = None
        self.sending: WorkRequest | None = None
        self.next_psn: i64 = first_psn
        self.una_psn: i64 = first_psn
        self.end_psn: i64 = first_psn
        self.high_psn: i64 = first_psn
        self.limit_psn: i64 = UNLIMITED_PSN
        """New packets are sent below this PSN."""
        self.resend_psn: i64 = NO_PSN
        """The packet to send again before any other."""
        self.resent_psn: i64 = first_psn
        """Selective repeat: lost packets below this PSN were sent again already."""
        self.sacked_psn: i64 = first_psn
        """Selective repeat: the end of what the responder is known to have or to hold."""
        self.sacked: vec[i64] = vec[i64]()
        """Selective repeat: PSN + 1 in the slot of each packet that the responder holds."""
        self.home_port: i64 = 0
        """Through which port of the NIC it sends as long as that is up."""
        self.port: i64 = 0
        """Through which port it sends now."""
        self.control: CongestionControl | None = None
        """What paces it; None for the port alone."""
        self.ecn: i64 = ECN_NOT_CAPABLE
        """What its packets say of ECN."""
        self.next_send_ps: i64 = 0
        self.paced: bool = False
        """Whether it waits for `next_send_ps`, with an event pending."""
        self.timed_psn: i64 = NO_PSN
        self.timed_ps: i64 = 0
        """Which packet in flight is timed, and since when."""
        self.control_timer_ps: i64 = 0
        self.cnp_from_ps: i64 = 0
        """As receiver: when the next CNP may go out."""
        self.retries: i64 = 0
        self.backoff: i64 = 0
        """Adaptive retransmission: how often the timer ran out since there was progress."""
        self.deadline_ps: i64 = 0
        self.timer_pending: bool = False
        self.active: bool = False
        """Whether the queue pair stands in its NIC's round."""
        self.active_next: QueuePair | None = None
        # Responder.
        self.expected_psn: i64 = remote_first_psn
        self.message_bytes: i64 = 0
        self.messages: i64 = 0
        self.message_psn: i64 = remote_first_psn
        """With which PSN the message being received began."""
        self.nak_sent: bool = False
        self.held: HeldPackets | None = None
        """Packets beyond a gap, for schemes that keep them."""

    def post(self, number: i64, size_bytes: i64, flags: i64, immediate: i64) -> None:
        """Queue a WRITE of `size_bytes` (0 is one empty packet)."""
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

    def has_packets(self) -> bool:
        """Whether a packet waits to be sent."""
        return (self.sending is not None and self.next_psn < self.limit_psn) or self.resend_psn >= 0

    def next_frame(self) -> Frame:
        """Build the packet with `next_psn` and step over it; there is one to send."""
        request = self.sending
        assert request is not None, self.qpn
        psn: i64 = self.next_psn
        self.next_psn = psn + 1
        if psn + 1 == request.first_psn + request.packets:
            self.sending = request.following
        return self._packet(request, psn)

    def frame_again(self, psn: i64) -> Frame:
        """Build the packet with a PSN that was sent before and is not acknowledged."""
        request = self.head
        while request is not None and request.first_psn + request.packets <= psn:
            request = request.following
        assert request is not None and request.first_psn <= psn < self.next_psn, (self.qpn, psn)
        return self._packet(request, psn)

    def _packet(self, request: WorkRequest, psn: i64) -> Frame:
        at: i64 = psn - request.first_psn
        payload: i64 = self.mtu_bytes
        last: bool = at == request.packets - 1
        opcode: i64 = WRITE_MIDDLE
        if last:
            payload = request.size_bytes - at * payload
            if request.flags & POST_WITH_IMMEDIATE:
                opcode = WRITE_ONLY_IMM if at == 0 else WRITE_LAST_IMM
            else:
                opcode = WRITE_ONLY if at == 0 else WRITE_LAST
        elif at == 0:
            opcode = WRITE_FIRST
        frame = Frame(
            opcode,
            self.priority,
            self.address,
            self.remote_address,
            self.udp_source,
            self.remote_qpn,
            psn & PSN_MASK,
            payload,
            wire_size(opcode, payload),
        )
        frame.ecn = self.ecn
        if last:
            frame.ack_request = 1
            frame.immediate = request.immediate
        elif self.ack_every == 1 or (at + 1) % self.ack_every == 0:
            frame.ack_request = 1
        if at == 0:
            frame.message_bytes = request.size_bytes
        return frame

    def go_back(self, psn: i64) -> None:
        """Send again from `psn` on (una <= psn <= end)."""
        assert self.una_psn <= psn <= self.end_psn, (self.una_psn, psn, self.end_psn)
        self.next_psn = psn
        request = self.head
        while request is not None and request.first_psn + request.packets <= psn:
            request = request.following
        self.sending = request

    def drop_head(self) -> WorkRequest:
        """Take the oldest work request off the list."""
        request = self.head
        assert request is not None, self.qpn
        self.head = request.following
        if request.following is None:
            self.tail = None
        if self.sending is request:
            self.sending = request.following
        return request

    def save(self) -> list[Plain]:
        """The queue pair's state."""
        requests: list[Plain] = []
        request = self.head
        while request is not None:
            requests.append(save_fields(request, _REQUEST_FIELDS))
            request = request.following
        held: Plain = None if self.held is None else self.held.save()
        control: Plain = None if self.control is None else self.control.save()
        return [save_fields(self, _FIELDS), requests, held, save_integers(self.sacked), control]

    def load(self, state: Plain) -> None:
        """Take the state that `save` of an equally built queue pair returned; the NIC relinks active ones."""
        fields, requests, held, sacked, control = as_list(state)
        load_fields(self, _FIELDS, fields)
        self.head = None
        self.tail = None
        self.sending = None
        self.active_next = None
        tail: WorkRequest | None = None
        for saved in as_list(requests):
            request = WorkRequest(0, 0, 0, 0, 0, 0)
            load_fields(request, _REQUEST_FIELDS, saved)
            if tail is None:
                self.head = request
            else:
                tail.following = request
            tail = request
        self.tail = tail
        self.go_back(self.next_psn)
        self.sacked = load_integers(sacked)
        if self.held is not None:
            self.held.load(held)
        if self.control is not None:
            self.control.load(as_list(control))


def unwrap(psn: i64, near: i64) -> i64:
    """The unbounded PSN nearest to `near` whose low 24 bits are `psn`."""
    ahead: i64 = (psn - near) & PSN_MASK
    if ahead >= PSN_HALF:
        return near + ahead - (PSN_MASK + 1)
    return near + ahead
