"""What does `summary.json` say of a training job?

See `emu.measure.summary.summary`, whose parts share the base that is here; how the values come about is in
`emu.measure.summary.steps`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Base of the parts: frozen, nothing unknown."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        allow_inf_nan=False,
        ser_json_inf_nan="null",
    )


class TrainingResult(Part):
    """What became of a training job's steps. Shares are of the step time, over ranks and steps."""

    cut: str
    """How it is cut over the ranks."""
    shrunk: str
    """What is smaller than the model, with its factor; empty if nothing is."""
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
