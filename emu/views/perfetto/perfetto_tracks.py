"""The timeline of a run: what its directory says happened, as tracks of Perfetto.

    Jobs / JOB            operations of `collectives.csv`
    Faults / FAULT        scripted and injected live
    Ranks / JOB rank N    operations or steps, calls by group, computing by stream and the parts of it that a
                          program names, slices by channel, their waits for clear-to-sends
    NICs / NIC            packets sent again; below, each port
    Switches / SWITCH     each port
    ... / port N to PEER  pauses by class; the rate at which it sent, its queue, its drops

Operations, faults, rates, queues and drops are of every run. The rest is the event log's (`run.event_log`).
What had not ended when the run did ends there, with `open` among its arguments.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from actors.fabric.model import Role, Topology
from actors.kernel.counters import PORT_DROPPED_FRAMES, PORT_TRANSMIT_BYTES, QUEUE_BYTES, VOQ_BYTES
from actors.kernel.event_log import CALLED, COMPUTED, COPIED, GRANTED, OPERATED, PAUSED, RESENT
from actors.ncclx.operations import announced
from actors.ncclx.transport.channel import RECEIVES, REDUCES, SENDS
from emu.base.errors import UsageError
from emu.base.units import format_size
from emu.results.summary import Summary
from emu.run_directory.comparison import load_summary
from emu.run_directory.sample_rows import fits, recorded
from emu.run_directory.samples import SampleReader
from emu.views.perfetto.perfetto import Slice, Tracks

SHOWN: Final = {
    PORT_TRANSMIT_BYTES: "rate",
    QUEUE_BYTES: "queue",
    VOQ_BYTES: "queue",
    PORT_DROPPED_FRAMES: "dropped",
}
"""Counter of a port's track by metric."""
Event = Sequence[int]
Parts = Mapping[int, Sequence[Sequence[tuple[str, int]]]]
"""By stream of a rank, the parts of each period of computing in a step: their names and lengths."""


def timeline(
    run: Path,
    topology: Topology,
    broken: Iterable[Mapping[str, Any]],
    names: Sequence[str],
    devices: Sequence[str] = (),
    stretch: int = 1,
    parts: Callable[[int, int], Parts] | None = None,
) -> Iterator[bytes]:
    """A trace file, piece by piece, of a run on `topology`. `broken` are the lines of a journal that say what
    broke, `names` those of all jobs by number (an operator's own behind the scenario's), `devices` patterns
    of the switches and NICs to show; none means all. `parts` has what the computing of a rank (job and rank)
    consists of.

    Raises UsageError for what is no run.
    """
    summary = load_summary(run)
    logs, missing = _logs(run / "timeline.jsonl")
    tracks = Tracks(stretch)
    yield from _jobs(run, tracks)
    yield from _faults(broken, tracks, summary.virtual_ps)
    yield from _ranks(run, tracks, summary, names, logs, missing, parts)
    nics = {topology.nodes[one].name for one in topology.nics if topology.nodes[one].role is Role.NIC}
    yield from _devices(run, tracks, nics, summary.virtual_ps, logs, devices)


def _jobs(run: Path, tracks: Tracks) -> Iterator[bytes]:
    by_job: dict[str, list[Slice]] = {}
    with _opened(run / "collectives.csv") as lines:
        for row in csv.DictReader(lines):
            if row["start_ps"] and row["end_ps"]:
                name = f"{row['op']} {format_size(int(row['bytes']))}"
                facts = {key: row[key] for key in ("algorithm", "communicator", "iteration", "status")}
                span = (int(row["start_ps"]), int(row["end_ps"]))
                by_job.setdefault(row["job"], []).append(Slice(name, *span, facts))
    if by_job:
        number, described = tracks.track("Jobs")
        yield described
        for job, slices in by_job.items():
            yield from tracks.slices(job, number, slices)


