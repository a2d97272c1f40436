"""Workload `open`: a job whose transfers, collectives and computing are posted while the run goes on.

Who posts, and what: `emu.open`, docs/open.md.
"""

from typing import ClassVar, Literal

from actors.ncclx.script import Script, ScriptPlan
from emu.scenario.workloads.workload import Scripts, Site, Workload


class OpenWorkload(Workload):
    """Whatever programs outside post."""

    posted_from_outside: ClassVar[bool] = True

    kind: Literal["open"] = "open"
    """Posts of programs outside (`emu.open`, `emu serve`)."""

    def fit(self, site: Site) -> Scripts:
        """What the ranks do by themselves: nothing."""
        plan = ScriptPlan()
        plan.reasons = ("posts",)
        plan.scripts = [Script(rank) for rank in range(len(site.gpus))]
        return Scripts(plan)
