"""Flight recorder: what a rank remembers of its last calls, and of what went wrong.

A *call* is one collective, send or receive on one of the rank's groups (communicators); a group's calls are
counted from 0. It is over when the GPU has done its last copy and all that it sent was acknowledged; the time
that counts is the copy's. The *flight recorder* keeps what each of the last calls announced (operation,
bytes), when it began and when it was over, as PyTorch's does: those of a rank that hangs show who is behind.
Where there is no room, the oldest call that is over is forgotten; how many calls each group began and ended
is never. A *failure* is an error completion or the watchdog's end of a call; it names what the rank then
waited for: a peer, and the queue pair.

Source: PyTorch, `FlightRecorder.hpp` (ring buffer per rank), `ProcessGroupNCCL.cpp` (watchdog).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.state import load_fields, save_fields

WAITS_NOTHING: Final[i64] = 0
WAITS_DATA: Final[i64] = 1
WAITS_CTS: Final[i64] = 2
WAITS_ACKNOWLEDGEMENT: Final[i64] = 3
FAILED: Final[i64] = 4
"""The queue pair went into error."""

GROUP: Final[i64] = 1
NUMBER: Final[i64] = 2
END: Final[i64] = 6

_FIELDS: Final = ("flights", "failures", "begun", "ended", "count")


class Recorder:
    """The recorder of one rank. `most` calls are kept; `groups` are the numbers that its groups have in the
    job."""

    def __init__(self, most: int, groups: list[int]) -> None:
        self.most: i64 = most
        self.groups: list[int] = groups
        self.begun: list[int] = [0] * len(groups)
        """By group, how many calls it began."""
        self.ended: list[int] = [0] * len(groups)
        self.count: i64 = 0
        """Calls in all."""
        self.flights: list[list[int]] = []
        """call of the rank, place of the group, call of the group, operation, bytes, begun_ps, end_ps (-1
        while it runs)."""
        self.failures: list[list[int]] = []
        """group, call of the group, status, what it waited for, peer, host's port, queue pair's number,
        at_ps."""

    def join(self, group: int) -> None:
        """The rank takes part in one more group, of this number in the job."""
        self.groups.append(group)
        self.begun.append(0)
        self.ended.append(0)

    def begin(self, group: i64, op: i64, size_bytes: i64, now: i64) -> i64:
        """A call of a group begins; returns its number in the group."""
        number: i64 = self.begun[group]
        self.begun[group] = number + 1
        self.count += 1
        if self.most > 0:
            if len(self.flights) >= self.most:
                self._forget()
            self.flights.append([self.count - 1, group, number, op, size_bytes, now, -1])
        return number

    def _forget(self) -> None:
        """Forget the oldest call that is over; none, if all are under way."""
        place: i64 = 0
        while place < len(self.flights):
            if self.flights[place][END] >= 0:
                self.flights.pop(place)
                return
            place += 1

    def end(self, group: i64, number: i64, end_ps: i64) -> None:
        """A call of a group is over."""
        self.ended[group] += 1
        place: i64 = len(self.flights) - 1
        while place >= 0:
            flight = self.flights[place]
            if flight[GROUP] == group and flight[NUMBER] == number:
                flight[END] = end_ps
                return
            place -= 1

    def fail(
        self, group: i64, number: i64, status: i64, why: i64, peer: i64, port: i64, qpn: i64, now: i64
    ) -> None:
        """A call of a group cannot go on."""
        self.failures.append([self.groups[group], number, status, why, peer, port, qpn, now])

    def flight_rows(self, job: int, rank: int) -> list[list[int]]:
        """Rows for the table `flights`, with the numbers that groups have in the job."""
        return [[job, rank, row[0], self.groups[row[1]], *row[2:]] for row in self.flights]

    def called_rows(self, job: int, rank: int) -> list[list[int]]:
        """Rows for the table `called`."""
        return [
            [job, rank, self.groups[at], self.begun[at], self.ended[at]]
            for at in range(len(self.groups))
            if self.begun[at] > 0
        ]

    def failure_rows(self, job: int, rank: int) -> list[list[int]]:
        """Rows for the table `failures`."""
        return [[job, rank, *row] for row in self.failures]

    def save(self) -> list[Plain]:
        """What is remembered."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        load_fields(self, _FIELDS, state)
