"""Frames: headers, sizes on the wire, opcodes.

A RoCEv2 packet in an Ethernet frame: preamble and inter-frame gap 20 B, Ethernet 14 + 4, IPv4 20, UDP 8
(port 4791), BTH 12, then by opcode RETH 16 (first and only packet of a WRITE, request of a READ), ImmDt 4
(last or only packet with immediate) or AETH 4 (acknowledgements; first, last and only response of a READ),
payload padded to 4 B, ICRC 4. The least frame is 64 B, so nothing occupies a link for less than 84 B.

Source: InfiniBand Architecture Specification volume 1, chapter 9 and annex A17 (RoCEv2); IEEE 802.3.

Not modelled here: VLAN tags, IPv6, GRH, P_Key, migration bits. Bytes travel in `payload` when a scenario asks
for real payload; otherwise only their number does.
"""

from __future__ import annotations

from typing import Final, cast

from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from actors.kernel.event import Event, untrack

PREAMBLE_GAP_BYTES: Final[i64] = 20
RETH_BYTES: Final[i64] = 16
AETH_BYTES: Final[i64] = 4
IMMDT_BYTES: Final[i64] = 4
HEADER_BYTES: Final[i64] = 62
"""Ethernet with FCS 18, IPv4 20, UDP 8, BTH 12 and ICRC 4: what every RoCEv2 packet has besides payload."""
HEAD_WIRE_BYTES: Final[i64] = 62
"""What a switch must have seen to route a packet: preamble 8, Ethernet 14, IPv4 20, UDP 8, BTH 12."""
LEAST_FRAME_BYTES: Final[i64] = 64
LEAST_WIRE_BYTES: Final[i64] = 84
LARGEST_HEADERS_BYTES: Final[i64] = 82
"""Headers and FCS of the largest packet: WRITE_ONLY_IMM carries RETH and ImmDt."""
PAUSE_WIRE_BYTES: Final[i64] = 84
"""A PFC frame is a least frame (IEEE 802.1Qbb)."""
CREDIT_WIRE_BYTES: Final[i64] = 8
"""A flow control packet of InfiniBand, one lane's (volume 1, section 7.9.4)."""

UDP_PORT: Final[i64] = 4791
FIRST_TTL: Final = 64
"""IPv4's time to live as a packet leaves its NIC, unless that says otherwise."""

# BTH opcodes of the reliable connection (volume 1, table 38), and the CNP of annex A17.
SEND_FIRST: Final = 0x00
SEND_MIDDLE: Final = 0x01
SEND_LAST: Final = 0x02
SEND_LAST_IMM: Final = 0x03
SEND_ONLY: Final = 0x04
SEND_ONLY_IMM: Final = 0x05
WRITE_FIRST: Final = 0x06
WRITE_MIDDLE: Final = 0x07
WRITE_LAST: Final = 0x08
WRITE_LAST_IMM: Final = 0x09
WRITE_ONLY: Final = 0x0A
WRITE_ONLY_IMM: Final = 0x0B
READ_REQUEST: Final = 0x0C
READ_RESPONSE_FIRST: Final = 0x0D
READ_RESPONSE_MIDDLE: Final = 0x0E
READ_RESPONSE_LAST: Final = 0x0F
READ_RESPONSE_ONLY: Final = 0x10
ACKNOWLEDGE: Final = 0x11
CNP: Final = 0x81
PATHED: Final[i64] = 0xC0
"""Opcodes of a transport with paths: this and the opcode that they would have in a reliable connection, in
the range that the specification leaves to manufacturers."""
PATH_PROBE: Final[i64] = 0x1E
"""Asks whether a path leads to the peer; with PATHED in front."""
PATH_HEADER_BYTES: Final[i64] = 8
"""What such packets carry behind BTH: path 8 bits, sequence on the path 24, time of sending 32."""
PATH_ANSWER_BYTES: Final[i64] = 36
"""What their acknowledgements carry besides: a vector of 256 bits, and a rate of 32."""

LAST_OPCODES: Final[i64] = 0xF3C
"""A bit for each opcode that ends a SEND or a WRITE."""
PATHED_IMMDT: Final[i64] = 0xA28
"""A bit for each that carries an immediate."""
REPORTED_OPCODES: Final[i64] = 0xA3C
"""A bit for each that ends a message of which the receiver's host is notified."""

# AETH syndromes (volume 1, table 45).
SYNDROME_ACK: Final = 0x1F
"""Acknowledge, with no limit on credits."""
SYNDROME_RNR: Final = 0x20
"""Receiver not ready; the low five bits are a timer code."""
SYNDROME_NAK_SEQUENCE: Final = 0x60
SYNDROME_NAK_INVALID: Final = 0x61
SYNDROME_NAK_ACCESS: Final = 0x62
SYNDROME_NAK_OPERATION: Final = 0x63

