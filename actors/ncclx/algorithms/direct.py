"""Direct: everybody sends to whom it concerns, at once.

Rank r sends to r + 1, r + 2, .. and receives from r - 1, r - 2, .., so that no two ranks begin with the same
peer. all_reduce is the reduce_scatter followed by the all_gather (in NVIDIA's words "two-shot").

A transfer is a send of the first of two ranks to the second.

Uncongested, with n ranks, S bytes and a line of B: all_to_all, all_gather, reduce_scatter, gather and scatter
take S (n - 1) / (n B), all_reduce twice that, broadcast and reduce (n - 1) S / B, and each one step's latency
(all_reduce two).
"""

from __future__ import annotations

from typing import ClassVar

from actors.ncclx.graph import Algorithm, Call, Step, StepList, parts
from actors.ncclx.operations import OPERATIONS


class Direct(Algorithm):
    """See above."""

    collectives: ClassVar = OPERATIONS

    def steps(self, call: Call, rank: int) -> list[Step]:
        made = StepList(call.chunk_bytes)
        getattr(self, f"_{call.op}")(call, rank, made)
        return made.steps

    def _all_to_all(self, call: Call, rank: int, made: StepList) -> None:
        n = call.ranks
        made.copy((call.outgoing(rank, rank),), (call.incoming(rank, rank),))
        for turn in range(1, n):
            there, back = (rank + turn) % n, (rank - turn) % n
            made.send(there, (call.outgoing(rank, there),))
            made.receive(back, (call.incoming(back, rank),))

    _all_to_allv = _all_to_all

    def _sendrecv(self, call: Call, rank: int, made: StepList) -> None:
        n = call.ranks
        made.send((rank + 1) % n, (call.whole(),))
        made.receive((rank - 1) % n, (call.whole(1),))

    def _send(self, call: Call, rank: int, made: StepList) -> None:
        if rank == 0:
            made.send(1, (call.whole(),))
        else:
            made.receive(0, (call.whole(),))

    def _all_gather(self, call: Call, rank: int, made: StepList) -> None:
        n = call.ranks
        for turn in range(1, n):
            made.send((rank + turn) % n, (call.block(rank),))
            made.receive((rank - turn) % n, (call.block((rank - turn) % n),))

    def _reduce_scatter(self, call: Call, rank: int, made: StepList) -> None:
        n = call.ranks
        for turn in range(1, n):
            made.send((rank + turn) % n, (call.block((rank + turn) % n),))
            made.receive((rank - turn) % n, (call.block(rank),), reduce=True)

    def _all_reduce(self, call: Call, rank: int, made: StepList) -> None:
        n = call.ranks
        blocks = parts(call.whole(), n)
        for turn in range(1, n):
            made.send((rank + turn) % n, (blocks[(rank + turn) % n],))
            made.receive((rank - turn) % n, (blocks[rank],), reduce=True)
        for turn in range(1, n):
            made.send((rank + turn) % n, (blocks[rank],))
            made.receive((rank - turn) % n, (blocks[(rank - turn) % n],))

    _barrier = _all_reduce

    def _broadcast(self, call: Call, rank: int, made: StepList) -> None:
        n, root = call.ranks, call.root
        if rank != root:
            made.receive(root, (call.whole(),))
            return
        for turn in range(1, n):
            made.send((root + turn) % n, (call.whole(),))

    def _reduce(self, call: Call, rank: int, made: StepList) -> None:
        n, root = call.ranks, call.root
        if rank != root:
            made.send(root, (call.whole(),))
            return
        for turn in range(1, n):
            made.receive((root + turn) % n, (call.whole(),), reduce=True)

    def _gather(self, call: Call, rank: int, made: StepList) -> None:
        n, root = call.ranks, call.root
        if rank != root:
            made.send(root, (call.block(rank),))
            return
        for turn in range(1, n):
            other = (root + turn) % n
            made.receive(other, (call.block(other),))

    def _scatter(self, call: Call, rank: int, made: StepList) -> None:
        n, root = call.ranks, call.root
        if rank != root:
            made.receive(root, (call.block(rank),))
            return
        for turn in range(1, n):
            other = (root + turn) % n
            made.send(other, (call.block(other),))
