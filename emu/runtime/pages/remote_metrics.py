"""How does a Prometheus server read a worker on another host, whose page is on that host's loopback?

Through the coordinator, which serves such pages beside the list of workers
(`emu.runtime.pages.server.Discovery`) and asks the actor for each scrape. So one URL on one host reaches
every worker of a cluster, and nothing listens to the network for it.

A page outlives the actor behind it. Until its successor has passed the virtual time that was last shown, what
was last shown is shown again, so the counters of devices never fall.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from emu.runtime.pages.metrics_page import METRICS_TYPE
from emu.runtime.pages.server import Discovery

PAGE_S: Final = 20.0
"""How long an actor may take to answer a scrape."""


class FarPage:
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


class FarPages:
    """The pages of the workers of a run that live on other hosts; none where there is no discovery page."""

    def __init__(self, discovery: Discovery | None, workers: int) -> None:
        self._discovery = discovery
        self._pages = [FarPage() for _ in range(workers)]

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
