"""NVLS and NVLSTree: the NVSwitch reduces and multicasts.

Every GPU of a server is the *head* of its part of the data. The NVSwitch adds up what all GPUs have of a part
while its head reads it, and writes what the head has to all of them: a GPU sends S and receives S / L to
reduce, and the reverse to multicast, at the same time where chunk follows chunk, where direct exchange sends
and receives 2 S (L - 1) / L. `nvls` is all of it inside one server; with `nvls_tree` heads of the same place
do an all_reduce of their part in between, along a tree over the servers: channels take the two trees of
`actors.ncclx.algorithms.trees` in turn.

Data moves in chunks of 128 KiB of each part, 64 KiB from four servers on, and less where there is little
(down to 16 KiB, across servers 32 KiB). All channels of a rank together reduce at most eight chunks ahead of
what they multicast, two at least each, so that both use the links at the same time.

In the graph a reduction is a message from every neighbour to the head on the lane `NVLS_REDUCE`, which take
the head's NVLink once; a multicast is a message from the head to every neighbour on `NVLS_MULTICAST`, which
leave it once (`actors.gpu.nvlink`).

Source: NCCL 2.30, `src/device/all_reduce.h` (NCCL_ALGO_NVLS, NCCL_ALGO_NVLS_TREE), `src/transport/nvls.cc`
(ncclNvlsTuning), `src/enqueue.cc` (calcCollChunking).

Not modelled: NVLS across servers (which needs reductions in the network), registered buffers; the 16 channels
and threads that NCCL sets apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from actors.ncclx.algorithms.hierarchical import Rails
from actors.ncclx.algorithms.trees import double_tree
from actors.ncclx.graph import (
    NVLS_MULTICAST,
    NVLS_REDUCE,
    Algorithm,
    Call,
    Extents,
    Step,
    StepList,
    cut,
    parts,
)

NVLS_CHUNK_BYTES: Final = 128 << 10
"""NCCL_NVLS_CHUNKSIZE."""
_AHEAD: Final = 8


class Nvls(Algorithm):
    """Inside a server."""

    collectives: ClassVar[tuple[str, ...]] = ("all_reduce", "all_gather", "reduce_scatter")
    smaller: ClassVar[tuple[tuple[int, int], ...]] = ((64, 64 << 10), (8, 32 << 10), (2, 16 << 10))
    """Below how many chunks of all parts on all channels a chunk is how small."""

    def chunk_bytes(self, call: Call, heads: int) -> int:
        """How much of a part goes at once."""
        chunk = min(self.most_bytes(call.ranks // heads), call.step_bytes)
        for chunks, less in self.smaller:
            if call.cut_bytes < chunks * call.channels * heads * chunk:
                chunk = min(chunk, less)
        return chunk

    def most_bytes(self, servers: int) -> int:
        """The largest chunk."""
        del servers
        return NVLS_CHUNK_BYTES

    def steps(self, call: Call, rank: int) -> list[Step]:
        rails = Rails(call, rank)
        heads = len(rails.local)
        chunk = self.chunk_bytes(call, heads)
        made = StepList(chunk)
        if call.op == "all_reduce":
            pieces = [cut((one,), chunk) for one in parts(call.whole(), heads)]
        else:
            pieces = [cut(call.blocks((one,)), chunk) for one in rails.local]
        ends: list[int] = []
        ahead = _ahead(call)
        for at in range(max(map(len, pieces))):
            begun = len(made.steps)
            now = [piece[at] if at < len(piece) else () for piece in pieces]
            if call.op != "all_gather":
                _reduce(rails, now, made)
            self._between(call, rails, now[rails.place], made)
            if call.op != "reduce_scatter":
                _multicast(rails, now, made)
            if call.op == "all_reduce" and at >= ahead:
                after = (ends[at - ahead],)
                for place in range(begun, len(made.steps)):
                    step = made.steps[place]
                    if step.lane == NVLS_REDUCE and step.sends:
                        made.steps[place] = step._replace(after=after)
            ends.append(len(made.steps) - 1)
        return made.steps

    def loop(self, call: Call) -> tuple[int, int]:
        heads = call.nodes.count(call.nodes[0])
        blocks = heads if call.op == "all_reduce" else call.ranks
        up_and_down = 2 * (call.ranks // heads - 1).bit_length()
        under_way = _ahead(call) + up_and_down
        return call.channels * blocks * self.chunk_bytes(call, heads), under_way

    def reach(self, call: Call) -> int:
        return _ahead(call)

    def _between(self, call: Call, rails: Rails, data: Extents, made: StepList) -> None:
        """What heads do with their part of a chunk."""


class NvlsTree(Nvls):
    """Across servers."""

    collectives: ClassVar[tuple[str, ...]] = ("all_reduce",)
    smaller: ClassVar[tuple[tuple[int, int], ...]] = ((4, 64 << 10), (1, 32 << 10))

    def most_bytes(self, servers: int) -> int:
        """NCCL_NVLSTREE_MAX_CHUNKSIZE of Hopper GPUs."""
        return NVLS_CHUNK_BYTES if servers < 4 else 64 << 10

    def _between(self, call: Call, rails: Rails, data: Extents, made: StepList) -> None:
        if len(rails.rail) == 1:
            return
        node = double_tree(len(rails.rail), rails.server, call.channel % 2)
        children = [rails.rail[one] for one in node.children]
        if node.parent < 0:
            for child in children[:-1]:
                made.receive(child, data, reduce=True)
            made.forward(children[-1], data, children, reduce=True)
            return
        parent = rails.rail[node.parent]
        if children:
            for child in children[:-1]:
                made.receive(child, data, reduce=True)
            made.forward(children[-1], data, (parent,), reduce=True)
        else:
            made.send(parent, data)
        made.forward(parent, data, children)


def _ahead(call: Call) -> int:
    """How many chunks a rank reduces on a channel ahead of what it multicasts, at most."""
    return max(_AHEAD // call.channels, 2)


def _reduce(rails: Rails, pieces: Sequence[Extents], made: StepList) -> None:
    count = len(rails.local)
    for turn in range(1, count):
        there, back = (rails.place + turn) % count, (rails.place - turn) % count
        made.send(rails.local[there], pieces[there], lane=NVLS_REDUCE)
        made.receive(rails.local[back], pieces[rails.place], reduce=True, lane=NVLS_REDUCE)


def _multicast(rails: Rails, pieces: Sequence[Extents], made: StepList) -> None:
    count = len(rails.local)
    for turn in range(1, count):
        there, back = (rails.place + turn) % count, (rails.place - turn) % count
        made.send(rails.local[there], pieces[rails.place], lane=NVLS_MULTICAST)
        made.receive(rails.local[back], pieces[back], lane=NVLS_MULTICAST)
