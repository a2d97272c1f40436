"""Samples as rows, for pandas, polars, spreadsheets and parquet: one time, one counter, one value.

Columns are `virtual_ps`, `device`, `port`, `priority`, `reason`, `series` and `value`, names and units as in
`ports.csv`. A column that does not apply is empty. A counter that stayed 0 is left out. Counters only grow,
so a rate is the difference of two rows over that of their times.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

from emu.base.errors import UsageError
from emu.base.spelling import did_you_mean, listed
from emu.run_directory.comparison import load_summary
from emu.run_directory.samples import SampleReader, read_digests

COLUMNS: Final = ("virtual_ps", "device", "port", "priority", "reason", "series", "value")
T = TypeVar("T")
ROWS_AT_ONCE: Final = 100_000
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
    _check("--series", series, reader.counted.kept, "; others are kept with run.sample_series: all")
    _check("--device", devices, set(names.values()))
    metrics = [metric for metric in reader.counted.kept if fits(metric, series)]
    used = {
        (metric, row)
        for _, grown in reader.grown(metrics)
        for metric, (rows, _) in grown.items()
        for row in rows
    }
    wanted = sorted(
        (number, place, metric, row)
        for metric in metrics
        for row, (number, place) in enumerate(reader.counters(metric))
        if (metric, row) in used and number in names and fits(names[number], devices)
    )
    places: list[_Place] = []
    for number, place, metric, row in wanted:
        one = reader.series[number][place]
        port, priority = (given if given >= 0 else "" for given in (one.port, one.priority))
        places.append(((metric, row), (names[number], port, priority, one.reason, metric)))
    return _rows(reader, metrics, places, every_ps)


def recorded(run: Path) -> tuple[dict[int, str], SampleReader]:
    """Names of the devices by number, and the samples. Raises UsageError for what is no run."""
    samples_file, digests_file = run / "samples.jsonl", run / "digests.jsonl"
    for file in (samples_file, digests_file):
        if not file.is_file():
            if (run / "summary.json").is_file() and load_summary(run).fidelity == "flow":
                raise UsageError(
                    f"{run}: a run at flow level has no samples; accepted: one with fidelity: packet"
                )
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


_Place = tuple[tuple[str, int], tuple[str, int | str, int | str, str, str]]
"""A counter's column and row, and what stands between time and value."""


def _rows(
    reader: SampleReader, metrics: Sequence[str], places: Sequence[_Place], every_ps: int
) -> Iterator[Row]:
    due_ps = 0
    values = dict.fromkeys((counter for counter, _ in places), 0)
    for virtual_ps, grown in reader.grown(metrics):
        for metric, (rows, more) in grown.items():
            for row, by in zip(rows, more, strict=True):
                if (metric, row) in values:
                    values[metric, row] += by
        if virtual_ps < due_ps:
            continue
        due_ps = (virtual_ps // every_ps + 1) * every_ps if every_ps else 0
        for counter, words in places:
            yield virtual_ps, *words, values[counter]


def write_parquet(out: Path, rows: Iterable[Row]) -> None:
    """Write rows as a parquet file, with empty cells as nulls. UsageError without pyarrow."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise UsageError("parquet needs pyarrow, which is not installed; `pip install pyarrow`") from error
    words = arrow.dictionary(arrow.int32(), arrow.string())
    kinds = (arrow.int64(), words, arrow.int32(), arrow.int32(), words, words, arrow.int64())
    schema = arrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    try:
        with parquet.ParquetWriter(out, schema) as writer:
            for some in batched(rows, ROWS_AT_ONCE):
                columns = [
                    arrow.array([None if cell == "" else cell for cell in column], kind)
                    for column, kind in zip(zip(*some, strict=True), kinds, strict=True)
                ]
                writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror or error}") from error


def batched(all_of: Iterable[T], size: int) -> Iterator[list[T]]:
    """Rows in batches of this many, in order; the last may have fewer."""
    rest = iter(all_of)
    while some := list(islice(rest, size)):
        yield some


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of these patterns; none means all."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _check(option: str, patterns: Sequence[str], known: Collection[str], more: str = "") -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            hint = did_you_mean(pattern, known) or f"; accepted: {listed(sorted(known))}"
            raise UsageError(f"{option} {pattern}: fits nothing that was recorded{hint}{more}")
