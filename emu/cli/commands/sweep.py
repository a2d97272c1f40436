"""`emu sweep`: run a scenario with every combination of some values, and show one table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import click

from emu.api import prepare, run_prepared
from emu.base.errors import EmuError, UsageError
from emu.base.records import RefusedError
from emu.base.shipped import scenario_named
from emu.cli.commands.estimate import estimated
from emu.devices.pricing.estimate import LONG_S, Estimate, about_wall
from emu.engine.outcome import RunOptions
from emu.many_runs import Machines
from emu.results.places import place_flaw
from emu.run_directory.run_directory import write_whole
from emu.scenario.expect import path_steps
from emu.scenario.load import load
from emu.scenario.set_options import VARIANT, Axis, check_axes, parse_axis, parse_override
from emu.sweeps.kept_rows import KeptRows, plan_in
from emu.sweeps.subjects import Asked, ScenarioSubject, Subject, kind_of, subject_again
from emu.sweeps.sweep_table import STATUS_NAMES, Row, SweepTable
from emu.sweeps.sweeping import Heard, Progress, Search, Sweep, Values, plan_of, subject_of
from emu.terminal.columns import known_columns, say
from emu.terminal.run_options import placed, session_of
from emu.terminal.scenario_options import NO_EXPECT, choosing, forcing, unjudged
from emu.terminal.terminal import TimeLeft

EXAMPLES: Final = """\b
Examples:
  emu sweep incast --set switch.buffer.alpha=1/32,1/8,1 \\
      --show fabric.pfc_paused_ps
  emu sweep quickstart --set routing.kind=ecmp,e_ecmp \\
      --set ncclx.qps_per_connection=1,16
  emu sweep incast --largest 'jobs[0].workload.fan_in=4..48'
  emu sweep llama3 --set checkpoint.every=10min,30min,1h --seeds 20 --mean
  emu sweep quickstart --address auto --seeds 1000 --mean --out thousand
  emu sweep --resume thousand
"""


@click.command(epilog=EXAMPLES)
@click.argument("scenario", required=False)
@choosing
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=V1,V2,...",
    help="The values of one key; lists and mappings in [] and {} are one value. Can be repeated.",
)
@click.option(
    "--variants", metavar="NAME,NAME", help="An axis of variants of the scenario; `all` of them, or some."
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, help="Seeds for each, from the scenario's on.  [1]"
)
@click.option(
    "--show",
    "shows",
    multiple=True,
    metavar="PATH,PATH",
    help="Columns: values of each run's summary, as in `expect`  [each job's end and busbw, drops, pauses].",
)
@click.option(
    "--largest",
    metavar="KEY=LOW..HIGH",
    help="Find the largest size or number at which every expectation holds.",
)
@click.option("--mean", is_flag=True, help="One row for each combination: the mean over its seeds.")
@click.option(
    "--quantiles",
    is_flag=True,
    help="Rows for each combination: least, p25, p50, p75, p95 and most of its seeds, of each number.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with plain numbers.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
@unjudged
@placed
@click.option(
    "--jobs",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Runs at a time, here  [one for each core].",
)
@click.option("--out", type=click.Path(path_type=Path), help="Keep each run in OUT/run-N, and OUT/sweep.csv.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Carry out the runs that the sweep in DIR lacks  [`emu run --resume` continues one run].",
)
@forcing
@click.option("--quiet", is_flag=True, help="Print only failures on standard error.")
def command(
    scenario: str | None,
    variant: str,
    assignments: tuple[str, ...],
    variants: str | None,
    seeds: int,
    shows: tuple[str, ...],
    largest: str | None,
    mean: bool,
    quantiles: bool,
    as_csv: bool,
    as_json: bool,
    no_expect: bool,
    where: RunOptions,
    jobs: int | None,
    out: Path | None,
    resume: Path | None,
    force: bool,
    quiet: bool,
) -> int:
    """Run SCENARIO once for each combination of values, and print one table.

    SCENARIO may also be a campaign or a job mix, as of `emu campaign` and `emu schedule`. Runs go side by
    side, each in one process: on the cores here, or with --address on those of a Ray cluster. With --workers
    they follow one another, each on all workers. The last key changes fastest. A failed run is named, the
    others continue. Exit status: the worst of the runs', as of `emu run`; 2 at least if --show names what no
    run has. With --largest runs halve the range, and the status is 1 if not even the lowest value does. Rows
    are in OUT as soon as their runs have ended, and --resume carries out the rest; a SCENARIO beside it has
    to be the same sweep.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json are two forms of one table; accepted: one of them")
    if mean and quantiles:
        raise UsageError("--mean and --quantiles are two tables; accepted: one of them")
    machines, options = _machines(where, jobs)
    if scenario is not None:
        axes = [parse_axis(text) for text in assignments]
        what = _asked(scenario, variant, axes, variants, seeds, shows, largest, no_expect=no_expect)
    else:
        others = variant or variants or assignments or seeds > 1 or shows or largest or no_expect
        what = _as_begun(resume, anew=bool(others))
    if resume is not None and (out is not None or force):
        raise UsageError("--resume adds to the directory that it names; accepted: without --out and --force")
    kept = _kept(what, out, resume, force=force)
    shown = _Shown(what, quiet=quiet)
    asked = Asked(run_prepared, what.paths, resume or out, force or resume is not None, options)
    heard = Heard(shown.row, shown.progressed)
    sweep = Sweep(what.subject, asked, what.values, what.seeds, machines, kept, heard)
    try:
        for warning in _warnings(what, sweep, machines):
            click.echo(f"emu: warning: {warning}", err=True)
        with session_of(options):
            rows = list(sweep.rows() if what.search is None else sweep.searched(what.search))
    finally:
        shown.clear()
        if kept is not None:
            kept.close()
    table = SweepTable(what.keys, what.paths or sweep.default_paths, tuple(rows), what.seeds)
    if asked.out is not None and rows:
        write_whole(asked.out / "sweep.csv", table.csv_text())
    told = table.mean() if mean else table.quantiles() if quantiles else table
    if as_csv or as_json:
        click.echo(told.csv_text() if as_csv else told.json_text(), nl=as_json)
    else:
        say("\n".join(told.text(known_columns())))
    for line in table.unchanged() if not quiet else ():
        click.echo(f"note: {line}", err=True)
    notes = sweep.notes()
    for line in notes:
        click.echo(f"emu: {line}", err=True)
    if what.search is not None:
        best = what.search.best(rows)
        click.echo(f"largest {what.search.key} at which every expectation holds: {best}", err=True)
        return int(best == "none")
    return max(table.exit_status(), UsageError.exit_status if what.paths and notes else 0)


