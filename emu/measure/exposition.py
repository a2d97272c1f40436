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

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from emu.kernel.device import Series
from emu.measure.metrics import DEVICE_METRICS, METRIC_OF, Metric, Unit, labels_of, seconds


class _Family:
    """The lines of one metric: what they begin with, and where their values stand in the flat list."""

    __slots__ = ("header", "in_seconds", "places", "prefixes", "unused")

    def __init__(self, metric: Metric) -> None:
        self.header = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}"
        self.in_seconds = metric.unit is Unit.PS
        self.prefixes: list[str] = []
        self.places: list[int] = []
        self.unused: list[tuple[str, int]] = []
        """Lines that are left out while their value is 0."""

    def lines(self, flat: Sequence[int]) -> list[str]:
        """Header and lines; empty if no line is to be shown."""
        shown = zip(self.prefixes, self.places, strict=True)
        if self.in_seconds:
            lines = [prefix + (seconds(flat[at]) if flat[at] else "0") for prefix, at in shown]
            lines += [prefix + seconds(flat[at]) for prefix, at in self.unused if flat[at]]
        else:
            lines = [prefix + str(flat[at]) for prefix, at in shown]
            lines += [prefix + str(flat[at]) for prefix, at in self.unused if flat[at]]
        return [self.header, *lines] if lines else []


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
                metric = METRIC_OF.get(one.metric)
                assert metric is not None, f"{name} counts {one.metric!r}, which emu.measure.metrics lacks"
                family = families[one.metric]
                prefix = metric.name + labels_of(metric, name, one) + " "
                if one.priority < 0 or one.priority in priorities:
                    family.prefixes.append(prefix)
                    family.places.append(place)
                else:
                    family.unused.append((prefix, place))
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
