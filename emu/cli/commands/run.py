"""`emu run`: run a scenario, show it, keep its results, judge its expectations."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click

import emu
from actors.compiled.finder import SLOWER
from emu.api import Prepared, Result, prepare, run_prepared, settled_for
from emu.base.errors import UsageError
from emu.base.units import counted
from emu.cli.commands.estimate import costs
from emu.cli.run_options import pageless, placed, ray_beside, recovering, result_of
from emu.cli.scenario_options import NO_EXPECT, forcing, load_scenario, overriding, unjudged
from emu.cli.terminal import Terminal
from emu.counts.collected import Changed
from emu.devices.run_warnings import run_warnings
from emu.engine.distributing import ASKED
from emu.engine.outcome import Ending, Observer, Progress, RunOptions, WorkerRecord
from emu.run_directory.run_directory import RunDirectory, write_whole
from emu.scenario.faults.base import notices
from emu.summary import summary_report
from emu.views.reports.live_link import Linked, LiveLink


@click.command()
@click.argument("scenario", required=False)
@overriding
@unjudged
@placed
@click.option(
    "--discovery-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the list for Prometheus, http://127.0.0.1:PORT/sd [any free port].",
)
@pageless
@recovering
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Continue the broken-off run in DIR from its last snapshot.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results [runs/NAME-N].")
@forcing
@click.option(
    "--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit XML, for build servers."
)
@click.option("--json", "as_json", is_flag=True, help="Print summary.json, and nothing else.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    scenario: str | None,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    no_expect: bool,
    where: RunOptions,
    discovery_port: int,
    no_page: bool,
    recovery: Mapping[str, Any],
    resume: Path | None,
    out: Path | None,
    force: bool,
    junit: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run SCENARIO: a file, a name that `emu list` shows, or - for standard input.

    How it is run never changes its answer. Exit status: 0 every job succeeded and all expectations hold, 1 an
    expectation failed or a result is wrong, 2 bad input, 3 the fabric stalled or a job failed (unless an
    expectation asks for that ending, or for the job's status), 4 the runtime failed.
    """
    options = where._replace(discovery_port=discovery_port, **recovery)
    assignments = (*assignments, NO_EXPECT) if no_expect else assignments
    shown: dict[str, Any] = {"junit": junit, "page": not no_page}
    if resume is not None:
        if scenario is not None or assignments or seed is not None or variant or out is not None or force:
            raise UsageError(
                "--resume goes on with a run as it was begun: no SCENARIO, --set, --seed, --variant, "
                "--no-expect, --out, --force"
            )
        from emu.resume import reopen  # noqa: PLC0415 - only of a run that broke off

        with ray_beside(options), reopen(resume) as again:
            options = options._replace(resume_ps=again.from_ps)
            words = ["emu", "run", str(again.directory.path / "scenario.yaml")]
            return show_run(
                again.prepared, again.directory, options, words, as_json, quiet, again.broken, **shown
            )
    if scenario is None:
        raise UsageError("emu run needs a SCENARIO, or --resume with the directory of a run that broke off")
    with ray_beside(options) as drop_ray:
        prepared = prepare(load_scenario(scenario, assignments, seed, variant))
        if prepared.scenario.fidelity == "flow":
            drop_ray()
        words = _repeat(scenario, assignments, seed, variant, options)
        with RunDirectory.create(prepared.scenario.name, out, force=force) as directory:
            return show_run(
                prepared, directory, options, words, as_json, quiet, junit=junit, page=not no_page
            )


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


def _repeat(
    scenario: str, assignments: Sequence[str], seed: str | None, variant: str, options: RunOptions
) -> list[str]:
    """The command that does it again, in words."""
    words = ["emu", "run", scenario]
    for assignment in assignments:
        words += ["--set", assignment]
    if seed is not None:
        words += ["--seed", seed]
    if variant:
        words += ["--variant", variant]
    if options.local:
        words += ["--local"] if options.parts == 1 else ["--local", "--parts", str(options.parts)]
    elif not options.chooses:
        words += ["--workers", str(options.workers)] if options.workers is not None else []
        words += ["--placement", options.placement] if options.placement != "packed" else []
        words += ["--address", options.address] if options.address is not None else []
    words += ["--block", str(options.block)] if options.block is not None else []
    words += [] if options.trains else ["--no-trains"]
    return words
