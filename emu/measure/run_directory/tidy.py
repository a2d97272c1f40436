"""Samples of a run as rows: one time, one counter, one value.

What pandas, polars and spreadsheets take: columns `virtual_ps`, `device`, `port`, `priority`, `reason`,
`series` and `value`, names and units as in `ports.csv`; a column that does not apply is empty. A counter that
stayed 0 is left out. Counters only grow, so a rate is the difference of two rows over that of their times.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from actors.kernel.device import Series
from emu.errors import UsageError
from emu.measure.run_directory.samples import SampleReader, read_digests
from emu.spelling import did_you_mean, listed

COLUMNS: Final = ("virtual_ps", "device", "port", "priority", "reason", "series", "value")
Row = tuple[int, str, int | str, int | str, str, str, int]


def tidy_rows(
    reader: SampleReader,
    names: Mapping[int, str],
    series: Sequence[str] = (),
    devices: Sequence[str] = (),
    every_ps: int = 0,
) -> Iterator[Row]:
    """Rows by time, then device. `series` and `devices` are patterns; none means all.

    `every_ps`: the first sample at or after each multiple of it, 0 for every sample. Raises UsageError for a
    pattern that fits nothing.
    """
    counted = {one.metric for of_device in reader.series.values() for one in of_device}
    _check("--series", series, counted)
    _check("--device", devices, set(names.values()))
    wanted = [
        (number, name, place, one)
        for number, name in sorted(names.items())
        if _fits(name, devices)
        for place, one in enumerate(reader.series.get(number, ()))
        if _fits(one.metric, series)
    ]
    used = _used(reader)
    return _rows(reader, [row for row in wanted if (row[0], row[2]) in used], every_ps)


def recorded(run: Path) -> tuple[dict[int, str], SampleReader]:
    """Names of the devices by number, and the samples. Raises UsageError for what is no run."""
    samples_file, digests_file = run / "samples.jsonl", run / "digests.jsonl"
    for file in (samples_file, digests_file):
        if not file.is_file():
            raise UsageError(f"{file}: not found; accepted: the directory of a run that `emu run` wrote")
    return dict(read_digests(digests_file).devices), SampleReader(samples_file)


def data_frame(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Any:
    """A pandas DataFrame, or polars' where pandas is not installed. Raises UsageError where neither is."""
    kept = list(rows)
    columns = {name: [row[at] for row in kept] for at, name in enumerate(header)}
    for name in ("pandas", "polars"):
        try:
            library = import_module(name)
        except ModuleNotFoundError:
            continue
        return library.DataFrame(columns)
    raise UsageError("a frame needs pandas or polars, and neither is installed; `pip install pandas`")


def csv_frame(text: str) -> Any:
    """The same of a table of the run directory; numbers are numbers, and empty cells None."""
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    return data_frame(header, [[_number(cell) for cell in row] for row in rows])


def _number(cell: str) -> int | float | str | None:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell or None


def _rows(
    reader: SampleReader, wanted: Sequence[tuple[int, str, int, Series]], every_ps: int
) -> Iterator[Row]:
    due_ps = 0
    for sample in reader:
        if sample.virtual_ps < due_ps:
            continue
        due_ps = (sample.virtual_ps // every_ps + 1) * every_ps if every_ps else 0
        for number, name, place, one in wanted:
            port: int | str = one.port if one.port >= 0 else ""
            priority: int | str = one.priority if one.priority >= 0 else ""
            value = sample.counters[number][place]
            yield sample.virtual_ps, name, port, priority, one.reason, one.metric, value


def _used(reader: SampleReader) -> set[tuple[int, int]]:
    """Device and place of each counter that was not 0 throughout."""
    return {
        (int(number), place)
        for _, changed in reader.changes()
        for number, flat in changed.items()
        for place in flat[::2]
    }


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _check(option: str, patterns: Sequence[str], known: set[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            hint = did_you_mean(pattern, known) or f"; accepted: {listed(sorted(known))}"
            raise UsageError(f"{option} {pattern}: fits nothing that was recorded{hint}")
