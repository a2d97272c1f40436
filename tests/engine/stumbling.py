"""Processes that stop for a moment again and again, as on a host with too much to do."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from actors.kernel.mixing import Stream

STOPPED_MS = 20
BETWEEN_MS = 30


@contextmanager
def stumbling(pids: Sequence[int], draw: Stream) -> Iterator[list[int]]:
    """Meanwhile one of these processes after the other is stopped, for less than `STOPPED_MS`: who was.

    One that is gone is left alone.
    """
    over = threading.Event()
    stopped: list[int] = []

    def stumble() -> None:
        while not over.is_set():
            pid = pids[draw.below(len(pids))]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                time.sleep(draw.below(STOPPED_MS) / 1000)
                os.kill(pid, signal.SIGCONT)
                stopped.append(pid)
            time.sleep(draw.below(BETWEEN_MS) / 1000)

    thread = threading.Thread(target=stumble)
    thread.start()
    try:
        yield stopped
    finally:
        over.set()
        thread.join()
