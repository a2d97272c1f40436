"""How does a Prometheus server read a worker while it runs?

Each worker serves its series as text on a loopback port, and the run serves one more page that lists the
workers (`http_sd`), so that a Prometheus server needs one URL.

A scrape never touches a device. The thread that answers it marks a snapshot as *wanted* and waits a moment;
the worker looks at `wanted` between slices, publishes its counters as plain integers if it is set, and goes
on. If none comes in time (the worker waits for a peer, or the run is over) the last snapshot is served, with
its own virtual time. So a run that nobody scrapes pays one attribute read a slice.

Compiled code keeps the interpreter lock during a slice, and every blocking call of the answering thread gives
it away (`emu.runtime.pages.server`). So `publish` waits until the answer is out, at most `COURTESY_S`: a
scrape costs about two slices, and not one for each call.

The series of devices are written from prebuilt lines (`emu.measure.prometheus.exposition`); the worker's own
few by prometheus-client.

Not here: OpenMetrics.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from librt.strings import BytesWriter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as ClientMetric
from prometheus_client.registry import Collector

from actors.kernel.device import Series
from actors.kernel.tally import Tally
from actors.kernel.units import PS_PER_S
from emu.measure.prometheus.exposition import Exposition, StateText
from emu.measure.series.metric import Kind, Metric, Unit
from emu.measure.series.metrics import ENGINE_METRICS, METRIC_OF
from emu.runtime.pages.server import Discovery, PageServer
from emu.runtime.pages.state_series import Rows
from emu.scenario.sections.switch import PfcSection

WAIT_S: Final = 0.08
"""How long a scrape waits for a fresh snapshot."""
COURTESY_S: Final = 0.05
"""How long `publish` waits for the answers it made possible."""

__all__ = ["Discovery", "Exporter"]

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Snapshot(NamedTuple):
    """What a worker publishes: its virtual time, the counters of each device, and its own few."""

    virtual_ps: int
    tally: Tally
    engine: dict[str, int]
    state: Rows


class Exporter:
    """The metrics page of one worker.

    `devices` are (name, `Device.series()`) pairs in the order in which `publish` passes their counters; they
    are asked for when somebody scrapes for the first time, since a large fabric has millions of series.
    `info` are the labels of the two constant series: {"build": {"version": ..., "compiled": ...}, "run":
    {...}}. `priorities` are those whose series are always shown (see `Exposition`): the lossless ones, since
    an alert on how much a counter rose does not see the first value of one that was not there.
    """

    content_type = METRICS_TYPE

    def __init__(
        self,
        devices: Iterable[tuple[str, Sequence[Series]]],
        info: Mapping[str, Mapping[str, str]] | None = None,
        priorities: Collection[int] = PfcSection().priorities,
    ) -> None:
        self.wanted = False
        """A scrape waits: publish at the next slice's end. Reading it costs nothing."""
        self._devices = devices
        self._priorities = priorities
        self._exposition: Exposition | None = None
        self._writing = threading.Lock()
        self._page = BytesWriter()
        """Kept, since a buffer of megabytes that is made anew costs a fault for each of its pages."""
        self._condition = threading.Condition()
        self._snapshot: Snapshot | None = None
        self._state = StateText()
        self._generation = 0
        self._unanswered = 0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_EngineCollector(self._latest, info or {}))
        self._server: PageServer | None = None

    def start(self) -> str:
        """Serve; return the address, "127.0.0.1:port". The page is `/metrics`."""
        self._server = PageServer({"/metrics": self}, "exporter")
        return self._server.address

    def publish(
        self,
        virtual_ps: int,
        tally: Tally,
        engine: Mapping[str, int] | None = None,
        state: Rows | None = None,
    ) -> None:
        """Hand over the counters of a sync point or of a slice's end; called by the worker's own thread.

        The tally must not change afterwards.
        `engine` has values for the keys of `ENGINE_METRICS`; virtual time and memory are filled in here.
        Waits, at most `COURTESY_S`, until the scrapes that waited are answered.
        """
        snapshot = Snapshot(virtual_ps, tally, dict(engine or {}), state or {})
        with self._condition:
            self._snapshot = snapshot
            self._generation += 1
            self.wanted = False
            if self._unanswered:
                self._condition.notify_all()
                self._condition.wait_for(lambda: self._unanswered == 0, COURTESY_S)

    def body(self) -> bytes:
        """The page, from a snapshot taken for it if the worker gave one in time."""
        with self._condition:
            self._unanswered += 1
            generation = self._generation
            self.wanted = True
            self._condition.wait_for(lambda: self._generation != generation, WAIT_S)
            snapshot = self._snapshot
        with self._writing:
            page = self._page
            page.truncate(0)
            if snapshot is not None:
                self._shown().write(page, snapshot.tally)
                page.write(self._state.render(snapshot.state))
            page.write(generate_latest(self._registry))
            return page.getvalue()

    def _shown(self) -> Exposition:
        """The series, ready to be rendered."""
        if self._exposition is None:
            self._exposition = Exposition(self._devices, self._priorities)
            self._devices = ()
        return self._exposition

    def sent(self) -> None:
        """A scrape is answered."""
        with self._condition:
            self._unanswered -= 1
            self._condition.notify_all()

    def close(self) -> None:
        """Stop serving. May be called again, and without `start`."""
        if self._server is not None:
            self._server.close()

    def _latest(self) -> Snapshot | None:
        return self._snapshot


class _EngineCollector(Collector):
    """The worker's own series, for prometheus-client."""

    def __init__(self, latest: Callable[[], Snapshot | None], info: Mapping[str, Mapping[str, str]]) -> None:
        self._latest = latest
        self._info = {key: dict(labels) for key, labels in info.items()}

    def collect(self) -> Iterator[ClientMetric]:
        """Every family, now."""
        snapshot = self._latest()
        for metric in ENGINE_METRICS:
            value: int | None = None
            if metric.key == "resident_bytes":
                value = resident_bytes()
            elif snapshot is not None and metric.key == "virtual_ps":
                value = snapshot.virtual_ps
            elif snapshot is not None:
                value = snapshot.engine.get(metric.key)
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
