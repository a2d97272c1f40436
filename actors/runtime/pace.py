"""How is virtual time held back to a fraction of wall time?

Worker 0 caps how far anyone may run (`WindowMachine.hold`), a `QUANTUM_S` of wall time's worth of virtual
time at once, and raises the cap when the clock on the wall is there too. Nobody else has to know of it.
Where the run is slower than its pace it is left alone, and once it is late by more than `LATE_S` the clock
is set anew, so that it does not hurry afterwards.

A cap never changes what happens, so no pace changes an answer.
"""

from __future__ import annotations

import time
from typing import Final

from actors.runtime.window import WindowMachine

QUANTUM_S: Final = 0.02
LATE_S: Final = 0.5
NAP_S: Final = 0.005


class Pace:
    """Holds a run to `pace_ps` of virtual time each second of wall time, by the machine of worker 0."""

    def __init__(self, machine: WindowMachine, pace_ps: int) -> None:
        assert pace_ps > 0, pace_ps
        self._machine = machine
        self._pace_ps = pace_ps
        self._quantum_ps = max(int(pace_ps * QUANTUM_S), 1)
        self._cap_ps = machine.sync_ps
        self._origin_ps = machine.sync_ps
        self._origin_s = time.monotonic()
        self._raise()

    def hold_s(self) -> float:
        """How long to wait, at most a nap, before the next round is opened; 0 to go on now."""
        if self._machine.earliest_ps < self._cap_ps or self._machine.asked:
            return 0.0
        due_s = self._origin_s + (self._cap_ps - self._origin_ps) / self._pace_ps
        ahead_s = due_s - time.monotonic()
        if ahead_s > 0:
            return min(ahead_s, NAP_S)
        if ahead_s < -LATE_S:
            self._origin_s -= ahead_s
        self._raise()
        return 0.0

    def _raise(self) -> None:
        self._cap_ps += self._quantum_ps
        self._machine.hold(self._cap_ps)