class _What(NamedTuple):
    """What is swept, and what is asked of it."""

    subject: Subject
    axes: Sequence[Axis]
    seeds: int
    paths: tuple[str, ...]
    search: Search | None
    largest: str
    no_expect: bool

    @property
    def values(self) -> list[Values]:
        """The axes with their values as overrides."""
        return [Values.written(axis) for axis in self.axes]

    @property
    def keys(self) -> tuple[str, ...]:
        """What the columns of the settings are."""
        return tuple(axis.key for axis in self.axes) if self.search is None else (self.search.key,)


def _asked(
    scenario: str,
    variant: str,
    axes: list[Axis],
    variants: str | None,
    seeds: int,
    shows: Sequence[str],
    largest: str | None,
    *,
    no_expect: bool,
) -> _What:
    """What the options say. Raises EmuError."""
    kind = kind_of(scenario)
    if kind and (variant or variants):
        raise UsageError(f"{scenario} is a {kind}, which has no variants; accepted: --set")
    if variants is not None:
        if variant:
            raise UsageError("--variant and --variants both choose variants; accepted: one of them")
        axes.insert(0, Axis(VARIANT, _variants(scenario, variants)))
    search = None if largest is None else Search.read(largest)
    if search is not None and (axes or seeds > 1 or kind):
        reason = "--largest varies one key of a scenario"
        raise UsageError(f"{reason}; accepted: without --set, --variants and --seeds")
    check_axes(axes, seeds)
    paths = _paths(shows, known=not kind)
    subject = subject_of(scenario, variant, [parse_override(NO_EXPECT)] if no_expect else [])
    return _What(subject, axes, seeds, paths, search, largest or "", no_expect)


def _as_begun(directory: Path | None, *, anew: bool) -> _What:
    """What the sweep in a directory is. Raises EmuError; `anew`: something was asked for besides."""
    if directory is None:
        raise UsageError("emu sweep needs a SCENARIO, or --resume with the directory of a sweep")
    if anew:
        raise UsageError("--resume without a SCENARIO goes on as it was begun; accepted: no other axes")
    plan = plan_in(directory)
    no_expect = bool(plan["no_expect"])
    subject = subject_again(plan["subject"], [parse_override(NO_EXPECT)] if no_expect else [])
    axes = [Axis(key, tuple(values)) for key, values in plan["axes"]]
    search = Search.read(plan["largest"]) if plan["largest"] else None
    return _What(subject, axes, plan["seeds"], tuple(plan["paths"]), search, plan["largest"], no_expect)


