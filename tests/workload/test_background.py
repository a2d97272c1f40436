"""Do background flows have the load and the sizes that they are said to have?"""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.workload.flows import SIZES, exponential, mean_bytes, poisson, size_at

RATES = [100 * 10**9] * 8


@given(st.integers(0, 2**62 - 1))
def test_exponential_is_the_logarithm(draw: int) -> None:
    assert exponential(draw) / 2**32 == pytest.approx(-math.log((draw + 1) / 2**62), abs=2e-8)


def test_means_are_what_the_points_give() -> None:
    assert float(mean_bytes(SIZES["web_search"])) == pytest.approx(1.71e6, rel=0.01)
    assert float(mean_bytes(SIZES["hadoop"])) == pytest.approx(122e3, rel=0.02)
    assert all(points[-1][1] == 1000 for points in SIZES.values())


def test_sizes_lie_between_their_points() -> None:
    points = SIZES["web_search"]
    assert size_at(points, 0) == 1
    assert size_at(points, 2**62 // 2) == 50_000 + 30_000 * 100 // 130
    assert size_at(points, 2**62 - 1) == 29_999_999
    assert size_at(points, 2**62 // 2, Fraction(1, 100)) == 730


@pytest.mark.parametrize("load", [Fraction(1, 10), Fraction(1, 2)])
def test_posted_bytes_are_the_load(load: Fraction) -> None:
    flows = poisson(RATES, "web_search", Fraction(1), load, 20_000, seed=3, job=0)
    could_be = 8 * 100 * 10**9 / 8 * flows[-1].start_ps / 10**12
    assert sum(flow.size_bytes for flow in flows) / could_be == pytest.approx(float(load), rel=0.05)


def test_arrivals_are_memoryless_and_ends_are_drawn_evenly() -> None:
    flows = poisson(RATES, "web_search", Fraction(1, 1000), Fraction(1, 10), 20_000, seed=3, job=0)
    gaps = [after.start_ps - before.start_ps for before, after in pairwise(flows)]
    mean = sum(gaps) / len(gaps)
    assert min(gaps) >= 0
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.01)
    assert all(flow.src != flow.dst for flow in flows)
    for end in ("src", "dst"):
        counts = [sum(getattr(flow, end) == rank for flow in flows) for rank in range(8)]
        assert all(count == pytest.approx(2500, rel=0.06) for count in counts)


def test_another_job_draws_other_flows_and_the_same_job_the_same() -> None:
    drawn = [poisson(RATES, "hadoop", Fraction(1), Fraction(1, 10), 50, 3, job) for job in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
