"""Columns: the packets of a window as they leave for another worker, field by field.

A packet that leaves is written into columns at once, as its port sends it: its first cache line has just been
written, and the frame itself is free for a packet that comes (`Spares`). No list of frames waits to be read
again at the end of the window. A column is a run of signed 64-bit little-endian integers, of which each is a
frame's; of frames there are eight (fields with their bits, lowest first):

    time_ps     when it arrives
    key         device, kind and port of its arrival (`actors.kernel.event`)
    sent_ps     when its first bit left
    numbers     qpn 32, psn 32
    headers     dst 32, opcode 8, ttl 8, priority 8, ecn 8
    source      src 32, udp_source 32
    sizes       ack_request 8, syndrome 8, dscp 8, corrupt 8, wire_bytes 16, payload_bytes 16
    reth        immediate 32, length of the message 32

The same eight words, one behind the other, are a frame where it waits for the turn of its block (`Rows`) and
in a snapshot. How columns travel is in `actors.wire.codec`, what is checked as they come in
`actors.wire.batch`.
"""

from __future__ import annotations

import struct
from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from actors.kernel.event import NEVER_PS
from actors.kernel.vectors import append, vec
from actors.wire.frame import Frame, Spares, headers_word, numbers_word, sizes_word, source_word

FRAME_COLUMNS: Final = ("time_ps", "key", "sent_ps", "numbers", "headers", "source", "sizes", "reth")
WORDS: Final[i64] = 8
"""Of a frame: one for each of its columns."""
_FIRST_ROOM: Final = 64


class FrameColumns:
    """The frames of a window that leave for another worker, a column for each of their words."""

    def __init__(self) -> None:
        self.count: i64 = 0
        """How many there are."""
        self.spares: Spares = Spares()
        """Where used frames go."""
        self._room: i64 = 0
        """How many each column has room for: it keeps that from window to window."""
        self._words: vec[i64] = vec[i64]()
        """One column behind the other."""
        self.carrying: list[tuple[int, bytes | None, bytes | None]] = []
        """Place, tail and payload of those few that carry any."""

    def add(self, frame: Frame) -> None:
        """A frame leaves whose time and key are those of its arrival: nobody has it any more."""
        at: i64 = self.count
        room: i64 = self._room
        if at == room:
            room = self._grow()
        words = self._words
        words[at] = frame.time_ps
        words[at + room] = frame.key
        words[at + 2 * room] = frame.sent_ps
        words[at + 3 * room] = numbers_word(frame)
        words[at + 4 * room] = headers_word(frame)
        words[at + 5 * room] = source_word(frame)
        words[at + 6 * room] = sizes_word(frame)
        words[at + 7 * room] = frame.reth_word()
        if frame.carried is not None:
            self.carrying.append((int(at), frame.tail, frame.payload))
        self.count = at + 1
        self.spares.keep(frame)

    def columns(self) -> list[bytes]:
        """The columns, in the order of `FRAME_COLUMNS`."""
        columns: list[bytes] = []
        at: i64 = 0
        while at < WORDS:
            columns.append(packed(self._words, at * self._room, self.count))
            at += 1
        return columns

    def forget(self) -> None:
        """Begin the next window."""
        self.count = 0
        self.carrying = []

    def _grow(self) -> i64:
        """Have room for more, which is returned."""
        room: i64 = max(2 * int(self._room), _FIRST_ROOM)
        words = _longer(vec[i64](), WORDS * room)
        column: i64 = 0
        while column < WORDS:
            at: i64 = 0
            while at < self.count:
                words[column * room + at] = self._words[column * self._room + at]
                at += 1
            column += 1
        self._words = words
        self._room = room
        return room


class Rows:
    """Frames that other workers sent, word by word: each is made of a used one as the turn of its block
    begins, while what it touches comes into the cache."""

    def __init__(self) -> None:
        self.words: vec[i64] = vec[i64]()
        self.used: i64 = 0
        """How many of the words are."""
        self.least_ps: i64 = NEVER_PS
        """The earliest arrival among them; NEVER_PS if there is none."""

    def add(
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
        """One frame more."""
        at: i64 = self.used
        if at + WORDS > len(self.words):
            self.words = _longer(self.words, max(2 * len(self.words), int(WORDS) * _FIRST_ROOM))
        words = self.words
        words[at] = time_ps
        words[at + 1] = key
        words[at + 2] = sent_ps
        words[at + 3] = numbers
        words[at + 4] = headers
        words[at + 5] = source
        words[at + 6] = sizes
        words[at + 7] = reth
        self.used = at + WORDS
        if time_ps < self.least_ps:
            self.least_ps = time_ps

    def forget(self) -> None:
        """They have been made."""
        self.used = 0
        self.least_ps = NEVER_PS

    def frame(self, at: i64, spares: Spares) -> Frame:
        """The frame whose words begin there, made of one of these."""
        words = self.words
        frame = spares.take()
        frame.arrive(
            words[at],
            words[at + 1],
            words[at + 2],
            words[at + 3],
            words[at + 4],
            words[at + 5],
            words[at + 6],
            words[at + 7],
        )
        return frame


def write_frame(writer: BytesWriter, frame: Frame) -> None:
    """Write a frame's words: all that there is of it but tail and payload."""
    write_i64_le(writer, frame.time_ps)
    write_i64_le(writer, frame.key)
    write_i64_le(writer, frame.sent_ps)
    write_i64_le(writer, numbers_word(frame))
    write_i64_le(writer, headers_word(frame))
    write_i64_le(writer, source_word(frame))
    write_i64_le(writer, sizes_word(frame))
    write_i64_le(writer, frame.reth_word())


def read_frame(frame: Frame, words: bytes, at: i64) -> None:
    """Let a frame be the one whose words stand at that byte; nothing is checked."""
    frame.arrive(
        read_i64_le(words, at),
        read_i64_le(words, at + 8),
        read_i64_le(words, at + 16),
        read_i64_le(words, at + 24),
        read_i64_le(words, at + 32),
        read_i64_le(words, at + 40),
        read_i64_le(words, at + 48),
        read_i64_le(words, at + 56),
    )


def packed(table: vec[i64], begin: i64, count: i64) -> bytes:
    """So many integers of a table as little-endian bytes. Compiled, the build copies them in one piece where
    the processor has them in that order (`actors.compiled.build`)."""
    return struct.pack(f"<{count}q", *table[begin : begin + count])


def _longer(table: vec[i64], room: i64) -> vec[i64]:
    """A table with places more."""
    while len(table) < room:
        table = append(table, 0)
    return table
