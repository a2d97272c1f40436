"""Which trace does a job replay? Workload `trace`: a workload text of SimAI, as AICB makes it.

How the text is read, and what of it is not modelled, is in `emu.workload.simai`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from emu.scenario.section import Refusal, Section
from emu.scenario.values import PositiveFraction
from emu.workload.simai import SimaiError, SimaiPlan, read_simai


class TraceWorkload(Section):
    """Steps as a trace tells them."""

    kind: Literal["trace"] = "trace"
    """A trace."""
    form: Literal["simai"] = "simai"
    """SimAI's workload text."""
    file: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """The file, relative to the scenario's own directory; loading puts its text in place."""
    text: Annotated[str, Field(max_length=2**22)] | None = None
    """The text itself."""
    scale: PositiveFraction = Fraction(1)
    """What every size and every duration is multiplied with, at most 1."""
    steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """Steps, one after another."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a text that is no such workload."""
        if self.text is None:
            yield Refusal(("text",), "is missing", "`file`, or the text itself")
            return
        try:
            read_simai(self.text)
        except SimaiError as error:
            yield Refusal(("text",), f"line {error.line}: {error.reason}", error.accepted)
        if self.scale > 1:
            yield Refusal(("scale",), f"{self.scale} is above 1", "a fraction above 0 and up to 1")

    def cut(self) -> str:
        """How it is cut over the ranks."""
        simai = read_simai(self.text or "")
        return f"SimAI: {len(simai.layers)} layers, tp {simai.tp}, ep {simai.ep}"

    def planned(self, ranks: int) -> SimaiPlan | str:
        """What so many ranks do, or why it does not fit them."""
        simai = read_simai(self.text or "")
        if simai.ranks is not None and simai.ranks != ranks:
            return f"the text is for {simai.ranks} GPUs, the job has {ranks}"
        if ranks % (simai.tp * simai.ep):
            return f"tp {simai.tp} x ep {simai.ep} does not divide {ranks} ranks"
        return SimaiPlan(simai, ranks, self.scale)
