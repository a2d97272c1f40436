"""Jobs of scripts: every rank goes through its streams, and calls begin when all who call them are there.

A rank's streams are those of packet level (`actors.ncclx.rank.streams`). A call of a group begins when its
last member has come to it, and ends for all of them at once; a transfer that fits the buffer of its
connection is over for its sender as soon as it was copied there. The first operation begins at the job's
start, each following one when the controller has heard of all ranks and all have heard of that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from actors.flow.progress import NANOS, Progress
from actors.host.host import MANAGEMENT_RATE_BPS
from actors.kernel.units import serialisation_ps
from actors.ncclx.operations import Operation
from actors.ncclx.rank.streams import NOTHING, Stream, Streams
from actors.ncclx.schedule import operations_of
from actors.ncclx.script import COMPUTE, LINE, Group, Script
from actors.wire.message import MESSAGE_BYTES
from emu.devices.plan import JobWork
from emu.flow.calls import Calls, Launch, Leg
from emu.flow.equal_ranks import EqualRanks
from emu.flow.in_step import InStepCalls

SUCCESS: Final = 0


class Sharing:
    """By how much transfers take longer than alone, since they share links."""

    def __init__(self) -> None:
        self._took_ps = 0
        self._alone_ps = 0
        self.most = 0.0
        """The largest of one transfer."""

    def add(self, took_ps: int, alone_ps: int) -> None:
        """A transfer is over."""
        self._took_ps += took_ps
        self._alone_ps += alone_ps
        self.most = max(self.most, took_ps / max(alone_ps, 1) - 1)

    @property
    def mean(self) -> float:
        """The mean over all."""
        return self._took_ps / max(self._alone_ps, 1) - 1


class _Rank:
    """One rank, or all that are equal: its streams, and what stream 0 did in this operation."""

    __slots__ = ("called", "computed_ps", "end_ps", "number", "script", "streams")

    def __init__(self, number: int, script: Script, reasons: int, *, single: bool) -> None:
        self.number = number
        self.script = script
        self.streams = Streams(script.streams, script.events, reasons, single)
        self.called = [0] * len(script.groups)
        """By group, calls begun since the job began."""
        self.computed_ps = 0
        self.end_ps = -1


class _Meeting:
    """The members of a group that have come to a call, and when."""

    __slots__ = ("came", "labels", "left", "sooner_ps")

    def __init__(self) -> None:
        self.came: list[tuple[_Rank, Stream, int, int]] = []
        """Rank, stream, place of the group there, when."""
        self.labels: dict[int, int] = {}
        """By rank, the call's in its script."""
        self.left: set[int] = set()
        """Ranks that do not wait for its end."""
        self.sooner_ps: dict[int, int] = {}
        """By rank, how much sooner than the call's end it is through."""


