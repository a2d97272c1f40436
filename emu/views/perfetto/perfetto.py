"""Perfetto's trace format: track events as protobuf, written without a library.

A trace is a message of packets (field 1 of `Trace`). A packet here describes a track (`TrackDescriptor`), or
is an event on one (`TrackEvent`): the beginning or the end of a slice, or a value of a counter. Field numbers
are those of `protos/perfetto/trace/` of Perfetto 59, whose own decoder reads what this writes in the tests.

Slices of one track nest: `Tracks.slices` puts those that would overlap on a track of the same name beside it.
So whoever reads the file meets every end after its beginning, innermost first. Time stamps are nanoseconds,
rounded down; an argument of each slice has the exact times.

Source: Perfetto, "Writing synthetic traces" and `trace_packet.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

SEQUENCE: Final = 1
"""Sequence of all packets: they are written by one writer."""
CLEARED: Final = 1
"""Flag of the first packet: nothing is interned before."""
BEGIN: Final = 1
END: Final = 2
COUNTER: Final = 4
BYTES: Final = 3
"""Unit of a counter of bytes; others are named."""
Arguments = Mapping[str, int | str]


class Slice(NamedTuple):
    """Something that took from one time to another."""

    name: str
    begin_ps: int
    end_ps: int
    arguments: Arguments = MappingProxyType({})


def varint(number: int) -> bytes:
    """A number in sevens of bits, lowest first; a negative one is its two's complement in 64 bits."""
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def number_field(field: int, number: int) -> bytes:
    """An integer, enumerator or truth value."""
    return varint(field << 3) + varint(number)


def bytes_field(field: int, content: bytes | str) -> bytes:
    """A string, or a message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data


def double_field(field: int, number: float) -> bytes:
    """A double."""
    return varint(field << 3 | 1) + struct.pack("<d", number)


class Tracks:
    """Writes tracks and what happens on them, as pieces of a trace file.

    `stretch` is how long a picosecond of the run takes on the timeline: with 1,000 a nanosecond of Perfetto
    is a picosecond of the run, and nothing is rounded.
    """

    def __init__(self, stretch: int = 1) -> None:
        self._stretch = stretch
        self._tracks = 0

    def track(self, name: str, parent: int = 0, unit: str | None = None) -> tuple[int, bytes]:
        """A new track below another one, 0 for none: its number, and its description. With `unit` it is a
        counter.
        """
        self._tracks += 1
        number = self._tracks
        described = number_field(1, number) + bytes_field(2, name)
        if parent:
            described += number_field(5, parent)
        if unit is not None:
            kind = number_field(3, BYTES) if unit == "B" else bytes_field(6, unit)
            described += bytes_field(8, kind)
        first = number_field(13, CLEARED) if number == 1 else b""
        return number, self._packet(first + bytes_field(60, described))

    def slices(self, name: str, parent: int, slices: Iterable[Slice]) -> Iterator[bytes]:
        """Slices on a track of their own, or on as many as it takes for them to nest."""
        for lane in _lanes(slices):
            number, described = self.track(name, parent)
            yield described
            open_ps: list[int] = []
            for one in lane:
                while open_ps and open_ps[-1] <= one.begin_ps:
                    yield self._event(number, END, open_ps.pop())
                exact = {"begin_ps": one.begin_ps, "end_ps": one.end_ps, **one.arguments}
                noted = b"".join(bytes_field(4, _argument(*pair)) for pair in exact.items())
                yield self._event(number, BEGIN, one.begin_ps, bytes_field(23, one.name) + noted)
                open_ps.append(one.end_ps)
            while open_ps:
                yield self._event(number, END, open_ps.pop())

    def counter(
        self, name: str, parent: int, unit: str, values: Iterable[tuple[int, float]]
    ) -> Iterator[bytes]:
        """A counter's values, each from a time on."""
        number, described = self.track(name, parent, unit)
        yield described
        for at_ps, value in values:
            yield self._event(number, COUNTER, at_ps, double_field(44, value))

    def _event(self, track: int, kind: int, at_ps: int, more: bytes = b"") -> bytes:
        event = number_field(9, kind) + number_field(11, track) + more
        at_ns = at_ps * self._stretch // 1000
        return self._packet(number_field(8, at_ns) + bytes_field(11, event))

    @staticmethod
    def _packet(content: bytes) -> bytes:
        return bytes_field(1, content + number_field(10, SEQUENCE))


def _argument(name: str, value: int | str) -> bytes:
    content = number_field(4, value) if isinstance(value, int) else bytes_field(6, value)
    return bytes_field(10, name) + content


def _lanes(slices: Iterable[Slice]) -> Sequence[Sequence[Slice]]:
    """Slices in as few rows as it takes for those of each to nest: one lies in another, or after it."""
    lanes: list[list[Slice]] = []
    ends: list[list[int]] = []
    """By row, the ends of the slices that are open, outermost first."""
    for one in sorted(slices, key=lambda one: (one.begin_ps, -one.end_ps)):
        at = 0
        while at < len(lanes):
            open_ps = ends[at]
            while open_ps and open_ps[-1] <= one.begin_ps:
                open_ps.pop()
            if not open_ps or one.end_ps <= open_ps[-1]:
                break
            at += 1
        else:
            lanes.append([])
            ends.append([])
        lanes[at].append(one)
        ends[at].append(one.end_ps)
    return lanes
