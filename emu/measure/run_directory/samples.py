"""Counters of sync points: how samples are kept, read back, and given to pandas and spreadsheets.

At every sync point on the scenario's sampling grid each worker hands over the counters of its devices and
their mixes. All who look at a run while it goes on look at these: the exporter, the terminal, the run
directory.

`samples.jsonl` has one line for each sync point: `virtual_ps` and, under `changed`, for each device whose
counters changed since the line before, a flat list of place and new value in turn. Counters start at 0, so
the file grows with what happens and not with the fabric. The last line says what the places mean: `layouts`,
each a list of [metric, port, priority, reason], and `devices`, which maps a device's number to its layout. It
is missing where a run broke off.

`digests.jsonl`: one line for each sync point, `virtual_ps` and, under `mixed`, for each device of which a mix
changed since the line before, a flat list of place and new mix in turn: place 0 is what concerns no port,
place p + 1 is port p (`actors.kernel.mixing`). The first line names the devices. This is what `emu compare`
finds the parting of two runs by.

As rows they are one time, one counter, one value, which pandas, polars and spreadsheets take: columns
`virtual_ps`, `device`, `port`, `priority`, `reason`, `series` and `value`, names and units as in `ports.csv`.
A column that does not apply is empty. A counter that stayed 0 is left out. Counters only grow, so a rate is
the difference of two rows over that of their times.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, NamedTuple

from actors.kernel.device import Series
from emu.errors import UsageError
from emu.measure.collected import Sample
from emu.measure.digest import KIND
from emu.spelling import did_you_mean, listed
from emu.upgrade.renames import COUNTERS, EARLIER_KIND


def line(record: Mapping[str, Any]) -> str:
    """One record as one line of JSON."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True) + "\n"


def series_line(devices: Mapping[int, Sequence[Series]]) -> str:
    """The last line of `samples.jsonl`: what each device counts."""
    layouts: dict[tuple[tuple[str, int, int, str], ...], int] = {}
    known: dict[tuple[Series, ...], int] = {}
    """Series of one worker that have one name are one object, so most devices need no look at the names."""
    layout_of: dict[int, int] = {}
    for number, series in sorted(devices.items()):
        alike = tuple(series)
        if alike not in known:
            layout = tuple((one.metric, one.port, one.priority, one.reason) for one in series)
            known[alike] = layouts.setdefault(layout, len(layouts))
        layout_of[number] = known[alike]
    return line({"layouts": list(layouts), "devices": layout_of})