class ScriptRun:
    """The ranks of one job. `over` is called when the job has ended."""

    def __init__(
        self,
        work: JobWork,
        calls: Calls | InStepCalls,
        progress: Progress,
        management_delay_ps: int,
        over: Callable[[int], None],
        equal_ranks: EqualRanks,
    ) -> None:
        assert work.wired is not None, work
        self.operations: list[list[int]] = []
        self.steps: list[list[int]] = []
        self.called: list[list[int]] = []
        self.sharing = Sharing()
        """How long transfers took: of a benchmark one operation at a time, of steps all together."""
        self._work = work
        self._job = work.wired
        self._plan = work.wired.script
        self._equal_ranks = equal_ranks
        self._calls = calls
        self._progress = progress
        self._over = over
        message_ps = serialisation_ps(int(MESSAGE_BYTES), MANAGEMENT_RATE_BPS)
        self._barrier_ps = 2 * (management_delay_ps + message_ps)
        reasons = len(self._plan.reasons)
        self._ranks = [
            _Rank(number, self._plan.scripts[members[0]], reasons, single=self._plan.single)
            for number, members in enumerate(equal_ranks.ranks)
        ]
        self._meetings: dict[tuple[int, int], _Meeting] = {}
        self._known: dict[object, Operation] = {}
        self._open = 0
        self._operation = 0
        self._begun_ps = 0

    def begin(self) -> None:
        """Let the first operation begin at its time."""
        self._progress.at(self._work.start_ps, partial(self._begin, 0))

    def _begin(self, operation: int) -> None:
        self._operation = operation
        self._begun_ps = self._progress.now_ps
        self._open = len(self._ranks)
        for rank in self._ranks:
            rank.streams.begin(operation)
            rank.computed_ps, rank.end_ps = 0, -1
        for rank in self._ranks:
            self._look(rank)

    def _look(self, rank: _Rank) -> None:
        """Let every stream of a rank go on as far as it can."""
        streams = rank.streams
        streams.moved = True
        while streams.moved:
            streams.moved = False
            for stream in streams.each:
                self._go_on(rank, stream)
        if rank.end_ps < 0 and streams.done():
            self._ended(rank)

    def _go_on(self, rank: _Rank, stream: Stream) -> None:
        """Begin the computing or the call that a stream comes to, unless it waits."""
        now_ps = self._progress.now_ps
        while not stream.busy:
            kind = rank.streams.step(stream, now_ps)
            if kind == NOTHING:
                return
            a, b = int(stream.a()), int(stream.b())
            stream.busy = True
            if kind == COMPUTE:
                gpu = self._job.gpus[self._equal_ranks.ranks[rank.number][0]]
                takes_ps = self._progress.computing_ps(gpu, a)
                self._progress.at(now_ps + takes_ps, partial(self._computed, rank, stream, takes_ps))
            elif not self._call(rank, stream, a, b):
                stream.over()

    def _computed(self, rank: _Rank, stream: Stream, duration_ps: int) -> None:
        if stream.number == 0:
            rank.computed_ps += duration_ps
        self._next(rank, stream)

    def _next(self, rank: _Rank, stream: Stream) -> None:
        """A stream is through with its instruction."""
        stream.over()
        self._look(rank)

    def _ended(self, rank: _Rank) -> None:
        """A rank is at the end of its streams."""
        now_ps = self._progress.now_ps
        rank.end_ps = now_ps
        if not self._plan.single:
            for member in self._equal_ranks.ranks[rank.number]:
                row = [self._job.job, member, self._operation, self._begun_ps, now_ps, rank.computed_ps]
                self.steps.append(row + [int(one) for one in rank.streams.waited_ps])
        self._open -= 1
        if self._open:
            return
        self.operations.append([self._job.job, self._operation, self._begun_ps, now_ps, SUCCESS])
        if self._operation + 1 < len(self._work.operations):
            self._progress.at(now_ps + self._barrier_ps, partial(self._begin, self._operation + 1))
        else:
            self._over(now_ps)

    # ---- calls

    def _call(self, rank: _Rank, stream: Stream, place: int, call: int) -> bool:
        """A stream has come to a call; whether it waits for the end of it."""
        number = self._equal_ranks.of_group[rank.script.groups[place]]
        group = self._group(number)
        one = rank.script.calls[place][call]
        if len(group.members) < 2 or one.size_bytes == 0:
            return False
        now_ps = self._progress.now_ps
        operation = self._known.get(one)
        if operation is None:
            (operation,) = operations_of([one])
            self._known[one] = operation
        key = (number, rank.called[place])
        rank.called[place] += 1
        meeting = self._meetings.setdefault(key, _Meeting())
        mine = (rank, stream, place, now_ps)
        meeting.came.append(mine)
        meeting.labels[rank.number] = one.label
        if group.kind == LINE and rank.number == self._equal_ranks.of_rank[group.members[0]]:
            copied_ps = self._calls.copied_ps(number, operation)
            if copied_ps >= 0:
                meeting.left.add(rank.number)
                self._progress.at(now_ps + copied_ps, partial(self._left, mine, one.label))
        if len(meeting.came) == self._equal_ranks.callers[number]:
            del self._meetings[key]
            early_ps = {each.number: now_ps - since_ps for each, _, _, since_ps in meeting.came}
            self._calls.begin(number, operation, early_ps, partial(self._launch, meeting))
        return True

    def _group(self, number: int) -> Group:
        """The first group of a class."""
        return self._plan.groups[self._equal_ranks.groups[number][0]]

    def _launch(self, meeting: _Meeting, launch: Launch) -> None:
        """Everybody is there: let the legs of the call begin."""
        progress = self._progress
        now_ps = progress.now_ps
        meeting.sooner_ps = launch.sooner_ps
        ends = [now_ps + launch.least_ps]
        if not launch.legs:
            self._over_at(meeting, now_ps)
        for leg in launch.legs:
            progress.at(now_ps + leg.first_ps, partial(self._send, leg, ends, len(launch.legs) + 1, meeting))

    def _send(self, leg: Leg, ends: list[int], many: int, meeting: _Meeting) -> None:
        alone_ps = leg.fixed_ps
        if alone_ps < 0:
            alone_ps = leg.bits * NANOS // self._progress.alone_kbps(leg.shape)
        sent = partial(self._sent, leg, ends, many, meeting, self._progress.now_ps, alone_ps)
        if leg.fixed_ps >= 0:
            self._progress.at(self._progress.now_ps + leg.fixed_ps, sent)
        else:
            self._progress.begin(leg.shape, leg.bits, sent)

    def _sent(
        self, leg: Leg, ends: list[int], many: int, meeting: _Meeting, begun_ps: int, alone_ps: int
    ) -> None:
        self.sharing.add(self._progress.now_ps - begun_ps, alone_ps)
        ends.append(self._progress.now_ps + leg.tail_ps)
        if len(ends) == many:
            self._over_at(meeting, max(ends))

    def _over_at(self, meeting: _Meeting, end_ps: int) -> None:
        """When the call is over for the last of its ranks."""
        for one in meeting.came:
            number = one[0].number
            if number not in meeting.left:
                at_ps = end_ps - meeting.sooner_ps.get(number, 0)
                self._progress.at(at_ps, partial(self._left, one, meeting.labels[number]))

    def _left(self, one: tuple[_Rank, Stream, int, int], label: int) -> None:
        rank, stream, place, since_ps = one
        now_ps = self._progress.now_ps
        if stream.number == 0:
            reason = self._plan.groups[rank.script.groups[place]].reason
            rank.streams.waited_ps[reason] += now_ps - since_ps
        if label >= 0:
            for member in self._equal_ranks.ranks[rank.number]:
                self.called.append([self._job.job, member, self._operation, label, since_ps, now_ps])
        self._next(rank, stream)
