"""Counters of sync points: how samples are kept and read back, also while the file grows; mixes likewise.

At every sync point on the scenario's sampling grid each worker hands over what changed of the counters of its
devices and of their mixes (`actors.kernel.readings`). All who look at a run while it goes on look at these:
the exporter, the terminal, the run directory, the page that follows a run.

`samples.jsonl` is lines of JSON. The first says what is counted:

    samples   version of this format, 2
    layouts   lists of [metric, port, priority, reason], -1 or "" for what does not apply
    devices   a device's number to its layout
    kept      the metrics that follow; others have no values here (`run.sample_series`)

The counters of one metric, over all devices in the order of their numbers and of each device in the order of
its layout, are the rows of a column, counted from 0. Every other line is a sample: `virtual_ps`, and under
`grown`, by metric, which rows changed since the line before and by how much. That is base64 of deflate of n
unsigned integers of 4 bytes, each the distance from the row before (of the first: from row 0), and then n
signed integers of 8 bytes, what each row grew by; little-endian. Counters start at 0, so the file grows with
what happens and not with the fabric, and whoever wants one metric reads one column of each line.

`digests.jsonl`: one line for each sync point, `virtual_ps` and, under `mixed`, for each device of which a mix
changed since the line before, a flat list of place and new mix in turn: place 0 is what concerns no port,
place p + 1 is port p (`actors.kernel.mixing`). The first line names the devices. This is what `emu compare`
finds the parting of two runs by.
"""

from __future__ import annotations

import json
import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import compress as deflated
from zlib import compressobj, decompress

from librt.strings import BytesWriter

from actors.kernel.counters import (
    BUFFER_PEAK_BYTES,
    CREDIT_GRANTS,
    CREDIT_PEAK_BLOCKS,
    CREDIT_TRANSMIT_UPDATES,
    CUT_THROUGH_FRAMES,
    DEVICE_METRICS,
    GPU_COPIED_BYTES,
    GPU_COPIES,
    GPU_COPY_PS,
    HEADROOM_PEAK_BYTES,
    HEADROOM_POOL_PEAK_BYTES,
    HOST_CTS_RECEIVED,
    HOST_CTS_WAIT_PEAK_PS,
    INGRESS_BYTES,
    INGRESS_PEAK_BYTES,
    NIC_POSTED_BYTES,
    NIC_RECEIVE_BUFFER_PEAK_BYTES,
    NIC_TRANSMIT_ACKS,
    NVLINK_TRANSFERS,
    PFC_RECEIVE_TRANSITIONS,
    PFC_RECEIVE_XOFF_FRAMES,
    PFC_RECEIVE_XON_FRAMES,
    PFC_TRANSMIT_PAUSED_PS,
    PFC_TRANSMIT_XON_FRAMES,
    PORT_RECEIVE_BYTES,
    PORT_RECEIVE_FRAMES,
    PORT_TRANSMIT_FRAMES,
    PORT_TRANSMIT_PAYLOAD_BYTES,
)
from actors.kernel.device import Series
from emu.base.errors import UsageError
from emu.counts.collected import Changed, Layouts, Place, Sample
from emu.counts.digest import KIND, OTHER_RELEASE, check_kind
from emu.run_directory.sample_changes import (
    NOT_KEPT,
    GrownDevices,
    GrownRows,
    Kept,
    write_changes,
)

VERSION: Final = 2
NOT_PLOTTED: Final = frozenset(
    {
        *(PORT_TRANSMIT_FRAMES, PORT_TRANSMIT_PAYLOAD_BYTES, PORT_RECEIVE_FRAMES, PORT_RECEIVE_BYTES),
        *(PFC_TRANSMIT_XON_FRAMES, PFC_RECEIVE_XOFF_FRAMES, PFC_RECEIVE_XON_FRAMES),
        *(PFC_RECEIVE_TRANSITIONS, PFC_TRANSMIT_PAUSED_PS, CREDIT_TRANSMIT_UPDATES, CREDIT_GRANTS),
        *(CREDIT_PEAK_BLOCKS, INGRESS_BYTES, INGRESS_PEAK_BYTES),
        *(HEADROOM_PEAK_BYTES, HEADROOM_POOL_PEAK_BYTES, NIC_RECEIVE_BUFFER_PEAK_BYTES),
        *(BUFFER_PEAK_BYTES, HOST_CTS_WAIT_PEAK_PS, HOST_CTS_RECEIVED),
        *(NIC_TRANSMIT_ACKS, NIC_POSTED_BYTES, NVLINK_TRANSFERS, CUT_THROUGH_FRAMES),
        *(GPU_COPIES, GPU_COPIED_BYTES, GPU_COPY_PS),
    }
)
"""Metrics without samples unless they are asked for: no picture and no diagnosis needs them over time. They
are peaks but those of queues, what a port's peer counts as well, and second units of what is kept."""
_ROW: Final = "I"
_GROWN: Final = "q"
_ROW_BYTES: Final = 4
_GROWN_BYTES: Final = 8


