"""What the devices of a worker leave behind, as it travels to the coordinator: columns, not records.

A record holds compiled objects, which do not travel, and thousands of devices have the same counters, the
same rows or none. So each list of counters, each table of rows travels once for all that share it, as numbers
of eight bytes behind one another. Devices that shared an object do so afterwards, too: the digest and the
summary look at it once (`emu.counts.digest`, `emu.counts.counts`).

A worker's devices are in the order of their numbers, so the coordinator merges what comes from all of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from heapq import merge
from typing import NamedTuple, TypeVar

from actors.kernel.device import Series, series_of
from emu.counts.collected import CapturedRows, DeviceRecord, Rows
from emu.engine.sync.logical_process import number_of

One = TypeVar("One")
Place = tuple[str, int, int, str]
"""A counter: metric, port, priority, reason."""


class Numbers(NamedTuple):
    """Lists of integers: which of them each device has, how long they are, and what is in them."""

    of_device: bytes
    lengths: bytes
    values: bytes


class Tables(NamedTuple):
    """Rows of integers under the names of their tables: which of them each device has; of each of them, which
    names; of each of its tables in turn, how many rows; of each row, how long it is; and what is in it."""

    of_device: bytes
    names: tuple[tuple[str, ...], ...]
    named: bytes
    rows: bytes
    lengths: bytes
    values: bytes


class RecordColumns(NamedTuple):
    """Records of devices, in the order of their numbers."""

    number: bytes
    executed: bytes
    frames_received: bytes
    data_frames_received: bytes
    idle: bytes
    series: tuple[tuple[Place, ...], ...]
    series_of_device: bytes
    mixes: Numbers
    counters: Numbers
    end_states: Numbers
    results: Tables
    shown: Tables
    recorded: Tables
    captured: tuple[tuple[int, int, int, int, tuple[bytes, ...]], ...]
    """The place of the device among them, capture, port, how many were missed, and rows."""


def to_columns(records: Sequence[DeviceRecord]) -> RecordColumns:
    """Records as they travel."""
    series, series_of_device = _distinct([one.series for one in records])
    return RecordColumns(
        _packed(one.number for one in records),
        _packed(one.executed for one in records),
        _packed(one.frames_received for one in records),
        _packed(one.data_frames_received for one in records),
        bytes(one.idle for one in records),
        tuple(tuple([each.place for each in one]) for one in series),
        series_of_device,
        _numbers([one.mixes for one in records]),
        _numbers([one.counters for one in records]),
        _numbers([one.end_states for one in records]),
        _tables([one.results for one in records]),
        _tables([one.shown for one in records]),
        _tables([one.recorded for one in records]),
        tuple(
            (place, each.capture, each.port, each.missed, tuple(each.rows))
            for place, one in enumerate(records)
            for each in one.captured
        ),
    )


def from_columns(columns: RecordColumns) -> list[DeviceRecord]:
    """The records that travelled."""
    known: list[Sequence[Series]] = [tuple([series_of(*each) for each in one]) for one in columns.series]
    captured: dict[int, list[CapturedRows]] = {}
    for place, capture, port, missed, rows in columns.captured:
        captured.setdefault(place, []).append(CapturedRows(capture, port, missed, rows))
    fields = zip(
        _unpacked(columns.number),
        _lists(columns.mixes),
        _unpacked(columns.executed),
        _unpacked(columns.frames_received),
        _unpacked(columns.data_frames_received),
        [known[place] for place in _unpacked(columns.series_of_device)],
        _lists(columns.counters),
        _lists(columns.end_states),
        _rows(columns.results),
        _rows(columns.shown),
        (tuple(captured.get(place, ())) for place in range(len(columns.idle))),
        _rows(columns.recorded),
        map(bool, columns.idle),
        strict=True,
    )
    return [DeviceRecord(*one) for one in fields]


def merged(shares: Iterable[RecordColumns]) -> list[DeviceRecord]:
    """The records of all workers, in the order of the devices."""
    return list(merge(*map(from_columns, shares), key=number_of))


def _distinct(objects: Sequence[One]) -> tuple[list[One], bytes]:
    """Those of them that are not the same, and which each is."""
    places: dict[int, int] = {}
    found: list[One] = []
    of_each = array("q")
    for one in objects:
        place = places.setdefault(id(one), len(found))
        if place == len(found):
            found.append(one)
        of_each.append(place)
    return found, of_each.tobytes()


def _numbers(lists: Sequence[Sequence[int]]) -> Numbers:
    found, of_device = _distinct(lists)
    values = array("q")
    for one in found:
        values.extend(one)
    return Numbers(of_device, _packed(map(len, found)), values.tobytes())


def _lists(columns: Numbers) -> list[tuple[int, ...]]:
    values = _unpacked(columns.values)
    found, at = [], 0
    for length in _unpacked(columns.lengths):
        found.append(tuple(values[at : at + length]))
        at += length
    return [found[place] for place in _unpacked(columns.of_device)]


def _tables(tables: Sequence[Rows]) -> Tables:
    found, of_device = _distinct(tables)
    rows, lengths, values = array("q"), array("q"), array("q")
    for one in found:
        for table in one.values():
            rows.append(len(table))
            for row in table:
                lengths.append(len(row))
                values.extend(row)
    places: dict[tuple[str, ...], int] = {}
    named = _packed(places.setdefault(tuple(one), len(places)) for one in found)
    return Tables(of_device, tuple(places), named, rows.tobytes(), lengths.tobytes(), values.tobytes())


def _rows(columns: Tables) -> list[Rows]:
    values = _unpacked(columns.values)
    counts, lengths = iter(_unpacked(columns.rows)), iter(_unpacked(columns.lengths))
    found: list[Rows] = []
    at = 0
    for place in _unpacked(columns.named):
        tables: dict[str, list[list[int]]] = {}
        for name in columns.names[place]:
            table = tables[name] = []
            for _ in range(next(counts)):
                end = at + next(lengths)
                table.append(values[at:end])
                at = end
        found.append(tables)
    return [found[place] for place in _unpacked(columns.of_device)]


def _packed(numbers: Iterable[int]) -> bytes:
    return array("q", numbers).tobytes()


def _unpacked(column: bytes) -> list[int]:
    numbers = array("q")
    numbers.frombytes(column)
    return numbers.tolist()
