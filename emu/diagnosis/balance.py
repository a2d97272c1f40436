"""Groups of equal ports that are loaded less evenly than they were meant to be.

A switch spreads flows over equal ports by a hash, and how evenly is luck; some unevenness is in every run and
no answer to anything. So a group is told only where the fullest of its members carried `WORSE_PERMILLE` more
of the mean than in the run that this one is compared with (`emu.diagnosis.slow_jobs`): then flows collide
here that do not collide there. What moved them (a drifted hash, a link that is gone) ranks before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emu.diagnosis.finding import Finding
from emu.diagnosis.view import View
from emu.measure.summary.summary import GroupLoad, Reference
from emu.units import about_size

WORSE_PERMILLE: Final = 1250


def group_name(row: GroupLoad) -> str:
    """A group by its switch and whom its members lead to."""
    return f"{row.switch} towards {', '.join(row.towards)}"


def loads_of(rows: list[GroupLoad]) -> dict[str, float]:
    """The fullest member over the mean, by group."""
    return {group_name(row): row.max_over_mean for row in rows if row.max_over_mean is not None}


def found(view: View, reference: Reference) -> Iterator[Finding]:
    """Groups that are loaded less evenly than in the run compared with, the worst first."""
    for row in view.groups:
        meant = reference.imbalance.get(group_name(row))
        if row.max_over_mean is None or meant is None:
            continue
        if row.max_over_mean * 1000 < meant * WORSE_PERMILLE:
            continue
        fullest = row.towards[row.loads.index(max(row.loads))]
        worse = int(row.max_over_mean * 1000 / meant) - 1000
        loads = [f"{name} {about_size(load)}" for name, load in zip(row.towards, row.loads, strict=True)]
        yield Finding(
            "imbalance",
            row.switch,
            600 + min(worse // 20, 100),
            f"flows collide at {row.switch}: of {row.members} equal ports the one towards {fullest} carried "
            f"{row.max_over_mean:.2f} times the mean, and {meant:.2f} times where all is well",
            (f"{row.switch}: payload sent towards {', '.join(loads)}",),
            -1,
            harms=True,
        )
