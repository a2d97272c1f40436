"""What a sample says, in native integers: which rows of the columns of `samples.jsonl` grew and by how much,
which counters moved at all, and the mixes of `digests.jsonl` in decimal.

A module of its own because it is compiled: it looks at every counter and mix that changed.

What changed of a device, place and new value in turn, is taken as bytes (`plains`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from actors.kernel.vectors import append, vec
from emu.measure.collected import Packed
from emu.measure.prometheus.lines import write_number

NOT_KEPT = -1
_COMMA: Final = 44


def plains(changed: Mapping[int, Sequence[int]]) -> dict[int, bytes]:
    """What changed of devices, in their order: of each little-endian, eight bytes a number."""
    if isinstance(changed, Packed):
        return changed.plain
    return {number: plain(changed[number]) for number in sorted(changed)}


def plain(changed: Sequence[int]) -> bytes:
    """Little-endian, eight bytes a number."""
    numbers = array("q", changed)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


class Kept:
    """Of devices with one layout: by place, the column (`NOT_KEPT`: none) and which of its own rows there."""

    def __init__(self, columns: list[int], nth: list[int]) -> None:
        self.columns: vec[i64] = vec[i64](columns)
        self.nth: vec[i64] = vec[i64](nth)


class GrownRows:
    """Of one column, the rows that grew since `take`."""

    def __init__(self) -> None:
        self._gaps: BytesWriter = BytesWriter()
        self._grown: BytesWriter = BytesWriter()
        self._last: i64 = 0

    def add(self, row: i64, grown: i64) -> None:
        """A row behind all before it grew."""
        write_i32_le(self._gaps, i32(row - self._last))
        write_i64_le(self._grown, grown)
        self._last = row

    def take(self) -> bytes:
        """The distances of rows, and then what each grew by; nothing of them is left."""
        taken = self._gaps.getvalue() + self._grown.getvalue()
        self._gaps.truncate(0)
        self._grown.truncate(0)
        self._last = 0
        return taken


class Grown:
    """Of one device: its first row in every column, and what its counters were when last heard of."""

    def __init__(self, kept: Kept, first: list[int]) -> None:
        self.kept: Kept = kept
        self.first: vec[i64] = vec[i64](first)
        self.last: vec[i64] = vec[i64]([0] * len(kept.columns))

    def add(self, changed: bytes, grown: list[GrownRows]) -> None:
        """What changed: put rows and their growth into the columns."""
        columns = self.kept.columns
        nth = self.kept.nth
        first = self.first
        last = self.last
        end: i64 = len(changed)
        at: i64 = 0
        while at < end:
            place: i64 = read_i64_le(changed, at)
            value: i64 = read_i64_le(changed, at + 8)
            column: i64 = columns[place]
            if column >= 0 and value != last[place]:
                grown[column].add(first[column] + nth[place], value - last[place])
                last[place] = value
            at += 16


def add_grown(
    devices: dict[int, Grown], changed: Mapping[int, Sequence[int]], grown: list[GrownRows]
) -> None:
    """What changed of devices: put rows and their growth into the columns."""
    for number, flat in plains(changed).items():
        devices[number].add(flat, grown)


class Nonzero:
    """Which counters of one device were seen to be other than 0."""

    def __init__(self) -> None:
        self._seen: vec[i64] = vec[i64]()

    def add(self, changed: bytes) -> list[int]:
        """What changed: the places that were 0 so far and no longer are."""
        found: list[int] = []
        end: i64 = len(changed)
        at: i64 = 0
        while at < end:
            place: i64 = read_i64_le(changed, at)
            value: i64 = read_i64_le(changed, at + 8)
            if value != 0 and self._is_new(place):
                found.append(int(place))
            at += 16
        return found

    def _is_new(self, place: i64) -> bool:
        seen = self._seen
        while len(seen) <= place:
            seen = append(seen, 0)
        self._seen = seen
        if seen[place] != 0:
            return False
        seen[place] = 1
        return True


def became_nonzero(devices: dict[int, Nonzero], changed: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """What changed of devices: by device, the places that were 0 so far and no longer are."""
    found: dict[int, list[int]] = {}
    for number, flat in plains(changed).items():
        nonzero = devices.get(number)
        if nonzero is None:
            nonzero = Nonzero()
            devices[number] = nonzero
        places = nonzero.add(flat)
        if places:
            found[number] = places
    return found


def write_changes(out: BytesWriter, changed: Mapping[int, Sequence[int]]) -> None:
    """What changed of devices, as JSON has it: `{"4":[0,7],"9":[0,3]}`."""
    out.write(b"{")
    first: bool = True
    for number, flat in plains(changed).items():
        out.write(b'"' if first else b',"')
        first = False
        write_number(out, number)
        out.write(b'":[')
        end: i64 = len(flat)
        at: i64 = 0
        while at < end:
            if at > 0:
                out.append(_COMMA)
            write_number(out, read_i64_le(flat, at))
            at += 8
        out.write(b"]")
    out.write(b"}")
