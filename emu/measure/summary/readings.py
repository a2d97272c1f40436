"""Values of a series, and the times at which they are known.

A counter of a device is known at the run's samples: at multiples of `run.sample_every`, at both ends of every
span that an expectation is about, and at the end of the run. A sample at T tells what happened before T.
Where nothing happened a run takes no samples; the values there are those of the last one (but for counters of
time, which go on while a port is paused: they are known at the samples alone). Series of jobs and faults are
in `emu.measure.summary.state_changes`.

Over a span a *counter* is what it rose by since the beginning of the span, or since the last sample before
where there is none just then; as a `rate`, what it rose by since the point before, a second. A gauge is what
it is. A peak is a gauge that knows the run from its beginning.

Routing groups. A group is the equal ports of a switch towards some destination, as they are while every link
is up: its label is their numbers, `0-2,5`. A port that is in several groups is a member of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from actors.fabric.model import Role, Topology
from actors.fabric.routing import routes
from actors.kernel.device import Series
from actors.kernel.units import PS_PER_S
from emu.measure.metrics import MEMBER, Kind, Unit, label_text, labels_of
from emu.scenario.expect import SeriesExpectation
from emu.scenario.spans import Span, direction_of, matches

Number = int | Fraction
ALL: Final = -1
"""In place of a line's number: what all lines come to together."""
_BITS: Final = 8


class Point(NamedTuple):
    """What is known at one time: values by the number of their line; none if all are as at the last point."""

    time_ps: int
    values: list[tuple[int, Number]]
    before: bool
    """Whether the span has not begun; only what a share is taken of is asked for then."""


class Record(NamedTuple):
    """One sample: by device, place and new value in turn of what changed."""

    virtual_ps: int
    changed: Mapping[int, Sequence[int]]


class Lines(NamedTuple):
    """The lines of a series that an expectation is about."""

    names: list[str]
    places: dict[int, dict[int, list[int]]]
    """By device and place among its counters: the lines' numbers."""


def lines_of(one: SeriesExpectation, layouts: Mapping[int, Sequence[Series]], topology: Topology) -> Lines:
    """Those that fit, by device."""
    names: list[str] = []
    places: dict[int, dict[int, list[int]]] = {}
    for device, layout in sorted(layouts.items()):
        node = topology.nodes[device]
        for place, series in enumerate(layout):
            if matches(one, series, node, topology):
                for labels in _labels_of(one, device, series, topology):
                    places.setdefault(device, {}).setdefault(place, []).append(len(names))
                    names.append(one.series + labels)
    return Lines(names, places)


def _labels_of(one: SeriesExpectation, device: int, series: Series, topology: Topology) -> Iterator[str]:
    """The labels of a counter's lines: several where its port is in several groups."""
    if one.metric.labels != MEMBER:
        yield labels_of(one.metric, topology.nodes[device].name, series)
    elif topology.nodes[device].role is Role.SWITCH:
        for values, port in members_of(topology, device):
            if port == series.port and one.where.group in (None, values[MEMBER.index("group")]):
                yield shown_labels(dict(zip(MEMBER, values, strict=True)))


