"""The kernel: executes the events of a partition in order.

`run` takes events in order until a time or until a budget of events is used up, whichever comes first. The
budget is what makes slices: compiled code neither sees signals nor hands over the interpreter lock, so the
caller runs a few milliseconds' worth, looks after its sockets and signals, and calls again. An event that
takes as long as many says so (`EventQueue.extra`) and uses up as much. Where a slice ends is invisible to the
model.

A process with many devices runs them in *blocks* that fit the cache (`actors.kernel.block`). Within what
`run` is asked for, windows follow one another: each ends at the least, over blocks, of the next event + the
lookahead. In a window the blocks have their turns, in order; a frame for another block waits in its inbox. A
slice may end within a window, and the next one goes on there. Only between windows do all blocks stand at one
time, so only there can the caller cut what it asked for (`cut_ps`). When `run` returns with budget left,
everything before `until_ps` was executed; what waits in inboxes stays there for the next turn, or for whoever
asks what is pending. Where the caller does not mind, less is executed: a last window of less than half the
length would read all devices for few events. How devices are cut into blocks does not show in the answer,
because the order of events is by content.

A device may keep back when its ports send next (`Device.defer`). That is done before another event of the
device is, and before the frame arrives behind which it sends; where that is in another block or worker,
before the turn ends; and all that was due is, once `reach` says that all stand at one time.

The kernel mixes messages, pauses and faults into the digest before the device sees them, and a timer after
the device has said that it had an effect (`actors.kernel.mixing`). A device mixes a frame itself, first of
all: it turns to the port anyway, which keeps the mix.
"""

from __future__ import annotations

from typing import cast

from mypy_extensions import i64, mypyc_attr

from actors.kernel.block import Block
from actors.kernel.device import Device, Series
from actors.kernel.event import (
    ARRIVAL,
    DEVICE_SHIFT,
    FAULT,
    FIRST_UPKEEP,
    MESSAGE,
    NEVER_PS,
    PAUSE,
    PLACE_MASK,
    PORT_BITS,
    PORT_MASK,
    PORT_SHIFT,
    SUBJECT_MASK,
    TIMER_KINDS,
    Event,
    Message,
    describe_key,
    key_kind,
)
from actors.kernel.queue import SLOTS, EventQueue
from actors.kernel.readings import counted_from_zero
from actors.kernel.vectors import vec
from actors.kernel.watch import Watch
from actors.wire.batch import Batch, BatchReader
from actors.wire.fault import PORT_FAULTS
from actors.wire.frame import Frame
from actors.wire.frame_columns import Rows
from actors.wire.train import Train


