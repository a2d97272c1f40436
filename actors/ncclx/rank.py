"""What does one rank of a communicator do from the beginning of an operation to its report?

It starts its channels, hands what NICs and GPU report to the channel concerned, and looks whether the
operation is over. Over has two parts: the *end* that counts is when the GPU has done its last copy, as a
CUDA event after the kernel would tell; the *report* leaves once every slice this rank sent is acknowledged
as well, so that an operation whose last WRITE fails is not called a success.

The first failed completion ends the rank: it reports at once with that status and does nothing more. What the
others then do is the controller's business.

An operation over no bytes, or among one rank, ends the moment it begins. Where channels take SMs it starts
when it has them (`actors.ncclx.share`), and its time includes the wait.

Not modelled: asynchronous operations on one communicator (the next begins after the report), abort and
re-init.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.host.program import Program
from actors.kernel.device import Plain
from actors.kernel.event import Message
from actors.kernel.state import as_list, load_fields, save_fields
from actors.ncclx.channel import Channel
from actors.ncclx.ends import (
    RECEIVE_CONTROL,
    RECEIVE_DATA,
    ROLES,
    SEND_CONTROL,
    SEND_DATA,
    ReceiveEnd,
    SendEnd,
)
from actors.ncclx.orders import Orders
from actors.ncclx.recorder import (
    FAILED,
    WAITS_ACKNOWLEDGEMENT,
    WAITS_CTS,
    WAITS_DATA,
    WAITS_NOTHING,
    Recorder,
)
from actors.ncclx.share import Share
from actors.ncclx.waits import Waits
from actors.wire.message import COMPLETED_SEND, PRESENT_OPERATION, STATUS_SUCCESS, STATUS_TIMED_OUT

_FIELDS: Final = ("operation", "running", "copying", "lacking", "begun_ps", "end_ps", "status")


class RankProgram(Program):
    """One rank of a collective job: its channels, and the ends of all their connections.

    For each channel there is a walker of rings and one of graphs, or of one kind none at all; `graphed` says
    which of them serve each operation of the job.
    """

    def __init__(
        self,
        job: int,
        start_ps: int,
        rank: int,
        rings: list[Channel],
        graphs: list[Channel],
        graphed: list[bool],
        sends: list[SendEnd],
        receives: list[ReceiveEnd],
        waits: Waits,
        recorder: Recorder,
        announced: list[tuple[int, int]],
        watchdog_ps: int,
        absent: bool,
        orders: Orders | None = None,
        share: Share | None = None,
    ) -> None:
        super().__init__(job, start_ps)
        self.rank: i64 = rank
        self.rings: list[Channel] = rings
        self.graphs: list[Channel] = graphs
        self.graphed: list[bool] = graphed
        self.channels: list[Channel] = rings or graphs
        """Those of the present operation."""
        self.sends: list[SendEnd] = sends
        self.receives: list[ReceiveEnd] = receives
        self.waits: Waits = waits
        """Of the clear-to-sends that came to its ends."""
        self.recorder: Recorder = recorder
        self.announced: list[tuple[int, int]] = announced
        """By operation of the job: what this rank calls (a place in `CALLS`), and with how many bytes."""
        self.watchdog_ps: i64 = watchdog_ps
        """How long an operation may take before it is given up; 0 for ever."""
        self.qpns: dict[int, int] = {}
        """Numbers of its queue pairs by (host's port << 20) | index."""
        self.orders: Orders | None = orders
        """Where payload is real: what its channels tell the GPU."""
        self.absent: bool = absent
        """Whether it never joins: its process hangs, or was never started."""
        self.share: Share | None = share
        """Of the SMs; None where channels take none."""
        self.operation: i64 = -1
        self.running: bool = False
        self.copying: bool = False
        """Whether the GPU has still to copy in this operation."""
        self.lacking: bool = False
        """Whether the operation waits for SMs."""
        self.begun_ps: i64 = 0
        self.end_ps: i64 = 0
        self.status: i64 = STATUS_SUCCESS

    def settle(self) -> None:
        """Tell channels and ends the number that the host gave to this program."""
        for channel in self.rings:
            channel.program = self.number
        for channel in self.graphs:
            channel.program = self.number
        for send in self.sends:
            send.program = self.number
        for receive in self.receives:
            receive.program = self.number

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        if self.absent:
            return
        assert not self.running, (self.job, self.rank, self.operation, operation)
        self.operation = operation
        op, size_bytes = self.announced[operation]
        self.recorder.begin(0, op, size_bytes, now)
        if self.watchdog_ps > 0:
            host.set_timer(self.number, now + self.watchdog_ps, operation + 1)
        self.running = True
        self.copying = True
        self.begun_ps = now
        self.channels = self.graphs if self.graphed[operation] else self.rings
        share = self.share
        if share is not None and not share.take(0, now):
            self.lacking = True
            return
        self._start(host, now)

    def _start(self, host: Host, now: i64) -> None:
        """The operation has its SMs."""
        orders = self.orders
        if orders is not None:
            orders.begin()
        for channel in self.channels:
            channel.begin(host, self.operation)
        self._look(host, now)
        self._stir(host, now)

    def _stir(self, host: Host, now: i64) -> None:
        """SMs changed hands: let the other ranks on the GPU look."""
        share = self.share
        if share is not None:
            share.gpu.stir(host, now)

    def stirred(self, host: Host, now: i64) -> bool:
        share = self.share
        if share is None or self.status != STATUS_SUCCESS or not share.settle():
            return False
        if not self.lacking or not share.take(0, now):
            return False
        self.lacking = False
        self._start(host, now)
        return True

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        role: i64 = context % ROLES
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
                if channel.zero_copy and channel.copied_all():
                    self._look(host, now)
        else:
            assert role == SEND_CONTROL, (self.job, self.rank, role)
            self.sends[context // ROLES].on_granted(host, message.b, now)

    def _on_acknowledged(self, host: Host, send: SendEnd, message: Message, now: i64) -> None:
        freed: i64 = send.on_acknowledged(host, message.b, message.c)
        if freed > 0:
            channel = self.channels[send.channel]
            channel.unacknowledged -= freed
            channel.on_room(host, send)
            if channel.zero_copy and self.copying and channel.copied_all():
                self._look(host, now)
        if not self.copying:
            self._look(host, now)

    def copies(self, channel: i64) -> bool:
        return 0 <= channel < len(self.channels)

    def on_copied(self, host: Host, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        channel = self.channels[message.a]
        channel.on_copied(host, message)
        if channel.copied_all():
            self._look(host, now)

    def on_lost(self, host: Host, gpu_port: i64, status: i64, now: i64) -> None:
        if self.start_ps > now:
            return
        mine: bool = gpu_port < 0
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

    def _look(self, host: Host, now: i64) -> None:
        """Is the operation over?"""
        if self.copying:
            if self.lacking:
                return
            for channel in self.channels:
                if not channel.copied_all():
                    return
            self.copying = False
            self.end_ps = now
            share = self.share
            if share is not None:
                share.give_back(0)
                self._stir(host, now)
        if not self.running:
            return
        for channel in self.channels:
            if not channel.drained():
                return
        self.running = False
        self.waits.close(self.job, self.operation)
        if self.announced:
            self.recorder.end(0, self.end_ps)
        host.report(self.job, self.operation, self.rank, self.begun_ps, self.end_ps, STATUS_SUCCESS)

    def on_timer(self, host: Host, subject: i64, now: i64) -> bool:
        """The watchdog: the operation should be over."""
        if not self.running or self.operation != subject - 1:
            return False
        why, peer, port, pair = self.waiting(0, len(self.channels))
        self._fail(host, 0, STATUS_TIMED_OUT, why, peer, port, pair, now)
        return True

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
            group = self._group_of(send.channel)
            self._fail(host, group, message.e, FAILED, send.peer, port, message.a, now)
        else:
            receive = self.receives[context // ROLES]
            group = self._group_of(receive.channel)
            self._fail(host, group, message.e, FAILED, receive.peer, receive.nic_port, message.a, now)

    def _group_of(self, channel: i64) -> i64:
        """The group, by its place in the recorder, whose channel it is."""
        return 0

    def _fail(
        self, host: Host, group: i64, status: i64, why: i64, peer: i64, port: i64, pair: i64, now: i64
    ) -> None:
        self.status = status
        qpn: i64 = self.qpns.get((port << 20) | pair, -1)
        self.recorder.fail(group, status, why, peer, port, qpn, now)
        if self.share is not None:
            self.share.leave()
            self._stir(host, now)
        if self.running:
            self.running = False
            host.report(self.job, self.operation, self.rank, self.begun_ps, now, status)

    def counters(self) -> list[int]:
        """Those of `actors.host.program.LIBRARY_SERIES`."""
        waits = self.waits
        held: i64 = 0
        deferred: i64 = 0
        for send in self.sends:
            held += send.sender.held
            deferred += send.sender.deferred
        direct: i64 = 0
        for channel in self.rings + self.graphs:
            direct += channel.direct
        share = self.share
        lost = [0, 0, 0] if share is None else share.counted()
        return [waits.count, waits.total_ps, held, deferred, direct, *lost, waits.most_ps]

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
        channels: list[Plain] = [channel.save() for channel in self.rings + self.graphs]
        sends: list[Plain] = [send.save() for send in self.sends]
        receives: list[Plain] = [receive.save() for receive in self.receives]
        return [
            save_fields(self, _FIELDS),
            channels,
            sends,
            receives,
            self.waits.save(),
            self.recorder.save(),
            None if self.orders is None else self.orders.save(),
            None if self.share is None else self.share.save(),
        ]

    def load(self, state: list[Plain]) -> None:
        fields, channels, sends, receives, waits, recorder, orders, share = state
        if self.share is not None:
            self.share.load(share)
        if self.orders is not None:
            self.orders.load(orders)
        load_fields(self, _FIELDS, fields)
        if self.operation >= 0:
            self.channels = self.graphs if self.graphed[self.operation] else self.rings
        for channel, saved in zip(self.rings + self.graphs, as_list(channels), strict=True):
            channel.load(as_list(saved))
        for send, saved in zip(self.sends, as_list(sends), strict=True):
            send.load(saved)
        for receive, saved in zip(self.receives, as_list(receives), strict=True):
            receive.load(saved)
        self.waits.load(waits)
        self.recorder.load(recorder)
