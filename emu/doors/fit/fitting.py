"""The fit: closed forms first, packets to confirm, and every second size kept back.

The misfit of a size is the model's time over the measured one, less 1. The fit minimises the sum of squares
of its logarithm. Near a point, times are linear in the coordinates of the knobs (`emu.doors.fit.knobs`): one
run with a knob at its probe gives its slope at every size, and the slopes give the least misfit without a
run. Knobs are added one at a time, each time the one that lowers the misfit most, while one lowers it by a
tenth; there are at most a third as many as sizes. Packets then run at the values found, and slopes are
measured again there, until the misfit falls no more.

Where the slopes of two knobs are in proportion, these sizes cannot tell them apart: the first of the list is
fitted, and the other is left and named. A knob that changes nothing is left as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import log as ln
from math import sqrt
from types import MappingProxyType
from typing import Final, NamedTuple

from emu.doors.fit.knobs import (
    COUNT_VALUES,
    COUNTS,
    Knob,
    coordinate,
    knobs_of,
    start_of,
    text_of,
    value_at,
)
from emu.doors.fit.log_runs import Answer, Model
from emu.doors.fit.read_counters import Counted, compared
from emu.doors.fit.read_logs import Log

GAIN: Final = 0.1
"""Share of the misfit that one more knob must take away."""
LEAST_EFFECT: Final = 0.01
"""Least effect of a knob, over its range, at the size that it changes most."""
SIMILAR: Final = 0.97
"""Cosine of two knobs' slopes from which on they cannot be distinguished."""
MOST_KNOBS: Final = 6
SWEEPS: Final = 16
STEPS: Final = 24
ROUNDS: Final = 3
GOLDEN: Final = (sqrt(5) - 1) / 2


class Fitted(NamedTuple):
    """A knob and its value."""

    knob: Knob
    start: int
    value: int
    before: float
    """Misfit without it, root mean square, over the sizes fitted to."""
    after: float

    @property
    def at_end(self) -> bool:
        """Whether the range ends here, so that the logs may want still more or less."""
        return self.knob.kind != "count" and self.value in (self.knob.least, self.knob.most)


class Left(NamedTuple):
    """A knob that was not fitted, and why."""

    knob: Knob
    why: str


class Row(NamedTuple):
    """One size of a log."""

    size_bytes: int
    kept_back: bool
    measured_us: float
    unfitted_us: float
    fitted_us: float
    way: str

    @property
    def before(self) -> float:
        """Misfit of the scenario alone."""
        return self.unfitted_us / self.measured_us - 1

    @property
    def after(self) -> float:
        """Misfit with the fitted knobs."""
        return self.fitted_us / self.measured_us - 1


class Fit(NamedTuple):
    """What came of it."""

    knobs: tuple[Fitted, ...]
    left: tuple[Left, ...]
    rows: tuple[tuple[Log, tuple[Row, ...]], ...]
    runs: int
    counters: tuple[Counted, ...] = ()
    """What NICs counted, on the cluster and here; nothing where no counters were given."""


Vector = tuple[float, ...]


class _Point(NamedTuple):
    """Where times were asked for: coordinates of the knobs that are turned, times, and their slopes."""

    places: Mapping[str, float]
    times: Vector
    slopes: Mapping[str, Vector]


def split(log: Log) -> tuple[Log, Log]:
    """The sizes fitted to, and those kept back: the second, the fourth and so on."""
    return log._replace(rows=log.rows[::2]), log._replace(rows=log.rows[1::2])


def fit(
    model: Model,
    logs: Sequence[Log],
    tell: Callable[[str], None],
    counters: Mapping[str, int] = MappingProxyType({}),
) -> Fit:
    """Fit the knobs of the model's scenario to these logs; `counters` are what NICs counted meanwhile."""
    return _Fitting(model, logs, tell).fit(counters)