def line(record: Mapping[str, Any]) -> str:
    """One record as one line of JSON."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True) + "\n"


# ---- what is counted, and where it stands


class Counted(NamedTuple):
    """What the devices of a run count, and the metrics of which there are samples."""

    layouts: Layouts
    kept: tuple[str, ...]

    @classmethod
    def of(cls, layouts: Layouts, asked: str, expected: Collection[str] = ()) -> Counted:
        """What is kept of layouts: `asked` is `run.sample_series`, `expected` is kept in any case."""
        there = {metric for layout in layouts.layouts for metric, *_ in layout}
        wanted = there if asked == "all" else (there - NOT_PLOTTED) | there.intersection(expected)
        return cls(layouts, tuple(one.key for one in DEVICE_METRICS if one.key in wanted))

    def text(self) -> str:
        """The first line of `samples.jsonl`."""
        layouts, devices = self.layouts
        return line({"samples": VERSION, "layouts": layouts, "devices": devices, "kept": self.kept})


def _layouts(header: Mapping[str, Any]) -> Layouts:
    layouts = tuple(
        tuple((metric, port, priority, reason) for metric, port, priority, reason in one)
        for one in header["layouts"]
    )
    return Layouts(layouts, {int(number): layout for number, layout in header["devices"].items()})


class _Selection:
    """The kept counters of devices with one layout: their places, their columns and which rows there."""

    def __init__(self, layout: Sequence[Place], kept: Mapping[str, int]) -> None:
        self.places = [place for place, (metric, *_) in enumerate(layout) if metric in kept]
        self.columns = [kept[layout[place][0]] for place in self.places]
        rows = [0] * len(kept)
        columns, nth = [NOT_KEPT] * len(layout), [0] * len(layout)
        for place, column in zip(self.places, self.columns, strict=True):
            columns[place], nth[place] = column, rows[column]
            rows[column] += 1
        self.kept = Kept(columns, nth, rows)


class _Columns:
    """Where the counters of a run stand: of each device its selection."""

    def __init__(self, counted: Counted) -> None:
        self.kept = counted.kept
        numbered = {metric: at for at, metric in enumerate(counted.kept)}
        selections = [_Selection(layout, numbered) for layout in counted.layouts.layouts]
        of_device = sorted(counted.layouts.of_device.items())
        self.selection = {number: selections[layout] for number, layout in of_device}

    def counters(self) -> list[list[tuple[int, int]]]:
        """The counters of each column's rows: device and place."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.kept]
        for number, selection in self.selection.items():
            for place, column in zip(selection.places, selection.columns, strict=True):
                found[column].append((number, place))
        return found


Column = tuple[Sequence[int], Sequence[int]]
"""Rows of a column, and what each grew by."""


_LEVEL: Final = 1
"""Level of deflate, which files have to keep: another one writes other bytes."""
_ROOMS: Final = 4


def _packed(content: bytes) -> str:
    return b64encode(deflated(content, _LEVEL)).decode("ascii")


def _held_room() -> object:
    """What keeps room for deflate in the heap, as long as it is referred to.

    Deflate takes a quarter of a MiB for each content. At the end of the heap the C library gives that back
    to the system when it is freed, and the next content, mostly of a few bytes, has its pages cleared again:
    20 us in place of 3. What lies behind the room keeps it.
    """
    rooms = [compressobj(_LEVEL) for _ in range(_ROOMS)]
    return rooms.pop()


def _unpacked(text: str) -> Column:
    content = decompress(b64decode(text))
    count = len(content) // (_ROW_BYTES + _GROWN_BYTES)
    gaps, grown = array(_ROW, content[: _ROW_BYTES * count]), array(_GROWN, content[_ROW_BYTES * count :])
    if sys.byteorder == "big":
        gaps.byteswap()
        grown.byteswap()
    return list(accumulate(gaps)), grown


# ---- writing


class SampleWriter:
    """Turns samples into lines of `samples.jsonl` behind the first, which `Counted` has."""

    def __init__(self, counted: Counted) -> None:
        columns = _Columns(counted)
        self._grown = {metric: GrownRows() for metric in columns.kept}
        kept = {number: selection.kept for number, selection in columns.selection.items()}
        self._devices = GrownDevices(kept, list(self._grown.values()))
        self._room = _held_room()

    def resume(self, changed: Iterable[Changed]) -> None:
        """Go on behind lines that were written before."""
        for one in changed:
            self._add(one)
            for rows in self._grown.values():
                rows.take()

    def text(self, changed: Changed) -> str:
        """The line of one sample."""
        self._add(changed)
        packed = [
            f'"{metric}":"{_packed(content)}"'
            for metric, rows in self._grown.items()
            if (content := rows.take())
        ]
        return f'{{"virtual_ps":{changed.virtual_ps},"grown":{{{",".join(packed)}}}}}\n'

    def _add(self, changed: Changed) -> None:
        self._devices.add(changed.changed)


