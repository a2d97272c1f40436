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
others then do is the controller's business. Where the job may go on without a rank, the others begin the
operation again in another membership (`actors.ncclx.rank.memberships`).

A rank that is absent begins no operation.

Here is what the host calls. Which instruction comes next is `actors.ncclx.rank.streams`', computing
`actors.ncclx.rank.computing`'s; how a call begins and ends is `actors.ncclx.rank.calling`'s.

A call over no bytes, or among one rank, ends the moment it begins. A rank that is to begin on a GPU that is
gone reports that at once.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host, Program
from actors.kernel.device import Plain, Tally
from actors.kernel.event import Message
from actors.kernel.event_log import CALLED, OPERATED
from actors.kernel.state import load_fields, save_fields
from actors.ncclx.protocols import SIMPLE
from actors.ncclx.rank.calling import Calling
from actors.ncclx.rank.computing import Computing
from actors.ncclx.rank.ends import Ends
from actors.ncclx.rank.flight_records import FAILED
from actors.ncclx.rank.group_calls import GroupCalls
from actors.ncclx.rank.memberships import Memberships
from actors.ncclx.rank.results import Results
from actors.ncclx.rank.sm_share import MEMBER, Share
from actors.ncclx.rank.streams import ANYTHING, CALL, COMPUTE, COMPUTING, NOTHING, Stream, Streams
from actors.ncclx.rank.timer_subjects import CONNECTED, LATER, WATCHED, Timers
from actors.ncclx.transport.clear_to_send import (
    RECEIVE_CONTROL,
    RECEIVE_DATA,
    ROLES,
    SEND_CONTROL,
    SEND_DATA,
    SendEnd,
)
from actors.wire.fault import GPU_GONE
from actors.wire.message import (
    BLAME_BITS,
    COMPLETED_SEND,
    PRESENT_OPERATION,
    STATUS_ALIVE,
    STATUS_FLUSHED,
    STATUS_GPU_LOST,
    STATUS_SUCCESS,
    STATUS_TIMED_OUT,
)

_FIELDS: Final = (
    "operation",
    "running",
    "copying",
    "begun_ps",
    "end_ps",
    "status",
    "halted",
)


