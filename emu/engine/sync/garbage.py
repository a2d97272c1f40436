"""Limits on Python's cyclic garbage collector while a run builds and runs.

Before a run if others went before it, and between slices (`emu.engine.sync.logical_process`) once enough was
made; never by itself while devices are built, a run goes on or its results are added up. All that is built is
kept, and of a large fabric the collector would look at it eight times over, for half of the time that the
build takes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MUCH: Final = 1_000_000
"""Blocks of memory, some hundred MiB, that are too much to keep what nobody needs."""

ENOUGH: Final = 250_000
"""Objects: some 50 MiB; a collection of as many takes a few hundredths of a second."""

_survivors: Final = [0]
"""How many blocks of memory there were after the last collection of all objects, or fewer since."""


class Growth:
    """How many more objects there are than after the last collection, and whether that is enough for another.

    Python counts the objects that its collector knows, those made less those freed, also while the collector
    is off. So what comes and goes without a circle, as packets do, brings no collection, however long a run
    takes. A collection costs as much as there are objects that were made since the run began and live; one
    that frees less than a quarter as many doubles what is enough, one that frees more than live halves it
    again.
    """

    def __init__(self, enough: int = ENOUGH) -> None:
        self.enough = enough
        """Objects made since the last collection that bring the next one."""
        self._least = enough

    def look(self) -> None:
        """Collect, if there is enough."""
        if gc.get_count()[0] < self.enough:
            return
        freed = gc.collect()
        alive = len(gc.get_objects())
        if freed * 4 < alive:
            self.enough *= 2
        elif freed > alive:
            self.enough = max(self.enough // 2, self._least)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep the cyclic collector from looking by itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the cyclic collector away from what was built, and out of the slices.

    Everything is collected first where there is a quarter more than survived the last time (the rule of
    Python's own collector, which does not count what was frozen), or much more: that is what earlier runs
    left. Short runs one after the other would otherwise pass most of their time looking at what is not
    theirs: a notebook or a test process has millions of objects. For the same reason blocks of memory are
    counted, which Python knows, and not objects, which it has to go through. The first run of a process has
    nothing behind it.
    """
    was_enabled = gc.isenabled()
    blocks = sys.getallocatedblocks()
    least = min(_survivors[0] or blocks, blocks)
    if blocks > least + min(least // 4, MUCH):
        gc.collect()
        least = sys.getallocatedblocks()
    _survivors[0] = least
    gc.freeze()
    gc.collect(0)  # nothing is young: this only has `Growth` count from here
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
