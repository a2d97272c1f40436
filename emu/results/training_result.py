"""Result of a job of steps, `jobs.NAME.training`: its step time and where the time went, and its report."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from emu.base.records import Field
from emu.base.units import about_time, counted
from emu.results.summary_part import KindResult

OTHER_PARTS: Final = {
    "other_stages": "waiting at its end for other stages",
    "own_stage": "waiting at its end for ranks of the same stage",
    "late_begin": "beginning later than the first rank",
    "done_again": "done again",
}
"""Keys of `other_parts`, and what they are in words."""
LEAST_SHOWN: Final = 0.0005
"""A smaller share of a step would be shown as 0.0 %."""


class TrainingResult(KindResult):
    """What became of a training job's steps. Shares are of the step time, over ranks and steps."""

    cut: str
    """How it is cut over the ranks."""
    shrunk: str
    """What is smaller than the model, with its factor; empty if nothing is."""
    left_out: str
    """What a step does not do that a real one does, and what it computes again; empty of a trace."""
    steps: int
    """Steps that every rank finished."""
    step_ps: int | None
    """Mean time of a step, from the first rank's begin to the last rank's end."""
    mfu: float | None
    """Model FLOPs over what the GPUs could have done at peak rate; null for a trace."""
    tflops_per_gpu: float | None
    """Model TFLOP/s of a GPU; null for a trace."""
    compute: float | None
    """Share of computing."""
    exposed: dict[str, float]
    """Share of waiting for communication, by dimension (`tp`, `cp`, `pp`, `dp`, `ep`; of `pp` what goes
    beyond the bubble), or by what a trace names: its process groups (`world` for all ranks), transfers
    (`p2p`), the CPU (`cpu`)."""
    bubble: float | None
    """Share of waiting for the pipeline, at the end of a step too, up to (p - 1) / v times what a micro-batch
    takes."""
    bubble_ideal: float
    """(p - 1) / (v m + p - 1)."""
    other: float | None
    """The rest: waiting for slower ranks at the end of a step."""
    other_parts: dict[str, float] = Field(default_factory=dict)
    """What `other` is made of: `other_stages` and `own_stage` (waiting at the end of a step for ranks of
    other pipeline stages, beyond the bubble, or of the same one), `late_begin` (the first rank had begun
    earlier), `done_again` (a step that was done again: all before)."""
    tokens_per_s: float | None = None
    """Tokens of a step over its time, of the whole job; null where nothing says how many."""
    formula_step_ps: int | None = None
    """The step with SimAI's bubble, of a SimAI text that is run with `pipeline: formula`; null elsewhere."""
    step_times_ps: list[int] = Field(default_factory=list)
    """Time of each step of a job with `recover`; of one that was done again from its first beginning."""
    step_ranks: list[int] = Field(default_factory=list)
    """How many ranks did each step."""

    def lines(self, job: str) -> list[str]:
        """The step of a job, its shares, and what its numbers leave out."""
        lines = [f"# {job}: {self.cut}{f'; shrunk: {self.shrunk}' if self.shrunk else ''}"]
        if self.step_ps is None:
            return [*lines, "no step was finished"]
        if self.compute is None:
            return [*lines, f"step {about_time(self.step_ps)} (mean of {self.steps})"]
        exposed = ", ".join(f"{dimension} {part:.1%}" for dimension, part in self.exposed.items() if part)
        return [
            *lines,
            (
                f"step {about_time(self.step_ps)} (mean of {self.steps})"
                + (f", MFU {self.mfu:.1%}, {self.tflops_per_gpu} TFLOP/s per GPU" if self.mfu else "")
                + (f", {self.tokens_per_s:,.0f} tokens a second" if self.tokens_per_s else "")
            ),
            (
                f"computing {self.compute:.1%}, exposed: {exposed or 'nothing'}, bubble {self.bubble:.1%}"
                f", other {self.other:.1%}"
            ),
            *self._notes(),
            *([f"the MFU counts: {self.left_out}"] if self.mfu and self.left_out else []),
            *(
                [f"with SimAI's bubble, by its formula: {about_time(self.formula_step_ps)}"]
                if self.formula_step_ps is not None
                else []
            ),
            *self._by_ranks(),
        ]

    def _notes(self) -> Iterator[str]:
        """What the bubble is to be compared with, and what `other` is made of."""
        if self.bubble and self.compute is not None and self.bubble_ideal:
            work = self.bubble / (self.bubble + self.compute)
            yield f"the bubble is {work:.1%} of computing and bubble; closed form {self.bubble_ideal:.1%}"
        shown = {name: part for name, part in self.other_parts.items() if part >= LEAST_SHOWN}
        if shown:
            parts = ", ".join(f"{OTHER_PARTS[name]} {part:.1%}" for name, part in shown.items())
            yield f"other, of the step: {parts}"

    def _by_ranks(self) -> Iterator[str]:
        """The steps of a job that goes on without ranks, with as many: a line for each change."""
        done = zip(self.step_ranks, self.step_times_ps, strict=True)
        for ranks, steps in groupby(done, key=itemgetter(0)):
            times = [time_ps for _, time_ps in steps]
            longest = f" to {about_time(max(times))}" if max(times) > min(times) else ""
            yield f"with {ranks} ranks {counted(len(times), 'step')}: {about_time(min(times))}{longest}"
