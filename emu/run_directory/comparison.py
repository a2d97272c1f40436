"""Comparison of two runs: the same answer, or where they part.

Two runs of one scenario and seed must have one digest, whatever they ran on. Where they do not, the mixes of
every port of every device at every sampled sync point say where something else happened first: at the first
sync point where any mix differs, whatever differs went its own way since the sync point before, and the
device with the lowest number is named with the first of its ports (the other devices are counted). A finer
answer needs a smaller `run.sample_every`.

Runs of different scenarios are compared too: by their main numbers, side by side.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from math import log
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from emu.base.errors import UsageError
from emu.base.records import MistakesError
from emu.base.units import about_bandwidth, about_size, about_time, distinct_texts, percent
from emu.counts.digest import OTHER_RELEASE
from emu.results.summary import SCHEMA_VERSION, Job, Summary
from emu.run_directory.samples import Digests, Mixes, read_digests

MOST_SCENARIO_LINES: Final = 12
LONGEST_VALUE: Final = 60
NEAR_EQUAL: Final = 0.001
"""Two runs whose ends differ by a smaller share end together."""
TELLING: Final = 0.05
"""By how much the rate of an operation must differ to be in the first line."""
NOT_THERE: Final = object()
"""What a key has in a scenario that does not have the key."""


class Run(NamedTuple):
    """One run, read back. Without a directory there are no mixes and no scenario."""

    path: Path
    summary: Summary
    devices: tuple[tuple[int, str], ...] = ()
    points: tuple[Mixes, ...] = ()
    scenario_text: str = ""


class Parting(NamedTuple):
    """Where two runs part. `device` is None where no sampled sync point shows it, `port` where what differs
    concerns no port."""

    device: str | None
    port: int | None
    others: int
    """How many devices differ besides."""
    after_ps: int
    """The last sync point at which all devices agree."""
    at_ps: int | None
    """The first at which one does not; None if the samples end before."""


def load_summary(path: Path) -> Summary:
    """The summary of a run directory, or of a `summary.json` alone. UsageError if it is neither."""
    file = path / "summary.json" if path.is_dir() else path
    try:
        plain = json.loads(file.read_text("utf-8"))
        if isinstance(plain, dict) and plain.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
            raise UsageError(f"{file}: {OTHER_RELEASE}")
        return Summary.model_validate(plain)
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}; accepted: a run directory or its summary.json"
        ) from error
    except ValueError as error:
        where = error.mistakes[0].location if isinstance(error, MistakesError) else error
        raise UsageError(f"{file}: not the summary of a run ({where})") from error


def load_run(path: Path) -> Run:
    """A run directory, or a `summary.json` alone. UsageError if it is neither."""
    summary = load_summary(path)
    if not path.is_dir():
        return Run(path, summary)
    digests, scenario = path / "digests.jsonl", path / "scenario.yaml"
    devices, points = read_digests(digests) if digests.exists() else Digests([], [])
    text = scenario.read_text("utf-8") if scenario.exists() else ""
    return Run(path, summary, tuple(devices), tuple(points), text)


def parting(one: Run, other: Run) -> Parting | None:
    """Where two runs part; None if their digests are equal (and there is one)."""
    if one.summary.digest and one.summary.digest == other.summary.digest:
        return None
    agreed_ps = 0
    if one.devices == other.devices:
        for virtual_ps, different in _differences(one.points, other.points):
            if different:
                device, place = different[0]
                others = len(dict.fromkeys([number for number, _ in different])) - 1
                port = place - 1 if place else None
                return Parting(dict(one.devices)[device], port, others, agreed_ps, virtual_ps)
            agreed_ps = virtual_ps
    return Parting(None, None, 0, agreed_ps, None)


def _differences(
    ours: Sequence[Mixes], theirs: Sequence[Mixes]
) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Each sync point that both have, and where mixes differ there: device and place, in order. Until one
    differs only what changed since the one before can."""
    mine: dict[tuple[int, int], int] = {}
    its: dict[tuple[int, int], int] = {}
    changed: dict[tuple[int, int], None] = {}
    behind = iter(theirs)
    ahead = next(behind, None)
    for point in ours:
        mine.update(point.mixed)
        changed.update(dict.fromkeys(point.mixed))
        reached_ps = -1
        while ahead is not None and ahead.virtual_ps <= point.virtual_ps:
            its.update(ahead.mixed)
            changed.update(dict.fromkeys(ahead.mixed))
            reached_ps = ahead.virtual_ps
            ahead = next(behind, None)
        if reached_ps == point.virtual_ps:
            yield point.virtual_ps, sorted(at for at in changed if mine.get(at, 0) != its.get(at, 0))
            changed.clear()