class ChangeWriter:
    """Finds what changed in tables of numbers, one for each device, since they were seen before."""

    def __init__(self) -> None:
        self._last: dict[int, Sequence[int]] = {}
        self._resumed: dict[int, dict[int, int]] = {}
        """Of devices that were not heard of since `resume`: the values by place."""

    def resume(self, changed: Mapping[str, Sequence[int]]) -> None:
        """Go on behind changes that were written down before."""
        add_changes(self._resumed, changed)

    def changes(self, tables: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """Place and new value in turn, by device. A table may have grown, by places that were 0."""
        changed: dict[int, list[int]] = {}
        for number, values in sorted(tables.items()):
            last = self._last.get(number)
            if last is values:
                continue
            self._last[number] = values
            if last is None:
                resumed = self._resumed.pop(number, {})
                if not resumed and not any(values):
                    continue
                last = [resumed.get(place, 0) for place in range(len(values))]
            elif last == values:
                continue
            assert len(last) <= len(values), (number, len(last), len(values))
            flat: list[int] = []
            for place, (before, value) in enumerate(zip_longest(last, values, fillvalue=0)):
                if before != value:
                    flat += (place, value)
            if flat:
                changed[number] = flat
        return changed


class SampleWriter(ChangeWriter):
    """Turns samples into lines of `samples.jsonl`."""

    def text(self, sample: Sample) -> str:
        """The line of one sample: what changed since the one before."""
        return line({"virtual_ps": sample.virtual_ps, "changed": self.changes(sample.counters)})


def add_changes(values: dict[int, dict[int, int]], changed: Mapping[str, Sequence[int]]) -> None:
    """Bring values, by device and place, to where the changes of one line leave them."""
    for number, flat in changed.items():
        values.setdefault(int(number), {}).update(zip(flat[::2], flat[1::2], strict=True))


def sample_before(
    records: Iterable[Mapping[str, Any]], at_ps: int, widths: Mapping[int, int]
) -> Sample | None:
    """The last sample not after a time, from lines of `samples.jsonl`; `widths` says how much each device
    counts. None if there is none.
    """
    values: dict[int, dict[int, int]] = {}
    last_ps = -1
    for record in records:
        if record["virtual_ps"] > at_ps:
            break
        add_changes(values, record["changed"])
        last_ps = record["virtual_ps"]
    if last_ps < 0:
        return None
    counters = {
        number: [values.get(number, {}).get(place, 0) for place in range(width)]
        for number, width in sorted(widths.items())
    }
    return Sample(last_ps, counters)


class SampleReader:
    """Reads `samples.jsonl`: what is counted, then one sample after another, every device in each.

    UsageError if the file does not say what is counted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        header: dict[str, Any] = {}
        with path.open(encoding="ascii") as lines:
            for text in lines:
                if text.startswith('{"layouts"'):
                    header = json.loads(text)
        if not header:
            raise UsageError(f"{path}: does not say what was counted: the run broke off")
        layouts = [
            [Series(COUNTERS.get(metric, metric), *place) for metric, *place in layout]
            for layout in header["layouts"]
        ]
        self.series: dict[int, list[Series]] = {
            int(number): layouts[layout] for number, layout in header["devices"].items()
        }

    def _records(self) -> Iterator[dict[str, Any]]:
        with self._path.open(encoding="ascii") as lines:
            for text in lines:
                yield json.loads(text)

    def times_ps(self) -> list[int]:
        """Each sample's time; found without reading what changed."""
        begin = '{"virtual_ps":'
        with self._path.open(encoding="ascii") as lines:
            return [int(text[len(begin) : text.index(",")]) for text in lines if text.startswith(begin)]

    def changes(self) -> Iterator[tuple[int, dict[str, list[int]]]]:
        """Each sample's time, and by device what changed since the one before: place and value in turn."""
        for record in self._records():
            if "layouts" not in record:
                yield record["virtual_ps"], record["changed"]

    def __iter__(self) -> Iterator[Sample]:
        values = {number: [0] * len(series) for number, series in self.series.items()}
        for virtual_ps, changed in self.changes():
            for number, flat in changed.items():
                of_device = values[int(number)]
                for at in range(0, len(flat), 2):
                    of_device[flat[at]] = flat[at + 1]
            yield Sample(virtual_ps, {number: list(now) for number, now in values.items()})


class SampleSpool:
    """The samples of a run that has no directory, in a file without a name; its lines can be read again."""

    def __init__(self) -> None:
        self._writer = SampleWriter()
        self._file = TemporaryFile("w+", encoding="ascii")  # noqa: SIM115  closed by `close`

    def add(self, sample: Sample) -> None:
        """Write one down."""
        self._file.write(self._writer.text(sample))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._file.seek(0)
        for text in self._file:
            yield json.loads(text)

    def close(self) -> None:
        """The file is gone then."""
        self._file.close()


class Mixes(NamedTuple):
    """What was mixed up to one sync point since the one before: by device and place, the mix there."""

    virtual_ps: int
    mixed: dict[tuple[int, int], int]


def digest_header(devices: Iterable[tuple[int, str]]) -> str:
    """The first line of `digests.jsonl`: the numbers and names whose mixes follow."""
    return line({"digest_kind": KIND, "devices": [[number, name] for number, name in devices]})


class MixWriter(ChangeWriter):
    """Turns the mixes of sync points into lines of `digests.jsonl`."""

    def text(self, virtual_ps: int, mixes: Mapping[int, Sequence[int]]) -> str:
        """The line of one sync point; `mixes` are the tables of every device, by its number."""
        return line({"virtual_ps": virtual_ps, "mixed": self.changes(mixes)})


class Digests(NamedTuple):
    """What `digests.jsonl` says. Of an earlier `kind` of digest than ours there are no points."""

    kind: int
    devices: list[tuple[int, str]]
    points: list[Mixes]


def read_digests(path: Path) -> Digests:
    """Devices and sync points of `digests.jsonl`. UsageError if it is not such a file."""
    points: list[Mixes] = []
    try:
        with path.open(encoding="ascii") as lines:
            header = json.loads(lines.readline())
            kind = int(header.get("digest_kind", EARLIER_KIND))
            devices = [(int(number), str(name)) for number, name in header["devices"]]
            if kind == KIND:
                points = [Mixes(one["virtual_ps"], _by_place(one["mixed"])) for one in map(json.loads, lines)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not the digests of a run: {error}") from error
    return Digests(kind, devices, points)


def _by_place(mixed: Mapping[str, Sequence[int]]) -> dict[tuple[int, int], int]:
    return {
        (int(number), place): mix
        for number, flat in mixed.items()
        for place, mix in zip(flat[::2], flat[1::2], strict=True)
    }


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
        if fits(name, devices)
        for place, one in enumerate(reader.series.get(number, ()))
        if fits(one.metric, series)
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


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of these patterns; none means all."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _check(option: str, patterns: Sequence[str], known: set[str]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            hint = did_you_mean(pattern, known) or f"; accepted: {listed(sorted(known))}"
            raise UsageError(f"{option} {pattern}: fits nothing that was recorded{hint}")
