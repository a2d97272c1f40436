"""`emu up`: run the jobs of a scenario again and again, to be watched and broken.

What the person in front of a live run sees. On a terminal one status line: how far virtual time is and how
fast it goes, what was delivered lately, what each job did last, and how many faults there are. Above it, and
alone where output is a pipe or a file, a line for every change and for every failed operation.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TextIO

import click
from rich.live import Live
from rich.text import Text

from actors.fabric.model import Topology
from actors.kernel.units import BIT_PS_PER_BYTE, PS_PER_S
from actors.wire.message import STATUS_SUCCESS
from emu.api import JOB_FAILED_STATUS, prepare, run_prepared
from emu.base.errors import UsageError
from emu.base.units import (
    about_bandwidth,
    about_rate,
    about_size,
    about_time,
    format_time,
    parse_time,
    shown_time,
)
from emu.counts.collected import JobPlan
from emu.engine.live.control_socket import ControlSocket
from emu.engine.live.stepping import check_unattended
from emu.engine.outcome import Ending, Progress, RunOptions
from emu.engine.steering import Steering
from emu.results.busbw import bandwidth_bps, bus_factor
from emu.run_directory.run_directory import RunDirectory, write_whole
from emu.scenario.faults.base import notices
from emu.scenario.live_changes import Change, end_of
from emu.scenario.schema import Scenario
from emu.summary import summary_report
from emu.summary.jobs import status_name
from emu.summary.recoveries import entry_line, operator_entries
from emu.terminal.run_options import pageless, placed, recovering, result_of
from emu.terminal.scenario_options import forcing, load_scenario, overriding
from emu.terminal.shown_run import page_of
from emu.terminal.terminal import Terminal
from emu.views.reports.live_link import Linked

FEWEST: Final = 5
"""From so many times on there is a median to compare with."""
MEMORY: Final = 1000
LONG_PS: Final = parse_time("100us")
"""A run that goes on later than that says what it waits for."""
_AWAITED: Final = {
    "retransmit": "a retransmission timer",
    "copy_done": "a copy",
    "proxy": "computing or a proxy",
    "job": "the next job or operation",
}
"""Kinds of events in words."""
OUTLIER_PERCENT: Final = 20


SAMPLED: Final = "run.sample_every=100us"
"""How a run without end is sampled, unless its file says how: whoever wrote it knows what a round takes."""


class LiveTerminal(Terminal):
    """Shows a live run."""

    def __init__(
        self,
        jobs: Sequence[JobPlan],
        topology: Topology,
        steering: Steering,
        quiet: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        super().__init__(jobs, quiet, stream)
        self._topology = topology
        self._jobs = {job.job: job for job in jobs}
        self._steering = steering
        self._live: Live | None = None
        self._last = (time.monotonic(), 0, 0)
        self._seen: dict[int, int] = {}
        self._took: dict[tuple[int, str, int], list[int]] = {}
        """By job, operation and size, how long the last `MEMORY` took."""
        self._targets_shown = 0
        """How many occurrences of faults that hit the busiest were looked at."""
        self._tended = 0
        """How many of the operator's rows were shown."""
        self._hit: dict[int, str] = {}
        """By fault, what it hit last; a line is printed when that is another."""

    def begin_live(self, title: str, facts: Sequence[str]) -> None:
        """The heading, and the status line where somebody looks."""
        self._lines([title, *facts])
        if not self._quiet and self._console.is_terminal:
            self._live = Live(
                Text("starting"), console=self._console.console, transient=True, auto_refresh=False
            )
            self._live.start(refresh=True)

    def progressed(self, progress: Progress) -> None:
        """Tell what faults on the busiest hit and which operations failed, and renew the status line."""
        new = [row for row in progress.operations if row[1] > self._seen.get(row[0], -1)]
        self._seen |= {row[0]: row[1] for row in new}
        measured = progress.measured[self._targets_shown :]
        self._targets_shown += len(measured)
        for one in measured:
            if self._hit.get(one.entry) != one.target:
                self._hit[one.entry] = one.target
                self._lines([f"fault {one.entry} hits {one.target} at {shown_time(one.at_ps)}"])
        tended = operator_entries(
            list(self._jobs.values()), self._topology, progress.operator[self._tended :]
        )
        self._tended = max(self._tended, len(progress.operator))
        self._lines(map(entry_line, tended))
        self._lines(
            f"{shown_time(row[3])}: job {self._jobs[row[0]].name} failed: {status_name(row[4])}"
            for row in new
            if row[4] != STATUS_SUCCESS
        )
        self._lines(line for row in new if row[4] == STATUS_SUCCESS for line in self._outlier(row))
        if self._live is not None:
            status = Text(self._status(progress), no_wrap=False, overflow="fold")
            self._live.update(status, refresh=True)

    def changed(self, change: Change, fault: int, at_ps: int, scenario: Scenario) -> None:
        """A line for what was done."""
        if "capture" in change:
            number = len(scenario.run.capture) - 1
            ports = ", ".join(scenario.run.capture[number].ports)
            self._lines([f"capture {number}: {ports} from {shown_time(at_ps)}"])
            return
        section = scenario.faults[fault]
        what = "injected" if "inject" in change else "cleared"
        target = f" {section.hits}" if section.hits else ""
        until_ps = end_of(section)
        until = f" until {shown_time(until_ps)}" if until_ps is not None and "inject" in change else ""
        self._lines([f"{what} fault {fault}: {section.kind}{target} at {shown_time(at_ps)}{until}"])

    def close(self) -> None:
        """Take the status line away. May be called again."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        super().close()

    def _kind(self, row: Sequence[int]) -> tuple[int, str, int]:
        """What a row's time is compared with: others of the job with its operation and size, or its steps."""
        job = self._jobs[row[0]]
        plan = job.collectives[row[1] % len(job.collectives)] if job.collectives else None
        return (row[0], plan.op, plan.size_bytes) if plan is not None else (row[0], "step", 0)

    def _outlier(self, row: Sequence[int]) -> list[str]:
        """A line for an operation or step that took much longer than those before it."""
        took = self._took.setdefault(self._kind(row), [])
        time_ps, job = row[3] - row[2], self._jobs[row[0]]
        usual_ps = int(median(took)) if len(took) >= FEWEST else 0
        took.append(time_ps)
        del took[:-MEMORY]
        if not usual_ps or time_ps * 100 <= usual_ps * (100 + OUTLIER_PERCENT):
            return []
        _, op, size_bytes = self._kind(row)
        what = f"{op} {about_size(size_bytes)}" if size_bytes else op
        more = f"{time_ps / usual_ps - 1:.0%} beyond the median {about_time(usual_ps)}"
        return [f"{shown_time(row[3])}: {job.name}: {what} {row[1] + 1} took {about_time(time_ps)}, {more}"]

    def _spread(self, row: Sequence[int]) -> str:
        """Least, median and most of the times so far, once there are some."""
        took = self._took.get(self._kind(row), [])
        if len(took) < FEWEST:
            return ""
        least, middle, most = (about_time(int(one)) for one in (min(took), median(took), max(took)))
        return f" ({least} / {middle} / {most})"

    def _status(self, progress: Progress) -> str:
        now_s = time.monotonic()
        then_s, virtual_ps, delivered_bytes = self._last
        self._last = (now_s, progress.virtual_ps, progress.delivered_bytes)
        passed_ps = progress.virtual_ps - virtual_ps
        speed_ps = int(passed_ps / max(now_s - then_s, 1e-6))
        parts = [f"{about_time(progress.virtual_ps)} ({about_time(speed_ps)} a second)"]
        if passed_ps > 0:
            bits = (progress.delivered_bytes - delivered_bytes) * BIT_PS_PER_BYTE
            parts.append(f"delivering {about_rate(max(bits, 0) // passed_ps)}")
        awaits = progress.awaits
        if awaits is not None and awaits.at_ps > progress.virtual_ps + LONG_PS:
            what = _AWAITED.get(awaits.kind, awaits.kind.replace("_", " "))
            parts.append(f"until {shown_time(awaits.at_ps)} for {what} of {awaits.device}")
        parts += self._job_states(progress)
        faults = self._steering.scenario.faults
        if faults:
            active = sum(
                fault.at_ps <= progress.virtual_ps
                and ((until_ps := self._steering.until_ps(number)) is None or until_ps > progress.virtual_ps)
                and "for_ps" in type(fault).model_fields
                for number, fault in enumerate(faults)
            )
            parts.append(f"faults {active} active of {len(faults)}")
        return "  |  ".join(parts)

    def _job_states(self, progress: Progress) -> list[str]:
        last = {row[0]: row for row in progress.operations}
        said: list[str] = []
        for number, (_, operation, start_ps, end_ps, status) in sorted(last.items()):
            job = self._jobs[number]
            if not job.collectives:  # A step of training, of a trace or of a program.
                took = about_time(end_ps - start_ps) if status == STATUS_SUCCESS else status_name(status)
                said.append(f"{job.name}: step {operation + 1} done, {took}{self._spread(last[number])}")
                continue
            plan = job.collectives[operation % len(job.collectives)]
            rate = bandwidth_bps(plan.size_bytes, end_ps - start_ps, bus_factor(plan.op, plan.ranks))
            is_done = rate is not None and status == STATUS_SUCCESS
            shown = about_bandwidth(rate or 0) if is_done else status_name(status)
            size = about_size(plan.size_bytes)
            spread = self._spread(last[number])
            said.append(f"{job.name}: {operation + 1} done, {plan.op} {size} {shown}{spread}")
        return said