def scenario_difference(one: Run, other: Run) -> list[str]:
    """The keys in which the effective scenarios differ, dotted, with both values."""
    if not one.scenario_text or not other.scenario_text or one.scenario_text == other.scenario_text:
        return []
    return list(_changes("", yaml.safe_load(one.scenario_text), yaml.safe_load(other.scenario_text)))


def _changes(key: str, one: Any, other: Any) -> Iterator[str]:
    """What differs below a key; lists of one length are compared entry by entry, others as a whole."""
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*one, *other)):
            inner = f"{key}.{name}" if key else str(name)
            yield from _changes(inner, one.get(name, NOT_THERE), other.get(name, NOT_THERE))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (mine, its) in enumerate(zip(one, other, strict=True)):
            yield from _changes(f"{key}[{place}]", mine, its)
    else:
        yield f"{key}: {_value(one)} -> {_value(other)}"


def _value(value: Any) -> str:
    """As YAML writes it on one line, the middle left out where that is long."""
    if value is NOT_THERE:
        return "not there"
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    text = text.removesuffix("...\n").strip()
    half = LONGEST_VALUE // 2
    return text if len(text) <= LONGEST_VALUE else f"{text[:half]} ... {text[-half:]}"


class Number(NamedTuple):
    """One line of the table of main numbers."""

    name: str
    one: float | None
    other: float | None
    show: Callable[[Any], str]

    @property
    def ratio(self) -> float | None:
        """The second over the first."""
        return self.other / self.one if self.one and self.other is not None else None


