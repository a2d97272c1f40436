"""Quantiles by nearest rank, of any ordered values and of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from emu.results.summary import FlowTimes

T = TypeVar("T")


def nearest_rank(ascending: Sequence[T], permille: int) -> T:
    """A quantile: of n values the one of rank ceil(n x permille / 1000), at least the first."""
    return ascending[max(-(-len(ascending) * permille // 1000), 1) - 1]


def percentiles(times_ps: Sequence[int]) -> FlowTimes | None:
    """None of no times."""
    times = sorted(times_ps)
    if not times:
        return None
    return FlowTimes(
        count=len(times),
        p50_ps=nearest_rank(times, 500),
        p90_ps=nearest_rank(times, 900),
        p99_ps=nearest_rank(times, 990),
        p999_ps=nearest_rank(times, 999),
        max_ps=times[-1],
    )
