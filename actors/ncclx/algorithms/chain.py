"""Broadcast and reduce along a ring: from the root on, or towards it, chunk after chunk.

The three collectives of a ring that close the circle are in `actors.ncclx.ring`; here it is open. Source:
NCCL 2.30, `src/device/broadcast.h`, `reduce.h` (runRing).
"""

from __future__ import annotations

from typing import ClassVar

from actors.ncclx.graph import Algorithm, Call, Step, StepList


class Chain(Algorithm):
    """See above."""

    collectives: ClassVar = ("broadcast", "reduce")

    def steps(self, call: Call, rank: int) -> list[Step]:
        n = call.ranks
        made = StepList(call.chunk_bytes)
        data = (call.whole(),)
        # A reduce ends at the root: it begins just after it.
        first = call.root if call.op == "broadcast" else (call.root + 1) % n
        place = (rank - first) % n
        before, after = (rank - 1) % n, (rank + 1) % n
        if place == 0:
            made.send(after, data)
        else:
            onwards = (after,) if place < n - 1 else ()
            made.forward(before, data, onwards, reduce=call.op == "reduce")
        return made.steps
