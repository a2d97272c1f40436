"""Signs that the cluster or an actor is lost: a watch over Ray's servers, and Ray's errors sorted.

Ray itself is slow to tell: where the raylet of the driver's node is gone, calls wait for minutes, and where
the head is gone, Ray ends this process after one. So a thread looks every second whether both still listen,
and whoever waits for workers asks it. What refuses a connection twice is gone; what is silent may have too
much to do, and is waited for.

The head of a cluster that others keep may come back (Ray's fault tolerance of the GCS): it has `HEAD_S`.

Ray says in a dozen ways that nobody answers a call any more: the actor died, its node did, there was no
memory for it, what it returned is lost. Whoever calls an actor treats them alike, so `gone_errors` lists
them once. `RayTaskError` is another matter: the actor is there, and what it was asked to do raised.
"""

import re
import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from emu.base.errors import RuntimeFailure
from emu.cluster.ray.nodes import ClusterLost, check_head, head_address, speaks_grpc

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


LONGEST: Final = 300
"""Characters of what Ray says that are passed on."""
USED: Final = r"was ([\d.]+[KMGT]?B) used / ([\d.]+[KMGT]?B) limit"
COLOUR: Final = r"\x1b\[[0-9;]*m"
"""With which Ray writes tracebacks."""
SHORT_OF_MEMORY: Final = "running low on memory"
MEMORY: Final = (
    "accepted: fewer --workers, a smaller scenario, more memory, or a higher RAY_memory_usage_threshold"
)


class WorkerFault(RuntimeFailure):
    """What a worker was asked to do raised what nobody expected; `details` is its traceback."""

    def __init__(self, worker: int, message: str, details: str) -> None:
        super().__init__(worker, message, details)
        self.worker = worker
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.message}"


def gone_errors() -> tuple[type[Exception], ...]:
    """What a call of an actor raises that nobody will answer any more."""
    from ray import exceptions as of_ray  # noqa: PLC0415  Ray only where it is needed

    return (
        of_ray.RayActorError,
        of_ray.ActorUnschedulableError,
        of_ray.ActorPlacementGroupRemoved,
        of_ray.ActorHandleNotFoundError,
        of_ray.OutOfMemoryError,
        of_ray.OutOfDiskError,
        of_ray.NodeDiedError,
        of_ray.LocalRayletDiedError,
        of_ray.WorkerCrashedError,
        of_ray.ObjectLostError,
        of_ray.RuntimeEnvSetupError,
        of_ray.RpcError,
    )


def fault_of(worker: int, error: Exception) -> WorkerFault:
    """What a `RayTaskError` tells, as an error of ours."""
    cause = getattr(error, "cause", None) or error
    line = (str(cause).strip() or "no reason given").splitlines()[-1][:LONGEST]
    details = re.sub(COLOUR, "", str(getattr(error, "traceback_str", "") or error))
    return WorkerFault(worker, f"{type(cause).__name__}: {line}", details)


def why_gone(error: Exception) -> str:
    """Why Ray thinks an actor is gone, in one line."""
    text = str(error)
    if SHORT_OF_MEMORY in text:
        used = re.search(USED, text)
        how_much = f" ({used[1]} of {used[2]} were used)" if used is not None else ""
        return f"Ray ended it, because its node ran short of memory{how_much}; {MEMORY}"
    if "temporarily unavailable" in text:  # which is followed by what its transport says
        return "its process cannot be reached any more"
    if "exits with a connection error" in text:  # and three sentences more
        return "its process ended, as one does that is killed or short of memory"
    if "owner has died" in text or "node has crashed" in text:
        return "the Ray node that it needs is gone"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if line.startswith("The actor died") or "exit detail" in line.lower()]
    line = (chosen or lines or [type(error).__name__])[-1]
    return line.partition(" Some common causes")[0][:LONGEST]