def add_changes(values: dict[int, dict[int, int]], changed: Mapping[int, Sequence[int]]) -> None:
    """Bring values, by device and place, to where the changes of one sample leave them."""
    for number, flat in changed.items():
        values.setdefault(number, {}).update(zip(flat[::2], flat[1::2], strict=True))


class LatestSample:
    """The counters of all devices as the sample that was heard of last leaves them."""

    def __init__(self, changed: Iterable[Changed] = ()) -> None:
        self.virtual_ps = -1
        """Time of that sample; -1 if there was none."""
        self._values: dict[int, dict[int, int]] = {}
        for one in changed:
            self.add(one)

    def add(self, changed: Changed) -> None:
        """The next sample."""
        self.virtual_ps = changed.virtual_ps
        add_changes(self._values, changed.changed)

    def sample(self, widths: Mapping[int, int]) -> Sample | None:
        """Everything; `widths` says how much each device counts. None if there was no sample."""
        if self.virtual_ps < 0:
            return None
        counters: dict[int, Sequence[int]] = {}
        for number, width in sorted(widths.items()):
            values = self._values.get(number, {})
            counters[number] = [values.get(place, 0) for place in range(width)]
        return Sample(self.virtual_ps, counters)


def sample_before(samples: Iterable[Changed], at_ps: int, widths: Mapping[int, int]) -> Sample | None:
    """The last sample not after a time; `widths` says how much each device counts. None if there is none."""
    return LatestSample(takewhile(lambda one: one.virtual_ps <= at_ps, samples)).sample(widths)


# ---- reading


def _columns_of(record: Mapping[str, Any], wanted: frozenset[str]) -> tuple[int, dict[str, Column]]:
    grown = {metric: _unpacked(packed) for metric, packed in record["grown"].items() if metric in wanted}
    return record["virtual_ps"], grown


class SampleReader:
    """Reads `samples.jsonl`: what is counted, then one sample after another, as far as the file has come.

    UsageError if the file does not say what is counted, or is of a version that is not read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.counted = self._header()
        layouts = [[Series(*place) for place in layout] for layout in self.counted.layouts.layouts]
        self.series: dict[int, list[Series]] = {
            number: layouts[layout] for number, layout in self.counted.layouts.of_device.items()
        }
        self._columns = _Columns(self.counted)
        self._counters: list[list[tuple[int, int]]] = []
        self._seen_bytes = 0
        """How far `news` has read."""

    def _header(self) -> Counted:
        with self._path.open(encoding="ascii") as lines:
            first = lines.readline()
        if not first.endswith("\n"):
            raise UsageError(f"{self._path}: does not say what was counted: the run broke off")
        header = json.loads(first) if first.startswith('{"samples"') else {}
        if header.get("samples") != VERSION:
            raise UsageError(f"{self._path}: {OTHER_RELEASE}")
        return Counted(_layouts(header), tuple(header["kept"]))

    def _lines(self) -> Iterator[str]:
        """The lines of samples that are whole."""
        with self._path.open("rb") as lines:
            for text in lines:
                if not text.endswith(b"\n"):
                    return
                if text.startswith(b'{"virtual_ps"'):
                    yield text.decode("ascii")

    def times_ps(self) -> list[int]:
        """Each sample's time; found without reading what changed."""
        begin = len('{"virtual_ps":')
        return [int(text[begin : text.index(",")]) for text in self._lines()]

    def counters(self, metric: str) -> list[tuple[int, int]]:
        """Device and place of each row of a metric's column; none where it was not kept."""
        if not self._counters:
            self._counters = self._columns.counters()
        return self._counters[self.counted.kept.index(metric)] if metric in self.counted.kept else []

    def grown(self, metrics: Iterable[str]) -> Iterator[tuple[int, dict[str, Column]]]:
        """Each sample's time, and by metric which rows of its column changed and by how much."""
        wanted = frozenset(metrics)
        for text in self._lines():
            yield _columns_of(json.loads(text), wanted)

    def news(self, metrics: Iterable[str]) -> Iterator[tuple[int, dict[str, Column]]]:
        """The same of the samples that were added since the last call; of a file that grows."""
        wanted = frozenset(metrics)
        with self._path.open("rb") as lines:
            lines.seek(self._seen_bytes)
            for text in lines:
                if not text.endswith(b"\n"):
                    return
                self._seen_bytes += len(text)
                if text.startswith(b'{"virtual_ps"'):
                    yield _columns_of(json.loads(text), wanted)

    def changes(self) -> Iterator[Changed]:
        """Each sample as what changed since the one before."""
        values = [[0] * len(self.counters(metric)) for metric in self.counted.kept]
        for virtual_ps, grown in self.grown(self.counted.kept):
            changed: dict[int, list[int]] = {}
            for metric, (rows, more) in grown.items():
                of_column, counters = values[self.counted.kept.index(metric)], self.counters(metric)
                for row, by in zip(rows, more, strict=True):
                    of_column[row] += by
                    number, place = counters[row]
                    changed.setdefault(number, []).extend((place, of_column[row]))
            yield Changed(virtual_ps, changed)

    def __iter__(self) -> Iterator[Sample]:
        """Each sample with every counter of every device; those that are not kept are 0."""
        values = {number: [0] * len(series) for number, series in self.series.items()}
        for virtual_ps, changed, _ in self.changes():
            for number, flat in changed.items():
                of_device = values[number]
                for at in range(0, len(flat), 2):
                    of_device[flat[at]] = flat[at + 1]
            yield Sample(virtual_ps, {number: list(now) for number, now in values.items()})


