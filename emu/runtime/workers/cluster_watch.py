"""Is the Ray cluster that a run lives on still there?

Ray itself is slow to tell: where the raylet of the driver's node is gone, calls wait for minutes, and where
the head is gone, Ray ends this process after one. So a thread looks every second whether both still listen,
and whoever waits for workers asks it. What refuses a connection twice is gone; what is silent may have too
much to do, and is waited for.

The head of a cluster that others keep may come back (Ray's fault tolerance of the GCS): it has `HEAD_S`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from emu.runtime.workers.grpc_probe import speaks_grpc
from emu.runtime.workers.nodes import ClusterLost, check_head, head_address

LOOK_S: Final = 1.0
AGAIN_S: Final = 0.1
"""Between the two looks at what seems to be gone."""
ANSWER_S: Final = 10.0
HEAD_S: Final = 40.0
"""Ray ends a process that has not reached the head for 60 s."""


class Watched(NamedTuple):
    """A server of the cluster."""

    what: str
    host: str
    port: int
    patience_s: float
    """How long it may be gone."""


class ClusterWatch:
    """Looks after servers until `close`; in a thread of its own, if there are any."""

    def __init__(self, watched: Sequence[Watched] = ()) -> None:
        self.lost = ""
        """What is gone, once something is."""
        self._gone_s: dict[Watched, float] = {}
        """Since when each that is gone now has been."""
        self._closed = threading.Event()
        self._watched = tuple(watched)
        if watched:
            threading.Thread(target=self._watch, name="cluster-watch", daemon=True).start()

    def close(self) -> None:
        """Look no more. May be called again."""
        self._closed.set()

    def check(self) -> None:
        """Raises ClusterLost if the cluster was found gone."""
        if self.lost:
            raise ClusterLost(self.lost)

    def look(self) -> None:
        """Look now, and `check`: call it when a worker is gone, which may be why."""
        for one in self._watched:
            self._look_at(one)
        self.check()

    def _watch(self) -> None:
        while not self.lost and not self._closed.wait(LOOK_S):
            for one in self._watched:
                self._look_at(one)

    def _look_at(self, one: Watched) -> None:
        if not _refuses(one):
            self._gone_s.pop(one, None)
        elif time.monotonic() - self._gone_s.setdefault(one, time.monotonic()) >= one.patience_s:
            time.sleep(AGAIN_S)
            if _refuses(one):
                self.lost = self.lost or f"{one.what} is gone"


def watch_of_cluster(own: bool) -> ClusterWatch:
    """Watches the head of the cluster, and this machine's node; the cluster is our `own` if it was started
    for the run. Raises ClusterLost.
    """
    import ray  # noqa: PLC0415  Ray only where it is needed
    from ray.util.client import ray as client  # noqa: PLC0415  as above

    if client.is_connected():  # type: ignore[no-untyped-call]
        return ClusterWatch()  # which hears of the cluster through its head alone
    check_head()
    host, _, port = head_address().rpartition(":")
    here = ray.get_runtime_context().get_node_id()
    watched = [
        Watched("the Ray node of this machine", str(node["NodeManagerAddress"]), node["NodeManagerPort"], 0.0)
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["NodeID"] == here
    ]
    name = f"the head of the Ray cluster at {head_address()}"
    return ClusterWatch([*watched, Watched(name, host, int(port), 0.0 if own else HEAD_S)])


def _refuses(one: Watched) -> bool:
    try:
        return not speaks_grpc(one.host, one.port, ANSWER_S)
    except ConnectionError:
        return True
    except OSError:
        return False  # it does not answer in time, or this process lacks what it takes to ask
