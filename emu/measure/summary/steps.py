"""Time of a training step, and what of it is not computing.

A step is from the first rank's begin to the last rank's end, so that time between steps (the controller's
barrier) is not in it. Over the steps of a run and the ranks of the job, in the mean:

    mfu        model FLOPs of a step / (step time x ranks x peak): what the model needs, nothing recomputed
    compute    time that stream 0 computes
    exposed    time that it waits for the communication of a dimension; of PP, what goes beyond the bubble
    bubble     time that it waits for the pipeline, in the step or at its end for the other stages, up to
               (p - 1) / v times what a micro-batch takes it
    other      the rest: waiting at the end for slower ranks; of a step that was done again without lost
               ranks, all before

`bubble_ideal` is the closed form (p - 1) / (v m + p - 1), of stages that are alike and a fabric that costs
nothing. Shares are of the step time. `formula_step_ps` is the step with the bubble that SimAI adds where one
stage of a pipeline runs alone.

Source: PaLM (2022), section 4.1 (MFU); Megatron-LM (SC'21), section 2.2 (bubble).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from emu.results.summary import TrainingResult
from emu.workload.step_facts import TrainingFacts

PIPELINE = "pp"


def training_result(facts: TrainingFacts, ranks: int, rows: Iterable[Sequence[int]]) -> TrainingResult:
    """From rows of rank, step, begin, end, compute, waits by reason."""
    steps: dict[int, list[Sequence[int]]] = {}
    for row in rows:
        steps.setdefault(row[1], []).append(row)
    memberships = facts.members or (range(ranks),)
    whole: list[list[Sequence[int]]] = []
    for _, ranked in sorted(steps.items()):
        number = membership_of(facts, ranks, {row[0] for row in ranked})
        if number is not None:
            whole.append([row for row in ranked if row[0] in memberships[number]])
    if not whole:
        return TrainingResult(
            cut=facts.cut,
            shrunk=facts.shrunk,
            left_out=facts.left_out,
            steps=0,
            step_ps=None,
            mfu=None,
            tflops_per_gpu=None,
            compute=None,
            exposed={},
            bubble=None,
            bubble_ideal=facts.bubble_ideal,
            other=None,
        )
    times_ps = [max(row[3] for row in ranked) - min(row[2] for row in ranked) for ranked in whole]
    total_ps = sum(times_ps)
    spent_ps = sum(time_ps * len(ranked) for time_ps, ranked in zip(times_ps, whole, strict=True))
    compute_ps = 0
    waited_ps = [0] * len(facts.reasons)
    pipeline = facts.reasons.index(PIPELINE) if PIPELINE in facts.reasons else -1
    bubble_ps = 0
    for ranked in whole:
        end_ps = max(row[3] for row in ranked)
        for row in ranked:
            compute_ps += row[4]
            for place in range(len(waited_ps)):
                waited_ps[place] += row[5 + place]
            if pipeline >= 0:
                budget_ps = facts.bubble_ps[row[0]]
                idle_ps = min(row[5 + pipeline], budget_ps)
                waited_ps[pipeline] -= idle_ps
                bubble_ps += idle_ps + min(end_ps - row[3], budget_ps - idle_ps)
    inside_ps = sum(ps for name, ps in zip(facts.reasons, waited_ps, strict=True) if name in ("tp", "ep"))
    flops = facts.step_flops * sum(map(len, whole)) * 10**12 / len(memberships[0])
    other_ps = spent_ps - compute_ps - sum(waited_ps) - bubble_ps
    return TrainingResult(
        cut=facts.cut,
        shrunk=facts.shrunk,
        left_out=facts.left_out,
        steps=len(whole),
        step_ps=total_ps // len(whole),
        mfu=round(float(flops / (spent_ps * facts.peak_flops_per_s)), 6) if flops and spent_ps else None,
        tflops_per_gpu=round(float(flops / spent_ps) / 1e12, 3) if flops and spent_ps else None,
        compute=_share(compute_ps, spent_ps),
        exposed={
            name: round(waited_ps[place] / spent_ps, 6)
            for place, name in enumerate(facts.reasons)
            if spent_ps
        },
        bubble=_share(bubble_ps, spent_ps),
        bubble_ideal=facts.bubble_ideal,
        other=_share(other_ps, spent_ps),
        step_times_ps=times_ps if facts.members else [],
        step_ranks=[len(ranked) for ranked in whole] if facts.members else [],
        formula_step_ps=None
        if facts.formula is None
        else int((total_ps + facts.formula * (compute_ps + inside_ps) / ranks) / len(whole)),
    )


def membership_of(facts: TrainingFacts, ranks: int, through: Collection[int]) -> int | None:
    """In which membership of its job a step was done that these ranks are through with; None if it is not
    over. Most jobs have one, of all ranks.
    """
    for number, members in enumerate(facts.members or (range(ranks),)):
        if all(rank in through for rank in members):
            return number
    return None


def step_mfu_ppm(facts: TrainingFacts | None, ranks: int, step_ps: int) -> int | None:
    """The MFU of one step, in millionths; None of what has no FLOPs."""
    if facts is None or not facts.step_flops or not step_ps:
        return None
    ranks = len(facts.members[0]) if facts.members else ranks
    return int(facts.step_flops * 10**18 / (step_ps * ranks * facts.peak_flops_per_s))


def _share(part_ps: int, whole_ps: int) -> float | None:
    """Share of a step; None of one that took no time."""
    return round(part_ps / whole_ps, 6) if whole_ps else None
