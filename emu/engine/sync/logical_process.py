"""The logical process: what a worker does in a round, whatever carries its sync messages.

A logical process joins a partition with its side of the window protocol: it opens a round with what the last
window sent, takes sync messages until the round is complete, delivers the packets, acts at a sync point, and
runs its window in slices. Who owns it moves the bodies of frames: sockets in a worker, a seeded shuffle in
one process. Nothing here waits.

A slice is at most about `SLICE_S` of work, because compiled code neither sees a signal nor lets another
thread run. Where a slice ends is invisible to the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from actors.kernel.device import Device
from actors.kernel.event import NEVER_PS
from actors.kernel.kernel import Idle
from actors.kernel.watch import Watch
from actors.nic.nic import Nic
from actors.switch.switch import Switch
from emu.base.errors import ProtocolError
from emu.counts.collected import NO_ROWS, DeviceRecord
from emu.devices.captures import captured_by
from emu.devices.recorders import recorded_by
from emu.engine.device_inspection import shown_by
from emu.engine.outcome import Ending
from emu.engine.sync.garbage import Growth
from emu.engine.sync.partition import Partition
from emu.engine.sync.rounds import Contribution, SyncMessage, decode_sync_message, encode_sync_message
from emu.engine.sync.sync_points import SyncPoint
from emu.engine.sync.window import WindowMachine

SLICE_S: Final = 0.010
LEAST_BUDGET: Final = 64
MOST_BUDGET: Final = 1 << 20
"""Events of a slice, least and most: halved after one over `SLICE_S`, doubled after one under half."""

Sends = list[tuple[int, bytes]]
"""Bodies of frames, and which worker each is for."""


def _nobody(at_ps: int) -> int:
    raise AssertionError(at_ps)


class LogicalProcess:
    """One partition in the window protocol. `act` is called at each sync point, before anything after it.

    `busiest` says which of those that a fault may hit at a time has sent most here
    (`emu.engine.live.changes`).
    """

    def __init__(
        self,
        partition: Partition,
        machine: WindowMachine,
        act: Callable[[SyncPoint], None],
        busiest: Callable[[int], int] = _nobody,
    ) -> None:
        self.partition = partition
        self.machine = machine
        self.act = act
        self.ending: Ending | None = None
        self.virtual_ps = 0
        """Where the run ended."""
        self.pause_ps: int = NEVER_PS
        """The run is to stand still then: everything before is executed, and nothing at or after it."""
        self.watch: Watch | None = None
        """Over devices that a program outside listens to."""
        self.stands = False
        """Whether it stands still, there or behind what a watched device said, until somebody goes on."""
        self._busiest = busiest
        self._until_ps = 0
        self._budget = LEAST_BUDGET * 16
        self._may_leave = False
        self._growth = Growth()

    @property
    def complete(self) -> bool:
        """Whether the open round can be closed."""
        return self.machine.complete

    def open(self) -> Sends:
        """Begin a round: what to send to whom."""
        partition = self.partition
        next_ps = partition.next_time_ps()
        sent_ps = partition.sent_ps()
        batches = partition.take_batches()
        mine = Contribution(next_ps, sent_ps, partition.stop_ps(), reached_ps=self._until_ps)
        mine.pause_ps = self.pause_ps
        watch = self.watch
        if watch is not None:
            mine.acts_ps = watch.next_ps(self._until_ps)
            if self.machine.hears_after_ps < NEVER_PS:
                mine.pause_ps = min(mine.pause_ps, watch.take_said_ps() + 1)
        if self.machine.wants_totals(next_ps):
            mine.progress = partition.progress()
            mine.work, mine.promises = partition.outlook()
            mine.work += sum(batch is not None for batch in batches)
        if self.machine.wants_measure(next_ps):
            mine.busiest = self._busiest(self.machine.next_measure_ps)
        return _encoded(self.machine.open(mine, batches))

    def take(self, peer: int, body: bytes) -> Sends:
        """The body of a frame arrived from `peer`: what to send on. Raises ProtocolError, or PeerLeft."""
        return _encoded(self.machine.take(peer, decode_sync_message(body)))

    def close(self) -> Ending | None:
        """End a complete round: deliver, act, and be ready to run; or the run's ending."""
        step = self.machine.close()
        for peer, batch in step.batches:
            try:
                self.partition.deliver(batch, self._until_ps)
            except ProtocolError as error:
                raise ProtocolError(f"from worker {peer}: {error}") from None
        self.stands = False
        if step.sync is not None:
            self.partition.reach(step.sync.time_ps)
            self.act(step.sync)
            stepped = min(self.pause_ps, self.machine.hears_after_ps) < NEVER_PS
            self.stands = stepped and step.sync.requested
        if step.ending is not None:
            self.partition.reach(max(step.virtual_ps, self.partition.now_ps()))
            self.ending = step.ending
            self.virtual_ps = step.virtual_ps
        else:
            self._until_ps = step.until_ps
            self._may_leave = step.may_leave
        return step.ending

    def run_slice(self) -> bool:
        """Execute the next slice of the window. Returns whether the window is done."""
        budget = self._budget
        begin_s = time.perf_counter()
        done = self.partition.run(self._until_ps, budget, self._may_leave)
        if done < budget:
            if self.partition.kernel.left:
                self.cut_window()
            return True
        took_s = time.perf_counter() - begin_s
        if took_s > SLICE_S:
            self._budget = max(budget // 2, LEAST_BUDGET)
        elif took_s < SLICE_S / 2:
            self._budget = min(budget * 2, MOST_BUDGET)
        self._growth.look()
        return False

    def cut_window(self) -> None:
        """End the window soon after a slice's end, where all blocks can stand at one time: what is left of it
        belongs to the next one."""
        self._until_ps = self.partition.cut_ps()

    def resume_at(self, sync_ps: int) -> None:
        """Nothing before this sync point is to be executed: its state was loaded."""
        self._until_ps = sync_ps


def records_of(partition: Partition) -> list[DeviceRecord]:
    """What every device of a partition leaves behind, in device order."""
    records = [_record(device, partition.miscabled) for device in partition.built]
    sleepers = partition.kernel.sleepers
    if sleepers is not None:
        records += [_idle_record(number, sleepers.idle(number)) for number in partition.kernel.asleep()]
        records.sort(key=number_of)
    return records


def _record(device: Device, cables: bool) -> DeviceRecord:
    """What a device leaves behind; with whom its cables lead to, if they may be swapped."""
    mixes = tuple(device.all_mixes())
    watched = _is_watched(device)
    return DeviceRecord(
        number=device.number,
        mixes=mixes,
        executed=device.executed,
        frames_received=device.frames_received(),
        data_frames_received=device.data_frames_received(),
        series=device.series(),
        counters=tuple(device.counters()),
        end_states=tuple(device.end_states()),
        results=device.results(),
        shown=shown_by(device, cables=cables),
        captured=captured_by(device) if watched else (),
        recorded=recorded_by(device) if watched else NO_ROWS,
        idle=not any(mixes),
    )


def _is_watched(device: Device) -> bool:
    """Whether a device has recorders or captures."""
    if device.events is not None:
        return True
    if isinstance(device, Switch):
        return any(len(port.taps) > 0 for port in device.ports)
    return isinstance(device, Nic) and any(len(port.taps) > 0 for port in device.ports())


def _idle_record(number: int, idle: Idle) -> DeviceRecord:
    """What a device leaves behind that sleeps."""
    return DeviceRecord(
        number=number,
        mixes=(),
        executed=0,
        frames_received=0,
        data_frames_received=0,
        series=idle.series,
        counters=idle.counters,
        end_states=idle.end_states,
        results=idle.results,
        idle=True,
    )


def number_of(record: DeviceRecord) -> int:
    """What records are ordered by."""
    return record.number


def _encoded(sends: list[tuple[int, SyncMessage]]) -> Sends:
    return [(peer, encode_sync_message(sync_message)) for peer, sync_message in sends]
