"""A watch over devices that say something to a program outside: when one of them acts next.

What such a program hears may be answered at the very time at which it was said, so no part of the run may go
beyond the next time at which a watched device acts. That time is known without looking through the queue:
whoever makes an event of a watched device pending notes its time here.
"""

from __future__ import annotations

from heapq import heappop, heappush

from mypy_extensions import i64

from actors.kernel.event import DEVICE_SHIFT, NEVER_PS
from actors.kernel.vectors import vec


class Watch:
    """The watched devices of one partition, of `count` devices in all."""

    def __init__(self, count: int, watched: list[int]) -> None:
        self.said_ps: i64 = NEVER_PS
        """When one of them said something, since somebody took it."""
        self._watched: vec[i64] = vec[i64]([0] * count)
        self._times: list[int] = []
        """When they act: a heap."""
        self._sent_ps: i64 = NEVER_PS
        """When a watched device elsewhere hears of what is on its way there, at the earliest."""
        for number in watched:
            self._watched[number] = 1

    def note(self, time_ps: i64, key: i64, leaves: bool) -> None:
        """An event becomes pending; it `leaves` if it may be another partition's."""
        if self._watched[key >> DEVICE_SHIFT] == 0:
            return
        heappush(self._times, time_ps)
        if leaves and time_ps < self._sent_ps:
            self._sent_ps = time_ps

    def next_ps(self, done_ps: i64) -> i64:
        """When one of them acts next, if everything before `done_ps` was executed here; NEVER_PS if none
        does. What was on its way elsewhere at the last call is known there by now."""
        times = self._times
        while times and times[0] < done_ps:
            heappop(times)
        found: i64 = self._sent_ps
        self._sent_ps = NEVER_PS
        if times and times[0] < found:
            found = times[0]
        return found

    def take_said_ps(self) -> i64:
        """When something was said since the last call; NEVER_PS if nothing was."""
        said_ps: i64 = self.said_ps
        self.said_ps = NEVER_PS
        return said_ps

    def clear(self) -> None:
        """Nothing is pending any more."""
        self._times.clear()
        self._sent_ps = NEVER_PS
        self.said_ps = NEVER_PS
