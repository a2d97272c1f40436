"""The worker pool of a session, which keeps Ray and idle workers from run to run.

Ray takes two seconds to start, and an actor about a second of CPU. Whoever makes many short runs (a
sweep, a notebook, the tests) opens a session: Ray stays up in it, and the workers of a run that ended in
order wait for the next. A kept worker has closed and forgotten everything of its run, so it knows no more
than a new one. Only its peak memory is that of its life.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from emu.base.cores import usable_cores
from emu.base.errors import UsageError
from emu.cluster.ray.lost_servers import gone_errors


class WorkerPool:
    """Actors that wait for a run."""

    def __init__(self) -> None:
        self._idle: list[Any] = []

    def take(self, most: int) -> list[Any]:
        """At most so many; they belong to the caller."""
        taken = self._idle[:most]
        del self._idle[:most]
        return taken

    def give_back(self, actors: list[Any]) -> None:
        """They have closed, and wait again; in the order in which they were taken."""
        self._idle[:0] = actors

    def dismiss(self) -> None:
        """End those that wait, as far as they are there."""
        import ray  # noqa: PLC0415  Ray only where it is needed

        for actor in self.take(len(self._idle)):
            with suppress(*gone_errors()):
                ray.kill(actor)


_open: list[WorkerPool] = []
"""The worker pool of the open session, if there is one."""


def worker_pool_of_session() -> WorkerPool | None:
    """The worker pool of the session that is open in this process, if there is one."""
    return _open[0] if _open else None


@contextmanager
def session(
    address: str | None = None, *, unprotected: bool = False, wheel: Path | None = None
) -> Iterator[None]:
    """Keep Ray and the workers between the runs inside; without an address Ray is started on this machine.
    `unprotected` and `wheel` are as of `RunOptions`.

    Raises RuntimeFailure if Ray cannot be had, and UsageError in a session.
    """
    if _open:
        raise UsageError("a session is open already")
    from emu.cluster.ray.session import ray_session  # noqa: PLC0415 - only where Ray is started

    with ray_session(address, usable_cores(), unprotected, wheel, without=("dashboard",)):
        worker_pool = WorkerPool()
        _open.append(worker_pool)
        try:
            yield
        finally:
            _open.clear()
            worker_pool.dismiss()
