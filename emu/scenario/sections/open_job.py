"""Workload `open`: a job whose transfers, collectives and computing are posted while the run goes on.

Who posts, and what: `emu.open`, docs/open.md.
"""

from __future__ import annotations

from typing import Literal

from actors.ncclx.script import Script, ScriptPlan
from emu.scenario.section import Section


class OpenWorkload(Section):
    """Whatever programs outside post."""

    kind: Literal["open"] = "open"
    """Posts of programs outside (`emu.open`, `emu serve`)."""

    def planned(self, ranks: int) -> ScriptPlan:
        """What the ranks do by themselves: nothing."""
        plan = ScriptPlan()
        plan.reasons = ("posts",)
        plan.scripts = [Script(rank) for rank in range(ranks)]
        return plan
