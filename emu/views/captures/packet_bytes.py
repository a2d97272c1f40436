"""The bytes of a captured frame, as a dissector reads them: Ethernet, IPv4, UDP 4791, BTH and on to the ICRC.

A frame of the model has the fields that its mechanisms need. The others have fixed values: P_Key 0xffff,
UDP checksum 0, IPv4 identification 0 and don't-fragment, virtual address and R_Key of RETH 0, MSN of AETH 0
(with selective repeat, what the responder holds). Payload is zeros where packets carry no more than their
size. MAC addresses are 02, the device's number in three bytes, the port's in two. Telemetry (INT) and the
padding of a least frame follow the ICRC, so the length is that on the wire without preamble and FCS.

A packet that is cut has the payload that fits, lengths of IP and UDP and an ICRC to match; its record alone
has the length on the wire. tshark calls a RoCE packet malformed whose payload is not there whole.

Packets of a transport with paths have opcodes from 0xC0 on, and behind BTH the headers of
`actors.optional.multipath`, in which the time of sending is 0.

The ICRC is the CRC-32 over the packet from the IP header on, after eight bytes of ones, with the fields that
switches change as ones: type of service, TTL, checksums, and the byte of BTH that has FECN and BECN.

A PFC frame is a MAC control frame (opcode 0x0101). A credit update is a flow control packet behind Ethertype
0x88B5 (local experimental), since links of InfiniBand have no Ethernet header.

Source: InfiniBand Architecture Specification volume 1, chapter 9 and section 7.9.4, annex A17 (RoCEv2),
section A17.3.3 (ICRC); IEEE 802.1Qbb (PFC); RFC 1071.
"""

import struct
import zlib
from typing import Final, NamedTuple

from actors.port.tap import ASKS, CREDIT_KIND, LOADED, PFC_KIND, ROW
from actors.wire.frame import (
    ACKNOWLEDGE,
    CNP,
    PATHED,
    PREAMBLE_GAP_BYTES,
    READ_REQUEST,
    READ_RESPONSE_FIRST,
    READ_RESPONSE_LAST,
    READ_RESPONSE_ONLY,
    SEND_LAST_IMM,
    SEND_ONLY_IMM,
    UDP_PORT,
    WRITE_FIRST,
    WRITE_LAST_IMM,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
)

FCS_BYTES: Final = 4
_ZEROS: Final = bytes(65536)
_ONES: Final = b"\xff"
_RETH: Final = frozenset(map(int, (WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMM, READ_REQUEST)))
_IMMDT: Final = frozenset(map(int, (WRITE_LAST_IMM, WRITE_ONLY_IMM, SEND_LAST_IMM, SEND_ONLY_IMM)))
_AETH: Final = frozenset(map(int, (READ_RESPONSE_FIRST, READ_RESPONSE_LAST, READ_RESPONSE_ONLY, ACKNOWLEDGE)))
_CNP_BYTES: Final = 16
_VECTOR_BYTES: Final = 32
_BECN: Final = 0x40000000
_ACK_REQUEST: Final = 0x80000000
_MIGRATED: Final = 0x40
_NET: Final = 10 << 24
_DONT_FRAGMENT: Final = 0x4000
_UDP: Final = 17
_IPV4: Final = struct.Struct(">BBHHHBBHII")
_UDP_BTH: Final = struct.Struct(">HHHHBBHII")
_WORDS: Final = struct.Struct(">10H")
_PFC_ADDRESS: Final = bytes.fromhex("0180c2000001")
_PFC_HEAD: Final = struct.Struct(">HHH8H")
_LEAST_BYTES: Final = 60
_EXPERIMENTAL: Final = 0x88B5


class Row(NamedTuple):
    """A row of `actors.port.tap`, in words: `FIELDS`."""

    time_ps: int
    event: int
    reason: int
    ttl: int
    priority: int
    kind: int
    flags: int
    opcode: int
    dscp: int
    ecn: int
    syndrome: int
    udp_source: int
    src: int
    dst: int
    qpn: int
    psn: int
    payload_bytes: int
    wire_bytes: int
    message_bytes: int
    immediate: int


def mac(device: int, port: int) -> bytes:
    """The locally administered address of a port."""
    return b"\x02" + device.to_bytes(3, "big") + port.to_bytes(2, "big")


def packet(row: Row, data: bytes, source: bytes, target: bytes, snap_bytes: int) -> tuple[bytes, int]:
    """The first `snap_bytes` of a frame from one MAC address to another, and its length. `data` is its real
    payload."""
    if row.kind == PFC_KIND:
        whole = _pause(row, source)
    elif row.kind == CREDIT_KIND:
        whole = _credits(row, source, target)
    else:
        return _rocev2(row, data, source, target, snap_bytes)
    return whole[:snap_bytes], len(whole)