def _opened(file: Path) -> TextIO:
    """A file of the run. Raises UsageError that names it, since the output is being written meanwhile."""
    try:
        return file.open(encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; accepted: the whole directory of a run") from None


def _faults(broken: Iterable[Mapping[str, Any]], tracks: Tracks, end_ps: int) -> Iterator[bytes]:
    by_fault: dict[int, list[Slice]] = {}
    for entry in broken:
        if entry["kind"] == "fault":
            name = f"{entry['what']} {entry['target']}"
            one = _until(name, entry["virtual_ps"], entry["until_ps"], end_ps)
            by_fault.setdefault(entry["fault"], []).append(one)
    if by_fault:
        number, described = tracks.track("Faults")
        yield described
        for fault, slices in sorted(by_fault.items()):
            yield from tracks.slices(f"fault {fault}", number, slices)


def _until(
    name: str, begin_ps: int, until_ps: int | None, end_ps: int, facts: Mapping[str, int | str] | None = None
) -> Slice:
    """A slice that may last longer than the run."""
    if until_ps is None or until_ps < 0 or until_ps > end_ps:
        return Slice(name, begin_ps, max(begin_ps, end_ps), {**(facts or {}), "open": 1})
    return Slice(name, begin_ps, until_ps, facts or {})


def _logs(file: Path) -> tuple[dict[str, list[Event]], set[str]]:
    """By device, its events, and the devices that have noted more; none of a run without an event log."""
    if not file.exists():
        return {}, set()
    with file.open(encoding="ascii") as lines:
        logs = [json.loads(line) for line in lines]
    return {one["name"]: one["events"] for one in logs}, {one["name"] for one in logs if one["missed"]}


def _ranks(
    run: Path,
    tracks: Tracks,
    summary: Summary,
    names: Sequence[str],
    logs: Mapping[str, Sequence[Event]],
    missing: Collection[str],
    parts: Callable[[int, int], Parts] | None,
) -> Iterator[bytes]:
    """What hosts noted of their ranks; without an event log the steps of training."""
    found: dict[tuple[int, int], dict[str, list[Slice]]] = {}
    whole: set[tuple[int, int]] = set()
    """Ranks of hosts whose log has everything."""
    for device, events in logs.items():
        for event in events:
            if event[0] in RANKS:
                if device not in missing:
                    whole.add((event[1], event[2]))
                name, one = _of_rank(event, summary.virtual_ps)
                found.setdefault((event[1], event[2]), {}).setdefault(name, []).append(one)
    if not logs:
        with _opened(run / "shown.jsonl") as lines:
            for shown in map(json.loads, lines):
                for job, rank, step, begin_ps, end_ps, *_ in shown["tables"].get("steps", ()):
                    one = Slice(f"step {step}", begin_ps, end_ps)
                    found.setdefault((job, rank), {}).setdefault("operations", []).append(one)
    if not found:
        return
    top, described = tracks.track("Ranks")
    yield described
    for (job, rank), by_track in sorted(found.items()):
        number, described = tracks.track(f"{names[job]} rank {rank}", top)
        yield described
        if parts is not None and (job, rank) in whole:
            for stream, periods in parts(job, rank).items():
                computed = by_track.get(f"computing, stream {stream}", ())
                by_track[f"modules, stream {stream}"] = list(nested(computed, periods))
        for name, slices in sorted(by_track.items(), key=lambda one: (_ORDER.index(one[0].split()[0]), one)):
            yield from tracks.slices(name, number, slices)


RANKS: Final = frozenset(map(int, (OPERATED, CALLED, COPIED, GRANTED, COMPUTED)))
_ORDER: Final = ("operations", "modules,", "calls", "computing,", "slices,", "waits")


def nested(computed: Sequence[Slice], periods: Sequence[Sequence[tuple[str, int]]]) -> Iterator[Slice]:
    """Slices for the parts of a stream's periods of computing, those of each step in turn.

    Words between the dots of a name nest. A slice reaches from the first part with its words to the last one
    after it without a part of another name between, over what the stream waited for in the meantime. There
    are none where the periods are not those of whole steps: a run that ended in a step, or a GPU whose pace
    changed while it computed.
    """
    if not periods or len(computed) % len(periods):
        return
    begun: list[tuple[str, int]] = []
    last_ps = 0
    found: list[Slice] = []
    for number, period in enumerate(computed):
        if not number % len(periods):
            found += _closed(begun, 0, last_ps)
        parts = periods[number % len(periods)] or [("", 1)]
        whole, done, begin_ps = sum(length for _, length in parts), 0, period.begin_ps
        for name, length in parts:
            words = name.split(".") if name else []
            same = 0
            while same < min(len(words), len(begun)) and begun[same][0] == words[same]:
                same += 1
            found += _closed(begun, same, last_ps)
            begun += [(word, begin_ps) for word in words[same:]]
            done += length
            begin_ps = last_ps = period.begin_ps + (period.end_ps - period.begin_ps) * done // whole
    found += _closed(begun, 0, last_ps)
    yield from sorted(found, key=lambda one: one.arguments["depth"])  # outer ones first


def _closed(begun: list[tuple[str, int]], depth: int, end_ps: int) -> list[Slice]:
    """End the slices that began at a depth and below; outermost first."""
    closed = [
        Slice(name, begin_ps, end_ps, {"depth": at, "path": ".".join(word for word, _ in begun[: at + 1])})
        for at, (name, begin_ps) in enumerate(begun)
        if at >= depth
    ]
    del begun[depth:]
    return closed


def _of_rank(event: Event, run_end_ps: int) -> tuple[str, Slice]:
    """The track and the slice of what a host noted."""
    kind, _, _, b, c, d, begin_ps, end_ps = event
    if kind == OPERATED:
        return "operations", _until(f"operation {b}", begin_ps, end_ps, run_end_ps)
    if kind == CALLED:
        return f"calls of group {b}", Slice(announced(d).op, begin_ps, end_ps, {"call": c})
    if kind == COMPUTED:
        return f"computing, stream {b}", Slice("compute", begin_ps, end_ps)
    if kind == GRANTED:
        name = f"clear-to-send from rank {c}"
        return f"waits of channel {b}", _until(name, begin_ps, end_ps, run_end_ps, {"slice": d})
    words = {RECEIVES: "receive", REDUCES: "reduce", SENDS: "send"}
    name = " ".join(word for bit, word in words.items() if c & bit) or "copy"
    return f"slices, channel {b}", Slice(name, begin_ps, end_ps, {"bytes": d})


def _devices(
    run: Path,
    tracks: Tracks,
    nics: Collection[str],
    end_ps: int,
    logs: Mapping[str, Sequence[Event]],
    patterns: Sequence[str],
) -> Iterator[bytes]:
    """NICs and switches, by port: pauses and packets sent again, rates and queues."""
    ports: dict[str, list[dict[str, str]]] = {}
    with _opened(run / "ports.csv") as lines:
        for row in csv.DictReader(lines):
            if fits(row["device"], patterns):
                ports.setdefault(row["device"], []).append(row)
    if patterns and not ports:
        raise UsageError(
            f"--device {' '.join(patterns)}: fits no switch and no NIC of {run} that did anything"
        )
    names, reader = recorded(run)
    counters = _counters(names, reader, ports)
    for top in ("NICs", "Switches"):
        shown = [one for one in ports.items() if (one[0] in nics) == (top == "NICs")]
        if shown:
            parent, described = tracks.track(top)
            yield described
            for device, rows in shown:
                yield from _device(tracks, parent, device, rows, logs.get(device, ()), counters, end_ps)


def _device(
    tracks: Tracks,
    parent: int,
    device: str,
    rows: Sequence[Mapping[str, str]],
    events: Sequence[Event],
    counters: Mapping[Counter, Sequence[tuple[int, float]]],
    end_ps: int,
) -> Iterator[bytes]:
    """One NIC or switch, and its ports."""
    number, described = tracks.track(device, parent)
    yield described
    again: dict[int, list[Slice]] = {}
    pauses: dict[tuple[int, int], list[Slice]] = {}
    for kind, port, _, b, c, d, begin_ps, until_ps in events:
        if kind == RESENT:
            packets = {"first_psn": c, "packets": d - c}
            again.setdefault(b, []).append(Slice("sent again", begin_ps, until_ps, packets))
        else:
            assert kind == PAUSED, kind
            pauses.setdefault((port, b), []).append(_until("paused", begin_ps, until_ps, end_ps))
    for qpn, slices in sorted(again.items()):
        yield from tracks.slices(f"queue pair {qpn}", number, slices)
    for row in rows:
        port = int(row["port"])
        below, described = tracks.track(f"port {port} to {row['peer']}", number)
        yield described
        for (at, priority), slices in sorted(pauses.items()):
            if at == port:
                yield from tracks.slices(f"pauses of class {priority}", below, slices)
        for name, unit in (("rate", "Gbit/s"), ("queue", "B"), ("dropped", "frames")):
            values = counters.get((device, port, name))
            if values:
                yield from tracks.counter(name, below, unit, values)


Counter = tuple[str, int, str]
"""Device, port, and a name of `SHOWN`."""


def _counters(
    names: Mapping[int, str], reader: SampleReader, ports: Mapping[str, Any]
) -> dict[Counter, list[tuple[int, float]]]:
    """What each port sent in each interval, from its beginning on, and at samples its queues and the frames
    dropped so far; only where it changes. A port without traffic has none."""
    totals: dict[Counter, int] = {}
    found: dict[Counter, list[tuple[int, float]]] = {}
    before_ps = 0
    for at_ps, moved in _moves(names, reader, ports):
        for counter, values in found.items():
            if counter[2] == "rate" and counter not in moved and values[-1][1] > 0:
                values.append((before_ps, 0.0))
        for counter, grown in moved.items():
            values = found.setdefault(counter, [])
            if counter[2] != "rate":
                totals[counter] = totals.get(counter, 0) + grown
                values.append((at_ps, totals[counter]))
            elif at_ps > before_ps:
                values.append((before_ps, grown * 8000 / (at_ps - before_ps)))
        before_ps = at_ps
    for counter, values in found.items():
        if counter[2] == "rate" and values and values[-1][1] > 0:
            values.append((before_ps, 0.0))
    return found


def _moves(
    names: Mapping[int, str], reader: SampleReader, ports: Mapping[str, Any]
) -> Iterator[tuple[int, dict[Counter, int]]]:
    """By sample, how much each counter grew or fell, over all classes."""
    shown: dict[str, list[Counter | None]] = {}
    for metric, name in SHOWN.items():
        shown[metric] = []
        for number, place in reader.counters(metric):
            port = reader.series[number][place].port
            there = names.get(number) in ports and port >= 0
            shown[metric].append((names[number], port, name) if there else None)
    for at_ps, grown in reader.grown(shown):
        moved: dict[Counter, int] = {}
        for key, (rows, more) in grown.items():
            for row, by in zip(rows, more, strict=True):
                counter = shown[key][row]
                if counter is not None:
                    moved[counter] = moved.get(counter, 0) + by
        yield at_ps, moved
