"""Quantiles by nearest rank, of any ordered values and of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from emu.results.summary_part import Part

T = TypeVar("T")


class FlowTimes(Part):
    """Percentiles of times; of flows those that were delivered, from the host's post to the last byte."""

    count: int
    """How many there are."""
    p50_ps: int
    """Half of them took no longer."""
    p90_ps: int
    """Nine of ten took no longer."""
    p99_ps: int
    """Ninety-nine of a hundred took no longer."""
    p999_ps: int
    """All but one in a thousand took no longer."""
    max_ps: int
    """The longest."""


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
