"""Do rings take the time of their closed forms where a block has several chunks?

Terms as in `tests.ncclx.test_closed_forms`, which has blocks up to a chunk; a chunk is two slices here.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.ncclx.test_closed_forms import RANKS, SLICE, first, memory, ring_rounds, ring_whole, took_ps

CHUNK: Final = 2 * SLICE
BLOCKS: Final = (5 << 16, 2 << 18, 5 << 17, 15 << 16)
"""Blocks of more than a chunk: of one and a quarter, two, two and a half, three and three quarters."""


def ring_loops(count: int, b: int) -> float:
    """A block of several chunks goes round chunk by chunk: a loop begins when the last slice of the one
    before is in memory, and what it begins with is copied in straight after it, with no CTS to wait for.
    """
    chunks = [min(CHUNK, b - at) for at in range(0, b, CHUNK)]
    again = sum(memory(min(c, SLICE)) - first(min(c, SLICE)) for c in chunks[1:])
    return again + sum(ring_rounds(count, c) for c in chunks)


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_a_ring_of_blocks_larger_than_a_chunk_takes_the_time_of_its_loops(op: str) -> None:
    wrong = []
    for ranks in RANKS:
        for block in BLOCKS:
            count = 2 * (ranks - 1) if op == "all_reduce" else ranks - 1
            took = took_ps(op, "ring", ranks, ranks * block, ncclx={"chunk_steps": CHUNK // SLICE})
            form = ring_loops(count, block)
            if abs(took - form) > 0.02 * form:
                wrong.append((ranks, block, took, round(form), round(took / form, 4)))
    assert wrong == []


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_chain_of_many_chunks_goes_at_the_rate_of_the_line(op: str) -> None:
    wrong = []
    for ranks in RANKS:
        for size in BLOCKS:
            took = took_ps(op, "ring", ranks, size, ncclx={"chunk_steps": CHUNK // SLICE})
            form = ring_whole(ranks, size)
            if abs(took - form) > 0.02 * form:
                wrong.append((ranks, size, took, round(form), round(took / form, 4)))
    assert wrong == []
