"""`emu sweep`: run a scenario with every combination of some values, and show one table.

The table. It has a row for each run, in the order of the sweep: the values of its axes, its seed where there
are several, how it ended, and what was asked to be shown. Or, with `mean`, a row for each combination, with
the mean over its seeds of every number, or, with `quantiles`, rows for each combination, with quantiles over
its seeds of each number by itself; a run without a value is left out of it, and the status is the worst.

For reading, numbers have the unit that their path's last word names. CSV and JSON have them as in
`summary.json`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from actors.kernel.counters import NIC_RETRANSMITTED_FRAMES, PFC_PAUSED_PS
from emu.api import Prepared, prepare, run_prepared
from emu.base.bisection import largest as most
from emu.base.cores import usable_cores
from emu.base.errors import EmuError, QuantityError, ScenarioError, UsageError
from emu.base.records import RefusedError
from emu.base.shipped import CAMPAIGNS, JOB_MIXES, files_of, is_name, scenario_named, scenario_names
from emu.base.side_by_side import side_by_side
from emu.base.units import parse_size
from emu.cli.commands.estimate import estimated
from emu.devices.pricing.estimate import LONG_S, Estimate, about_wall
from emu.doors.weeks.campaign_file import judged
from emu.doors.weeks.campaign_reading import course_of, read_campaign, read_mix
from emu.doors.weeks.goodput import simulated
from emu.doors.weeks.goodput import summary_of as campaign_summary
from emu.doors.weeks.job_queue import summary_of as mix_summary
from emu.engine.outcome import RunOptions
from emu.results.percentiles import nearest_rank
from emu.results.places import Bound, place_flaw
from emu.results.summary import Summary
from emu.run_directory.run_directory import RunDirectory, write_whole
from emu.scenario.expect import path_steps
from emu.scenario.load import STANDARD_INPUT, Loaded, load, load_text, read_file
from emu.scenario.set_options import (
    VARIANT,
    Axis,
    Override,
    check_axes,
    combinations,
    labels,
    overrides_of,
    parse_axis,
    parse_override,
)
from emu.scenario.yaml.document import MAX_FILE_BYTES, decode, read_document
from emu.summary.verdict import NOTHING, of_diagnosis, shown_quantity, value_at
from emu.terminal.columns import folded, known_columns, say
from emu.terminal.run_options import placed, session_of
from emu.terminal.scenario_options import NO_EXPECT, choosing, file_named, forcing, unjudged
from emu.terminal.terminal import time_left

STATUS_NAMES: Final = {
    0: "ok",
    1: "expectation failed",
    2: "bad input",
    3: "stalled",
    4: "failed",
    130: "interrupted",
}
QUANTILES: Final = (("least", 0), ("p25", 250), ("p50", 500), ("p75", 750), ("p95", 950), ("most", 1000))


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a sweep."""

    settings: tuple[str, ...]
    """The value of each axis, as written."""
    seed: int | None
    """None where the scenario could not be read."""
    exit_status: int
    """As the command's `emu run` would have been."""
    digest: str = ""
    values: Mapping[str, Bound | None] = field(default_factory=dict)
    """By path; None where it leads nowhere."""
    message: str = ""
    """Why the status is not 0."""
    uplink: float | None = None
    """Share of the time in which jobs ran that the busiest uplink sent; None without uplinks."""