ECN_NOT_CAPABLE: Final = 0
ECN_CAPABLE: Final = 2
ECN_CONGESTED: Final = 3

PSN_SHIFT: Final[i64] = 38
QPN_SHIFT: Final[i64] = 14
"""Where the QPN begins in a `packet_word`."""
PSN_MASK: Final[i64] = 0xFFFFFF
PSN_HALF: Final[i64] = 0x800000
LARGEST_32: Final[i64] = 0xFFFFFFFF
_LARGEST_16: Final[i64] = 0xFFFF
_SIGN_32: Final[i64] = 0x80000000

MOST_SPARES: Final[i64] = 64
"""Frames come and go by turns: few wait."""
MOST_CROSSED: Final = 1 << 16
"""Of those that left for other workers: as many come in a window as leave in one."""

_HALF: Final[i64] = 32
_OPCODE_AT: Final[i64] = 32
_TTL_AT: Final[i64] = 40
_PRIORITY_AT: Final[i64] = 48
_ECN_AT: Final[i64] = 56
_SYNDROME_AT: Final[i64] = 8
_DSCP_AT: Final[i64] = 16
_CORRUPT_AT: Final[i64] = 24
_WIRE_AT: Final[i64] = 32
_PAYLOAD_AT: Final[i64] = 48
_QUARTER: Final[i64] = 16
"""The lowest bits of a packet's fields in its words (`numbers_word` and those behind it)."""


class Load:
    """What a frame with real payload carries: that, and the tail of the frame."""

    __slots__ = ("payload", "tail")

    def __init__(self, tail: bytes | None, payload: bytes) -> None:
        self.tail: bytes | None = tail
        self.payload: bytes = payload


