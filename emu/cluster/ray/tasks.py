"""Independent runs as Ray tasks over all nodes of a cluster: one a core.

Each task asks Ray for a core and for the memory that its run is estimated to need. A task that was lost with
its process or its node is tried again elsewhere, `AGAIN` times at most. What the run itself raises is an
answer, and so is a process that Ray ended for want of memory: neither is tried again. A task that needs more
memory than any node has fails at once, where Ray would wait for such a node for ever.

No more tasks are submitted than there are cores, and one more: an item is made ready when its turn is near.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import chdir, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from emu.base.cores import usable_cores
from emu.base.errors import EmuError, RuntimeFailure
from emu.base.side_by_side import Ended, Ready, ended
from emu.base.units import about_size
from emu.cluster.ray.nodes import check_head
from emu.cluster.ray.session import ray_session

AGAIN: Final = 2
LOOK_S: Final = 1.0
"""How often the nodes are looked at while no task ends."""
NO_MEMORY: Final = "ended by Ray: its node had no memory left for it"
NEEDED: Final = (
    "every node needs emu and what it imports (docs/cluster.md), or everything but emu and --wheel"
)


class _Sent(NamedTuple):
    """A task that is under way or waits for a node."""

    number: int
    ready: Ready
    tries: int


def on_cluster(
    function: Callable[[Any], Any],
    items: Iterable[Ready | Ended],
    edition: Callable[[], str],
    address: str,
    *,
    unprotected: bool = False,
    wheel: Path | None = None,
) -> Generator[Ended, None, None]:
    """Each item once it was worked out; an `Ended` among the items is passed on. `edition` names the sources
    that a process runs: a node whose differ ends it all.

    Raises RuntimeFailure if no node can carry out a task, and ClusterLost. Whoever stops asking ends them
    all.
    """
    with ray_session(address, usable_cores(), unprotected, wheel):
        tasks = _Tasks(function, edition)
        try:
            yield from tasks.carried_out(enumerate(items))
        finally:
            tasks.cancel()


class _Tasks:
    """The tasks of one call."""

    def __init__(self, function: Callable[[Any], Any], edition: Callable[[], str]) -> None:
        import ray  # noqa: PLC0415  Ray only where it is needed

        self._remote: Any = ray.remote(num_cpus=1, max_retries=0)(_carried_out)
        self._function: Any = ray.put(function)
        self._edition = edition
        self._sent: dict[Any, _Sent] = {}

    def carried_out(self, items: Iterable[tuple[int, Ready | Ended]]) -> Generator[Ended, None, None]:
        """Each once it has ended."""
        import ray  # noqa: PLC0415  as above

        waiting = iter(items)
        more = True
        cores, memory_bytes = _room()
        while more or self._sent:
            while more and len(self._sent) <= cores:
                number, one = next(waiting, (-1, None))
                if one is None:
                    more = False
                elif isinstance(one, Ended):
                    yield one._replace(number=number)
                elif one.memory_bytes > memory_bytes:
                    yield Ended(number, failure=_too_large(one, memory_bytes))
                else:
                    self._send(_Sent(number, one, 0))
            if not self._sent:
                continue
            ready, _ = ray.wait(list(self._sent), timeout=LOOK_S)
            for ref in ready:
                found = self._received(ref, self._sent.pop(ref))
                if found is not None:
                    yield found
            if not ready:
                check_head()
            cores, memory_bytes = _room()
            for ref in [ref for ref, sent in self._sent.items() if sent.ready.memory_bytes > memory_bytes]:
                sent = self._sent.pop(ref)
                ray.cancel(ref, force=True)
                yield Ended(sent.number, failure=_too_large(sent.ready, memory_bytes))

    def cancel(self) -> None:
        """End what is under way."""
        import ray  # noqa: PLC0415  as above

        for ref in self._sent:
            with suppress(Exception):  # a cluster that is gone
                ray.cancel(ref, force=True)
        self._sent.clear()

    def _send(self, sent: _Sent) -> None:
        asked = {"memory": sent.ready.memory_bytes} if sent.ready.memory_bytes else {}
        remote = self._remote.options(**asked)
        known = self._edition, self._edition()
        ref = remote.remote(*known, self._function, sent.number, sent.ready.item, sent.ready.files)
        self._sent[ref] = sent

    def _received(self, ref: Any, sent: _Sent) -> Ended | None:
        """How a task ended; None where it is tried again. Raises RuntimeFailure where no task can be."""
        import ray  # noqa: PLC0415  as above
        from ray import exceptions  # noqa: PLC0415  as above

        try:
            found = ray.get(ref)
        except exceptions.OutOfMemoryError:
            return Ended(sent.number, failure=RuntimeFailure(NO_MEMORY))
        except (exceptions.RuntimeEnvSetupError, exceptions.RayTaskError) as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
            raise RuntimeFailure(f"a node of the cluster cannot carry out a run: {line}; {NEEDED}") from None
        except (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.LocalRayletDiedError,
        ) as error:
            if sent.tries < AGAIN:
                self._send(sent._replace(tries=sent.tries + 1))
                return None
            what = f"lost {AGAIN + 1} times with its process or node ({type(error).__name__})"
            return Ended(sent.number, failure=RuntimeFailure(what), lost=True)
        if isinstance(found, EmuError):
            raise found
        assert isinstance(found, Ended)
        return found


def _room() -> tuple[int, int]:
    """Cores of the cluster, and the memory of the largest of its nodes."""
    import ray  # noqa: PLC0415  as above

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    cores = sum(int(one.get("CPU", 0)) for one in alive)
    return cores, max((int(one.get("memory", 0)) for one in alive if one.get("CPU")), default=0)


def _too_large(ready: Ready, memory_bytes: int) -> RuntimeFailure:
    most = about_size(memory_bytes)
    return RuntimeFailure(
        f"needs about {about_size(ready.memory_bytes)} of memory, and the largest node has {most}; "
        "accepted: a node with more, or ray start --memory"
    )


def _carried_out(
    theirs: Callable[[], str],
    edition: str,
    function: Callable[[Any], Any],
    number: int,
    item: Any,
    files: tuple[tuple[str, bytes], ...],
) -> Ended | EmuError:
    """In a process of a node: work an item out."""
    if theirs() != edition:
        return RuntimeFailure(
            "a node runs another edition of emu than this process, and may give another answer; install the "
            "same on every node, or bring it with --wheel"
        )
    if not files:
        return ended(number, function, item)
    with TemporaryDirectory(prefix="emu-files-") as place, chdir(place):
        for name, content in files:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(content)
        return ended(number, function, item)
