"""What a user sees while a run goes on, and when it is over.

On a terminal: a bar in virtual time with the time left, and above it the rows of nccl-tests as they finish.
Into a pipe or a file: the same lines without the bar, and nothing else, so that logs stay readable; of
eighty columns, if COLUMNS does not say otherwise. Text
comes from `emu.summary.summary_report` and `emu.summary.nccl_table`; here it only gets its colour.

Progress is the payload delivered over the payload planned, because virtual time has no end that is known
beforehand; the time left is what the rate so far makes of the rest.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Self, TextIO

import click

from emu.base.units import about_time, counted
from emu.counts.collected import Changed, JobPlan
from emu.devices.pricing.estimate import about_wall
from emu.engine.outcome import Observer, Progress, WorkerRecord
from emu.results.summary import Summary
from emu.summary.jobs import planned_bytes
from emu.summary.nccl_table import NcclTable
from emu.summary.summary_report import closing_lines
from emu.terminal.columns import REPEAT, columns, wrapped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar


class Lines:
    """Where lines are shown: on a terminal by rich, which a bar can share; as they are where nobody looks,
    since loading rich takes a tenth of a short run."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.console: Console | None = None
        """What else is shown below the lines is shown by this; None where nobody looks."""
        if stream.isatty() or "FORCE_COLOR" in os.environ:
            from rich.console import Console  # noqa: PLC0415

            console = Console(file=stream, highlight=False, soft_wrap=True, emoji=False, markup=False)
            self.console = console if console.is_terminal else None

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks."""
        return self.console is not None

    def show(self, text: str, style: str = "") -> None:
        """A line, in a style of rich's."""
        if self.console is None:
            self._stream.write(f"{text}\n")
        else:
            self.console.print(text, style=style or None)

    def bar(self, total: int) -> Bar:
        """A bar of progress with the virtual time reached, below the lines."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        bar = Progress(
            TextColumn("{task.description}"),
            TextColumn("{task.fields[virtual]}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        bar.add_task("virtual time", total=total, virtual=_virtual(0))
        return bar


def _virtual(now_ps: int) -> str:
    """E.g. " 412.3us"."""
    return about_time(now_ps).rjust(8)


def _style(line: str) -> str:
    if line.startswith(("FAIL", "diagnosis: ")):
        return "bold red" if line.startswith("FAIL") else "bold"
    if line.startswith("PASS"):
        return "green"
    if line.startswith(("never fired", "#")):
        return "dim" if line.startswith("#") else "yellow"
    return ""


def time_left(done: float, total: float, spent_s: float) -> str:
    """How far a command is, and from one percent on when it will be done at the pace so far: "25 %, 30 s
    left"."""
    if total <= 0 or done < total / 100:
        return "0 %"
    share = min(done / total, 1.0)
    return f"{share:.0%}, {about_wall(spent_s * (1 - share) / share)} left".replace("%", " %")


LEAST_S: Final = 0.2
"""Between two such lines."""
PATIENCE_S: Final = 2.0
"""A command that takes longer says so."""


class TimeLeft:
    """One line on standard error that is written over, while that is a terminal; `clear` takes it away."""

    def __init__(self) -> None:
        self._begun_s = self._last_s = time.monotonic()
        self._shown = False

    def show(self, done: float, total: float, head: str = "") -> None:
        """Show how much of the work is done, behind `head`."""
        now_s = time.monotonic()
        if sys.stderr.isatty() and now_s - self._last_s > LEAST_S:
            self._last_s = now_s
            self.clear()
            sys.stderr.write(head + time_left(done, total, time.monotonic() - self._begun_s))
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Leave the line to others."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


class Counted(TimeLeft):
    """The same for so many pieces of work, with a line for each that is done."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._done = 0

    def done(self) -> None:
        """One more."""
        self._done += 1
        self.show(self._done, self._total)


class RunLeft(Observer):
    """The same for a run of which only the results are shown."""

    def __init__(self, jobs: Sequence[JobPlan]) -> None:
        self._left = TimeLeft()
        self._planned_bytes = planned_bytes(jobs)
        self._steps = sum(job.facts.planned_steps() for job in jobs if job.enabled)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._left.clear()

    def progressed(self, progress: Progress) -> None:
        """Steps where jobs have any, else payload."""
        if self._steps:
            self._left.show(len(progress.operations), self._steps)
        else:
            self._left.show(progress.delivered_bytes, self._planned_bytes)


class Paced:
    """Prints lines like "3 of 8 runs: ..." on standard error; a terminal also shows the time left."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._begun_s = time.monotonic()

    def __call__(self, line: str) -> None:
        """One more is done."""
        done, of, rest = line.partition(" of ")
        total = rest.partition(" ")[0]
        if of and done.isdecimal() and total.isdecimal() and sys.stderr.isatty():
            spent_s = time.monotonic() - self._begun_s
            line += f" ({time_left(int(done), int(total), spent_s)})"
        if not self._quiet:
            click.echo(line, err=True)