@mypyc_attr(free_list_len=1)
class Frame(Event):
    """One RoCEv2 packet in an Ethernet frame, and the event of its own arrival at the next device.

    Addresses are the low 24 bits of 10.0.0.0/8. `psn` is the 24-bit number on the wire. `wire_bytes` includes
    preamble and gap. `ttl` is IPv4's; `dscp` are the upper six bits of its type of service, by default the
    class selector of the priority. `corrupt` is 1 if bits of it were spoilt on the way. `sent_ps` is when its
    first bit left the last port. `whence` has two meanings. On a link it is the number of the device that the
    frame left, plus 1, where that has deferred what it sends next (`Device.defer`), else 0. In a device that
    holds it, it is where the frame entered (port << 3 | priority group). `cut` is below 0 while a frame that
    is cut through waits for its tail, and then has its ports. Neither travels. A frame that waits in a queue,
    and not for its time, has the next one of that queue in `chain`.

    Most fields are narrow, since a fabric has a frame for each packet in flight and must fit the caches: with
    the collector's header it is 128 bytes, two cache lines. The first has all that is read and written of a
    frame that waits and leaves, the second what its arrival asks for besides. To calculate in 64 bits with a
    narrow one, take it as an `int` first. `tail` and `payload` share a field, `carried`, of which hops ask
    only whether there is any.

    Few cost an allocation: used frames become the next ones (`Spares`),
    what comes from another worker is made of what left for it, and compiled, the frame that was freed last is
    used again for the next one.
    """

    __slots__ = (
        "_immediate",
        "_message_bytes",
        "ack_request",
        "carried",
        "corrupt",
        "cut",
        "dscp",
        "dst",
        "ecn",
        "opcode",
        "payload_bytes",
        "priority",
        "psn",
        "qpn",
        "sent_ps",
        "src",
        "syndrome",
        "ttl",
        "udp_source",
        "whence",
        "wire_bytes",
    )

    def __init__(
        self,
        opcode: u8,
        priority: u8,
        src: i32,
        dst: i32,
        udp_source: i32,
        qpn: i32,
        psn: i32,
        payload_bytes: i32,
        wire_bytes: i64,
    ) -> None:
        self.time_ps: i64 = 0
        self.key: i64 = 0
        self.chain: Event | None = None
        self.sent_ps: i64 = 0
        self.whence: i32 = 0
        self.wire_bytes: i16 = i16(wire_bytes)
        self.payload_bytes: i16 = i16(payload_bytes)
        # The second of two cache lines begins here.
        self.qpn: i32 = qpn
        self.psn: i32 = psn
        self.dst: i32 = dst
        self.opcode: u8 = opcode
        self.ttl: u8 = FIRST_TTL
        self.priority: u8 = priority
        self.ecn: u8 = 0
        self.src: i32 = src
        self.udp_source: i32 = udp_source
        self.cut: i32 = 0
        self.ack_request: u8 = 0
        self.syndrome: u8 = 0
        self.dscp: u8 = priority << 3
        self.corrupt: u8 = 0
        self._immediate: i32 = 0
        self._message_bytes: i32 = 0
        self.carried: bytes | Load | None = None
        untrack(self)  # last, as in `Message`

    def become(
        self,
        opcode: u8,
        priority: u8,
        src: i32,
        dst: i32,
        udp_source: i32,
        qpn: i32,
        psn: i32,
        payload_bytes: i32,
        wire_bytes: i64,
    ) -> None:
        """Be another packet, as if it were new: this one is done with, and waits nowhere."""
        self.dst = dst
        self.whence = 0
        self.wire_bytes = i16(wire_bytes)
        self.qpn = qpn
        self.psn = psn
        self.payload_bytes = i16(payload_bytes)
        self.cut = 0
        self.opcode = opcode
        self.priority = priority
        self.ecn = 0
        self.ttl = FIRST_TTL
        self.ack_request = 0
        self.syndrome = 0
        self.dscp = priority << 3
        self.corrupt = 0
        self.src = src
        self.udp_source = udp_source
        self._immediate = 0
        self._message_bytes = 0
        self.carried = None

    def arrive(
        self,
        time_ps: i64,
        key: i64,
        sent_ps: i64,
        numbers: i64,
        headers: i64,
        source: i64,
        sizes: i64,
        reth: i64,
    ) -> None:
        """Be the packet whose words these are (`numbers_word` and those behind it), without tail and payload:
        this one is done with, and waits nowhere."""
        self.time_ps = time_ps
        self.key = key
        self.sent_ps = sent_ps
        self.whence = 0
        self.wire_bytes = i16((sizes >> _WIRE_AT) & _LARGEST_16)
        self.payload_bytes = i16(sizes >> _PAYLOAD_AT)
        self.qpn = i32(numbers & LARGEST_32)
        self.psn = i32(numbers >> _HALF)
        self.dst = i32(headers & LARGEST_32)
        self.opcode = u8((headers >> _OPCODE_AT) & 0xFF)
        self.ttl = u8((headers >> _TTL_AT) & 0xFF)
        self.priority = u8((headers >> _PRIORITY_AT) & 0xFF)
        self.ecn = u8((headers >> _ECN_AT) & 0xFF)
        self.src = i32(source & LARGEST_32)
        self.udp_source = i32(source >> _HALF)
        self.cut = 0
        self.ack_request = u8(sizes & 0xFF)
        self.syndrome = u8((sizes >> _SYNDROME_AT) & 0xFF)
        self.dscp = u8((sizes >> _DSCP_AT) & 0xFF)
        self.corrupt = u8((sizes >> _CORRUPT_AT) & 0xFF)
        self._immediate = i32(signed_32(reth))
        self._message_bytes = i32(reth >> _HALF)
        self.carried = None

    def reth_word(self) -> i64:
        """A packet's immediate, and the length in RETH: 32 bits each."""
        immediate: int = self._immediate
        length: int = self._message_bytes
        return (signed_32(length) << _HALF) | (immediate & LARGEST_32)

    @property
    def immediate(self) -> i64:
        """ImmDt, or the PSN of which an acknowledgement speaks besides its own: 32 bits."""
        return i64(self._immediate) & LARGEST_32

    @immediate.setter
    def immediate(self, value: i64) -> None:
        assert value & ~LARGEST_32 == 0, value
        self._immediate = i32(value)

    @property
    def message_bytes(self) -> i64:
        """The length in RETH, on the first packet of a WRITE and the request of a READ: 32 bits."""
        return i64(self._message_bytes) & LARGEST_32

    @message_bytes.setter
    def message_bytes(self, value: i64) -> None:
        assert value & ~LARGEST_32 == 0, value
        self._message_bytes = i32(value)

    @property
    def tail(self) -> bytes | None:
        """What switches wrote into it (INT), or the blocks that an acknowledgement tells of."""
        carried = self.carried
        return carried.tail if isinstance(carried, Load) else carried

    @tail.setter
    def tail(self, tail: bytes | None) -> None:
        carried = self.carried
        if isinstance(carried, Load):
            carried.tail = tail
        else:
            self.carried = tail

    @property
    def payload(self) -> bytes | None:
        """Its bytes, where they are more than a number."""
        carried = self.carried
        return carried.payload if isinstance(carried, Load) else None

    @payload.setter
    def payload(self, payload: bytes | None) -> None:
        tail = self.tail
        self.carried = tail if payload is None else Load(tail, payload)


