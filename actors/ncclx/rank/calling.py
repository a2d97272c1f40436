"""How the calls of a rank begin and end.

A call that its stream has come to first waits for its queue pairs and its launch
(`actors.ncclx.rank.connecting`), then, where channels take SMs, for those (`actors.ncclx.rank.sm_share`),
then until its first byte moves. It gives its SMs back when it was copied, and is over when all is
acknowledged (`actors.ncclx.rank.group_calls`).
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import as_list
from actors.kernel.vectors import append, vec
from actors.ncclx.gpu_orders import Orders
from actors.ncclx.rank.call_watchdog import Watchdog
from actors.ncclx.rank.connecting import Connecting
from actors.ncclx.rank.ends import Ends
from actors.ncclx.rank.flight_records import Recorder
from actors.ncclx.rank.group_calls import Call, GroupCalls
from actors.ncclx.rank.sm_share import Share


class Calling:
    """The calls of one rank, by group."""

    def __init__(
        self,
        groups: list[GroupCalls],
        ends: Ends,
        connecting: Connecting,
        share: Share | None,
        watchdog: Watchdog,
        recorder: Recorder,
        orders: Orders | None,
    ) -> None:
        self.groups: vec[GroupCalls] = vec[GroupCalls](groups)
        self.ends: Ends = ends
        self.connecting: Connecting = connecting
        self.share: Share | None = share
        """Share of the SMs; None where channels take none."""
        self.watchdog: Watchdog = watchdog
        self.recorder: Recorder = recorder
        self.orders: Orders | None = orders
        """Where payload is real: what the channels order of the GPU."""
        self.polled: i64 = 0
        """Connections over NICs that the calls under way use."""

    def add(self, group: GroupCalls) -> None:
        """The next group."""
        self.groups = append(self.groups, group)

    def begin(self, host: Host, number: i64, at: i64, now: i64) -> bool:
        """Begin a call of a group that a stream has come to; false if it has to wait."""
        group = self.groups[number]
        call = group.present
        if call is None:
            op, size_bytes = group.announced[at]
            call = group.present = Call(self.recorder.begin(number, op, size_bytes, now), now)
            self.watchdog.watch(host, number, group, now)
            self.connecting.ask(host, number, group, call, at, self.ends.channels)
        if call.ready_ps >= 0:
            return False
        if not call.due:
            share = self.share
            if share is not None and not share.take(number, now):
                if call.held_by < 0:
                    call.held_by = share.gpu.holder(host)
                return False
            call.since_ps = now
            if group.late_ps[at] > 0:
                call.due = True
                self.connecting.wait(host, number, call, now + group.late_ps[at], now)
                return False
        call.due = False
        orders = self.orders
        if orders is not None:
            orders.begin(number)
        channels = self.ends.channels
        place: i64 = group.first_channel(at)
        end: i64 = group.end_channel(at)
        while place < end:
            channels[place].begin(host, at)
            if host.proxy.poll_ps > 0:
                call.polled += channels[place].polled()
            place += 1
        self.polled += call.polled
        return True

    def is_copied(self, number: i64, at: i64) -> bool:
        """Whether the GPU has done the last copy of every channel of a call."""
        group = self.groups[number]
        channels = self.ends.channels
        place: i64 = group.first_channel(at)
        end: i64 = group.end_channel(at)
        while place < end:
            if not channels[place].copied_all():
                return False
            place += 1
        return True

    def end(self, number: i64, now: i64) -> Call:
        """The present call of a group was copied: give back its SMs. It is over when all is acknowledged."""
        group = self.groups[number]
        call = group.present
        assert call is not None, number
        share = self.share
        if share is not None:
            share.give_back(number)
        call.end_ps = now
        self.polled -= call.polled
        call.polled = 0
        channels = self.ends.channels
        place: i64 = group.start
        end: i64 = place + group.count
        while place < end:
            call.sent += channels[place].sent
            place += 1
        group.note_copied(self.recorder, number, call)
        return call

    def over(self) -> bool:
        """Whether all calls that were copied are over."""
        return all(not group.copied for group in self.groups)

    def abort(self) -> None:
        """Forget what is in flight."""
        for group in self.groups:
            group.abort()
        self.polled = 0

    def fail(self, number: i64, status: i64, why: i64, peer: i64, port: i64, qpn: i64, now: i64) -> None:
        """The oldest call of a group that is not over cannot go on: note it, and give back the SMs."""
        call = self.groups[number].oldest()
        last: i64 = self.recorder.begun[number] - 1 if call is None else call.number
        self.recorder.fail(number, last, status, why, peer, port, qpn, now)
        if self.share is not None:
            self.share.leave()

    def sm_rows(self, job: int, rank: int) -> list[list[int]]:
        """Rows for the table `sm_waits`."""
        rows: list[list[int]] = []
        for group, number in zip(list(self.groups), self.recorder.groups, strict=True):
            call = group.present
            if call is not None and call.held_by >= 0:
                asked_ps, since_ps = int(call.asked_ps), int(call.since_ps)
                had_ps = since_ps if since_ps > asked_ps else -1
                rows.append([job, rank, number, int(call.number), asked_ps, had_ps, int(call.held_by)])
        return rows

    def save(self) -> Plain:
        """State for a snapshot; the ends' is their own."""
        groups: list[Plain] = [group.save() for group in self.groups]
        found: list[Plain] = [
            groups,
            self.connecting.save(),
            None if self.share is None else self.share.save(),
            self.recorder.save(),
            None if self.orders is None else self.orders.save(),
        ]
        return found

    def load(self, state: Plain) -> None:
        """Take up a saved state."""
        groups, connecting, share, recorder, orders = as_list(state)
        self.polled = 0
        for group, saved in zip(list(self.groups), as_list(groups), strict=True):
            group.load(saved)
            call = group.present
            if call is not None:
                self.polled += call.polled
        self.connecting.load(connecting)
        if self.share is not None:
            self.share.load(share)
        self.recorder.load(recorder)
        if self.orders is not None:
            self.orders.load(orders)
