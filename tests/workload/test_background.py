"""Do background flows have the load and the sizes that they are said to have?"""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.base.errors import ScenarioError
from emu.preparing import prepare
from emu.workload.flows import (
    SIZES,
    Flow,
    exponential,
    mean_bytes,
    poisson,
    poisson_incasts,
    size_at,
)

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


def incasts(fan_in: int, load: Fraction, count: int, seed: int = 3, job: int = 0) -> list[list[Flow]]:
    """Incasts of 500 KB a sender, each with its flows."""
    flows = poisson_incasts(RATES, 500_000, fan_in, load, count, seed, job)
    assert len(flows) == fan_in * count
    return [flows[first : first + fan_in] for first in range(0, len(flows), fan_in)]


@given(st.integers(1, 7), st.integers(0, 2**63 - 1))
def test_every_incast_has_its_fan_in_of_different_senders_at_one_time(fan_in: int, seed: int) -> None:
    for flows in incasts(fan_in, Fraction(1, 50), 20, seed):
        senders = {flow.src for flow in flows}
        (receiver,) = {flow.dst for flow in flows}
        assert len(senders) == fan_in
        assert receiver not in senders
        assert {(flow.size_bytes, flow.start_ps) for flow in flows} == {(500_000, flows[0].start_ps)}


@pytest.mark.parametrize(("fan_in", "load"), [(1, Fraction(1, 2)), (5, Fraction(1, 50)), (7, Fraction(1))])
def test_incasts_post_their_load_at_memoryless_times_to_and_from_ranks_drawn_evenly(
    fan_in: int, load: Fraction
) -> None:
    drawn = incasts(fan_in, load, 8_000)
    starts = [flows[0].start_ps for flows in drawn]
    mean = starts[-1] / len(starts)
    # fan_in x 500 KB over load x 8 links of 100G; 8,000 exponential gaps are off by 1.1 % (one sigma)
    assert mean == pytest.approx(fan_in * 500_000 * 8 / (float(load) * 800e9) * 1e12, rel=0.04)
    gaps = [after - before for before, after in pairwise(starts)]
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.02)
    for end, each in (("src", 1000 * fan_in), ("dst", 1000 * fan_in)):
        counts = [sum(getattr(flow, end) == rank for flows in drawn for flow in flows) for rank in range(8)]
        assert all(count == pytest.approx(each, rel=0.12) for count in counts), (end, counts)


def test_incasts_are_drawn_apart_from_the_background_and_by_seed_and_job() -> None:
    assert incasts(3, Fraction(1, 50), 9) == incasts(3, Fraction(1, 50), 9)
    assert incasts(3, Fraction(1, 50), 9) != incasts(3, Fraction(1, 50), 9, seed=4)
    assert incasts(3, Fraction(1, 50), 9) != incasts(3, Fraction(1, 50), 9, job=1)


@pytest.mark.parametrize(
    ("keys", "reported"),
    [
        ({"fan_in": 4}, "workload.fan_in: 4 senders, but the job has 3 other ranks; accepted: at most 3"),
        ({"load": 2}, "workload.load: 2 is above 1; accepted: a fraction above 0 and up to 1"),
        (
            {"incasts": 40_000},
            "workload.incasts: 40000 incasts of 2 flows are 80000 flows; accepted: at most 32768",
        ),
        ({"tx_depth": 0}, "workload.tx_depth: "),
    ],
)
def test_incasts_that_cannot_be_are_refused(keys: dict[str, object], reported: str) -> None:
    workload = {"kind": "poisson_incasts", "fan_in": 2, "size": "1KB", "incasts": 1, **keys}
    mapping = {
        "name": "incasts",
        "topology": {"kind": "star", "hosts": 4, "gpus_per_host": 1},
        "jobs": [{"name": "incasts", "workload": workload}],
    }
    with pytest.raises(ScenarioError) as caught:
        prepare(mapping)
    assert reported in str(caught.value)
