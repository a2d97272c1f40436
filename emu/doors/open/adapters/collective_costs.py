"""A table of what collectives cost on a fabric, for compilers and planners, as JSON.

    table = cost_table("fabric.yaml", ["all_reduce"], [4096, 1 << 20], {"node": range(8)})
    json.dump(table, file)
    time_ps(table, "all_reduce", "node", 100_000)

Each entry is measured alone on the fabric, or beside a load of transfers. Between two measured sizes a time
is interpolated on a straight line. How far that is off is measured at the geometric mean of each two
neighbours: `error` is the most, as a share of what was measured there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isqrt
from typing import Any

from emu.base.errors import UsageError
from emu.engine.live.open_run import opened
from emu.preparing import load, prepare

Load = Sequence[tuple[int, int, int]]
"""Transfers that begin with the collective: from, to, bytes."""


def cost_table(
    fabric: str | Mapping[str, object],
    ops: Sequence[str],
    sizes_bytes: Sequence[int],
    groups: Mapping[str, Sequence[int]],
    beside: Load = (),
) -> dict[str, Any]:
    """Times of collectives by operation, named group of ranks and size, with the error between sizes."""
    blueprint = prepare(load(fabric, opens=True)).blueprint
    sizes = sorted(set(sizes_bytes))
    entries = []
    for op in ops:
        for name, ranks in groups.items():

            def cost(size_bytes: int, op: str = op, ranks: Sequence[int] = ranks) -> int:
                run = opened(blueprint)
                for src, dst, load_bytes in beside:
                    run.post(src, dst, load_bytes, at_ps=0)
                number = run.collective(op, size_bytes, list(ranks), at_ps=0)
                done = run.next()
                while done.number != number:
                    done = run.next()
                return done.at_ps

            entry = {"op": op, "group": name, "ranks": list(ranks), "sizes_bytes": sizes}
            entry["times_ps"] = [cost(size) for size in sizes]
            error = 0.0
            for low, high in pairwise(sizes):
                middle = isqrt(low * high)
                measured = cost(middle)
                error = max(error, abs(_between(entry, middle) - measured) / measured)
            entries.append({**entry, "error": error})
    return {"beside": [list(one) for one in beside], "entries": entries}


def time_ps(table: Mapping[str, Any], op: str, group: str, size_bytes: int) -> int:
    """What a collective takes, by the table. Raises UsageError outside what was measured."""
    for entry in table["entries"]:
        if (entry["op"], entry["group"]) == (op, group):
            sizes = entry["sizes_bytes"]
            if not sizes[0] <= size_bytes <= sizes[-1]:
                raise UsageError(f"{op} of {size_bytes} B: accepted: {sizes[0]} to {sizes[-1]} B")
            return _between(entry, size_bytes)
    known = ", ".join(f"{one['op']} on {one['group']}" for one in table["entries"])
    raise UsageError(f"{op} on {group}: not in the table; accepted: {known}")


def _between(entry: Mapping[str, Any], size_bytes: int) -> int:
    sizes, times = entry["sizes_bytes"], entry["times_ps"]
    at = bisect_left(sizes, size_bytes)
    if sizes[at] == size_bytes:
        return int(times[at])
    share = (size_bytes - sizes[at - 1]) * (times[at] - times[at - 1]) // (sizes[at] - sizes[at - 1])
    return int(times[at - 1] + share)
