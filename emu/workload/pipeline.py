"""In which order does a pipeline stage do its forward and backward passes?

One forward, one backward (1F1B): stage r of p begins with p - r - 1 forwards, then alternates, then ends with
as many backwards. Interleaved: a stage has v chunks of layers (chunk c of stage r is stage c p + r of a
pipeline v times as long), takes p micro-batches of a chunk at a time, and begins with 2 (p - r - 1) +
(v - 1) p forwards; micro-batches come in multiples of p.

Uncongested and with equal stages, a step takes m micro-batches and (p - 1) / v more, so that the bubble is
(p - 1) / (v m + p - 1) of it.

Source: Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM
(SC'21), section 2.2; Megatron-LM, `core/pipeline_parallel/schedules.py`.
"""

from __future__ import annotations

from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of one micro-batch through one chunk."""

    forward: bool
    batch: int
    chunk: int


def schedule(stage: int, stages: int, batches: int, chunks: int) -> list[Pass]:
    """The passes of one stage in their order. With `chunks` above 1, `batches` is a multiple of `stages`."""
    assert chunks == 1 or batches % stages == 0, (batches, stages, chunks)
    total = batches * chunks
    first = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
    warm = min(first, total)
    forwards = [_pass(turn, stages, chunks, forward=True) for turn in range(total)]
    backwards = [_pass(turn, stages, chunks, forward=False) for turn in range(total)]
    order = forwards[:warm]
    for turn in range(total - warm):
        order += [forwards[warm + turn], backwards[turn]]
    return order + backwards[total - warm :]


def _pass(turn: int, stages: int, chunks: int, *, forward: bool) -> Pass:
    if chunks == 1:
        return Pass(forward, turn, 0)
    group, within = divmod(turn, stages * chunks)
    chunk, place = divmod(within, stages)
    return Pass(forward, group * stages + place, chunk if forward else chunks - 1 - chunk)
