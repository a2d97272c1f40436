"""The watchdog of a rank: whether a call takes longer than it may.

It is over each call, from when its stream comes to it until what it sent was acknowledged; so it covers a
wait for SMs, and a small send that nobody receives.

Source: PyTorch, `ProcessGroupNCCL.cpp` (watchdog).
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.host.host import Host
from actors.ncclx.rank.group_calls import GroupCalls
from actors.ncclx.rank.timer_subjects import WATCHED, Timers


class Watchdog:
    """Looks after the calls of one rank."""

    def __init__(self, timers: Timers, limit_ps: int) -> None:
        self.timers: Timers = timers
        self.limit_ps: i64 = limit_ps
        """How long a call may take before it is given up; 0 for ever."""

    def watch(self, host: Host, number: i64, group: GroupCalls, since_ps: i64) -> None:
        """Look whether a call of the group that began then is over when it should be. One look is pending at
        a time, however many calls there are meanwhile.
        """
        if self.limit_ps > 0 and not group.watched:
            group.watched = True
            self.timers.set(host, since_ps + self.limit_ps, WATCHED, number)

    def on_timer(self, host: Host, number: i64, group: GroupCalls, now: i64) -> bool:
        """The call that was begun should be over; whether it, or the oldest after it, takes too long."""
        group.watched = False
        call = group.oldest()
        if call is None:
            return False
        if call.asked_ps + self.limit_ps > now:
            self.watch(host, number, group, call.asked_ps)
            return False
        return True
