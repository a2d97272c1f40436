"""The event log of a device: what took from when to when, for a timeline.

A log is given to hosts, NICs and switches where `run.event_log` asks for one, and keeps the last `most` of
what they note. It is no part of the answer, but of the state: a snapshot holds it, so that a run that resumes
has each event once, and any number of workers writes the same log.

An event is one row: kind, four numbers, when it began and when it ended.

    kind        device         a         b         c             d
    PAUSED      NIC, switch    port      class     0             0
    RESENT      NIC            port      QPN       first PSN     PSN behind the last
    OPERATED    host           program   number    0             0
    CALLED      host           program   group     number        `Announcement.packed` of the call
    COPIED      host           program   channel   what it does  bytes
    GRANTED     host           program   channel   peer          slice
    COMPUTED    host           program   stream    0             0

PAUSED is a pause that the port obeys. RESENT is a burst of packets that leave again, one after the other.
COPIED is a GPU operation on a slice, from when it was asked for, or the one before it was done. GRANTED is a
wait of a slice, which is in its slot, for a clear-to-send.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.vectors import append, vec

PAUSED: Final[i64] = 0
RESENT: Final[i64] = 1
OPERATED: Final[i64] = 2
CALLED: Final[i64] = 3
COPIED: Final[i64] = 4
GRANTED: Final[i64] = 5
COMPUTED: Final[i64] = 6
NUMBERS: Final = 7
"""Numbers in a row."""
_LOOK_BACK: Final[i64] = 8


class EventLog:
    """The last `most` events of one device, in the order in which they ended."""

    def __init__(self, most: int) -> None:
        assert most > 0, most
        self._most: i64 = most
        self._count: i64 = 0
        """Rows noted in all, those that were overwritten included."""
        self._numbers: vec[i64] = vec[i64]()
        """Rows one after the other; once there are `most`, the oldest is written over."""

    def note(self, kind: i64, a: i64, b: i64, c: i64, d: i64, begin_ps: i64, end_ps: i64) -> None:
        """Something is over."""
        count: i64 = self._count
        self._count = count + 1
        numbers = self._numbers
        if count < self._most:
            numbers = append(numbers, kind)
            numbers = append(numbers, a)
            numbers = append(numbers, b)
            numbers = append(numbers, c)
            numbers = append(numbers, d)
            numbers = append(numbers, begin_ps)
            self._numbers = append(numbers, end_ps)
            return
        at: i64 = count % self._most * NUMBERS
        numbers[at] = kind
        numbers[at + 1] = a
        numbers[at + 2] = b
        numbers[at + 3] = c
        numbers[at + 4] = d
        numbers[at + 5] = begin_ps
        numbers[at + 6] = end_ps

    def note_resent(self, port: i64, qpn: i64, psn: i64, beyond_psn: i64, now: i64) -> None:
        """Packets from `psn` to before `beyond_psn` leave again; what follows a burst is part of it."""
        numbers = self._numbers
        back: i64 = 1
        while back <= _LOOK_BACK and back <= self._count and back <= self._most:
            at: i64 = (self._count - back) % self._most * NUMBERS
            same: bool = numbers[at] == RESENT and numbers[at + 1] == port and numbers[at + 2] == qpn
            if same and numbers[at + 4] == psn:
                numbers[at + 4] = beyond_psn
                numbers[at + 6] = now
                return
            back += 1
        self.note(RESENT, port, qpn, psn, beyond_psn, now, now)

    def missed(self) -> int:
        """How many events there was no room for."""
        return max(int(self._count - self._most), 0)

    def rows(self) -> list[list[int]]:
        """What is kept, oldest first."""
        numbers = [int(number) for number in self._numbers]
        first: int = 0
        if self._count > self._most:
            first = self._count % self._most * NUMBERS
        numbers = numbers[first:] + numbers[:first]
        return [numbers[at : at + NUMBERS] for at in range(0, len(numbers), NUMBERS)]

    def save(self) -> list[int]:
        """The log as it is."""
        return [int(self._count), *[int(number) for number in self._numbers]]

    def load(self, saved: list[int]) -> None:
        """Take what `save` of a log of the same size returned."""
        self._count = saved[0]
        numbers: vec[i64] = vec[i64]()
        for number in saved[1:]:
            numbers = append(numbers, number)
        self._numbers = numbers