class Idle:
    """What a device leaves behind to which nothing happened, as the results have it; the same for all of its
    kind."""

    def __init__(self, device: Device) -> None:
        self.series: tuple[Series, ...] = tuple(device.series())
        self.counters: tuple[int, ...] = tuple(device.counters())
        self.end_states: tuple[int, ...] = tuple(device.end_states())
        self.results: dict[str, list[list[int]]] = {name: [*rows] for name, rows in device.results().items()}
        self.first_reading: bytes = counted_from_zero(self.counters)
        """As `actors.kernel.readings` has it."""
        self.silent: bool = device.steady() and not any(device.all_mixes())
        """Whether its kind does nothing by itself."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Sleepers:
    """Devices of a kernel that are built when their first event comes, or somebody asks for them. Until then
    they do nothing, count nothing and tell nothing."""

    def build(self, number: int) -> Device:
        """One of them, as it would have been built before time began."""
        raise NotImplementedError

    def idle(self, number: int) -> Idle:
        """What one of them leaves behind that never wakes."""
        raise NotImplementedError


class Kernel:
    """The devices of one partition, in blocks, and the loop that runs them.

    A device that begins by doing nothing may sleep: it is hosted, and not built before its first event. So a
    large fabric costs what happens in it.
    """

    def __init__(self, device_count: int, blocks: int = 1, slots: int = int(SLOTS)) -> None:
        first = Block(slots)
        self.blocks: list[Block] = [first, *[Block(slots) for _ in range(1, blocks)]]
        if blocks > 1:
            for block in self.blocks:
                block.queue.share(first.queue)
        self._rows: list[Rows] = [block.inbox.rows for block in self.blocks]
        self.queue: EventQueue = first.queue
        """That of the first block: of all devices where there is one."""
        self.events: i64 = 0
        self._devices: vec[Device | None] = vec[Device | None]([None] * device_count)
        self._block_of: vec[i64] = vec[i64]([0] * device_count)
        self._sleeps: vec[i64] = vec[i64]([0] * device_count)
        self.sleepers: Sleepers | None = None
        """Builder of those that sleep; None where no device ever slept."""
        self.woken: list[int] = []
        """The devices that slept and were built since, in that order."""
        self._borders: list[list[Device]] = [[] for _ in range(blocks)]
        """By block, the devices that defer what they send to other blocks or workers."""
        self._turn: i64 = blocks
        """The block that is to run next; behind the last where no window is open."""
        self._end_ps: i64 = 0
        """The end of the open window between blocks, or of the last one."""
        self.left = False
        """Whether the last `run` left a short last window, behind `cut_ps`."""

    def add(self, device: Device, block: int = 0) -> None:
        """Host a device; its number is its place. Its queue is the block's."""
        assert self._devices[device.number] is None, device.number
        assert device.queue is self.blocks[block].queue, (device.number, block)
        self._devices[device.number] = device
        self._block_of[device.number] = block

    def let_defer(self, device: Device, block: int) -> None:
        """Let a device of a block, which is complete, defer what its ports send next."""
        if device.let_defer():
            self._borders[block].append(device)

    def let_sleep(self, number: int, block: int, sleepers: Sleepers) -> None:
        """Host a device that is built later. It has nothing to push before its first event."""
        assert self._devices[number] is None, number
        self._sleeps[number] = 1
        self._block_of[number] = block
        self.sleepers = sleepers

    def _wake(self, number: i64) -> Device:
        """Build a device that sleeps."""
        sleepers = self.sleepers
        assert sleepers is not None and self._sleeps[number] != 0, f"device {number} is not hosted here"
        device = sleepers.build(int(number))
        self._sleeps[number] = 0
        self.add(device, int(self._block_of[number]))
        self.woken.append(int(number))
        return device

    def hosted(self) -> list[Device]:
        """The devices of this partition by number; those that sleep wake."""
        at: i64 = 0
        if self.sleepers is not None:
            while at < len(self._devices):
                if self._sleeps[at] != 0:
                    self._wake(at)
                at += 1
        return self.built()

    def built(self) -> list[Device]:
        """The devices of this partition that do not sleep, by number."""
        return [device for device in self._devices if device is not None]

    def device(self, number: int) -> Device:
        """One device of this partition."""
        device = self._devices[number]
        if device is None:
            return self._wake(number)
        return device

    def asleep(self) -> list[int]:
        """The devices of this partition that sleep."""
        found: list[int] = []
        if self.sleepers is not None:
            at: i64 = 0
            while at < len(self._sleeps):
                if self._sleeps[at] != 0:
                    found.append(int(at))
                at += 1
        return found

    def awake(self, number: int) -> Device | None:
        """One device of this partition; None if it sleeps."""
        return self._devices[number]

    def hosts(self, number: int) -> bool:
        """Whether a device is of this partition."""
        return self._devices[number] is not None or self._sleeps[number] != 0

    def start(self) -> None:
        """Let every device push its first events."""
        for device in self.built():
            device.start()

    def push(self, event: Event) -> None:
        """Make an event of a device that is hosted here pending; no window between blocks is open."""
        watch = self.queue.watch
        if watch is not None:
            watch.note(event.time_ps, event.key, leaves=False)
        if len(self.blocks) == 1:
            self.queue.push(event)
        else:
            self.blocks[self._block_of[event.key >> DEVICE_SHIFT]].queue.push(event)

    def watch(self, devices: list[int]) -> Watch:
        """Watch devices of this partition from now on; no window between blocks is open."""
        watch = Watch(len(self._devices), devices)
        for event in self.pending():
            watch.note(event.time_ps, event.key, leaves=False)
        for block in self.blocks:
            block.queue.watch = watch
        return watch

    def post(self, reader: BatchReader, batch: Batch, since_ps: i64) -> None:
        """Let the frames of a batch arrive, which may not be before `since_ps`. Raises ProtocolError.

        Where there are blocks, each is made as the turn of its block begins, while what it touches comes into
        the cache; where there is one, at once. No window between blocks is open.
        """
        if len(self.blocks) == 1:
            reader.take_frames(batch, since_ps, self.queue)
        else:
            reader.sort_frames(batch, since_ps, self._block_of, self._rows)
            for block in self.blocks:
                inbox = block.inbox
                if inbox.rows.least_ps < inbox.least_ps:
                    inbox.least_ps = inbox.rows.least_ps

    def pending(self) -> list[Event]:
        """Every pending event in order, deferred ones included; no window between blocks is open."""
        events: list[Event] = []
        for block in self.blocks:
            block.unpack()
            for event in block.queue.pending():
                if isinstance(event, Train) and event.whence < 0:
                    events += event.packets()
                else:
                    events.append(event)
        for device in self.built():
            if device.due_ps < NEVER_PS:
                events += device.deferred()
        events.sort(key=in_order)
        return events

    def clear(self) -> None:
        """Forget every pending event; the clock stays."""
        for block in self.blocks:
            block.queue.clear()
            block.inbox.clear()
            block.reached_ps = 0
        for device in self.built():
            device.forget_deferred()
        if self.queue.watch is not None:
            self.queue.watch.clear()
        self._turn = len(self.blocks)

    def next_time_ps(self) -> int:
        """The first pending event's time; NEVER_PS if none is pending."""
        return min([int(self._next_ps(at)) for at in range(len(self.blocks))])

    def stop_ps(self) -> int:
        """The end of the run, if a device here has announced it; else NEVER_PS."""
        return min([int(block.queue.stop_ps) for block in self.blocks])

    def stop_at(self, time_ps: int) -> None:
        """The end of the run is announced."""
        for block in self.blocks:
            block.queue.stop_ps = time_ps

    def now_ps(self) -> int:
        """The time of the last event that was executed."""
        return max([int(block.queue.now_ps) for block in self.blocks])

    def reach(self, time_ps: int) -> None:
        """Set the clock to a time before which nothing is pending but what was deferred: that is executed."""
        until: i64 = time_ps
        at: i64 = 0
        while at < len(self._devices):
            device = self._devices[at]
            if device is not None:
                if device.due_ps < until:
                    device.catch_up(until, 0)
                if device.ahead_ps >= until:
                    self._uncouple(device, until)
            at += 1
        for block in self.blocks:
            block.unpack()
            block.queue.now_ps = time_ps

    def settle(self) -> None:
        """Let deferred ports send that were due by now, and take back what was done ahead of time, so that
        devices can be looked at."""
        for device in self.built():
            now: i64 = device.queue.now_ps
            if device.due_ps < now:
                device.catch_up(now, 0)
            if device.ahead_ps >= 0:
                self._uncouple(device, 0)
        for at, block in enumerate(self.blocks):  # those of blocks whose turn is over may be earlier now
            block.next_ps = self._next_ps(at)

    def _uncouple(self, device: Device, time_ps: i64) -> None:
        """Take back what a device did ahead of time: what does not happen before the given time, or before
        the one up to which its block has executed everything, if that is later."""
        block = self.blocks[self._block_of[device.number]]
        at_ps: i64 = block.reached_ps
        if time_ps > at_ps:
            at_ps = time_ps
        place: i64 = 0
        if block.last_time_ps >= at_ps:  # some of what happens at that time was executed, up to an event
            at_ps = block.last_time_ps
            last: i64 = block.last_key
            if (last >> DEVICE_SHIFT) > device.number:
                place = PLACE_MASK
            elif (last >> DEVICE_SHIFT) == device.number:
                place = ((last >> PORT_SHIFT) & PLACE_MASK) + 1
        if device.ahead_ps >= at_ps:
            device.uncouple(at_ps, place)

    def cut_ps(self) -> int:
        """The first time at which what `run` was asked for may end, now that it has returned."""
        if self.left or self._turn < len(self.blocks):
            return self._end_ps
        return self.now_ps() + 1

    def run(self, until_ps: int, budget: int, may_leave: bool = False) -> int:
        """Execute events before `until_ps` (and before the announced stop), at most `budget` of them.

        Returns how much of the budget was used; less than all means that none is left before the limit, or
        before `cut_ps` where a short last window may be left.
        """
        until: i64 = until_ps
        most: i64 = budget
        used: i64 = 0
        self.left = False
        if len(self.blocks) == 1:
            used = self._execute(self.blocks[0], until, most)
            if used < most:
                self._send_due(0, until)
        else:
            used = self._take_turns(until, most, may_leave)
        return min(used, most)

    def _take_turns(self, until: i64, most: i64, may_leave: bool) -> i64:
        """Run blocks in turn, window after window, as `run` is asked to."""
        blocks = self.blocks
        count: i64 = len(blocks)
        if self._turn == count:
            for at, block in enumerate(blocks):  # whoever called may have made events meanwhile
                block.next_ps = self._next_ps(at)
        used: i64 = 0
        while used < most:
            if self._turn == count and not self._open(until, may_leave and used > 0):
                break
            end: i64 = self._end_ps
            block = blocks[self._turn]
            if block.next_ps < end or block.inbox.least_ps < end:
                block.take_in(end)
                used += self._execute(block, end, most - used)
                if used < most:
                    self._send_due(self._turn, end)
                block.next_ps = self._next_ps(self._turn)
                if used >= most:
                    break
            block.reached_ps = end
            self._turn += 1
        return used

    def _next_ps(self, at: i64) -> i64:
        """When the first event of a block is, in its queue or inbox, or the first that is deferred and felt
        elsewhere."""
        block = self.blocks[at]
        best: i64 = block.queue.next_time_ps()
        if block.inbox.least_ps < best:
            best = block.inbox.least_ps
        for device in self._borders[at]:
            if device.due_ps < best:
                best = device.due_ps
        return best

    def _send_due(self, at: i64, until: i64) -> None:
        """Let what is due before a time, up to which a block executed everything, leave for other blocks and
        workers. The clock stands at the last of all that happened."""
        queue = self.blocks[at].queue
        if queue.stop_ps < until:
            until = queue.stop_ps
        latest: i64 = queue.now_ps
        for device in self._borders[at]:
            if device.due_ps < until:
                device.send_due(until)
                if queue.now_ps > latest:
                    latest = queue.now_ps
        queue.now_ps = latest

    def _open(self, until: i64, may_leave: bool) -> bool:
        """Open the next window, unless nothing is left before `until` or the announced stop, or so little
        that it may be left."""
        earliest: i64 = NEVER_PS
        end: i64 = NEVER_PS
        stop: i64 = NEVER_PS
        for block in self.blocks:
            following: i64 = block.next_ps
            if block.inbox.least_ps < following:
                following = block.inbox.least_ps
            if following < earliest:
                earliest = following
            if following + block.lookahead_ps < end:
                end = following + block.lookahead_ps
            if block.queue.stop_ps < stop:
                stop = block.queue.stop_ps
        for block in self.blocks:
            block.queue.stop_ps = stop
        limit: i64 = until
        if stop < limit:
            limit = stop
        if may_leave and earliest < limit and limit - earliest < (end - earliest) >> 1:
            limit = self._end_ps
            self.left = True
        if earliest >= limit:
            return False
        if limit < end:
            end = limit
        self._end_ps = end
        self._turn = 0
        return True

    def _execute(self, block: Block, until: i64, most: i64) -> i64:
        """Execute at most so many events of a block, before a time and the announced stop; what they used."""
        queue = block.queue
        queue.extra = 0
        devices = self._devices
        done: i64 = 0
        last_time: i64 = block.last_time_ps
        last_key: i64 = block.last_key
        limit: i64 = min(queue.stop_ps, until)
        last: i64 = most  # so many events
        while done < last:
            found = queue.pop(limit)
            if found is None:
                break
            event: Event = found  # what is narrowed is checked again at each use
            now: i64 = event.time_ps
            key: i64 = event.key
            if now <= last_time:
                assert now == last_time and key != last_key, (now, last_time, describe_key(key))
            last_time = now
            last_key = key
            hosted = devices[key >> DEVICE_SHIFT]
            device: Device = self._wake(key >> DEVICE_SHIFT) if hosted is None else hosted
            done += 1
            device.executed += 1
            place: i64 = (key >> PORT_SHIFT) & PLACE_MASK
            if device.due_ps <= now:
                device.catch_up(now, place)
            kind: i64 = place >> PORT_BITS
            port: i64 = place & PORT_MASK
            if kind == ARRIVAL:
                frame = cast(Frame, event)
                if frame.whence != 0:  # its sender had more to send, which must be on its way by now
                    number: i64 = i64(frame.whence) - 1
                    frame.whence = 0
                    if number < 0:
                        self._pass(device, cast(Train, frame), port, -2 - number)
                        continue
                    sender = devices[number]
                    if sender is not None and sender.due_ps < now:
                        sender.catch_up(now, 0)
                device.on_frame(frame, port)
                continue
            if (TIMER_KINDS >> kind) & 1:
                if device.on_timer(kind, port, key & SUBJECT_MASK):
                    device.mix_timer(kind, port, key & SUBJECT_MASK)
            else:
                self._tell(device, cast(Message, event), kind, port)
            limit = min(queue.stop_ps, until)  # no frame changes these two
            last = most - queue.extra
        if last_time > block.last_time_ps or last_key > block.last_key:  # not of a post, which comes late
            block.last_time_ps = last_time
            block.last_key = last_key
        self.events += done
        return done + queue.extra

    def _pass(self, device: Device, train: Train, port: i64, number: i64) -> None:
        """Let the first packet of a train arrive, or nothing if all of it was taken back. The device of this
        number is its sender, if there is one."""
        if number < len(self._devices):
            sender = self._devices[number]
            now: i64 = device.queue.now_ps
            if sender is not None and sender.due_ps < now:
                sender.catch_up(now, 0)
        if train.count == 0:
            device.executed -= 1
        elif train.count == 1:
            device.on_frame(train, port)
        else:
            device.on_train(train, port)

    def _tell(self, device: Device, message: Message, kind: i64, port: i64) -> None:
        """Mix a message, pause or fault into the digest of its device, and hand it over."""
        if kind == MESSAGE:
            subject: i64 = message.key & SUBJECT_MASK
            device.mix_message(MESSAGE, port, subject, message)
            device.on_message(message, port, subject)
            return
        if device.ahead_ps >= device.queue.now_ps:  # before it is mixed behind what has not happened yet
            device.uncouple(device.queue.now_ps, device.place_now())
        if kind == PAUSE:
            device.mix_message(PAUSE, port, 0, message)
            device.on_pause(message, port)
        else:
            assert kind == FAULT, kind
            device.mix_message(FAULT, message.c if (PORT_FAULTS >> message.op) & 1 else -1, 0, message)
            device.on_fault(message)

    def work_pending(self) -> bool:
        """Whether anything but upkeep (pause refreshes, rate timers, watchdogs) is pending."""
        return any(key_kind(event.key) < FIRST_UPKEEP for event in self.pending())


def in_order(event: Event) -> tuple[int, int]:
    """What events are ordered by."""
    return int(event.time_ps), int(event.key)
