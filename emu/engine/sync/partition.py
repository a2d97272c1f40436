"""A partition: the devices of one worker, and what can be done with them from outside.

A partition is a kernel with some of the run's devices, and an outbox towards every other partition. It
knows neither rounds nor sockets: it executes up to a time, hands out what crosses as batches, and takes
batches in. It runs once per window and, in `deliver`, once per packet that crosses, so it is compiled with
the packet path.

A snapshot of all partitions at one sync point is the state of the run: the devices by number, and every
pending event. Nothing is in flight at a sync point. Another number of partitions, elsewhere, takes from it
what it hosts and goes on.
"""

from __future__ import annotations

from typing import cast

from mypy_extensions import i64

from actors.kernel.block import Outbox
from actors.kernel.device import Device, Plain
from actors.kernel.event import (
    COPY_DONE,
    FIRST_UPKEEP,
    JOB,
    MESSAGE,
    NEVER_PS,
    PORT_MASK,
    PORT_SHIFT,
    SUBJECT_MASK,
    Message,
    describe_key,
    key_device,
    key_kind,
)
from actors.kernel.kernel import Kernel
from actors.kernel.state import as_int, as_list, load_event, save_event
from actors.wire.batch import Batch, BatchReader, encode_batch
from emu.base.errors import ProtocolError


class Partition:
    """The devices of one worker.

    `outboxes` has one entry for each partition of the run; its own is None, and so are those of partitions
    that no link leads to.
    """

    def __init__(
        self, index: int, kernel: Kernel, outboxes: list[Outbox | None], reader: BatchReader
    ) -> None:
        self.index = index
        self.kernel = kernel
        self.miscabled = True
        """Whether cables may not be where they were meant to be: devices are asked then who is at the other
        end of each."""
        self._outboxes = outboxes
        self._reader = reader
        # What leaves becomes what comes: one heap of used frames, the last on top.
        for outbox in outboxes:
            if outbox is not None:
                outbox.frames.spares = reader.spares
        for block in kernel.blocks:
            block.inbox.spares = reader.spares

    @property
    def devices(self) -> list[Device]:
        """All of its devices by number; those that sleep (`actors.kernel.kernel`) wake."""
        return self.kernel.hosted()

    @property
    def built(self) -> list[Device]:
        """Those that do not sleep."""
        return self.kernel.built()

    def start(self) -> None:
        """Let every device push its first events."""
        self.kernel.start()

    def run(self, until_ps: int, budget: int, may_leave: bool = False) -> int:
        """Execute events before `until_ps`, at most `budget`, and up to `cut_ps` where a short rest may be
        left; returns how many."""
        return self.kernel.run(until_ps, budget, may_leave)

    def next_time_ps(self) -> int:
        """The time of the next pending event; NEVER_PS if there is none."""
        return self.kernel.next_time_ps()

    def stop_ps(self) -> int:
        """The end of the run, if a device here has announced it; else NEVER_PS."""
        return self.kernel.stop_ps()

    def now_ps(self) -> int:
        """The time of the last event that was executed."""
        return self.kernel.now_ps()

    def cut_ps(self) -> int:
        """Up to where the window that is under way must be executed, if it is to end as soon as can be."""
        return self.kernel.cut_ps()

    def reach(self, time_ps: int) -> None:
        """Set the clock to a time before which nothing is pending.

        What a device tells of itself may be measured up to now (how long a port has been paused so far),
        and the last event that was executed here is not the last one elsewhere.
        """
        self.kernel.reach(time_ps)

    def sent_ps(self) -> list[int]:
        """The earliest arrival in each outbox; NEVER_PS where there is none."""
        return [NEVER_PS if outbox is None else outbox.least_ps for outbox in self._outboxes]

    def take_batches(self) -> list[Batch | None]:
        """What is in each outbox, encoded; the outboxes are empty then."""
        batches: list[Batch | None] = []
        for outbox in self._outboxes:
            if outbox is None or (outbox.frames.count == 0 and len(outbox.messages) == 0):
                batches.append(None)
            else:
                batches.append(encode_batch(outbox.frames, outbox.messages))
                outbox.clear()
        return batches

    def deliver(self, batch: Batch, since_ps: int) -> None:
        """Make the packets of a batch pending; none may be before `since_ps`. Raises ProtocolError."""
        reader = self._reader
        if batch.tails > 0:
            for event in reader.decode(batch, since_ps):
                if key_kind(event.key) == MESSAGE:
                    self._admit(cast(Message, event))
                self.kernel.push(event)
            return
        for message in reader.messages(batch, since_ps):
            if key_kind(message.key) == MESSAGE:
                self._admit(message)
            self.kernel.push(message)
        self.kernel.post(reader, batch, since_ps)

    def _admit(self, message: Message) -> None:
        key: i64 = message.key
        device = self.kernel.device(key_device(key))
        port: i64 = (key >> PORT_SHIFT) & PORT_MASK
        if not device.admits(message, port, key & SUBJECT_MASK):
            values = (message.a, message.b, message.c, message.d, message.e, message.f)
            raise ProtocolError(
                f"{describe_key(key)}: operation {message.op} with {values} names something that is not there"
            )

    def progress(self) -> int:
        """Payload bytes delivered and compute done so far, by all devices here."""
        total: i64 = 0
        for device in self.built:
            total += device.progress
        return total

    def outlook(self) -> tuple[int, int]:
        """How many pending events are work, not upkeep, and how many of these promise that something goes on.

        A job or flow that has yet to begin, and a copy that is under way, are such promises: while there is
        one, no progress is not a stall.
        """
        work: i64 = 0
        promises: i64 = 0
        for event in self.kernel.pending():
            kind: i64 = key_kind(event.key)
            if kind < FIRST_UPKEEP:
                work += 1
            if kind == JOB or kind == COPY_DONE:
                promises += 1
        return work, promises

    def save(self) -> list[Plain]:
        """The state of this partition at a sync point: [stop, now, [[number, state]...], [event...]]. A
        device that sleeps has none."""
        devices: list[Plain] = [[device.number, device.save()] for device in self.built]
        events: list[Plain] = [save_event(event) for event in self.kernel.pending()]
        return [self.stop_ps(), self.now_ps(), devices, events]

    def load(self, states: list[Plain]) -> None:
        """Take from what all partitions of a run saved at one sync point what is hosted here, before anything
        was executed: of a device that slept then nothing was saved, and it is as it was built."""
        kernel = self.kernel
        saved = [as_list(state) for state in states]
        kernel.stop_at(min([kernel.stop_ps(), *[as_int(state[0]) for state in saved]]))
        kernel.reach(max([kernel.now_ps(), *[as_int(state[1]) for state in saved]]))
        kernel.clear()
        for state in saved:
            for entry in as_list(state[2]):
                number, device_state = as_list(entry)
                if kernel.hosts(as_int(number)):
                    kernel.device(as_int(number)).load(as_list(device_state))
            for plain in as_list(state[3]):
                if kernel.hosts(key_device(as_int(as_list(plain)[2]))):
                    kernel.push(load_event(plain))
