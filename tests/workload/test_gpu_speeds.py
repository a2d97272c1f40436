"""Do GPUs compute at speeds of their own, and does a job wait for the slowest of its GPUs?"""

from fractions import Fraction
from statistics import fmean, pstdev
from typing import Any

import pytest

from emu import api
from emu.workload.gpu_speeds import slowdown

SPREAD = Fraction(1, 50)


def test_speeds_have_the_spread_that_was_asked_for() -> None:
    """10,000 draws: mean and deviation within four of their standard errors."""
    found = [float(slowdown(1, gpu, SPREAD)) for gpu in range(10_000)]
    assert fmean(found) == pytest.approx(1, abs=4 * 0.02 / 100)
    assert pstdev(found) == pytest.approx(0.02, rel=4 * 0.0071)


def test_the_slowest_of_128_is_behind_the_slowest_of_8_by_as_much_as_order_statistics_say() -> None:
    """The largest of n normal draws is 1.42 standard deviations above the mean for n = 8, 2.60 for 128."""
    behind = [
        max(slowdown(seed, gpu, SPREAD) for gpu in range(128))
        - max(slowdown(seed, gpu, SPREAD) for gpu in range(8))
        for seed in range(300)
    ]
    assert fmean(map(float, behind)) == pytest.approx(0.02 * (2.60 - 1.42), rel=0.08)


@pytest.mark.parametrize("fidelity", ["packet", "flow"])
def test_a_step_waits_for_the_slowest_gpu(fidelity: str) -> None:
    """Eight GPUs compute 10 ms and meet in an all_reduce of some 20 us, which others begin before."""
    steps = [{"do": "compute", "time": "10ms"}, {"do": "all_reduce", "size": "4KiB"}]
    took: dict[float, int] = {}
    given: dict[str, Any] = {}
    for spread in (0, 0.02):
        given = {
            "name": "spread",
            "fidelity": fidelity,
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 2},
            "gpu": {"speed_spread": spread},
            "jobs": [{"name": "job", "workload": {"kind": "program", "operations": steps}}],
        }
        end_ps = api.run(given, local=True, diagnose=False).summary.jobs["job"].end_ps
        assert end_ps is not None
        took[spread] = end_ps
    wired = api.prepare(given).blueprint.plan.jobs[0].wired
    assert wired is not None
    slowest = max(float(slowdown(1, gpu, SPREAD)) for gpu in wired.gpus)
    assert slowest > 1.005
    assert took[0.02] - took[0] == pytest.approx(10e9 * (slowest - 1), abs=1e7)
