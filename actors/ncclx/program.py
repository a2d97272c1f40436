"""How does a rank carry out a script: streams of computing, collectives and transfers, and events?

See `actors.ncclx.script` for the instructions. An operation of the job is one run through the script. A
stream goes on as far as it can; it then computes (a timer), waits for its call (until the GPU has done the
last copy of every channel of the group) or for an event. Whatever ends lets every stream look again, in their
order. Calls of different groups run side by side on the GPU's copy engine and the NIC.

The step ends for a rank when all streams are at their end; it reports once everything it sent is
acknowledged. What stream 0 did is kept for each step: its computing, and its waiting by reason.

Long computing is cut in pieces of `PIECE_PS`, so that it is seen to go on (`run.stall_after`).

The watchdog is over each call, from its begin at this rank. A rank that is absent begins no step.

Where channels take SMs, computing is `actors.ncclx.share`'s, and a call begins when it has its SMs.

Not modelled: cost of a launch.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.ncclx.channel import Channel
from actors.ncclx.ends import ReceiveEnd, SendEnd
from actors.ncclx.orders import Orders
from actors.ncclx.rank import RankProgram
from actors.ncclx.recorder import Recorder
from actors.ncclx.share import Share
from actors.ncclx.waits import Waits
from actors.wire.message import STATUS_SUCCESS, STATUS_TIMED_OUT

# As in actors.ncclx.script.
COMPUTE: Final[i64] = 0
CALL: Final[i64] = 1
WAIT: Final[i64] = 2
RECORD: Final[i64] = 3

PIECE_PS: Final[i64] = 1_000_000_000

_FIELDS: Final = ("waiting_since_ps", "compute_ps")


class ScriptProgram(RankProgram):
    """One rank with a script. `groups` holds the places in `channels` of each group's channels,
    `group_reasons` what calling it on stream 0 counts to; `streams` the instructions as (kind, a, b);
    `labels`, by group and call, under what the results list it.
    """

    def __init__(
        self,
        job: int,
        start_ps: int,
        rank: int,
        channels: list[Channel],
        sends: list[SendEnd],
        receives: list[ReceiveEnd],
        waits: Waits,
        steps: int,
        groups: list[list[int]],
        streams: list[list[tuple[int, int, int]]],
        events: int,
        reasons: int,
        group_reasons: list[int],
        labels: list[list[int]],
        calls: list[list[tuple[int, int]]],
        recorder: Recorder,
        watchdog_ps: int,
        absent: bool,
        share: Share | None = None,
        orders: Orders | None = None,
    ) -> None:
        graphed = [False] * steps
        super().__init__(
            job,
            start_ps,
            rank,
            channels,
            [],
            graphed,
            sends,
            receives,
            waits,
            recorder,
            [],
            watchdog_ps,
            absent,
            orders,
            share,
        )
        self.calls: list[list[tuple[int, int]]] = calls
        """By group and call, what it announces: a place in `CALLS`, and bytes."""
        self.calling: list[bool] = [False] * len(groups)
        """By group, whether its call is under way."""
        self.watched: list[bool] = [False] * len(groups)
        """By group, whether a look at it is a pending timer."""
        self.groups: list[list[int]] = groups
        self.streams: list[list[tuple[int, int, int]]] = streams
        self.places: list[int] = [0] * len(streams)
        """By stream, its instruction."""
        self.busy: list[bool] = [False] * len(streams)
        """By stream, whether the instruction is under way."""
        self.left_ps: list[int] = [0] * len(streams)
        """By stream, what is left of its computing after the present piece."""
        self.recorded: list[bool] = [False] * events
        self.waiting_since_ps: i64 = -1
        """Since when stream 0 waits for an event."""
        self.compute_ps: i64 = 0
        self.waited_ps: list[int] = [0] * reasons
        self.group_reasons: list[int] = group_reasons
        self.labels: list[list[int]] = labels
        self.rows: list[list[int]] = []
        self.called: list[list[int]] = []
        """Of labelled calls that ended: job, rank, step, label, begun_ps, end_ps."""
        self.since_ps: list[int] = [0] * len(groups)
        """By group, when its call began."""

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        if self.status != STATUS_SUCCESS or self.absent:
            return
        assert not self.running, (self.job, self.rank, self.operation, operation)
        self.operation = operation
        self.running = True
        self.copying = True
        self.begun_ps = now
        self.places = [0] * len(self.streams)
        self.recorded = [False] * len(self.recorded)
        self.compute_ps = 0
        if self.share is not None:
            self.share.first_ps = 0
        self.waited_ps = [0] * len(self.waited_ps)
        self._look(host, now)

    def on_timer(self, host: Host, subject: i64, now: i64) -> bool:
        if self.status != STATUS_SUCCESS:
            return False
        streams: i64 = len(self.streams)
        stream: i64 = subject - 1
        if stream >= streams:
            stream -= streams
            if stream < len(self.groups):
                return self._watch(host, stream, now)
            stream -= len(self.groups)
            share = self.share
            if share is not None and stream // streams == share.turns[stream % streams]:
                return self._on_share(host, share, stream % streams, now)
            return False
        host.progress += 1
        if self.left_ps[stream] > 0:  # a piece of a long computation, for the stall check
            self._compute(host, stream, self.left_ps[stream], now)
            return False
        self.busy[stream] = False
        self.places[stream] += 1
        self._look(host, now)
        return True

    def _compute(self, host: Host, stream: i64, duration_ps: i64, now: i64) -> None:
        share = self.share
        if share is not None:
            share.begin(stream, duration_ps, now)
            self._go_at(host, share, stream, now)
            return
        piece: i64 = duration_ps
        if piece > PIECE_PS:
            piece = PIECE_PS
        self.left_ps[stream] = duration_ps - piece
        if stream == 0:
            self.compute_ps += piece
        host.set_timer(self.number, now + piece, stream + 1)

    def _computed_ps(self) -> i64:
        """How long stream 0 computed in this step."""
        share = self.share
        if share is None:
            return self.compute_ps
        return share.first_ps

    def _on_share(self, host: Host, share: Share, stream: i64, now: i64) -> bool:
        """The timer of a stream that computes with a share of the SMs; whether it is done."""
        host.progress += 1
        if not share.computed(stream, now):
            self._go_at(host, share, stream, now)
            return False
        self.busy[stream] = False
        self.places[stream] += 1
        self._look(host, now)
        return True

    def _go_at(self, host: Host, share: Share, stream: i64, now: i64) -> None:
        """Set the timer of a stream that computes: for its end, or a piece before."""
        left_ps: i64 = share.left_ps(stream)
        if left_ps > PIECE_PS:
            left_ps = PIECE_PS
        subject: i64 = len(self.streams) * (share.turn(stream) + 1) + len(self.groups) + stream + 1
        host.set_timer(self.number, now + left_ps, subject)

    def _reshare(self, host: Host, share: Share, now: i64) -> None:
        """Calls began or ended: go on computing with the SMs that are left."""
        if share.change(now):
            stream: i64 = 0
            while stream < len(self.streams):
                if share.from_ps[stream] >= 0:
                    self._go_at(host, share, stream, now)
                stream += 1

    def stirred(self, host: Host, now: i64) -> bool:
        share = self.share
        if share is None or self.status != STATUS_SUCCESS or not share.unsettled():
            return False
        if not self.copying:
            share.settle()
            share.change(now)
            return False
        self._look(host, now)
        return True

    def _look(self, host: Host, now: i64) -> None:
        """Let every stream go on as far as it can, and then, where SMs changed hands, the GPU's others."""
        self._go_through(host, now)
        self._stir(host, now)

    def _go_through(self, host: Host, now: i64) -> None:
        """Let every stream go on; is the step over?"""
        if self.copying:
            share = self.share
            moved: bool = True
            while moved:
                moved = False
                stream: i64 = 0
                while stream < len(self.streams):
                    if self._go_on(host, stream, now):
                        moved = True
                    stream += 1
                if share is not None and share.settle():
                    moved = True
            if share is not None:
                self._reshare(host, share, now)
            at: i64 = 0
            while at < len(self.streams):
                if self.places[at] < len(self.streams[at]):
                    return
                at += 1
            self.copying = False
            self.end_ps = now
            if self.rows and self.rows[0][2] == self.operation:  # the job began again
                self.rows.pop(0)
            self.rows.append(
                [
                    self.job,
                    self.rank,
                    self.operation,
                    self.begun_ps,
                    now,
                    self._computed_ps(),
                    *self.waited_ps,
                ]
            )
        super()._look(host, now)

    def _go_on(self, host: Host, stream: i64, now: i64) -> bool:
        """Carry out what can be; whether an event was recorded or a call ended, for which others may wait."""
        moved: bool = False
        line = self.streams[stream]
        while self.places[stream] < len(line):
            kind, a, b = line[self.places[stream]]
            if kind == COMPUTE:
                if not self.busy[stream]:
                    self.busy[stream] = True
                    self._compute(host, stream, a, now)
                return moved
            if kind == CALL:
                if not self._is_over(host, stream, a, b, now):
                    return moved
            elif kind == WAIT:
                if not self.recorded[a]:
                    if stream == 0 and self.waiting_since_ps < 0:
                        self.waiting_since_ps = now
                    return moved
                if stream == 0 and self.waiting_since_ps >= 0:
                    self.waited_ps[b] += now - self.waiting_since_ps
                    self.waiting_since_ps = -1
            else:
                self.recorded[a] = True
                moved = True
            self.places[stream] += 1
        return moved

    def _is_over(self, host: Host, stream: i64, group: i64, call: i64, now: i64) -> bool:
        """Whether a stream's call is over; it begins when the stream has come to it."""
        share = self.share
        if not self.busy[stream]:
            if share is not None and not share.take(group, now):
                return False
            self.busy[stream] = True
            self.since_ps[group] = now
            self.calling[group] = True
            op, size_bytes = self.calls[group][call]
            self.recorder.begin(group, op, size_bytes, now)
            self._look_after(host, group, now)
            orders = self.orders
            if orders is not None:
                orders.begin(group)
            for place in self.groups[group]:
                self.channels[place].begin(host, call)
        for place in self.groups[group]:
            if not self.channels[place].copied_all():
                return False
        self.busy[stream] = False
        self.calling[group] = False
        self.recorder.end(group, now)
        begun_ps: i64 = self.since_ps[group]
        asked_ps: i64 = begun_ps
        if share is not None:
            asked_ps = share.give_back(group)
        if stream == 0:
            self.waited_ps[self.group_reasons[group]] += now - asked_ps
        label: i64 = self.labels[group][call]
        if label >= 0:
            self.called.append([self.job, self.rank, self.operation, label, begun_ps, now])
        return True

    def _look_after(self, host: Host, group: i64, now: i64) -> None:
        """Look whether the group's call is over when it should be. One look is pending at a time, however
        many calls there are meanwhile.
        """
        if self.watchdog_ps > 0 and not self.watched[group]:
            self.watched[group] = True
            subject: i64 = len(self.streams) + group + 1
            host.set_timer(self.number, self.since_ps[group] + self.watchdog_ps, subject)

    def _watch(self, host: Host, group: i64, now: i64) -> bool:
        """The watchdog: the call that was under way should be over; whether it is not."""
        self.watched[group] = False
        if not self.calling[group]:
            return False
        if self.since_ps[group] + self.watchdog_ps > now:
            self._look_after(host, group, now)
            return False
        first: i64 = self.groups[group][0]
        last: i64 = first + len(self.groups[group])
        why, peer, port, pair = self.waiting(first, last)
        self._fail(host, group, STATUS_TIMED_OUT, why, peer, port, pair, now)
        return True

    def _group_of(self, channel: i64) -> i64:
        group: i64 = 0
        while group < len(self.groups):
            for place in self.groups[group]:
                if place == channel:
                    return group
            group += 1
        return -1

    def step_rows(self) -> list[list[int]]:
        return self.rows

    def call_rows(self) -> list[list[int]]:
        return self.called

    def save(self) -> list[Plain]:
        places: list[Plain] = list(self.places)
        busy: list[Plain] = list(self.busy)
        left: list[Plain] = list(self.left_ps)
        recorded: list[Plain] = list(self.recorded)
        waited: list[Plain] = list(self.waited_ps)
        rows: list[Plain] = [list(row) for row in self.rows]
        called: list[Plain] = [list(row) for row in self.called]
        return [
            super().save(),
            save_fields(self, _FIELDS),
            places,
            busy,
            left,
            recorded,
            waited,
            rows,
            called,
            list[Plain](self.since_ps),
            list[Plain](self.calling),
            list[Plain](self.watched),
        ]

    def load(self, state: list[Plain]) -> None:
        base, fields, places, busy, left, recorded, waited, rows, called, since = state[:-2]
        calling, watched = state[-2:]
        super().load(as_list(base))
        load_fields(self, _FIELDS, fields)
        self.places = [as_int(value) for value in as_list(places)]
        self.busy = [as_int(value) == 1 for value in as_list(busy)]
        self.left_ps = [as_int(value) for value in as_list(left)]
        self.recorded = [as_int(value) == 1 for value in as_list(recorded)]
        self.waited_ps = [as_int(value) for value in as_list(waited)]
        self.rows = [[as_int(value) for value in as_list(row)] for row in as_list(rows)]
        self.called = [[as_int(value) for value in as_list(row)] for row in as_list(called)]
        self.since_ps = [as_int(value) for value in as_list(since)]
        self.calling = [as_int(value) == 1 for value in as_list(calling)]
        self.watched = [as_int(value) == 1 for value in as_list(watched)]
