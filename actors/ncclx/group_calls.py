"""Calls of one group of a rank: the one that its stream is at, and those that are not acknowledged yet.

A call has two ends. It was *copied* when the GPU has done the last copy of every channel: then its stream
goes on. It is *over* when all that this rank sent for it was acknowledged, counted over the group's
connections together; until then the flight recorder does not call it over, and the watchdog watches it.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.event import NEVER_PS
from actors.kernel.state import as_int, as_list
from actors.ncclx.flight_records import Recorder

NOT_WAITED: Final[i64] = -1


class Copied:
    """A call that was copied and is not over."""

    def __init__(self, number: i64, asked_ps: i64, end_ps: i64, sent: i64) -> None:
        self.number: i64 = number
        """The call's number in the flight recorder."""
        self.asked_ps: i64 = asked_ps
        """When its stream came to it."""
        self.end_ps: i64 = end_ps
        """When it was copied."""
        self.sent: i64 = sent
        """How many slices the group had sent then, since the job began."""

    def save(self) -> Plain:
        """State for a snapshot."""
        found: list[Plain] = [int(self.number), int(self.asked_ps), int(self.end_ps), int(self.sent)]
        return found


class Calls:
    """What a rank keeps of one group."""

    def __init__(
        self,
        places: list[int],
        rings: int,
        ringed: list[bool],
        reason: int,
        labels: list[int],
        announced: list[tuple[int, int]],
        late_ps: list[int],
    ) -> None:
        assert not places or places == list(range(places[0], places[0] + len(places))), places
        self.start: i64 = places[0] if places else 0
        """The first of its channels, with the others behind it, those that walk rings before the others."""
        self.count: i64 = len(places)
        self.rings: i64 = rings
        """How many of its channels walk rings."""
        self.ringed: list[bool] = ringed
        """By call, whether those serve it."""
        self.reason: i64 = reason
        """What calling the group on stream 0 counts to."""
        self.labels: list[int] = labels
        """By call, under what the results list it; -1 where they do not."""
        self.announced: list[tuple[int, int]] = announced
        """By call, what it announces (`actors.ncclx.operations.Announcement`), and bytes."""
        self.late_ps: list[int] = late_ps
        """By call, how long after its beginning its first byte moves."""
        self.asked: bool = False
        """Whether its stream is at a call of it."""
        self.asked_ps: i64 = 0
        """When its stream came to that call."""
        self.since_ps: i64 = 0
        """When the call began: when it had its SMs and queue pairs."""
        self.ready_ps: i64 = NOT_WAITED
        """When the queue pairs are there that the call waits for, or its first byte moves."""
        self.due: bool = False
        """Whether the call began, and its first byte has not moved."""
        self.held_by: i64 = NOT_WAITED
        """Whose collectives held the SMs that the call waited for."""
        self.watched: bool = False
        """Whether a look of the watchdog is a pending timer."""
        self.freed: i64 = 0
        """How many of the slices that it sent were acknowledged, since the job began."""
        self.copied: list[Copied] = []
        """Calls that are not over, oldest first."""
        self.next_over: i64 = NEVER_PS
        """What has to be freed for the first of them to be over; NEVER_PS where there is none."""

    def first_channel(self, call: i64) -> i64:
        """The first channel of a call."""
        if self.ringed[call]:
            return self.start
        return self.start + self.rings

    def end_channel(self, call: i64) -> i64:
        """Behind the last channel of a call."""
        if self.ringed[call]:
            return self.start + self.rings
        return self.start + self.count

    def abort(self) -> None:
        """Forget what is in flight."""
        self.asked = False
        self.due = False
        self.ready_ps = NOT_WAITED
        self.copied = []
        self.next_over = NEVER_PS

    def note_copied(self, recorder: Recorder, group: i64, sent: i64, now: i64) -> None:
        """The call was copied, when the group had sent so many slices; it is over if all are acknowledged."""
        number: i64 = recorder.begun[group] - 1
        if self.freed == sent:
            recorder.end(group, number, now)
        else:
            self.copied.append(Copied(number, self.asked_ps, now, sent))
            if self.next_over == NEVER_PS:
                self.next_over = sent

    def note_freed(self, recorder: Recorder, group: i64) -> bool:
        """Slices were acknowledged; whether a call is over by that."""
        if self.next_over > self.freed:
            return False
        while self.copied and self.copied[0].sent <= self.freed:
            recorder.end(group, self.copied[0].number, self.copied[0].end_ps)
            self.copied.pop(0)
        self._note_next()
        return True

    def _note_next(self) -> None:
        if self.copied:
            self.next_over = self.copied[0].sent
        else:
            self.next_over = NEVER_PS

    def save(self) -> Plain:
        """State for a snapshot."""
        copied: list[Plain] = [one.save() for one in self.copied]
        found: list[Plain] = [
            1 if self.asked else 0,
            int(self.asked_ps),
            int(self.since_ps),
            int(self.ready_ps),
            1 if self.due else 0,
            int(self.held_by),
            1 if self.watched else 0,
            int(self.freed),
            copied,
        ]
        return found

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        asked, asked_ps, since_ps, ready_ps, due, held_by, watched, freed, copied = as_list(state)
        self.asked = as_int(asked) == 1
        self.asked_ps = as_int(asked_ps)
        self.since_ps = as_int(since_ps)
        self.ready_ps = as_int(ready_ps)
        self.due = as_int(due) == 1
        self.held_by = as_int(held_by)
        self.watched = as_int(watched) == 1
        self.freed = as_int(freed)
        self.copied = []
        for row in as_list(copied):
            number, at_ps, end_ps, sent = as_list(row)
            self.copied.append(Copied(as_int(number), as_int(at_ps), as_int(end_ps), as_int(sent)))
        self._note_next()
