"""What is the matter with a run, the likeliest cause first?

Every family of causes is asked for findings. A finding is told if something suffered from it:

1. a job failed, or the run came to no end, and the cause began before that;
2. its own evidence is something to be called for (`alarms`), and something was;
3. a job became slower by 5 % or more after it began (`emu.diagnosis.pace`);
4. nothing ended before it began, or nobody knows when that was, and its evidence speaks for harm.

What is left is ranked by how direct the evidence is. Nothing left, and nothing slower: nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from emu.diagnosis import bad_links, cabling, drift, lost_links, pauses, queue_pairs, ranks, slow_gpus
from emu.diagnosis.finding import CAUSES, Finding
from emu.diagnosis.pace import SLOWER_PERMILLE, failed_jobs, slower
from emu.diagnosis.view import View
from emu.measure.summary_diagnosis import Diagnosed

FAMILIES: Final[tuple[Callable[[View], Iterator[Finding]], ...]] = (
    lost_links.found,
    bad_links.found,
    pauses.found,
    slow_gpus.found,
    queue_pairs.found,
    drift.found,
    cabling.found,
    ranks.found,
)
MOST_TOLD: Final = 5


def diagnose(view: View) -> list[Diagnosed]:
    """What suffered, and from what, best first; at most `MOST_TOLD`."""
    suffering = sorted((one for one in findings(view) if suffered(view, one)), key=Finding.order)
    return [
        Diagnosed(
            cause=one.cause,
            place=one.place,
            score=one.score,
            since_ps=one.since_ps,
            sentence=one.sentence,
            evidence=[*one.evidence, *_slowdown(view, one)],
        )
        for one in suffering[:MOST_TOLD]
    ]


def findings(view: View) -> list[Finding]:
    """Everything that is not as it should be, harmless or not."""
    found = [one for family in FAMILIES for one in family(view)]
    assert all(one.cause in CAUSES for one in found), found
    return found


def suffered(view: View, finding: Finding) -> bool:
    """Whether anything suffered from what was found."""
    if failed_jobs(view) or view.ending in ("stalled", "time_limit"):
        return True
    if finding.alarms and view.alarms():
        return True
    grown = slower(view, finding.since_ps)
    if finding.harms and (grown is None or finding.since_ps < 0):
        return True
    return grown is not None and grown[1] >= SLOWER_PERMILLE


def _slowdown(view: View, finding: Finding) -> list[str]:
    grown = slower(view, finding.since_ps)
    if grown is None or grown[1] < SLOWER_PERMILLE:
        return []
    return [f"{grown[0]}: {grown[1] // 10}% more time since"]
