"""The window protocol: how far each worker may run before it must hear from the others.

The protocol between workers, without sockets, clocks or threads: a machine that takes and returns sync
messages. Every worker runs the same machine; none is in charge.

A *round* exchanges what crossed in the last window and agrees on the next one:

1. Every worker contributes a few integers: when its own next event is, the earliest arrival it has sent to
   each worker in this round, the announced end of the run, a requested sync point, and totals for the stall
   check. Times are reduced by minimum, totals by sum. With it go the packets of the window, as one batch a
   neighbour.
2. From the result everyone knows, for every worker j, next(j): no event of j is before it. What j does then
   can reach i no earlier than next(j) + lookahead(j, i), along whatever path; what i does itself can come
   back to it no earlier than next(i) + lookahead(i, i), the shortest cycle. The least of these is i's
   bound.
3. Worker i executes everything before its bound, and nothing at or after it. That is its window.

So a stretch in which nothing happens costs one round however long it is, and no worker is ever surprised by
an arrival in its past: that would be a lookahead that lies, and the receiver refuses it by name.

With up to `STAR` workers everyone sends its integers to everyone, together with the batch; beyond that
batches go to neighbours only, and the integers up and down a binary tree. A worker that waits for a round
can be sent at most the sync messages of the next one; they are held until it is theirs.

A *sync point* caps every bound. When nobody has an event before it, everyone is there and acts (see
`emu.engine.sync.sync_points`). Sync points of the grids are known to all; worker 0 may request another one,
which it announces at a time nobody can have passed. After a requested one nobody runs before the next round,
because those who act may make events that the others have not heard of.

While somebody listens to watched devices (`actors.kernel.watch`), nobody runs beyond the time at which one of
them acts next: first everything before it, then everything at it. If one of them said something then, the
next contribution asks for a sync point behind it, where everyone stands still.

The end of the run is announced by the worker whose device decides it, in time: management delay is part of
every lookahead from that worker. At the end every event before it has been executed, and nothing at or
after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from mypy_extensions import i64

from actors.kernel.event import NEVER_PS
from actors.kernel.vectors import vec
from actors.wire.batch import Batch
from actors.wire.codec import BATCH, GATHER, SPREAD
from emu.base.errors import ProtocolError
from emu.engine.outcome import Ending
from emu.engine.sync.rounds import Contribution, Round, Step, SyncMessage, reduced
from emu.engine.sync.sync_points import SyncGrid, SyncPoint

STAR: Final = 4
"""Up to so many workers exchange integers all to all; more reduce them over a tree."""
LONGEST_WINDOW_PS: Final = 50_000_000
"""However far apart the workers are: it bounds what one batch holds, and how much waits at its receiver. A
choice: windows are as long as the shortest link between workers, and this is for workers that share none."""
STOP: Final = 0
"""Where a value stands behind the workers' earliest times. A round takes the least of these five, and the sum
of the four that follow."""
REQUEST: Final = 1
CAP: Final = 2
BUSIEST: Final = 3
ACTS: Final = 4
PROGRESS: Final = 5
WORK: Final = 6
PROMISES: Final = 7
CHANGES: Final = 8
EXTRA_MINIMA: Final = 5
TOTALS: Final = 4


def next_after(times_ps: list[int], now_ps: int) -> int:
    """The first of sorted times that is later than `now_ps`; NEVER_PS if none is."""
    at = bisect_right(times_ps, now_ps)
    return times_ps[at] if at < len(times_ps) else NEVER_PS


class WindowMachine:
    """One worker's side of the protocol.

    `lookahead[j][i]` is the least time from an event of worker j to its effect on worker i along any path,
    and on the diagonal the shortest cycle (see `emu.devices.lookahead`). `neighbours` are the workers
    that this one exchanges packets with, in order.

    A round: `open`, `take` until `complete`, `close`.
    """

    def __init__(
        self, index: int, lookahead: Sequence[Sequence[int]], neighbours: Sequence[int], grid: SyncGrid
    ) -> None:
        workers = len(lookahead)
        self.index = index
        self.workers = workers
        self.round = 0
        self.sync_ps = 0
        """The last sync point that was passed."""
        self.stop_ps: int = NEVER_PS
        self._grid = grid
        self._lookahead = [list(row) for row in lookahead]
        self._towards_me = [row[index] for row in lookahead]
        self._max_time_ps = grid.max_time_ps
        self._next_sample_ps, self._next_stall_check_ps = grid.first()
        self._measure_times_ps = list(grid.measure_times_ps)
        self._next_sample_ps = min(self._next_sample_ps, next_after(self._measure_times_ps, 0))
        self._last_progress = 0
        self._wish_ps: int = NEVER_PS
        self._request_ps: int = NEVER_PS
        self._end_wished = False
        self._end_ps: int = NEVER_PS
        self._requested_ps = -1
        """The last requested sync point that was passed."""
        self._changes = 0
        """How many changes are made; worker 0 only, as what follows."""
        self._made = 0
        """The same, as far as heard of in this attempt to run; everywhere."""
        self._coming = 0
        self._coming_ps = 0
        self._coming_asked = False
        self._cap_ps: int = NEVER_PS
        self.hears_after_ps: int = NEVER_PS
        """The least from any event to one of a watched device, while somebody listens to these; else
        NEVER_PS."""
        self.earliest_ps = 0
        """Nobody has an event before this time, as far as the last round told."""
        self._next_ps: vec[i64] = vec[i64]([0] * workers)
        """When each has its next event, as far as the last round told; more may follow."""
        self._limit_ps = 0
        others = [peer for peer in range(workers) if peer != index]
        self._star = workers <= STAR
        self._batch_peers = others if self._star else list(neighbours)
        self._parent = (index - 1) // 2 if index and not self._star else -1
        self._children = [child for child in (2 * index + 1, 2 * index + 2) if child < workers]
        self._talkers = others if self._star else self._children
        """Whose contributions come here directly."""
        self._open = False
        self._now = Round()
        self._held: list[tuple[int, SyncMessage]] = []

    @property
    def peers(self) -> list[int]:
        """Every worker that this one needs a connection to, in order."""
        tree = [] if self._star else [*self._children, *([self._parent] if self._parent >= 0 else [])]
        return sorted({*self._batch_peers, *tree})

    def wants_totals(self, next_ps: int) -> bool:
        """Whether the next contribution must carry totals, if its next event is then."""
        return next_ps >= self._next_stall_check_ps

    def wants_measure(self, next_ps: int) -> bool:
        """Whether the next contribution must say who has sent most, if its next event is then."""
        return next_ps >= self.next_measure_ps < NEVER_PS

    def measure_at(self, times_ps: Iterable[int]) -> None:
        """A change was made: faults hit what is busiest at these times. All workers say so at one point."""
        self._measure_times_ps = sorted(times_ps)
        self._next_sample_ps = min(self._next_sample_ps, self.next_measure_ps)

    @property
    def next_measure_ps(self) -> int:
        """When the next fault hits what is busiest then."""
        return next_after(self._measure_times_ps, self.sync_ps)

    @property
    def _grid_ps(self) -> int:
        """The next sync point that was known from the start."""
        return min(self._next_sample_ps, self._next_stall_check_ps)

    def request_sync(self, not_before_ps: int) -> None:
        """Ask everyone to stop at the first possible time from `not_before_ps` on; worker 0 only.

        There are no two requested sync points at one time: what is kept of the first is not what is of the
        second.
        """
        assert self.index == 0, self.index
        self._wish_ps = not_before_ps

    def request_changes(self, count: int, not_before_ps: int = 0) -> None:
        """Ask everyone to make, at the next requested sync point from then on, all of `count` changes that
        each of them knows of already; worker 0 only. The sync point is requested with it.
        """
        assert self.index == 0 and count >= self._changes, (self.index, count, self._changes)
        self._coming_ps = not_before_ps
        self._coming = count
        self._coming_asked = True

    @property
    def asked(self) -> bool:
        """Whether a sync point or the end is to be requested with the next round."""
        end = self._end_wished and self._end_ps == NEVER_PS
        return self._wish_ps < NEVER_PS or self._coming_asked or end

    def hold(self, cap_ps: int) -> None:
        """Let nobody run at or after `cap_ps`, until a later time is said; worker 0 only.

        It never changes what happens. The cap holds from the next round on; whoever is further, waits.
        """
        assert self.index == 0, self.index
        self._cap_ps = cap_ps

    def request_end(self) -> None:
        """Ask everyone to end the run, as finished, at the first possible time; worker 0 only."""
        assert self.index == 0, self.index
        self._end_wished = True

    def open(self, mine: Contribution, batches: Sequence[Batch | None]) -> list[tuple[int, SyncMessage]]:
        """Begin the next round; `batches` by worker. Returns what to send to whom."""
        assert not self._open, self.round
        self.round += 1
        self._open = True
        self._now = Round()
        if self._wish_ps < NEVER_PS:
            self._request_ps = max(self._wish_ps, self._soonest_ps(mine.reached_ps))
            self._wish_ps = NEVER_PS
        if self._coming > self._changes:
            self._coming_asked = False
            change_ps = max(self._coming_ps, self._soonest_ps(mine.reached_ps))
            self._request_ps = min(self._request_ps, change_ps)
        if self._end_wished and self._end_ps == NEVER_PS:
            self._end_ps = max(self._furthest_ps(mine.reached_ps), self.sync_ps, 1)
        values = vec[i64]([0] * (self.workers + EXTRA_MINIMA + TOTALS))
        at: i64 = 0
        for sent_ps in mine.sent_ps:
            values[at] = sent_ps
            at += 1
        values[self.index] = min(mine.sent_ps[self.index], mine.next_ps)
        values[at + STOP] = min(mine.stop_ps, self._end_ps)
        values[at + REQUEST] = min(self._request_ps, mine.pause_ps)
        values[at + CAP] = self._cap_ps
        values[at + BUSIEST] = mine.busiest
        values[at + ACTS] = mine.acts_ps
        values[at + PROGRESS] = mine.progress
        values[at + WORK] = mine.work
        values[at + PROMISES] = mine.promises
        values[at + CHANGES] = self._coming if self._request_ps >= self._coming_ps else self._changes
        shown = values if self._star else vec[i64]()
        sends = [(peer, SyncMessage(BATCH, self.round, shown, batches[peer])) for peer in self._batch_peers]
        self._now.values = values
        sends += self._pass_on()
        if self._held:
            held, self._held = self._held, []
            for peer, sync_message in held:
                sends += self.take(peer, sync_message)
        return sends

    def take(self, peer: int, sync_message: SyncMessage) -> list[tuple[int, SyncMessage]]:
        """A sync message arrived. Returns what to send on to whom. Raises ProtocolError."""
        if sync_message.round == self.round + 1:
            self._held.append((peer, sync_message))
            if (
                len(self._held) > 3 * self.workers
            ):  # of one round: a batch, a gathered and a spread one of each
                raise ProtocolError(f"worker {peer} sends ahead of round {self.round}")
            return []
        if sync_message.round != self.round or not self._open:
            raise ProtocolError(
                f"worker {peer} sent a sync message of round {sync_message.round} in round {self.round}"
            )
        now = self._now
        if sync_message.kind == BATCH:
            if peer in now.batches or peer not in self._batch_peers:
                raise ProtocolError(f"worker {peer} sent a batch that is not due in round {self.round}")
            now.batches[peer] = sync_message.batch
            return self._reduce(peer, sync_message.values) if self._star else []
        if sync_message.kind == GATHER and not self._star:
            return self._reduce(peer, sync_message.values)
        if sync_message.kind == SPREAD and peer == self._parent and len(now.result) == 0:
            self._check(peer, sync_message.values)
            return self._settle(sync_message.values)
        raise ProtocolError(
            f"worker {peer} sent a {sync_message.kind} sync message that is not due in round {self.round}"
        )

    @property
    def complete(self) -> bool:
        """Whether everything of the open round has arrived."""
        now = self._now
        return self._open and len(now.result) > 0 and len(now.batches) == len(self._batch_peers)

    def missing(self) -> list[int]:
        """Which workers the open round still waits for, directly."""
        absent = [peer for peer in self._batch_peers if peer not in self._now.batches]
        absent += [peer for peer in self._talkers if peer not in self._now.heard]
        if self._parent >= 0 and len(self._now.result) == 0:
            absent.append(self._parent)
        return sorted(set(absent))

    def close(self) -> Step:
        """End a complete round: what to do now."""
        assert self.complete, (self.round, self.missing())
        self._open = False
        result = self._now.result
        batches = [
            (peer, batch) for peer in self._batch_peers if (batch := self._now.batches[peer]) is not None
        ]
        workers = self.workers
        announced_ps: int = result[workers + STOP]
        request_ps: int = result[workers + REQUEST]
        cap_ps: int = result[workers + CAP]
        busiest: int = result[workers + BUSIEST]
        acts_ps: int = result[workers + ACTS]
        earliest_ps = bound_ps = NEVER_PS
        for worker in range(workers):
            next_ps: int = result[worker]
            if next_ps < NEVER_PS:
                earliest_ps = min(earliest_ps, next_ps)
                bound_ps = min(bound_ps, next_ps + self._towards_me[worker])
        self.earliest_ps = earliest_ps
        stop_ps = self.stop_ps = min(announced_ps, self._max_time_ps)
        due_ps = min(self._grid_ps, request_ps)
        sync: SyncPoint | None = None
        if earliest_ps >= stop_ps and stop_ps <= min(due_ps, cap_ps):
            return self._end(batches, stop_ps, announced_ps)
        if earliest_ps >= due_ps and due_ps <= cap_ps:
            sync = self._pass(due_ps, earliest_ps, request_ps, result[workers + CHANGES], busiest)
            if sync.stall_check:
                progress: int = result[workers + PROGRESS]
                same = progress == self._last_progress and result[workers + PROMISES] == 0
                if result[workers + WORK] == 0 or same:
                    return Step(batches, sync, due_ps, Ending.STALLED, due_ps)
                self._last_progress = progress
        limit_ps = min(self._grid_ps, stop_ps)
        if sync is not None and (sync.requested or sync.busiest < NEVER_PS):
            limit_ps = due_ps
        elif request_ps > self.sync_ps:
            limit_ps = min(limit_ps, request_ps)
        if self.workers > 1:
            limit_ps = min(limit_ps, earliest_ps + LONGEST_WINDOW_PS)
        limit_ps = min(limit_ps, cap_ps)
        if self.hears_after_ps < NEVER_PS:
            limit_ps = min(limit_ps, earliest_ps + self.hears_after_ps, max(acts_ps, earliest_ps + 1))
        self._next_ps, self._limit_ps = result, limit_ps
        return Step(batches, sync, min(bound_ps, limit_ps), may_leave=bound_ps < limit_ps)

    def _end(self, batches: list[tuple[int, Batch]], stop_ps: int, announced_ps: int) -> Step:
        if stop_ps >= NEVER_PS:
            return Step(batches, None, self.sync_ps, Ending.STALLED, self.sync_ps)
        finished = announced_ps <= stop_ps or self._grid.open_ended
        ending = Ending.FINISHED if finished else Ending.TIME_LIMIT
        return Step(batches, None, stop_ps, ending, stop_ps)

    def _pass(self, due_ps: int, earliest_ps: int, request_ps: int, changes: int, busiest: int) -> SyncPoint:
        sample, stall_check = due_ps == self._next_sample_ps, due_ps == self._next_stall_check_ps
        requested = request_ps == due_ps
        measures = self.next_measure_ps == due_ps
        assert not measures or busiest < NEVER_PS, due_ps
        self.sync_ps = due_ps
        if sample:
            self._next_sample_ps = min(self._grid.next_sample_ps(due_ps, earliest_ps), self.next_measure_ps)
        if stall_check:
            self._next_stall_check_ps = self._grid.next_stall_check_ps(due_ps)
        if requested:
            self._request_ps = NEVER_PS
            self._requested_ps = due_ps
            if self.index == 0:
                self._changes = changes
            if changes > self._made:
                # Something happens now that nobody knew of when the next sample was settled.
                self._made = changes
                self._next_sample_ps = min(self._next_sample_ps, self._grid.next_sample_ps(due_ps))
        staged = changes if requested else 0
        return SyncPoint(due_ps, sample, stall_check, requested, staged, busiest if measures else NEVER_PS)

    def _soonest_ps(self, reached_ps: int) -> int:
        """The first time at which a sync point can be requested."""
        return max(self._furthest_ps(reached_ps), self._requested_ps + 1)

    def _furthest_ps(self, reached_ps: int) -> int:
        """A time that no worker has passed with the windows of the last round; `reached_ps` is this one's."""
        if self.workers == 1:
            return reached_ps
        furthest = max(
            min(int(self._next_ps[other]) + row[worker] for other, row in enumerate(self._lookahead))
            for worker in range(self.workers)
        )
        return min(furthest, self._limit_ps)

    def _reduce(self, peer: int, values: vec[i64]) -> list[tuple[int, SyncMessage]]:
        now = self._now
        if peer in now.heard or peer not in self._talkers:
            raise ProtocolError(f"worker {peer} contributed out of turn in round {self.round}")
        self._check(peer, values)
        now.heard.append(peer)
        now.values = reduced(now.values, values, self.workers + EXTRA_MINIMA, peer)
        return self._pass_on()

    def _pass_on(self) -> list[tuple[int, SyncMessage]]:
        """Settle the round, or pass what was gathered towards the root, once everyone due has contributed."""
        now = self._now
        if len(now.heard) < len(self._talkers):
            return []
        if self._parent >= 0:
            return [(self._parent, SyncMessage(GATHER, self.round, now.values, None))]
        return self._settle(now.values)

    def _settle(self, values: vec[i64]) -> list[tuple[int, SyncMessage]]:
        self._now.result = values
        if self._star:
            return []
        return [(child, SyncMessage(SPREAD, self.round, values, None)) for child in self._children]

    def _check(self, peer: int, values: vec[i64]) -> None:
        due = self.workers + EXTRA_MINIMA + TOTALS
        if len(values) != due:
            raise ProtocolError(f"worker {peer} contributed {len(values)} integers, not {due}")
        for value in values:
            if value < 0 or value > NEVER_PS:
                raise ProtocolError(f"worker {peer} contributed {value}, which is no time or total")

    def save(self) -> list[int]:
        """Where the sync points stand; call it at a sync point."""
        return [self.sync_ps, self._next_sample_ps, self._next_stall_check_ps, self._last_progress]

    def load(self, state: Sequence[int]) -> None:
        """Go on from where a machine, of any number of workers, was saved."""
        self.sync_ps, self._next_sample_ps, self._next_stall_check_ps, self._last_progress = state
        self._next_sample_ps = min(self._next_sample_ps, self.next_measure_ps)
        self._requested_ps = self._limit_ps = self.sync_ps
        self._next_ps = vec[i64]([self.sync_ps] * self.workers)