def parse_pace(text: str) -> int:
    """Virtual ps for each second of wall time: "1ms/s" is 10**9; 0 for "max". Raises UsageError."""
    if text == "max":
        return 0
    amount, slash, unit = text.partition("/")
    accepted = f"--pace {text}: accepted: virtual time a second, at most 1s/s, like 1ms/s; or max"
    if not slash or unit.strip() != "s":
        raise UsageError(accepted)
    try:
        pace_ps = parse_time(amount.strip())
    except UsageError as error:
        raise UsageError(f"--pace {text}: {error}") from None
    if not 0 < pace_ps <= PS_PER_S:
        raise UsageError(accepted)
    return pace_ps


@click.command()
@click.argument("scenario")
@overriding
@click.option(
    "--pace",
    default="1ms/s",
    show_default=True,
    metavar="TIME/s",
    help="Virtual time per second of wall time, or max.",
)
@click.option("--for", "for_", metavar="TIME", help="End after so much virtual time [run.max_time].")
@placed
@recovering
@click.option(
    "--discovery-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the list for Prometheus, http://127.0.0.1:PORT/sd [any free port].",
)
@pageless
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results [runs/NAME-N].")
@forcing
@click.option(
    "--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit XML, for build servers."
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    scenario: str,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    pace: str,
    for_: str | None,
    where: RunOptions,
    recovery: Mapping[str, Any],
    discovery_port: int,
    no_page: bool,
    out: Path | None,
    force: bool,
    junit: Path | None,
    quiet: bool,
) -> int:
    """Run the jobs of SCENARIO continuously: each begins again when it is done.
    A job with an operator ends with its last step.

    Inject faults with `emu fault inject`, watch it in Prometheus, end it with
    Ctrl-C: then results are written and expectations judged. `emu replay`
    repeats it, bit for bit. Pace never changes an answer. Exit
    status as of `emu run`, but Ctrl-C is an ordinary end, and so is a job that was not done once.
    """
    pace_ps = parse_pace(pace)
    changes = (SAMPLED, *assignments, *(() if for_ is None else (f"run.max_time={for_}",)))
    loaded = load_scenario(scenario, changes, seed, variant)
    if loaded.scenario.operator is None:
        loaded = load_scenario(scenario, (*changes, "run.repeat=true"), seed, variant)
    prepared = prepare(loaded)
    check_unattended(prepared.scenario)
    steering = Steering(prepared.scenario, prepared.topology)
    # In this process nothing is gone back to: a live run is repeated by `emu replay`.
    kept: dict[str, Any] = {"snapshot_every_s": 0.0} if where.local or where.chooses else {}
    options = where._replace(
        pace_ps=pace_ps, steering=steering, discovery_port=discovery_port, **{**recovery, **kept}
    )
    with RunDirectory.create(prepared.scenario.name, out, force=force) as directory:
        socket = ControlSocket(directory.path, steering)
        terminal = LiveTerminal(prepared.jobs, prepared.topology, steering, quiet=quiet)
        shown = shlex.quote(str(directory.path))
        speed = f"{format_time(pace_ps)} of virtual time a second" if pace_ps else "as fast as it goes"
        terminal.begin_live(
            prepared.scenario.name,
            (
                f"{len(prepared.topology.gpus)} GPUs, {len(prepared.topology.switches)} switches; {speed}",
                *notices(prepared.scenario.faults),
                f"break it: emu fault inject {shown} KIND TARGET (`emu fault kinds`); end it: Ctrl-C",
            ),
        )
        try:
            with page_of(directory, prepared, terminal) if not no_page else nullcontext() as link:
                observer = terminal if link is None else Linked(terminal, link)
                result = result_of(partial(run_prepared, prepared, options, observer, directory))
            terminal.finish(result.summary, (), str(directory.path), f"emu replay {shown}")
        finally:
            socket.close()
            terminal.close()
    if result.outcome.ending is not Ending.FINISHED or result.interrupted:
        terminal.failed(result.outcome.message or result.verdict)
    broken = [one for one in result.lost_jobs() if result.summary.jobs[one].status != "unfinished"]
    early = result.exit_status == JOB_FAILED_STATUS and result.outcome.ending is Ending.FINISHED
    status = 0 if early and not broken else result.exit_status
    if junit is not None:
        write_whole(junit, summary_report.junit(result.summary, status))
    return status
