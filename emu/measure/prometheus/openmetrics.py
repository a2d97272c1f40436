"""Samples of a finished run as an OpenMetrics file for Prometheus.

As one OpenMetrics text with a timestamp on every value, which `promtool tsdb create-blocks-from openmetrics`
turns into blocks. Prometheus keeps milliseconds and a run is over in a few, so virtual time is stretched:
`stretch` seconds of the timeline for one of virtual time (a million: 1 us becomes a second).
`emu_virtual_seconds_total` is among the series, so rates per virtual second are as on a live run. The
timeline begins at `start_s`, by default the beginning of 2000, so that nobody takes it for wall time.

A value is written at the first sample, at the last, where it changed, and at the sample before that, so that
a graph has no slopes which the run did not have. OpenMetrics 1.0: families are whole, names of counters end
in `_total` and their family's name does not, the text ends in `# EOF`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from actors.kernel.device import Series
from actors.kernel.units import PS_PER_S
from emu.measure.collected import Sample
from emu.measure.series.metric import Kind, Metric
from emu.measure.series.metrics import DEVICE_METRICS, METRIC_OF, labels_of, seconds, shown_value

START_S: Final = 946_684_800
"""2000-01-01T00:00:00Z."""
STRETCH: Final = 1_000_000

Curve = list[tuple[int, int]]
"""(virtual_ps, value), by time."""


def openmetrics(
    names: Mapping[int, str],
    series: Mapping[int, Sequence[Series]],
    samples: Iterable[Sample],
    *,
    start_s: int = START_S,
    stretch: int = STRETCH,
) -> Iterator[str]:
    """The lines of the text, each with its newline. `names` and `series` by device number."""
    times_ps, curves = _curves(series, samples)

    def stamp(virtual_ps: int) -> str:
        milliseconds = int(start_s * 1000 + Fraction(virtual_ps * stretch * 1000, PS_PER_S))
        return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"

    for metric in DEVICE_METRICS:
        begun = False
        for (number, place), curve in curves.items():
            one = series[number][place]
            if one.metric != metric.key:
                continue
            if not begun:
                yield from _header(metric)
                begun = True
            begin = metric.name + labels_of(metric, names[number], one)
            for virtual_ps, value in curve:
                shown = shown_value(metric, value)
                yield f"{begin} {shown} {stamp(virtual_ps)}\n"
    clock = METRIC_OF["virtual_ps"]
    yield from _header(clock)
    for virtual_ps in times_ps:
        yield f"{clock.name} {seconds(virtual_ps)} {stamp(virtual_ps)}\n"
    yield "# EOF\n"


def _curves(
    series: Mapping[int, Sequence[Series]], samples: Iterable[Sample]
) -> tuple[list[int], dict[tuple[int, int], Curve]]:
    """The times of all samples, and of every series that is ever other than 0 the points to write."""
    times_ps: list[int] = []
    curves: dict[tuple[int, int], Curve] = {}
    last: dict[int, Sequence[int]] = {number: [0] * len(one) for number, one in series.items()}
    for sample in samples:
        for number, values in sample.counters.items():
            for place, (before, value) in enumerate(zip(last[number], values, strict=True)):
                if before == value:
                    continue
                curve = curves.setdefault((number, place), [])
                if times_ps and (not curve or curve[-1][0] < times_ps[-1]):
                    if not curve and times_ps[0] < times_ps[-1]:
                        curve.append((times_ps[0], before))
                    curve.append((times_ps[-1], before))
                curve.append((sample.virtual_ps, value))
            last[number] = values
        times_ps.append(sample.virtual_ps)
    for curve in curves.values():
        if curve[-1][0] < times_ps[-1]:
            curve.append((times_ps[-1], curve[-1][1]))
    return times_ps, dict(sorted(curves.items()))


def _header(metric: Metric) -> list[str]:
    family = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
    return [f"# TYPE {family} {metric.kind}\n", f"# HELP {family} {metric.help}\n"]