class Spares:
    """Frames that nobody needs any more. They become the next packets of NICs: a new frame costs more, and
    what was used last is in the cache, so that all NICs of a queue of events share them."""

    def __init__(self, most: int = int(MOST_SPARES)) -> None:
        self._first: Frame | None = None
        self.count: i64 = 0
        self._most: i64 = most

    def keep(self, frame: Frame) -> None:
        """Nobody needs this frame any more."""
        if self.count < self._most:
            frame.chain = self._first
            self._first = frame
            self.count += 1

    def take(self) -> Frame:
        """One of them, or a new one, which is to `become` a packet."""
        first = self._first
        if first is None:
            return Frame(0, 0, 0, 0, 0, 0, 0, 0, 0)
        frame: Frame = first  # what is narrowed is checked again at each use
        self._first = cast("Frame | None", frame.chain)
        frame.chain = None
        self.count -= 1
        return frame


def pathed_size(opcode: i64, payload_bytes: i64) -> i64:
    """The same of a packet of a transport with paths, by the opcode that it would have without. Every WRITE
    says where it goes (RETH)."""
    extra: i64 = PATH_HEADER_BYTES
    if opcode >= WRITE_FIRST and opcode <= WRITE_ONLY_IMM:
        extra += RETH_BYTES
    if opcode == ACKNOWLEDGE:
        extra += AETH_BYTES + PATH_ANSWER_BYTES
    elif (PATHED_IMMDT >> opcode) & 1:
        extra += IMMDT_BYTES
    return HEADER_BYTES + extra + ((payload_bytes + 3) & -4) + PREAMBLE_GAP_BYTES


def packet_word(frame: Frame) -> i64:
    """PSN, queue pair and size of a packet in 62 bits."""
    psn: int = frame.psn
    qpn: int = frame.qpn
    size: int = frame.wire_bytes
    return (psn << PSN_SHIFT) ^ (qpn << QPN_SHIFT) ^ size


def signed_32(value: i64) -> i64:
    """The lowest 32 bits, as a number with a sign: of four bytes the upper half of a word has its sign from
    them, compiled and interpreted."""
    return ((value & LARGEST_32) ^ _SIGN_32) - _SIGN_32


def numbers_word(frame: Frame) -> i64:
    """The number of a packet's queue pair and its own: from the lowest bit on qpn 32, psn 32. In a word,
    fields stand as they do in memory, which compiled code copies in one piece then."""
    qpn: int = frame.qpn
    psn: int = frame.psn
    word: i64 = psn << _HALF
    return word | (qpn & LARGEST_32)


def headers_word(frame: Frame) -> i64:
    """Where a packet goes and how: dst 32, opcode 8, ttl 8, priority 8, ecn 8."""
    dst: int = frame.dst
    opcode: int = frame.opcode
    ttl: int = frame.ttl
    priority: int = frame.priority
    ecn: int = frame.ecn
    word: i64 = (opcode << _OPCODE_AT) | (ttl << _TTL_AT) | (priority << _PRIORITY_AT) | (ecn << _ECN_AT)
    return word | (dst & LARGEST_32)


def source_word(frame: Frame) -> i64:
    """Where a packet comes from: src 32, udp_source 32."""
    src: int = frame.src
    udp_source: int = frame.udp_source
    word: i64 = udp_source << _HALF
    return word | (src & LARGEST_32)


def sizes_word(frame: Frame) -> i64:
    """A packet's ack_request 8, syndrome 8, dscp 8, corrupt 8, wire_bytes 16, payload_bytes 16."""
    asks: int = frame.ack_request
    syndrome: int = frame.syndrome
    dscp: int = frame.dscp
    corrupt: int = frame.corrupt
    wire: int = frame.wire_bytes
    payload: int = frame.payload_bytes
    word: i64 = (syndrome << _SYNDROME_AT) | (dscp << _DSCP_AT) | (corrupt << _CORRUPT_AT) | asks
    both: i64 = (payload << _QUARTER) | (wire & _LARGEST_16)
    return word | (both << _HALF)


def wire_size(opcode: i64, payload_bytes: i64) -> i64:
    """Bytes that a packet occupies on a link, preamble and gap included; `payload_bytes` before padding."""
    extra: i64 = 0
    if opcode == WRITE_FIRST or opcode == WRITE_ONLY or opcode == READ_REQUEST:
        extra = RETH_BYTES
    elif opcode == WRITE_ONLY_IMM:
        extra = RETH_BYTES + IMMDT_BYTES
    elif opcode == WRITE_LAST_IMM or opcode == SEND_LAST_IMM or opcode == SEND_ONLY_IMM:
        extra = IMMDT_BYTES
    elif opcode >= READ_RESPONSE_FIRST and opcode <= ACKNOWLEDGE and opcode != READ_RESPONSE_MIDDLE:
        extra = AETH_BYTES
    elif opcode == CNP:
        extra = 16
    size: i64 = HEADER_BYTES + extra + ((payload_bytes + 3) & -4)
    if size < LEAST_FRAME_BYTES:
        size = LEAST_FRAME_BYTES
    return size + PREAMBLE_GAP_BYTES
