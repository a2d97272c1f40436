"""`emu top`: a run as it is now: jobs, busiest and paused ports, faults, and the verdict so far.

Of a run that goes on it reads the workers' metrics pages, so a look costs the run one scrape and needs
nothing of it that is not served anyway; shares are those of the virtual time between two looks. Of a run that
is over it reads the summary.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from actors.fabric.model import FABRIC, Topology
from actors.kernel.counters import (
    NIC_RETRANSMITTED_FRAMES,
    PFC_PAUSED_PS,
    PORT_DROPPED_FRAMES,
    PORT_TRANSMIT_BYTES,
    PORT_TRANSMIT_WAIT_PS,
)
from actors.kernel.units import BIT_PS_PER_BYTE, PS_PER_S
from emu.base.errors import RuntimeFailure, UsageError
from emu.base.units import about_bandwidth, about_time, aligned, counted, percent, shown_time
from emu.results.metrics import METRIC_OF
from emu.results.summary import Summary
from emu.run_directory.comparison import load_summary
from emu.scenario.load import load
from emu.scenario.resolve import build_topology
from emu.summary.summary_report import (
    busiest_links,
    diagnosis_lines,
    expectation_line,
    fabric_line,
    fault_lines,
    most_paused_links,
    so_far,
)
from emu.terminal.columns import columns, wrapped
from emu.terminal.scenario_options import reading

MOST_PORTS: Final = 6
MOST_JOBS: Final = 12
ANSWER_S: Final = 5.0
"""How long a page may take."""
SILENCE_S: Final = 15.0
"""How long a run may neither answer nor have a summary: it may be writing it."""
STILL_S: Final = 10.0
"""How long a run may show the same time before it is said to stand still: a busy one may answer late."""
_NAMES: Final = {
    METRIC_OF[key].name: key
    for key in (
        "virtual_ps",
        PORT_TRANSMIT_BYTES,
        PFC_PAUSED_PS,
        PORT_TRANSMIT_WAIT_PS,
        PORT_DROPPED_FRAMES,
        NIC_RETRANSMITTED_FRAMES,
        "job_operations",
        "job_running",
        "job_failed",
        "job_step_time_ps",
        "collective_bus_bandwidth_bytes_per_second",
        "faults",
        "faults_active",
        "operator_working",
        "operator_notices",
        "operator_reported",
        "operator_restarts",
        "operator_checkpoint_step",
        "operator_goodput_ppm",
        "operator_remapped_rows",
    )
}
_LINE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Labels = dict[str, str]
PortName = tuple[str, int]


@dataclass(slots=True)
class Look:
    """What the pages of a run said at one time."""

    virtual_ps: int = 0
    sent_bytes: dict[PortName, float] = field(default_factory=dict)
    paused_s: dict[PortName, float] = field(default_factory=dict)
    """How long the class paused longest was, or the wait for credit."""
    dropped: dict[str, float] = field(default_factory=dict)
    """By reason."""
    retransmitted: float = 0.0
    operations: dict[str, int] = field(default_factory=dict)
    running: dict[str, bool] = field(default_factory=dict)
    failed: dict[str, bool] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    """What each job did last."""
    faults: int = 0
    active: int = 0
    operator: dict[str, float] = field(default_factory=dict)
    """What the operator of a job has, by key."""
    noticed: list[str] = field(default_factory=list)
    """What it noticed and reported."""

    def add(self, page: str) -> None:
        """Take in the page of one worker."""
        virtual_ps = 0
        for key, labels, value in _series(page):
            if key == "virtual_ps":
                virtual_ps = round(value * PS_PER_S)
            elif key == PORT_TRANSMIT_BYTES:
                self.sent_bytes[_port(labels)] = value
            elif key in (PFC_PAUSED_PS, PORT_TRANSMIT_WAIT_PS):
                self.paused_s[_port(labels)] = max(self.paused_s.get(_port(labels), 0.0), value)
            elif key == PORT_DROPPED_FRAMES:
                self.dropped[labels["reason"]] = self.dropped.get(labels["reason"], 0.0) + value
            elif key == NIC_RETRANSMITTED_FRAMES:
                self.retransmitted += value
            elif key == "job_operations":
                self.operations[labels["job_name"]] = int(value)
            elif key == "job_running":
                self.running[labels["job_name"]] = bool(value)
            elif key == "job_failed":
                self.failed[labels["job_name"]] = bool(value)
            elif key == "job_step_time_ps":
                self.last[labels["job_name"]] = f"step of {about_time(round(value * PS_PER_S))}"
            elif key == "collective_bus_bandwidth_bytes_per_second":
                what = f"{labels['collective']} {labels['message_size']}"
                self.last[labels["comm_name"]] = f"{what} {about_bandwidth(round(value * 8))}"
            elif key == "faults":
                self.faults += int(value)
            elif key == "faults_active":
                self.active += int(value)
            else:
                self._add_operator(key, labels, value)
        self.virtual_ps = max(self.virtual_ps, virtual_ps)

    def _add_operator(self, key: str, labels: Labels, value: float) -> None:
        if key in ("operator_notices", "operator_reported"):
            self.noticed.append(f"{labels['host'] or labels['job_name']} {labels['rule']}")
        elif key != "operator_remapped_rows":
            self.operator[key] = value
        elif value:
            self.noticed.append(f"{labels['host']} has {int(value)} remapped rows")


def _series(page: str) -> Iterator[tuple[str, Labels, float]]:
    for line in page.splitlines():
        name = line[: line.find("{")] if "{" in line else line.partition(" ")[0]
        key = _NAMES.get(name)
        if key is not None and (found := _LINE.fullmatch(line)) is not None:
            yield key, dict(_LABEL.findall(found[2] or "")), float(found[3])


def _port(labels: Labels) -> PortName:
    return labels["device"], int(labels["port"])


def look_at(directory: Path) -> Look | None:
    """What the workers of a run say now; None if one does not answer."""
    opener = build_opener(ProxyHandler({}))
    found = Look()
    try:
        workers = json.loads((directory / "workers.json").read_text("utf-8"))["workers"]
        for worker in workers:
            if not worker["metrics_address"]:
                return None
            with opener.open(f"http://{worker['metrics_address']}/metrics", timeout=ANSWER_S) as answer:
                found.add(answer.read().decode())
    except (OSError, HTTPException, ValueError):
        return None
    return found if found.operations else None


def live_lines(name: str, topology: Topology, before: Look, now: Look, passed_s: float) -> list[str]:
    """A run that goes on; `passed_s` is the wall time between two looks."""
    passed_ps = now.virtual_ps - before.virtual_ps
    pace = (
        f"{about_time(round(passed_ps / max(passed_s, 1e-6)))} a second" if passed_ps > 0 else "stands still"
    )
    lines = [f"{name}: {about_time(now.virtual_ps)}, {pace}", ""]
    rows = [("jobs", "done", "state", "last")]
    for job, done in list(now.operations.items())[:MOST_JOBS]:
        state = "failed" if now.failed.get(job) else "running" if now.running.get(job) else "ended"
        rows.append((f"  {job}", str(done), state, now.last.get(job, "-")))
    lines += [*aligned(rows, indent=""), *_more(len(now.operations) - MOST_JOBS, "jobs"), ""]
    ports = _ports(topology, before, now, passed_ps)
    lines += _port_lines("busiest ports", sorted(ports, key=lambda row: -row[1]))
    lines += _port_lines(
        "paused ports", sorted((row for row in ports if row[2]), key=lambda row: -(row[2] or 0))
    )
    lines += [f"faults: {now.active} active of {now.faults}"] if now.faults else []
    if now.operator:
        at = "works" if now.operator["operator_working"] else "is being brought back"
        step = int(now.operator["operator_checkpoint_step"])
        goodput = percent(now.operator["operator_goodput_ppm"])
        restarts = counted(int(now.operator["operator_restarts"]), "restart")
        lines.append(f"operator: the job {at}; {restarts}, checkpoint of step {step}, goodput {goodput}")
        lines += [f"  noticed: {', '.join(now.noticed)}"] if now.noticed else []
    return [*lines, f"so far: {', '.join(_verdict(now))}"]


def _ports(topology: Topology, before: Look, now: Look, passed_ps: int) -> list[tuple[str, float, float]]:
    """Each fabric port with its utilisation and the share of time for which it was paused."""
    rows: list[tuple[str, float, float]] = []
    if passed_ps <= 0:
        return rows
    for node in topology.nodes:
        for number, end in enumerate(topology.ports(node.number)):
            place = (node.name, number)
            if end.kind != FABRIC or place not in now.sent_bytes:
                continue
            sent_bytes = now.sent_bytes[place] - before.sent_bytes.get(place, 0.0)
            paused_s = now.paused_s.get(place, 0.0) - before.paused_s.get(place, 0.0)
            busy = sent_bytes * BIT_PS_PER_BYTE / end.rate_bps / passed_ps
            name = f"{node.name} -> {topology.nodes[end.peer].name}"
            rows.append((name, min(busy, 1.0), min(paused_s * PS_PER_S / passed_ps, 1.0)))
    return rows


def _port_lines(title: str, ports: Sequence[tuple[str, float, float | None]]) -> list[str]:
    shown = [row for row in ports[:MOST_PORTS] if row[1] or row[2]]
    if not shown:
        return []
    rows = [(title, "sends", "is paused")]
    rows += [(f"  {name}", percent(busy), percent(paused)) for name, busy, paused in shown]
    return [*aligned(rows, indent=""), ""]


def _verdict(now: Look) -> list[str]:
    failed = [job for job, bad in now.failed.items() if bad]
    return so_far(
        failed, {reason: round(count) for reason, count in now.dropped.items()}, round(now.retransmitted)
    )


def finished_lines(summary: Summary) -> list[str]:
    """A run that is over."""
    lines = [f"{summary.scenario.name}: {summary.ending} after {about_time(summary.virtual_ps)}", ""]
    rows = [("jobs", "done", "state", "end")]
    for name, job in list(summary.jobs.items())[:MOST_JOBS]:
        parts = [one.status for one in job.collectives] + [one.status for one in job.flows]
        done = parts.count("success") if job.training is None else job.training.steps
        end = "-" if job.end_ps is None else shown_time(job.end_ps)
        rows.append((f"  {name}", str(done), job.status, end))
    lines += [*aligned(rows, indent=""), *_more(len(summary.jobs) - MOST_JOBS, "jobs"), ""]
    links = summary.fabric.links
    for title, chosen in (
        ("busiest ports", busiest_links(links)),
        ("paused ports", most_paused_links(links)),
    ):
        lines += _port_lines(
            title,
            [(f"{one.source} -> {one.destination}", one.utilisation, one.paused) for one in chosen],
        )
    lines += [fabric_line(summary.fabric), *fault_lines(summary.faults)]
    lines += [*diagnosis_lines(summary.diagnosis)[:1], *diagnosis_lines([], summary.uncompared_events)]
    return [*lines, *(expectation_line(one) for one in summary.expectations if not one.passed)]


def _more(count: int, noun: str) -> list[str]:
    return [f"  and {counted(count, noun.removesuffix('s'))} more"] if count > 0 else []


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--every", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print what is now, and end; so it is where nobody looks.")
@reading
def command(run: Path, every: float, once: bool) -> int:
    """Show the run in directory RUN as it is now: jobs, busy and paused ports, faults, the verdict so far.

    Ends with the run, or with Ctrl-C, which leaves the run alone.
    """
    if not (run / "scenario.yaml").is_file():
        raise UsageError(f"{run}: no run; accepted: the directory of a run of `emu run` or `emu up`")
    console = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)
    views = _views(run, every)
    try:
        if once or not sys.stdout.isatty():
            _print(console, next(views))
            return 0
        with Live(console=console, auto_refresh=False, transient=True) as live:
            shown: list[str] = []
            for shown in views:
                live.update(Text("\n".join(wrapped(line, columns()) for line in shown)), refresh=True)
        _print(console, shown)
    except KeyboardInterrupt:
        pass
    return 0


def _views(run: Path, every_s: float) -> Iterator[list[str]]:
    """What there is to show, again and again until the run is over. Raises RuntimeFailure."""
    scenario = load(run / "scenario.yaml").scenario
    topology = build_topology(scenario)
    before: Look | None = None
    heard_s = then_s = time.monotonic()
    while not (run / "summary.json").exists():
        now, now_s = look_at(run), time.monotonic()
        if now is not None:
            heard_s = now_s
            if before is not None and (now.virtual_ps > before.virtual_ps or now_s - then_s > STILL_S):
                yield live_lines(scenario.name, topology, before, now, now_s - then_s)
                before, then_s = now, now_s
            before = before or now
        elif now_s - heard_s > SILENCE_S:
            raise RuntimeFailure(f"{run}: the run neither answers nor has a summary: it broke off")
        time.sleep(every_s)
    yield finished_lines(load_summary(run))


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(wrapped(line, columns())))
