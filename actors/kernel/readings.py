"""What devices count, read again and again: only what changed since the reading before.

A reading looks at devices that executed something since, and at those that count time meanwhile. What they
count is compared with the reading before in native integers; objects are made for what changed alone, so a
reading costs what happens in the fabric and not what the fabric has.

Devices begin with zeros. The first reading of devices whose state was loaded is `whole`: it has everything,
since who hears of it may know what there was at another time.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from actors.kernel.device import Device, Tally
from actors.kernel.event import MAX_DEVICES
from actors.kernel.vectors import append, vec

END: Final[i64] = -1
"""Behind the last place and value of a device."""


class Reading:
    """A reading of counters and of mixes, little-endian integers of eight bytes: for each device that has any
    its number, place and new value in turn, and `END`."""

    def __init__(self, whole: bool, counters: bytes, mixes: bytes) -> None:
        self.whole: bool = whole
        """Whether it has what did not change, too."""
        self.counters: bytes = counters
        self.mixes: bytes = mixes


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
        self._marks: vec[i64] = vec[i64]()
        """Marks of the parts that were kept; 0: it is not."""
        self._widths: vec[i64] = vec[i64]()
        """How many numbers each has; while it is written, minus the place where it begins."""

    def add_known(self, numbers: tuple[int, ...]) -> None:
        """These numbers were read before."""
        for number in numbers:
            self.numbers = append(self.numbers, number)

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

    def stands(self, part: i64, mark: i64) -> bool:
        if part < len(self._marks):
            if self._marks[part] == mark and mark != 0 and not self.whole:
                self.at += self._widths[part]
                return True
        else:
            while part >= len(self._marks):
                self._marks = append(self._marks, 0)
                self._widths = append(self._widths, 0)
        self._widths[part] = -self.at
        return False

    def keep(self, part: i64, mark: i64) -> None:
        self._marks[part] = mark
        self._widths[part] += self.at

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
        self._devices: vec[Device] = vec[Device](devices)
        self._executed: vec[i64] = vec[i64]([-1] * len(devices))
        """How many events each had executed when it was read; -1: to be read in any case."""
        self._counters: BytesWriter = BytesWriter()
        self._mixes: BytesWriter = BytesWriter()
        self._counted: vec[Rewritten] = vec[Rewritten]([Rewritten(self._counters) for _ in devices])
        self._mixed: vec[Rewritten] = vec[Rewritten]([Rewritten(self._mixes) for _ in devices])
        self._anew: bool = False
        self._asleep: list[int] = []
        self._counted_asleep: list[bytes] = []

    def let_sleep(self, numbers: list[int], counted: list[bytes]) -> None:
        """The next reading begins with what devices have counted that are not built (`counted_from_zero`)."""
        self._asleep = numbers
        self._counted_asleep = counted

    def look_at(self, devices: list[Device], known: dict[int, tuple[int, ...]]) -> None:
        """Read these from now on, by number: those of before, and others, of some of which it is `known` what
        they had counted, from an earlier reading."""
        before: dict[int, int] = {}
        at: i64 = 0
        while at < len(self._devices):
            before[int(self._devices[at].number)] = int(at)
            at += 1
        executed: list[int] = []
        counted: list[Rewritten] = []
        mixed: list[Rewritten] = []
        for device in devices:
            place = before.get(int(device.number))
            if place is None:
                executed.append(-1)
                rewritten = Rewritten(self._counters)
                before_it = known.get(int(device.number))
                if before_it is not None:
                    rewritten.add_known(before_it)
                counted.append(rewritten)
                mixed.append(Rewritten(self._mixes))
            else:
                executed.append(int(self._executed[place]))
                counted.append(self._counted[place])
                mixed.append(self._mixed[place])
        self._devices = vec[Device](devices)
        self._executed = vec[i64](executed)
        self._counted = vec[Rewritten](counted)
        self._mixed = vec[Rewritten](mixed)

    def begin_anew(self) -> None:
        """The state of the devices was loaded."""
        self._anew = True

    def _pass_asleep(self, place: i64, until: i64) -> i64:
        """Write the devices that sleep, from a place in their list up to a device; the place behind them."""
        counters = self._counters
        while place < len(self._asleep):
            number: i64 = self._asleep[place]
            if number >= until:
                break
            begin: i64 = len(counters)
            write_i64_le(counters, number)
            counters.write(self._counted_asleep[place])
            _end(counters, begin)
            place += 1
        return place

    def take(self) -> Reading:
        """What changed since the reading before, in the order of the devices."""
        anew = self._anew
        counters = self._counters
        mixes = self._mixes
        at: i64 = 0
        asleep: i64 = 0
        while at < len(self._devices):
            device = self._devices[at]
            asleep = self._pass_asleep(asleep, device.number)
            executed: i64 = device.executed
            if executed != self._executed[at] or anew:
                if device.steady():
                    self._executed[at] = executed
                else:
                    self._executed[at] = -1
                begin: i64 = len(counters)
                write_i64_le(counters, device.number)
                counted = self._counted[at]
                counted.begin(anew)
                device.count(counted)
                _end(counters, begin)
                begin = len(mixes)
                write_i64_le(mixes, device.number)
                mixed = self._mixed[at]
                mixed.begin(anew)
                device.write_mixes(mixed)
                _end(mixes, begin)
            at += 1
        self._pass_asleep(asleep, MAX_DEVICES)
        self._asleep = []
        self._counted_asleep = []
        self._anew = False
        reading = Reading(anew, counters.getvalue(), mixes.getvalue())
        counters.truncate(0)
        mixes.truncate(0)
        return reading


def counted_from_zero(counters: tuple[int, ...]) -> bytes:
    """What the first reading has of a device, behind its number and before `END`."""
    out = BytesWriter()
    for at, number in enumerate(counters):
        if number != 0:
            write_i64_le(out, at)
            write_i64_le(out, number)
    return out.getvalue()


def _end(changed: BytesWriter, begin: i64) -> None:
    """All of a device whose number stands at `begin` is written; one of which nothing changed goes."""
    if len(changed) == begin + 8:
        changed.truncate(begin)
    else:
        write_i64_le(changed, END)


def by_device(reading: bytes) -> dict[int, bytes]:
    """What a reading has of each device: place and new value in turn."""
    found: dict[int, bytes] = {}
    at: i64 = 0
    while at < len(reading):
        end: i64 = _after(reading, at) - 8
        found[int(read_i64_le(reading, at))] = reading[at + 8 : end]
        at = end + 8
    return found


def joined(readings: list[bytes]) -> bytes:
    """What readings of other devices each have, in the order of the devices."""
    out = BytesWriter()
    nothing: list[int] = [0] * len(readings)
    reached: vec[i64] = vec[i64](nothing)
    while True:
        first: i64 = -1
        of: i64 = -1
        at: i64 = 0
        while at < len(readings):
            if reached[at] < len(readings[at]):
                number: i64 = read_i64_le(readings[at], reached[at])
                if of < 0 or number < first:
                    first = number
                    of = at
            at += 1
        if of < 0:
            return out.getvalue()
        begin: i64 = reached[of]
        end: i64 = _after(readings[of], begin)
        out.write(readings[of][begin:end])
        reached[of] = end


def _after(reading: bytes, at: i64) -> i64:
    """Behind the device whose number stands at a place of a reading."""
    at += 8
    while read_i64_le(reading, at) != END:
        at += 16
    return at + 8