def shown_labels(labels: Mapping[str, str]) -> str:
    """Labels and their values, braces included; nothing of none."""
    inside = ",".join(f'{name}="{label_text(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


class Follower:
    """Follows the lines of one expectation from sample to sample, and says what is known when."""

    def __init__(self, one: SeriesExpectation, lines: Lines, span: Span, every_ps: int) -> None:
        self._one = one
        self._places = lines.places
        self._span = span
        self._every_ps = every_ps
        self._counts = one.metric.kind is Kind.COUNTER
        self._holds = one.metric.unit is not Unit.PS
        self._wants_past = one.relation == "recovers_to"
        self._values = [one.metric.start] * len(lines.names)
        self._last = [0] * len(lines.names)
        """At the point before, of a rate; at the beginning of the span, of another counter."""
        self._last_ps = 0
        self._in_span = False
        self._moved = False
        """Whether a rate was not 0 at the point before, so that it may be now."""

    def take(self, record: Record) -> Iterator[Point]:
        """The points that a sample adds, in order."""
        now_ps = record.virtual_ps
        if self._holds:
            grid_ps = (now_ps - 1) // self._every_ps * self._every_ps
            for held_ps in sorted({self._span.begin_ps, self._span.end_ps, grid_ps}):
                if self._last_ps < held_ps < now_ps:
                    yield from self._point(held_ps, {})
        yield from self._point(now_ps, record.changed)

    def _point(self, now_ps: int, changed: Mapping[int, Sequence[int]]) -> Iterator[Point]:
        counts_all = self._counts and not self._one.rate
        if now_ps > self._span.end_ps or (now_ps == self._last_ps and now_ps):
            return
        if counts_all and now_ps > self._span.begin_ps and not self._in_span:
            self._last = list(self._values)
        moved = self._update(changed)
        inside = now_ps > self._span.begin_ps or (now_ps == self._span.begin_ps and not self._counts)
        known = self._in_span and not moved and not self._moved and not self._wants_past
        self._moved = moved and self._one.rate
        if inside or self._wants_past:
            found = [] if known else self._found(now_ps - self._last_ps)
            if found or known:
                yield Point(now_ps, found, not inside)
            self._in_span = self._in_span or inside
        if self._one.rate:
            self._last = list(self._values)
        self._last_ps = now_ps

    def _update(self, changed: Mapping[int, Sequence[int]]) -> bool:
        """Whether a line changed."""
        moved = False
        for device, flat in changed.items():
            places = self._places.get(device)
            if places is not None:
                for place, value in zip(flat[::2], flat[1::2], strict=True):
                    for line in places.get(place, ()):
                        self._values[line] = value
                        moved = True
        return moved

    def _found(self, passed_ps: int) -> list[tuple[int, Number]]:
        values: list[Number]
        if not self._values:
            return []
        if self._one.rate:
            if passed_ps <= 0:
                return []
            values = [
                self._per_second(now - before, passed_ps)
                for now, before in zip(self._values, self._last, strict=True)
            ]
        elif self._counts:
            values = [now - before for now, before in zip(self._values, self._last, strict=True)]
        else:
            values = list(self._values)
        if self._one.combine == "each":
            return list(enumerate(values))
        return [(ALL, combined(self._one.combine, values))]

    def _per_second(self, risen: int, passed_ps: int) -> Number:
        unit = self._one.metric.unit
        if risen == 0:
            return 0
        if unit is Unit.PS:
            return Fraction(risen, passed_ps)
        return Fraction(risen * PS_PER_S * (_BITS if unit is Unit.BYTES else 1), passed_ps)


def combined(how: str, values: Sequence[Number]) -> Number:
    """What several lines come to together."""
    if how == "sum":
        return sum(values)
    if how == "mean":
        return Fraction(sum(values), len(values))
    return max(values) if how == "max" else min(values)


def records_of(lines: Iterable[Mapping[str, object]]) -> Iterator[Record]:
    """The samples among the lines of `samples.jsonl`."""
    for line in lines:
        changed = line.get("changed")
        if isinstance(changed, Mapping):
            yield Record(
                int(str(line["virtual_ps"])), {int(device): flat for device, flat in changed.items()}
            )


def members_of(topology: Topology, switch: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """The members of a switch's groups of two ports and more: their labels (device, group, port, peer and
    direction), and the port.
    """
    nodes, ports = topology.nodes, topology.ports(switch)
    for group in sorted(dict.fromkeys(routes(topology).groups(switch))):
        if len(group) < 2:
            continue
        for at in group:
            peer = nodes[ports[at].peer]
            direction = direction_of(nodes[switch], peer)
            yield (nodes[switch].name, ranges(group), str(at), peer.name, direction), at


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: [0, 1, 2, 5] is "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)
