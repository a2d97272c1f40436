"""An algorithm that a user wrote down step by step: chunks by number become extents of this operation.

Where the buffer consists of blocks (not in all_reduce, broadcast, reduce, sendrecv and barrier), chunk c is a
part of block c / (chunks / ranks); in all_to_all, of what goes to or comes from that rank.
"""

from collections.abc import Sequence
from typing import NamedTuple

from actors.ncclx.graph import DATA, NOBODY, OUTPUT, Algorithm, Call, Extent, Extents, Step, part, total
from actors.ncclx.operations import BLOCKWISE


class GivenStep(NamedTuple):
    """One step of one rank, over chunks by number."""

    receive: int
    """Rank that the chunks come from, or NOBODY."""
    reduce: bool
    """Whether what comes is added to what is there."""
    copied: tuple[int, ...]
    """Chunks of DATA that are copied into `chunks`, where nothing is received."""
    send: tuple[int, ...]
    """Ranks that the chunks go to."""
    chunks: tuple[int, ...]
    buffer: int
    """Buffer of the chunks: DATA, OUTPUT or SCRATCH."""
    lane: int = 0


class Given(Algorithm):
    """The algorithm of these steps of each rank, which cut the buffer into so many chunks."""

    def __init__(self, chunks: int, steps_of: Sequence[Sequence[GivenStep]]) -> None:
        self._chunks = self.pieces = chunks
        self._steps_of = steps_of

    def content(self) -> object:
        return self._chunks, self._steps_of

    def steps(self, call: Call, rank: int) -> list[Step]:
        made: list[Step] = []
        known: dict[tuple[int, tuple[int, ...]], Extents] = {}
        for step in self._steps_of[rank]:
            here = self._extents(call, rank, step.buffer, step.chunks, known)
            receive = step.receive
            if step.copied:
                source = self._extents(call, rank, DATA, step.copied, known)
            else:
                source = here if receive == NOBODY or step.reduce else ()
            destination = here if receive != NOBODY or step.copied else ()
            if size_bytes := total(here):
                made.append(Step(receive, source, destination, step.send, size_bytes, step.lane))
        return made

    def _extents(
        self,
        call: Call,
        rank: int,
        buffer: int,
        chunks: tuple[int, ...],
        known: dict[tuple[int, tuple[int, ...]], Extents],
    ) -> Extents:
        """Where these chunks are, those with nothing in them left out."""
        found = known.get((buffer, chunks))
        if found is None:
            every = (self._chunk(call, rank, buffer, chunk) for chunk in chunks)
            found = known[buffer, chunks] = tuple(extent for extent in every if extent.size_bytes)
        return found

    def _chunk(self, call: Call, rank: int, buffer: int, chunk: int) -> Extent:
        if call.op not in BLOCKWISE:
            return part(call.whole(buffer), self._chunks, chunk)
        each = self._chunks // call.ranks
        block = call.block(chunk // each, buffer)
        if call.op in ("all_to_all", "all_to_allv") and buffer == DATA:
            block = call.outgoing(rank, chunk // each)
        elif call.op in ("all_to_all", "all_to_allv") and buffer == OUTPUT:
            block = call.incoming(chunk // each, rank)
        return part(block, each, chunk % each)
