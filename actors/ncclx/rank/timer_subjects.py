"""The timers of a rank: what each is for and which stream or group it concerns, packed as one subject.

Subjects lie close together, and in the order of the kinds, because they are part of the digest and of the
order of events.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host

PIECE_PS: Final[i64] = 1_000_000_000
"""What takes longer is cut in pieces of 1 ms, so that a look for a stall sees it go on."""

# Kinds of timers, in the order in which those of one instant are executed.
COMPUTED: Final[i64] = 0
"""A stream's computing is over. Where its pace changed the timer is another one: `LATER` and its turn."""
WATCHED: Final[i64] = 1
"""A look at a group's oldest call (`watchdog_ps`)."""
CONNECTED: Final[i64] = 2
"""A group's call may go on: queue pairs are there, its first byte moves, or a piece of that is over."""
LATER: Final[i64] = 3
"""Like `COMPUTED`, of a stream's later turns: one kind for each."""


class Timers:
    """The timers of one rank's streams and groups."""

    def __init__(self, streams: int, groups: int, connects: bool) -> None:
        self.program: i64 = 0
        """The rank's number on its host."""
        self.streams: i64 = streams
        self.groups: i64 = groups
        """Groups for which there are timers: as many as there are, and may come."""
        self.connects: bool = connects
        """Whether there are timers of the kind `CONNECTED`."""

    def _first(self, kind: i64) -> i64:
        """The subject of a kind's timer for stream or group 0; those of the others follow it."""
        if kind == COMPUTED:
            return 1
        if kind == WATCHED:
            return 1 + self.streams
        if kind == CONNECTED:
            return 1 + self.streams + self.groups
        first: i64 = 1 + self.streams + self.groups
        if self.connects:
            first += self.groups
        return first + (kind - LATER) * self.streams

    def subject(self, kind: i64, number: i64) -> i64:
        """The timer of a kind for a stream or group."""
        return self._first(kind) + number

    def parts(self, subject: i64) -> tuple[i64, i64]:
        """What a timer is for, and the number of its stream or group."""
        kind: i64 = COMPUTED
        later: i64 = subject - self._first(LATER)
        if later >= 0:
            kind = LATER + later // self.streams
        elif subject >= self._first(CONNECTED):
            kind = CONNECTED
        elif subject >= self._first(WATCHED):
            kind = WATCHED
        return kind, subject - self._first(kind)

    def set(self, host: Host, at_ps: i64, kind: i64, number: i64) -> None:
        """Set the timer of a kind for a stream or group."""
        host.set_timer(self.program, at_ps, self.subject(kind, number))
