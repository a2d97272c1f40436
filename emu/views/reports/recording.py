"""What a run directory recorded, by port and interval of time.

The samples of a run are counters at its sync points (`run.sample_every`). Between two of them lies an
interval; of each fabric port, in its sending direction, an interval has four figures, each in one byte:

    utilisation   bytes sent, preamble and gap included, over what the rate in force carries: 1/250
    paused        share of time for which its peer paused the class paused longest, or for which it waited
                  for credit: 1/250
    queue         bytes of the egress queue, or of the virtual output queues towards it, at the interval's
                  end, or within it where they are more than ever before: 14 log2(1 + bytes / 256)
    drops         frames dropped in this direction: 16 log2(1 + frames). A port counts most reasons of frames
                  that come in, which are those of its peer's direction

Logarithms keep 5 % between one byte of a packet and a whole buffer. Runs with more than `MOST_INTERVALS`
samples are reported in so many intervals, each of several samples.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
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
from actors.wire.fault import RATE
from emu.base.errors import UsageError
from emu.results.metrics import DROPPED_LEAVING
from emu.results.summary import Summary
from emu.run_directory.comparison import load_summary
from emu.run_directory.sample_rows import batched
from emu.run_directory.samples import Column, SampleReader
from emu.scenario.faults.events import Fault, spans_of
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


class Slowed(NamedTuple):
    """A port sends at another rate than its own, by a fault."""

    begin_ps: int
    end_ps: int
    """NEVER_PS where it lasts."""
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
    """One byte for each interval and port, intervals one after another; in the order of `MEASURES`."""
    events: tuple[Mapping[str, Any], ...]
    """What broke, as lines of the journal."""
    faults: tuple[Fault, ...]
    """Every occurrence of what broke, with its parts."""
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
    ports, faults = fabric_ports(topology), run.faults(topology)
    edges_ps, measures = _read(path / "samples.jsonl", ports, slowed_ports(ports, faults))
    return Recording(
        path,
        summary,
        run.scenario,
        topology,
        ports,
        edges_ps,
        measures,
        tuple(run.breaking(topology)),
        faults,
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


def slowed_ports(ports: Sequence[Port], faults: Sequence[Fault]) -> dict[int, list[Slowed]]:
    """By index of a port, when faults have it send at another rate, in the order in which they begin."""
    number = {(port.device, port.number): at for at, port in enumerate(ports)}
    found: dict[int, list[Slowed]] = {}
    lasting = [fault for fault in faults if not fault.repairs]
    for fault, (begin_ps, end_ps) in sorted(
        zip(lasting, spans_of(faults), strict=True), key=lambda one: one[1]
    ):
        for change in fault.changes:
            port = number.get((change.device, change.place), -1)
            if change.op == RATE and port >= 0:
                found.setdefault(port, []).append(Slowed(begin_ps, end_ps, change.values[0]))
    return found


def carried_bytes(rate_bps: int, slowed: Sequence[Slowed], begin_ps: int, end_ps: int) -> int:
    """What a port carries in a span of time, at its own rate or at that of the fault that began last."""
    edges = {begin_ps, end_ps, *(at for one in slowed for at in one[:2] if begin_ps < at < end_ps)}
    times = sorted(edges)
    bits_ps = 0
    for since_ps, until_ps in pairwise(times):
        rates = [one.rate_bps for one in slowed if one.begin_ps <= since_ps < one.end_ps]
        bits_ps += (rates[-1] if rates else rate_bps) * (until_ps - since_ps)
    return bits_ps // (8 * 10**12)


class Figures:
    """The figures of a run's ports, interval after interval; an interval is made of samples, in order.

    `slowed` has the ports that faults have send at another rate.
    """

    def __init__(
        self,
        ports: Sequence[Port],
        reader: SampleReader,
        slowed: Mapping[int, Sequence[Slowed]],
    ) -> None:
        self._ports = ports
        self.slowed = slowed
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
        """Largest depth of each queue, in bytes, for every counter of a peak."""
        self._queues = [0] * (len(ports) + 1)
        """Bytes that wait at each port; the last is of ports that are no fabric ports."""
        self._waiting = bytearray(len(ports) + 1)
        """The same as figures."""
        self._carried: tuple[int, list[int]] = (0, [])
        """A span of time, and the bytes that each port can send in it."""

    def interval(
        self, samples: Sequence[Mapping[str, Column]], begin_ps: int, end_ps: int
    ) -> tuple[bytes, ...]:
        """One byte for each port, of each measure."""
        span_ps = max(end_ps - begin_ps, 1)
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
            most = carried[port]
            if port in self.slowed:
                most = max(carried_bytes(self._ports[port].rate_bps, self.slowed[port], begin_ps, end_ps), 1)
            share = -(-SHARE * sent_bytes // most)
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


def _read(
    file: Path, ports: Sequence[Port], slowed: Mapping[int, Sequence[Slowed]]
) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Edges of the intervals, and each measure. A run that recorded nothing has none."""
    if not file.exists():
        return (0,), (b"",) * len(MEASURES)
    reader = SampleReader(file)
    times_ps = reader.times_ps()
    stride = max(-(-len(times_ps) // MOST_INTERVALS), 1)
    figures, edges_ps = Figures(ports, reader, slowed), [0]
    intervals: list[tuple[bytes, ...]] = []
    for some in batched(reader.grown(ROLES), stride):
        before_ps, now_ps = edges_ps[-1], some[-1][0]
        intervals.append(figures.interval([grown for _, grown in some], before_ps, now_ps))
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
