"""A collective benchmark as a script: one stream that calls one collective after another.

Each operation of the job is one call, by every member of a group; a job that is split has several groups,
each of which does every operation by itself, at once. One rank may be mistaken, and call another size than
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.ncclx.operations import Operation
from actors.ncclx.script import CALL, Group, GroupCall, Script, ScriptPlan, kind_of


class BenchmarkPlan(ScriptPlan):
    """The groups and scripts of a benchmark. `mistaken` are a rank and the size that it calls."""

    def __init__(
        self,
        operations: Sequence[Operation],
        groups: Sequence[Sequence[int]],
        dtype: str = "fp32",
        redop: str = "sum",
        mistaken: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.reasons = ("",)
        self.single = True
        self.operations = tuple(operations)
        self.dtype = dtype
        self.redop = redop
        calls = [
            GroupCall(
                one.op,
                one.size_bytes,
                one.algorithm,
                one.root,
                weights=one.weights,
                dtype=dtype,
                redop=redop,
                own=one.own,
            )
            for one in operations
        ]
        stream = [(CALL, 0, place) for place in range(len(calls))]
        by_rank: dict[int, Script] = {}
        for members in groups:
            number = self.group(Group(kind_of(operations[0].op), 0, tuple(members)))
            for rank in members:
                # Ranks share their lists: a large job has many ranks and one list of calls.
                by_rank[rank] = Script(rank, [number], [calls], [0], [stream])
        self.scripts = [by_rank[rank] for rank in sorted(by_rank)]
        if mistaken is not None:
            rank, size_bytes = mistaken
            self.scripts[rank].calls = [[call._replace(size_bytes=size_bytes) for call in calls]]
