"""Recursive doubling, and recursive halving with doubling.

Recursive doubling: in round k rank r exchanges with r xor 2^k all it has. all_reduce: the whole vector, in
log2 n rounds; all_gather: the blocks gathered so far. Halving-doubling: reduce_scatter halves what is
exchanged in every round, from n/2 apart to neighbours; all_gather goes the way back; all_reduce is both.

Where n is no power of two, the first 2 (n - p) ranks (p the next lower power) pair up: each even one gives
what it has to the odd one after it, which takes part for both, and gets the result in the end.

Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", 2005;
Rabenseifner, "Optimization of Collective Reduction Operations", 2004.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from actors.ncclx.graph import Algorithm, Call, Extent, Extents, Step, StepList, parts


class _Folded:
    """Who takes part: `part` is a rank's number among the `count` that do, -1 for one that sits out."""

    def __init__(self, ranks: int, rank: int) -> None:
        self.count = 1 << (ranks.bit_length() - 1)
        self.extra = ranks - self.count
        self.folds = rank < 2 * self.extra
        self.partner = rank ^ 1
        """Who it pairs up with, if it folds."""
        self.part = rank - self.extra
        if self.folds:
            self.part = rank // 2 if rank % 2 else -1

    def rank(self, part: int) -> int:
        """The rank that has a number."""
        return 2 * part + 1 if part < self.extra else part + self.extra

    def behind(self, part: int) -> tuple[int, ...]:
        """The ranks that one of those who take part stands for."""
        return (2 * part, 2 * part + 1) if part < self.extra else (part + self.extra,)

    def rounds(self) -> list[int]:
        """Distances, from neighbours on."""
        return [1 << turn for turn in range(self.count.bit_length() - 1)]


class RecursiveDoubling(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_reduce", "all_gather", "barrier")

    def steps(self, call: Call, rank: int) -> list[Step]:
        made = StepList(call.chunk_bytes)
        group = _Folded(call.ranks, rank)
        if call.op == "all_gather":
            _gathered(call, rank, group, made)
            return made.steps
        whole = (call.whole(),)
        if group.folds and group.part < 0:
            made.send(group.partner, whole)
            made.receive(group.partner, whole)
            return made.steps
        if group.folds:
            made.receive(group.partner, whole, reduce=True)
        for apart in group.rounds():
            made.exchange(group.rank(group.part ^ apart), whole, whole, reduce=True)
        if group.folds:
            made.send(group.partner, whole)
        return made.steps


def _gathered(call: Call, rank: int, group: _Folded, made: StepList) -> None:
    """all_gather by doubling."""

    def held(first: int, count: int) -> Extents:
        return call.blocks(one for part in range(first, first + count) for one in group.behind(part))

    everyone = call.blocks(other for other in range(call.ranks) if other not in (rank, group.partner))
    if group.folds and group.part < 0:
        made.send(group.partner, call.blocks((rank,)))
        made.receive(group.partner, call.blocks((group.partner,)))
        made.receive(group.partner, everyone)
        return
    if group.folds:
        made.receive(group.partner, call.blocks((group.partner,)))
        made.send(group.partner, call.blocks((rank,)))
    for apart in group.rounds():
        mine = group.part // apart * apart
        made.exchange(group.rank(group.part ^ apart), held(mine, apart), held(mine ^ apart, apart))
    if group.folds:
        made.send(group.partner, everyone)


class HalvingDoubling(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_reduce", "reduce_scatter", "all_gather")

    def steps(self, call: Call, rank: int) -> list[Step]:
        made = StepList(call.chunk_bytes)
        group = _Folded(call.ranks, rank)
        if call.op == "all_gather":
            _gathered(call, rank, group, made)
        elif call.op == "reduce_scatter":
            self._reduce_scatter(call, rank, group, made)
        else:
            self._all_reduce(call, group, made)
        return made.steps

    def _all_reduce(self, call: Call, group: _Folded, made: StepList) -> None:
        whole = (call.whole(),)
        if group.folds and group.part < 0:
            made.send(group.partner, whole)
            made.receive(group.partner, whole)
            return
        if group.folds:
            made.receive(group.partner, whole, reduce=True)
        blocks = [(block,) for block in parts(call.whole(), group.count)]
        _halve(group, blocks, made)
        for apart in group.rounds():
            mine = group.part // apart * apart
            made.exchange(
                group.rank(group.part ^ apart), _join(blocks, mine, apart), _join(blocks, mine ^ apart, apart)
            )
        if group.folds:
            made.send(group.partner, whole)

    def _reduce_scatter(self, call: Call, rank: int, group: _Folded, made: StepList) -> None:
        everything = call.blocks(range(call.ranks))
        if group.folds and group.part < 0:
            made.send(group.partner, everything)
            made.receive(group.partner, call.blocks((rank,)))
            return
        if group.folds:
            made.receive(group.partner, everything, reduce=True)
        blocks = [call.blocks(group.behind(part)) for part in range(group.count)]
        _halve(group, blocks, made)
        if group.folds:
            made.send(group.partner, call.blocks((group.partner,)))


def _join(blocks: Sequence[Extents], first: int, count: int) -> Extents:
    """Several neighbouring blocks, what has no bytes left out."""
    found: list[Extent] = []
    for block in blocks[first : first + count]:
        found += (extent for extent in block if extent.size_bytes)
    return tuple(found)


def _halve(group: _Folded, blocks: Sequence[Extents], made: StepList) -> None:
    """Recursive halving: in the end each has the sum of its own block."""
    for apart in reversed(group.rounds()):
        mine = group.part // apart * apart
        made.exchange(
            group.rank(group.part ^ apart),
            _join(blocks, mine ^ apart, apart),
            _join(blocks, mine, apart),
            reduce=True,
        )
