"""Hierarchical: inside the servers first, then along the rails between them.

With L ranks on each of M servers, those with the same place in their server form a *rail*. all_reduce: a
direct reduce_scatter inside the server, a ring all_reduce of each part along its rail, a direct all_gather
inside. reduce_scatter is the first two steps (the ring's first half), all_gather the way back.

`pxn` does all_to_all: what goes to another server is first given to the neighbour on the rail of its
receiver, which sends one message for all neighbours, so that nothing crosses from rail to rail between
servers and each rank talks to M - 1 + L - 1 others in place of L M - 1.

All servers must have equally many ranks; a server's ranks are in the order of their numbers.

Source: NCCL 2.12, "PXN" (NVIDIA, "Doubling all2all Performance with NCCL 2.12", 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from actors.ncclx.algorithms.trees import in_servers
from actors.ncclx.graph import SCRATCH, Algorithm, Call, Extent, Extents, Step, StepList, cut, parts


class Rails:
    """Where a rank is: its server's ranks, its rail's, and its place in both."""

    def __init__(self, call: Call, rank: int) -> None:
        known = in_servers(call.nodes)
        self.servers = known.servers
        assert len({len(ranks) for ranks in self.servers}) == 1, call.nodes
        self.server = known.server_of[rank]
        self.local = self.servers[self.server]
        self.place = self.local.index(rank)
        self.rail = [ranks[self.place] for ranks in self.servers]


class Hierarchical(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_reduce", "all_gather", "reduce_scatter")

    def steps(self, call: Call, rank: int) -> list[Step]:
        rails = Rails(call, rank)
        made = StepList(call.chunk_bytes)
        inside: list[Extents]
        blocks: list[Extents]
        if call.op == "all_reduce":
            split = parts(call.whole(), len(rails.local))
            inside = [(one,) for one in split]
            blocks = [(one,) for one in parts(split[rails.place], len(rails.rail))]
        else:
            inside = [call.blocks(ranks[at] for ranks in rails.servers) for at in range(len(rails.local))]
            blocks = [call.blocks((one,)) for one in rails.rail]
        if call.op != "all_gather":
            _inside(rails, inside, made, reduce=True)
            _around(rails, blocks, made, reduce=True)
        if call.op != "reduce_scatter":
            _around(rails, blocks, made, reduce=False)
            _inside(rails, inside, made, reduce=False)
        return made.steps


def _inside(rails: Rails, inside: Sequence[Extents], made: StepList, *, reduce: bool) -> None:
    """Give every neighbour its part to reduce, or this rank's part to keep."""
    count = len(rails.local)
    for turn in range(1, count):
        there, back = (rails.place + turn) % count, (rails.place - turn) % count
        made.send(rails.local[there], inside[there if reduce else rails.place])
        made.receive(rails.local[back], inside[rails.place if reduce else back], reduce=reduce)


def _around(rails: Rails, blocks: Sequence[Extents], made: StepList, *, reduce: bool) -> None:
    """Half of a ring: each ends with the sum of its block, or with all blocks."""
    count = len(rails.rail)
    after, before = rails.rail[(rails.server + 1) % count], rails.rail[(rails.server - 1) % count]
    shift = 1 if reduce else 0
    for turn in range(count - 1):
        out = cut(blocks[(rails.server - turn - shift) % count], made.chunk_bytes)
        into = cut(blocks[(rails.server - turn - 1 - shift) % count], made.chunk_bytes)
        for at in range(max(len(out), len(into))):
            if at < len(out):
                made.send(after, out[at])
            if at < len(into):
                made.receive(before, into[at], reduce=reduce)


class Pxn(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_to_all", "all_to_allv")

    def steps(self, call: Call, rank: int) -> list[Step]:
        rails = Rails(call, rank)
        made = StepList(call.chunk_bytes)
        most = max(call.bytes_between(one, other) for one in range(call.ranks) for other in range(call.ranks))
        count, servers = len(rails.local), len(rails.servers)

        def kept(origin: int, target: int) -> Extent:
            """What this rank passes on for a neighbour; its own leaves from DATA."""
            if origin == rank:
                return call.outgoing(origin, target)
            start, size = call.share(call.bytes_between(origin, target))
            return Extent(SCRATCH, (origin * call.ranks + target) * most + start, size)

        made.copy((call.outgoing(rank, rank),), (call.incoming(rank, rank),))
        for hop in range(servers):
            there, back = (rails.server + hop) % servers, (rails.server - hop) % servers
            for turn in range(1, count):
                to, back_to = rails.local[(rails.place + turn) % count], rails.local[rails.place - turn]
                target = rails.servers[there][(rails.place + turn) % count]
                made.send(to, _some(call.outgoing(rank, target)))
                mine = rails.rail[there]
                into = kept(back_to, mine) if hop else call.incoming(back_to, rank)
                made.receive(back_to, _some(into))
            if hop:
                gathered = [kept(one, rails.rail[there]) for one in rails.local]
                made.send(rails.rail[there], _some(*gathered))
                made.receive(
                    rails.rail[back], _some(*(call.incoming(one, rank) for one in rails.servers[back]))
                )
        return made.steps


def _some(*extents: Extent) -> Extents:
    return tuple(extent for extent in extents if extent.size_bytes)
