"""How long does computing take while channels hold SMs?

A call holds SMs from its beginning to its end (`ncclx.sms_per_channel` for each channel), and meanwhile
computing goes on with the rest: d ps of it are d x SMs of work, done at (SMs - taken) a ps. Whenever a call
begins or ends, what is left is worked out anew; so a collective that runs for c beside computing makes it c x
taken / SMs longer. At least one SM is left to compute, whatever is taken.

Source: NCCL 2.30, `src/enqueue.cc`: a kernel has a thread block for each channel, which stays on its SM.

Not modelled: thread blocks of computing that have to finish before an SM changes hands, SMs shared by both.
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

_FIELDS: Final = ("taken", "free", "slower_ps", "first_ps")


class Share:
    """The SMs of one rank's GPU. `held` has, by group, the SMs that a call holds."""

    def __init__(self, sms: int, held: Sequence[int], streams: int) -> None:
        self.sms: i64 = sms
        self.held: list[int] = list(held)
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
        tables: list[Plain] = [list[Plain](one) for one in (self.work, self.from_ps, self.turns)]
        return [save_fields(self, _FIELDS), tables]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        fields, tables = as_list(state)
        load_fields(self, _FIELDS, fields)
        work, from_ps, turns = as_list(tables)
        self.work = [as_int(value) for value in as_list(work)]
        self.from_ps = [as_int(value) for value in as_list(from_ps)]
        self.turns = [as_int(value) for value in as_list(turns)]
