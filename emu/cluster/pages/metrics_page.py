"""The metrics page of a worker, which a Prometheus server reads while the worker runs.

Each worker serves its series as text on a loopback port, and the run serves one more page that lists the
workers (`http_sd`), so that a Prometheus server needs one URL.

A scrape never touches a device. The thread that answers it marks a snapshot as *wanted* and waits a moment;
the worker looks at `wanted` between slices, publishes its counters as plain integers if it is set, and goes
on. If none comes in time (the worker waits for a peer, or the run is over) the last snapshot is served, with
its own virtual time. So a run that nobody scrapes pays one attribute read a slice.

Compiled code keeps the interpreter lock during a slice, and every blocking call of the answering thread gives
it away (`emu.cluster.pages.server`). So `publish` waits until the answer is out, at most `COURTESY_S`: a
scrape costs about two slices, and not one for each call.

The series of devices are written from prebuilt lines (`emu.counts.exposition`); the worker's own
few by prometheus-client (`emu.cluster.pages.engine_page`).

Not here: OpenMetrics.

The remote metrics proxy. The page of a worker on another host is on that host's loopback. The coordinator
serves such pages beside the list of workers
(`emu.cluster.pages.server.Discovery`) and asks the actor for each scrape. So one URL on one host reaches
every worker of a cluster, and nothing listens to the network for it.

A page outlives the actor behind it. Until its successor has passed the virtual time that was last shown, what
was last shown is shown again, so the counters of devices never fall.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from librt.strings import BytesWriter

from actors.kernel.device import Series, Tally
from emu.cluster.pages.server import Discovery, PageServer
from emu.cluster.pages.state_series import Rows
from emu.counts.exposition import Exposition, StateText
from emu.scenario.sections.switch import PfcSection

if TYPE_CHECKING:
    from emu.cluster.pages.engine_page import EnginePage

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
    `info` are the labels of the two constant series: {"build_info": {"version": ..., "compiled": ...},
    "run_info": {...}}. `priorities` are those whose series are always shown (see `Exposition`): the lossless
    ones, since an alert on how much a counter rose does not see the first value of one that was not there.
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
        self._info = info or {}
        self._own: EnginePage | None = None
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
                self._own_series()  # an import in the answering thread would wait for a slice at every file
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
            counts: dict[str, int] = {}
            if snapshot is not None:
                counts = {**snapshot.engine, "virtual_ps": snapshot.virtual_ps}
                self._shown().write(page, snapshot.tally)
                page.write(self._state.render(snapshot.state))
            page.write(self._own_series().text(counts))
            return page.getvalue()

    def _own_series(self) -> EnginePage:
        """The worker's own few series, ready to be rendered. prometheus-client takes long to import."""
        if self._own is None:
            from emu.cluster.pages.engine_page import EnginePage  # noqa: PLC0415 - most runs nobody scrapes

            self._own = EnginePage(self._info)
        return self._own

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


PAGE_S: Final = 20.0
"""How long an actor may take to answer a scrape."""


class RemotePage:
    """The metrics page of one worker, wherever it lives."""

    content_type = METRICS_TYPE

    def __init__(self) -> None:
        self.actor: Any = None
        """Whom to ask; None once the run is over: what it showed last is still shown."""
        self._lock = threading.Lock()
        self._shown_ps = -1
        self._shown = b""

    def body(self) -> bytes:
        """The page, now. Raises ConnectionError if the worker does not answer."""
        import ray  # noqa: PLC0415  Ray only where it is needed

        actor = self.actor
        if actor is None:
            return self._shown
        try:
            virtual_ps, page = ray.get(actor.page.remote(), timeout=PAGE_S)
        except ray.exceptions.RayError:
            raise ConnectionError("the worker does not answer") from None
        with self._lock:
            if virtual_ps >= self._shown_ps:
                self._shown_ps, self._shown = virtual_ps, page
            return self._shown

    def sent(self) -> None:
        """Nobody waits for that."""


class RemoteMetrics:
    """The pages of the workers of a run that live on other hosts; none where there is no discovery page."""

    def __init__(self, discovery: Discovery | None, workers: int) -> None:
        self._discovery = discovery
        self._pages = [RemotePage() for _ in range(workers)]

    def serve(self, worker: int, actor: Any) -> str:
        """Serve the page of a worker that is this actor from now on; its address, empty if there is none."""
        if self._discovery is None:
            return ""
        self._pages[worker].actor = actor
        return self._discovery.serve(worker, self._pages[worker])

    def close(self) -> None:
        """Ask nobody any more."""
        for page in self._pages:
            page.actor = None
