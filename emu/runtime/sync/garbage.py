"""When does the cyclic collector look at what a run made?

Between slices (`emu.runtime.sync.logical_process`), and before a run; never by itself while one runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MUCH: Final = 1_000_000
"""Objects: some hundred MiB, too much to keep what nobody needs."""

_survivors: Final = [0]
"""How many objects were left by the last collection of all of them."""


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the cyclic collector away from what was built, and out of the slices.

    What is young is collected first, and all of it where there is a quarter more than survived the last time
    (the rule of Python's own collector, which does not count what was frozen), or much. Short runs one after
    the other would otherwise pass half their time looking at what is not theirs.
    """
    was_enabled = gc.isenabled()
    gc.collect(1)
    gc.freeze()
    if gc.get_freeze_count() > min(_survivors[0] * 5 // 4, MUCH):
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _survivors[0] = gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
