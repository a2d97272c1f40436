"""Share of SMs: how long computing takes while channels hold SMs.

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

A GPU's SMs are one stock (`GpuSms`), whoever's calls hold them: jobs on one GPU take from each other's
computing and wait for each other's calls. When one's SMs change hands, the others look again at once.

Not modelled: thread blocks of computing that have to finish before an SM changes hands, SMs shared by both or
by the computing of two streams or jobs, a call with a part of its blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain, Tally
from actors.kernel.state import as_list, load_fields, save_fields

MOST_LEFT_PS: Final[i64] = 100_000_000_000
"""What is left of computing is looked at no further than this, so that the product with a factor fits."""
TURNS: Final[i64] = 4096
"""Timers that a stream has set, counted round: one that no longer counts is over before its number comes
again."""

MEMBER: Final[i64] = 1 << 20
"""In the line of a GPU, a member and its group are member x this + group."""

_FIELDS: Final = (
    "free",
    "factor",
    "seen",
    "slower_ps",
    "first_ps",
    "computed_ps",
    "computed_work_ps",
    "waited_ps",
    "overtaken",
    "work",
    "from_ps",
    "turns",
    "asked_ps",
    "holds",
)
_GPU_FIELDS: Final = ("resident", "taken", "handed", "line", "ranked")


class GpuSms:
    """The SMs of one GPU, for the ranks of all jobs there."""

    def __init__(self, sms: int) -> None:
        self.sms: i64 = sms
        self.members: i64 = 0
        """How many ranks share them."""
        self.programs: list[int] = []
        """Theirs, by number on the host; needed where there is more than one."""
        self.resident: i64 = 0
        """SMs that collectives hold."""
        self.taken: i64 = 0
        """SMs that calls hold."""
        self.handed: i64 = 0
        """How often collectives took SMs or gave them back."""
        self.line: list[int] = []
        """Members and groups whose calls wait for SMs, the next one first."""
        self.ranked: list[int] = []
        """The priority of each of them."""
        self.stirring: bool = False
        """Whether the members are looking, one after the other."""

    def free(self) -> i64:
        """SMs with which computing goes on; at least one."""
        left: i64 = self.sms - self.taken
        return max(1, left)

    def place_of(self, waiter: i64) -> i64:
        """Where in the line a call waits; -1 if it does not."""
        place: i64 = 0
        while place < len(self.line):
            if self.line[place] == waiter:
                return place
            place += 1
        return -1

    def line_up(self, waiter: i64, priority: i64) -> i64:
        """Put a call into the line; returns its place."""
        place: i64 = len(self.line)
        while place > 0 and self.ranked[place - 1] < priority:
            place -= 1
        self.line.insert(place, waiter)
        self.ranked.insert(place, priority)
        return place

    def leave_line(self, place: i64) -> None:
        """The call at a place no longer waits."""
        self.line.pop(place)
        self.ranked.pop(place)

    def stir(self, host: Host, now: i64) -> None:
        """Let every member look until no SM changes hands any more."""
        if len(self.programs) < 2 or self.stirring:
            return
        self.stirring = True
        moved: bool = True
        while moved:
            moved = False
            for number in self.programs:
                if host.programs[number].stirred(host, now):
                    moved = True
        self.stirring = False

    def holder(self, host: Host) -> int:
        """The first rank whose collectives hold SMs, as `Program.holding` has it; -1 where none does."""
        for number in self.programs:
            holder = host.programs[number].holding()
            if holder >= 0:
                return holder
        return -1

    def save(self) -> list[Plain]:
        """The state of the stock."""
        return save_fields(self, _GPU_FIELDS)

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        load_fields(self, _GPU_FIELDS, state)


class Share:
    """What one rank has of the SMs of its GPU. By group, `held` has the SMs that a call holds, and
    `priorities` its priority, below 0 for a transfer.
    """

    def __init__(self, gpu: GpuSms, held: Sequence[int], priorities: Sequence[int], streams: int) -> None:
        self.gpu: GpuSms = gpu
        self.sms: i64 = gpu.sms
        self.member: i64 = gpu.members
        gpu.members += 1
        self.held: list[int] = list(held)
        self.priorities: list[int] = list(priorities)
        self.holds: list[bool] = [False] * len(held)
        """By group, whether its call has its SMs."""
        self.asked_ps: list[int] = [0] * len(held)
        """By group, when its last call asked."""
        self.waited_ps: i64 = 0
        """How long calls waited in all."""
        self.overtaken: i64 = 0
        """Calls that waited and were passed by one of a higher priority, once for each."""
        self.seen: i64 = 0
        """How often SMs had changed hands when the rank's streams last looked."""
        self.free: i64 = gpu.sms
        """SMs with which its computing goes on."""
        self.factor: i64 = 1000
        """Thousandths of its time that computing takes on its GPU; 0 while it stands still."""
        self.computed_ps: i64 = 0
        """How long it has computed, over all streams and steps."""
        self.computed_work_ps: i64 = 0
        """How long that takes with the same SMs where the GPU is not slow."""
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

    def join(self, held: int, priority: int) -> None:
        """The rank takes part in one more group."""
        self.held.append(held)
        self.priorities.append(priority)
        self.holds.append(False)
        self.asked_ps.append(0)

    def take(self, group: i64, now: i64) -> bool:
        """Give a group's call its SMs; false if it has to wait for them, and ask again when some are free."""
        gpu = self.gpu
        held: i64 = self.held[group]
        if self.priorities[group] < 0:
            self.asked_ps[group] = now
            self.holds[group] = True
            gpu.taken += held
            return True
        waiter: i64 = self.member * MEMBER + group
        place: i64 = gpu.place_of(waiter)
        if place < 0:
            self.asked_ps[group] = now
            self.overtaken += len(gpu.line)
            place = gpu.line_up(waiter, self.priorities[group])
            self.overtaken -= place
        if place > 0:
            return False
        if gpu.resident > 0 and gpu.resident + held >= self.sms:
            return False
        gpu.leave_line(0)
        self.holds[group] = True
        gpu.resident += held
        gpu.taken += held
        gpu.handed += 1
        self.waited_ps += now - self.asked_ps[group]
        return True

    def give_back(self, group: i64) -> i64:
        """A group's call is over; returns when it asked for its SMs."""
        gpu = self.gpu
        self.holds[group] = False
        gpu.taken -= self.held[group]
        if self.priorities[group] >= 0:
            gpu.resident -= self.held[group]
            gpu.handed += 1
        return self.asked_ps[group]

    def resides(self) -> bool:
        """Whether a collective of the rank holds SMs."""
        group: i64 = 0
        while group < len(self.held):
            if self.holds[group] and self.priorities[group] >= 0:
                return True
            group += 1
        return False

    def leave(self) -> None:
        """The rank is no more: what its calls hold is free, and none of them waits."""
        group: i64 = 0
        while group < len(self.held):
            if self.holds[group]:
                self.give_back(group)
            place: i64 = self.gpu.place_of(self.member * MEMBER + group)
            if place >= 0:
                self.gpu.leave_line(place)
                self.gpu.handed += 1
            group += 1

    def settle(self) -> bool:
        """Whether SMs changed hands since this was last asked, so that calls that wait should ask again."""
        handed: bool = self.seen != self.gpu.handed
        self.seen = self.gpu.handed
        return handed

    def unsettled(self) -> bool:
        """Whether the rank has to look: SMs changed hands, or computing has another number of them."""
        return self.seen != self.gpu.handed or self.free != self.gpu.free()

    def begin(self, stream: i64, duration_ps: i64, now: i64) -> None:
        """A stream computes what takes so long with all SMs."""
        self.work[stream] = duration_ps * self.sms
        self.from_ps[stream] = now

    def computed(self, stream: i64, now: i64) -> bool:
        """Count what a stream has computed up to now; whether that was all."""
        spent_ps: i64 = now - self.from_ps[stream]
        factor: i64 = self.factor
        work_ps: i64 = spent_ps
        if factor == 0:
            work_ps = 0
        elif factor != 1000:
            work_ps = spent_ps * 1000 // factor
        done: i64 = work_ps * self.free
        left: i64 = self.work[stream]
        if done > left:
            done = left
        self.work[stream] = left - done
        self.from_ps[stream] = now
        self.slower_ps += work_ps - done // self.sms
        self.computed_ps += spent_ps
        self.computed_work_ps += work_ps
        if stream == 0:
            self.first_ps += spent_ps
        if left > done:
            return False
        self.from_ps[stream] = -1
        return True

    def change(self, now: i64) -> bool:
        """Calls began or ended: whether computing goes on with another number of SMs."""
        free: i64 = self.gpu.free()
        if free == self.free:
            return False
        self._count(now)
        self.free = free
        return True

    def pace(self, factor: i64, now: i64) -> None:
        """Computing takes so many thousandths of its time from now on."""
        self._count(now)
        self.factor = factor

    def _count(self, now: i64) -> None:
        """Count what all streams have computed up to now."""
        stream: i64 = 0
        while stream < len(self.from_ps):
            if self.from_ps[stream] >= 0:
                self.computed(stream, now)
                self.from_ps[stream] = now  # its end, if this is it, is the timer's
            stream += 1

    def left_ps(self, stream: i64) -> i64:
        """How long a stream still computes with the SMs that are free; more than a piece is not exact."""
        left_ps: i64 = (self.work[stream] + self.free - 1) // self.free
        if self.factor == 1000:
            return left_ps
        if left_ps > MOST_LEFT_PS:
            left_ps = MOST_LEFT_PS
        return (left_ps * self.factor + 999) // 1000

    def turn(self, stream: i64) -> i64:
        """The number of a stream's next timer; those before no longer count."""
        turn: i64 = (self.turns[stream] + 1) % TURNS
        self.turns[stream] = turn
        return turn

    def count(self, total: Tally) -> None:
        """Add how much longer computing took, and how long calls waited, to what other ranks counted."""
        total.increase(5, self.slower_ps)
        total.increase(6, self.waited_ps)
        total.increase(7, self.overtaken)

    def save(self) -> list[Plain]:
        """The share's state."""
        return [save_fields(self, _FIELDS), self.gpu.save()]

    def load(self, state: Plain) -> None:
        """Take what `save` returned."""
        fields, gpu = as_list(state)
        load_fields(self, _FIELDS, fields)
        self.gpu.load(gpu)