class SampleSpool:
    """The samples of a run that has no directory, in a file without a name; they can be read again."""

    def __init__(self) -> None:
        from tempfile import TemporaryFile  # noqa: PLC0415 - where samples are kept beside no directory

        self._file = TemporaryFile("w+", encoding="ascii")  # noqa: SIM115  closed by `close`

    def add(self, changed: Changed) -> None:
        """Write one down."""
        self._file.write(line({"virtual_ps": changed.virtual_ps, "changed": _listed(changed.changed)}))

    def __iter__(self) -> Iterator[Changed]:
        self._file.seek(0)
        yield from map(_changed, self._file)

    def close(self) -> None:
        """The file is gone then."""
        self._file.close()


# ---- mixes


class Mixes(NamedTuple):
    """What was mixed up to one sync point since the one before: by device and place, the mix there."""

    virtual_ps: int
    mixed: dict[tuple[int, int], int]


def digest_header(devices: Iterable[tuple[int, str]]) -> str:
    """The first line of `digests.jsonl`: the numbers and names whose mixes follow."""
    return line({"digest_kind": KIND, "devices": [[number, name] for number, name in devices]})


def mixes_line(virtual_ps: int, mixed: Mapping[int, Sequence[int]]) -> str:
    """The line of one sync point in `digests.jsonl`: of each device whose mixes changed, place and new mix in
    turn."""
    out = BytesWriter()
    out.write(b'{"virtual_ps":%d,"mixed":' % virtual_ps)
    write_changes(out, mixed)
    out.write(b"}\n")
    return out.getvalue().decode("ascii")


def mixed_since(path: Path, mixes: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Place and mix in turn of the mixes that are not what `digests.jsonl` says so far. Raises UsageError."""
    last: dict[tuple[int, int], int] = {}
    for one in read_digests(path).points:
        last |= one.mixed
    found: dict[int, list[int]] = {}
    for number, flat in mixes.items():
        for place, mix in zip(flat[::2], flat[1::2], strict=True):
            if last.get((number, place), 0) != mix:
                found.setdefault(number, []).extend((place, mix))
    return found


def _listed(changed: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    return {number: list(flat) for number, flat in sorted(changed.items())}


class Digests(NamedTuple):
    """What `digests.jsonl` says."""

    devices: list[tuple[int, str]]
    points: list[Mixes]


def read_digests(path: Path) -> Digests:
    """Devices and sync points of `digests.jsonl`. UsageError if it is not such a file."""
    points: list[Mixes] = []
    try:
        with path.open(encoding="ascii") as lines:
            header = json.loads(lines.readline())
            check_kind(path, header.get("digest_kind"))
            devices = [(int(number), str(name)) for number, name in header["devices"]]
            points = [Mixes(one["virtual_ps"], _by_place(one["mixed"])) for one in map(json.loads, lines)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not the digests of a run: {error}") from error
    return Digests(devices, points)


def _by_place(mixed: Mapping[str, Sequence[int]]) -> dict[tuple[int, int], int]:
    return {
        (int(number), place): mix
        for number, flat in mixed.items()
        for place, mix in zip(flat[::2], flat[1::2], strict=True)
    }


def _changed(text: str) -> Changed:
    """What a line of a journal says."""
    record = json.loads(text)
    return Changed(record["virtual_ps"], {int(number): flat for number, flat in record["changed"].items()})