@dataclass(frozen=True, slots=True)
class SweepTable:
    """All rows of a sweep. `keys` are the axes, `paths` what is shown of every run."""

    keys: tuple[str, ...]
    paths: tuple[str, ...]
    rows: tuple[Row, ...]
    seeds: int = 1

    def exit_status(self) -> int:
        """The worst of the runs."""
        return max((row.exit_status for row in self.rows), default=0)

    def _combinations(self) -> list[list[Row]]:
        """The rows of each combination: one for each seed."""
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            groups.setdefault(row.settings, []).append(row)
        return list(groups.values())

    def mean(self) -> SweepTable:
        """A row for each combination: its seeds' mean."""
        rows = tuple(_over_seeds(self.paths, of_one, _mean) for of_one in self._combinations())
        return SweepTable(self.keys, self.paths, rows)

    def quantiles(self) -> SweepTable:
        """Rows for each combination: the quantiles over its seeds."""
        rows = tuple(
            _over_seeds(self.paths, of_one, partial(_quantile, permille=permille), name)
            for of_one in self._combinations()
            for name, permille in QUANTILES
        )
        return SweepTable((*self.keys, "quantile"), self.paths, rows)

    def text(self, width: int = 0) -> list[str]:
        """Lines for reading, no wider than `width` where that can be."""
        varying = [at for at in range(len(self.keys)) if len({row.settings[at] for row in self.rows}) > 1]
        head = [
            *short_names([self.keys[at] for at in varying]),
            *(["seed"] if self.seeds > 1 else []),
            *short_names(self.paths),
            "status",
        ]
        table = [head]
        names = [labels([row.settings[at] for row in self.rows]) for at in varying]
        for row in self.rows:
            seed = [NOTHING if row.seed is None else str(row.seed)] if self.seeds > 1 else []
            table.append(
                [
                    *(named[row.settings[at]] for named, at in zip(names, varying, strict=True)),
                    *seed,
                    *(shown_quantity(path, row.values.get(path)) for path in self.paths),
                    STATUS_NAMES.get(row.exit_status, str(row.exit_status)),
                ]
            )
        keys = len(varying) + (self.seeds > 1)
        fixed = [
            f"{key}={self.rows[0].settings[at]}" for at, key in enumerate(self.keys) if at not in varying
        ]
        return [*([f"with {', '.join(fixed)}"] if fixed and self.rows else []), *folded(table, keys, width)]

    def unchanged(self) -> list[str]:
        """The axes of several values that changed nothing shown in any run, each in words, with how busy the
        busiest uplink was: what nothing runs through cannot matter."""
        lines = []
        for at, key in enumerate(self.keys):
            groups: dict[tuple[object, ...], list[Row]] = {}
            for row in self.rows:
                groups.setdefault((*row.settings[:at], *row.settings[at + 1 :], row.seed), []).append(row)
            equal = [rows for rows in groups.values() if len({row.settings[at] for row in rows}) > 1]
            if not equal or not all(_shown_equal(rows) for rows in equal):
                continue
            loads = [row.uplink for row in self.rows if row.uplink is not None]
            load = f"; no uplink was busy for more than {max(loads):.1%} of a run" if loads else ""
            same = all(len({row.digest for row in rows}) == 1 for rows in equal)
            what = (
                "the runs are the same to the last packet" if same else "the runs differ in what is not shown"
            )
            lines.append(f"{key} changed nothing that is shown: {what}{load}")
        return lines

    def csv_text(self) -> str:
        """The table with every value as in `summary.json`."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*self.keys, "seed", *self.paths, "exit_status", "digest", "message"])
        for row in self.rows:
            values = [_csv_cell(row.values.get(path)) for path in self.paths]
            seed = "" if row.seed is None else row.seed
            writer.writerow([*row.settings, seed, *values, row.exit_status, row.digest, row.message])
        return out.getvalue()

    def json_text(self) -> str:
        """A list of runs."""
        rows: list[dict[str, Any]] = [
            {
                "set": dict(zip(self.keys, row.settings, strict=True)),
                "seed": row.seed,
                "values": {path: row.values.get(path) for path in self.paths},
                "exit_status": row.exit_status,
                "digest": row.digest,
                "message": row.message,
            }
            for row in self.rows
        ]
        return json.dumps(rows, indent=2)


def short_names(names: Sequence[str]) -> list[str]:
    """The last two words of each path, or all of it where that is not one path's alone."""
    short = [".".join(name.split(".")[-2:]) for name in names]
    return [one if short.count(one) == 1 else name for one, name in zip(short, names, strict=True)]


def _csv_cell(value: Bound | None) -> Bound:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else value


