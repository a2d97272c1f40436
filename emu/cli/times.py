"""How is a time on the command line read?

As in a scenario, and what is wrong with it is told with its option.
"""

from __future__ import annotations

from emu.errors import UsageError
from emu.units import parse_time


def positive_time_ps(option: str, text: str) -> int:
    """A time above zero. Raises UsageError."""
    try:
        time_ps = parse_time(text)
    except UsageError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    if time_ps <= 0:
        raise UsageError(f"{option} {text}: must be more than 0")
    return time_ps
