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

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from emu.kernel.device import Series
from emu.measure.metric import Metric, Unit
from emu.measure.metrics import DEVICE_METRICS, label_text, labels_of, seconds
from emu.measure.state_metrics import STATE_METRICS


class _Family:
    """The lines of one metric: what they begin with, and where their values stand in the flat list."""

    __slots__ = ("header", "in_seconds", "metric", "places", "prefixes", "unused")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.header = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}"
        self.in_seconds = metric.unit is Unit.PS
        self.prefixes: list[str] = []
        self.places: list[int] = []
        self.unused: list[tuple[int, str, Series]] = []
        """Place, device and series of the lines that are left out while their value is 0."""

    def lines(self, flat: Sequence[int]) -> list[str]:
        """Header and lines; empty if no line is to be shown."""
        shown = zip(self.prefixes, self.places, strict=True)
        if self.in_seconds:
            lines = [prefix + (seconds(flat[at]) if flat[at] else "0") for prefix, at in shown]
            lines += [self._begin(one) + seconds(flat[one[0]]) for one in self.unused if flat[one[0]]]
        else:
            lines = [prefix + str(flat[at]) for prefix, at in shown]
            lines += [self._begin(one) + str(flat[one[0]]) for one in self.unused if flat[one[0]]]
        return [self.header, *lines] if lines else []

    def _begin(self, unused: tuple[int, str, Series]) -> str:
        return self.metric.name + labels_of(self.metric, unused[1], unused[2]) + " "


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


def state_text(rows: Mapping[str, Sequence[tuple[Sequence[str], int]]]) -> str:
    """The series of state: by key, the values of their labels and their values."""
    lines: list[str] = []
    for metric in STATE_METRICS:
        of_metric = rows.get(metric.key, ())
        if of_metric:
            lines.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}")
        for values, value in of_metric:
            pairs = zip(metric.labels, values, strict=True)
            inside = ",".join(f'{label}="{label_text(text)}"' for label, text in pairs)
            shown = seconds(value) if metric.unit is Unit.PS else str(value)
            lines.append(f"{metric.name}{{{inside}}} {shown}" if inside else f"{metric.name} {shown}")
    return "".join(line + "\n" for line in lines)
