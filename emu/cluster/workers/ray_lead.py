"""The hand-over of changes to the workers of a live run on Ray, which nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emu.cluster.ray.lost_servers import gone_errors
from emu.engine.steering import Steering


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
