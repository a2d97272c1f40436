"""How do counters become Prometheus text, fast enough to be scraped during a run?

A fabric has ten thousand series and more, and a general client spends 15 us on each. Names and labels never
change during a run, so each line's beginning is built once; a scrape joins it with the value. Families come
in the order of the declaration, devices in the order they were given in, and a family without a series is
left out.

A switch port counts each of eight priorities, and a scenario uses two or three. A series of another priority
shows up once it is not zero, which keeps a page of a large fabric to what it can tell.

Text format 0.0.4. Time is rendered in seconds, in exact decimal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import add

from emu.kernel.device import Series
from emu.measure.metric import Metric, Unit
from emu.measure.metrics import DEVICE_METRICS, label_text, labels_of, seconds, shown_value
from emu.measure.state_metrics import STATE_METRICS


class _Family:
    """The lines of one metric: what they begin with, and where their values stand in the flat list."""

    __slots__ = ("begun", "header", "in_seconds", "metric", "places", "prefixes", "unused", "unused_places")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.header = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}"
        self.in_seconds = metric.unit is Unit.PS
        self.prefixes: list[str] = []
        self.places: list[int] = []
        self.unused: list[tuple[int, str, Series]] = []
        """Place, device and series of the lines that are left out while their value is 0."""
        self.unused_places: list[int] = []
        self.begun: dict[int, str] = {}
        """By place, the beginning of such a line that was shown once."""

    def lines(self, flat: Sequence[int]) -> list[str]:
        """Header and lines; empty if no line is to be shown."""
        found = map(flat.__getitem__, self.places)
        text: Callable[[int], str] = _seconds_or_0 if self.in_seconds else str
        lines = list(map(add, self.prefixes, map(text, found)))
        unused = list(map(flat.__getitem__, self.unused_places))
        if any(unused):
            lines += [
                self._begin(one) + text(value)
                for one, value in zip(self.unused, unused, strict=True)
                if value
            ]
        return [self.header, *lines] if lines else []

    def _begin(self, unused: tuple[int, str, Series]) -> str:
        found = self.begun.get(unused[0])
        if found is None:
            found = self.metric.name + labels_of(self.metric, unused[1], unused[2]) + " "
            self.begun[unused[0]] = found
        return found


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
        place = 0
        for name, series in devices:
            for one in series:
                family = families.get(one.metric)
                assert family is not None, f"{name} counts {one.metric!r}, which emu.measure.metrics lacks"
                if one.priority < 0 or one.priority in priorities:
                    family.prefixes.append(family.metric.name + labels_of(family.metric, name, one) + " ")
                    family.places.append(place)
                else:
                    family.unused.append((place, name, one))
                    family.unused_places.append(place)
                place += 1
        self.families = [family for family in families.values() if family.places or family.unused]
        self.series_count = place

    def render(self, values: Iterable[Sequence[int]]) -> str:
        """The text of every series, a newline at the end; empty if there is no series."""
        flat = list(chain.from_iterable(values))
        assert len(flat) == self.series_count, (len(flat), self.series_count)
        lines: list[str] = []
        for family in self.families:
            lines += family.lines(flat)
        lines.append("")
        return "\n".join(lines)


def state_text(
    rows: Mapping[str, Sequence[tuple[tuple[str, ...], int]]], begun: dict[tuple[str, tuple[str, ...]], str]
) -> str:
    """The series of state: by key, the values of their labels and their values.

    `begun` is kept from page to page: the beginnings of lines that were shown before.
    """
    lines: list[str] = []
    for metric in STATE_METRICS:
        of_metric = rows.get(metric.key, ())
        if of_metric:
            lines.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}")
        for values, value in of_metric:
            begin = begun.get((metric.key, values))
            if begin is None:
                pairs = zip(metric.labels, values, strict=True)
                inside = ",".join(f'{label}="{label_text(text)}"' for label, text in pairs)
                begin = begun[metric.key, values] = (
                    f"{metric.name}{{{inside}}} " if inside else f"{metric.name} "
                )
            lines.append(begin + shown_value(metric, value))
    return "".join(line + "\n" for line in lines)
