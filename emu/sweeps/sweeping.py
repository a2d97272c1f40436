"""A sweep: which runs there are, carrying them out wherever there is room, and the rows in their order.

The command `emu sweep` and the function `emu.sweep` are this; they say what carries out one run. Rows, their
order and digests do not depend on where runs are carried out, nor on how many go at a time: a search for the
largest value tries further values meanwhile, and its rows are those that it would have tried one after
another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import emu
from emu.base.bisection import largest as most
from emu.base.errors import EmuError, QuantityError, UsageError
from emu.base.shipped import CAMPAIGNS, JOB_MIXES, files_of
from emu.base.side_by_side import Ended
from emu.base.units import parse_size
from emu.many_runs import HERE, Machines, each_as_it_ends
from emu.scenario.set_options import Axis, Override, check_axes, override_with, parse_override
from emu.sweeps.kept_rows import KEY, KeptRows
from emu.sweeps.subjects import (
    Asked,
    Done,
    Planned,
    Subject,
    failed,
    fingerprint,
    kind_of,
    other_subject,
    scenario_subject,
)
from emu.sweeps.sweep_table import INTERRUPTED, Row, SweepTable


class Values(NamedTuple):
    """An axis: its key, and each value as it was written and as an override."""

    key: str
    values: tuple[tuple[str, Override], ...]

    @classmethod
    def written(cls, axis: Axis) -> Values:
        """Of the command line."""
        return cls(axis.key, tuple((text, parse_override(f"{axis.key}={text}")) for text in axis.values))

    @classmethod
    def given(cls, key: str, values: Sequence[object]) -> Values:
        """Of Python."""
        return cls(key, tuple((_text(one), override_with(key, one)) for one in values))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Progress(NamedTuple):
    """How far a sweep is."""

    done: int
    failed: int
    running: int
    total: int


class Heard(NamedTuple):
    """Who hears of a sweep: of each row in order, with its number and how many there are, and of progress."""

    row: Callable[[int, int, Row], None] = lambda _number, _total, _row: None
    progress: Callable[[Progress], None] = lambda _progress: None


NOBODY: Final = Heard()


class Sweep:
    """The runs of one sweep."""

    def __init__(
        self,
        subject: Subject,
        asked: Asked,
        axes: Sequence[Values] = (),
        seeds: int = 1,
        machines: Machines = HERE,
        kept: KeptRows | None = None,
        heard: Heard = NOBODY,
    ) -> None:
        self._subject = subject
        self.axes = tuple(axes)
        self.seeds = seeds
        self._asked = asked
        self._machines = machines
        self._kept = kept
        self._heard = heard
        self._nowhere: dict[str, str] = {}
        self.default_paths: tuple[str, ...] = ()
        """What is shown if nothing was asked for: from the first run that had anything."""

    def planned(self) -> Iterator[Planned]:
        """Every run; of a combination that cannot be read only the first, which says why."""
        number = 0
        for values in product(*(axis.values for axis in self.axes)):
            settings = tuple(text for text, _ in values)
            overrides = [override for _, override in values]
            yield Planned(number + 1, settings, overrides)
            if self.seeds > 1:
                with suppress(EmuError):
                    first = self._subject.seed(overrides)
                    for offset in range(1, self.seeds):
                        seed = parse_override(f"seed={first + offset}", "--seeds")
                        yield Planned(number + 1 + offset, settings, [*overrides, seed])
            number += self.seeds

    def rows(self) -> Iterator[Row]:
        """Every run's row, in the order of the sweep. After an interruption those that ended by then, and one
        that says so."""
        runs = list(self.planned())
        total = self.seeds
        for axis in self.axes:
            total *= len(axis.values)
        found: dict[int, Done] = dict(self._kept.rows) if self._kept is not None else {}
        missing = [one for one in runs if one.number not in found]
        place = 0
        interrupted = False
        with closing(self._carried_out(missing, dict(found))) as carried_out:
            while place < len(runs):
                if runs[place].number in found:
                    yield self._told(runs[place], total, found.pop(runs[place].number))
                    place += 1
                    continue
                try:
                    number, done = next(carried_out)
                except KeyboardInterrupt:
                    interrupted = True
                    break
                found[number] = done
        for one in runs[place:] if interrupted else ():
            if one.number in found:
                yield self._told(one, total, found[one.number])
            elif interrupted:
                interrupted = False  # which is told once
                done = Done(Row(one.settings, None, INTERRUPTED, message="interrupted"))
                yield self._told(one, total, done)

    def _carried_out(
        self, runs: Sequence[Planned], found: Mapping[int, Done]
    ) -> Generator[tuple[int, Done], None, None]:
        """Number and outcome of each of these runs, as they end."""
        before, bad = len(found), sum(1 for one in found.values() if one.row.exit_status)
        total = before + len(runs)
        at_once = self._machines.many if self._machines.address is None else len(runs)
        ends = self._ends(runs)
        with closing(ends):
            for many, one in enumerate(ends, 1):
                planned = runs[one.number]
                done = self._done(planned, one)
                bad += done.row.exit_status != 0
                if self._kept is not None and done.row.exit_status != INTERRUPTED:
                    self._kept.add(planned.number, done, lost=one.lost)
                left = len(runs) - many
                self._heard.progress(Progress(before + many, bad, min(left, at_once), total))
                yield planned.number, done

    def _ends(self, runs: Sequence[Planned]) -> Generator[Ended, None, None]:
        subject, asked = self._subject, self._asked
        return each_as_it_ends(
            self._machines,
            partial(subject.run, asked),
            runs,
            partial(subject.ready, asked),
            subject.there(asked) if self._machines.address is not None else None,
        )

    def _done(self, planned: Planned, one: Ended) -> Done:
        """What came of a run. Raises UsageError where nothing can go on."""
        if isinstance(one.failure, UsageError):
            raise one.failure
        if one.failure is not None:
            return failed(planned, one.failure)
        if self._machines.address is None:
            assert isinstance(one.answer, Done)
            return one.answer
        return self._subject.kept(self._asked, planned, one.answer)

    def _told(self, planned: Planned, total: int, done: Done) -> Row:
        """The row of a run whose turn it is."""
        row = done.row
        self.default_paths = self.default_paths or done.defaults
        if row.values:
            shown = self._asked.paths or self.default_paths
            row = replace(row, values={path: row.values.get(path) for path in shown})
            for path in shown:
                if row.values[path] is not None:
                    self._nowhere[path] = ""
                else:
                    self._nowhere.setdefault(path, done.reasons.get(path, ""))
        self._heard.row(planned.number, total, row)
        return row

    def notes(self) -> list[str]:
        """What was asked to be shown and was in no run."""
        return [f"--show {path}: {reason}" for path, reason in self._nowhere.items() if reason]

    def searched(self, search: Search) -> Iterator[Row]:
        """The rows of a search for the largest value at which every expectation holds, in order."""
        known: dict[int, Done] = {}
        kept = dict(self._kept.rows) if self._kept is not None else {}
        tried: list[int] = []

        def holds(number: int) -> bool:
            if number not in known:
                raise _NeededError(number)
            if number not in tried:
                tried.append(number)
            return known[number].row.exit_status == 0

        told = 0
        while True:
            tried.clear()
            needed: int | None = None
            try:
                most(holds, search.low, search.high)
            except _NeededError as error:
                needed = error.number
            for number in tried[told:]:
                self.default_paths = self.default_paths or known[number].defaults
                self._heard.row(told + 1, 0, known[number].row)
                yield known[number].row
                told += 1
            if needed is None:
                return
            if needed in kept:
                known[needed] = kept[needed]
                continue
            many = self._machines.many if self._machines.address is None else SPECULATED
            ahead = [one for one in _ahead(search, known, many) if one not in kept]
            with closing(self._ends([search.planned(one) for one in ahead])) as ends:
                for one in ends:
                    number = ahead[one.number]
                    known[number] = self._done(search.planned(number), one)
                    if known[number].row.exit_status == UsageError.exit_status:
                        raise UsageError(" ".join(known[number].row.message.split()))
                    if self._kept is not None:
                        self._kept.add(number, known[number], lost=one.lost)
                    if _next(search, known) not in set(ahead) - known.keys():
                        break


SPECULATED: Final = 7
"""Values that a search has in flight on a cluster: three halvings ahead."""


class _NeededError(Exception):
    """A search needs to know of this value."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _next(search: Search, known: Mapping[int, Done], assumed: Mapping[int, bool] = {}) -> int | None:
    """The value that a search asks for next; None at its end."""

    def holds(number: int) -> bool:
        if number in known:
            return known[number].row.exit_status == 0
        if number in assumed:
            return assumed[number]
        raise _NeededError(number)

    try:
        most(holds, search.low, search.high)
    except _NeededError as error:
        return error.number
    return None


