"""PAT, parallel aggregated trees: all_gather and reduce_scatter in log2 n messages while blocks are small.

all_gather: every block goes down a binomial tree from its owner, far first. At offset s from the owner it
comes from s without its lowest bit, so that message by message a rank talks to one at distance n/2, n/4, ..
1. A message takes blocks of `aggregated` trees at once, as many as fit one step of the channel buffer: with
all n/2 of them these are log2 n messages of 1, 2, 4 .. blocks; with A of them log2 A messages, then n/A - 1
of A blocks each; with one, n - 1 messages of one block, each to a rank that lacks it. reduce_scatter is the
same backwards: near first, and what comes is reduced.

Ranks that are no power of two leave out offsets beyond the last.

Source: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025; NCCL
2.30, `src/include/collectives.h` (PatAGAlgorithm, PatRSAlgorithm).

Not modelled: NCCL walks the trees depth first, so that few blocks are in its buffers at a time; here blocks
lie in the user's buffer, and nearer to the root goes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from actors.ncclx.graph import Algorithm, Call, Step, StepList, cut


def aggregated(ranks: int, block_bytes: int, step_bytes: int) -> int:
    """How many trees share a message."""
    count = 1
    while 2 * count * block_bytes <= step_bytes and 2 * count < ranks:
        count *= 2
    return count


def messages(ranks: int, count: int) -> Iterator[tuple[int, list[int]]]:
    """The messages of all_gather in order: the distance, and the offsets from their owners at which blocks
    arrive."""
    power = 1 << (ranks - 1).bit_length()
    spacing = power // count
    apart = power // 2
    while apart >= spacing:
        yield apart, list(range(apart, ranks, 2 * apart))
        apart //= 2
    while apart:
        for first in range(apart, spacing, 2 * apart):
            yield apart, list(range(first, ranks, spacing))
        apart //= 2


class Pat(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_gather", "reduce_scatter")

    def steps(self, call: Call, rank: int) -> list[Step]:
        made = StepList(call.chunk_bytes)
        n = call.ranks
        share = max(call.block(one).size_bytes for one in range(n))
        order = list(messages(n, aggregated(n, share, call.step_bytes)))
        gathers = call.op == "all_gather"
        for apart, offsets in order if gathers else reversed(order):
            far, near = (rank + apart) % n, (rank - apart) % n
            to, source = (far, near) if gathers else (near, far)
            beyond = call.blocks((far - one) % n for one in offsets)
            here = call.blocks((rank - one) % n for one in offsets)
            out, into = (beyond, here) if gathers else (here, beyond)
            outs, intos = cut(out, call.chunk_bytes), cut(into, call.chunk_bytes)
            for at in range(max(len(outs), len(intos))):
                if at < len(outs):
                    made.send(to, outs[at])
                if at < len(intos):
                    made.receive(source, intos[at], reduce=not gathers)
        return made.steps
