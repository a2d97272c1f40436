"""What results need to know of the steps of a job: FLOPs, bubble, how the job is cut, memberships."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from actors.ncclx.script import REASONS
from emu.workload.training import Model, Training


class TrainingFacts(NamedTuple):
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