def _ahead(search: Search, known: Mapping[int, Done], many: int) -> list[int]:
    """The next value, and those that may be asked for after it, whatever comes of it: so many at most."""
    found: list[int] = []
    waiting: list[dict[int, bool]] = [{}]
    while waiting and len(found) < max(many, 1):
        assumed = waiting.pop(0)
        number = _next(search, known, assumed)
        if number is None:
            continue
        if number not in found:
            found.append(number)
        waiting += [{**assumed, number: True}, {**assumed, number: False}]
    return found


class Search(NamedTuple):
    """The range of `--largest`."""

    key: str
    low: int
    high: int
    sized: bool
    """Whether its ends are sizes."""

    @classmethod
    def read(cls, text: str) -> Search:
        """KEY=LOW..HIGH. Raises UsageError."""
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
        return cls(key.strip(), least, most_of_all, sized)

    def text(self, number: int) -> str:
        """A number as it is written in a scenario."""
        return f"{number}B" if self.sized else str(number)

    def number(self, text: str) -> int:
        """The number that this is."""
        return int(text.removesuffix("B"))

    def planned(self, number: int) -> Planned:
        """The run of a value. Its number is the value."""
        text = self.text(number)
        return Planned(number, (text,), [parse_override(f"{self.key}={text}")])

    def best(self, rows: Sequence[Row]) -> str:
        """The largest value whose run was good; "none" if there is none."""
        found = [self.number(row.settings[0]) for row in rows if row.exit_status == 0]
        return self.text(max(found)) if found else "none"


