"""A send/receive graph that a user handed in: chunks by number become extents of this operation.

Where the buffer consists of blocks (not in all_reduce, broadcast, reduce, sendrecv and barrier), chunk c is a
part of block c / (chunks / ranks); in all_to_all, of what goes to or comes from that rank.
"""

from __future__ import annotations

from typing import Final

from actors.ncclx.collectives import BLOCKWISE
from actors.ncclx.graph import DATA, NOBODY, OUTPUT, SCRATCH, Algorithm, Call, Extent, Step, parts, total
from emu.scenario.sections.graph import GraphSection

_BUFFERS: Final = {"data": DATA, "output": OUTPUT, "scratch": SCRATCH}


class Given(Algorithm):
    """The algorithm that a graph describes."""

    def __init__(self, graph: GraphSection) -> None:
        self.graph = graph

    def steps(self, call: Call, rank: int) -> list[Step]:
        made: list[Step] = []
        for step in self.graph.steps[rank]:
            buffer = _BUFFERS[step.buffer]
            here = tuple(self._chunk(call, rank, buffer, chunk) for chunk in step.chunks)
            here = tuple(extent for extent in here if extent.size_bytes)
            copied = tuple(self._chunk(call, rank, DATA, chunk) for chunk in step.copied)
            receive = NOBODY if step.receive is None else step.receive
            if step.copied:
                source = tuple(extent for extent in copied if extent.size_bytes)
            else:
                source = here if receive == NOBODY or step.reduce else ()
            destination = here if receive != NOBODY or step.copied else ()
            if total(here):
                made.append(Step(receive, source, destination, step.send, total(here), step.lane))
        return made

    def _chunk(self, call: Call, rank: int, buffer: int, chunk: int) -> Extent:
        if call.op not in BLOCKWISE:
            return parts(call.whole(buffer), self.graph.chunks)[chunk]
        each = self.graph.chunks // call.ranks
        block = call.block(chunk // each, buffer)
        if call.op in ("all_to_all", "all_to_allv") and buffer == DATA:
            block = call.outgoing(rank, chunk // each)
        elif call.op in ("all_to_all", "all_to_allv") and buffer == OUTPUT:
            block = call.incoming(chunk // each, rank)
        return parts(block, each)[chunk % each]
