"""Sync points: the virtual times at which every worker stops and looks.

A sync point T is a time that every worker has reached: it has executed all before T and nothing at or after
it. Sampling, the stall check and the time limit have theirs on fixed grids that every worker knows from the
scenario, so they need no announcement. Sync points never change what happens, only when one looks.

* Sampling: multiples of `sample_every`, and the ends of spans that expectations are about. Multiples in a
  stretch in which nothing happens are stepped over: their samples would all equal the one before.
* Stall check: multiples of `stall_after`, none left out, since nothing happening is what it looks for. A
  run stalls at the first of them where nothing but upkeep is pending, or where no progress was made since
  the one before and nothing promises any: no copy is under way and no job has yet to begin.
"""

from bisect import bisect_right
from typing import NamedTuple

from actors.kernel.event import NEVER_PS


class SyncPoint(NamedTuple):
    """A time, and what it is for."""

    time_ps: int
    sample: bool
    stall_check: bool
    requested: bool
    """Announced by worker 0 while the run was under way."""
    changes: int = 0
    """How many changes of those that were staged (`emu.engine.live.changes`) are to be made by now."""
    busiest: int = NEVER_PS
    """Which of those that a fault may hit now has sent most (`emu.engine.live.changes`); else NEVER_PS."""


class SyncGrid(NamedTuple):
    """The sync points known from the start; an interval of 0 means none of its kind."""

    sample_every_ps: int
    stall_after_ps: int
    max_time_ps: int = NEVER_PS
    also_ps: tuple[int, ...] = ()
    """Further sampling points, in order: the ends of spans over which series are judged."""
    measure_times_ps: tuple[int, ...] = ()
    """When a fault hits what is busiest then, in order: sampling points too."""
    open_ended: bool = False
    """Whether jobs go on for ever, so that a run that reaches `max_time_ps` has come to its end."""

    def first(self) -> tuple[int, int]:
        """The first sampling point and the first stall check."""
        return self.next_sample_ps(0), self.next_stall_check_ps(0)

    def next_sample_ps(self, after_ps: int, idle_until_ps: int = 0) -> int:
        """The first sampling point after a time, multiples in a stretch in which nothing happens left out."""
        found = _next_multiple(max(after_ps, idle_until_ps), self.sample_every_ps)
        at = bisect_right(self.also_ps, after_ps)
        return found if at == len(self.also_ps) else min(found, self.also_ps[at])

    def next_stall_check_ps(self, after_ps: int) -> int:
        """The first stall check after a time."""
        return _next_multiple(after_ps, self.stall_after_ps)


def _next_multiple(after_ps: int, interval_ps: int) -> int:
    if interval_ps <= 0 or after_ps >= NEVER_PS:
        return NEVER_PS
    return min((after_ps // interval_ps + 1) * interval_ps, NEVER_PS)
