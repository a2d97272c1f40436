"""Algorithm bandwidth and bus bandwidth (algbw, busbw) of a collective.

An all_reduce of S bytes over n ranks moves 2(n-1)/n S over each rank's link, all_gather and reduce_scatter
(n-1)/n S; busbw is algbw x that factor, so that it compares with the link's rate whatever n is. Rates are
whole bit/s, rounded down, worked out in integers.

Source: nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from fractions import Fraction

from actors.kernel.units import BIT_PS_PER_BYTE


def bus_factor(op: str, ranks: int) -> Fraction:
    """Busbw / algbw."""
    if op == "all_reduce":
        return Fraction(2 * (ranks - 1), ranks)
    if op in ("all_gather", "reduce_scatter", "all_to_all", "all_to_allv", "gather", "scatter"):
        return Fraction(ranks - 1, ranks)
    return Fraction(1)


def bandwidth_bps(size_bytes: int, time_ps: int, factor: Fraction = Fraction(1)) -> int | None:
    """Size / time x factor in whole bit/s; None if no time passed."""
    if time_ps <= 0:
        return None
    return size_bytes * BIT_PS_PER_BYTE * factor.numerator // (time_ps * factor.denominator)
