"""The counters of a run, added up in the ways that summary and diagnosis ask for.

A module of its own because it is compiled: it looks at every counter of every device, once. Nearly all of a
large fabric are 0 and passed over; of the others each device has a sum for each metric and port.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from actors.kernel.counters import (
    INGRESS_PEAK_BYTES,
    QUEUE_MARKED_FRAMES,
    QUEUE_PEAK_BYTES,
    VOQ_PEAK_BYTES,
)
from actors.kernel.device import Series
from emu.counts.collected import DROPPED, ByCounters, DeviceRecord
from emu.results.metrics import DROP_REASONS, METRIC_OF

BY_PRIORITY: Final = frozenset({INGRESS_PEAK_BYTES, QUEUE_MARKED_FRAMES})
"""What is added up by priority as well."""
PEAKS: Final = frozenset({INGRESS_PEAK_BYTES, QUEUE_PEAK_BYTES, VOQ_PEAK_BYTES})
"""Counters of which the largest is kept by priority."""


class Layout:
    """Counters that devices have alike, and where each stands among their sums."""

    def __init__(self, series: tuple[Series, ...]) -> None:
        self.series = series
        self.place_of: dict[tuple[str, int], int] = {}
        """(metric, port) to the place of its sum."""
        self.places: list[int] = []
        """By counter, the place of the sum that it belongs to."""
        self.metrics: list[str] = []
        self.split: list[bool] = []
        """By counter, whether it is told apart by priority or reason as well."""
        for one in series:
            metric: str = one.metric
            self.places.append(self.place_of.setdefault((metric, one.port), len(self.place_of)))
            self.metrics.append(metric)
            self.split.append(metric in PEAKS or metric in BY_PRIORITY or one.reason != "")
        self.nothing: list[int] = [0] * len(self.place_of)
        self._places_at: dict[tuple[str, ...], list[list[int]]] = {}

    def places_at(self, metrics: tuple[str, ...]) -> list[list[int]]:
        """By port, the places of the sums of some metrics; -1 where there is none. Worked out once."""
        found = self._places_at.get(metrics)
        if found is None:
            ports = 1 + max([port for _, port in self.place_of], default=-1)
            found = self._places_at[metrics] = [
                [self.place_of.get((metric, port), -1) for metric in metrics] for port in range(ports)
            ]
        return found


class Counted:
    """What one device counted: sums and the largest among priorities and reasons, by place of its layout."""

    def __init__(self, layout: Layout, counters: Sequence[int]) -> None:
        self.layout = layout
        self.counters = counters
        self.sums: list[int] = layout.nothing.copy()
        self.most: list[int] = layout.nothing.copy()


class Counts:
    """The counters of a run, added up."""

    def __init__(self, records: Iterable[DeviceRecord] = ()) -> None:
        self.of_metric: dict[str, int] = {}
        """Sum of every metric that some device counts."""
        self.of_priority: dict[tuple[str, int], int] = {}
        """(metric, priority): of those in `BY_PRIORITY`, where that is not 0."""
        self.most_of_priority: dict[tuple[str, int], int] = {}
        """(metric, priority): the largest of those in `PEAKS`, where that is not 0."""
        self.of_reason: dict[str, int] = {}
        """Frames dropped, for every reason that some device counts."""
        self.dropped: dict[tuple[int, int, str], int] = {}
        """(device, port, reason): of counters that have a reason, where they are not 0."""
        self.busy: dict[int, Counted] = {}
        """The devices that counted something, in the order of their records."""
        self._layouts = ByCounters(self._begun)
        for record in records:
            self.add(record.number, record.series, () if record.idle else record.counters)

    def add(self, number: int, series: Sequence[Series], counters: Sequence[int]) -> None:
        """What one more device counted; no `counters` where all are 0."""
        layout = self._layouts.of(series)
        if len(counters) == 0:
            return
        assert len(layout.series) == len(counters), number
        counted: Counted | None = None
        for at, value in enumerate(counters):
            if value != 0:
                if counted is None:
                    counted = self.busy[number] = Counted(layout, counters)
                place = layout.places[at]
                counted.sums[place] += value
                if counted.most[place] < value:
                    counted.most[place] = value
                metric = layout.metrics[at]
                self.of_metric[metric] += value
                if layout.split[at]:
                    self._split(number, layout.series[at], value)

    def _begun(self, series: tuple[Series, ...]) -> Layout:
        """A layout, whose counters are known from now on."""
        for one in series:
            metric: str = one.metric
            assert metric in METRIC_OF, f"a device counts {metric!r}, which emu.results.metrics lacks"
            self.of_metric.setdefault(metric, 0)
            if metric == DROPPED:
                assert one.reason in DROP_REASONS, one.reason
                self.of_reason.setdefault(one.reason, 0)
        return Layout(series)

    def _split(self, number: int, series: Series, value: int) -> None:
        metric: str = series.metric
        key = (metric, int(series.priority))
        if metric in PEAKS:
            self.most_of_priority[key] = max(self.most_of_priority.get(key, 0), value)
        if metric in BY_PRIORITY:
            self.of_priority[key] = self.of_priority.get(key, 0) + value
        if series.reason != "":
            self.dropped[number, series.port, series.reason] = value
            if metric == DROPPED:
                self.of_reason[series.reason] += value

    def total(self, metric: str) -> int:
        """Over all devices, ports and priorities; 0 if nothing counts it."""
        return self.of_metric.get(metric, 0)

    def priorities(self, metric: str, priorities: Iterable[int]) -> int:
        """Over all devices and ports, of these priorities."""
        return sum([self.of_priority.get((metric, priority), 0) for priority in priorities])

    def highest(self, metrics: Iterable[str], priorities: Iterable[int]) -> int:
        """The largest value of peaks at one port, of these priorities."""
        among = list(priorities)
        found = 0
        for metric in metrics:
            for priority in among:
                found = max(found, self.most_of_priority.get((metric, priority), 0))
        return found

    def port(self, metric: str, device: int, port: int) -> int:
        """The sum of one port (-1: of the device as a whole), over priorities and reasons."""
        counted = self.busy.get(device)
        if counted is None:
            return 0
        place = counted.layout.place_of.get((metric, port), -1)
        return 0 if place < 0 else counted.sums[place]

    def port_most(self, metric: str, device: int, port: int) -> int:
        """The largest among the priorities of one port."""
        counted = self.busy.get(device)
        if counted is None:
            return 0
        place = counted.layout.place_of.get((metric, port), -1)
        return 0 if place < 0 else counted.most[place]

    def of_ports(self, metrics: tuple[str, ...], device: int, most: int = 0) -> list[list[int]]:
        """By port of a device that counted something, the sums of some metrics, of the last `most` of them
        the largest among the priorities."""
        counted = self.busy[device]
        sums = len(metrics) - most
        found: list[list[int]] = []
        for places in counted.layout.places_at(metrics):
            row: list[int] = []
            for at, place in enumerate(places):
                if place < 0:
                    row.append(0)
                else:
                    row.append(counted.sums[place] if at < sums else counted.most[place])
            found.append(row)
        return found

    def by_priority(self, metric: str, device: int, port: int) -> dict[int, int]:
        """The counter of a port by priority; without those that are 0 or of no priority."""
        found: dict[int, int] = {}
        counted = self.busy.get(device)
        if counted is None:
            return found
        place = counted.layout.place_of.get((metric, port), -1)
        if place < 0 or counted.sums[place] == 0:
            return found
        places = counted.layout.places
        for at, one in enumerate(counted.layout.series):
            if places[at] == place and one.priority >= 0 and counted.counters[at] != 0:
                found[one.priority] = found.get(one.priority, 0) + counted.counters[at]
        return found

    def ports(self, metric: str) -> list[tuple[int, int]]:
        """Devices and ports whose sum of a metric is not 0, in order; port -1 is a device as a whole."""
        found: list[tuple[int, int]] = []
        if self.total(metric) == 0:
            return found
        of_layout: dict[int, list[tuple[int, int]]] = {}
        for number, counted in self.busy.items():
            layout = counted.layout
            places = of_layout.get(id(layout))
            if places is None:
                places = [(port, place) for (name, port), place in layout.place_of.items() if name == metric]
                of_layout[id(layout)] = places
            for port, place in places:
                if counted.sums[place] != 0:
                    found.append((number, port))
        found.sort()
        return found

    def counters(self, device: int) -> dict[tuple[str, int, int, str], int]:
        """What a device counted that is not 0: by metric, port, priority and reason."""
        found: dict[tuple[str, int, int, str], int] = {}
        counted = self.busy.get(device)
        if counted is not None:
            for at, value in enumerate(counted.counters):
                if value != 0:
                    found[counted.layout.series[at].place] = value
        return found

    def peak(self, metric: str) -> tuple[int, int]:
        """The largest value of a device-wide gauge, and the first device that reached it; (0, -1) if none."""
        found = (0, -1)
        for device, port in self.ports(metric):
            value = self.port_most(metric, device, port)
            if value > found[0]:
                found = (value, device)
        return found
