"""The kernel: executes the events of a partition in order.

`run` takes events in order until a time or until a budget of events is used up, whichever comes first. The
budget is what makes slices: compiled code neither sees signals nor hands over the interpreter lock, so the
caller runs a few milliseconds' worth, looks after its sockets and signals, and calls again. Where a slice
ends is invisible to the model.

The kernel mixes messages, pauses and faults into the digest before the device sees them, and a timer after
the device has said that it had an effect (`actors.kernel.mixing`). A device mixes a frame itself, first of
all: it turns to the port anyway, which keeps the mix.
"""

from __future__ import annotations

from typing import cast

from mypy_extensions import i64

from actors.compiled.finder import is_compiled
from actors.kernel.device import Device
from actors.kernel.event import (
    ARRIVAL,
    DEVICE_SHIFT,
    FAULT,
    FIRST_UPKEEP,
    MESSAGE,
    PAUSE,
    PLACE_MASK,
    PORT_BITS,
    PORT_MASK,
    PORT_SHIFT,
    SUBJECT_MASK,
    Message,
    describe_key,
    key_kind,
)
from actors.kernel.queue import EventQueue
from actors.kernel.vectors import vec
from actors.wire.fault import PORT_FAULTS
from actors.wire.frame import Frame


def new_queue() -> EventQueue:
    """The queue that suits how this process runs; both give one order."""
    if is_compiled():
        return EventQueue()
    from actors.kernel.heap_queue import HeapQueue  # noqa: PLC0415  an interpreted class, which compiled code cannot import

    return HeapQueue()


class Kernel:
    """The devices of one partition and the loop that runs them."""

    def __init__(self, device_count: int) -> None:
        self.queue: EventQueue = new_queue()
        self.events: i64 = 0
        self._devices: vec[Device | None] = vec[Device | None]([None] * device_count)
        self._last_time_ps: i64 = -1
        self._last_key: i64 = -1

    def add(self, device: Device) -> None:
        """Host a device; its number is its place."""
        assert self._devices[device.number] is None, device.number
        self._devices[device.number] = device

    def hosted(self) -> list[Device]:
        """The devices of this partition by number."""
        return [device for device in self._devices if device is not None]

    def device(self, number: int) -> Device:
        """One device of this partition."""
        device = self._devices[number]
        assert device is not None, f"device {number} is not hosted here"
        return device

    def start(self) -> None:
        """Let every device push its first events."""
        for device in self.hosted():
            device.start()

    def run(self, until_ps: int, budget: int) -> int:
        """Execute events before `until_ps` (and before the announced stop), at most `budget` of them.

        Returns how many were executed; fewer than `budget` means that none is left before the limit.
        """
        queue = self.queue
        devices = self._devices
        until: i64 = until_ps
        most: i64 = budget
        done: i64 = 0
        last_time: i64 = self._last_time_ps
        last_key: i64 = self._last_key
        while done < most:
            limit: i64 = queue.stop_ps
            if until < limit:
                limit = until
            event = queue.pop(limit)
            if event is None:
                break
            now: i64 = event.time_ps
            key: i64 = event.key
            if now <= last_time:
                assert now == last_time and key != last_key, (now, last_time, describe_key(key))
            last_time = now
            last_key = key
            queue.now_ps = now
            device = devices[key >> DEVICE_SHIFT]
            assert device is not None, describe_key(key)
            done += 1
            device.executed += 1
            place: i64 = (key >> PORT_SHIFT) & PLACE_MASK
            kind: i64 = place >> PORT_BITS
            port: i64 = place & PORT_MASK
            if kind == ARRIVAL:
                device.on_frame(cast(Frame, event), port)
            elif kind == MESSAGE:
                message = cast(Message, event)
                device.mix_message(MESSAGE, port, key & SUBJECT_MASK, message)
                device.on_message(message, port, key & SUBJECT_MASK)
            elif kind == PAUSE:
                pause = cast(Message, event)
                device.mix_message(PAUSE, port, 0, pause)
                device.on_pause(pause, port)
            elif kind == FAULT:
                fault = cast(Message, event)
                device.mix_message(FAULT, fault.c if (PORT_FAULTS >> fault.op) & 1 else -1, 0, fault)
                device.on_fault(fault)
            elif device.on_timer(kind, port, key & SUBJECT_MASK):
                device.mix_timer(kind, port, key & SUBJECT_MASK)
        self._last_time_ps = last_time
        self._last_key = last_key
        self.events += done
        return done

    def work_pending(self) -> bool:
        """Whether anything but upkeep (pause refreshes, rate timers, watchdogs) is pending."""
        return any(key_kind(event.key) < FIRST_UPKEEP for event in self.queue.pending())
