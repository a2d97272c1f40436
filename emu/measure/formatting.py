"""Times, sizes, rates and table rows as a reader sees them.

Four digits are as many as one compares at a glance; what is written to a file for programs is exact and does
not come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from emu.units import format_time

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
    634_155_860 is "634.2us".
    """
    exact = format_time(time_ps)
    return exact if len(exact) <= LONGEST_EXACT else about_time(time_ps)


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


def percent(part: float) -> str:
    """A share in per cent."""
    return f"{part * 100:.1f}%"
