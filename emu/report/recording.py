"""What a run directory recorded, by port and interval of time.

The samples of a run are counters at its sync points (`run.sample_every`). Between two of them lies an
interval; of each fabric port, in its sending direction, an interval has four figures, each in one byte:

    utilisation   bytes sent, preamble and gap included, over what the port's rate carries: 1/250
    paused        share of time for which its peer paused the class paused longest, or for which it waited
                  for credit: 1/250
    queue         bytes of the egress queue, or of the virtual output queues towards it, at the interval's
                  end: 14 log2(1 + bytes / 256)
    drops         frames dropped at the port, sent or received: 16 log2(1 + frames)

Logarithms keep 5 % between one byte of a packet and a whole buffer. Runs with more than `MOST_INTERVALS`
samples are told in so many intervals, each of several samples: then queues between its ends are not seen.
"""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any, Final, NamedTuple

from actors.fabric.model import FABRIC, Topology
from emu.errors import UsageError
from emu.measure.run_directory.comparison import load_summary
from emu.measure.run_directory.samples import SampleReader
from emu.measure.summary.summary import Summary
from emu.scenario.load import load_recorded
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario

MOST_INTERVALS: Final = 400
SHARE: Final = 250
"""The byte of a whole."""
QUEUE_UNIT_BYTES: Final = 256
QUEUE_STEPS: Final = 14
"""Per doubling."""
DROP_STEPS: Final = 16
MEASURES: Final = ("utilisation", "paused", "queue", "drops")
UTILISATION, PAUSED, QUEUE, DROPS = range(len(MEASURES))
_ROLES: Final = {
    "port_transmit_bytes": UTILISATION,
    "pfc_paused_ps": PAUSED,
    "port_transmit_wait_ps": PAUSED,
    "queue_bytes": QUEUE,
    "voq_bytes": QUEUE,
    "port_dropped_frames": DROPS,
}


class Port(NamedTuple):
    """A fabric port: `device` and `peer` are node numbers."""

    device: int
    number: int
    peer: int
    rate_bps: int


class Recording(NamedTuple):
    """One run, read back."""

    path: Path
    summary: Summary
    scenario: Scenario
    topology: Topology
    ports: tuple[Port, ...]
    """Every fabric port, by device and number."""
    edges_ps: tuple[int, ...]
    """Where intervals begin and end: one more than there are intervals; just (0,) without samples."""
    measures: tuple[bytes, ...]
    """One byte for each port and interval, ports one after another; in the order of `MEASURES`."""
    events: tuple[Mapping[str, Any], ...]
    """Lines of the journal."""
    steps: tuple[tuple[int, ...], ...]
    """Rows of job, rank, step, begin, end, computing and waits by reason, in ps."""
    collectives: tuple[Mapping[str, str], ...]
    """Rows of `collectives.csv`."""

    def row(self, measure: int, port: int) -> bytes:
        """A measure of one port, by interval."""
        count = len(self.edges_ps) - 1
        return self.measures[measure][port * count : (port + 1) * count]


def read_recording(path: Path) -> Recording:
    """The run in a directory. UsageError if it is none."""
    if not path.is_dir():
        raise UsageError(f"{path}: not a directory; accepted: the directory of a run that `emu run` wrote")
    summary = load_summary(path)
    scenario = load_recorded(path / "scenario.yaml").scenario
    topology = build_topology(scenario)
    ports = tuple(
        Port(node.number, number, end.peer, end.rate_bps)
        for node in topology.nodes
        for number, end in enumerate(topology.ports(node.number))
        if end.kind == FABRIC
    )
    edges_ps, measures = _Intervals(path / "samples.jsonl", ports).read()
    return Recording(
        path,
        summary,
        scenario,
        topology,
        ports,
        edges_ps,
        measures,
        tuple(_lines(path / "journal.jsonl")),
        tuple(_steps(path / "shown.jsonl")),
        tuple(_rows(path / "collectives.csv")),
    )


