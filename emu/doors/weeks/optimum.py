"""How often to make a checkpoint: Young's and Daly's intervals, and the goodput that they expect.

With checkpoints that stall the job for d, failures at random with a mean time M between them, and R from a
failure until the job goes on, computing for t between checkpoints takes on average (Daly, equation 13)

    M e^(R/M) (e^((t + d)/M) - 1)

whatever fails on the way. Young's interval, sqrt(2 d M), is right to first order in d/M; Daly's adds two
terms, and is M where d is 2 M or more. Checkpoints are written while the job goes on, so a failure also costs
the time until the last one was whole. That is in no formula: it does not depend on the interval.

Sources: Young, A first order approximation to the optimum checkpoint interval (CACM 17, 1974). Daly, A higher
order estimate of the optimum checkpoint interval for restart dumps (FGCS 22, 2006), equations 13, 20 and 37.
"""

from __future__ import annotations

from math import exp, sqrt

from emu.doors.weeks.failure_log import FailureLog
from emu.doors.weeks.sections import MOST_STRIKES, Campaign
from emu.doors.weeks.weeks import Course, course_of


def young_ms(stalls_ms: float, between_failures_ms: float) -> float:
    """Young's interval."""
    return sqrt(2 * stalls_ms * between_failures_ms)


def daly_ms(stalls_ms: float, between_failures_ms: float) -> float:
    """Daly's interval."""
    if stalls_ms >= 2 * between_failures_ms:
        return between_failures_ms
    small = sqrt(stalls_ms / (2 * between_failures_ms))
    return young_ms(stalls_ms, between_failures_ms) * (1 + small / 3 + small * small / 9) - stalls_ms


def expected_goodput(
    every_ms: float, stalls_ms: float, between_failures_ms: float, restart_ms: float
) -> float:
    """The share of time that is kept, by Daly's complete model."""
    mean = between_failures_ms
    took_ms = mean * exp(restart_ms / mean) * (exp((every_ms + stalls_ms) / mean) - 1)
    return every_ms / took_ms


def settled(campaign: Campaign, log: FailureLog | None = None) -> Course:
    """What a campaign goes by, with `checkpoint.every: auto` worked out.

    Without failures there is nothing to save for. No interval is shorter than a step, or than it takes to
    write a checkpoint, or than a millionth of the campaign.
    """
    every_ms = campaign.checkpoint.every_ms
    if every_ms is None:
        rate = course_of(campaign, campaign.lasts_ms, log).stops_per_ms
        best_ms = daly_ms(campaign.checkpoint.stalls_ms, float(1 / rate)) if rate else campaign.lasts_ms
        step_ms = campaign.step.takes_ms
        least_ms = max(campaign.checkpoint.written_after_ms, -(-campaign.lasts_ms // MOST_STRIKES))
        every_ms = max(round(best_ms), -(-least_ms // step_ms) * step_ms)
    return course_of(campaign, every_ms, log)
