"""Counters of sync points: how samples are kept, and read back.

At every sync point on the scenario's sampling grid each worker hands over the counters of its devices and
their mixes. All who look at a run while it goes on look at these: the exporter, the terminal, the run
directory.

`samples.jsonl` has one line for each sync point: `virtual_ps` and, under `changed`, for each device whose
counters changed since the line before, a flat list of place and new value in turn. Counters start at 0, so
the file grows with what happens and not with the fabric. The last line says what the places mean: `layouts`,
each a list of [metric, port, priority, reason], and `devices`, which maps a device's number to its layout. It
is missing where a run broke off.

`digests.jsonl`: one line for each sync point, `virtual_ps` and `mixes`, the mix of every device in device
order (the first line says which devices). This is what `emu compare` finds the parting of two runs by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from actors.kernel.device import Series
from emu.errors import UsageError
from emu.measure.collected import Sample


def line(record: Mapping[str, Any]) -> str:
    """One record as one line of JSON."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True) + "\n"


def series_line(devices: Mapping[int, Sequence[Series]]) -> str:
    """The last line of `samples.jsonl`: what each device counts."""
    layouts: dict[tuple[tuple[str, int, int, str], ...], int] = {}
    layout_of: dict[int, int] = {}
    for number, series in sorted(devices.items()):
        layout = tuple((one.metric, one.port, one.priority, one.reason) for one in series)
        layout_of[number] = layouts.setdefault(layout, len(layouts))
    return line({"layouts": list(layouts), "devices": layout_of})


class SampleWriter:
    """Turns samples into lines of `samples.jsonl`."""

    def __init__(self) -> None:
        self._last: dict[int, Sequence[int]] = {}
        self._resumed: dict[int, dict[int, int]] = {}
        """Of devices that were not heard of since `resume`: the values by place."""

    def resume(self, record: Mapping[str, Any]) -> None:
        """Go on behind a line that was written before: `record` is what it says."""
        add_changes(self._resumed, record)

    def text(self, sample: Sample) -> str:
        """The line of one sample: what changed since the one before."""
        changed: dict[int, list[int]] = {}
        for number, values in sorted(sample.counters.items()):
            last = self._last.get(number)
            if last is None:
                last = [0] * len(values)
                for place, value in self._resumed.pop(number, {}).items():
                    last[place] = value
            assert len(last) == len(values), (number, len(last), len(values))
            flat: list[int] = []
            for place, (before, value) in enumerate(zip(last, values, strict=True)):
                if before != value:
                    flat += (place, value)
            if flat:
                changed[number] = flat
                self._last[number] = values
        return line({"virtual_ps": sample.virtual_ps, "changed": changed})


def add_changes(values: dict[int, dict[int, int]], record: Mapping[str, Any]) -> None:
    """Bring values, by device and place, to where a line of `samples.jsonl` leaves them."""
    for number, flat in record["changed"].items():
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
        add_changes(values, record)
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
        for record in self._records():
            header = record if "layouts" in record else header
        if not header:
            raise UsageError(f"{path}: does not say what was counted: the run broke off")
        layouts = [[Series(*one) for one in layout] for layout in header["layouts"]]
        self.series: dict[int, list[Series]] = {
            int(number): layouts[layout] for number, layout in header["devices"].items()
        }

    def _records(self) -> Iterator[dict[str, Any]]:
        with self._path.open(encoding="ascii") as lines:
            for text in lines:
                yield json.loads(text)

    def __iter__(self) -> Iterator[Sample]:
        values = {number: [0] * len(series) for number, series in self.series.items()}
        for record in self._records():
            if "layouts" in record:
                continue
            for number, flat in record["changed"].items():
                of_device = values[int(number)]
                for at in range(0, len(flat), 2):
                    of_device[flat[at]] = flat[at + 1]
            yield Sample(record["virtual_ps"], {number: list(now) for number, now in values.items()})


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
    """The mix of every device at one sync point."""

    virtual_ps: int
    mixes: list[int]


def digest_header(devices: Iterable[tuple[int, str]]) -> str:
    """The first line of `digests.jsonl`: the numbers and names whose mixes follow."""
    return line({"devices": [[number, name] for number, name in devices]})


def digest_line(virtual_ps: int, mixes: Sequence[int]) -> str:
    """The line of one sync point."""
    return line({"virtual_ps": virtual_ps, "mixes": list(mixes)})


def read_digests(path: Path) -> tuple[list[tuple[int, str]], list[Mixes]]:
    """Devices and sync points of `digests.jsonl`. UsageError if it is not such a file."""
    try:
        with path.open(encoding="ascii") as lines:
            devices = [(int(number), str(name)) for number, name in json.loads(lines.readline())["devices"]]
            points = [Mixes(record["virtual_ps"], record["mixes"]) for record in map(json.loads, lines)]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not the digests of a run: {error}") from error
    return devices, points
