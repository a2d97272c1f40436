"""Stragglers of the scenario: ranks that `workload.stragglers` makes slower than the others.

The scenario is the intended state, so a comparison with the intended fabric finds no impact: the rank is as
slow there. That a job waits for one of its ranks is reported all the same, since a diagnosis is asked what
slows a job. A rank counts from the share by which a job has to become slower to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emu.views.diagnosis.finding import GIVEN, Finding
from emu.views.diagnosis.impact import SLOWER_PERMILLE
from emu.views.diagnosis.view import View

SCORE: Final = 780


def found(view: View) -> Iterator[Finding]:
    """The slowest rank of each job that has such ranks, and how many more there are."""
    sections = {job.name: job.workload for job in view.scenario.jobs}
    for plan in view.plans:
        workload = sections.get(plan.name)
        if not plan.enabled or workload is None:
            continue
        slow = {rank: by for rank, by in workload.slow_ranks().items() if by * 1000 >= 1000 + SLOWER_PERMILLE}
        if not slow:
            continue
        worst = max(slow, key=lambda rank: slow[rank])
        gpu = view.name(plan.gpus[worst])
        others = f"; {len(slow) - 1} more ranks are slower than the rest" if len(slow) > 1 else ""
        times = f"{float(slow[worst]):g} times as long as it should"
        sentence = (
            f"{gpu} (rank {worst} of {plan.name}) computes {times}, because the scenario says so"
            f" (workload.stragglers){others}; the intended fabric has it, too"
        )
        evidence = tuple(
            f"jobs.{plan.name}.workload.stragglers: rank {rank}, slowdown {float(by):g}"
            for rank, by in slow.items()
        )
        yield Finding(GIVEN, gpu, SCORE, sentence, evidence, since_ps=-1, alarms=True, has_impact=True)
