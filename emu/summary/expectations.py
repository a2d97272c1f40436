"""Whether series hold what the scenario expects of them, over their spans.

`never` and `always` ask every point of the span, `reaches` asks for one, and `recovers_to` asks the last
point of the span: from some point on, to the end of the span, the series is at the level. The level is a
value, or a share of the mean of the points before the fault, from the first that is not 0. Each line of a
series is judged by itself unless they are combined; a line that was 0 before a fault has nothing to recover.

The end of the run ends every span. A span without a point at which the series is known cannot be judged, and
that is a failed expectation, not one that holds. Why one does not hold is reported with the first time and
value that break it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.kernel.units import PS_PER_S
from emu.base.units import about_bandwidth, about_rate, about_size, about_time, format_time, shown_time
from emu.counts.collected import Changed, DeviceRecord
from emu.results.places import quantity
from emu.results.summary import Expectation as Verdict
from emu.scenario.expect import OF_OPERATIONS, OF_STATE, Bounds, SeriesExpectation, percent
from emu.scenario.spans import FaultTimes, Span, shown_span, span_of
from emu.summary.series import (
    ALL,
    Follower,
    Number,
    Point,
    State,
    lines_of,
    lines_of_state,
    points_of_operations,
)

History = Callable[[], Iterable[Changed]]
"""The samples of a run, as what changed."""


class Seen(NamedTuple):
    """The value of a line at a time."""

    time_ps: int
    line: int
    value: Number


class Judge:
    """Hears the points of one expectation, in order, and says what came of it."""

    def __init__(self, one: SeriesExpectation, span: Span, end_ps: int) -> None:
        self.names: Sequence[str] = ()
        self._one = one
        self._span = span
        self._end_ps = end_ps
        self._bounds = _bounds(one)
        self._points = 0
        self._broken: Seen | None = None
        self._extremes: dict[int, tuple[Number, Number]] = {}
        """By line, the least and the most in the span."""
        self._reached: dict[int, int] = {}
        self._past: dict[int, tuple[Number, int]] = {}
        """By line, the sum and the count of the points before the span."""
        self._now: dict[int, Seen] = {}
        self._back: dict[int, int] = {}
        """By line, since when it is at the level."""

    def take(self, point: Point) -> None:
        """Hear of one time."""
        self._points += not point.before
        for line, value in point.values:
            if point.before:
                self._remember(line, value)
            else:
                self._judge(Seen(point.time_ps, line, value))

    def _remember(self, line: int, value: Number) -> None:
        total, count = self._past.get(line, (0, 0))
        if count or value != 0:
            self._past[line] = (total + value, count + 1)

    def _judge(self, seen: Seen) -> None:
        least, most = self._extremes.get(seen.line, (seen.value, seen.value))
        self._extremes[seen.line] = (min(least, seen.value), max(most, seen.value))
        relation = self._one.relation
        if relation == "recovers_to":
            self._now[seen.line] = seen
            level = self._level(seen.line)
            if level is None or seen.value < level:
                self._back.pop(seen.line, None)
            else:
                self._back.setdefault(seen.line, seen.time_ps)
            return
        holds = self._holds(seen.value)
        if relation == "reaches" and holds:
            self._reached.setdefault(seen.line, seen.time_ps)
        if self._broken is None and holds == (relation == "never") and relation != "reaches":
            self._broken = seen

    def _holds(self, value: Number) -> bool:
        low, high = self._bounds
        return (low is None or value >= low) and (high is None or value <= high)

    def _level(self, line: int) -> Number | None:
        """What a line is to come back to; None if it has nothing to."""
        share = percent(self._one.recovers_to)
        if share is None:
            return self._bounds[0]
        total, count = self._past.get(line, (0, 0))
        return Fraction(total * share, count * 100) if count else None

    def verdict(self) -> tuple[str, str]:
        """What came of it, in words, and why it does not hold; one of them is empty."""
        if not self.names:
            return "", f"no line of {self._one.series} is there in this run"
        if not self._points:
            return "", self._unknown()
        ways = {
            "never": self._of_all,
            "always": self._of_all,
            "reaches": self._of_some,
            "recovers_to": self._of_last,
        }
        return ways[self._one.relation]()

    def _unknown(self) -> str:
        begin_ps, end_ps = self._span
        if begin_ps >= self._end_ps:
            ended = format_time(self._end_ps)
            return f"the span begins at {format_time(begin_ps)}, and the run ended at {ended}"
        until = format_time(min(end_ps, self._end_ps))
        what = "operation ended" if self._one.metric.key in OF_OPERATIONS else "sample was taken"
        return f"no {what} between {format_time(begin_ps)} and {until}, so nothing is known of it"

    def _of_all(self) -> tuple[str, str]:
        if self._broken is None:
            return f"so at {self._counted()}", ""
        time_ps, line, value = self._broken
        return "", f"{self._line(line)} is {self._shown(value)} at {self._when(time_ps)}"

    def _of_some(self) -> tuple[str, str]:
        for line, (least, most) in self._extremes.items():
            if line not in self._reached:
                stayed = (
                    f"is {self._shown(least)} to {self._shown(most)}"
                    if least != most
                    else f"stays {self._shown(most)}"
                )
                return "", f"{self._line(line)} {stayed} at {self._counted()}"
        last_ps = max(self._reached.values())
        return f"so at {self._when(last_ps)}", ""

    def _of_last(self) -> tuple[str, str]:
        judged = [line for line in self._now if self._level(line) is not None]
        if not judged:
            first = self._line(next(iter(self._now)))
            return "", f"{first} was 0 before the fault, so there is no level to recover to"
        for line in judged:
            if line not in self._back:
                seen, level = self._now[line], self._level(line)
                assert level is not None, line
                when = f"{self._when(seen.time_ps)}, the last point of the span"
                found = f"{self._line(line)} is {self._shown(seen.value)} at {when}"
                return "", f"{found}, less than {self._shown(level)}"
        least = min(self._extremes[line][0] for line in judged)
        last_ps = max(self._back[line] for line in judged)
        return f"there from {self._when(last_ps)} on, {self._shown(least)} at the lowest", ""

    def _counted(self) -> str:
        return "1 point" if self._points == 1 else f"all {self._points} points"

    def _line(self, line: int) -> str:
        return self._one.shown if line == ALL else f"{'rate of ' if self._one.rate else ''}{self.names[line]}"

    def _when(self, time_ps: int) -> str:
        shown = shown_time(time_ps)
        if self._one.within is None:
            return shown
        return f"{shown}, {about_time(time_ps - self._span.begin_ps)} into the span"

    def _shown(self, value: Number) -> str:
        kind = self._one.quantity
        if kind == "rate":
            return (about_bandwidth if "bandwidth" in self._one.series else about_rate)(int(value))
        if kind == "size":
            return about_size(int(value))
        if kind == "time":
            return about_time(int(value))
        return str(value) if value == int(value) else f"{float(value):.4g}"


def _bounds(one: SeriesExpectation) -> tuple[Number | None, Number | None]:
    """Least and most, in the unit in which values are worked out; neither for a share."""
    if percent(one.recovers_to) is not None:
        return None, None
    bound = one.bound
    if bound.between is not None:
        return _number(bound.between[0], one), _number(bound.between[1], one)
    value = _number(getattr(bound, bound.comparison), one)
    return (
        None if bound.comparison == "at_most" else value,
        None if bound.comparison == "at_least" else value,
    )


def _number(bound: float | str, one: SeriesExpectation) -> Number:
    if isinstance(bound, str):
        measured = quantity(bound)
        assert measured is not None, bound
        return measured[1]
    exact = bound if isinstance(bound, int) else Fraction(repr(bound))
    return exact * PS_PER_S if one.quantity == "time" else exact


def _shown_bound(bound: Bounds) -> str:
    if bound.between is not None:
        return f"between {bound.between[0]} and {bound.between[1]}"
    return f"{bound.comparison} {getattr(bound, bound.comparison)}"


def judge_series(
    expectations: Sequence[SeriesExpectation],
    history: History,
    records: Sequence[DeviceRecord],
    topology: Topology,
    state: State,
    faults: Mapping[int, FaultTimes],
    end_ps: int,
    every_ps: int,
) -> list[Verdict]:
    """A verdict on each, in order; `history` is read once. `faults` say when those of the scenario are."""
    layouts = {record.number: record.series for record in records}
    judges: list[Judge | str] = []
    followers: list[tuple[Follower, Judge]] = []
    for one in expectations:
        span = span_of(one, faults)
        if isinstance(span, str):
            judges.append(span)
            continue
        judge = Judge(one, span, end_ps)
        judges.append(judge)
        if one.metric.key in OF_OPERATIONS:
            judge.names, points = points_of_operations(one, state, span)
            for point in points:
                judge.take(point)
        elif one.metric.key in OF_STATE:
            lines, changes = lines_of_state(one, state, every_ps, end_ps)
            judge.names = lines.names
            _follow([(Follower(one, lines, span, every_ps), judge)], changes)
        else:
            lines = lines_of(one, layouts, topology)
            judge.names = lines.names
            followers.append((Follower(one, lines, span, every_ps), judge))
    if followers:
        last = {record.number: list(chain(*enumerate(record.counters))) for record in records}
        _follow(followers, chain(history(), [Changed(end_ps, last)]))
    return [_reported(one, judge) for one, judge in zip(expectations, judges, strict=True)]


def _follow(followers: Sequence[tuple[Follower, Judge]], records: Iterable[Changed]) -> None:
    for record in records:
        for follower, judge in followers:
            for point in follower.take(record):
                judge.take(point)


def _reported(one: SeriesExpectation, judge: Judge | str) -> Verdict:
    found, reason = ("", judge) if isinstance(judge, str) else judge.verdict()
    level = str(one.recovers_to) if one.relation == "recovers_to" else _shown_bound(one.bound)
    return Verdict(
        value=one.shown,
        relation=one.relation,
        expected=" ".join(part for part in (level, shown_span(one)) if part),
        actual=found or None,
        passed=not reason,
        reason=reason,
    )