class _Fitting:
    """One fit on its way."""

    def __init__(self, model: Model, logs: Sequence[Log], tell: Callable[[str], None]) -> None:
        self._model = model
        self._logs = logs
        self._near = [split(log)[0] for log in logs]
        self._tell = tell
        self._measured: Vector = tuple(row.time_us for log in self._near for row in log.rows)
        self._nic_bps = model.nic_bps()
        self._knobs = knobs_of(model.scenario, self._nic_bps)
        self._start = {one.key: start_of(one, model.scenario, self._nic_bps) for one in self._knobs}
        self._runs = 0

    def fit(self, counters: Mapping[str, int]) -> Fit:
        point = self._probed()
        most = min(MOST_KNOBS, len(self._measured) // 3)
        chosen, trail = self._choose(point, most)
        places, times = self._confirm(point, chosen, {})
        counts = self._counts(chosen, places, times, most - len(chosen))
        if counts:
            (times,) = self._times([self._settings(chosen, places, counts)])
            trail.append(_misfit(times, self._measured))
            places, times = self._confirm(self._around(places, times, chosen, counts), chosen, counts)
        left = self._left(point, chosen, counts, _misfit(times, self._measured))
        settings = self._settings(chosen, places, counts)
        self._tell("all sizes, those kept back too, by packets: 2 runs")
        before, after = self._ask([{}, settings], self._logs)
        rows = tuple(
            (log, _rows(log, one, two)) for log, one, two in zip(self._logs, before, after, strict=True)
        )
        emulated: dict[str, int] = {}
        for one in after:
            for name, value in one.counters:
                emulated[name] = emulated.get(name, 0) + value
        beside = tuple(compared(counters, emulated))
        return Fit(self._fitted(chosen, counts, places, trail), left, rows, self._runs, beside)

    # ---- runs

    def _ask(
        self, changes: Sequence[Mapping[str, str]], logs: Sequence[Log], closed: bool = False
    ) -> list[list[Answer]]:
        """By change, what each of the logs takes; `closed`: large sizes by a closed form."""
        self._runs += len(changes) * len(logs)
        answers = self._model.ask([(log, change) for change in changes for log in logs], closed)
        return [answers[at : at + len(logs)] for at in range(0, len(answers), len(logs))]

    def _times(self, changes: Sequence[Mapping[str, str]]) -> list[Vector]:
        """The same for the sizes fitted to, all logs in a row."""
        asked = self._ask(changes, self._near, closed=True)
        return [tuple(time for answer in answers for time in answer.times_us) for answers in asked]

    def _settings(
        self, chosen: Sequence[Knob], places: Mapping[str, float], counts: Mapping[str, int]
    ) -> dict[str, str]:
        found = {key: str(value) for key, value in counts.items()}
        for knob in chosen:
            found |= dict(knob.with_it)
            found[knob.key] = text_of(knob, value_at(knob, places[knob.key]))
        return found

    # ---- closed forms

    def _probed(self) -> _Point:
        """The start, and each knob's slopes from one run with it at its probe."""
        self._tell(f"slopes of {len(self._knobs)} knobs: {len(self._knobs) + 1} runs")
        changes: list[Mapping[str, str]] = [{}]
        changes += [{**dict(knob.with_it), knob.key: text_of(knob, knob.probe)} for knob in self._knobs]
        times, *probed = self._times(changes)
        places = {knob.key: coordinate(knob, self._start[knob.key]) for knob in self._knobs}
        slopes = {
            knob.key: _slope(times, after, coordinate(knob, knob.probe) - places[knob.key])
            for knob, after in zip(self._knobs, probed, strict=True)
        }
        return _Point(places, times, slopes)

    def _range(self, knob: Knob) -> tuple[float, float]:
        ends = sorted((coordinate(knob, max(knob.least, 1)), coordinate(knob, knob.most)))
        return (0.0 if knob.kind == "time" and not knob.least else ends[0]), ends[1]

    def _effect(self, point: _Point, knob: Knob) -> float:
        """How much the knob changes the size that it changes most, over its range."""
        low, high = self._range(knob)
        span = high - low
        return max(
            abs(slope) * span / time for slope, time in zip(point.slopes[knob.key], point.times, strict=True)
        )

    def _least(self, point: _Point, knobs: Sequence[Knob]) -> tuple[dict[str, float], float]:
        """The coordinates of these knobs at which the linear times misfit least, and by how much."""
        places = {knob.key: point.places[knob.key] for knob in knobs}

        def misfit_at(key: str, place: float) -> float:
            return _misfit(_linear(point, {**places, key: place}), self._measured)

        for _ in range(SWEEPS if len(knobs) > 1 else 2):
            for knob in knobs:
                low, high = self._range(knob)
                places[knob.key] = _golden(partial(misfit_at, knob.key), low, high)
        return places, _misfit(_linear(point, places), self._measured)

    def _choose(self, point: _Point, most: int) -> tuple[list[Knob], list[float]]:
        """The knobs that lower the misfit, one at a time, and the misfit before the first and after each."""
        chosen: list[Knob] = []
        trail = [_misfit(point.times, self._measured)]
        while len(chosen) < most:
            found: list[tuple[float, int, Knob]] = []
            for place, knob in enumerate(self._knobs):
                if knob in chosen or self._effect(point, knob) < LEAST_EFFECT:
                    continue
                if any(_similarity(point, knob, other) > SIMILAR for other in chosen):
                    continue
                found.append((self._least(point, [*chosen, knob])[1], place, knob))
            if not found:
                break
            least, _, best = min(found, key=lambda one: one[0])
            # Of knobs that do as well as the best, or cannot be distinguished from it, the first of the list.
            misfit, _, knob = min(
                (
                    one
                    for one in found
                    if one[0] <= least * (1 + GAIN / 2) or _similarity(point, one[2], best) > SIMILAR
                ),
                key=lambda one: one[1],
            )
            if misfit > trail[-1] * (1 - GAIN):
                break
            chosen.append(knob)
            trail.append(misfit)
        return chosen, trail

    # ---- packets

    def _confirm(
        self, point: _Point, chosen: Sequence[Knob], counts: Mapping[str, int]
    ) -> tuple[dict[str, float], Vector]:
        """The values that packets confirm, and the times there."""
        best = {knob.key: point.places[knob.key] for knob in chosen}
        times = point.times
        least = _misfit(times, self._measured)
        for turn in range(ROUNDS if chosen else 0):
            wanted, expected = self._least(point, chosen)
            self._tell(f"round {turn + 1}: {100 * expected:.1f} % expected; {1 + len(chosen)} runs")
            tries = [
                {key: best[key] + share * (wanted[key] - best[key]) for key in wanted} for share in (1.0, 0.5)
            ]
            asked = self._times([self._settings(chosen, one, counts) for one in tries])
            misfits = [_misfit(one, self._measured) for one in asked]
            if min(misfits) > least * (1 - LEAST_EFFECT):
                break
            at = misfits.index(min(misfits))
            best, times, least = self._rounded(chosen, tries[at]), asked[at], misfits[at]
            point = self._around(best, times, chosen, counts)
        return best, times

    def _counts(
        self, chosen: Sequence[Knob], places: Mapping[str, float], times: Vector, most: int
    ) -> dict[str, int]:
        """Channels and queue pairs that fit better than the scenario's own, by packets; at most so many."""
        found: dict[str, int] = {}
        least = _misfit(times, self._measured)
        for knob in COUNTS[: max(most, 0)]:
            values = [value for value in COUNT_VALUES if knob.least <= value <= knob.most]
            self._tell(f"{knob.key}: {len(values)} runs")
            changes = [self._settings(chosen, places, {**found, knob.key: value}) for value in values]
            misfits = [_misfit(one, self._measured) for one in self._times(changes)]
            if min(misfits) < least * (1 - GAIN):
                least = min(misfits)
                found[knob.key] = values[misfits.index(least)]
        return found

    def _rounded(self, chosen: Sequence[Knob], places: Mapping[str, float]) -> dict[str, float]:
        return {knob.key: coordinate(knob, max(value_at(knob, places[knob.key]), 1)) for knob in chosen}

    def _around(
        self, places: Mapping[str, float], times: Vector, chosen: Sequence[Knob], counts: Mapping[str, int]
    ) -> _Point:
        """The slopes near a point, by a tenth of each knob's range."""
        changes, steps = [], []
        for knob in chosen:
            low, high = self._range(knob)
            step = (high - low) / 10
            step = step if places[knob.key] + step <= high else -step
            moved = self._rounded(chosen, {**places, knob.key: places[knob.key] + step})
            steps.append(moved[knob.key] - places[knob.key])
            changes.append(self._settings(chosen, moved, counts))
        slopes = {
            knob.key: _slope(times, after, step)
            for knob, after, step in zip(chosen, self._times(changes), steps, strict=True)
        }
        return _Point(dict(places), times, slopes)

    # ---- what is said of it

    def _fitted(
        self,
        chosen: Sequence[Knob],
        counts: Mapping[str, int],
        places: Mapping[str, float],
        trail: Sequence[float],
    ) -> tuple[Fitted, ...]:
        """The knobs in the order in which they came, each with the misfit before and after it."""
        found = [
            Fitted(knob, self._start[knob.key], value_at(knob, places[knob.key]), trail[at], trail[at + 1])
            for at, knob in enumerate(chosen)
        ]
        found += [
            Fitted(knob, 0, counts[knob.key], trail[-2], trail[-1]) for knob in COUNTS if knob.key in counts
        ]
        return tuple(found)

    def _left(
        self, point: _Point, chosen: Sequence[Knob], counts: Mapping[str, int], reached: float
    ) -> tuple[Left, ...]:
        left = [
            Left(knob, "no other number than the scenario's fits better")
            for knob in COUNTS
            if knob.key not in counts
        ]
        for knob in self._knobs:
            if knob in chosen:
                continue
            twins = [other.key for other in chosen if _similarity(point, knob, other) > SIMILAR]
            if self._effect(point, knob) < LEAST_EFFECT:
                left.append(Left(knob, "changes none of these sizes by 1 %"))
            elif twins:
                left.append(Left(knob, f"cannot be told apart from {twins[0]} by these sizes"))
            else:
                left.append(
                    Left(knob, f"takes less than a tenth of the misfit of {100 * reached:.1f} % away")
                )
        return tuple(left)


def _rows(log: Log, before: Answer, after: Answer) -> tuple[Row, ...]:
    return tuple(
        Row(row.size_bytes, at % 2 == 1, row.time_us, before.times_us[at], after.times_us[at], after.ways[at])
        for at, row in enumerate(log.rows)
    )


def _misfit(times: Sequence[float], measured: Sequence[float]) -> float:
    """Root mean square of the logarithms of model over measurement."""
    total = sum(ln(max(mine, 1e-3) / own) ** 2 for mine, own in zip(times, measured, strict=True))
    return sqrt(total / len(measured))


def _slope(times: Vector, after: Vector, step: float) -> Vector:
    if step == 0:
        return tuple(0.0 for _ in times)
    return tuple((two - one) / step for one, two in zip(times, after, strict=True))


def _linear(point: _Point, places: Mapping[str, float]) -> Vector:
    """Times where some knobs are elsewhere."""
    times = list(point.times)
    for key, place in places.items():
        moved = place - point.places[key]
        if moved:
            for at, slope in enumerate(point.slopes[key]):
                times[at] += slope * moved
    return tuple(times)


def _similarity(point: _Point, one: Knob, other: Knob) -> float:
    """Cosine of the slopes of two knobs, each as a share of the time of its size."""
    first = [slope / time for slope, time in zip(point.slopes[one.key], point.times, strict=True)]
    second = [slope / time for slope, time in zip(point.slopes[other.key], point.times, strict=True)]
    norm = sqrt(sum(x * x for x in first) * sum(x * x for x in second))
    return sum(x * y for x, y in zip(first, second, strict=True)) / norm if norm else 0.0


def _golden(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one valley between two ends is least."""
    inner, outer = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_inner, at_outer = function(inner), function(outer)
    for _ in range(STEPS):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - GOLDEN * (high - low)
            at_inner = function(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + GOLDEN * (high - low)
            at_outer = function(outer)
    ends = [low, (low + high) / 2, high]
    return min(ends, key=function)
