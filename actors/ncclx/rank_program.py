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

With `launch_ps` above 0 every call begins that much after its stream came to it: the launch of its kernel.

Not modelled: cost of an abort; rounds of 128 peers in which NCCL connects; what a NIC does with
packets for a queue pair that is not ready.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host, Program
from actors.kernel.device import Plain, Tally
from actors.kernel.event import Message
from actors.kernel.event_log import CALLED, OPERATED
from actors.kernel.event_log import COMPUTED as COMPUTED_EVENT
from actors.kernel.state import as_int, as_list, load_fields, save_fields
from actors.kernel.vectors import append, vec
from actors.ncclx.flight_records import (
    FAILED,
    WAITS_ACKNOWLEDGEMENT,
    WAITS_CTS,
    WAITS_DATA,
    WAITS_NOTHING,
    Recorder,
)
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.group_calls import NOT_WAITED, Calls
from actors.ncclx.sm_share import MEMBER, TURNS, Share
from actors.ncclx.streams import ANYTHING, CALL, COMPUTE, COMPUTING, NOTHING, Stream, Streams
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

PIECE_PS: Final[i64] = 1_000_000_000
"""1 ms, so that a look for a stall sees computing go on."""
PAIR_GONE: Final = 0
"""The state RESET of `actors.nic.queue_pair.queue_pair`: nothing is sent, and what comes is dropped."""

