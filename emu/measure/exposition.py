"""How do counters become Prometheus text, fast enough to be scraped during a run?

A fabric has ten thousand series and more, and a general client spends 15 us on each. Names and labels never
change during a run, so each line's beginning is built once; a scrape joins it with the value. Ports are alike
on all devices, so what tells their series apart is written once for all of them. A family none of whose
values changed since the scrape before is not rendered anew: of a run's families most stand still. Families
come in the order of the declaration, devices in the order they were given in, and a family without a series
is left out.

A switch port counts each of eight priorities, and a scenario uses two or three. A series of another priority
shows up once it is not zero, which keeps a page of a large fabric to what it can tell.

Text format 0.0.4. Time is rendered in seconds, in exact decimal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, compress
from operator import add, itemgetter

from emu.kernel.device import Series
from emu.measure.metric import Metric, Unit
from emu.measure.metrics import DEVICE_METRICS, inner_labels, label_text, seconds, shown_value
from emu.measure.state_metrics import STATE_METRICS

Flat = Sequence[int]
"""The values of all devices, one after the other."""


class _Family:
    """The lines of one metric: what they begin with, and where their values stand in the flat list."""

    __slots__ = (
        "header",
        "hidden",
        "hidden_places",
        "last",
        "metric",
        "places",
        "prefixes",
        "shown",
        "text",
    )

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.header = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}"
        self.text: Callable[[int], str] = _seconds_or_0 if metric.unit is Unit.PS else str
        self.prefixes: list[str] = []
        self.places: list[int] = []
        self.hidden_places: list[int] = []
        """Of the lines that are left out while their value is 0."""
        self.shown: Callable[[Flat], tuple[int, ...]] = tuple
        self.hidden: Callable[[Flat], tuple[int, ...]] = tuple
        self.last: tuple[tuple[int, ...], str] = ((), "")
        """Values that are always shown, and their lines."""

    def close(self) -> None:
        """Every line is known."""
        self.shown, self.hidden = _taker(self.places), _taker(self.hidden_places)

    def lines(self, flat: Flat, begin: Callable[[Metric, int], str]) -> list[str]:
        """Header and lines; empty if no line is to be shown. `begin` says how a hidden line begins."""
        values = self.shown(flat)
        last = self.last  # Two may scrape at once.
        if values != last[0]:
            last = self.last = (values, "\n".join(map(add, self.prefixes, map(self.text, values))))
        found = [last[1]] if values else []
        hidden = self.hidden(flat)
        if any(hidden):
            found += [
                begin(self.metric, place) + self.text(flat[place])
                for place in compress(self.hidden_places, hidden)
            ]
        return [self.header, *found] if found else []


def _taker(places: Sequence[int]) -> Callable[[Flat], tuple[int, ...]]:
    """What takes the values of some places out of the flat list."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda flat: tuple(flat[place] for place in places)


def _seconds_or_0(time_ps: int) -> str:
    return seconds(time_ps) if time_ps else "0"


class Exposition:
    """The device series of one worker, ready to be rendered again and again.

    `devices` are (name, `Device.series()`) pairs; `render` takes what `Device.counters()` of each returned,
    in the same order. `priorities` are those that the scenario uses.
    """

    def __init__(
        self, devices: Iterable[tuple[str, Sequence[Series]]], priorities: Collection[int] = range(8)
    ) -> None:
        families = {metric.key: _Family(metric) for metric in DEVICE_METRICS}
        self._begun: dict[int, str] = {}
        """By place, how a hidden line that was shown once begins."""
        self._heads: list[str] = []
        self._starts: list[int] = []
        self._layouts: list[Sequence[Series]] = []
        alike: dict[Series, tuple[_Family, str | None]] = {}
        """What lines of a series end with before their value, by the series itself, which devices share;
        None of one that is hidden."""
        place = 0
        for name, series in devices:
            head = f'{{device="{label_text(name)}"'
            self._heads.append(head)
            self._starts.append(place)
            self._layouts.append(series)
            for one in series:
                known = alike.get(one)
                if known is None:
                    family = families.get(one.metric)
                    assert family is not None, (
                        f"{name} counts {one.metric!r}, which emu.measure.metrics lacks"
                    )
                    hidden = one.priority >= 0 and one.priority not in priorities
                    known = alike[one] = (family, None if hidden else inner_labels(family.metric, one) + "} ")
                family, tail = known
                if tail is None:
                    family.hidden_places.append(place)
                else:
                    family.prefixes.append(f"{family.metric.name}{head}{tail}")
                    family.places.append(place)
                place += 1
        self.families = [one for one in families.values() if one.places or one.hidden_places]
        for family in self.families:
            family.close()
        self.series_count = place

    def render(self, values: Iterable[Sequence[int]]) -> str:
        """The text of every series, a newline at the end; empty if there is no series."""
        flat = list(chain.from_iterable(values))
        assert len(flat) == self.series_count, (len(flat), self.series_count)
        lines: list[str] = []
        for family in self.families:
            lines += family.lines(flat, self._begin)
        lines.append("")
        return "\n".join(lines)

    def _begin(self, metric: Metric, place: int) -> str:
        """How the line of a place begins."""
        found = self._begun.get(place)
        if found is None:
            device = bisect_right(self._starts, place) - 1
            one = self._layouts[device][place - self._starts[device]]
            found = f"{metric.name}{self._heads[device]}{inner_labels(metric, one)}}} "
            self._begun[place] = found
        return found


Rows = Mapping[str, Sequence[tuple[tuple[str, ...], int]]]
"""Series of state: by key, the values of their labels and their values."""


class StateText:
    """The series of state, ready to be rendered again and again.

    Rows that are the very ones of the time before are not rendered anew, so they are not to be changed.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[str, tuple[str, ...]], str] = {}
        """The beginnings of lines that were shown before."""
        self._last: dict[str, tuple[Sequence[tuple[tuple[str, ...], int]], str]] = {}

    def render(self, rows: Rows) -> str:
        """The text of every series, a newline at the end; empty if there is none."""
        return "".join(
            self._family(metric, rows[metric.key]) for metric in STATE_METRICS if metric.key in rows
        )

    def _family(self, metric: Metric, rows: Sequence[tuple[tuple[str, ...], int]]) -> str:
        last, text = self._last.get(metric.key, ((), ""))
        if rows is last:
            return text
        lines = [f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}"] if rows else []
        lines += [self._begin(metric, values) + shown_value(metric, value) for values, value in rows]
        text = "".join(line + "\n" for line in lines)
        self._last[metric.key] = (rows, text)
        return text

    def _begin(self, metric: Metric, values: tuple[str, ...]) -> str:
        begin = self._begun.get((metric.key, values))
        if begin is None:
            pairs = zip(metric.labels, values, strict=True)
            inside = ",".join(f'{label}="{label_text(text)}"' for label, text in pairs)
            begin = f"{metric.name}{{{inside}}} " if inside else f"{metric.name} "
            self._begun[metric.key, values] = begin
        return begin