def _plain(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _seconds(value: float) -> str:
    return f"{value:.2f}s"


def _of_job(name: str, job: Job) -> Iterator[tuple[str, float | None, Callable[[Any], str]]]:
    by_size: dict[tuple[str, int], list[int]] = {}
    for collective in job.collectives:
        if collective.busbw is not None:
            by_size.setdefault((collective.op, collective.bytes), []).append(collective.busbw)
    for (op, size_bytes), rates in by_size.items():
        yield f"{name}: {op} {about_size(size_bytes)} busbw", sum(rates) // len(rates), about_bandwidth
    delivered = [flow.delivered_ps for flow in job.flows if flow.delivered_ps is not None]
    if job.flows:
        yield f"{name}: last flow delivered", max(delivered, default=None), about_time
    yield f"{name}: end", job.end_ps, about_time


def _of_run(summary: Summary) -> Iterator[tuple[str, float | None, Callable[[Any], str]]]:
    for name, job in summary.jobs.items():
        yield from _of_job(name, job)
    fabric, engine = summary.fabric, summary.engine
    yield "virtual time", summary.virtual_ps, about_time
    drops = fabric.drops
    yield "drops", None if drops is None else drops.total, _plain
    yield "congestion drops", None if drops is None else drops.congestion, _plain
    yield "pause frames", fabric.pfc_transmit_xoff_frames, _plain
    yield "time paused", fabric.pfc_paused_ps, about_time
    yield "retransmitted frames", fabric.nic_retransmitted_frames, _plain
    yield "peak buffer", fabric.buffer_peak_bytes, about_size
    worst = [row.max_over_mean for row in fabric.uplinks if row.max_over_mean is not None]
    yield "uplinks, worst max/mean", max(worst, default=None), _plain
    packets = summary.fidelity == "packet"
    yield "events", engine.events if packets else None, _plain
    yield "packet-hops", engine.packet_hops if packets else None, _plain
    yield "windows", engine.windows if packets else None, _plain
    yield "rates worked out", engine.solves, _plain
    yield "workers", engine.workers, _plain
    yield "wall time", engine.wall_s, _seconds
    yield "CPU time", engine.cpu_s, _seconds
    yield "peak memory", engine.peak_rss_bytes, about_size


def main_numbers(one: Summary, other: Summary) -> list[Number]:
    """The main numbers side by side: those of the first run in its order, then what only the second has."""
    firsts = {name: (value, show) for name, value, show in _of_run(one)}
    seconds = {name: (value, show) for name, value, show in _of_run(other)}
    names = [*firsts, *(name for name in seconds if name not in firsts)]
    rows: list[Number] = []
    for name in names:
        show = (firsts.get(name) or seconds[name])[1]
        mine, its = firsts.get(name), seconds.get(name)
        rows.append(Number(name, mine[0] if mine else None, its[0] if its else None, show))
    return rows


def headline(one: Summary, other: Summary) -> str:
    """Which of two runs, A and B, ends sooner and by how much, and whose operation changed most."""
    parts: list[str] = []
    ends = [max((job.end_ps or 0 for job in run.jobs.values()), default=0) for run in (one, other)]
    if all(ends):
        ratio = ends[1] / ends[0]
        how = f"B ends {percent(abs(ratio - 1))} {'sooner' if ratio < 1 else 'later'}"
        if max(ratio, 1 / ratio) >= 2:
            how = f"{'B' if ratio > 1 else 'A'} takes {max(ratio, 1 / ratio):.3g} times as long"
        elif abs(ratio - 1) < NEAR_EQUAL:
            how = "A and B end together"
        parts.append(how)
    rates = [row for row in main_numbers(one, other) if row.name.endswith(" busbw") and row.ratio]
    if rates:
        most = max(rates, key=lambda row: abs(log(row.ratio or 1)))
        if most.ratio is not None and abs(most.ratio - 1) >= TELLING:
            parts.append(f"{most.name} {most.ratio:.3g} times A's")
    return "; ".join(parts) or "A and B differ"


def parting_lines(one: Run, other: Run) -> list[str]:
    """What to tell of two runs before the table: the first line says which is faster."""
    found = parting(one, other)
    if found is None:
        return [f"same answer: digest {one.summary.digest}"]
    lines = [headline(one.summary, other.summary)]
    lines += [
        f"  {run.path}: digest {run.summary.digest or 'none, the run is partial'}" for run in (one, other)
    ]
    difference = scenario_difference(one, other)
    shown: Sequence[str] = difference[:MOST_SCENARIO_LINES]
    if difference:
        lines.append("the scenarios differ:")
        lines += [f"  {line}" for line in shown]
        if len(difference) > len(shown):
            lines.append(f"  and {len(difference) - len(shown)} more keys")
    if found.device is not None and found.at_ps is not None:
        others = f", and {found.others} more devices" if found.others else ""
        where = found.device if found.port is None else f"{found.device} port {found.port}"
        after, at = distinct_texts([found.after_ps, found.at_ps])
        lines.append(f"first to differ: {where}, between the sync points {after} and {at}{others}")
    elif not one.points or not other.points:
        lines.append("where they part cannot be said: no mixes (digests.jsonl) of both runs")
    elif one.devices != other.devices:
        lines.append("where they part cannot be said: they have different devices")
    else:
        lines.append(
            f"all devices agree up to the sync point {about_time(found.after_ps)}, the last both have"
        )
    return lines
