"""What does one rank of a communicator do from the beginning of an operation to its report?

It starts its channels, hands what NICs and GPU report to the channel concerned, and looks whether the
operation is over. Over has two parts: the *end* that counts is when the GPU has done its last copy, as a
CUDA event after the kernel would tell; the *report* leaves once every slice this rank sent is acknowledged
as well, so that an operation whose last WRITE fails is not called a success.

The first failed completion ends the rank: it reports at once with that status and does nothing more. What the
others then do is the controller's business.

An operation over no bytes, or among one rank, ends the moment it begins.

Not modelled: asynchronous operations on one communicator (the next begins after the report), abort and
re-init.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.host.program import Program
from actors.ncclx.channel import RECEIVE_CONTROL, RECEIVE_DATA, ROLES, SEND_CONTROL, SEND_DATA, Channel
from emu.kernel.device import Plain
from emu.kernel.state import as_int, as_list, load_fields, load_integers, save_fields, save_integers
from emu.wire.event import Message
from emu.wire.message import COMPLETED_SEND, STATUS_SUCCESS

_FIELDS: Final = ("operation", "running", "copying", "begun_ps", "end_ps", "status")


class RankProgram(Program):
    """One rank of a collective job. `operations` holds (operation code, bytes) of each operation of the
    job.
    """

    def __init__(
        self, job: int, start_ps: int, rank: int, channels: list[Channel], operations: list[tuple[int, int]]
    ) -> None:
        super().__init__(job, start_ps)
        self.rank: i64 = rank
        self.channels: list[Channel] = channels
        self.operations: list[tuple[int, int]] = operations
        self.operation: i64 = -1
        self.running: bool = False
        self.copying: bool = False
        """Whether the GPU has still to copy in this operation."""
        self.begun_ps: i64 = 0
        self.end_ps: i64 = 0
        self.status: i64 = STATUS_SUCCESS

    def on_begin(self, host: Host, operation: i64, now: i64) -> None:
        assert not self.running, (self.job, self.rank, self.operation, operation)
        op, size_bytes = self.operations[operation]
        self.operation = operation
        self.running = True
        self.copying = True
        self.begun_ps = now
        for channel in self.channels:
            channel.program = self.number
            channel.begin(host, op, size_bytes)
        self._look(host, now)

    def on_completion(self, host: Host, context: i64, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        channel = self.channels[context // ROLES]
        role: i64 = context % ROLES
        if message.d == COMPLETED_SEND:
            if message.e != STATUS_SUCCESS:
                self._fail(host, message.e, now)
            elif role == SEND_DATA:
                channel.on_acknowledged(host, message.b)
                if not self.copying:
                    self._look(host, now)
            else:
                assert role == RECEIVE_CONTROL, (self.job, self.rank, role)
        elif role == RECEIVE_DATA:
            channel.on_arrived(host, message.b)
        else:
            assert role == SEND_CONTROL, (self.job, self.rank, role)
            channel.on_granted(host)

    def on_copied(self, host: Host, message: Message, now: i64) -> None:
        if self.status != STATUS_SUCCESS:
            return
        channel = self.channels[message.a]
        channel.on_copied(host, message)
        if channel.copied_all():
            self._look(host, now)

    def _look(self, host: Host, now: i64) -> None:
        """Is the operation over?"""
        if self.copying:
            for channel in self.channels:
                if not channel.copied_all():
                    return
            self.copying = False
            self.end_ps = now
        if not self.running:
            return
        for channel in self.channels:
            if not channel.drained():
                return
        self.running = False
        host.report(self.job, self.operation, self.rank, self.begun_ps, self.end_ps, STATUS_SUCCESS)

    def _fail(self, host: Host, status: i64, now: i64) -> None:
        self.status = status
        if self.running:
            self.running = False
            host.report(self.job, self.operation, self.rank, self.begun_ps, now, status)

    def save(self) -> list[Plain]:
        channels: list[Plain] = [channel.save() for channel in self.channels]
        loads = self.channels[0].loads
        outstanding: Plain = None if loads is None else [save_integers(loads.outstanding), loads.last]
        return [save_fields(self, _FIELDS), channels, outstanding]

    def load(self, state: list[Plain]) -> None:
        fields, channels, outstanding = state
        load_fields(self, _FIELDS, fields)
        for channel, saved in zip(self.channels, as_list(channels), strict=True):
            channel.program = self.number
            channel.load(saved)
        loads = self.channels[0].loads
        if loads is not None:
            # Every rank of the job on this host brings the same.
            table, last = as_list(outstanding)
            loads.outstanding = load_integers(table)
            loads.last = as_int(last)