class ScriptProgram(Program):
    """One rank with a script."""

    def __init__(
        self, job: int, start_ps: int, rank: int, absent: bool, computing: Computing, calling: Calling
    ) -> None:
        super().__init__(job, start_ps)
        self.rank: i64 = rank
        self.name: i64 = rank
        """What an open job calls the rank, which has another number in its communicator."""
        self.absent: bool = absent
        """Whether it never joins: its process hangs, or was never started."""
        self.streams: Streams = computing.streams
        self.timers: Timers = computing.timers
        self.computing: Computing = computing
        self.calling: Calling = calling
        self.ends: Ends = calling.ends
        self.share: Share | None = calling.share
        """Share of the SMs; None where channels take none."""
        self.members: Memberships = Memberships(len(calling.groups))
        self.results: Results = Results()
        self.operation: i64 = -1
        self.running: bool = False
        """Whether it is at work on the operation, or waits for what it sent to be acknowledged."""
        self.copying: bool = False
        """Whether a stream has not come to its end in this operation."""
        self.begun_ps: i64 = 0
        self.end_ps: i64 = 0
        self.status: i64 = STATUS_SUCCESS
        self.halted: bool = False
        """Whether the process was ended."""

    def settle(self) -> None:
        """Give timers, channels and ends the number that the host gave to this program."""
        self.timers.program = self.number
        self.ends.settle(self.number)

    # ---- an open job

    def open(self, room: int, now: int) -> None:
        """Go on for ever, with what is asked for from now on; there may be so many groups."""
        self.streams.grows = True
        self.timers.groups = room
        self.timers.connects = True
        self.operation = 0
        self.running = True
        self.copying = True
        self.begun_ps = now

    def join(self, number: int, group: GroupCalls) -> None:
        """Take part in one more group, whose channels are the last."""
        place = len(self.calling.groups)
        assert self.streams.grows and place < self.timers.groups, (self.rank, place)
        self.calling.add(group)
        self.calling.recorder.join(number)
        self.members.last = place + 1
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
                label = self.calling.groups[stream.a()].labels[label]
            host.tell(label, self.name, now, self.status)
            stream.over()

    # ---- an operation

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        if self.status != STATUS_SUCCESS or self.absent or self.members.first < 0:
            return
        gpu_port: i64 = self.computing.gpu_port
        if len(host.fault_states) > 0 and host.fault_state(int(GPU_GONE), gpu_port) is not None:
            self.on_lost(host, gpu_port, STATUS_GPU_LOST, now)
            return
        assert not self.running, (self.job, self.rank, self.operation, operation)
        if self.streams.single or self.operation != operation or not self.members.again:
            self.begun_ps = now
        self.members.again = False
        self.operation = operation
        self.running = True
        self.copying = True
        self.streams.begin(operation)
        self.computing.begin_operation()
        self._look(host, now)

    def on_members(self, host: Host, membership: i64, now: i64) -> bool:
        members = self.members
        if membership == members.present or not members.spans:
            return members.first >= 0
        was: i64 = members.first
        until: i64 = members.last
        if not members.become(membership):
            return False
        self.status = STATUS_SUCCESS
        self.running = False
        self.copying = False
        self.streams.waiting_since_ps = -1
        self.computing.abort()
        self.streams.take(members.scripts[membership])
        self.calling.abort()
        members.reset(host, was, until)
        members.connect_again(host)
        return True

    def on_asked(self, host: Host, now: i64) -> None:
        if self.running and self.computing.factor > 0:
            reported: i64 = self.members.report(STATUS_ALIVE)
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
        self.members.reset(host, 0, len(self.members.spare))

    def trouble(self) -> i64:
        return STATUS_SUCCESS if self.halted else self.status

    # ---- streams

    def _look(self, host: Host, now: i64) -> None:
        """Let every stream go on as far as it can, and then, where SMs changed hands, the GPU's others."""
        self.streams.wake()
        self._go_through(host, now)
        self._stir(host, now)

    def _go_through(self, host: Host, now: i64) -> None:
        """Let every stream go on that may; is the operation over?"""
        streams = self.streams
        if self.copying:
            share = self.share
            again: bool = True
            while again:
                streams.moved = False
                for stream in streams.each:
                    if stream.waits_for == ANYTHING:
                        self._go_on(host, stream, now)
                again = streams.moved
                if share is not None and share.settle():
                    again = True
            if share is not None:
                self.computing.change(host, now)
            if not streams.done():
                return
            self._end_copying(host, now)
        if not self.running or not self.calling.over():
            return
        self.running = False
        self.ends.waits.close(self.job, self.operation)
        host.step_done(self.number)
        reported: i64 = self.members.report(STATUS_SUCCESS)
        host.report(self.job, self.operation, self.rank, self.begun_ps, self.end_ps, reported)

    def _end_copying(self, host: Host, now: i64) -> None:
        """All streams are at their end: the operation's end that counts."""
        self.copying = False
        self.end_ps = now
        events = host.events
        if events is not None:
            events.note(OPERATED, self.number, self.operation, 0, 0, self.begun_ps, now)
        if not self.streams.single:
            row: list[int] = [
                self.job,
                self.rank,
                self.operation,
                self.begun_ps,
                now,
                self.computing.step_ps(),
                *self.streams.waited_ps,
            ]
            self.results.note_step(row, self.members.present > 0)

    def _go_on(self, host: Host, stream: Stream, now: i64) -> None:
        """Let a stream go on, and begin what it comes to, until it has to wait."""
        while True:
            due: i64 = self.streams.step(stream, now)
            if due == NOTHING:
                return
            if due == COMPUTE:
                if not stream.busy:
                    stream.busy = True
                    self.computing.begin(host, stream, stream.a(), now)
                stream.waits_for = COMPUTING
                return
            group: i64 = self.members.first + stream.a()
            at: i64 = stream.b()
            if not stream.busy:
                if not self.calling.begin(host, group, at, now):
                    return
                stream.busy = True
            if not self.calling.is_copied(group, at):
                stream.waits_for = group + 1
                return
            self._end_call(host, stream, group, at, now)
            stream.over()

    def _end_call(self, host: Host, stream: Stream, number: i64, at: i64, now: i64) -> None:
        """A stream's call was copied: end it, and note what it took."""
        group = self.calling.groups[number]
        call = self.calling.end(number, now)
        if stream.number == 0:
            self.streams.waited_ps[group.reason] += now - call.asked_ps
        events = host.events
        if events is not None and not self.streams.single:
            events.note(CALLED, self.number, number, at, group.announced[at][0], call.since_ps, now)
        label: i64 = group.labels[at]
        if label >= 0:
            self.results.calls.append([self.job, self.rank, self.operation, label, call.since_ps, now])
            if self.streams.grows:
                host.tell(label, self.name, call.since_ps, STATUS_SUCCESS)

    # ---- timers

    def on_timer(self, host: Host, subject: i64, now: i64) -> bool:
        if self.status != STATUS_SUCCESS:
            return False
        kind, number = self.timers.parts(subject)
        if kind == WATCHED:
            return self._watch(host, number, now)
        if kind == CONNECTED:
            if not self.calling.connecting.on_timer(host, number, self.calling.groups[number].present, now):
                return False
            self._look(host, now)
            return True
        turn: i64 = 0
        if kind >= LATER:
            turn = kind - LATER
        stream = self.streams.each[number]
        if not self.computing.on_timer(host, stream, turn, now):
            return False
        if self.streams.grows:
            host.tell(stream.b(), self.name, stream.from_ps, STATUS_SUCCESS)
        stream.over()
        if self.share is None:
            stream.waits_for = ANYTHING
            self._go_through(host, now)
        else:
            self._look(host, now)
        return True

    def _watch(self, host: Host, number: i64, now: i64) -> bool:
        """The watchdog looks at a group; whether it gives a call up."""
        group = self.calling.groups[number]
        if not self.calling.watchdog.on_timer(host, number, group, now):
            return False
        why, peer, port, pair = self.ends.waiting(group.start, group.start + group.count)
        self._fail(host, number, STATUS_TIMED_OUT, why, peer, port, pair, now, -1)
        return True

    # ---- the proxy

    def polled(self) -> i64:
        return self.calling.polled

    def sees_data(self, context: i64) -> bool:
        if context % ROLES != RECEIVE_DATA:
            return False
        ends = self.ends
        return ends.channels[ends.receives[context // ROLES].channel].protocol != SIMPLE

    # ---- computing and SMs

    def on_paced(self, host: Host, gpu_port: i64, factor: i64, now: i64) -> None:
        if gpu_port == self.computing.gpu_port:
            self.computing.pace(host, factor, now)

    def computes_on(self) -> i64:
        if self.streams.computes:
            return self.computing.gpu_port
        return -1

    def computed(self) -> i64:
        return self.computing.computed()

    def computed_work(self) -> i64:
        return self.computing.computed_work()

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

    def holding(self) -> int:
        share = self.share
        if share is None or not share.resides():
            return -1
        return int(self.job * MEMBER + self.rank)

    # ---- what NICs and GPU report

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        ends = self.ends
        role: i64 = context % ROLES
        if self.members.present > 0 and self._is_stale(ends.channel_of(context)):
            return
        if message.d == COMPLETED_SEND:
            if message.e != STATUS_SUCCESS:
                peer, port = ends.failed(context, message.b)
                group: i64 = ends.group_of[ends.channel_of(context)]
                blamed: i64 = self.rank if message.f == 1 else peer
                self._fail(host, group, message.e, FAILED, peer, port, message.a, now, blamed)
            elif role == SEND_DATA:
                self._on_acknowledged(host, ends.sends[context // ROLES], message, now)
            else:
                assert role == RECEIVE_CONTROL, (self.job, self.rank, role)
        elif role == RECEIVE_DATA:
            receive = ends.receives[context // ROLES]
            data = message.data
            if data is not None:
                receive.receiver.keep(message.b, message.a, data)
            if receive.on_arrived(message.b):
                channel = ends.channels[receive.channel]
                channel.on_ready(host, receive)
                if channel.in_line and channel.copied_all():
                    self._look(host, now)
        else:
            assert role == SEND_CONTROL, (self.job, self.rank, role)
            ends.sends[context // ROLES].on_granted(host, message.b, now)

    def _on_acknowledged(self, host: Host, send: SendEnd, message: Message, now: i64) -> None:
        freed: i64 = send.on_acknowledged(host, message.b, message.c)
        if freed == 0:
            return
        ends = self.ends
        channel = ends.channels[send.channel]
        number: i64 = ends.group_of[send.channel]
        group = self.calling.groups[number]
        group.freed += freed
        channel.on_room(host, send)
        if channel.in_line and self.copying and channel.copied_all():
            self._look(host, now)
        if group.freed < group.next_over:
            return
        if group.note_freed(self.calling.recorder, number) and not self.copying:
            self._look(host, now)

    def copies(self, channel: i64) -> bool:
        return 0 <= channel < len(self.ends.channels)

    def on_copied(self, host: Host, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS or (self.members.present > 0 and self._is_stale(message.a)):
            return
        channel = self.ends.channels[message.a]
        channel.on_copied(host, message)
        if channel.copied_all():
            self.streams.wake_for(self.ends.group_of[message.a] + 1)
            self._go_through(host, now)
            self._stir(host, now)

    def _is_stale(self, channel: i64) -> bool:
        """Whether a channel is one of a communicator that was aborted."""
        members = self.members
        group: i64 = self.ends.group_of[channel]
        return not members.first <= group < members.last

    # ---- what goes wrong

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        if self.start_ps > now and self.operation < 0:
            return
        mine: bool = gpu_port < 0
        if mine:
            self.members.broken = True
        for channel in self.ends.channels:
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

    def _fail(
        self,
        host: Host,
        group: i64,
        status: i64,
        why: i64,
        peer: i64,
        port: i64,
        pair: i64,
        now: i64,
        blamed: i64,
    ) -> None:
        """The oldest call of a group that is not over cannot go on; -1: no rank is to blame."""
        self.status = status
        qpn: i64 = self.members.qpn(port, pair)
        self.calling.fail(group, status, why, peer, port, qpn, now)
        self._stir(host, now)
        if self.streams.grows:
            self.running = False
            self._give_up(host, now)
        if self.running:
            self.running = False
            reported: i64 = self.members.report(status)
            if self.members.blames and blamed >= 0:
                reported += (blamed + 1) << BLAME_BITS
            host.report(self.job, self.operation, self.rank, self.begun_ps, now, reported)

    # ---- what is left

    def count_library(self, total: Tally) -> bool:
        self.ends.count(total)
        if self.share is not None:
            self.share.count(total)
        return True

    def diverted(self) -> i64:
        if self.ends.chooses:
            return self.ends.totals.diverted
        return -1

    def count_connects(self, total: Tally) -> bool:
        return self.calling.connecting.count(total)

    def sm_rows(self) -> list[list[int]]:
        return self.calling.sm_rows(self.job, self.rank)

    def add_results(self, tables: dict[str, list[list[int]]]) -> None:
        calling = self.calling
        recorder = calling.recorder
        tables["cts_waits"] += self.ends.waits.rows(self.job, self.operation)
        tables["flights"] += recorder.flight_rows(self.job, self.rank)
        tables["called"] += recorder.called_rows(self.job, self.rank)
        tables["failures"] += recorder.failure_rows(self.job, self.rank)
        tables["steps"] += self.results.steps
        tables["calls"] += self.results.calls
        tables["sm_waits"] += self.sm_rows()
        if calling.orders is not None:
            tables["payload"] += calling.orders.rows()

    def save(self) -> list[Plain]:
        return [
            save_fields(self, _FIELDS),
            self.computing.save(),
            self.members.save(),
            self.streams.save(),
            self.ends.save(),
            self.calling.save(),
            self.results.save(),
        ]

    def load(self, state: list[Plain]) -> None:
        fields, computing, members, streams, ends, calling, results = state
        load_fields(self, _FIELDS, fields)
        self.computing.load(computing)
        self.members.load(members)
        if self.members.scripts:
            self.streams.take(self.members.scripts[self.members.present])
        self.streams.load(streams)
        self.ends.load(ends)
        self.ends.settle(self.number)
        self.calling.load(calling)
        self.results.load(results)
