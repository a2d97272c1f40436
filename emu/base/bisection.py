"""The largest number of a range for which something holds, by halving the range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FINE: Final = 32
"""The range is halved until it is a part so small of its upper end."""


def largest(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest number from `low` to `high`, to a 32nd, for which this holds; None if not for `low`.

    What holds for a number is taken to hold for all below. Small numbers are asked first, each four times the
    one before, because large ones take longer; then the range between the last two is halved.
    """
    if not holds(low):
        return None
    above = low
    while low == above < high:
        above = min(4 * low, high)
        if holds(above):
            low = above
    while above - low > max(above // FINE, 1):
        middle = (low + above) // 2
        if holds(middle):
            low = middle
        else:
            above = middle
    return low
