"""Steps of a job: how long they take, and what of that time is not computing.

A step is from the first rank's begin to the last rank's end, so that time between steps (the controller's
barrier) is not in it. Over the steps of a run and the ranks of the job, in the mean:

    mfu        model FLOPs of a step / (step time x ranks x peak): what the model needs, nothing recomputed
    compute    time that stream 0 computes
    exposed    time that it waits for the communication of a dimension; of PP, what goes beyond the bubble
    bubble     time that it waits for the pipeline, in the step or at its end for the other stages, up to
               (p - 1) / v times what a micro-batch takes it
    other      the rest: waiting at the end for slower ranks, those of other stages apart from those of its
               own; a later begin than the first rank's; of a step that was done again without lost ranks, all
               before

`bubble_ideal` is the closed form (p - 1) / (v m + p - 1), of stages that are alike and a fabric that costs
nothing. Shares are of the step time. `formula_step_ps` is the step with the bubble that SimAI adds where one
stage of a pipeline runs alone.

Source: PaLM (2022), section 4.1 (MFU); Megatron-LM (SC'21), section 2.2 (bubble).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from actors.ncclx.script import LINE, REASONS, UNLABELLED, Group, GroupCall, ScriptPlan
from emu.results.job_facts import JobFacts, JobRows, Outcome
from emu.results.planned_rows import CallPlan
from emu.results.summary_part import KindResult
from emu.results.training_result import OTHER_PARTS, TrainingResult
from emu.workload.training import Model, Training

PIPELINE: Final = "pp"


@dataclass(frozen=True, slots=True)
class TrainingFacts(JobFacts):
    """What the results need to know of a job of steps: training, a trace or a program."""

    steps: int
    step_flops: Fraction
    """Model FLOPs of a step of the whole job."""
    peak_flops_per_s: int
    bubble_ps: tuple[int, ...]
    """By rank: (p - 1) / v times what a micro-batch takes it."""
    bubble_ideal: float
    cut: str
    """E.g. "tp 2 x cp 1 x pp 2 x dp 2, tp innermost"."""
    shrunk: str
    """What is smaller than the model, with its factor; empty if nothing is."""
    reasons: tuple[str, ...] = REASONS
    """What a rank can wait for."""
    members: tuple[tuple[int, ...], ...] = ()
    """Memberships of a job that goes on without ranks that it loses."""
    left_out: str = ""
    """What a step does not do that a real one does, and what it does again; beside the MFU."""
    formula: Fraction | None = None
    """What SimAI's formula adds for a pipeline that is not run, as a share of computing and of waiting for
    tensor and expert parallelism."""
    step_tokens: Fraction = Fraction(0)
    """Tokens of a step of the whole job, scaled as its durations are; 0 where nothing says how many."""
    stages: tuple[int, ...] = ()
    """By rank: its pipeline stage. Empty where all ranks are of one."""

    def planned_steps(self) -> int:
        """The steps of the job."""
        return self.steps

    def memberships(self) -> Sequence[Sequence[int]]:
        """The memberships of a job that goes on without ranks that it loses."""
        return self.members

    def outcomes(self, rows: JobRows) -> list[Outcome | None]:
        """Every step is an operation of the job."""
        return [rows.operations.get(step) for step in range(self.steps)]

    def results(self, rows: JobRows) -> dict[str, KindResult]:
        """Step time, MFU and shares."""
        return {"training": self.training_result(rows)}

    def step_mfu_ppm(self, ranks: int, step_ps: int) -> int | None:
        """The MFU of one step, in millionths; None for a trace."""
        if not self.step_flops or not step_ps:
            return None
        ranks = len(self.members[0]) if self.members else ranks
        return int(self.step_flops * 10**18 / (step_ps * ranks * self.peak_flops_per_s))

    def training_result(self, rows: JobRows) -> TrainingResult:
        """Means over the steps that are over."""
        steps: dict[int, list[Sequence[int]]] = {}
        for row in rows.steps:
            steps.setdefault(row[1], []).append(row)
        memberships = self.members or (range(rows.ranks),)
        whole: list[list[Sequence[int]]] = []
        for _, ranked in sorted(steps.items()):
            number = self.membership_of(rows.ranks, {row[0] for row in ranked})
            if number is not None:
                whole.append([row for row in ranked if row[0] in memberships[number]])
        if not whole:
            return TrainingResult(
                cut=self.cut,
                shrunk=self.shrunk,
                left_out=self.left_out,
                steps=0,
                step_ps=None,
                mfu=None,
                tflops_per_gpu=None,
                compute=None,
                exposed={},
                bubble=None,
                bubble_ideal=self.bubble_ideal,
                other=None,
            )
        times_ps = [max(row[3] for row in ranked) - min(row[2] for row in ranked) for ranked in whole]
        total_ps = sum(times_ps)
        spent_ps = sum(time_ps * len(ranked) for time_ps, ranked in zip(times_ps, whole, strict=True))
        compute_ps = 0
        waited_ps = [0] * len(self.reasons)
        pipeline = self.reasons.index(PIPELINE) if PIPELINE in self.reasons else -1
        bubble_ps = 0
        other_ps = [0] * len(OTHER_PARTS)
        for ranked in whole:
            end_ps = max(row[3] for row in ranked)
            drained_ps: dict[int, int] = {}
            for row in ranked:
                compute_ps += row[4]
                for place in range(len(waited_ps)):
                    waited_ps[place] += row[5 + place]
                if pipeline >= 0:
                    # A wait for another stage is the schedule's bubble up to what the schedule alone makes
                    # of it; what is beyond is exposed communication. A rank that is through before the step
                    # ends spends what is left of its bubble there.
                    budget_ps = self.bubble_ps[row[0]]
                    idle_ps = min(row[5 + pipeline], budget_ps)
                    waited_ps[pipeline] -= idle_ps
                    drained_ps[row[0]] = min(end_ps - row[3], budget_ps - idle_ps)
                    bubble_ps += idle_ps + drained_ps[row[0]]
            parts_ps = _other_ps(ranked, self.stages, drained_ps)
            other_ps = [so_far + more for so_far, more in zip(other_ps, parts_ps, strict=True)]
        inside_ps = sum(ps for name, ps in zip(self.reasons, waited_ps, strict=True) if name in ("tp", "ep"))
        flops = self.step_flops * sum(map(len, whole)) * 10**12 / len(memberships[0])
        tokens = self.step_tokens * sum(map(len, whole)) * 10**12 / len(memberships[0])
        parts = zip(OTHER_PARTS, other_ps, strict=True)
        return TrainingResult(
            cut=self.cut,
            shrunk=self.shrunk,
            left_out=self.left_out,
            steps=len(whole),
            step_ps=total_ps // len(whole),
            mfu=round(float(flops / (spent_ps * self.peak_flops_per_s)), 6) if flops and spent_ps else None,
            tflops_per_gpu=round(float(flops / spent_ps) / 1e12, 3) if flops and spent_ps else None,
            compute=_share(compute_ps, spent_ps),
            exposed={
                name: round(waited_ps[place] / spent_ps, 6)
                for place, name in enumerate(self.reasons)
                if spent_ps
            },
            bubble=_share(bubble_ps, spent_ps),
            bubble_ideal=self.bubble_ideal,
            other=_share(sum(other_ps), spent_ps),
            other_parts={name: round(ps / spent_ps, 6) for name, ps in parts if ps and spent_ps},
            tokens_per_s=round(float(tokens / total_ps), 3) if tokens and total_ps else None,
            step_times_ps=times_ps if self.members else [],
            step_ranks=[len(ranked) for ranked in whole] if self.members else [],
            formula_step_ps=None
            if self.formula is None
            else int((total_ps + self.formula * (compute_ps + inside_ps) / rows.ranks) / len(whole)),
        )


def _share(part_ps: int, whole_ps: int) -> float | None:
    """Share of a step; None of one that took no time."""
    return round(part_ps / whole_ps, 6) if whole_ps else None


def _other_ps(
    ranked: Sequence[Sequence[int]], stages: Sequence[int], drained_ps: Mapping[int, int]
) -> list[int]:
    """What ranks spend in a step on neither computing nor waiting within it, by `OTHER_PARTS`.

    `drained_ps` is what the bubble has of a rank's wait at the end: it is taken from the wait for other
    stages first.
    """
    begin_ps, end_ps = min(row[2] for row in ranked), max(row[3] for row in ranked)
    stage_of = {row[0]: stages[row[0]] if row[0] < len(stages) else 0 for row in ranked}
    stage_end_ps: dict[int, int] = {}
    for row in ranked:
        stage_end_ps[stage_of[row[0]]] = max(stage_end_ps.get(stage_of[row[0]], 0), row[3])
    found = [0] * len(OTHER_PARTS)
    for row in ranked:
        drained = drained_ps.get(row[0], 0)
        others_ps = end_ps - stage_end_ps[stage_of[row[0]]]
        own_ps = end_ps - row[3] - others_ps
        parts = (
            max(others_ps - drained, 0),
            own_ps - max(drained - others_ps, 0),
            row[2] - begin_ps,
            row[3] - row[2] - sum(row[4:]),
        )
        found = [so_far + more for so_far, more in zip(found, parts, strict=True)]
    return found


def facts_of(steps: int, one: Training, whole: Model) -> TrainingFacts:
    """What the results need to know of a training job; `whole` is the model before it was shrunk."""
    smaller: list[str] = []
    if one.model.layers != whole.layers:
        smaller.append(f"layers {one.model.layers} of {whole.layers} (1/{whole.layers / one.model.layers:g})")
    if one.scale != 1:
        smaller.append(f"sizes and durations x {one.scale} (latencies not: the MFU is not comparable)")
    stages = [one.coordinates(rank)["pp"] for rank in range(one.ranks)]
    return TrainingFacts(
        steps=steps,
        step_flops=one.step_flops(),
        peak_flops_per_s=one.peak_flops_per_s,
        bubble_ps=tuple((one.pp - 1) * one.rank_compute_ps(stage) // one.virtual for stage in stages),
        bubble_ideal=round((one.pp - 1) / (one.virtual * one.batches + one.pp - 1), 6),
        cut=f"tp {one.tp} x cp {one.cp} x pp {one.pp} x dp {one.dp}, ranks in order {', '.join(one.order)}",
        shrunk="; ".join(smaller),
        reasons=one.reasons,
        left_out=_left_out(one),
        step_tokens=one.tokens() * one.batches * one.dp * one.scale,
        stages=tuple(stages),
    )


def _left_out(one: Training) -> str:
    """What is not in the step of a training job, in words."""
    again = {
        "none": "activations are kept, nothing is computed again",
        "selective": "attention's scores are computed again",
        "full": "layers are computed again"
        if one.recompute_every == 1
        else f"one layer of {one.recompute_every} is computed again",
    }[one.recompute]
    without = ["embeddings", "clipping of gradients"]
    without += [] if one.memory_bytes_per_s else ["elementwise operators", "the optimizer"]
    return f"{again}; without {', '.join(without[:-1])} and {without[-1]}"


def trace_facts(
    steps: int,
    ranks: int,
    cut: str,
    scale: Fraction,
    reasons: tuple[str, ...],
) -> TrainingFacts:
    """What the results need to know of a trace, which says nothing of FLOPs."""
    return TrainingFacts(
        steps=steps,
        step_flops=Fraction(0),
        peak_flops_per_s=0,
        bubble_ps=(0,) * ranks,
        bubble_ideal=0.0,
        cut=cut,
        shrunk=f"sizes and durations x {scale}" if scale != 1 else "",
        reasons=reasons,
    )


def traced_calls(plan: ScriptPlan, steps: int) -> tuple[CallPlan, ...]:
    """What the results list of a trace: its calls by label, both ends of a transfer in one row."""
    first: dict[int, tuple[GroupCall, Group]] = {}
    callers: Counter[int] = Counter()
    for script in plan.scripts:
        for number, calls in zip(script.groups, script.calls, strict=True):
            for call in calls:
                first.setdefault(call.label, (call, plan.groups[number]))
                callers[call.label] += 1
    return tuple(
        CallPlan(
            label=label,
            op=call.op,
            algorithm=call.algorithm if group.kind != LINE else "",
            communicator=plan.reasons[group.reason % len(plan.reasons)],
            size_bytes=call.size_bytes,
            ranks=len(group.members),
            callers=callers[label],
            step=step,
        )
        for step in range(steps)
        for label, (call, group) in sorted(first.items(), key=lambda one: one[0])
        if label != UNLABELLED
    )
