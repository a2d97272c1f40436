"""What changed from sample to sample, in native integers: which rows of the columns of `samples.jsonl` grew
and by how much, which counters moved at all, and the mixes of `digests.jsonl` in decimal.

A module of its own because it is compiled: it looks at every counter and mix that changed.

What changed of devices is taken as a reading has it (`actors.kernel.readings`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from actors.kernel.readings import END
from actors.kernel.vectors import append, vec
from emu.counts.collected import Packed
from emu.counts.lines import write_number

NOT_KEPT = -1
_COMMA: Final = 44


def flat_of(changed: Mapping[int, Sequence[int]]) -> bytes:
    """What changed of devices, in their order, as a reading has it."""
    if isinstance(changed, Packed):
        return changed.flat
    flat = array("q")
    for number in sorted(changed):
        if changed[number]:
            flat.append(number)
            flat.extend(changed[number])
            flat.append(int(END))
    if sys.byteorder == "big":
        flat.byteswap()
    return flat.tobytes()


class Kept:
    """Columns of devices with one layout: by place, the column (`NOT_KEPT`: none) and which of its own rows
    there; and how many rows it has in every column."""

    def __init__(self, columns: list[int], nth: list[int], rows: list[int]) -> None:
        self.columns: vec[i64] = vec[i64](columns)
        self.nth: vec[i64] = vec[i64](nth)
        self.rows: vec[i64] = vec[i64](rows)
        self.nothing: list[int] = [0] * len(columns)


class GrownRows:
    """The rows of one column that grew since `take`."""

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
    """What grew of one device: its first row in every column, and its counters as last reported, none as long
    as all were 0."""

    def __init__(self, kept: Kept, first: vec[i64]) -> None:
        self.kept: Kept = kept
        self.first: vec[i64] = first
        self.last: vec[i64] = vec[i64]()

    def add(self, changed: bytes, at: i64, grown: vec[GrownRows]) -> i64:
        """What changed, from a place of a reading on: put rows and their growth into the columns. Returns
        where it ends."""
        columns = self.kept.columns
        nth = self.kept.nth
        first = self.first
        if len(self.last) == 0:
            self.last = vec[i64](self.kept.nothing)
        last = self.last
        place: i64 = read_i64_le(changed, at)
        while place != END:
            value: i64 = read_i64_le(changed, at + 8)
            column: i64 = columns[place]
            if column >= 0 and value != last[place]:
                grown[column].add(first[column] + nth[place], value - last[place])
                last[place] = value
            at += 16
            place = read_i64_le(changed, at)
        return at + 8


class GrownDevices:
    """All devices, in the order of their numbers, and the columns that get their rows and growth."""

    def __init__(self, devices: dict[int, Kept], columns: list[GrownRows]) -> None:
        self._columns: vec[GrownRows] = vec[GrownRows](columns)
        self._devices: vec[Grown] = vec[Grown]()
        self._places: vec[i64] = vec[i64]([-1] * (max(devices, default=-1) + 1))
        """By number, where the device is."""
        rows: vec[i64] = vec[i64]([0] * len(columns))
        for number, kept in devices.items():
            self._places[number] = len(self._devices)
            first: vec[i64] = vec[i64]()
            column: i64 = 0
            while column < len(rows):
                first = append(first, rows[column])
                rows[column] += kept.rows[column]
                column += 1
            self._devices = append(self._devices, Grown(kept, first))

    def add(self, changed: Mapping[int, Sequence[int]]) -> None:
        """What changed of devices."""
        flat = flat_of(changed)
        at: i64 = 0
        while at < len(flat):
            place: i64 = self._places[read_i64_le(flat, at)]
            assert place >= 0, read_i64_le(flat, at)
            at = self._devices[place].add(flat, at + 8, self._columns)


class Nonzero:
    """Which counters of one device were seen to be other than 0."""

    def __init__(self) -> None:
        self._seen: vec[i64] = vec[i64]()

    def add(self, changed: bytes, at: i64, found: list[int]) -> i64:
        """What changed, from a place of a reading on: find the places that were 0 so far and no longer are.
        Returns where it ends."""
        seen = self._seen
        place: i64 = read_i64_le(changed, at)
        while place != END:
            if (place >= len(seen) or seen[place] == 0) and read_i64_le(changed, at + 8) != 0:
                self._see(place)
                seen = self._seen
                found.append(int(place))
            at += 16
            place = read_i64_le(changed, at)
        return at + 8

    def _see(self, place: i64) -> None:
        seen = self._seen
        while len(seen) <= place:
            seen = append(seen, 0)
        seen[place] = 1
        self._seen = seen


class NonzeroDevices:
    """The same of all devices."""

    def __init__(self) -> None:
        self._devices: vec[Nonzero] = vec[Nonzero]()
        """By number."""

    def add(self, changed: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """What changed of devices: by device, the places that were 0 so far and no longer are."""
        found: dict[int, list[int]] = {}
        flat = flat_of(changed)
        places: list[int] = []
        at: i64 = 0
        while at < len(flat):
            number: i64 = read_i64_le(flat, at)
            while number >= len(self._devices):
                self._devices = append(self._devices, Nonzero())
            at = self._devices[number].add(flat, at + 8, places)
            if places:
                found[int(number)] = places
                places = []
        return found


def write_changes(out: BytesWriter, changed: Mapping[int, Sequence[int]]) -> None:
    """What changed of devices, as JSON has it: `{"4":[0,7],"9":[0,3]}`."""
    out.write(b"{")
    flat = flat_of(changed)
    at: i64 = 0
    while at < len(flat):
        out.write(b'"' if at == 0 else b',"')
        write_number(out, read_i64_le(flat, at))
        out.write(b'":[')
        begin: i64 = at + 8
        at = begin
        number: i64 = read_i64_le(flat, at)
        while number != END:
            if at > begin:
                out.append(_COMMA)
            write_number(out, number)
            out.append(_COMMA)
            write_number(out, read_i64_le(flat, at + 8))
            at += 16
            number = read_i64_le(flat, at)
        out.write(b"]")
        at += 8
    out.write(b"}")
