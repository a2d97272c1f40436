"""The orders of a live run on their way to its workers.

Whoever leads the run looks every few milliseconds: hands the next change to every worker, has worker 0
request the sync point once all have it, and hears when it was made. In one process that is a call; on Ray
each step is a round of calls that nobody waits for in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from emu.runtime.cluster.watch import gone_errors
from emu.runtime.live.changes import Changes
from emu.runtime.steering import Steering
from emu.runtime.sync.window import WindowMachine

LOOK_S: Final = 0.02


class LocalLead:
    """Leads the parts of a run in this process."""

    def __init__(self, steering: Steering, machine: WindowMachine, changes: Sequence[Changes]) -> None:
        self._steering = steering
        self._machine = machine
        """Of part 0."""
        self._changes = changes
        self._ending = False

    def look(self) -> None:
        """Pass on what was ordered; call it between slices."""
        steering = self._steering
        under_way = steering.under_way
        if under_way:
            if all(len(one.made_ps) >= under_way for one in self._changes):
                steering.made(self._changes[0].made_ps[under_way - 1])
        elif (taken := steering.take()) is not None:
            count, text, not_before_ps = taken
            for one in self._changes:
                one.stage(text)
            self._machine.request_changes(count, not_before_ps)
        if steering.end_asked and not self._ending and not steering.under_way:
            self._ending = True
            self._machine.request_end()


class RayLead:
    """Leads the workers of one attempt to run on Ray; a worker that is gone is the coordinator's business."""

    def __init__(self, steering: Steering, actors: Sequence[Any]) -> None:
        self._steering = steering
        self._actors = actors
        self._taken: tuple[int, str, int] | None = None
        self._refs: list[Any] = []
        self._requested = False
        self._ending = False
        self._over = False

    def look(self) -> None:
        """Pass on what was ordered, as far as answers are in."""
        import ray  # noqa: PLC0415  Ray only where it is needed

        if self._over:
            return
        steering = self._steering
        if self._taken is None and (taken := steering.take()) is not None:
            self._taken = taken
            self._refs = [one.stage.remote(taken[1]) for one in self._actors]
            self._requested = False
        if self._taken is not None:
            done, waiting = ray.wait(self._refs, num_returns=len(self._refs), timeout=0)
            if not waiting and self._gone(done):
                self._over = True
            elif not waiting and self._requested:
                at_ps = max(ray.get(done))
                self._taken = None
                steering.made(at_ps)
            elif not waiting:
                count, _, not_before_ps = self._taken
                self._requested = True
                self._actors[0].request_changes.remote(count, not_before_ps)
                self._refs = [one.made.remote(count) for one in self._actors]
        if steering.end_asked and not self._ending and self._taken is None:
            self._ending = True
            self._actors[0].request_end.remote()

    def _gone(self, refs: Sequence[Any]) -> bool:
        """Whether a worker is gone: then the attempt is over, and nothing more is made in it."""
        import ray  # noqa: PLC0415  as above

        try:
            ray.get(list(refs))
        except gone_errors():
            return True
        return False
