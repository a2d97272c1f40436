"""What a run directory recorded, by port and interval of time.

The samples of a run are counters at its sync points (`run.sample_every`). Between two of them lies an
interval; of each fabric port, in its sending direction, an interval has four figures, each in one byte:

    utilisation   bytes sent, preamble and gap included, over what the port's rate carries: 1/250
    paused        share of time for which its peer paused the class paused longest, or for which it waited
                  for credit: 1/250
    queue         bytes of the egress queue, or of the virtual output queues towards it, at the interval's
                  end, or within it where they are more than ever before: 14 log2(1 + bytes / 256)
    drops         frames dropped in this direction: 16 log2(1 + frames). A port counts most reasons of frames
                  that come in, which are those of its peer's direction

Logarithms keep 5 % between one byte of a packet and a whole buffer. Runs with more than `MOST_INTERVALS`
samples are told in so many intervals, each of several samples.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import ceil, log2
from pathlib import Path
from typing import Any, Final, NamedTuple

from actors.fabric.model import FABRIC, Topology
from actors.kernel.counters import (
    PFC_PAUSED_PS,
    PORT_DROPPED_FRAMES,
    PORT_TRANSMIT_BYTES,
    PORT_TRANSMIT_WAIT_PS,
    QUEUE_BYTES,
    QUEUE_PEAK_BYTES,
    VOQ_BYTES,
    VOQ_PEAK_BYTES,
)
from emu.base.errors import UsageError
from emu.measure.run_directory.comparison import load_summary
from emu.measure.run_directory.sample_rows import batched
from emu.measure.run_directory.samples import Column, SampleReader
from emu.results.metrics import DROPPED_LEAVING
from emu.results.summary import Summary
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.stored_run import stored_run

MOST_INTERVALS: Final = 400
SHARE: Final = 250
"""The byte of a whole."""
QUEUE_UNIT_BYTES: Final = 256
QUEUE_STEPS: Final = 14
"""Per doubling."""
DROP_STEPS: Final = 16
MEASURES: Final = ("utilisation", "paused", "queue", "drops")
UTILISATION, PAUSED, QUEUE, DROPS = range(len(MEASURES))
PEAK: Final = len(MEASURES)
"""A queue that was deeper within an interval than ever before counts for that interval."""
DROPPED: Final = PORT_DROPPED_FRAMES
ROLES: Final = {
    PORT_TRANSMIT_BYTES: UTILISATION,
    PFC_PAUSED_PS: PAUSED,
    PORT_TRANSMIT_WAIT_PS: PAUSED,
    QUEUE_BYTES: QUEUE,
    VOQ_BYTES: QUEUE,
    QUEUE_PEAK_BYTES: PEAK,
    VOQ_PEAK_BYTES: PEAK,
    DROPPED: DROPS,
}


class Port(NamedTuple):
    """A fabric port, which stands for the direction from `device` to `peer`, both node numbers."""

    device: int
    number: int
    peer: int
    rate_bps: int
    peer_port: int


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
    """One byte for each interval and port, intervals one after another; in the order of `MEASURES`."""
    events: tuple[Mapping[str, Any], ...]
    """What broke, as lines of the journal."""
    steps: tuple[tuple[int, ...], ...]
    """Rows of job, rank, step, begin, end, computing and waits by reason, in ps."""
    collectives: tuple[Mapping[str, str], ...]
    """Rows of `collectives.csv`."""

    def row(self, measure: int, port: int) -> bytes:
        """A measure of one port, by interval."""
        return self.measures[measure][port :: len(self.ports)]


def read_recording(path: Path) -> Recording:
    """The run in a directory. UsageError if it is none."""
    if not path.is_dir():
        raise UsageError(f"{path}: not a directory; accepted: the directory of a run that `emu run` wrote")
    summary = load_summary(path)
    run = stored_run(path)
    topology = build_topology(run.scenario)
    ports = fabric_ports(topology)
    edges_ps, measures = _read(path / "samples.jsonl", ports)
    return Recording(
        path,
        summary,
        run.scenario,
        topology,
        ports,
        edges_ps,
        measures,
        tuple(run.breaking(topology)),
        tuple(_steps(path / "shown.jsonl")),
        tuple(_rows(path / "collectives.csv")),
    )


def fabric_ports(topology: Topology) -> tuple[Port, ...]:
    """Every fabric port, by device and number."""
    return tuple(
        Port(node.number, number, end.peer, end.rate_bps, end.peer_port)
        for node in topology.nodes
        for number, end in enumerate(topology.ports(node.number))
        if end.kind == FABRIC
    )


class Figures:
    """The figures of a run's ports, interval after interval; an interval is made of samples, in order."""

    def __init__(self, ports: Sequence[Port], reader: SampleReader) -> None:
        self._ports = ports
        number = {(port.device, port.number): at for at, port in enumerate(ports)}
        opposite = [number[port.peer, port.peer_port] for port in ports]
        self._port_of: dict[str, list[int]] = {}
        for metric in ROLES:
            found = self._port_of[metric] = []
            for device, place in reader.counters(metric):
                one = reader.series[device][place]
                port = number.get((device, one.port), -1)
                came = metric == DROPPED and one.reason not in DROPPED_LEAVING
                found.append(opposite[port] if came and port >= 0 else port)
        self._peaks = {metric: [0] * len(rows) for metric, rows in self._port_of.items()}
        """Of each counter of a peak, how deep its queue ever was, in bytes."""
        self._queues = [0] * (len(ports) + 1)
        """Bytes that wait at each port; the last is of ports that are no fabric ports."""
        self._waiting = bytearray(len(ports) + 1)
        """The same as figures."""
        self._carried: tuple[int, list[int]] = (0, [])
        """Of a span of time the bytes that each port can send in it."""

    def interval(self, samples: Sequence[Mapping[str, Column]], span_ps: int) -> tuple[bytes, ...]:
        """One byte for each port, of each measure."""
        found = [bytearray(len(self._ports) + 1) for _ in MEASURES]
        sent: dict[int, int] = {}
        deepest: dict[int, int] = {}
        for metric, measure in ROLES.items():
            moved = [one[metric] for one in samples if metric in one]
            if measure == PAUSED:
                self._most_paused(metric, moved, span_ps, found[PAUSED])
            elif measure == QUEUE:
                self._wait(metric, moved)
            elif measure == PEAK:
                self._deepen(metric, moved, deepest)
            else:
                grown = _by_port(self._port_of[metric], moved)
                if measure == UTILISATION:
                    sent = grown
                else:
                    for port, frames in grown.items():
                        found[DROPS][port] = min(round(DROP_STEPS * log2(1 + frames)), 255)
        shares, carried = found[UTILISATION], self._carries(span_ps)
        for port, sent_bytes in sent.items():
            share = -(-SHARE * sent_bytes // carried[port])
            shares[port] = min(SHARE, share)
        found[QUEUE] = bytearray(self._waiting)
        for port, depth_bytes in deepest.items():
            found[QUEUE][port] = max(found[QUEUE][port], bisect_right(_DEPTHS, depth_bytes))
        return tuple(bytes(one[:-1]) for one in found)

    def _carries(self, span_ps: int) -> list[int]:
        if self._carried[0] != span_ps:
            each = {port.rate_bps: max(port.rate_bps * span_ps // (8 * 10**12), 1) for port in self._ports}
            self._carried = span_ps, [*(each[port.rate_bps] for port in self._ports), 1]
        return self._carried[1]

    def _wait(self, metric: str, moved: Sequence[Column]) -> None:
        """Bring the queues to where an interval leaves them."""
        queues, port_of = self._queues, self._port_of[metric]
        for rows, more in moved:
            for row, by in zip(rows, more, strict=True):
                queues[port_of[row]] += by
        for rows, _ in moved:
            for row in rows:
                port = port_of[row]
                self._waiting[port] = bisect_right(_DEPTHS, queues[port])

    def _deepen(self, metric: str, moved: Sequence[Column], into: dict[int, int]) -> None:
        """By port, the depth of the queue of one class that was deeper than ever before."""
        peaks, port_of = self._peaks[metric], self._port_of[metric]
        for rows, more in moved:
            for row, by in zip(rows, more, strict=True):
                peaks[row] += by
                into[port_of[row]] = max(into.get(port_of[row], 0), peaks[row])

    def _most_paused(self, metric: str, moved: Sequence[Column], span_ps: int, into: bytearray) -> None:
        """For what share the class was paused that was paused longest, of each port."""
        for row, paused_ps in _by_port(range(len(self._port_of[metric])), moved).items():
            port = self._port_of[metric][row]
            into[port] = max(into[port], min(-(-SHARE * paused_ps // span_ps), SHARE))


def _by_port(port_of: Sequence[int], moved: Sequence[Column]) -> dict[int, int]:
    """By how much the counters grew, those of one port together."""
    found: dict[int, int] = {}
    for rows, more in moved:
        for row, by in zip(rows, more, strict=True):
            port = port_of[row]
            found[port] = found.get(port, 0) + by
    return found


def _read(file: Path, ports: Sequence[Port]) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Edges of the intervals, and each measure. A run that recorded nothing has none."""
    if not file.exists():
        return (0,), (b"",) * len(MEASURES)
    reader = SampleReader(file)
    times_ps = reader.times_ps()
    stride = max(-(-len(times_ps) // MOST_INTERVALS), 1)
    figures, edges_ps = Figures(ports, reader), [0]
    intervals: list[tuple[bytes, ...]] = []
    for some in batched(reader.grown(ROLES), stride):
        before_ps, now_ps = edges_ps[-1], some[-1][0]
        intervals.append(figures.interval([grown for _, grown in some], max(now_ps - before_ps, 1)))
        edges_ps.append(now_ps)
    return tuple(edges_ps), tuple(b"".join(one[at] for one in intervals) for at in range(len(MEASURES)))


_DEPTHS: Final = [ceil(QUEUE_UNIT_BYTES * (2 ** ((at + 0.5) / QUEUE_STEPS) - 1)) for at in range(255)]
"""From how many bytes on a queue has each figure but 0."""


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
