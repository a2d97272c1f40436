"""How long does computing take while channels hold SMs?

A call holds SMs from its beginning to its end (`ncclx.sms_per_channel` for each channel), and meanwhile
computing goes on with the rest: d ps of it are d x SMs of work, done at (SMs - taken) a ps. Whenever a call
begins or ends, what is left is worked out anew; so a collective that runs for c beside computing makes it c x
taken / SMs longer.

At least one SM is left to compute. A collective that would take it waits until those under way give SMs
back; of those that wait the one of the highest priority is next, among equals the one that asked first, and
nobody passes it, however few SMs it needs. So ranks that begin collectives in different orders may wait for
each other, as kernels of NCCL that are not resident together do. Transfers, which are posted long before the
other end is, wait for nobody and hold up computing alone.

Source: NCCL 2.30, `src/enqueue.cc`: a kernel has a thread block for each channel, which stays on its SM; CUDA
C Programming Guide, stream priorities (pending blocks of the stream of higher priority go first).

Not modelled: thread blocks of computing that have to finish before an SM changes hands, SMs shared by both,
calls of other jobs on the same GPU, a call with a part of its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from emu.kernel.device import Plain
from emu.kernel.state import as_int, as_list, load_fields, save_fields

TURNS: Final[i64] = 4096
"""Timers that a stream has set, counted round: one that no longer counts is over before its number comes
again."""

_FIELDS: Final = ("resident", "taken", "free", "slower_ps", "first_ps", "waited_ps", "overtaken")


class Share:
    """The SMs of one rank's GPU. By group, `held` has the SMs that a call holds, and `priorities` its
    priority, below 0 for a transfer.
    """

    def __init__(self, sms: int, held: Sequence[int], priorities: Sequence[int], streams: int) -> None:
        self.sms: i64 = sms
        self.held: list[int] = list(held)
        self.priorities: list[int] = list(priorities)
        self.resident: i64 = 0
        """SMs that collectives hold."""
        self.line: list[int] = []
        """Groups whose calls wait for SMs, the next one first."""
        self.asked_ps: list[int] = [0] * len(held)
        """By group, when its last call asked."""
        self.waited_ps: i64 = 0
        """How long calls waited in all."""
        self.overtaken: i64 = 0
        """Calls that waited and were passed by one of a higher priority, once for each."""
        self.handed: bool = False
        """Whether SMs changed hands since the rank's streams last looked."""
        self.taken: i64 = 0
        """SMs that calls hold."""
        self.free: i64 = sms
        """SMs with which computing goes on."""
        self.slower_ps: i64 = 0
        """How much longer computing took for want of SMs, over all streams."""
        self.first_ps: i64 = 0
        """How long stream 0 has computed in this step."""
        self.work: list[int] = [0] * streams
        """By stream, what is left of its computing: SMs x ps."""
        self.from_ps: list[int] = [-1] * streams
        """By stream, since when it computes with `free` SMs; -1 if it does not."""
        self.turns: list[int] = [0] * streams
        """By stream, which of its timers counts."""

    def take(self, group: i64, now: i64) -> bool:
        """Give a group's call its SMs; false if it has to wait for them, and ask again when some are free."""
        if self.priorities[group] < 0:
            self.asked_ps[group] = now
            self.taken += self.held[group]
            return True
        place: i64 = 0
        waiting: bool = False
        while place < len(self.line):
            if self.line[place] == group:
                waiting = True
                break
            place += 1
        if not waiting:
            self.asked_ps[group] = now
            place = len(self.line)
            while place > 0 and self.priorities[self.line[place - 1]] < self.priorities[group]:
                place -= 1
            self.overtaken += len(self.line) - place
            self.line.insert(place, group)
        if place > 0:
            return False
        if self.resident > 0 and self.resident + self.held[group] >= self.sms:
            return False
        self.line.pop(0)
        self.resident += self.held[group]
        self.taken += self.held[group]
        self.waited_ps += now - self.asked_ps[group]
        self.handed = True
        return True

    def give_back(self, group: i64) -> i64:
        """A group's call is over; returns when it asked for its SMs."""
        self.taken -= self.held[group]
        if self.priorities[group] >= 0:
            self.resident -= self.held[group]
            self.handed = True
        return self.asked_ps[group]

    def settle(self) -> bool:
        """Whether SMs changed hands since this was last asked, so that calls that wait should ask again."""
        handed: bool = self.handed
        self.handed = False
        return handed

    def counted(self) -> list[int]:
        """Computing lost, time that calls waited, and calls that were passed."""
        return [self.slower_ps, self.waited_ps, self.overtaken]

    def begin(self, stream: i64, duration_ps: i64, now: i64) -> None:
        """A stream computes what takes so long with all SMs."""
        self.work[stream] = duration_ps * self.sms
        self.from_ps[stream] = now

    def computed(self, stream: i64, now: i64) -> bool:
        """Count what a stream has computed up to now; whether that was all."""
        spent_ps: i64 = now - self.from_ps[stream]
        done: i64 = spent_ps * self.free
        left: i64 = self.work[stream]
        if done > left:
            done = left
        self.work[stream] = left - done
        self.from_ps[stream] = now
        self.slower_ps += spent_ps - done // self.sms
        if stream == 0:
            self.first_ps += spent_ps
        if left > done:
            return False
        self.from_ps[stream] = -1
        return True

    def change(self, now: i64) -> bool:
        """Calls began or ended: whether computing goes on with another number of SMs."""
        free: i64 = self.sms - self.taken
        if free < 1:
            free = 1
        if free == self.free:
            return False
        stream: i64 = 0
        while stream < len(self.from_ps):
            if self.from_ps[stream] >= 0:
                self.computed(stream, now)
                self.from_ps[stream] = now  # its end, if this is it, is the timer's
            stream += 1
        self.free = free
        return True

    def left_ps(self, stream: i64) -> i64:
        """How long a stream still computes with the SMs that are free."""
        return (self.work[stream] + self.free - 1) // self.free

    def turn(self, stream: i64) -> i64:
        """The number of a stream's next timer; those before no longer count."""
        turn: i64 = (self.turns[stream] + 1) % TURNS
        self.turns[stream] = turn
        return turn

    def save(self) -> list[Plain]:
        """The share's state."""
        waiting = (self.line, self.asked_ps)
        tables: list[Plain] = [list[Plain](one) for one in (self.work, self.from_ps, self.turns, *waiting)]
        return [save_fields(self, _FIELDS), tables]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        fields, tables = as_list(state)
        load_fields(self, _FIELDS, fields)
        work, from_ps, turns, line, asked_ps = as_list(tables)
        self.line = [as_int(value) for value in as_list(line)]
        self.asked_ps = [as_int(value) for value in as_list(asked_ps)]
        self.work = [as_int(value) for value in as_list(work)]
        self.from_ps = [as_int(value) for value in as_list(from_ps)]
        self.turns = [as_int(value) for value in as_list(turns)]