class _Intervals:
    """Reads samples into figures by port and interval."""

    def __init__(self, file: Path, ports: Sequence[Port]) -> None:
        self._file = file
        self._ports = ports
        self._row_of = {(port.device, port.number): row for row, port in enumerate(ports)}

    def read(self) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        """Edges of the intervals, and each measure. A run that broke off, or recorded nothing, has none."""
        if not self._file.exists():
            return (0,), (b"",) * len(MEASURES)
        reader = SampleReader(self._file)
        times_ps = reader.times_ps()
        if not times_ps:
            return (0,), (b"",) * len(MEASURES)
        stride = -(-len(times_ps) // MOST_INTERVALS)
        count = -(-len(times_ps) // stride)
        edges_ps = (0, *(times_ps[min((at + 1) * stride, len(times_ps)) - 1] for at in range(count)))
        changes = self._changes(reader, stride, count)
        return edges_ps, tuple(
            self._figures(measure, changes[measure], edges_ps) for measure in range(len(MEASURES))
        )

    def _changes(self, reader: SampleReader, stride: int, count: int) -> list[array[int]]:
        """By how much each measure grew, by port and interval; of pauses that of the class paused longest."""
        size = len(self._ports) * count
        found = [array("q", bytes(8 * size)) for _ in MEASURES]
        added, pauses = self._places(reader, found, count)
        last: dict[str, dict[int, int]] = {}
        paused: dict[tuple[int, int], int] = {}
        for sample, (_, changed) in enumerate(reader.changes()):
            interval = sample // stride
            for number, flat in changed.items():
                before = last.setdefault(number, {})
                now = dict(zip(flat[::2], flat[1::2], strict=True))
                mine = added[int(number)]
                for place in mine.keys() & now.keys():
                    cells, row = mine[place]
                    cells[row + interval] += now[place] - before.get(place, 0)
                classes = pauses[int(number)]
                for place in classes.keys() & now.keys():
                    cell, priority = classes[place][0] + interval, classes[place][1]
                    grown = now[place] - before.get(place, 0)
                    of_class = paused[cell, priority] = paused.get((cell, priority), 0) + grown
                    found[PAUSED][cell] = max(found[PAUSED][cell], of_class)
                before.update(now)
        return found

    def _places(
        self, reader: SampleReader, found: Sequence[array[int]], count: int
    ) -> tuple[dict[int, dict[int, tuple[array[int], int]]], dict[int, dict[int, tuple[int, int]]]]:
        """Of each device, where the counters at its places are added up; those of pauses, with the class."""
        added: dict[int, dict[int, tuple[array[int], int]]] = {}
        pauses: dict[int, dict[int, tuple[int, int]]] = {}
        for number, series in reader.series.items():
            added[number], pauses[number] = {}, {}
            for place, one in enumerate(series):
                measure, row = _ROLES.get(one.metric), self._row_of.get((number, one.port))
                if measure is None or row is None:
                    continue
                if measure == PAUSED:
                    pauses[number][place] = (row * count, one.priority)
                else:
                    added[number][place] = (found[measure], row * count)
        return added, pauses

    def _figures(self, measure: int, changes: array[int], edges_ps: Sequence[int]) -> bytes:
        count = len(edges_ps) - 1
        figures = bytearray(len(changes))
        spans_ps = [after - before for before, after in pairwise(edges_ps)]
        carried = {
            rate_bps: [max(rate_bps * span_ps // (8 * 10**12), 1) for span_ps in spans_ps]
            for rate_bps in {port.rate_bps for port in self._ports}
        }
        for row, port in enumerate(self._ports):
            level, wholes = 0, spans_ps if measure == PAUSED else carried[port.rate_bps]
            if not any(changes[row * count : (row + 1) * count]):
                continue
            for at in range(count):
                cell = row * count + at
                grown = changes[cell]
                if measure == QUEUE:
                    level += grown
                    figures[cell] = queue_byte(level) if level else 0
                elif grown and measure == DROPS:
                    figures[cell] = min(round(DROP_STEPS * log2(1 + grown)), 255)
                elif grown:
                    figures[cell] = min(-(-SHARE * grown // wholes[at]), SHARE)
        return bytes(figures)


@lru_cache(maxsize=1 << 16)
def queue_byte(queue_bytes: int) -> int:
    """The byte of a queue's depth."""
    return min(round(QUEUE_STEPS * log2(1 + queue_bytes / QUEUE_UNIT_BYTES)), 255)


def _lines(file: Path) -> list[dict[str, Any]]:
    """Records of a file of lines; none if there is no such file. The last may be cut off."""
    records: list[dict[str, Any]] = []
    if not file.exists():
        return records
    with file.open(encoding="utf-8") as lines:
        for text in lines:
            try:
                records.append(json.loads(text))
            except ValueError:
                break
    return records


def _steps(file: Path) -> list[tuple[int, ...]]:
    return [tuple(row) for record in _lines(file) for row in record.get("tables", {}).get("steps", ())]


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))
