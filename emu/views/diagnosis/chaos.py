"""Chaos: whether an effect stands at nearby delays.

In a run that loses packets or their order, a cable that is 1 ns late changes which packet is dropped, and the
run ends some percents, sometimes a third, sooner or later. One such run with a suspect and one without it
show nothing. So both are emulated again with every NIC slower by up to some hundred ns, each by another
number: shifting all alike would leave packets in their order, and so do shifts far below a frame's time. The
suspect is accused if its runs and those without it are distinguished by ranks (Mann and Whitney, 1947) and by
their medians. Where nothing is lost without the suspect, what was lost was its doing, and nothing is emulated
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

NUDGES_NS: Final = (100, 200, 300, 400)
"""By how much a NIC is slower at most, in each further run."""
MOST_REVERSED: Final = 2
"""Most of the 25 pairs of a run with the suspect and one without, in which the first is no worse. Of runs
that do not differ, one comparison in sixty has so few."""
WORSE: Final = 1.05
"""The median with the suspect, beside that without."""


def nudge_ps(number: int, most_ns: int) -> int:
    """By how much the NIC of a number is slower: 0 to `most_ns` ns, as a hash of both deals it."""
    return ((number + 1) * 40_503 + most_ns * 9_973) % 65_536 * (most_ns + 1) // 65_536 * 1000


def stands(
    with_it: Callable[[int], float | None],
    without_it: Callable[[int], float | None],
    first_with: float,
    first_without: float,
) -> bool:
    """Whether values with a suspect are larger than those without it. Both are functions of the most ns by
    which NICs are slower; where a run cannot be had, those that were had decide.
    """
    bad, good = [first_with], [first_without]
    for nudge_ns in NUDGES_NS:
        more_bad, more_good = with_it(nudge_ns), without_it(nudge_ns)
        if more_bad is None or more_good is None:
            break
        bad.append(more_bad)
        good.append(more_good)
        if sum(one <= other for one in bad for other in good) > MOST_REVERSED:
            return False
    from statistics import median  # noqa: PLC0415 - only where runs were compared

    return median(bad) >= median(good) * WORSE
