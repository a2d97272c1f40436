"""Bruck: ceil(log2 n) rounds for any n.

all_gather: in round k rank r sends the blocks it has, at most what is missing, to r - 2^k, and receives from
r + 2^k. all_to_all: data for the rank i further on makes its way in the steps of i's binary digits, so each
round moves half of everything; what passes by waits in SCRATCH. barrier: Hensgen, Finkel and Manber's
dissemination, the same pattern with empty messages.

Blocks are gathered by the GPU as it fills the slot, so no rotation before or after costs a copy of its own,
except all_to_all's own block.

Source: Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport Message-Passing
Systems", 1997.
"""

from __future__ import annotations

from typing import ClassVar

from actors.ncclx.graph import SCRATCH, Algorithm, Call, Extent, Step, StepList


class Bruck(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_gather", "all_to_all", "all_to_allv", "barrier")

    def steps(self, call: Call, rank: int) -> list[Step]:
        made = StepList(call.chunk_bytes)
        n = call.ranks
        rounds = [1 << turn for turn in range((n - 1).bit_length())]
        if call.op == "barrier":
            for apart in rounds if call.channel == 0 else ():
                made.empty(-1, ((rank + apart) % n,))
                made.empty((rank - apart) % n, ())
        elif call.op == "all_gather":
            for apart in rounds:
                count = min(apart, n - apart)
                out = call.blocks((rank + at) % n for at in range(count))
                into = call.blocks((rank + apart + at) % n for at in range(count))
                self._turn(made, (rank - apart) % n, (rank + apart) % n, out, into)
        else:
            self._all_to_all(call, rank, rounds, made)
        return made.steps

    def _turn(
        self, made: StepList, to: int, back: int, out: tuple[Extent, ...], into: tuple[Extent, ...]
    ) -> None:
        """Send to one and receive from another."""
        made.send(to, out)
        made.receive(back, into)

    def _all_to_all(self, call: Call, rank: int, rounds: list[int], made: StepList) -> None:
        n = call.ranks
        most = max(call.bytes_between(one, other) for one in range(n) for other in range(n))

        def place(at: int, here: int, passed: int) -> Extent:
            """Where what goes `at` ranks on is kept by `here`, after the digits in `passed`."""
            origin = (here - (at & passed)) % n
            target = (origin + at) % n
            if at & passed == 0:
                return call.outgoing(origin, target)
            if at & ~passed == 0:
                return call.incoming(origin, target)
            start, size = call.share(call.bytes_between(origin, target))
            return Extent(SCRATCH, at * most + start, size)

        made.copy((call.outgoing(rank, rank),), (call.incoming(rank, rank),))
        for apart in rounds:
            moving = [at for at in range(1, n) if at & apart]
            out = [place(at, rank, apart - 1) for at in moving]
            into = [place(at, rank, 2 * apart - 1) for at in moving]
            self._turn(
                made,
                (rank + apart) % n,
                (rank - apart) % n,
                tuple(extent for extent in out if extent.size_bytes),
                tuple(extent for extent in into if extent.size_bytes),
            )
