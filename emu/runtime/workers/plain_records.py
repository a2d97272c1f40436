"""How does what a device leaves behind travel from a worker to the coordinator?

As numbers, texts and lists: records hold compiled objects, which do not travel.
"""

from __future__ import annotations

from typing import NamedTuple

from actors.kernel.device import series_of
from emu.measure.collected import DeviceRecord


class PlainRecord(NamedTuple):
    """A `DeviceRecord` whose series are tuples: metric, port, priority, reason."""

    number: int
    mixes: tuple[int, ...]
    executed: int
    frames_received: int
    data_frames_received: int
    series: tuple[tuple[str, int, int, str], ...]
    counters: tuple[int, ...]
    end_states: tuple[int, ...]
    results: dict[str, list[list[int]]]
    shown: dict[str, list[list[int]]]


def to_plain(record: DeviceRecord) -> PlainRecord:
    """A record as it travels."""
    return PlainRecord(
        record.number,
        tuple(record.mixes),
        record.executed,
        record.frames_received,
        record.data_frames_received,
        tuple((one.metric, one.port, one.priority, one.reason) for one in record.series),
        tuple(record.counters),
        tuple(record.end_states),
        {name: [list(row) for row in rows] for name, rows in record.results.items()},
        {name: [list(row) for row in rows] for name, rows in record.shown.items()},
    )


def from_plain(plain: PlainRecord) -> DeviceRecord:
    """The record that travelled."""
    return DeviceRecord(
        number=plain.number,
        mixes=plain.mixes,
        executed=plain.executed,
        frames_received=plain.frames_received,
        data_frames_received=plain.data_frames_received,
        series=tuple(series_of(*one) for one in plain.series),
        counters=plain.counters,
        end_states=plain.end_states,
        results=plain.results,
        shown=plain.shown,
    )
