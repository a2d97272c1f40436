"""A rank that carries out a script: streams of computing, collectives, transfers, events.

See `actors.ncclx.script` for the instructions. An operation of the job is one run through the script, or
of a benchmark (`single`) the instruction at its place. A stream goes on as far as it can; it then computes (a
timer), waits for its call (until the GPU has done the last copy of every channel) or for an event. Whatever
ends lets every stream look again, in their order. Calls of different groups run side by side on the GPU's
copy engine and the NIC. What NICs and GPU report goes to the channel concerned.

An operation is over in two parts: the *end* that counts is when all streams are at their end, as a CUDA event
after the last kernel would tell; the *report* leaves once every slice this rank sent is acknowledged as well,
so that an operation whose last WRITE fails is not called a success. Each call has the same two parts: what it
sent may be on its way when the next call begins, and until all of it was acknowledged, counted over the
group's connections together, the flight recorder does not call it over. What stream 0 did is kept for each
step: its computing, and its waiting by reason.

The first failed completion ends the rank: it reports at once with that status and does nothing more. What the
others then do is the controller's business. Where the job may go on, the controller lets the ranks of another
membership begin the operation again on a communicator of their own, which has connections of its own; the one
before is aborted: its queue pairs are reset, and what is still reported of it means nothing. A rank that was
left out, or whose host came back, begins anew in a membership that has it.

The watchdog is over each call, from when its stream comes to it until what it sent was acknowledged; so it
covers a wait for SMs, and a small send that nobody receives. A rank that is absent begins no operation.

Long computing, and making many queue pairs, is cut in pieces of `PIECE_PS`, so that it is seen to go on
(`run.stall_after`). When the GPU becomes slow, hangs or recovers, what is left of a piece begins anew at the
new pace. Where channels take SMs, computing is `actors.ncclx.sm_share`'s, and a call begins when it has its
SMs.

A call over no bytes, or among one rank, ends the moment it begins. A rank that is to begin on a GPU that is
gone reports that at once.

Connections on demand. With `pair_ps` above 0 queue pairs are made before the first call that uses them, one
after the other for all groups of the rank; their numbers then go to the peers and back. Only then does the
call begin, so that a peer that comes later is waited for by way of its clear-to-sends.

Source of that: NCCL 2.30, `src/enqueue.cc` and `src/group.cc` (peers are marked when a send or receive is
called, and connected before the launch; rings and trees likewise with NCCL_RUNTIME_CONNECT),
`src/transport.cc` (ncclTransportP2pSetup).

Not modelled: cost of a launch, of an abort; rounds of 128 peers in which NCCL connects; what a NIC does with
packets for a queue pair that is not ready.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host, Program
from actors.kernel.device import Plain, Tally
from actors.kernel.event import NEVER_PS, Message
from actors.kernel.event_log import CALLED, COMPUTED, OPERATED
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.kernel.vectors import vec
from actors.ncclx.flight_records import (
    FAILED,
    WAITS_ACKNOWLEDGEMENT,
    WAITS_CTS,
    WAITS_DATA,
    WAITS_NOTHING,
    Recorder,
)
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.sm_share import MEMBER, TURNS, Share
from actors.ncclx.transport.channel import Channel
from actors.ncclx.transport.clear_to_send import (
    RECEIVE_CONTROL,
    RECEIVE_DATA,
    ROLES,
    SEND_CONTROL,
    SEND_DATA,
    ReceiveEnd,
    SendEnd,
    Waits,
)
from actors.ncclx.transport.posting import LEAST_LOADED, Totals
from actors.wire.fault import GPU_GONE
from actors.wire.message import (
    BLAME_BITS,
    COMPLETED_SEND,
    MEMBERSHIP_BITS,
    PRESENT_OPERATION,
    STATUS_ALIVE,
    STATUS_FLUSHED,
    STATUS_GPU_LOST,
    STATUS_SUCCESS,
    STATUS_TIMED_OUT,
)

# As in actors.ncclx.script.
COMPUTE: Final[i64] = 0
CALL: Final[i64] = 1
WAIT: Final[i64] = 2
RECORD: Final[i64] = 3
COMPUTING: Final[i64] = -1

PIECE_PS: Final[i64] = 1_000_000_000
PAIR_GONE: Final = 0
"""The state RESET of `actors.nic.queue_pair.queue_pair`: nothing is sent, and what comes is dropped."""

_FIELDS: Final = (
    "operation",
    "running",
    "copying",
    "begun_ps",
    "end_ps",
    "status",
    "waiting_since_ps",
    "compute_ps",
    "computed_ps",
    "computed_work_ps",
    "factor",
    "membership",
    "first",
    "last",
    "again",
    "broken",
    "connects_ps",
    "made",
    "connecting_ps",
    "halted",
)

# What a group has to have acknowledged before one of its calls is over.
_NUMBER: Final[i64] = 0
_SINCE: Final[i64] = 1
_END: Final[i64] = 2
_MARK: Final[i64] = 3


class Line:
    """The instructions of a stream: kind, a and b of each, one behind the other."""

    def __init__(self, instructions: list[tuple[int, int, int]]) -> None:
        self.count: i64 = len(instructions)
        self.code: vec[i64] = vec[i64]([number for one in instructions for number in one])
        self.computes: bool = COMPUTE in [one[0] for one in instructions]


class ScriptProgram(Program):
    """One rank with a script: its channels, and the ends of all their connections.

    `groups` holds the places in `channels` of each group's channels, the walkers of rings before those of
    graphs; `rings` how many of them walk rings; `ringed`, by group and call, whether those serve it.
    `group_reasons` is what calling a group on stream 0 counts to; `streams` the instructions as (kind, a, b);
    `labels`, by group and call, under what the results list it.
    """

    def __init__(  # noqa: PLR0915  a line for each field
        self,
        job: int,
        start_ps: int,
        rank: int,
        gpu_port: int,
        single: bool,
        channels: list[Channel],
        sends: list[SendEnd],
        receives: list[ReceiveEnd],
        waits: Waits,
        groups: list[list[int]],
        rings: list[int],
        ringed: list[list[bool]],
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
        super().__init__(job, start_ps)
        self.rank: i64 = rank
        self.gpu_port: i64 = gpu_port
        """The host's port to the rank's GPU."""
        self.factor: i64 = 1000
        """Thousandths of its time that computing takes; 0 while it stands still."""
        self.computed_ps: i64 = 0
        """How long it has computed, over all streams and steps."""
        self.computed_work_ps: i64 = 0
        """How long that takes where the GPU is not slow."""
        self.single: bool = single
        self.channels: vec[Channel] = vec[Channel](channels)
        self.sends: vec[SendEnd] = vec[SendEnd](sends)
        self.receives: vec[ReceiveEnd] = vec[ReceiveEnd](receives)
        self.waits: Waits = waits
        """Of the clear-to-sends that came to its ends."""
        self.recorder: Recorder = recorder
        self.watchdog_ps: i64 = watchdog_ps
        """How long a call may take before it is given up; 0 for ever."""
        self.qpns: dict[int, int] = {}
        """Numbers of its queue pairs by (host's port << 20) | index."""
        self.psns: dict[int, tuple[int, int]] = {}
        """Likewise, of a rank whose job has several memberships, the PSN that it begins with and the one that
        it expects first."""
        self.orders: Orders | None = orders
        """Where payload is real: what its channels tell the GPU."""
        self.spare: list[list[tuple[int, int]]] = []
        """Of a rank whose job has several memberships: by group, port and index of each queue pair; of
        one whose process may be ended: of all that it has."""
        self.spans: list[tuple[int, int]] = []
        """And by membership the rank's groups, first and behind the last; both -1 where it takes no part."""
        self.scripts: list[list[list[tuple[int, int, int]]]] = []
        """And its streams."""
        self.membership: i64 = 0
        self.first: i64 = 0
        """The first group of the present one, from which calls count."""
        self.last: i64 = len(groups)
        self.again: bool = False
        """Whether the operation that begins next may be one that the rank has begun before, with others."""
        self.broken: bool = False
        """Whether its host was lost, and its queue pairs with it, since it last took part."""
        self.blames: bool = False
        """Whether it reports with whom it failed, and in which membership."""
        self.halted: bool = False
        """Whether the process was ended."""
        self.absent: bool = absent
        """Whether it never joins: its process hangs, or was never started."""
        self.share: Share | None = share
        """Of the SMs; None where channels take none."""
        self.operation: i64 = -1
        self.running: bool = False
        self.copying: bool = False
        """Whether a stream has not come to its end in this operation."""
        self.begun_ps: i64 = 0
        self.end_ps: i64 = 0
        self.status: i64 = STATUS_SUCCESS
        self.calls: list[list[tuple[int, int]]] = calls
        """By group and call, what it announces (`actors.ncclx.operations.Announcement`), and bytes."""
        self.groups: list[list[int]] = groups
        self.starts: vec[i64] = vec[i64]([places[0] if places else 0 for places in groups])
        """By group its first channel, with the others behind it; how many there are; how many walk rings."""
        self.counts: vec[i64] = vec[i64]([len(places) for places in groups])
        self.rings: vec[i64] = vec[i64](rings)
        self.ringed: list[list[bool]] = ringed
        group_of = [0] * len(channels)
        for number, places in enumerate(groups):
            assert not places or places == list(range(places[0], places[0] + len(places))), places
            for place in places:
                group_of[place] = number
        self.group_of: vec[i64] = vec[i64](group_of)
        self.calling: vec[bool] = vec[bool]([False] * len(groups))
        """By group, whether its stream is at a call of it."""
        self.pair_ps: i64 = 0
        """What it takes to make a queue pair at its first use; 0: all are there."""
        self.exchange_ps: i64 = 0
        """And to exchange their numbers."""
        self.beyond: i64 = len(groups)
        """Subjects of timers between those of streams and their later ones: for each group the watchdog's,
        and with connections on demand that of these."""
        self.connects_ps: i64 = 0
        """Until when it makes queue pairs."""
        self.made: i64 = 0
        """Queue pairs made on demand."""
        self.connecting_ps: i64 = 0
        """How long calls waited for them."""
        self.ready_ps: vec[i64] = vec[i64]([-1] * len(groups))
        """By group, when those are there that its call waits for; -1 where it waits for none."""
        self.watched: list[bool] = [False] * len(groups)
        """By group, whether a look at it is a pending timer."""
        self.asked_ps: vec[i64] = vec[i64]([0] * len(groups))
        """By group, when its stream came to its call."""
        self.since_ps: vec[i64] = vec[i64]([0] * len(groups))
        """By group, when its call began: when it had its SMs."""
        self.held_by: vec[i64] = vec[i64]([-1] * len(groups))
        """By group, whose collectives held the SMs that its call waited for; -1 where it did not wait."""
        self.freed: vec[i64] = vec[i64]([0] * len(groups))
        """By group, how many of the slices that it sent were acknowledged, since the job began."""
        self.owing: list[list[list[int]]] = [[] for _ in groups]
        """By group, calls that were copied and are not over: number, when asked, when copied, and how many
        slices the group had sent then."""
        self.owed: vec[i64] = vec[i64]([NEVER_PS] * len(groups))
        """By group, that of the first; NEVER_PS where there is none."""
        self.streams: list[list[tuple[int, int, int]]] = streams
        self.lines: vec[Line] = vec[Line]([Line(stream) for stream in streams])
        """What they are, as numbers."""
        self.computes: bool = any(line.computes for line in self.lines)
        self.places: vec[i64] = vec[i64]([0] * len(streams))
        """By stream, its instruction."""
        self.busy: vec[bool] = vec[bool]([False] * len(streams))
        """By stream, whether the instruction is under way."""
        self.stuck: vec[i64] = vec[i64]([0] * len(streams))
        """What a stream was found to wait for, so that it is not looked at until that happens: COMPUTING, or
        a group's channels, as its number + 1; 0: it may be able to go on. No state, as 0 is never wrong."""
        self.left_ps: list[int] = [0] * len(streams)
        """By stream, what is left of its computing after the present piece, at full pace."""
        self.piece_ps: list[int] = [0] * len(streams)
        """By stream, the present piece of its computing, at full pace."""
        self.from_ps: list[int] = [0] * len(streams)
        """By stream, when the present piece began."""
        self.turns: list[int] = [0] * len(streams)
        """By stream, which of its timers counts: another one since the pace changed during a piece."""
        self.recorded: list[bool] = [False] * events
        self.waiting_since_ps: i64 = -1
        """Since when stream 0 waits for an event."""
        self.compute_ps: i64 = 0
        self.waited_ps: vec[i64] = vec[i64]([0] * reasons)
        self.group_reasons: vec[i64] = vec[i64](group_reasons)
        self.labels: list[list[int]] = labels
        self.totals: Totals = Totals()
        self.chooses: bool = any(send.sender.policy == LEAST_LOADED for send in sends)
        self.rows: list[list[int]] = []
        self.called: list[list[int]] = []
        """Of labelled calls that ended: job, rank, step, label, begun_ps, end_ps."""

    def connect_on_demand(self, pair_ps: int, exchange_ps: int) -> None:
        """Make queue pairs at their first use."""
        self.pair_ps = pair_ps
        self.exchange_ps = exchange_ps
        self.beyond = 2 * len(self.groups)

    def _add_up(self) -> None:
        """Share the totals with the ends and channels, which count from what they have."""
        totals = self.totals
        for send in self.sends:
            sender = send.sender
            sender.totals = totals
            totals.held += sender.held
            totals.deferred += sender.deferred
            totals.diverted += sender.diverted
        for channel in self.channels:
            channel.totals = totals
            totals.direct += channel.direct

    def settle(self) -> None:
        """Tell channels and ends the number that the host gave to this program, and where they count."""
        for channel in self.channels:
            channel.program = self.number
        for send in self.sends:
            send.program = self.number
        for receive in self.receives:
            receive.program = self.number
        self._add_up()

    # ---- an operation

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        if self.status != STATUS_SUCCESS or self.absent or self.first < 0:
            return
        if len(host.ailments) > 0 and host.ailment(int(GPU_GONE), self.gpu_port) is not None:
            self.on_lost(host, self.gpu_port, STATUS_GPU_LOST, now)
            return
        assert not self.running, (self.job, self.rank, self.operation, operation)
        if self.single or self.operation != operation or not self.again:
            self.begun_ps = now
        self.again = False
        self.operation = operation
        self.running = True
        self.copying = True
        first: i64 = operation if self.single else 0
        self.places = vec[i64]([int(first)] * len(self.streams))
        self.recorded = [False] * len(self.recorded)
        self.compute_ps = 0
        if self.share is not None:
            self.share.first_ps = 0
        self.waited_ps = vec[i64]([0] * len(self.waited_ps))
        self._look(host, now)

    def on_members(self, host: Host, membership: i64, now: i64) -> bool:
        if membership == self.membership or not self.spans:
            return self.first >= 0
        was: i64 = self.first
        until: i64 = self.last
        self.membership = membership
        first, last = self.spans[membership]
        self.first = first
        self.last = last
        if self.first < 0:
            return False  # the others go on without it
        self.again = True
        self.status = STATUS_SUCCESS
        self.running = False
        self.copying = False
        self.waiting_since_ps = -1
        stream: i64 = 0
        while stream < len(self.streams):
            if self._computes(stream):  # its timer means nothing from now on
                self.turns[stream] = self.turns[stream] % (TURNS - 1) + 1
            self.busy[stream] = False
            self.left_ps[stream] = 0
            stream += 1
        self._take_streams(self.scripts[membership])
        group: i64 = 0
        while group < len(self.groups):
            self.calling[group] = False
            self.ready_ps[group] = -1
            self.owing[group] = []
            self.owed[group] = NEVER_PS
            group += 1
        while 0 <= was < until:
            for port, pair in self.spare[was]:
                host.modify(port, pair, PAIR_GONE, 0)
            was += 1
        if self.broken:
            self.broken = False
            while first < last:
                for port, pair in self.spare[first]:
                    own, expected = self.psns[(port << 20) | pair]
                    for state, psn in ((PAIR_GONE, 0), (1, 0), (2, expected), (3, own)):  # INIT, RTR, RTS
                        host.modify(port, pair, state, psn)
                first += 1
        return True

    def on_asked(self, host: Host, now: i64) -> None:
        if self.running and self.factor > 0:
            told: i64 = self._told(STATUS_ALIVE)
            host.report(self.job, PRESENT_OPERATION, self.rank, self.begun_ps, now, told)

    def on_halted(self, host: Host, now: i64) -> None:
        if self.halted:
            return
        self.halted = True
        if self.status == STATUS_SUCCESS:
            self.status = STATUS_FLUSHED
        self.running = False
        self.copying = False
        if self.share is not None:
            self.share.leave()
            self._stir(host, now)
        for pairs in self.spare:
            for port, pair in pairs:
                host.modify(port, pair, PAIR_GONE, 0)

    def trouble(self) -> i64:
        return STATUS_SUCCESS if self.halted else self.status

    def _is_stale(self, channel: i64) -> bool:
        """Whether a channel is one of a communicator that was aborted."""
        if self.membership == 0:
            return False
        group: i64 = self.group_of[channel]
        return not self.first <= group < self.last

    def _look(self, host: Host, now: i64) -> None:
        """Let every stream go on as far as it can, and then, where SMs changed hands, the GPU's others."""
        stream: i64 = 0
        while stream < len(self.stuck):
            self.stuck[stream] = 0
            stream += 1
        self._go_through(host, now)
        self._stir(host, now)

    def _look_on(self, host: Host, waited: i64, now: i64) -> None:
        """The same, where nothing has happened but what one stream may wait for, as `stuck` has it."""
        stream: i64 = 0
        while stream < len(self.stuck):
            if self.stuck[stream] == waited:
                self.stuck[stream] = 0
            stream += 1
        self._go_through(host, now)
        self._stir(host, now)

    def _go_through(self, host: Host, now: i64) -> None:
        """Let every stream go on; is the operation over?"""
        if self.copying:
            share = self.share
            moved: bool = True
            while moved:
                moved = False
                stream: i64 = 0
                while stream < len(self.streams):
                    if self.stuck[stream] == 0 and self._go_on(host, stream, now):
                        moved = True
                    stream += 1
                if share is not None and share.settle():
                    moved = True
            if share is not None:
                self._reshare(host, share, now)
            at: i64 = 0
            while at < len(self.streams):
                if self.places[at] < self._last(at):
                    return
                at += 1
            self.copying = False
            self.end_ps = now
            events = host.events
            if events is not None:
                events.note(OPERATED, self.number, self.operation, 0, 0, self.begun_ps, now)
            if not self.single:
                self._note_step(now)
        if not self.running:
            return
        for owing in self.owing:
            if owing:
                return
        self.running = False
        self.waits.close(self.job, self.operation)
        host.step_done(self.number)
        told: i64 = self._told(STATUS_SUCCESS)
        host.report(self.job, self.operation, self.rank, self.begun_ps, self.end_ps, told)

    def _last(self, stream: i64) -> i64:
        """Where a stream is at its end in this operation."""
        if self.single:
            return self.operation + 1
        return self.lines[stream].count

    def _note_step(self, now: i64) -> None:
        """The row of a step that is over."""
        if self.rows and self.rows[0][2] == self.operation:  # the job began again
            self.rows.pop(0)
        if self.membership > 0 and self.rows and self.rows[-1][2] == self.operation:  # or the step did
            self.rows.pop()
        row: list[int] = [self.job, self.rank, self.operation, self.begun_ps, now, self._computed_ps()]
        self.rows.append(row + list(self.waited_ps))

    def _go_on(self, host: Host, stream: i64, now: i64) -> bool:
        """Carry out what can be; whether an event was recorded or a call ended, for which others may wait."""
        moved: bool = False
        line = self.lines[stream]
        last: i64 = line.count
        if self.single:
            last = self.operation + 1
        while self.places[stream] < last:
            place: i64 = 3 * self.places[stream]
            kind: i64 = line.code[place]
            a: i64 = line.code[place + 1]
            b: i64 = line.code[place + 2]
            if kind == COMPUTE:
                if not self.busy[stream]:
                    self.busy[stream] = True
                    self._compute(host, stream, a, now)
                self.stuck[stream] = COMPUTING
                return moved
            if kind == CALL:
                if not self._is_over(host, stream, a, b, now):
                    if self.busy[stream]:
                        self.stuck[stream] = self.first + a + 1
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

    # ---- computing

    def _compute(self, host: Host, stream: i64, duration_ps: i64, now: i64) -> None:
        share = self.share
        if share is not None:
            share.begin(stream, duration_ps, now)
            self.from_ps[stream] = now
            self._go_at(host, share, stream, now)
            return
        factor: i64 = self.factor
        piece: i64 = duration_ps
        most: i64 = PIECE_PS
        if factor > 1000:
            most = PIECE_PS * 1000 // factor
        if piece > most:
            piece = most
        self.left_ps[stream] = duration_ps - piece
        self.piece_ps[stream] = piece
        self.from_ps[stream] = now
        if factor == 0:
            return
        takes_ps: i64 = piece if factor == 1000 else (piece * factor + 999) // 1000
        turn: i64 = self.turns[stream]
        subject: i64 = stream + 1
        if turn > 0:
            subject += len(self.streams) * (turn + 1) + self.beyond
        host.set_timer(self.number, now + takes_ps, subject)

    def on_paced(self, host: Host, gpu_port: i64, factor: i64, now: i64) -> None:
        if gpu_port != self.gpu_port:
            return
        before: i64 = self.factor
        self.factor = factor
        share = self.share
        if share is not None:
            share.pace(factor, now)
        stream: i64 = 0
        while stream < len(self.streams):
            if share is None:
                if self._computes(stream):
                    self._begin_anew(host, stream, before, now)
            elif share.from_ps[stream] >= 0:
                self._go_at(host, share, stream, now)
            stream += 1

    def _computes(self, stream: i64) -> bool:
        """Whether a stream's computing is under way."""
        place: i64 = self.places[stream]
        if not self.busy[stream] or place >= self._last(stream):
            return False
        return self.lines[stream].code[3 * place] == COMPUTE

    def _begin_anew(self, host: Host, stream: i64, before: i64, now: i64) -> None:
        """The pace was `before` and is another: begin what is left of the computing anew."""
        spent_ps: i64 = now - self.from_ps[stream]
        done_ps: i64 = 0
        if before > 0:
            done_ps = spent_ps * 1000 // before
        if done_ps > self.piece_ps[stream]:
            done_ps = self.piece_ps[stream]
        self._count(stream, spent_ps, done_ps)
        self._note_computed(host, stream, now)
        self.turns[stream] = self.turns[stream] % (TURNS - 1) + 1
        self._compute(host, stream, self.piece_ps[stream] - done_ps + self.left_ps[stream], now)

    def _count(self, stream: i64, spent_ps: i64, work_ps: i64) -> None:
        """A stream has computed for so long what takes `work_ps` at full pace."""
        if stream == 0:
            self.compute_ps += spent_ps
        self.computed_ps += spent_ps
        self.computed_work_ps += work_ps

    def _note_computed(self, host: Host, stream: i64, now: i64) -> None:
        events = host.events
        if events is not None:
            events.note(COMPUTED, self.number, stream, 0, 0, self.from_ps[stream], now)

    def _take_streams(self, streams: list[list[tuple[int, int, int]]]) -> None:
        """Those of another membership."""
        self.streams = streams
        self.lines = vec[Line]([Line(stream) for stream in streams])
        self.computes = any(line.computes for line in self.lines)
        self.stuck = vec[i64]([0] * len(streams))

    def computes_on(self) -> i64:
        if self.computes:
            return self.gpu_port
        return -1

    def computed(self) -> i64:
        share = self.share
        if share is None:
            return self.computed_ps
        return share.computed_ps

    def computed_work(self) -> i64:
        share = self.share
        if share is None:
            return self.computed_work_ps
        return share.computed_work_ps

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
        self._note_computed(host, stream, now)
        self.busy[stream] = False
        self.places[stream] += 1
        self._look(host, now)
        return True

    def _go_at(self, host: Host, share: Share, stream: i64, now: i64) -> None:
        """Set the timer of a stream that computes: for its end, or a piece before."""
        left_ps: i64 = share.left_ps(stream)
        if left_ps > PIECE_PS:
            left_ps = PIECE_PS
        turn: i64 = share.turn(stream)
        if share.factor == 0:
            return
        subject: i64 = len(self.streams) * (turn + 1) + self.beyond + stream + 1
        host.set_timer(self.number, now + left_ps, subject)

    def _reshare(self, host: Host, share: Share, now: i64) -> None:
        """Calls began or ended: go on computing with the SMs that are left."""
        if share.change(now):
            stream: i64 = 0
            while stream < len(self.streams):
                if share.from_ps[stream] >= 0:
                    self._go_at(host, share, stream, now)
                stream += 1

    def _stir(self, host: Host, now: i64) -> None:
        """SMs changed hands: let the other ranks on the GPU look."""
        share = self.share
        if share is not None:
            share.gpu.stir(host, now)

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

    # ---- calls

    def _is_over(self, host: Host, stream: i64, group: i64, call: i64, now: i64) -> bool:
        """Whether a stream's call was copied; it begins when the stream has come to it, and SMs are free."""
        group += self.first
        share = self.share
        first: i64 = 0
        last: i64 = self.counts[group]
        if self.ringed[group][call]:
            last = self.rings[group]
        else:
            first = self.rings[group]
        start: i64 = self.starts[group]
        first += start
        last += start
        if not self.busy[stream] and not self._begin_call(host, stream, group, call, first, last, now):
            return False
        at: i64 = first
        while at < last:
            if not self.channels[at].copied_all():
                return False
            at += 1
        self.busy[stream] = False
        self.calling[group] = False
        self.held_by[group] = -1
        if share is not None:
            share.give_back(group)
        if stream == 0:
            self.waited_ps[self.group_reasons[group]] += now - self.asked_ps[group]
        self._copied(group, now)
        events = host.events
        if events is not None and not self.single:
            events.note(
                CALLED, self.number, group, call, self.calls[group][call][0], self.since_ps[group], now
            )
        label: i64 = self.labels[group][call]
        if label >= 0:
            self.called.append([self.job, self.rank, self.operation, label, self.since_ps[group], now])
        return True

    def _begin_call(
        self, host: Host, stream: i64, group: i64, call: i64, first: i64, last: i64, now: i64
    ) -> bool:
        """Begin a call that a stream has come to, on some channels; false if it has to wait."""
        share = self.share
        if not self.calling[group]:
            self.calling[group] = True
            self.asked_ps[group] = now
            op, size_bytes = self.calls[group][call]
            self.recorder.begin(group, op, size_bytes, now)
            self._look_after(host, group, now)
            if self.pair_ps > 0:
                self._connect(host, group, first, last, now)
        if self.ready_ps[group] >= 0:
            return False
        if share is not None and not self._take(host, share, group, now):
            return False
        self.busy[stream] = True
        self.since_ps[group] = now
        orders = self.orders
        if orders is not None:
            orders.begin(group)
        while first < last:
            self.channels[first].begin(host, call)
            first += 1
        return True

    def _connect(self, host: Host, group: i64, first: i64, last: i64, now: i64) -> None:
        """Make the queue pairs that a call is the first to use."""
        pairs: i64 = 0
        while first < last:
            pairs += self.channels[first].connect()
            first += 1
        if pairs == 0:
            return
        if self.connects_ps < now:
            self.connects_ps = now
        self.connects_ps += pairs * self.pair_ps
        self.made += pairs
        ready_ps: i64 = self.connects_ps + self.exchange_ps
        self.connecting_ps += ready_ps - now
        self.ready_ps[group] = ready_ps
        self._go_on_connecting(host, group, now)

    def _go_on_connecting(self, host: Host, group: i64, now: i64) -> None:
        """Set a group's timer for when its queue pairs are there, or a piece before."""
        at_ps: i64 = self.ready_ps[group]
        if at_ps > now + PIECE_PS:
            at_ps = now + PIECE_PS
        host.set_timer(self.number, at_ps, len(self.streams) + len(self.groups) + group + 1)

    def _on_connected(self, host: Host, group: i64, now: i64) -> bool:
        """The timer of a group that is connected on demand; whether it is done."""
        if self.ready_ps[group] < 0:
            return False  # the communicator was aborted
        host.progress += 1
        if self.ready_ps[group] > now:
            self._go_on_connecting(host, group, now)
            return False
        self.ready_ps[group] = -1
        self._look(host, now)
        return True

    def _take(self, host: Host, share: Share, group: i64, now: i64) -> bool:
        """Give a group's call its SMs; false if it has to wait, and whose collectives hold SMs of the GPU is
        noted, of several ranks the first.
        """
        if share.take(group, now):
            return True
        if self.held_by[group] < 0:
            holder: int = -1
            for number in share.gpu.programs:
                if holder < 0:
                    holder = host.programs[number].holding()
            self.held_by[group] = holder
        return False

    def holding(self) -> int:
        share = self.share
        if share is None or not share.resides():
            return -1
        return int(self.job * MEMBER + self.rank)

    def sm_rows(self) -> list[list[int]]:
        rows: list[list[int]] = []
        for group, holder in enumerate(list(self.held_by)):
            if holder >= 0:
                asked_ps, since_ps = self.asked_ps[group], self.since_ps[group]
                number = self.recorder.begun[group] - 1
                had_ps = since_ps if since_ps > asked_ps else -1
                place = self.recorder.groups[group]
                rows.append([int(self.job), int(self.rank), place, number, asked_ps, had_ps, holder])
        return rows

    def _copied(self, group: i64, now: i64) -> None:
        """A group's call was copied; it is over if nothing that it sent is on its way."""
        sent: i64 = 0
        at: i64 = self.starts[group]
        last: i64 = at + self.counts[group]
        while at < last:
            sent += self.channels[at].sent
            at += 1
        number: i64 = self.recorder.begun[group] - 1
        if self.freed[group] == sent:
            self.recorder.end(group, number, now)
        else:
            self.owing[group].append([number, self.asked_ps[group], now, sent])
            if self.owed[group] == NEVER_PS:
                self.owed[group] = sent

    def _look_after(self, host: Host, group: i64, since_ps: i64) -> None:
        """Look whether a call of the group that began then is over when it should be. One look is pending at
        a time, however many calls there are meanwhile.
        """
        if self.watchdog_ps > 0 and not self.watched[group]:
            self.watched[group] = True
            subject: i64 = len(self.streams) + group + 1
            host.set_timer(self.number, since_ps + self.watchdog_ps, subject)

    def _watch(self, host: Host, group: i64, now: i64) -> bool:
        """The watchdog: the call that was under way should be over; whether it is not."""
        self.watched[group] = False
        since_ps: i64 = self.asked_ps[group]
        owing = self.owing[group]
        if owing:
            since_ps = owing[0][_SINCE]
        elif not self.calling[group]:
            return False
        if since_ps + self.watchdog_ps > now:
            self._look_after(host, group, since_ps)
            return False
        start: i64 = self.starts[group]
        why, peer, port, pair = self.waiting(start, start + self.counts[group])
        self._fail(host, group, STATUS_TIMED_OUT, why, peer, port, pair, now)
        return True

    # ---- what is reported

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
            if self.pair_ps > 0:
                if stream < len(self.groups):
                    return self._on_connected(host, stream, now)
                stream -= len(self.groups)
            share = self.share
            turn: i64 = stream // streams
            stream %= streams
            if share is not None:
                return turn == share.turns[stream] and self._on_share(host, share, stream, now)
            return turn == self.turns[stream] and self._on_computed(host, stream, now)
        return self.turns[stream] == 0 and self._on_computed(host, stream, now)

    def _on_computed(self, host: Host, stream: i64, now: i64) -> bool:
        """The timer of a stream that computes; whether it is done."""
        host.progress += 1
        self._count(stream, now - self.from_ps[stream], self.piece_ps[stream])
        self._note_computed(host, stream, now)
        if self.left_ps[stream] > 0:  # a piece of a long computation, for the stall check
            self._compute(host, stream, self.left_ps[stream], now)
            return False
        self.busy[stream] = False
        self.places[stream] += 1
        self.stuck[stream] = 0
        self._look_on(host, 0, now)
        return True

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        role: i64 = context % ROLES
        if self.membership > 0:
            sends: bool = role == SEND_DATA or role == SEND_CONTROL
            place: i64 = context // ROLES
            if self._is_stale(self.sends[place].channel if sends else self.receives[place].channel):
                return
        if message.d == COMPLETED_SEND:
            if message.e != STATUS_SUCCESS:
                self._on_error(host, context, message, now)
            elif role == SEND_DATA:
                self._on_acknowledged(host, self.sends[context // ROLES], message, now)
            else:
                assert role == RECEIVE_CONTROL, (self.job, self.rank, role)
        elif role == RECEIVE_DATA:
            receive = self.receives[context // ROLES]
            data = message.data
            if data is not None:
                receive.receiver.keep(message.b, message.a, data)
            if receive.on_arrived(message.b):
                channel = self.channels[receive.channel]
                channel.on_ready(host, receive)
                if channel.in_line and channel.copied_all():
                    self._look(host, now)
        else:
            assert role == SEND_CONTROL, (self.job, self.rank, role)
            self.sends[context // ROLES].on_granted(host, message.b, now)

    def _on_acknowledged(self, host: Host, send: SendEnd, message: Message, now: i64) -> None:
        freed: i64 = send.on_acknowledged(host, message.b, message.c)
        if freed == 0:
            return
        channel = self.channels[send.channel]
        group: i64 = self.group_of[send.channel]
        self.freed[group] += freed
        channel.on_room(host, send)
        if channel.in_line and self.copying and channel.copied_all():
            self._look(host, now)
        if self.owed[group] > self.freed[group]:
            return
        owing = self.owing[group]
        while owing and owing[0][_MARK] <= self.freed[group]:
            self.recorder.end(group, owing[0][_NUMBER], owing[0][_END])
            owing.pop(0)
        self._note_owed(group)
        if not owing and not self.copying:
            self._look(host, now)

    def _note_owed(self, group: i64) -> None:
        """Keep what the first call of a group that is not over has to have acknowledged."""
        owing = self.owing[group]
        if owing:
            self.owed[group] = owing[0][_MARK]
        else:
            self.owed[group] = NEVER_PS

    def copies(self, channel: i64) -> bool:
        return 0 <= channel < len(self.channels)

    def on_copied(self, host: Host, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        if self._is_stale(message.a):
            return
        channel = self.channels[message.a]
        channel.on_copied(host, message)
        if channel.copied_all():
            self._look_on(host, self.group_of[message.a] + 1, now)

    # ---- what goes wrong

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        if self.start_ps > now and self.operation < 0:
            return
        mine: bool = gpu_port < 0
        if mine:
            self.broken = True
        for channel in self.channels:
            if channel.gpu_port == gpu_port:
                mine = True
        if mine and self.status == STATUS_SUCCESS:
            self.status = status
            self.running = False
            if self.share is not None:
                self.share.leave()
            begun_ps: i64 = self.begun_ps if self.operation >= 0 else now
            host.report(self.job, PRESENT_OPERATION, self.rank, begun_ps, now, status)

    def waiting(self, first: i64, last: i64) -> tuple[i64, i64, i64, i64]:
        """What the channels from `first` to before `last` wait for first: what it is, the peer, the host's
        port and the queue pair.
        """
        for receive in self.receives:
            if not first <= receive.channel < last:
                continue
            if receive.ready < receive.expected:
                return WAITS_DATA, receive.peer, receive.nic_port, receive.control
        for send in self.sends:
            if not first <= send.channel < last:
                continue
            sender = send.sender
            if send.freed < send.posted:
                place: i64 = sender.waiting_place()
                return (
                    WAITS_ACKNOWLEDGEMENT,
                    send.peer,
                    sender.ports[place // sender.each],
                    sender.pairs[place],
                )
            if send.admitted and send.posted < send.filled and send.posted == send.granted:
                return WAITS_CTS, send.peer, sender.ports[0], send.control
        return WAITS_NOTHING, -1, -1, -1

    def _on_error(self, host: Host, context: i64, message: Message, now: i64) -> None:
        """A queue pair is in error."""
        if context % ROLES == SEND_DATA:
            send = self.sends[context // ROLES]
            place: i64 = message.b % len(send.sender.pairs)
            port: i64 = send.sender.ports[place // send.sender.each]
            group: i64 = self.group_of[send.channel]
            self._fail(host, group, message.e, FAILED, send.peer, port, message.a, now)
        else:
            receive = self.receives[context // ROLES]
            group = self.group_of[receive.channel]
            self._fail(host, group, message.e, FAILED, receive.peer, receive.nic_port, message.a, now)

    def _fail(
        self, host: Host, group: i64, status: i64, why: i64, peer: i64, port: i64, pair: i64, now: i64
    ) -> None:
        """The oldest call of a group that is not over cannot go on."""
        self.status = status
        qpn: i64 = self.qpns.get((port << 20) | pair, -1)
        number: i64 = self.recorder.begun[group] - 1
        if self.owing[group]:
            number = self.owing[group][0][_NUMBER]
        self.recorder.fail(group, number, status, why, peer, port, qpn, now)
        if self.share is not None:
            self.share.leave()
            self._stir(host, now)
        if self.running:
            self.running = False
            told: i64 = self._told(status)
            if self.blames and why == FAILED:
                told += (peer + 1) << BLAME_BITS
            host.report(self.job, self.operation, self.rank, self.begun_ps, now, told)

    def _told(self, status: i64) -> i64:
        """A status, with the membership where there are several."""
        if not self.blames:
            return status
        return status + (self.membership << MEMBERSHIP_BITS)

    # ---- what is left

    def count_library(self, total: Tally) -> bool:
        waits = self.waits
        totals = self.totals
        total.increase(0, waits.count)
        total.increase(1, waits.total_ps)
        total.increase(2, totals.held)
        total.increase(3, totals.deferred)
        total.increase(4, totals.direct)
        share = self.share
        if share is not None:
            total.increase(5, share.slower_ps)
            total.increase(6, share.waited_ps)
            total.increase(7, share.overtaken)
        total.reach(8, waits.most_ps)
        return True

    def diverted(self) -> i64:
        if self.chooses:
            return self.totals.diverted
        return -1

    def count_connects(self, total: Tally) -> bool:
        if self.pair_ps == 0:
            return False
        total.increase(0, self.made)
        total.increase(1, self.connecting_ps)
        return True

    def step_rows(self) -> list[list[int]]:
        return self.rows

    def call_rows(self) -> list[list[int]]:
        return self.called

    def cts_rows(self) -> list[list[int]]:
        """Rows for the table `cts_waits`."""
        return self.waits.rows(self.job, self.operation)

    def flight_rows(self) -> list[list[int]]:
        """Rows for the table `flights`."""
        return self.recorder.flight_rows(self.job, self.rank)

    def called_rows(self) -> list[list[int]]:
        """Rows for the table `called`."""
        return self.recorder.called_rows(self.job, self.rank)

    def payload_rows(self) -> list[list[int]]:
        return [] if self.orders is None else self.orders.rows()

    def failure_rows(self) -> list[list[int]]:
        """Rows for the table `failures`."""
        return [[self.job, self.rank, *row] for row in self.recorder.failures]

    def save(self) -> list[Plain]:
        channels: list[Plain] = [channel.save() for channel in self.channels]
        sends: list[Plain] = [send.save() for send in self.sends]
        receives: list[Plain] = [receive.save() for receive in self.receives]
        streams: list[Plain] = [
            list[Plain](one) for one in (self.places, self.busy, self.left_ps, self.recorded, self.waited_ps)
        ]
        streams += [list[Plain](one) for one in (self.piece_ps, self.from_ps, self.turns)]
        groups: list[Plain] = [
            list[Plain](one) for one in (self.calling, self.watched, self.asked_ps, self.since_ps, self.freed)
        ]
        groups.append(list[Plain](self.held_by))
        groups.append(list[Plain](self.ready_ps))
        owing: list[Plain] = [_save_rows(calls) for calls in self.owing]
        return [
            save_fields(self, _FIELDS),
            channels,
            sends,
            receives,
            streams,
            groups,
            owing,
            _save_rows(self.rows),
            _save_rows(self.called),
            self.waits.save(),
            self.recorder.save(),
            None if self.orders is None else self.orders.save(),
            None if self.share is None else self.share.save(),
        ]

    def load(self, state: list[Plain]) -> None:
        fields, channels, sends, receives, streams, groups, owing, rows, called = state[:9]
        waits, recorder, orders, share = state[9:]
        if self.share is not None:
            self.share.load(share)
        if self.orders is not None:
            self.orders.load(orders)
        load_fields(self, _FIELDS, fields)
        self.stuck = vec[i64]([0] * len(self.streams))
        if self.scripts:
            self._take_streams(self.scripts[self.membership])
        for channel, saved in zip(list(self.channels), as_list(channels), strict=True):
            channel.load(as_list(saved))
        for send, saved in zip(list(self.sends), as_list(sends), strict=True):
            send.load(saved)
        for receive, saved in zip(list(self.receives), as_list(receives), strict=True):
            receive.load(saved)
        self.totals = Totals()
        self._add_up()
        places, busy, left, recorded, waited, pieces, since_ps, turns = as_list(streams)
        self.piece_ps = [as_int(value) for value in as_list(pieces)]
        self.from_ps = [as_int(value) for value in as_list(since_ps)]
        self.turns = [as_int(value) for value in as_list(turns)]
        self.places = vec[i64]([as_int(value) for value in as_list(places)])
        self.busy = vec[bool]([as_int(value) == 1 for value in as_list(busy)])
        self.left_ps = [as_int(value) for value in as_list(left)]
        self.recorded = [as_int(value) == 1 for value in as_list(recorded)]
        self.waited_ps = vec[i64]([as_int(value) for value in as_list(waited)])
        calling, watched, asked, since, freed, held_by, ready = as_list(groups)
        self.ready_ps = vec[i64]([as_int(value) for value in as_list(ready)])
        self.held_by = vec[i64]([as_int(value) for value in as_list(held_by)])
        self.calling = vec[bool]([as_int(value) == 1 for value in as_list(calling)])
        self.watched = [as_int(value) == 1 for value in as_list(watched)]
        self.asked_ps = vec[i64]([as_int(value) for value in as_list(asked)])
        self.since_ps = vec[i64]([as_int(value) for value in as_list(since)])
        self.freed = vec[i64]([as_int(value) for value in as_list(freed)])
        self.owing = [_load_rows(calls) for calls in as_list(owing)]
        for group in range(len(self.owing)):
            self._note_owed(group)
        self.rows = _load_rows(rows)
        self.called = _load_rows(called)
        self.waits.load(waits)
        self.recorder.load(recorder)


def _save_rows(rows: list[list[int]]) -> Plain:
    found: list[Plain] = [list[Plain](row) for row in rows]
    return found


def _load_rows(state: Plain) -> list[list[int]]:
    return [[as_int(value) for value in as_list(row)] for row in as_list(state)]
