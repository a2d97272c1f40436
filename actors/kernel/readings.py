"""What devices count, read again and again: only what changed since the reading before.

A reading looks at devices that executed something since, and at those that count time meanwhile. What they
count is compared with the reading before in native integers; objects are made for what changed alone, so a
reading costs what happens in the fabric and not what the fabric has.

Devices begin with zeros. The first reading of devices whose state was loaded is `whole`: it has everything,
since who hears of it may know what there was at another time.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

from actors.kernel.device import Device, Tally
from actors.kernel.vectors import append, vec


class Reading:
    """By device, place and new value in turn, as little-endian integers of eight bytes: of counters and of
    mixes.
    """

    def __init__(self, whole: bool) -> None:
        self.whole: bool = whole
        """Whether it has what did not change, too."""
        self.counters: dict[int, bytes] = {}
        self.mixes: dict[int, bytes] = {}


class Rewritten(Tally):
    """Numbers that are written again and again: what is another one than before goes into `changed`, place
    and number in turn. What there was no place for before was 0.
    """

    def __init__(self, changed: BytesWriter) -> None:
        super().__init__()
        self.changed: BytesWriter = changed
        self.whole: bool = False
        """Whether what did not change goes there, too."""
        self.at: i64 = 0
        """The place of the next number."""

    def begin(self, whole: bool) -> None:
        """The first number comes next."""
        self.at = 0
        self.whole = whole

    def add(self, number: i64) -> None:
        at: i64 = self.at
        numbers = self.numbers
        self.at = at + 1
        if at < len(numbers):
            if numbers[at] == number and not self.whole:
                return
            numbers[at] = number
        else:
            self.numbers = append(numbers, number)
            if number == 0 and not self.whole:
                return
        write_i64_le(self.changed, at)
        write_i64_le(self.changed, number)

    def add_table(self, table: vec[i64]) -> None:
        count: i64 = len(table)
        start: i64 = self.at
        numbers = self.numbers
        at: i64 = 0
        if start + count > len(numbers) or self.whole:
            while at < count:
                self.add(table[at])
                at += 1
            return
        while at < count:
            number: i64 = table[at]
            place: i64 = start + at
            if numbers[place] != number:
                numbers[place] = number
                write_i64_le(self.changed, place)
                write_i64_le(self.changed, number)
            at += 1
        self.at = start + count


class Readings:
    """The readings of some devices."""

    def __init__(self, devices: list[Device]) -> None:
        self._devices: list[Device] = devices
        self._executed: vec[i64] = vec[i64]([-1] * len(devices))
        """How many events each had executed when it was read; -1: to be read in any case."""
        changed = BytesWriter()
        self._changed: BytesWriter = changed
        """Of the device that is read."""
        self._counted: list[Rewritten] = [Rewritten(changed) for _ in devices]
        self._mixed: list[Rewritten] = [Rewritten(changed) for _ in devices]
        self._anew: bool = False

    def begin_anew(self) -> None:
        """The state of the devices was loaded."""
        self._anew = True

    def take(self) -> Reading:
        """What changed since the reading before, in the order of the devices."""
        anew = self._anew
        reading = Reading(anew)
        changed = self._changed
        at: i64 = 0
        while at < len(self._devices):
            device = self._devices[at]
            executed: i64 = device.executed
            if executed != self._executed[at] or anew:
                self._executed[at] = executed if device.steady() else -1
                counted = self._counted[at]
                counted.begin(anew)
                device.count(counted)
                if len(changed) > 0:
                    reading.counters[int(device.number)] = changed.getvalue()
                    changed.truncate(0)
                mixed = self._mixed[at]
                mixed.begin(anew)
                device.write_mixes(mixed)
                if len(changed) > 0:
                    reading.mixes[int(device.number)] = changed.getvalue()
                    changed.truncate(0)
            at += 1
        self._anew = False
        return reading
