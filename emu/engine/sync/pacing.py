"""Pacing: virtual time held back to a fraction of wall time.

Worker 0 caps how far anyone may run (`WindowMachine.hold`), a `QUANTUM_S` of wall time's worth of virtual
time at once, and raises the cap when the clock on the wall is there too. Nobody else has to know of it.
Where the run is slower than its pace it is left alone, and once it is late by more than `LATE_S` the clock
is set anew, so that it does not hurry afterwards.

Who runs at a pace wants to see, and to act at a time. So where there is a coordinator the cap stays where it
is while nobody has looked for a while (`watch_s`), however long the coordinator is held up.

A cap never changes what happens, so no pace changes an answer.
"""

from __future__ import annotations

import time
from typing import Final

from emu.engine.sync.window import WindowMachine

QUANTUM_S: Final = 0.02
LATE_S: Final = 0.5
NAP_S: Final = 0.005


class Pace:
    """Holds a run to `pace_ps` of virtual time each second of wall time, by the machine of worker 0.

    A run that nobody has to watch has no `watch_s`.
    """

    def __init__(self, machine: WindowMachine, pace_ps: int, watch_s: float = float("inf")) -> None:
        assert pace_ps > 0, pace_ps
        self._machine = machine
        self._pace_ps = pace_ps
        self._quantum_ps = max(int(pace_ps * QUANTUM_S), 1)
        self._cap_ps = machine.sync_ps
        self._origin_ps = machine.sync_ps
        self._origin_s = time.monotonic()
        self._watch_s = watch_s
        self._watched_s = self._origin_s
        self._raise()

    def watched(self) -> None:
        """Somebody looks; from any thread."""
        self._watched_s = time.monotonic()

    def hold_s(self) -> float:
        """How long to wait, at most a nap, before the next round is opened; 0 to go on now."""
        if self._machine.earliest_ps < self._cap_ps or self._machine.asked:
            return 0.0
        now_s = time.monotonic()
        if now_s - self._watched_s > self._watch_s:
            self._origin_s += NAP_S
            return NAP_S
        ahead_s = self._origin_s + (self._cap_ps - self._origin_ps) / self._pace_ps - now_s
        if ahead_s > 0:
            return min(ahead_s, NAP_S)
        if ahead_s < -LATE_S:
            self._origin_s -= ahead_s
        self._raise()
        return 0.0

    def _raise(self) -> None:
        self._cap_ps += self._quantum_ps
        self._machine.hold(self._cap_ps)
