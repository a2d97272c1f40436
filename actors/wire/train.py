"""Trains: packets of one queue pair that follow one another at one distance, as one event a hop.

A train is the frame of its first packet, with how many there are and how far apart they arrive. The packets
are alike but for their PSNs, which are consecutive. A device that lets a train pass handles all its packets
as the first arrives; one that does not takes them one by one (`Device.unroll`). Nothing else tells the two
apart: what a device counts, mixes and sends on is what it would be packet by packet, to the bit.

A train is no longer than a link: its last packet has left a device before the first arrives at the next one.
So a device never has to take back what one further on has done, only what it did itself
(`actors.port.passage`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i16, i32, i64

from actors.kernel.mixing import DIGEST_MULTIPLIER, ECN_SHIFT, MASK62, TAG_SHIFT
from actors.wire.frame import PSN_MASK, PSN_SHIFT, QPN_SHIFT, Frame

ALONE: Final[i64] = -0x40000000
"""In `whence` of a train behind which its sender has deferred nothing; else what frames have, negated."""
FEWEST: Final[i64] = 3
"""A train of fewer packets costs more than they do."""
_FIRST_SKIP: Final[i16] = 8


class Coupling:
    """When a port tries to make trains: seldom where they were taken apart. It changes no answer."""

    def __init__(self) -> None:
        self.skip: i16 = 0
        """Packets that go alone before the next try."""
        self.most_skip: i16 = 4096
        """It is never more than that."""
        self._next_skip: i16 = _FIRST_SKIP

    def failed(self) -> None:
        """A train was taken apart: more packets go alone than after the one before."""
        self.skip = min(self._next_skip, self.most_skip)
        if self._next_skip < self.most_skip:
            self._next_skip <<= 1

    def succeeded(self) -> None:
        """A train came to its end whole."""
        self._next_skip = _FIRST_SKIP


class Train(Frame):
    """`count` packets, each `gap_ps` behind the one before. Its fields as a frame are those of the first."""

    __slots__ = ("count", "coupling", "gap_ps")

    def __init__(self, first: Frame, count: i64, gap_ps: i64, coupling: Coupling) -> None:
        super().__init__(
            first.opcode,
            first.priority,
            first.src,
            first.dst,
            first.udp_source,
            first.qpn,
            first.psn,
            i32(first.payload_bytes),
            i64(first.wire_bytes),
        )
        self.count: i64 = count
        self.gap_ps: i64 = gap_ps
        self.coupling: Coupling = coupling
        self.time_ps = first.time_ps
        self.key = first.key
        self.sent_ps = first.sent_ps
        self.ecn = first.ecn
        self.ttl = first.ttl
        self.dscp = first.dscp
        self.ack_request = first.ack_request
        self.syndrome = first.syndrome

    def packet(self, number: i64) -> Frame:
        """One of its packets, from 0 on, as a frame of its own."""
        psn: i64 = i64(self.psn) + number
        frame = Frame(
            self.opcode,
            self.priority,
            self.src,
            self.dst,
            self.udp_source,
            self.qpn,
            i32(psn & PSN_MASK),
            i32(self.payload_bytes),
            i64(self.wire_bytes),
        )
        frame.time_ps = self.time_ps + number * self.gap_ps
        frame.key = self.key
        frame.sent_ps = self.sent_ps + number * self.gap_ps
        frame.ecn = self.ecn
        frame.ttl = self.ttl
        frame.dscp = self.dscp
        frame.ack_request = self.ack_request
        frame.syndrome = self.syndrome
        return frame

    def rest(self, number: i64) -> Train:
        """Its packets from a number on."""
        return Train(self.packet(number), self.count - number, self.gap_ps, self.coupling)

    def packets(self) -> list[Frame]:
        """All of them."""
        return [self.packet(number) for number in range(self.count)]

    def mixed(self, digest: i64, first_ps: i64, count: i64) -> i64:
        """The mix of a port at which so many of its packets have arrived, from a time on."""
        opcode: int = self.opcode
        ecn: int = self.ecn
        first: int = self.psn
        qpn: int = self.qpn
        size: int = self.wire_bytes
        tag: i64 = (opcode << TAG_SHIFT) ^ (ecn << ECN_SHIFT)
        word: i64 = (qpn << QPN_SHIFT) ^ size
        psn: i64 = first
        at_ps: i64 = first_ps
        gap_ps: i64 = self.gap_ps
        left: i64 = count
        h: i64 = digest
        while left > 0:
            h = ((h ^ at_ps ^ tag) * DIGEST_MULTIPLIER) & MASK62
            h = ((h ^ (h >> 29) ^ (psn << PSN_SHIFT) ^ word) * DIGEST_MULTIPLIER) & MASK62
            h ^= h >> 29
            at_ps += gap_ps
            psn = (psn + 1) & PSN_MASK
            left -= 1
        return h
