"""Counters as Prometheus text, fast enough to be scraped during a run.

A fabric has ten thousand series and more, and a general client spends 15 us on each. Names and labels never
change during a run, so each line's beginning is built once, as bytes, and compiled code copies it and writes
the number behind it (`emu.measure.prometheus.lines`). Ports are alike on all devices, so what tells their
series apart is written once for all of them. Families come in the order of the declaration, devices in the
order they were given in, and a family without a series is left out.

A switch port counts each of eight priorities, and a scenario uses two or three. A series of another priority
shows up once it is not zero, which keeps a page of a large fabric to what it can tell.

Text format 0.0.4. Time is rendered in seconds, in exact decimal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence

from librt.strings import BytesWriter

from actors.kernel.device import Series, Tally
from emu.measure.prometheus.lines import Lines
from emu.measure.series.metric import Metric, Unit
from emu.measure.series.metrics import DEVICE_METRICS, STATE_METRICS, inner_labels, label_text, shown_value


class _Family:
    """The lines of one metric: what they begin with, and where their numbers stand."""

    __slots__ = ("begins", "header", "hidden", "hidden_places", "metric", "places", "shown")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.header = f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}".encode()
        self.begins: list[bytes] = []
        self.places: list[int] = []
        self.hidden_places: list[int] = []
        """Of the lines that are left out while their value is 0."""

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
                        f"{name} counts {one.metric!r}, which emu.measure.series.metrics lacks"
                    )
                    hidden = one.priority >= 0 and one.priority not in priorities
                    known = alike[one] = (family, None if hidden else inner_labels(family.metric, one) + "} ")
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
