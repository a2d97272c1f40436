"""Work requests, and the packets that a reliable connection makes of them.

Both ends are fixed before time begins: addresses, queue pair numbers, the UDP source port that switches hash,
priority and MTU. A work request's packets differ in opcode, PSN, payload and what they ask for; whether they
are sent the first time or again makes no difference.

A work request holds the poster's number, how many bytes, what is to be done with them (`flags`, POST_* of
`actors.wire.message`), and which PSNs it takes: a packet each, for a READ those of the responses, and at
least one. Where payload is real, `data` is what it reads from memory: packets that are sent again are cut
from it anew.

Source: InfiniBand Architecture Specification volume 1, sections 9.2 to 9.4.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, u8

from actors.wire.frame import (
    ACKNOWLEDGE,
    ECN_NOT_CAPABLE,
    PSN_MASK,
    READ_REQUEST,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
    Frame,
    Spares,
    wire_size,
)
from actors.wire.message import POST_SEND, POST_WITH_IMMEDIATE

REQUEST_FIELDS: Final = ("number", "size_bytes", "flags", "immediate", "first_psn", "packets", "data")


class WorkRequest:
    """One that was posted, with a number of the poster's own."""

    __slots__ = (
        "data",
        "filling",
        "first_psn",
        "flags",
        "following",
        "immediate",
        "number",
        "packets",
        "size_bytes",
    )

    def __init__(
        self, number: i64, size_bytes: i64, flags: i64, immediate: i64, first_psn: i64, packets: i64
    ) -> None:
        self.first_psn: i64 = first_psn  # each packet asks for these five, which are in one cache line
        self.packets: i64 = packets
        self.flags: i64 = flags
        self.data: bytes | None = None
        self.immediate: i64 = immediate
        self.number: i64 = number
        self.size_bytes: i64 = size_bytes
        self.following: WorkRequest | None = None
        self.filling: tuple[i64, i64, i64] = (0, 0, 0)
        """Nothing, so that it begins with a cache line: 128 bytes with the collector's header."""


ACK_WIRE_BYTES: Final[i64] = 86
"""Headers 62 B, AETH 4 B, preamble and gap 20 B."""


NO_SPARES: Final = Spares()
"""Spares of a queue pair without a NIC."""


class Connection:
    """One end of a reliable connection, as far as it never changes."""

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
    ) -> None:
        # Small numbers come last: those of a queue pair follow in the same word.
        self.index: i64 = index
        self.qpn: i64 = qpn
        self.remote_qpn: i32 = remote_qpn
        self.address: i32 = address
        self.remote_address: i32 = remote_address
        self.udp_source: i32 = udp_source
        self.mtu_bytes: i64 = mtu_bytes
        self.ack_every: i64 = ack_every
        self.spares: Spares = NO_SPARES
        """Those of its queue of events, once it has a NIC."""
        self.priority: u8 = priority
        self.ack_priority: u8 = ack_priority
        self.ecn: u8 = ECN_NOT_CAPABLE
        """What its packets say of ECN."""

    def frame(self, opcode: i64, psn: i64, payload: i64) -> Frame:
        """A packet to the other end."""
        kind: int = opcode
        priority: int = self.priority
        number: int = psn & PSN_MASK
        size: int = payload
        frame = self.spares.take()
        frame.become(
            kind,
            priority,
            self.address,
            self.remote_address,
            self.udp_source,
            self.remote_qpn,
            number,
            size,
            wire_size(opcode, payload),
        )
        frame.ecn = self.ecn
        return frame

    def packet(self, request: WorkRequest, psn: i64) -> Frame:
        """The packet of a SEND or a WRITE with this PSN."""
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
        send: bool = request.flags & POST_SEND != 0
        if send:
            opcode -= WRITE_FIRST  # the opcodes of SEND begin at 0, in the same order
        frame = self.frame(opcode, psn, payload)
        if request.data is not None:
            data = request.data
            start: i64 = at * self.mtu_bytes
            frame.payload = data[start : start + payload]
        if last:
            frame.ack_request = 1
            if request.immediate != 0:
                frame.immediate = request.immediate
        elif self.ack_every == 1 or (at + 1) % self.ack_every == 0:
            frame.ack_request = 1
        if at == 0 and not send:
            frame.message_bytes = request.size_bytes
        return frame

    def ask(self, request: WorkRequest, psn: i64, end: i64) -> Frame:
        """The request for the responses of a READ from `psn` to before `end`."""
        last: i64 = request.first_psn + request.packets
        size: i64 = (end - psn) * self.mtu_bytes
        if end == last:
            size = request.size_bytes - (psn - request.first_psn) * self.mtu_bytes
        frame = self.frame(READ_REQUEST, psn, 0)
        frame.message_bytes = size
        return frame

    def acknowledgement(self, psn: i64, syndrome: int, spare: Frame | None = None) -> Frame:
        """An acknowledgement or a NAK for `psn`. A packet that nobody needs any more may become it."""
        number: int = psn & PSN_MASK
        if spare is None:
            frame = Frame(
                ACKNOWLEDGE,
                self.ack_priority,
                self.address,
                self.remote_address,
                self.udp_source,
                self.remote_qpn,
                number,
                0,
                ACK_WIRE_BYTES,
            )
        else:
            frame = spare
            frame.become(
                ACKNOWLEDGE,
                self.ack_priority,
                self.address,
                self.remote_address,
                self.udp_source,
                self.remote_qpn,
                number,
                0,
                ACK_WIRE_BYTES,
            )
        frame.syndrome = syndrome
        return frame