def _rocev2(row: Row, data: bytes, source: bytes, target: bytes, snap_bytes: int) -> tuple[bytes, int]:
    opcode = row.opcode
    extended = b""
    if opcode >= PATHED:
        extended = _pathed(row, data)
    elif opcode in _RETH:
        extended = struct.pack(">QII", 0, 0, row.message_bytes or row.payload_bytes)
    elif opcode in _AETH:
        extended = struct.pack(">I", (row.syndrome << 24) | (row.immediate & 0xFFFFFF))
    elif opcode == CNP:
        extended = _ZEROS[:_CNP_BYTES]
    if opcode in _IMMDT:
        extended += struct.pack(">I", row.immediate)
    room_bytes = snap_bytes - (14 + 20 + 8 + 12 + len(extended) + 4)
    payload_bytes = min(row.payload_bytes, max(room_bytes & ~3, 0))
    pad = -payload_bytes % 4
    udp_bytes = 8 + 12 + len(extended) + payload_bytes + pad + 4
    first = (0x45, (row.dscp << 2) | row.ecn, 20 + udp_bytes, 0, _DONT_FRAGMENT, row.ttl, _UDP)
    addresses = (_NET | row.src, _NET | row.dst)
    ip = _IPV4.pack(*first, _checksum(_IPV4.pack(*first, 0, *addresses)), *addresses)
    headers = _UDP_BTH.pack(
        row.udp_source,
        int(UDP_PORT),
        udp_bytes,
        0,
        opcode,
        _MIGRATED | (pad << 4),
        0xFFFF,
        (_BECN if opcode == CNP else 0) | row.qpn,
        (_ACK_REQUEST if row.flags & ASKS else 0) | row.psn,
    )
    length = max(row.wire_bytes - int(PREAMBLE_GAP_BYTES) - FCS_BYTES, 14 + 20 + udp_bytes)
    head = target + source + b"\x08\x00" + ip + headers + extended
    body = data[:payload_bytes] if row.flags & LOADED else _ZEROS[:payload_bytes]
    # The ICRC covers the packet with ones in place of what changes on its way (IBTA annex A17): ToS, TTL,
    # both checksums, the BTH's reserved byte with FECN and BECN; and 8 bytes of ones in front.
    masked = b"".join(
        (
            _ONES * 8,
            ip[:1],
            _ONES,
            ip[2:8],
            _ONES,
            ip[9:10],
            _ONES * 2,
            ip[12:],
            headers[:6],
            _ONES * 2,
            headers[8:12],
            _ONES,
            headers[13:],
            extended,
            body,
            _ZEROS[:pad],
        )
    )
    whole = b"".join((head, body, _ZEROS[:pad], struct.pack("<I", zlib.crc32(masked))))
    return (whole + _ZEROS[: length - len(whole)])[:snap_bytes], length


def _pathed(row: Row, data: bytes) -> bytes:
    """The headers behind BTH of a transport with paths."""
    own = row.opcode & ~int(PATHED)
    path = struct.pack(">II", row.message_bytes, 0)
    if own == ACKNOWLEDGE:
        aeth = struct.pack(">I", row.syndrome << 24)
        return aeth + path + data.ljust(_VECTOR_BYTES, b"\0") + struct.pack(">I", row.immediate)
    if WRITE_FIRST <= own <= WRITE_ONLY_IMM:
        path += struct.pack(">QII", 0, 0, row.payload_bytes)
    return path + (struct.pack(">I", row.immediate) if own in _IMMDT else b"")


def _checksum(header: bytes) -> int:
    total: int = sum(_WORDS.unpack(header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def _pause(row: Row, source: bytes) -> bytes:
    stops, resumes = row.src, row.dst
    quanta = [row.message_bytes if stops >> priority & 1 else 0 for priority in range(8)]
    whole = _PFC_ADDRESS + source + _PFC_HEAD.pack(0x8808, 0x0101, (stops | resumes) & 0xFF, *quanta)
    return whole.ljust(_LEAST_BYTES, b"\0")


def _credits(row: Row, source: bytes, target: bytes) -> bytes:
    lane, limit = row.src, row.dst
    return target + source + struct.pack(">HHHH", _EXPERIMENTAL, 0, (lane << 12) | (limit & 0xFFF), 0)


def unpacked(row: bytes) -> tuple[Row, bytes]:
    """A row, and its payload."""
    return Row(*ROW.unpack_from(row)), row[ROW.size :]
