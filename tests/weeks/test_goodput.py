"""Is the goodput of a campaign Daly's, and Llama 3's?"""

from dataclasses import replace
from fractions import Fraction
from math import log, sqrt

import pytest

from emu.base.shipped import CAMPAIGNS, files_of
from emu.doors.weeks.campaign_file import checked, read_tree
from emu.doors.weeks.goodput import goodput, simulated
from emu.doors.weeks.optimum import daly_ms, expected_goodput, settled, young_ms
from emu.doors.weeks.sections import Campaign
from emu.doors.weeks.weeks import Cause, Course, weeks

S = 1000
DAY_MS = 86_400 * S
MEAN_MS = 10_000 * S


def failing(stalls_ms: int, restart_ms: int, every_ms: int, lasts_ms: int) -> Course:
    """A job that software stops at random, whose checkpoints are whole at once, as in Daly's model."""
    cause = Cause("software", "stop", Fraction(1, MEAN_MS), 0, 0, S, 0)
    return Course(
        lasts_ms=lasts_ms,
        step_ms=S,
        steps_between=every_ms // S,
        stalls_ms=stalls_ms,
        written_ms=0,
        loads_ms=0,
        kept=3,
        self_check_ms=restart_ms,
        replace_ms=0,
        init_ms=0,
        repaired_ms=0,
        spare_hosts=0,
        causes=(cause,),
    )


@pytest.mark.parametrize(
    ("stalls_ms", "restart_ms", "every_ms"),
    [(5 * S, 600 * S, 316 * S), (60 * S, 300 * S, 1_000 * S), (60 * S, 300 * S, 5_000 * S)],
)
def test_goodput_is_that_of_dalys_complete_model(stalls_ms: int, restart_ms: int, every_ms: int) -> None:
    course = failing(stalls_ms, restart_ms, every_ms, 300 * DAY_MS)
    found = goodput(course, simulated(course, range(3)))
    expected = expected_goodput(every_ms, stalls_ms, MEAN_MS, restart_ms)
    # some 7,800 failures: three standard errors of what they cost
    assert found == pytest.approx(expected, abs=3 * (1 - expected) / sqrt(7_800))


def test_dalys_interval_is_that_of_the_best_expected_goodput() -> None:
    stalls_ms, restart_ms = 20 * S, 300 * S
    best_s = max(range(300, 1_400), key=lambda s: expected_goodput(s * S, stalls_ms, MEAN_MS, restart_ms))
    assert daly_ms(stalls_ms, MEAN_MS) == pytest.approx(best_s * S, rel=0.002)
    assert young_ms(stalls_ms, MEAN_MS) == pytest.approx(sqrt(2 * 20 * 10_000) * S)
    assert daly_ms(3 * MEAN_MS, MEAN_MS) == MEAN_MS


@pytest.mark.soak
def test_the_interval_of_the_best_goodput_is_dalys_within_2_percent() -> None:
    stalls_ms, restart_ms = 20 * S, 300 * S
    grid = [every_s * S for every_s in range(300, 1_400, 100)]
    losses = []
    for every_ms in grid:
        course = failing(stalls_ms, restart_ms, every_ms, 366 * DAY_MS)
        losses.append(1 / goodput(course, simulated(course, range(2))))
    # by Daly's model 1/goodput is a/t + b t + c to first order: fitted by least squares
    assert fitted_minimum(grid, losses) == pytest.approx(daly_ms(stalls_ms, MEAN_MS), rel=0.02)


def fitted_minimum(grid: list[int], losses: list[float]) -> float:
    """Where a/t + b t + c is least, a, b and c by least squares."""
    rows = [(1e6 / t, t / 1e6, 1.0) for t in grid]
    normal = [[sum(x[i] * x[j] for x in rows) for j in range(3)] for i in range(3)]
    right = [sum(x[i] * y for x, y in zip(rows, losses, strict=True)) for i in range(3)]
    for i in range(3):
        for j in range(i + 1, 3):
            factor = normal[j][i] / normal[i][i]
            normal[j] = [one - factor * other for one, other in zip(normal[j], normal[i], strict=True)]
            right[j] -= factor * right[i]
    found = [0.0] * 3
    for i in (2, 1, 0):
        found[i] = (right[i] - sum(normal[i][j] * found[j] for j in range(i + 1, 3))) / normal[i][i]
    return sqrt(found[0] / found[1]) * 1e6


def shipped(name: str) -> Campaign:
    return checked(Campaign, *read_tree(files_of(CAMPAIGNS)[name], "a campaign"))


def test_54_days_of_llama_3_have_its_interruptions_and_its_effective_time() -> None:
    # P12: 466 interruptions, 419 of them unexpected, over 90 % effective
    course = settled(shipped("llama3"))
    seeds = simulated(course, range(1, 9))
    planned = sum(one.struck["planned"] for one in seeds) / 8
    struck = sum(one.struck.total() for one in seeds) / 8
    assert struck == pytest.approx(466, abs=2 * sqrt(466 / 8))
    assert struck - planned == pytest.approx(419, abs=2 * sqrt(419 / 8))
    assert 0.90 <= goodput(course, seeds) <= 0.97


def test_a_recovery_three_times_slower_leaves_the_published_band() -> None:
    course = settled(shipped("llama3"))
    slower = replace(
        course,
        self_check_ms=3 * course.self_check_ms,
        replace_ms=3 * course.replace_ms,
        init_ms=3 * course.init_ms,
        loads_ms=3 * course.loads_ms,
    )
    assert goodput(slower, simulated(slower, range(1, 4))) < 0.90


def test_no_failures_give_a_goodput_of_one() -> None:
    plain = {"name": "calm", "lasts": "54d", "gpus": 16384, "step": {"takes": "10s"}}
    course = settled(Campaign.model_validate(plain))
    assert goodput(course, simulated(course, [1])) == 1
    assert not weeks(course, 1).strikes


def test_rare_failures_leave_the_first_order_of_the_loss() -> None:
    # once in twenty days, restart of 10 min, no stalls: what is lost is the restart and half an interval
    cause = Cause("software", "stop", Fraction(1, 20 * DAY_MS), 0, 0, S, 0)
    course = replace(failing(0, 600 * S, 3_600 * S, 366 * DAY_MS), causes=(cause,))
    seeds = simulated(course, range(40))
    failures = sum(one.struck.total() for one in seeds)
    lost_ms = sum(course.lasts_ms - one.kept_ms for one in seeds)
    # the part of an interval is uniform: standard error of its mean over some 730
    assert lost_ms / failures == pytest.approx((600 + 1_800) * S, abs=3 * 3_600 * S / sqrt(12 * failures))
    assert log(failures / 732) == pytest.approx(0, abs=3 / sqrt(732))
