"""Broadcast and reduce along a ring: from the root on, or towards it, chunk after chunk.

The three collectives of a ring that close the circle are in `actors.ncclx.algorithms.ring`; here it is open.
Source: NCCL 2.30, `src/device/broadcast.h`, `reduce.h` (runRing).
"""

from __future__ import annotations

from typing import ClassVar

from actors.ncclx.graph import Algorithm, Call, Step, StepList


class Chain(Algorithm):
    """See above."""

    collectives: ClassVar = ("broadcast", "reduce")

    def steps(self, call: Call, rank: int) -> list[Step]:
        n = call.ranks
        ring = call.ring()
        at = ring.index(rank)
        made = StepList(call.chunk_bytes)
        data = (call.whole(),)
        # A reduce ends at the root: it begins just after it.
        first = ring.index(call.root) + (call.op == "reduce")
        place = (at - first) % n
        before, after = ring[at - 1], ring[(at + 1) % n]
        if place == 0:
            made.send(after, data)
        else:
            onwards = (after,) if place < n - 1 else ()
            made.forward(before, data, onwards, reduce=call.op == "reduce")
        return made.steps