def _shown_equal(rows: Sequence[Row]) -> bool:
    """Whether runs that ended well show the same, and something at all."""
    first = rows[0]
    shown = any(value is not None for value in first.values.values())
    return shown and all(row.exit_status == 0 and row.values == first.values for row in rows)


def busiest_uplink(summary: Summary) -> float | None:
    """Share of the time in which jobs ran that the busiest uplink sent; None without uplinks."""
    ups = {(row.switch, other) for row in summary.fabric.uplinks for other in row.towards}
    found = [one.utilisation for one in summary.fabric.links if (one.source, one.destination) in ups]
    return max(found, default=None)


def _mean(numbers: Sequence[float]) -> float:
    """The mean, which is one of the numbers where all are the same."""
    return numbers[0] if len(set(numbers)) == 1 else round(sum(numbers) / len(numbers), 6)


def _quantile(numbers: Sequence[float], permille: int) -> float:
    """Of n seeds the value of rank ceil(n x permille / 1000)."""
    return nearest_rank(sorted(numbers), permille)


def _over_seeds(
    paths: Sequence[str], rows: Sequence[Row], figure: Callable[[Sequence[float]], Bound], *name: str
) -> Row:
    """One row for the seeds of a combination: that figure of each number by itself; else what all have."""
    values: dict[str, Bound | None] = {}
    for path in paths:
        found = [value for value in (row.values.get(path) for row in rows) if value is not None]
        numbers = [
            value for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        if numbers and len(numbers) == len(found):
            values[path] = figure(numbers)
        else:
            values[path] = found[0] if len(set(found)) == 1 else None
    worst = max(rows, key=lambda row: row.exit_status)
    return Row((*rows[0].settings, *name), rows[0].seed, worst.exit_status, "", values, worst.message)


INTERRUPTED = 130

Loader = Callable[[list[Override]], Loaded]


EXAMPLES: Final = """\b
Examples:
  emu sweep incast --set switch.buffer.alpha=1/32,1/8,1 \\
      --show fabric.pfc_paused_ps
  emu sweep quickstart --set routing.kind=ecmp,e_ecmp \\
      --set ncclx.qps_per_connection=1,16
  emu sweep incast --largest 'jobs[0].workload.fan_in=4..48'
  emu sweep llama3 --set checkpoint.every=10min,30min,1h --seeds 20 --mean
  emu sweep quickstart --workers 2 --seeds 5 --mean \\
      --set 'jobs[0].workload.sizes=[1MiB],[8MiB]'
"""


@click.command(epilog=EXAMPLES)
@click.argument("scenario")
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
    help="With --local: runs at a time  [one for each core].",
)
@click.option("--out", type=click.Path(path_type=Path), help="Keep each run in OUT/run-N, and OUT/sweep.csv.")
@forcing
@click.option("--quiet", is_flag=True, help="Print only failures on standard error.")
def command(
    scenario: str,
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
    force: bool,
    quiet: bool,
) -> int:
    """Run SCENARIO once for each combination of values, and print one table.

    SCENARIO may also be a campaign or a job mix, as of `emu campaign` and `emu schedule`.
    The last key changes fastest. A failed run is named, the others continue. Exit status: the worst of the
    runs', as of `emu run`; 2 at least if --show names what no run has. With --largest runs halve the range,
    and the status is 1 if not even the lowest value does.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json are two forms of one table; accepted: one of them")
    if mean and quantiles:
        raise UsageError("--mean and --quantiles are two tables; accepted: one of them")
    if jobs is not None and not where.local and not weeks_kind(scenario):
        raise UsageError("--jobs is for --local; on Ray each run has all the workers")
    kind = weeks_kind(scenario)
    if kind:
        if variant or variants:
            raise UsageError(f"{scenario} is a {kind}, which has no variants; accepted: --set")
        at_once = jobs or usable_cores()
    else:
        at_once = (jobs or usable_cores()) if where.local else 1
    axes = [parse_axis(text) for text in assignments]
    if variants is not None:
        if variant:
            raise UsageError("--variant and --variants both choose variants; accepted: one of them")
        axes.insert(0, Axis(VARIANT, _variants(scenario, variants)))
    search = None if largest is None else _search_of(largest, alone=not axes and seeds == 1 and not kind)
    check_axes(axes, seeds)
    paths = _paths(shows, known=not kind)
    sweep = (_Weeks if kind else _Sweep)(
        axes, seeds, paths, where._replace(metrics=False), out, force, quiet, at_once
    )
    if kind:
        rows = list(sweep.rows(_weeks_loader(scenario, kind, no_expect=no_expect)))
    else:
        loader = _loader(scenario, variant, [parse_override(NO_EXPECT)] if no_expect else [])
        with session_of(where):
            rows = list(sweep.rows(loader) if search is None else sweep.searched(loader, search))
    keys = tuple(axis.key for axis in axes) if search is None else (search.key,)
    table = SweepTable(keys, paths or sweep.default_paths, tuple(rows), seeds)
    if out is not None and rows:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(out / "sweep.csv", table.csv_text())
    shown = table.mean() if mean else table.quantiles() if quantiles else table
    if as_csv or as_json:
        click.echo(shown.csv_text() if as_csv else shown.json_text(), nl=as_json)
    else:
        say("\n".join(shown.text(known_columns())))
    for line in table.unchanged() if not quiet else ():
        click.echo(f"note: {line}", err=True)
    notes = sweep.notes()
    for line in notes:
        click.echo(f"emu: {line}", err=True)
    if search is not None:
        return search.ended(rows)
    return max(table.exit_status(), UsageError.exit_status if paths and notes else 0)


class _Search(NamedTuple):
    """The range of `--largest`."""

    key: str
    low: int
    high: int
    sized: bool
    """Whether its ends are sizes."""

    def text(self, number: int) -> str:
        """A number as it is written in a scenario."""
        return f"{number}B" if self.sized else str(number)

    def number(self, text: str) -> int:
        """The number that this is."""
        return int(text.removesuffix("B"))

    def ended(self, rows: Sequence[Row]) -> int:
        """Say what was found, and the exit status."""
        found = [self.number(row.settings[0]) for row in rows if row.exit_status == 0]
        best = self.text(max(found)) if found else "none"
        click.echo(f"largest {self.key} at which every expectation holds: {best}", err=True)
        return 0 if found else 1


def _search_of(text: str, *, alone: bool) -> _Search:
    """KEY=LOW..HIGH, which is `alone` if nothing else is varied. Raises UsageError."""
    if not alone:
        reason = "--largest varies one key of a scenario"
        raise UsageError(f"{reason}; accepted: without --set, --variants and --seeds")
    key, _, ends = text.partition("=")
    low, _, high = ends.partition("..")
    wanted = "accepted: KEY=LOW..HIGH of sizes or whole numbers, like jobs[0].workload.size=64KiB..64MiB"
    sized = not (low.strip().isdigit() and high.strip().isdigit())
    try:
        least, most_of_all = (parse_size(end.strip()) if sized else int(end) for end in (low, high))
    except QuantityError:
        raise UsageError(f"--largest {text!r} is no range; {wanted}") from None
    if not key or not 0 < least < most_of_all:
        raise UsageError(f"--largest {text!r} is no range; {wanted}")
    return _Search(key.strip(), least, most_of_all, sized)


_Planned = tuple[int, tuple[str, ...], list[Override]]
"""A run: its number from 1, the value of each axis, and those values as overrides."""


class _Done(NamedTuple):
    """What came of a run."""

    row: Row
    reasons: Mapping[str, str] = {}
    """By path, why it leads nowhere."""
    defaults: tuple[str, ...] = ()
    """What is shown if nothing was asked for."""


class _Sweep:
    """The runs of one sweep: in this process and others beside it, or one after another on Ray."""

    def __init__(
        self,
        axes: Sequence[Axis],
        seeds: int,
        paths: tuple[str, ...],
        options: RunOptions,
        out: Path | None,
        force: bool,
        quiet: bool,
        at_once: int,
    ) -> None:
        self._at_once = at_once
        self._axes = axes
        self._seeds = seeds
        self._paths = paths
        self._options = options
        self._out = out
        self._force = force
        self._quiet = quiet
        self._nowhere: dict[str, str] = {}
        self.default_paths: tuple[str, ...] = ()
        """What is shown if nothing was asked for: from the first run that had anything."""

    def rows(self, loader: Any) -> Iterator[Row]:
        """Every run's row, in the order of the sweep; none after an interruption."""
        runs = list(self._planned(loader))
        total = self._seeds * prod(len(axis.values) for axis in self._axes)
        for warning in self._warnings(loader, runs):
            click.echo(f"emu: warning: {warning}", err=True)
        done = side_by_side(partial(self._done, loader), runs, self._at_once)
        begun_s = time.monotonic()
        for ended, (number, values, _) in enumerate(runs):
            try:
                row, reasons, defaults = next(done)
            except KeyboardInterrupt:
                row, reasons, defaults = Row(values, None, INTERRUPTED, message="interrupted"), {}, ()
            self.default_paths = self.default_paths or defaults
            if row.values:
                shown = self._paths or self.default_paths
                row = replace(row, values={path: row.values.get(path) for path in shown})
                for path in shown:
                    if row.values[path] is not None:
                        self._nowhere[path] = ""
                    else:
                        self._nowhere.setdefault(path, reasons.get(path, ""))
            spent_s = time.monotonic() - begun_s
            self._say(number, total, row, time_left(ended + 1, len(runs), spent_s))
            yield row
            if row.exit_status == INTERRUPTED:
                return

    def searched(self, loader: Loader, search: _Search) -> list[Row]:
        """The rows of a search for the largest value at which every expectation holds, in order."""
        rows: list[Row] = []

        def holds(number: int) -> bool:
            text = search.text(number)
            done = self._done(loader, (len(rows) + 1, (text,), [parse_override(f"{search.key}={text}")]))
            self.default_paths = self.default_paths or done.defaults
            rows.append(done.row)
            said = f"{len(rows)}: {search.key}={text}: {STATUS_NAMES.get(done.row.exit_status, '')}"
            if done.row.exit_status == UsageError.exit_status:
                raise UsageError(" ".join(done.row.message.split()))
            if not self._quiet:
                click.echo(said, err=True)
            return done.row.exit_status == 0

        most(holds, search.low, search.high)
        return rows

    def _warnings(self, loader: Loader, runs: Sequence[_Planned]) -> Iterator[str]:
        """A line if the runs together take more than `LONG_S`, by the first, the middle and the last."""
        guesses: list[Estimate] = []
        for at in sorted({0, len(runs) // 2, len(runs) - 1}):
            with suppress(EmuError):  # the run itself says what is wrong
                prepared = prepare(loader(runs[at][2]))
                if prepared.scenario.fidelity == "packet":
                    guesses.append(estimated(prepared))
        if guesses:
            wall_s = sum(one.wall_s for one in guesses) * len(runs) / len(guesses)
            wall_s /= min(self._at_once, len(runs))
            if wall_s > LONG_S:
                beside = f", {self._at_once} at a time" if self._at_once > 1 else ""
                yield f"these {len(runs)} runs take about {about_wall(wall_s)}{beside}"

    def _planned(self, loader: Loader) -> Iterator[_Planned]:
        """Every run; of a combination that cannot be read only the first, which says why."""
        number = 0
        for values in combinations(self._axes):
            overrides = overrides_of(self._axes, values)
            yield number + 1, values, overrides
            if self._seeds > 1:
                with suppress(EmuError):
                    first = loader(overrides).scenario.seed
                    for offset in range(1, self._seeds):
                        seed = parse_override(f"seed={first + offset}", "--seeds")
                        yield number + 1 + offset, values, [*overrides, seed]
            number += self._seeds

    def notes(self) -> list[str]:
        """What was asked to be shown and was in no run."""
        return [f"--show {path}: {reason}" for path, reason in self._nowhere.items() if reason]

    def _done(self, loader: Loader, planned: _Planned) -> _Done:
        """One run, perhaps in a process of its own."""
        number, values, overrides = planned
        seed: int | None = None
        try:
            loaded = loader(overrides)
            seed = loaded.scenario.seed
            return self._run(values, number, prepare(loaded))
        except ScenarioError as error:
            message = "; ".join(str(one) for one in error.problems)
            return _Done(Row(values, seed, error.exit_status, message=message))
        except UsageError:
            raise
        except EmuError as error:
            return _Done(Row(values, seed, error.exit_status, message=str(error)))

    def _run(self, values: tuple[str, ...], number: int, prepared: Prepared) -> _Done:
        if self._out is None:
            result = run_prepared(prepared, self._options, diagnose=of_diagnosis(self._paths))
        else:
            place = self._out / f"run-{number}"
            with RunDirectory.create(prepared.scenario.name, place, force=self._force) as directory:
                result = run_prepared(prepared, self._options, None, directory)
        message = result.outcome.message
        if not message and result.lost_jobs():
            message = f"did not succeed: {', '.join(result.lost_jobs())}"
        if result.exit_status == 1:
            failed = [one for one in result.summary.expectations if not one.passed]
            message = "; ".join(f"{one.value}: {one.reason}" for one in failed)
        defaults = _default_paths(result.summary)
        plain = result.summary.plain()
        found = {path: value_at(path, plain) for path in self._paths or self.default_paths or defaults}
        row = Row(
            values,
            prepared.scenario.seed,
            result.exit_status,
            result.summary.digest,
            {path: value for path, (value, _) in found.items()},
            message,
            busiest_uplink(result.summary),
        )
        return _Done(row, {path: reason for path, (_, reason) in found.items()}, defaults)

    def _say(self, number: int, total: int, row: Row, left: str) -> None:
        settings = [f"{axis.key}={value}" for axis, value in zip(self._axes, row.settings, strict=True)]
        if self._seeds > 1 and row.seed is not None:
            settings.append(f"seed={row.seed}")
        named = f"{' '.join(settings)}: " if settings else ""
        head = f"{number} of {total}: {named}{STATUS_NAMES.get(row.exit_status, '')}"
        if row.exit_status:
            click.echo(f"emu: {head}: {' '.join(row.message.split())}", err=True)
        elif not self._quiet:
            click.echo(f"{head} ({left})" if sys.stderr.isatty() else head, err=True)


class _Weeks(_Sweep):
    """Campaigns or job mixes of a sweep: each combination and seed is one of them, without packets."""

    def _warnings(self, loader: Any, runs: Sequence[_Planned]) -> Iterator[str]:
        yield from ()

    def _planned(self, loader: Any) -> Iterator[_Planned]:
        number = 0
        for values in combinations(self._axes):
            overrides = overrides_of(self._axes, values)
            for offset in range(self._seeds):
                seeds = []
                if self._seeds > 1:
                    with suppress(EmuError):
                        first = loader(overrides)[0]
                        seeds = [parse_override(f"seed={first + offset}", "--seeds")]
                yield number + 1 + offset, values, [*overrides, *seeds]
                if self._seeds > 1 and not seeds:
                    break  # cannot be read: the first says why
            number += self._seeds

    def _done(self, loader: Any, planned: _Planned) -> _Done:
        number, values, overrides = planned
        try:
            seed, summary, failed = loader(overrides)
        except ScenarioError as error:
            message = "; ".join(str(one) for one in error.problems)
            return _Done(Row(values, None, error.exit_status, message=message))
        text = json.dumps(summary, indent=2) + "\n"
        if self._out is not None:
            place = self._out / f"run-{number}"
            place.mkdir(mode=0o700, parents=True, exist_ok=self._force)
            write_whole(place / "summary.json", text)
        defaults = CAMPAIGN_PATHS if "goodput" in summary else MIX_PATHS
        found = {path: value_at(path, summary) for path in self._paths or defaults}
        digest = hashlib.sha256(text.encode()).hexdigest()
        shown = {path: value for path, (value, _) in found.items()}
        row = Row(values, seed, int(bool(failed)), digest, shown, failed)
        return _Done(row, {path: reason for path, (_, reason) in found.items()}, defaults)


CAMPAIGN_PATHS: Final = ("goodput", "interruptions", "mtbf_s", "mttr_s", "checkpoint.every_s")
MIX_PATHS: Final = ("utilisation", "jobs.begun", "wait.mean_s", "wait.p95_s", "stranded")
"""What is shown of campaigns and of job mixes if nothing was asked for."""


def weeks_kind(given: str) -> str:
    """What `emu campaign` or `emu schedule` would read: "campaign", "job mix"; nothing of a scenario."""
    for folder, what in ((CAMPAIGNS, "campaign"), (JOB_MIXES, "job mix")):
        if is_name(given) and not Path(given).exists() and given in files_of(folder):
            return "" if given in scenario_names() else what
    path = Path(given)
    if given == STANDARD_INPUT or not path.is_file():
        return ""
    try:
        tree, _ = read_document(decode(read_file(path), given), given)
    except ScenarioError:
        return ""
    keys = tree.value if isinstance(tree.value, dict) else {}
    if "lasts" not in keys:
        return ""
    return "campaign" if "gpus" in keys else "job mix"


def _weeks_loader(
    given: str, kind: str, *, no_expect: bool
) -> Callable[[list[Override]], tuple[int, dict[str, Any], str]]:
    """How a campaign or a job mix is followed: with overrides its seed, summary and failed expectations."""
    path = file_named(given, CAMPAIGNS if kind == "campaign" else JOB_MIXES, kind)

    def followed(overrides: list[Override]) -> tuple[int, dict[str, Any], str]:
        overrides = [parse_override(NO_EXPECT), *overrides] if no_expect else overrides
        if kind == "campaign":
            weeks = read_campaign(path, overrides)
            course, seed = weeks.course, weeks.campaign.seed
            summary = campaign_summary(weeks.campaign.name, seed, course, simulated(course, [seed]))
            verdicts = judged(weeks.campaign.expect, summary, weeks.tree)
        else:
            mix = read_mix(path, overrides)
            seed = mix.mix.seed
            summary = mix_summary(mix.mix, mix.topology, course_of(mix), mix.traced)
            verdicts = judged(mix.mix.expect, summary, mix.tree)
        return seed, summary, "; ".join(f"{one.value}: {one.reason}" for one in verdicts if not one.passed)

    return followed


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


def _default_paths(summary: Summary) -> tuple[str, ...]:
    """What says most about a run of this scenario."""
    paths: list[str] = []
    for name, job in summary.jobs.items():
        paths.append(f"jobs.{name}.end_ps")
        if job.collectives:
            paths.append(f"jobs.{name}.collectives[-1].busbw")
    return (*paths, "drops.total", f"fabric.{PFC_PAUSED_PS}", f"fabric.{NIC_RETRANSMITTED_FRAMES}")


def _loader(given: str, variant: str, always: list[Override]) -> Loader:
    """How the scenario is made again with other overrides and those of `always`; it is read once. Raises
    ScenarioError."""
    if given == STANDARD_INPUT:
        file, directory, raw = "<stdin>", Path(), sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
    else:
        named, of_name = scenario_named(given)
        path, variant = Path(named), variant or of_name
        file, directory, raw = str(path), path.parent, read_file(path)
    text = decode(raw, file)

    def loaded(overrides: list[Override]) -> Loaded:
        chosen = [str(one.value.value) for one in overrides if one.path == (VARIANT,)]
        rest = [one for one in overrides if one.path != (VARIANT,)]
        return load_text(text, file, directory, [*always, *rest], chosen[0] if chosen else variant)

    return loaded