def plan_of(
    subject: Subject,
    axes: Sequence[Values],
    seeds: int,
    paths: Sequence[str],
    largest: str,
    *,
    no_expect: bool,
) -> dict[str, Any]:
    """What a sweep is, to be kept with its rows."""
    overrides = [axis.values[0][1] for axis in axes]
    try:
        text = subject.text(overrides)
    except EmuError as error:
        text = str(error)
    plan: dict[str, Any] = {
        "version": emu.__version__,
        "scenario": fingerprint(text),
        "axes": [[axis.key, [text for text, _ in axis.values]] for axis in axes],
        "seeds": seeds,
        "paths": list(paths),
        "largest": largest,
        "no_expect": no_expect,
    }
    return {**plan, KEY: fingerprint(json.dumps(plan)), "subject": subject.asked_again()}


class Swept(list[dict[str, Any]]):
    """The rows of `emu.sweep`, each as of `emu sweep --json`, and the table of all of them."""

    def __init__(self, table: SweepTable, axes: Mapping[str, Sequence[object]], best: str = "") -> None:
        texts = {key: {_text(value): value for value in values} for key, values in axes.items()}
        rows = [
            {
                "set": {key: texts[key].get(text, text) if key in texts else text for key, text in settings},
                "seed": row.seed,
                "values": {path: row.values.get(path) for path in table.paths},
                "exit_status": row.exit_status,
                "digest": row.digest,
                "message": row.message,
            }
            for row in table.rows
            for settings in [list(zip(table.keys, row.settings, strict=True))]
        ]
        super().__init__(rows)
        self.table = table
        self.best = best
        """The largest value of a search at which every expectation holds, "none" if there is none."""
        self._axes = axes

    def mean(self) -> Swept:
        """A row for each combination: the mean over its seeds."""
        return Swept(self.table.mean(), self._axes)

    def quantiles(self) -> Swept:
        """Rows for each combination: the quantiles over its seeds."""
        return Swept(self.table.quantiles(), self._axes)

    def show(self) -> None:
        """Print the table that `emu sweep` prints."""
        print("\n".join(self.table.text()))  # noqa: T201  asked for


def swept(
    run: Callable[..., Any],
    source: str | Path | Mapping[str, object],
    axes: Mapping[str, Sequence[object]] | None = None,
    show: Sequence[str] = (),
    *,
    seeds: int = 1,
    overrides: Mapping[str, object] | None = None,
    largest: str = "",
    at_once: int | None = None,
    address: str | None = None,
    wheel: str | Path | None = None,
    unprotected: bool = False,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
) -> Swept:
    """What `emu.sweep` does, with what carries out a run (`emu.api.run_prepared`)."""
    machines = Machines(
        at_once or 0, address, Path(wheel) if wheel is not None else None, unprotected
    ).checked()
    always = [override_with(key, value) for key, value in (overrides or {}).items()]
    subject = subject_of(source, always=always)
    given = dict(axes or {})
    values = [Values.given(key, one) for key, one in given.items()]
    check_axes([Axis(one.key, tuple(text for text, _ in one.values)) for one in values], seeds)
    search = Search.read(largest) if largest else None
    if search is not None and (values or seeds > 1):
        raise UsageError("largest varies one key of a scenario; accepted: without axes and seeds")
    kept = None
    place = None if out is None else Path(out)
    if place is not None:
        plan = plan_of(subject, values, seeds, show, largest, no_expect=False)
        kept = KeptRows.reopened(place, plan) if resume else KeptRows.begun(place, plan, force=force)
    elif resume:
        raise UsageError("resume is of a sweep with out=DIR; accepted: its directory as out")
    asked = Asked(run, tuple(show), place, force or resume)
    done = Sweep(subject, asked, values, seeds, machines, kept)
    try:
        rows = tuple(done.rows() if search is None else done.searched(search))
    finally:
        if kept is not None:
            kept.close()
    if any(row.exit_status == INTERRUPTED for row in rows):
        raise KeyboardInterrupt
    keys = tuple(given) if search is None else (search.key,)
    table = SweepTable(keys, tuple(show) or done.default_paths, rows, seeds)
    return Swept(table, given, "" if search is None else search.best(rows))


def subject_of(
    source: str | Path | Mapping[str, object], variant: str = "", always: Sequence[Override] = ()
) -> Subject:
    """What is swept, by its file, name or mapping. Raises EmuError."""
    kind = "" if isinstance(source, Mapping) else kind_of(str(source))
    if not kind:
        return scenario_subject(source, variant, always)
    assert not isinstance(source, Mapping), source
    folder = CAMPAIGNS if kind == "campaign" else JOB_MIXES
    shipped = files_of(folder)
    path = Path(source)
    return other_subject(kind, path if path.exists() else shipped[str(source)], always)
