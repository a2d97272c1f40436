"""A run as the terminal shows it, from its title to the reason why it failed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import click

import emu
from actors.compiled.finder import SLOWER
from emu.api import Prepared, Result, run_prepared, settled_for
from emu.base.units import counted
from emu.counts.collected import Changed
from emu.devices.run_warnings import run_warnings
from emu.engine.distributing import ASKED
from emu.engine.outcome import Ending, Observer, Progress, RunOptions, WorkerRecord
from emu.run_directory.run_directory import RunDirectory, write_whole
from emu.scenario.faults.base import notices
from emu.summary import summary_report
from emu.terminal.machine_pace import costs
from emu.terminal.run_options import result_of
from emu.terminal.terminal import Terminal
from emu.views.reports.live_link import Linked, LiveLink


def show_run(
    prepared: Prepared,
    directory: RunDirectory,
    options: RunOptions,
    repeat: Sequence[str],
    as_json: bool,
    quiet: bool,
    warnings: Sequence[str] = (),
    junit: Path | None = None,
    page: bool = True,
) -> int:
    """Run what was prepared, and show it; the exit status."""
    terminal = Terminal(prepared.jobs, quiet=quiet or as_json)
    shown = _Shown(terminal)
    options = settled_for(prepared, options)
    terminal.begin(_title(prepared), (*_facts(prepared, options), *_replaced(directory)))
    for line in warnings:
        terminal.noted(f"{line}; an older snapshot is used, if there is one")
    try:
        with page_of(directory, prepared, terminal) if page else nullcontext() as link:
            observer = shown if link is None else Linked(shown, link)
            result = result_of(partial(run_prepared, prepared, options, observer, directory))
        operations = result.outcome.operations or shown.operations
        terminal.finish(result.summary, operations, str(directory.path), shlex.join(repeat))
    finally:
        terminal.close()
    if junit is not None:
        write_whole(junit, summary_report.junit(result.summary, result.exit_status))
    if as_json:
        click.echo(result.summary.json_text(), nl=False)
    _explain(result, terminal)
    return result.exit_status


class _Shown(Observer):
    """Passes on to the terminal, and remembers the operations that have ended."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.operations: tuple[tuple[int, ...], ...] = ()

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        """Pass it on."""
        self._terminal.workers_up(workers, discovery_url)

    def progressed(self, progress: Progress) -> None:
        """Pass it on."""
        self.operations = progress.operations
        self._terminal.progressed(progress)

    def sampled(self, changed: Changed, mixed: Mapping[int, Sequence[int]]) -> None:
        """Pass it on."""
        self._terminal.sampled(changed, mixed)

    def noted(self, line: str) -> None:
        """Pass it on."""
        self._terminal.noted(line)


def page_of(directory: RunDirectory, prepared: Prepared, terminal: Terminal) -> LiveLink:
    """The link to the live page of a run, shown where somebody sits in front of it."""
    link = LiveLink(directory.path, prepared.jobs)
    terminal.page_at(link.url)
    return link


def _explain(result: Result, terminal: Terminal) -> None:
    """Why the run did not end well, on standard error."""
    outcome = result.outcome
    if outcome.ending is not Ending.FINISHED or result.interrupted:
        terminal.failed(outcome.message or result.verdict)
        return
    failed = [one for one in result.summary.expectations if not one.passed]
    if failed:
        terminal.failed(f"{len(failed)} of {len(result.summary.expectations)} expectations failed")
        return
    for name in result.wrong_jobs():
        rows = result.summary.jobs[name].collectives
        wrong = sum(one.wrong or 0 for one in rows)
        ranks = sorted({rank for one in rows for rank in one.wrong_ranks})
        who = f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:16]))}"
        terminal.failed(f"job {name}: {wrong} elements came out wrong, at {who}")
    for name in result.lost_jobs():
        terminal.failed(f"job {name} did not succeed: {result.summary.jobs[name].status}")


def _title(prepared: Prepared) -> str:
    description = " ".join(prepared.scenario.description.split())
    return f"{prepared.scenario.name}: {description}" if description else prepared.scenario.name


def _facts(prepared: Prepared, options: RunOptions) -> Sequence[str]:
    topology = prepared.topology
    sizes = {"GPU": topology.gpus, "NIC": topology.nics, "switch": topology.switches}
    counts = ", ".join(counted(len(numbers), noun) for noun, numbers in sizes.items())
    if prepared.scenario.fidelity == "flow":
        where = "in one process"
    elif options.local:
        where = f"here, in {options.parts} parts" if options.parts > 1 else "in one process"
    else:
        workers = f", {options.workers} workers" if options.workers is not None else ""
        where = f"on Ray, placement {options.placement}{workers}"
    where += f": {options.why}" if options.why != ASKED else ""
    where += f" (--workers {options.instead} distributes)" if options.local and options.instead else ""
    return (
        f"{counts}; seed {prepared.scenario.seed}",
        f"run {where}; packet path {emu.compiled_state()}{'' if emu.is_compiled() else f', {SLOWER}'}",
        *notices(prepared.scenario.faults),
        *(f"note: {line}" for line in prepared.notes),
        *(f"warning: {line}" for line in costs(prepared)),
        *(f"warning: {line}" for line in run_warnings(prepared.scenario, topology, prepared.plan)),
    )


def _replaced(directory: RunDirectory) -> Sequence[str]:
    return [f"the results of an earlier run in {directory.path} are replaced"] if directory.replaces else []