def _kept(what: _What, out: Path | None, resume: Path | None, *, force: bool) -> KeptRows | None:
    """Where rows are kept. Raises UsageError."""
    if out is None and resume is None:
        return None
    plan = plan_of(what.subject, what.values, what.seeds, what.paths, what.largest, no_expect=what.no_expect)
    if resume is not None:
        return KeptRows.reopened(resume, plan)
    assert out is not None, "one of the two is there"
    return KeptRows.begun(out, plan, force=force)


def _machines(where: RunOptions, jobs: int | None) -> tuple[Machines, RunOptions]:
    """Where runs go side by side, and how each of them is carried out. Raises UsageError."""
    here = where._replace(local=True, chooses=False, address=None, wheel=None, metrics=False)
    if where.local or where.chooses:
        return Machines(jobs or 0), here
    if where.workers is None and not where.pins and where.placement == "packed":
        machines = Machines(jobs or 0, where.address, where.wheel, where.unprotected).checked()
        return machines, here._replace(unprotected=False)
    if jobs is not None:
        raise UsageError("--jobs is for runs in one process; with --workers each run has all the workers")
    return Machines(1), where._replace(metrics=False)


def _warnings(what: _What, sweep: Sweep, machines: Machines) -> Iterator[str]:
    """A line if the runs of a scenario here take more than `LONG_S` together, by the first, the middle and
    the last."""
    subject, at_once = what.subject, machines.many
    if not isinstance(subject, ScenarioSubject) or what.search is not None or machines.address is not None:
        return
    guesses: list[Estimate] = []
    runs = list(sweep.planned())
    for at in sorted({0, len(runs) // 2, len(runs) - 1}):
        with suppress(EmuError):  # the run itself says what is wrong
            prepared = prepare(subject.loaded(runs[at].overrides))
            if prepared.scenario.fidelity == "packet":
                guesses.append(estimated(prepared))
    if guesses:
        wall_s = sum(one.wall_s for one in guesses) * len(runs) / len(guesses)
        wall_s /= min(at_once, len(runs))
        if wall_s > LONG_S:
            beside = f", {at_once} at a time" if at_once > 1 else ""
            yield f"these {len(runs)} runs take about {about_wall(wall_s)}{beside}"


class _Shown:
    """What is shown while a sweep goes on: a line for each run, in order, and on a terminal how far it is."""

    def __init__(self, what: _What, *, quiet: bool) -> None:
        self._keys = what.keys
        self._seeds = what.seeds
        self._search = what.search
        self._quiet = quiet
        self._left = TimeLeft()

    def progressed(self, found: Progress) -> None:
        """Show how many runs are done, failed and running, and the time that is left."""
        if not self._quiet and sys.stderr.isatty():
            head = f"{found.done} of {found.total} done, {found.failed} failed, {found.running} running; "
            self._left.show(found.done, found.total, head)

    def clear(self) -> None:
        """Leave the line to others."""
        self._left.clear()

    def row(self, number: int, total: int, row: Row) -> None:
        """A line for a run."""
        self._left.clear()
        status = STATUS_NAMES.get(row.exit_status, "")
        if self._search is not None:
            if not self._quiet:
                click.echo(f"{number}: {self._search.key}={row.settings[0]}: {status}", err=True)
            return
        settings = [f"{key}={value}" for key, value in zip(self._keys, row.settings, strict=True)]
        if self._seeds > 1 and row.seed is not None:
            settings.append(f"seed={row.seed}")
        named = f"{' '.join(settings)}: " if settings else ""
        head = f"{number} of {total}: {named}{status}"
        if row.exit_status:
            click.echo(f"emu: {head}: {' '.join(row.message.split())}", err=True)
        elif not self._quiet:
            click.echo(head, err=True)


def _variants(scenario: str, text: str) -> tuple[str, ...]:
    """The variants that are meant, `all` or a list of names."""
    if text == "all":
        named, _ = scenario_named(scenario)
        found = tuple(load(named).variants)
        if not found:
            raise UsageError(f"--variants all: {scenario} has no variants")
        return found
    names = tuple(one.strip() for one in text.split(",") if one.strip())
    if not names or len(set(names)) != len(names):
        raise UsageError(f"--variants {text}: accepted: names with commas between, each once, or all")
    return names


def _paths(shows: Sequence[str], *, known: bool = True) -> tuple[str, ...]:
    """The paths asked for, each once. UsageError for one that cannot be read, or is no place of a run."""
    paths = [path.strip() for text in shows for path in text.split(",") if path.strip()]
    for path in paths:
        try:
            flaw = place_flaw(path_steps(path)) if known else None
        except RefusedError as error:
            raise UsageError(f"--show {path}: {error.reason}; accepted: {error.accepted}") from error
        if flaw is not None:
            raise UsageError(f"--show {path}: {flaw.reason}; accepted: {flaw.accepted}")
    return tuple(dict.fromkeys(paths))
