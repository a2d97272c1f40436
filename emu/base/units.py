"""Times, sizes and rates: how they are written, read and printed.

Inside, every quantity is a plain `int`: time in picoseconds, size in bytes, rate in bit/s, and the unit is
the last word of its name (`now_ps`, `queued_bytes`, `rate_bps`). Configuration writes a number and a unit; a
bare number is refused because its unit would be a guess, save zero, which is the same in every unit.

    time   ps ns us ms s min h d                "500ns", "4.096us"
    size   B, KB MB GB TB (1000), KiB MiB ...   "4KiB", "64MB"
    rate   bps K M G T, with or without "bps"   "400G", "400Gbps", "3TB/s" (a capital B is bytes)

Reading is exact (decimal, never binary floating point): a quantity that is not a whole number of ps, bytes or
bit/s is refused, not rounded. `4K` bytes is refused too, since it may mean 4,000 or 4,096.

For a reader, times, sizes and rates are shown with four digits (`about_time`, ...): as many as one compares
at a glance. What is written to a file for programs is exact.

What is computed with quantities is in `actors.kernel.units`.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from emu.base.errors import QuantityError

MAX_QUANTITY: Final = 2**62 - 1
"""Largest time, size or rate: what a native signed integer holds with a bit to spare."""

TIME_PS: Final[dict[str, int]] = {
    "ps": 1,
    "ns": 10**3,
    "us": 10**6,
    "ms": 10**9,
    "s": 10**12,
    "min": 60 * 10**12,
    "h": 3600 * 10**12,
    "d": 86_400 * 10**12,
}
SIZE_BYTES: Final[dict[str, int]] = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
RATE_BPS: Final[dict[str, int]] = {
    prefix + suffix: factor * per
    for suffix, per in (("", 1), ("bps", 1), ("b/s", 1), ("bit/s", 1), ("B/s", 8))
    for prefix, factor in (("", 1), ("K", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12))
    if prefix + suffix
}

TIME_ACCEPTED: Final = 'a time with its unit (ps, ns, us, ms, s, min, h, d), like "500ns", or 0'
SIZE_ACCEPTED: Final = 'a size with its unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB), like "4KiB", or 0'
BITS_OF_GB: Final = 8 * 10**9
RATE_ACCEPTED: Final = 'a rate with its unit, like "400G" or "400Gbps" (bits), "267MB/s" (bytes), or 0'
FRACTION_ACCEPTED: Final = 'a fraction, like "1/8", 0.125 or "12.5%"'

_QUANTITY: Final = re.compile(r"([-+]?)([0-9][0-9_]*(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z\u00b5\u03bc/]*)")
_FRACTION: Final = re.compile(r"([-+]?)([0-9]{1,18})\s*/\s*([0-9]{1,18})")
_MAX_TEXT: Final = 64


class _Measure(NamedTuple):
    """What one kind of quantity is called, how it is written, and what it is counted in."""

    noun: str
    base: str
    units: dict[str, int]
    accepted: str


BEYOND_THE_CLOCK: Final = "beyond the clock, which ends after 53 days"
CLOCK_ACCEPTED: Final = 'at most "53d"; what lasts longer is a campaign of several runs'
_TIME: Final = _Measure("time", "ps", TIME_PS, TIME_ACCEPTED)
_SIZE: Final = _Measure("size", "bytes", SIZE_BYTES, SIZE_ACCEPTED)
_RATE: Final = _Measure("rate", "bit/s", RATE_BPS, RATE_ACCEPTED)


def _parse(value: object, measure: _Measure) -> int:
    accepted = measure.accepted
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise QuantityError(f"{_shown(value)} is not a {measure.noun}", accepted)
    text = repr(value) if not isinstance(value, str) else value.strip()
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise QuantityError(f"{_shown(value)} is not a {measure.noun}", accepted)
    sign, digits, unit = match.groups()
    number = Decimal(digits.replace("_", ""))
    if number == 0 and (not unit or unit in measure.units):
        return 0
    if sign == "-":
        raise QuantityError(f"{_shown(value)} is negative", accepted)
    if not unit:
        raise QuantityError(f"{_shown(value)} is a bare number: its unit would be a guess", accepted)
    factor = measure.units.get(unit.replace("\u00b5", "u").replace("\u03bc", "u"))
    if factor is None:
        raise QuantityError(f"{_shown(value)}: {_unknown_unit(unit, measure)}", accepted)
    exact = Fraction(number) * factor
    if exact.denominator != 1:
        raise QuantityError(f"{_shown(value)} is not a whole number of {measure.base}", accepted)
    if exact > MAX_QUANTITY:
        if measure is _TIME:
            raise QuantityError(f"{_shown(value)} is {BEYOND_THE_CLOCK}", CLOCK_ACCEPTED)
        raise QuantityError(f"{_shown(value)} is too large", f"at most {MAX_QUANTITY} {measure.base}")
    return int(exact)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _unknown_unit(unit: str, measure: _Measure) -> str:
    prefix = unit.upper()
    if measure is _SIZE and prefix in ("K", "M", "G", "T"):
        return f"{unit!r} may mean {prefix}B (powers of 1000) or {prefix}iB (powers of 1024)"
    if measure is _RATE and unit in SIZE_BYTES and f"{unit}/s" in measure.units:
        return f"{unit!r} is a unit of size; did you mean '{unit}/s'?"
    same = [known for known in measure.units if known.lower() == unit.lower()]
    suggestion = f"; did you mean {same[0]!r}?" if same else ""
    return f"{unit!r} is not a unit of {measure.noun}{suggestion}"


def parse_time(value: object) -> int:
    """Picoseconds of "500ns". Raises `QuantityError`."""
    return _parse(value, _TIME)


def parse_size(value: object) -> int:
    """Bytes of "4KiB". Raises `QuantityError`."""
    return _parse(value, _SIZE)


def parse_rate(value: object) -> int:
    """Bit/s of "400G" or "400Gbps". Raises `QuantityError`."""
    return _parse(value, _RATE)


def parse_fraction(value: object) -> Fraction:
    """The exact fraction of "1/8", "0.125", "12.5%", 0.125 or 1; not negative. Raises `QuantityError`."""
    result: Fraction | None = None
    if isinstance(value, Fraction):
        result = value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        text = repr(value)
        result = Fraction(Decimal(text)) if text not in ("inf", "-inf", "nan") else None
    elif isinstance(value, str) and len(value) <= _MAX_TEXT:
        text = value.strip()
        percent = text.endswith("%")
        ratio = _FRACTION.fullmatch(text)
        plain = _QUANTITY.fullmatch(text.removesuffix("%").rstrip())
        if ratio is not None and int(ratio[3]) != 0:
            result = Fraction(int(ratio[1] + ratio[2]), int(ratio[3]))
        elif plain is not None and not plain[3]:
            result = Fraction(Decimal(plain[1] + plain[2].replace("_", ""))) / (100 if percent else 1)
    if result is None:
        raise QuantityError(f"{_shown(value)} is not a fraction", FRACTION_ACCEPTED)
    if result < 0:
        raise QuantityError(f"{_shown(value)} is negative", FRACTION_ACCEPTED)
    return result


def _format(amount: int, steps: tuple[tuple[str, int], ...]) -> str:
    """`amount` in the largest unit that shows it exactly with at most three decimals."""
    if amount < 0:
        return "-" + _format(-amount, steps)
    for unit, factor in steps:
        if amount >= factor and amount * 1000 % factor == 0:
            whole, rest = divmod(amount * 1000 // factor, 1000)
            decimals = f".{rest:03d}".rstrip("0") if rest else ""
            return f"{whole}{decimals}{unit}"
    return f"{amount}{steps[-1][0]}"


_TIME_STEPS: Final = tuple((unit, TIME_PS[unit]) for unit in ("s", "ms", "us", "ns", "ps"))
_SIZE_STEPS: Final = tuple((unit, SIZE_BYTES[unit]) for unit in ("MiB", "GiB", "KiB", "MB", "GB", "KB", "B"))
_RATE_STEPS: Final = tuple((unit + "bps", RATE_BPS[unit + "bps"]) for unit in ("T", "G", "M", "K", ""))


def format_time(time_ps: int) -> str:
    """Exact, and read back by `parse_time` as the same number: 1_167_760 is "1167.76ns"."""
    return _format(time_ps, _TIME_STEPS) if time_ps else "0s"


def format_size(size_bytes: int) -> str:
    """Exact, and read back by `parse_size` as the same number: 4096 is "4KiB", 64_000_000 is "64MB"."""
    texts = [f"{size_bytes // per}{unit}" for unit, per in _SIZE_STEPS if size_bytes % per == 0]
    return min(texts, key=len) if size_bytes else "0B"


def format_rate(rate_bps: int) -> str:
    """Exact, and read back by `parse_rate` as the same number: 400_000_000_000 is "400Gbps"."""
    return _format(rate_bps, _RATE_STEPS)


def counted(count: int, noun: str) -> str:
    """`1 switch`, `24,576 GPUs`."""
    plural = f"{noun}es" if noun.endswith(("ch", "x")) else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


LEAST_DIGITS: Final = 4
"""Fewest digits of a time that is shown for reading."""
LONGEST_EXACT: Final = 8
"""Signs of a time that is shown to the last digit."""


def aligned(rows: Sequence[Sequence[str]], indent: str = "  ", left: int = 1) -> list[str]:
    """Rows in columns: the first ones left-aligned, the others right-aligned."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))] if rows else []
    return [
        indent
        + "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _four_digits(amount: int, factor: int) -> str:
    return f"{amount / factor:.4g}" if amount < 1000 * factor else str(amount // factor)


def about_time(time_ps: int) -> str:
    """A time to four digits or so, for reading: 1_167_760 is "1.168us"."""
    for unit, factor in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if time_ps >= factor:
            return (
                f"{time_ps / factor:.4g}{unit}" if time_ps < 1000 * factor else f"{time_ps // factor}{unit}"
            )
    return f"{time_ps}ps"


def shown_time(time_ps: int) -> str:
    """A time as it is written where that is short, and otherwise to four digits or so: 20_000_000 is "20us",
    634_155_860 is "634.2us". From 10 s on it has microseconds, so that what follows a fault at once is
    distinguished from it: 10_800_000_200_000_000 is "10800.0002s".
    """
    exact = format_time(time_ps)
    if len(exact) <= LONGEST_EXACT:
        return exact
    if time_ps < 10 * 10**12:
        return about_time(time_ps)
    return f"{time_ps // 10**12}.{time_ps % 10**12 // 10**6:06d}".rstrip("0").rstrip(".") + "s"


def distinct_texts(times_ps: Sequence[int], show: Callable[[int], str] = shown_time) -> list[str]:
    """Times of one line, each as `show` shows it; where two that differ would look alike, all of them with so
    many digits that they do not: 10800.0002 s and 10800.0007 s are not both "10800s".
    """
    shown = [show(one) for one in times_ps]
    digits = LEAST_DIGITS
    while len(set(shown)) < len(set(times_ps)):
        digits += 1
        shown = [format_time(round(one, min(digits - len(str(one)), 0))) for one in times_ps]
    return shown


def about_size(size_bytes: int) -> str:
    """A size to four digits or so, for reading: 6_000_000 is "5.722MiB"."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return (
                f"{size_bytes / factor:.4g}{unit}"
                if size_bytes < 1000 * factor
                else f"{size_bytes // factor}{unit}"
            )
    return f"{size_bytes}B"


def about_rate(rate_bps: int) -> str:
    """A rate to four digits or so, for reading: 187_616_324_063 is "187.6Gbps"."""
    for unit, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3)):
        if rate_bps >= factor:
            return f"{_four_digits(rate_bps, factor)}{unit}bps"
    return f"{rate_bps}bps"


def about_bandwidth(rate_bps: int) -> str:
    """The bandwidth of a collective (algbw, busbw) to four digits, in the unit of nccl-tests."""
    return f"{_four_digits(rate_bps, BITS_OF_GB)}GB/s"


def percent(part: float | None) -> str:
    """A share in per cent; "unknown" where nobody knows it."""
    if part is None:
        return "unknown"
    return f"{part * 100:.1f}%"


def folded(rows: Sequence[Sequence[str]], keys: int, width: int) -> list[str]:
    """A table, header first, cut into several below each other if `width` is not enough (0: any is).

    Each has the first `keys` columns, which say what a row is about, and at least one more.
    """
    fits = len(rows[0])
    while width and fits > keys + 1 and len(aligned([row[:fits] for row in rows], indent="")[0]) > width:
        fits -= 1
    lines = aligned([row[:fits] for row in rows], indent="")
    if fits == len(rows[0]):
        return lines
    return [*lines, "", *folded([[*row[:keys], *row[fits:]] for row in rows], keys, width)]
