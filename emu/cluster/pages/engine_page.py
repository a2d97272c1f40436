"""A worker's own series on its metrics page: virtual time, events, windows, memory.

Virtual time, events, windows, memory, and which build and run it is part of, written by prometheus-client.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as ClientMetric
from prometheus_client.registry import Collector

from actors.kernel.counters import Kind, Metric, Unit
from actors.kernel.units import PS_PER_S
from emu.results.metrics import ENGINE_METRICS, METRIC_OF


class EnginePage(Collector):
    """The worker's own series, for prometheus-client."""

    def __init__(self, info: Mapping[str, Mapping[str, str]]) -> None:
        self._info = {key: dict(labels) for key, labels in info.items()}
        self._counts: Mapping[str, int] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self, counts: Mapping[str, int]) -> bytes:
        """Every series; `counts` by the keys of `ENGINE_METRICS`, without those that are not known."""
        self._counts = counts
        return generate_latest(self._registry)

    def collect(self) -> Iterator[ClientMetric]:
        """Every family, now."""
        for metric in ENGINE_METRICS:
            value = (
                resident_bytes() if metric.key == "resident_memory_bytes" else self._counts.get(metric.key)
            )
            if value is not None:
                yield _family(metric, value)
        for key, labels in self._info.items():
            metric = METRIC_OF[key]
            assert tuple(labels) == metric.labels, (key, tuple(labels), metric.labels)
            info = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            info.add_metric(list(labels.values()), 1)
            yield info


def _family(metric: Metric, value: int) -> ClientMetric:
    number = value / PS_PER_S if metric.unit is Unit.PS else value
    if metric.kind is Kind.COUNTER:
        return CounterMetricFamily(metric.name, metric.help, value=number)
    return GaugeMetricFamily(metric.name, metric.help, value=number)


def resident_bytes() -> int:
    """The resident memory of this process, now."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()