class SoFar:
    """How long a command works that does not know how much is left: said on a terminal after `PATIENCE_S`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._over = threading.Event()
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> None:
        if sys.stderr.isatty():
            self._teller.start()

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        if self._teller.is_alive():
            self._teller.join()

    def _tell(self) -> None:
        begun_s, said = time.monotonic(), False
        while not self._over.wait(1.0 if said else PATIENCE_S):
            said = True
            sys.stderr.write(f"\r\x1b[K{self._doing}: {time.monotonic() - begun_s:.0f} s so far")
            sys.stderr.flush()
        if said:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Terminal(Observer):
    """Shows one run. `quiet` shows nothing but errors (`--json` keeps standard output for the summary)."""

    def __init__(self, jobs: Sequence[JobPlan], quiet: bool = False, stream: TextIO | None = None) -> None:
        self._console = Lines(stream or sys.stdout)
        self._errors = Lines(sys.stderr)
        self._quiet = quiet
        self._table = NcclTable(jobs)
        self._planned_bytes = planned_bytes(jobs)
        self._steps = {job.job: steps for job in jobs if job.enabled and (steps := job.facts.planned_steps())}
        """By job, its steps. Where there are any the bar counts them: nobody sums up what a step sends."""
        self._bar: Bar | None = None
        self._discovery_url = ""

    def begin(self, title: str, facts: Iterable[str] = ()) -> None:
        """The heading: the scenario, and lines about fabric and engine."""
        self._lines([title, *facts])
        if not self._quiet and self._console.is_terminal:
            self._bar = self._console.bar(sum(self._steps.values()) or max(self._planned_bytes, 1))
            self._bar.start()

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        """Where Prometheus finds the workers."""
        if discovery_url and discovery_url != self._discovery_url:
            self._discovery_url = discovery_url
            count = "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
            self._lines([f"metrics of {count}: {discovery_url}"])

    def page_at(self, url: str) -> None:
        """Where the run can be seen while it goes on; printed where output is a terminal."""
        if self._console.is_terminal:
            self._lines([f"see it: {url}"])

    def progressed(self, progress: Progress) -> None:
        """Move the bar, and show the rows that are complete."""
        self._lines(self._table.take(progress.operations))
        for line in progress.refusals:
            self._tell(line, "yellow")
        if self._bar is not None:
            done = min(progress.delivered_bytes, self._planned_bytes)
            words = "virtual time"
            if self._steps:
                done = sum(row[0] in self._steps for row in progress.operations)
                words = f"{done} of {counted(sum(self._steps.values()), 'step')}"
            virtual = _virtual(progress.virtual_ps)
            self._bar.update(self._bar.task_ids[0], completed=done, virtual=virtual, description=words)

    def sampled(self, changed: Changed, mixed: Mapping[int, Sequence[int]]) -> None:
        """Nothing is shown of single samples."""

    def noted(self, line: str) -> None:
        """What happened to the run, on standard error; the run goes on."""
        self._tell(f"emu: {line}", "yellow")

    def close(self) -> None:
        """Take the bar away. May be called again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def finish(
        self, summary: Summary, operations: Iterable[Sequence[int]], directory: str, repeat: str
    ) -> None:
        """Everything that is known at the end; `operations` are the controller's rows.

        `repeat` is the command that repeats the run; it is shown if an expectation failed or the run broke
        off.
        """
        self._table.learn(summary.jobs)
        self._lines(self._table.take(operations))
        self.close()
        self._lines(["", *closing_lines(summary), f"results in {directory}"])
        if summary.ending != "finished" or not summary.passed():
            self._lines([f"{REPEAT} {repeat}"])

    def failed(self, message: str) -> None:
        """Why the run failed, on standard error."""
        self.close()
        self._tell(f"emu: {message}", "bold red")

    def _tell(self, text: str, style: str) -> None:
        """On standard error, line by line."""
        for line in text.splitlines():
            shown = wrapped(line, columns()) if self._errors.is_terminal else line
            self._errors.show(shown, style)

    def _lines(self, lines: Iterable[str]) -> None:
        if not self._quiet:
            for line in lines:
                text = wrapped(line, columns())
                self._console.show(text, _style(line))
