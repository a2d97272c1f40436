"""Lines of a metrics page: numbers written between the texts that stand before them.

A page of metrics is texts that never change and numbers that do. What stands before each number is kept as
bytes, and a scrape copies texts and writes numbers into one buffer, four digits at a time from a table:
compiled, some 30 ns a line, with no object made for it. `emu.counts.exposition` says which lines
there are.

Numbers are whole, in decimal. Time is rendered in seconds, exactly: 1_167_760 ps is "0.000001167760".
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from actors.kernel.device import Tally
from actors.kernel.vectors import vec

_SHORT: Final[list[bytes]] = [str(number).encode() for number in range(1000)]
_LONG: Final[list[bytes]] = [f"{number:03d}".encode() for number in range(1000)]
_FOUR: Final = vec[i32]([i32(int.from_bytes(b"%04d" % number, "little")) for number in range(10_000)])
"""Four digits as one integer, since that is written faster than bytes are."""
_HALF_OF_EIGHT: Final = vec[i64]([i64(four) for four in _FOUR])
"""The same, wide enough for eight of them in one."""
_PS_PER_S: Final = 10**12
_MINUS: Final = 45
_POINT: Final = 46
_ZERO: Final = 48


def write_number(out: BytesWriter, number: i64) -> None:
    """In decimal."""
    if number < 0:
        out.append(_MINUS)
        number = -number
    if number < 10:
        out.append(u8(_ZERO + number))
        return
    if number < 1000:
        out.write(_SHORT[number])
        return
    if number >= 100_000_000:
        above: i64 = number // 100_000_000
        write_number(out, above)
        eight: i64 = number - above * 100_000_000
        first: i64 = eight // 10_000
        write_i64_le(out, _HALF_OF_EIGHT[first] | (_HALF_OF_EIGHT[eight - first * 10_000] << 32))
        return
    upper: i64 = number // 10_000
    if upper > 0:
        write_number(out, upper)
        write_i32_le(out, _FOUR[number - upper * 10_000])
        return
    thousands: i64 = number // 1000
    out.append(u8(_ZERO + thousands))
    out.write(_LONG[number - thousands * 1000])


def write_seconds(out: BytesWriter, time_ps: i64) -> None:
    """In seconds, with twelve decimals; 0 is "0"."""
    assert time_ps >= 0, time_ps
    if time_ps == 0:
        out.write(_SHORT[0])
        return
    whole: i64 = time_ps // _PS_PER_S
    write_number(out, whole)
    out.append(_POINT)
    rest: i64 = time_ps - whole * _PS_PER_S
    upper: i64 = rest // 1_000_000
    lower: i64 = rest - upper * 1_000_000
    out.write(_LONG[upper // 1000])
    out.write(_LONG[upper % 1000])
    out.write(_LONG[lower // 1000])
    out.write(_LONG[lower % 1000])


class Lines:
    """Lines whose numbers stand at the same places of a tally each time.

    `begins` are what each line begins with, the line break before it included; `places`, as many, where its
    number is. `seconds`: the numbers are ps.
    """

    def __init__(self, begins: list[bytes], places: list[int], seconds: bool) -> None:
        self.begins = begins
        self.places: vec[i64] = vec[i64](places)
        self.seconds = seconds

    def write(self, out: BytesWriter, tally: Tally) -> None:
        """Every line, with the numbers of now."""
        begins = self.begins
        places = self.places
        numbers = tally.numbers
        seconds = self.seconds
        count: i64 = len(places)
        at: i64 = 0
        while at < count:
            out.write(begins[at])
            if seconds:
                write_seconds(out, numbers[places[at]])
            else:
                write_number(out, numbers[places[at]])
            at += 1

    def not_zero(self, tally: Tally) -> list[int]:
        """The places at which there is a number other than 0."""
        places = self.places
        numbers = tally.numbers
        count: i64 = len(places)
        found: list[int] = []
        at: i64 = 0
        while at < count:
            place: i64 = places[at]
            if numbers[place] != 0:
                found.append(place)
            at += 1
        return found
