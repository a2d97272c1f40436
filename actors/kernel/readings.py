"""What devices count, read again and again: only what changed since the reading before.

A reading looks at devices that executed something since, and at those that count time meanwhile. What they
count is compared with the reading before in native integers; objects are made for what changed alone, so a
reading costs what happens in the fabric and not what the fabric has.

Devices begin with zeros. The first reading of devices whose state was loaded is `whole`: it has everything,
since who hears of it may know what there was at another time.
"""

from __future__ import annotations

from array import array

from mypy_extensions import i64

from actors.kernel.device import Device, Tally
from actors.kernel.vectors import vec


class Reading:
    """By device, place and new value in turn: of its counters, and of its mixes."""

    def __init__(self, whole: bool) -> None:
        self.whole: bool = whole
        """Whether it has what did not change, too."""
        self.counters: dict[int, array[int]] = {}
        self.mixes: dict[int, array[int]] = {}


class Readings:
    """The readings of some devices."""

    def __init__(self, devices: list[Device]) -> None:
        self._devices: list[Device] = devices
        self._executed: vec[i64] = vec[i64]([-1] * len(devices))
        """How many events each had executed when it was read; -1: to be read in any case."""
        self._counted: list[Tally] = [Tally() for _ in devices]
        self._mixed: list[Tally] = [Tally() for _ in devices]
        self._anew: bool = False

    def begin_anew(self) -> None:
        """The state of the devices was loaded."""
        self._anew = True

    def take(self) -> Reading:
        """What changed since the reading before, in the order of the devices."""
        reading = Reading(self._anew)
        at: i64 = 0
        while at < len(self._devices):
            device = self._devices[at]
            executed: i64 = device.executed
            if executed != self._executed[at] or self._anew:
                self._executed[at] = executed if device.steady() else -1
                counted = Tally()
                device.count(counted)
                changed = everything(counted) if self._anew else changes(self._counted[at], counted)
                if changed:
                    self._counted[at] = counted
                    reading.counters[int(device.number)] = array("q", changed)
                mixed = Tally()
                mixed.add_list(device.all_mixes())
                changed = everything(mixed) if self._anew else changes(self._mixed[at], mixed)
                if changed:
                    self._mixed[at] = mixed
                    reading.mixes[int(device.number)] = array("q", changed)
            at += 1
        self._anew = False
        return reading


def everything(now: Tally) -> list[int]:
    """Place and value in turn."""
    found: list[int] = []
    at: i64 = 0
    while at < len(now.numbers):
        found.append(int(at))
        found.append(int(now.numbers[at]))
        at += 1
    return found


def changes(before: Tally, now: Tally) -> list[int]:
    """Place and new value in turn. What there was no place for before was 0."""
    changed: list[int] = []
    last = before.numbers
    numbers = now.numbers
    known: i64 = len(last)
    assert known <= len(numbers), (int(known), len(numbers))
    at: i64 = 0
    while at < known:
        if numbers[at] != last[at]:
            changed.append(int(at))
            changed.append(int(numbers[at]))
        at += 1
    while at < len(numbers):
        if numbers[at] != 0:
            changed.append(int(at))
            changed.append(int(numbers[at]))
        at += 1
    return changed