_FIELDS: Final = (
    "operation",
    "running",
    "copying",
    "begun_ps",
    "end_ps",
    "status",
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

# Kinds of timers, in the order in which those of one instant are executed.
COMPUTED: Final[i64] = 0
"""A stream's computing is over. Where its pace changed the timer is another one: `LATER` and its turn."""
WATCHED: Final[i64] = 1
"""A look at a group's oldest call (`watchdog_ps`)."""
CONNECTED: Final[i64] = 2
"""A group's call may go on: queue pairs are there, its first byte moves, or a piece of that is over."""
LATER: Final[i64] = 3
"""Like `COMPUTED`, of a stream's later turns: one kind for each."""


class ScriptProgram(Program):
    """One rank with a script: its channels, and the ends of all their connections.

    `streams` are its streams, and `groups` what it keeps of each group's calls, whose channels are in
    `channels` one group behind the other.
    """

    def __init__(  # noqa: PLR0915  a line for each field
        self,
        job: int,
        start_ps: int,
        rank: int,
        gpu_port: int,
        channels: list[Channel],
        sends: list[SendEnd],
        receives: list[ReceiveEnd],
        waits: Waits,
        groups: list[Calls],
        streams: Streams,
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
        self.streams: Streams = streams
        self.groups: vec[Calls] = vec[Calls](groups)
        self.channels: vec[Channel] = vec[Channel](channels)
        self.sends: vec[SendEnd] = vec[SendEnd](sends)
        self.receives: vec[ReceiveEnd] = vec[ReceiveEnd](receives)
        self.group_of: vec[i64] = vec[i64](
            [number for number, group in enumerate(groups) for _ in range(int(group.count))]
        )
        """The group of each channel."""
        self.waits: Waits = waits
        """Waits of the clear-to-sends that came to its ends."""
        self.recorder: Recorder = recorder
        self.share: Share | None = share
        """Share of the SMs; None where channels take none."""
        self.orders: Orders | None = orders
        """Where payload is real: what its channels tell the GPU."""
        self.watchdog_ps: i64 = watchdog_ps
        """How long a call may take before it is given up; 0 for ever."""
        self.totals: Totals = Totals()
        self.chooses: bool = any(send.sender.policy == LEAST_LOADED for send in sends)
        # The operation.
        self.operation: i64 = -1
        self.running: bool = False
        self.copying: bool = False
        """Whether a stream has not come to its end in this operation."""
        self.begun_ps: i64 = 0
        self.end_ps: i64 = 0
        self.status: i64 = STATUS_SUCCESS
        # Computing.
        self.factor: i64 = 1000
        """Thousandths of its time that computing takes; 0 while it stands still."""
        self.compute_ps: i64 = 0
        """How long stream 0 computed in this operation."""
        self.computed_ps: i64 = 0
        """How long all streams have computed, in all steps."""
        self.computed_work_ps: i64 = 0
        """How long that takes where the GPU is not slow."""
        # Queue pairs that are made at their first use.
        self.room: i64 = len(groups)
        """Groups for which there are timers: as many as there are, and may come."""
        self.launch_ps: i64 = 0
        """From when a stream comes to a call until the call begins."""
        self.late: bool = any(late_ps > 0 for group in groups for late_ps in group.late_ps)
        """Whether calls come whose first byte moves later."""
        self.pair_ps: i64 = 0
        """What it takes to make a queue pair; 0: all are there."""
        self.exchange_ps: i64 = 0
        """What it takes to exchange their numbers."""
        self.connects_ps: i64 = 0
        """Until when it makes queue pairs."""
        self.made: i64 = 0
        """Queue pairs made on demand."""
        self.connecting_ps: i64 = 0
        """How long calls waited for them."""
        # Memberships: a job that goes on without a rank begins again on a communicator of the others.
        self.qpns: dict[int, int] = {}
        """Numbers of its queue pairs by (host's port << 20) | index."""
        self.psns: dict[int, tuple[int, int]] = {}
        """By the same key, of a rank whose job has several memberships: the PSN with which it begins, and the
        one that it expects first."""
        self.spare: list[list[tuple[int, int]]] = []
        """Spare queue pairs of a rank whose job has several memberships: by group, port and index of each. A
        rank whose process may be ended has all of its queue pairs here."""
        self.spans: list[tuple[int, int]] = []
        """By membership the rank's groups, first and behind the last; both -1 where it takes no part."""
        self.scripts: list[list[list[tuple[int, int, int]]]] = []
        """By membership its streams."""
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
        self.name: i64 = rank
        """What an open job calls the rank, which has another number in its communicator."""
        # Results.
        self.rows: list[list[int]] = []
        """A row for each step: job, rank, step, begin, end, computing, and waiting by reason."""
        self.called: list[list[int]] = []
        """A row for each labelled call that ended: job, rank, step, label, begun_ps, end_ps."""

    def connect_on_demand(self, pair_ps: int, exchange_ps: int) -> None:
        """Make queue pairs at their first use."""
        self.pair_ps = pair_ps
        self.exchange_ps = exchange_ps

    # ---- an open job

    def open(self, room: int, now: int) -> None:
        """Go on for ever, with what is asked for from now on; there may be so many groups."""
        self.streams.grows = True
        self.room = room
        self.operation = 0
        self.running = True
        self.copying = True
        self.begun_ps = now

    def join(
        self,
        number: int,
        calls: Calls,
        channels: list[Channel],
        sends: list[SendEnd],
        receives: list[ReceiveEnd],
    ) -> None:
        """Take part in one more group, with these channels and ends, behind those that there are."""
        place = len(self.groups)
        assert self.streams.grows and place < self.room, (self.rank, place)
        self.groups = append(self.groups, calls)
        for channel in channels:
            self.channels = append(self.channels, channel)
            self.group_of = append(self.group_of, place)
        for send in sends:
            self.sends = append(self.sends, send)
        for receive in receives:
            self.receives = append(self.receives, receive)
        self.recorder.join(number)
        self.last = len(self.groups)
        self.totals = Totals()
        self.settle()

    def on_ask(self, host: Host, post: list[int], now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            host.tell(post[1], self.name, now, self.status)
            return
        line = self.streams.each[0].line
        if post[2] < 0:  # to compute for so long; else a call of a group
            line.grow(COMPUTE, post[3], post[1])
        else:
            line.grow(CALL, post[2], post[3])
        self._look(host, now)

    def _give_up(self, host: Host, now: i64) -> None:
        """Tell of everything that was asked for and is not over that it failed."""
        stream = self.streams.each[0]
        while stream.place < stream.line.count:
            label: i64 = stream.b()
            if stream.line.code[3 * stream.place] == CALL:
                label = self.groups[stream.a()].labels[label]
            host.tell(label, self.name, now, self.status)
            stream.over()

    def _computed(self, host: Host, stream: Stream) -> None:
        """A stream has done its computing."""
        if self.streams.grows:
            host.tell(stream.b(), self.name, stream.from_ps, STATUS_SUCCESS)
        stream.over()

    # ---- timers: a kind, and the number of a stream or group, as one subject

    def _first_subject(self, kind: i64) -> i64:
        """The subject of a kind's timer for stream or group 0; those of the others follow it.

        Subjects lie close together, and in the order of the kinds, because they are part of the digest and of
        the order of events.
        """
        streams: i64 = len(self.streams.each)
        groups: i64 = self.room
        if kind == COMPUTED:
            return 1
        if kind == WATCHED:
            return 1 + streams
        if kind == CONNECTED:
            return 1 + streams + groups
        first: i64 = 1 + streams + groups
        if self.pair_ps > 0 or self.launch_ps > 0 or self.late or self.streams.grows:
            first += groups
        return first + (kind - LATER) * streams

    def _set_timer(self, host: Host, at_ps: i64, kind: i64, number: i64) -> None:
        """Set the timer of a kind for a stream or group."""
        host.set_timer(self.number, at_ps, self._first_subject(kind) + number)

    def on_timer(self, host: Host, subject: i64, now: i64) -> bool:
        if self.status != STATUS_SUCCESS:
            return False
        later: i64 = subject - self._first_subject(LATER)
        if later < 0 and subject >= self._first_subject(CONNECTED):
            return self._on_connected(host, subject - self._first_subject(CONNECTED), now)
        if later < 0 and subject >= self._first_subject(WATCHED):
            return self._watch(host, subject - self._first_subject(WATCHED), now)
        turn: i64 = 0
        number: i64 = subject - 1
        if later >= 0:
            turn = later // len(self.streams.each)
            number = later % len(self.streams.each)
        share = self.share
        if share is not None:
            return turn == share.turns[number] and self._on_share(host, share, number, now)
        return turn == self.streams.each[number].turn and self._on_computed(host, number, now)

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
        if len(host.fault_states) > 0 and host.fault_state(int(GPU_GONE), self.gpu_port) is not None:
            self.on_lost(host, self.gpu_port, STATUS_GPU_LOST, now)
            return
        assert not self.running, (self.job, self.rank, self.operation, operation)
        if self.streams.single or self.operation != operation or not self.again:
            self.begun_ps = now
        self.again = False
        self.operation = operation
        self.running = True
        self.copying = True
        self.streams.begin(operation)
        self.compute_ps = 0
        if self.share is not None:
            self.share.first_ps = 0
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
        streams = self.streams
        streams.waiting_since_ps = -1
        for stream in streams.each:
            if streams.computing(stream):  # its timer means nothing from now on
                stream.turn = stream.turn % (TURNS - 1) + 1
            stream.busy = False
            stream.left_ps = 0
        streams.take(self.scripts[membership])
        for group in self.groups:
            group.abort()
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
            reported: i64 = self._status_report(STATUS_ALIVE)
            host.report(self.job, PRESENT_OPERATION, self.rank, self.begun_ps, now, reported)

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
        self.streams.wake()
        self._go_through(host, now)
        self._stir(host, now)

    def _look_for(self, host: Host, happened: i64, now: i64) -> None:
        """Let those streams go on that wait for this, where nothing else has happened."""
        self.streams.wake_for(happened)
        self._go_through(host, now)
        self._stir(host, now)

    def _go_through(self, host: Host, now: i64) -> None:
        """Let every stream go on; is the operation over?"""
        streams = self.streams
        if self.copying:
            share = self.share
            again: bool = True
            while again:
                streams.moved = False
                number: i64 = 0
                while number < len(streams.each):
                    if streams.each[number].waits_for == ANYTHING:
                        self._go_on(host, number, now)
                    number += 1
                again = streams.moved
                if share is not None and share.settle():
                    again = True
            if share is not None:
                self._reshare(host, share, now)
            if not streams.done():
                return
            self.copying = False
            self.end_ps = now
            events = host.events
            if events is not None:
                events.note(OPERATED, self.number, self.operation, 0, 0, self.begun_ps, now)
            if not streams.single:
                self._note_step(now)
        if not self.running:
            return
        for group in self.groups:
            if group.copied:
                return
        self.running = False
        self.waits.close(self.job, self.operation)
        host.step_done(self.number)
        reported: i64 = self._status_report(STATUS_SUCCESS)
        host.report(self.job, self.operation, self.rank, self.begun_ps, self.end_ps, reported)

    def _note_step(self, now: i64) -> None:
        """The row of a step that is over."""
        if self.rows and self.rows[0][2] == self.operation:  # the job began again
            self.rows.pop(0)
        if self.membership > 0 and self.rows and self.rows[-1][2] == self.operation:  # or the step did
            self.rows.pop()
        row: list[int] = [self.job, self.rank, self.operation, self.begun_ps, now, self._computed_ps()]
        self.rows.append(row + list(self.streams.waited_ps))

    def _go_on(self, host: Host, number: i64, now: i64) -> None:
        """Let a stream go on, and begin what it comes to, until it has to wait."""
        streams = self.streams
        stream = streams.each[number]
        while True:
            due: i64 = streams.step(number, now)
            if due == NOTHING:
                return
            if due == COMPUTE:
                if not stream.busy:
                    stream.busy = True
                    self._compute(host, number, stream.a(), now)
                stream.waits_for = COMPUTING
                return
            group: i64 = self.first + stream.a()
            call: i64 = stream.b()
            if not stream.busy:
                if not self._begin_call(host, group, call, now):
                    return
                stream.busy = True
            if not self._is_copied(group, call):
                stream.waits_for = group + 1
                return
            self._end_call(host, number, group, call, now)
            stream.over()

    # ---- computing

    def _compute(self, host: Host, number: i64, duration_ps: i64, now: i64) -> None:
        stream = self.streams.each[number]
        share = self.share
        stream.from_ps = now
        if share is not None:
            share.begin(number, duration_ps, now)
            self._go_at(host, share, number, now)
            return
        factor: i64 = self.factor
        piece: i64 = duration_ps
        most: i64 = PIECE_PS
        if factor > 1000:
            most = PIECE_PS * 1000 // factor
        if piece > most:
            piece = most
        stream.left_ps = duration_ps - piece
        stream.piece_ps = piece
        if factor == 0:
            return
        takes_ps: i64 = piece if factor == 1000 else (piece * factor + 999) // 1000
        kind: i64 = COMPUTED
        if stream.turn > 0:
            kind = LATER + stream.turn
        self._set_timer(host, now + takes_ps, kind, number)

    def on_paced(self, host: Host, gpu_port: i64, factor: i64, now: i64) -> None:
        if gpu_port != self.gpu_port:
            return
        before: i64 = self.factor
        self.factor = factor
        share = self.share
        if share is not None:
            share.pace(factor, now)
        streams = self.streams
        number: i64 = 0
        while number < len(streams.each):
            if share is None:
                if streams.computing(streams.each[number]):
                    self._begin_anew(host, number, before, now)
            elif share.from_ps[number] >= 0:
                self._go_at(host, share, number, now)
            number += 1

    def _begin_anew(self, host: Host, number: i64, before: i64, now: i64) -> None:
        """The pace was `before` and is another: begin what is left of the computing anew."""
        stream = self.streams.each[number]
        spent_ps: i64 = now - stream.from_ps
        done_ps: i64 = 0
        if before > 0:
            done_ps = spent_ps * 1000 // before
        if done_ps > stream.piece_ps:
            done_ps = stream.piece_ps
        self._count(number, spent_ps, done_ps)
        self._note_computed(host, number, now)
        stream.turn = stream.turn % (TURNS - 1) + 1
        self._compute(host, number, stream.piece_ps - done_ps + stream.left_ps, now)

    def _count(self, stream: i64, spent_ps: i64, work_ps: i64) -> None:
        """A stream has computed for so long what takes `work_ps` at full pace."""
        if stream == 0:
            self.compute_ps += spent_ps
        self.computed_ps += spent_ps
        self.computed_work_ps += work_ps

    def _note_computed(self, host: Host, stream: i64, now: i64) -> None:
        events = host.events
        if events is not None:
            events.note(COMPUTED_EVENT, self.number, stream, 0, 0, self.streams.each[stream].from_ps, now)

    def computes_on(self) -> i64:
        if self.streams.computes:
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
        self._computed(host, self.streams.each[stream])
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
        self._set_timer(host, now + left_ps, LATER + turn, stream)

    def _reshare(self, host: Host, share: Share, now: i64) -> None:
        """Calls began or ended: go on computing with the SMs that are left."""
        if share.change(now):
            stream: i64 = 0
            while stream < len(self.streams.each):
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

    def _begin_call(self, host: Host, number: i64, call: i64, now: i64) -> bool:
        """Begin a call that a stream has come to; false if it waits for queue pairs or SMs."""
        share = self.share
        group = self.groups[number]
        if not group.asked:
            group.asked = True
            group.asked_ps = now
            op, size_bytes = group.announced[call]
            self.recorder.begin(number, op, size_bytes, now)
            self._look_after(host, number, now)
            if self.pair_ps > 0:
                self._connect(host, number, call, now)
            if self.launch_ps > 0 and group.ready_ps < now + self.launch_ps:
                group.ready_ps = now + self.launch_ps
                self._wait_until_ready(host, number, now)
        if group.ready_ps >= 0:
            return False
        if not group.due:
            if share is not None and not self._take(host, share, number, now):
                return False
            group.since_ps = now
            if group.late_ps[call] > 0:
                group.due = True
                group.ready_ps = now + group.late_ps[call]
                self._wait_until_ready(host, number, now)
                return False
        group.due = False
        orders = self.orders
        if orders is not None:
            orders.begin(number)
        at: i64 = group.first_channel(call)
        end: i64 = group.end_channel(call)
        while at < end:
            self.channels[at].begin(host, call)
            at += 1
        return True

    def _is_copied(self, number: i64, call: i64) -> bool:
        """Whether the GPU has done the last copy of every channel of a call."""
        group = self.groups[number]
        at: i64 = group.first_channel(call)
        end: i64 = group.end_channel(call)
        while at < end:
            if not self.channels[at].copied_all():
                return False
            at += 1
        return True

    def _end_call(self, host: Host, stream: i64, number: i64, call: i64, now: i64) -> None:
        """A stream's call was copied: give back its SMs and note it. It is over when all is acknowledged."""
        group = self.groups[number]
        share = self.share
        group.asked = False
        group.held_by = NOT_WAITED
        if share is not None:
            share.give_back(number)
        if stream == 0:
            self.streams.waited_ps[group.reason] += now - group.asked_ps
        sent: i64 = 0
        at: i64 = group.start
        end: i64 = at + group.count
        while at < end:
            sent += self.channels[at].sent
            at += 1
        group.note_copied(self.recorder, number, sent, now)
        events = host.events
        if events is not None and not self.streams.single:
            events.note(CALLED, self.number, number, call, group.announced[call][0], group.since_ps, now)
        label: i64 = group.labels[call]
        if label >= 0:
            self.called.append([self.job, self.rank, self.operation, label, group.since_ps, now])
            if self.streams.grows:
                host.tell(label, self.name, group.since_ps, STATUS_SUCCESS)

    def _connect(self, host: Host, number: i64, call: i64, now: i64) -> None:
        """Make the queue pairs that a call is the first to use."""
        group = self.groups[number]
        pairs: i64 = 0
        at: i64 = group.first_channel(call)
        end: i64 = group.end_channel(call)
        while at < end:
            pairs += self.channels[at].connect()
            at += 1
        if pairs == 0:
            return
        if self.connects_ps < now:
            self.connects_ps = now
        self.connects_ps += pairs * self.pair_ps
        self.made += pairs
        ready_ps: i64 = self.connects_ps + self.exchange_ps
        self.connecting_ps += ready_ps - now
        group.ready_ps = ready_ps
        self._wait_until_ready(host, number, now)

    def _wait_until_ready(self, host: Host, group: i64, now: i64) -> None:
        """Set a group's timer for when its call may go on, or a piece before."""
        at_ps: i64 = self.groups[group].ready_ps
        if at_ps > now + PIECE_PS:
            at_ps = now + PIECE_PS
        self._set_timer(host, at_ps, CONNECTED, group)

    def _on_connected(self, host: Host, number: i64, now: i64) -> bool:
        """The timer of a group whose call waits for queue pairs or for its first byte; whether it is done."""
        group = self.groups[number]
        if group.ready_ps < 0:
            return False  # the communicator was aborted
        host.progress += 1
        if group.ready_ps > now:
            self._wait_until_ready(host, number, now)
            return False
        group.ready_ps = NOT_WAITED
        self._look(host, now)
        return True

    def _take(self, host: Host, share: Share, group: i64, now: i64) -> bool:
        """Give a group's call its SMs; false if it has to wait, and whose collectives hold SMs of the GPU is
        noted, of several ranks the first.
        """
        if share.take(group, now):
            return True
        if self.groups[group].held_by < 0:
            holder: int = -1
            for number in share.gpu.programs:
                if holder < 0:
                    holder = host.programs[number].holding()
            self.groups[group].held_by = holder
        return False

    def holding(self) -> int:
        share = self.share
        if share is None or not share.resides():
            return -1
        return int(self.job * MEMBER + self.rank)

    def sm_rows(self) -> list[list[int]]:
        rows: list[list[int]] = []
        for place, group in enumerate(list(self.groups)):
            if group.held_by >= 0:
                asked_ps, since_ps = int(group.asked_ps), int(group.since_ps)
                number = self.recorder.begun[place] - 1
                had_ps = since_ps if since_ps > asked_ps else -1
                whole = self.recorder.groups[place]
                holder = int(group.held_by)
                rows.append([int(self.job), int(self.rank), whole, number, asked_ps, had_ps, holder])
        return rows

    def _look_after(self, host: Host, group: i64, since_ps: i64) -> None:
        """Look whether a call of the group that began then is over when it should be. One look is pending at
        a time, however many calls there are meanwhile.
        """
        if self.watchdog_ps > 0 and not self.groups[group].watched:
            self.groups[group].watched = True
            self._set_timer(host, since_ps + self.watchdog_ps, WATCHED, group)

    def _watch(self, host: Host, number: i64, now: i64) -> bool:
        """The watchdog: the call that was begun should be over; whether it is not."""
        group = self.groups[number]
        group.watched = False
        since_ps: i64 = group.asked_ps
        if group.copied:
            since_ps = group.copied[0].asked_ps
        elif not group.asked:
            return False
        if since_ps + self.watchdog_ps > now:
            self._look_after(host, number, since_ps)
            return False
        why, peer, port, pair = self.waiting(group.start, group.start + group.count)
        self._fail(host, number, STATUS_TIMED_OUT, why, peer, port, pair, now)
        return True

    # ---- what is reported

    def _on_computed(self, host: Host, number: i64, now: i64) -> bool:
        """The timer of a stream that computes; whether it is done."""
        stream = self.streams.each[number]
        host.progress += 1
        self._count(number, now - stream.from_ps, stream.piece_ps)
        self._note_computed(host, number, now)
        if stream.left_ps > 0:  # a piece of a long computation, for the stall check
            self._compute(host, number, stream.left_ps, now)
            return False
        self._computed(host, stream)
        stream.waits_for = ANYTHING
        self._look_for(host, ANYTHING, now)
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
        number: i64 = self.group_of[send.channel]
        group = self.groups[number]
        group.freed += freed
        channel.on_room(host, send)
        if channel.in_line and self.copying and channel.copied_all():
            self._look(host, now)
        if group.note_freed(self.recorder, number) and not group.copied and not self.copying:
            self._look(host, now)

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
            self._look_for(host, self.group_of[message.a] + 1, now)

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
            if self.streams.grows:
                self._give_up(host, now)
                return
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
        if self.groups[group].copied:
            number = self.groups[group].copied[0].number
        self.recorder.fail(group, number, status, why, peer, port, qpn, now)
        if self.share is not None:
            self.share.leave()
            self._stir(host, now)
        if self.streams.grows:
            self.running = False
            self._give_up(host, now)
        if self.running:
            self.running = False
            reported: i64 = self._status_report(status)
            if self.blames and why == FAILED:
                reported += (peer + 1) << BLAME_BITS
            host.report(self.job, self.operation, self.rank, self.begun_ps, now, reported)

    def _status_report(self, status: i64) -> i64:
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
        groups: list[Plain] = [group.save() for group in self.groups]
        return [
            save_fields(self, _FIELDS),
            channels,
            sends,
            receives,
            self.streams.save(),
            groups,
            _save_rows(self.rows),
            _save_rows(self.called),
            self.waits.save(),
            self.recorder.save(),
            None if self.orders is None else self.orders.save(),
            None if self.share is None else self.share.save(),
        ]

    def load(self, state: list[Plain]) -> None:
        fields, channels, sends, receives, streams, groups, rows, called = state[:8]
        waits, recorder, orders, share = state[8:]
        if self.share is not None:
            self.share.load(share)
        if self.orders is not None:
            self.orders.load(orders)
        load_fields(self, _FIELDS, fields)
        if self.scripts:
            self.streams.take(self.scripts[self.membership])
        for channel, saved in zip(list(self.channels), as_list(channels), strict=True):
            channel.load(as_list(saved))
        for send, saved in zip(list(self.sends), as_list(sends), strict=True):
            send.load(saved)
        for receive, saved in zip(list(self.receives), as_list(receives), strict=True):
            receive.load(saved)
        self.totals = Totals()
        self._add_up()
        self.streams.load(streams)
        for group, saved in zip(list(self.groups), as_list(groups), strict=True):
            group.load(saved)
        self.rows = _load_rows(rows)
        self.called = _load_rows(called)
        self.waits.load(waits)
        self.recorder.load(recorder)


def _save_rows(rows: list[list[int]]) -> Plain:
    found: list[Plain] = [list[Plain](row) for row in rows]
    return found


def _load_rows(state: Plain) -> list[list[int]]:
    return [[as_int(value) for value in as_list(row)] for row in as_list(state)]
