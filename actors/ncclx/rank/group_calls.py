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
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.ncclx.rank.flight_records import Recorder

NOT_WAITED: Final[i64] = -1

_CALL_FIELDS: Final = (
    "number",
    "asked_ps",
    "since_ps",
    "ready_ps",
    "due",
    "held_by",
    "end_ps",
    "sent",
    "polled",
)


class Call:
    """One call of a group, from when its stream comes to it until it is over."""

    def __init__(self, number: i64, asked_ps: i64) -> None:
        self.number: i64 = number
        """In its group, as the flight recorder counts."""
        self.asked_ps: i64 = asked_ps
        """When its stream came to it."""
        self.since_ps: i64 = 0
        """When it began: when it had its SMs and queue pairs."""
        self.ready_ps: i64 = NOT_WAITED
        """When the queue pairs are there that it waits for, or its first byte moves."""
        self.due: bool = False
        """Whether it began, and its first byte has not moved."""
        self.held_by: i64 = NOT_WAITED
        """Whose collectives held the SMs that it waited for."""
        self.end_ps: i64 = 0
        """When it was copied."""
        self.sent: i64 = 0
        """How many slices the group had sent then, since the job began."""
        self.polled: i64 = 0
        """Connections over NICs that the rank's proxy looks at for it."""

    def save(self) -> Plain:
        """State for a snapshot."""
        return save_fields(self, _CALL_FIELDS)


def _loaded(state: Plain) -> Call:
    call = Call(0, 0)
    load_fields(call, _CALL_FIELDS, state)
    return call


class GroupCalls:
    """The calls of one group of a rank, and which of its channels serve them."""

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
        self.present: Call | None = None
        """The call that its stream is at."""
        self.watched: bool = False
        """Whether a look of the watchdog is a pending timer."""
        self.freed: i64 = 0
        """How many of the slices that it sent were acknowledged, since the job began."""
        self.copied: list[Call] = []
        """Calls that were copied and are not over, oldest first."""
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

    def oldest(self) -> Call | None:
        """The oldest call that is not over; None where the stream is at none and all are."""
        return self.copied[0] if self.copied else self.present

    def abort(self) -> None:
        """Forget what is in flight."""
        self.present = None
        self.copied = []
        self.next_over = NEVER_PS

    def note_copied(self, recorder: Recorder, group: i64, call: Call) -> None:
        """The present call was copied; it is over if all that the group sent is acknowledged."""
        self.present = None
        if self.freed == call.sent:
            recorder.end(group, call.number, call.end_ps)
        else:
            self.copied.append(call)
            if self.next_over == NEVER_PS:
                self.next_over = call.sent

    def note_freed(self, recorder: Recorder, group: i64) -> bool:
        """As many slices were acknowledged as the first call needs to be over; whether all calls are."""
        while self.copied and self.copied[0].sent <= self.freed:
            call = self.copied.pop(0)
            recorder.end(group, call.number, call.end_ps)
        self._note_next()
        return not self.copied

    def _note_next(self) -> None:
        if self.copied:
            self.next_over = self.copied[0].sent
        else:
            self.next_over = NEVER_PS

    def save(self) -> Plain:
        """State for a snapshot."""
        present: Plain = None if self.present is None else self.present.save()
        copied: list[Plain] = [one.save() for one in self.copied]
        found: list[Plain] = [present, self.watched, int(self.freed), copied]
        return found

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        present, watched, freed, copied = as_list(state)
        self.present = None if present is None else _loaded(present)
        self.watched = watched is True
        self.freed = as_int(freed)
        self.copied = [_loaded(one) for one in as_list(copied)]
        self._note_next()
