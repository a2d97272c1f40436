"""Results that came out wrong (`payload: real`), though no job became slower or failed.

Each element of a result is compared with what it has to be. A frame that a link spoils fails its FCS or ICRC
and is sent again, so wrong elements come from the memory of a GPU. Where one rank alone has them, its GPU is
named; a collective that reduces spreads them to all ranks, and then the job is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emu.base.spelling import listed
from emu.base.units import about_size, counted, shown_time
from emu.views.diagnosis.finding import WRONG, Finding
from emu.views.diagnosis.view import View

SCORE: Final = 950
MOST_LINES: Final = 4
MOST_RANKS: Final = 4


def found(view: View) -> Iterator[Finding]:
    """A finding for each job with wrong elements."""
    for plan in view.plans:
        wrong = [one for one in view.jobs[plan.name].collectives if one.wrong]
        if not wrong:
            continue
        ranks = sorted({rank for one in wrong for rank in one.wrong_ranks})
        place = view.name(plan.gpus[ranks[0]]) if len(ranks) == 1 else plan.name
        elements = counted(sum(one.wrong or 0 for one in wrong), "element")
        first = wrong[0]
        sentence = (
            f"{elements} of {counted(len(wrong), 'operation')} of {plan.name} came out wrong, first of"
            f" {first.op} {about_size(first.bytes)}, iteration {first.iteration}, on rank"
            f" {listed(map(str, first.wrong_ranks), MOST_RANKS)}; the checks of frames passed, so the"
            " memory of a GPU changed them"
        )
        evidence = [
            f"{plan.name}: {one.op} {about_size(one.bytes)}, iteration {one.iteration}, done at"
            f" {shown_time(one.end_ps or 0)}: wrong {one.wrong}"
            for one in wrong[:MOST_LINES]
        ]
        yield Finding(WRONG, place, SCORE, sentence, tuple(evidence), since_ps=-1, has_impact=True)
