"""Counters as text for Prometheus: while a run goes on, and as an OpenMetrics file afterwards.

The page is fast enough to be scraped during a run. A fabric has ten thousand series and more, and a general
client spends 15 us on each. Names and labels never change during a run, so each line's beginning is built
once, as bytes, and compiled code copies it and writes the number behind it (`emu.counts.lines`).
Ports are alike on all devices, so what tells their series apart is written once for all of them. Families
come in the order of the declaration, devices in the order they were given in, and a family without a series
is left out.

A switch port counts each of eight priorities, and a scenario uses two or three. A series of another priority
shows up once it is not zero, which keeps a page of a large fabric to what it can tell.

Text format 0.0.4. Time is rendered in seconds, in exact decimal.

Samples of a finished run. As one OpenMetrics text with a timestamp on every value, which `promtool tsdb
create-blocks-from openmetrics` turns into blocks. Prometheus keeps milliseconds and a run is over in a few,
so virtual time is stretched: `stretch` seconds of the timeline for one of virtual time (a million: 1 us
becomes a second). `emu_virtual_seconds_total` is among the series, so rates per virtual second are as on a
live run. The timeline begins at `start_s`, by default the beginning of 2000, so that nobody takes it for wall
time.

A value is written at the first sample, at the last, where it changed, and at the sample before that, so that
a graph has no slopes which the run did not have. OpenMetrics 1.0: families are whole, names of counters end
in `_total` and their family's name does not, the text ends in `# EOF`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from librt.strings import BytesWriter

from actors.kernel.counters import DEVICE_METRICS, Kind, Metric, Unit
from actors.kernel.device import Series, Tally
from actors.kernel.units import PS_PER_S
from emu.counts.collected import Sample
from emu.counts.lines import Lines
from emu.results.metrics import (
    METRIC_OF,
    STATE_METRICS,
    inner_labels,
    label_text,
    labels_of,
    seconds,
    shown_value,
)


class _Family:
    """The lines of one metric: what they begin with, and where their numbers stand."""

    __slots__ = ("begins", "header", "hidden", "hidden_places", "metric", "places", "shown")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.header = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}".encode()
        self.begins: list[bytes] = []
        self.places: list[int] = []
        self.hidden_places: list[int] = []
        """Places of the lines that are left out while their value is 0."""

    def close(self) -> None:
        """Every line is known."""
        self.shown = self.lines(self.begins, self.places)
        self.hidden = self.lines([], self.hidden_places)
        del self.places, self.hidden_places

    def lines(self, begins: list[bytes], places: list[int]) -> Lines:
        """Lines of this metric."""
        return Lines(begins, places, self.metric.unit is Unit.PS)


class Exposition:
    """The device series of one worker, ready to be rendered again and again.

    `devices` are (name, `Device.series()`) pairs; `render` and `write` take what
    `Device.counters()` of each returned, in the same order. `priorities` are those that the scenario uses.
    """

    def __init__(
        self, devices: Iterable[tuple[str, Sequence[Series]]], priorities: Collection[int] = range(8)
    ) -> None:
        families = {metric.key: _Family(metric) for metric in DEVICE_METRICS}
        self._begun: dict[int, bytes] = {}
        """By place, how a hidden line that was shown once begins."""
        self._heads: list[str] = []
        self._starts: list[int] = []
        self._layouts: list[Sequence[Series]] = []
        equal: dict[Series, tuple[_Family, str | None]] = {}
        """What lines of a series end with before their value, by the series itself, which devices share;
        None of one that is hidden."""
        place = 0
        for name, series in devices:
            head = f'{{device="{label_text(name)}"'
            self._heads.append(head)
            self._starts.append(place)
            self._layouts.append(series)
            for one in series:
                known = equal.get(one)
                if known is None:
                    family = families.get(one.metric)
                    assert family is not None, (
                        f"{name} counts {one.metric!r}, which emu.results.metrics lacks"
                    )
                    hidden = one.priority >= 0 and one.priority not in priorities
                    known = equal[one] = (family, None if hidden else inner_labels(family.metric, one) + "} ")
                family, tail = known
                if tail is None:
                    family.hidden_places.append(place)
                else:
                    family.begins.append(f"\n{family.metric.name}{head}{tail}".encode())
                    family.places.append(place)
                place += 1
        self.families = [one for one in families.values() if one.places or one.hidden_places]
        for family in self.families:
            family.close()
        self.series_count = place

    def render(self, tally: Tally) -> bytes:
        """The text of every series, a newline at the end; empty if there is no series."""
        out = BytesWriter()
        self.write(out, tally)
        return out.getvalue()

    def write(self, out: BytesWriter, tally: Tally) -> None:
        """Write that text."""
        assert len(tally) == self.series_count, (len(tally), self.series_count)
        for family in self.families:
            more = family.hidden.not_zero(tally)
            if family.begins or more:
                out.write(family.header)
                family.shown.write(out, tally)
                if more:
                    begins = [self._begin(family.metric, place) for place in more]
                    family.lines(begins, more).write(out, tally)
                out.write(b"\n")

    def _begin(self, metric: Metric, place: int) -> bytes:
        """How the line of a place begins."""
        found = self._begun.get(place)
        if found is None:
            device = bisect_right(self._starts, place) - 1
            one = self._layouts[device][place - self._starts[device]]
            found = f"\n{metric.name}{self._heads[device]}{inner_labels(metric, one)}}} ".encode()
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
        self._last: dict[str, tuple[Sequence[tuple[tuple[str, ...], int]], bytes]] = {}

    def render(self, rows: Rows) -> bytes:
        """The text of every series, a newline at the end; empty if there is none."""
        return b"".join(
            self._family(metric, rows[metric.key]) for metric in STATE_METRICS if metric.key in rows
        )

    def _family(self, metric: Metric, rows: Sequence[tuple[tuple[str, ...], int]]) -> bytes:
        last, text = self._last.get(metric.key, ((), b""))
        if rows is last:
            return text
        lines = [f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}"] if rows else []
        lines += [self._begin(metric, values) + shown_value(metric, value) for values, value in rows]
        text = "".join(line + "\n" for line in lines).encode()
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


START_S: Final = 946_684_800
"""2000-01-01T00:00:00Z."""
STRETCH: Final = 1_000_000
"""Virtual times are stretched to seconds: Prometheus stores milliseconds, and a run may last for 100 us."""
LOOK_BACK_S: Final = 240
"""Less than the five minutes that Prometheus looks back."""

Curve = list[tuple[int, int]]
"""(virtual_ps, value), by time."""


def openmetrics(
    names: Mapping[int, str],
    series: Mapping[int, Sequence[Series]],
    samples: Iterable[Sample],
    *,
    start_s: int = START_S,
    stretch: int = STRETCH,
    state: Mapping[str, Sequence[tuple[tuple[str, ...], Curve | None]]] | None = None,
) -> Iterator[str]:
    """The lines of the text, each with its newline.

    `names` and `series` go by device number. `state` are further series by key, with the values of their
    labels; None in place of a curve: always 1.
    """
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
    whole = [(virtual_ps, 1) for virtual_ps in _often_enough(times_ps, stretch)]
    for key, rows in (state or {}).items():
        metric = METRIC_OF[key]
        yield from _header(metric) if rows else ()
        for values, own in rows:
            pairs = zip(metric.labels, values, strict=True)
            inside = ",".join(f'{label}="{label_text(text)}"' for label, text in pairs)
            for virtual_ps, value in whole if own is None else own:
                yield f"{metric.name}{{{inside}}} {shown_value(metric, value)} {stamp(virtual_ps)}\n"
    clock = METRIC_OF["virtual_ps"]
    yield from _header(clock)
    for virtual_ps in times_ps:
        yield f"{clock.name} {seconds(virtual_ps)} {stamp(virtual_ps)}\n"
    yield "# EOF\n"


def _often_enough(times_ps: Sequence[int], stretch: int) -> Iterator[int]:
    """Times at which a constant is written, so that Prometheus, which looks back for 5 minutes, finds it."""
    last_ps = -1
    for at, virtual_ps in enumerate(times_ps):
        following_ps = times_ps[min(at + 1, len(times_ps) - 1)]
        seconds_on = Fraction((following_ps - last_ps) * stretch, PS_PER_S)
        if last_ps < 0 or at == len(times_ps) - 1 or seconds_on > LOOK_BACK_S:
            yield virtual_ps
            last_ps = virtual_ps


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
