"""Captures as pcapng files, one for each entry of `run.capture`: what Wireshark opens.

A file has one section and an interface for each port, in the order of the fabric's numbers: name
DEVICE:PORT, description with the peer, MAC address, rate, time stamps in picoseconds. Packets follow by time,
at one instant by interface. Each has its direction; one that was dropped has a comment with the reason. A
statistics block for each interface, at the end, counts packets and those beyond `most_packets`.

Time is virtual and begins with the run. Equal runs have equal files, whatever the number of workers.

Source: draft-ietf-opsawg-pcapng (section header 0x0A0D0D0A, interfaces 1, packets 6, statistics 5).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import emu
from actors.fabric.model import Topology
from actors.port.tap import DROPPED, REASONS, SENT, SPOILT
from emu.counts.collected import CapturedRows, DeviceRecord
from emu.scenario.schema import Scenario
from emu.scenario.sections.capture import CapturedPort, CaptureSection, ports_named
from emu.views.captures.packet_bytes import mac, packet, unpacked

_SECTION, _INTERFACE, _STATISTICS, _PACKET = 0x0A0D0D0A, 1, 5, 6
_ORDER: Final = 0x1A2B3C4D
_UNKNOWN_LENGTH: Final = -1
_ETHERNET: Final = 1
_COMMENT, _END = 1, 0
_APPLICATION: Final = 4
_NAME, _DESCRIPTION, _MAC, _SPEED, _RESOLUTION, _FCS = 2, 3, 6, 8, 9, 13
_PICOSECONDS: Final = 12
_FLAGS: Final = 2
_INBOUND, _OUTBOUND = 1, 2
_CRC_ERROR: Final = 1 << 24
_RECEIVED, _UNSEEN = 4, 5
_HEAD: Final = struct.Struct("<IIIII")
_CHUNK: Final = 4096


def capture_files(
    scenario: Scenario, topology: Topology, records: Sequence[DeviceRecord], written: Collection[int] = ()
) -> dict[int, Iterator[bytes]]:
    """The files of all captures but those that are written, by number."""
    found: dict[int, dict[tuple[int, int], CapturedRows]] = {}
    for record in records:
        for one in record.captured:
            found.setdefault(one.capture, {})[(record.number, one.port)] = one
    return {
        number: pcapng(scenario, topology, number, found.get(number, {}))
        for number in range(len(scenario.run.capture))
        if number not in written
    }


def pcapng(
    scenario: Scenario, topology: Topology, number: int, captured: Mapping[tuple[int, int], CapturedRows]
) -> Iterator[bytes]:
    """One capture's file, in pieces; `captured` has what each port (node, number) kept."""
    section = scenario.run.capture[number]
    ports = list(ports_named(topology, section.ports))
    about = f"{scenario.name}, seed {scenario.seed}, run.capture[{number}]"
    body = struct.pack("<IHHq", _ORDER, 1, 0, _UNKNOWN_LENGTH)
    yield _block(
        _SECTION,
        body + _options((_COMMENT, about.encode()), (_APPLICATION, b"emu " + emu.__version__.encode())),
    )
    for spot in ports:
        yield _interface(topology, spot, section)
    order: list[tuple[int, int, bytes]] = []
    for interface, spot in enumerate(ports):
        kept = captured.get((spot.node, spot.port))
        rows = () if kept is None else kept.rows
        order.extend((int.from_bytes(row[:8], "little"), interface, row) for row in rows)
    order.sort(key=lambda one: one[:2])
    addresses = [(mac(spot.node, spot.port), mac(spot.peer, spot.peer_port)) for spot in ports]
    for first in range(0, len(order), _CHUNK):
        yield b"".join(
            _packet(interface, row, *addresses[interface], section.snap_length_bytes)
            for _, interface, row in order[first : first + _CHUNK]
        )
    last_ps = order[-1][0] if order else section.at_ps
    for interface, spot in enumerate(ports):
        kept = captured.get((spot.node, spot.port))
        missed = 0 if kept is None else kept.missed
        seen = missed + (0 if kept is None else len(kept.rows))
        body = struct.pack("<III", interface, last_ps >> 32, last_ps & 0xFFFFFFFF)
        counts = ((_RECEIVED, struct.pack("<Q", seen)), (_UNSEEN, struct.pack("<Q", missed)))
        yield _block(_STATISTICS, body + _options(*counts))


def _interface(topology: Topology, spot: CapturedPort, section: CaptureSection) -> bytes:
    nodes = topology.nodes
    rate_bps = topology.ports(spot.node)[spot.port].rate_bps
    body = struct.pack("<HHI", _ETHERNET, 0, section.snap_length_bytes)
    return _block(
        _INTERFACE,
        body
        + _options(
            (_NAME, f"{nodes[spot.node].name}:{spot.port}".encode()),
            (_DESCRIPTION, f"to {nodes[spot.peer].name}:{spot.peer_port}".encode()),
            (_MAC, mac(spot.node, spot.port)),
            (_SPEED, struct.pack("<Q", rate_bps)),
            (_RESOLUTION, bytes([_PICOSECONDS])),
            (_FCS, bytes([0])),
        ),
    )


def _packet(interface: int, row: bytes, own: bytes, peer: bytes, snap_bytes: int) -> bytes:
    fields, data = unpacked(row)
    sent = fields.event & SENT
    source, target = (own, peer) if sent else (peer, own)
    kept, length = packet(fields, data, source, target, snap_bytes)
    flags = (_OUTBOUND if sent else _INBOUND) | (_CRC_ERROR if fields.flags & SPOILT else 0)
    options = [(_FLAGS, struct.pack("<I", flags))]
    if fields.event & DROPPED:
        options.append((_COMMENT, f"dropped: {REASONS[fields.reason]}".encode()))
    head = _HEAD.pack(interface, fields.time_ps >> 32, fields.time_ps & 0xFFFFFFFF, len(kept), length)
    return _block(_PACKET, head + _padded(kept) + _options(*options))


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", 12 + len(body))
    return b"".join((struct.pack("<I", kind), length, body, length))


def _options(*options: tuple[int, bytes]) -> bytes:
    found = [struct.pack("<HH", code, len(value)) + _padded(value) for code, value in options]
    return b"".join((*found, struct.pack("<HH", _END, 0)))


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)
