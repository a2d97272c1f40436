"""Does TIMELY follow its papers: the update rule in closed form, and the patched rule's fixed point?

Mittal et al. (SIGCOMM 2015), algorithm 1; Zhu et al. (CoNEXT 2016), algorithm 2 and its fixed point: N flows
over a link of rate C have C / N each at a round trip of T (1 + N step / (beta C)).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean
from types import SimpleNamespace
from typing import cast

import pytest

from actors.kernel.knobs import Knobs
from emu.examples.timely import Timely
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

US = 1_000_000
LINE_BPS, START_BPS, STEP_BPS = 10 * 10**9, 5 * 10**9, 10**7
LEAST_US, LOW_US, HIGH_US = 20, 50, 500
BETA, ALPHA = 0.8, 0.875


def rates_bps(trips_us: Sequence[float]) -> list[int]:
    """The rates after each of these round trips."""
    knobs = SimpleNamespace(
        low_ps=LOW_US * US,
        high_ps=HIGH_US * US,
        least_rtt_ps=LEAST_US * US,
        step_bps=STEP_BPS,
        beta_thousandths=800,
        weight_thousandths=875,
    )
    control = Timely(LINE_BPS, 4096, cast("Knobs", knobs))
    control.rate_bps = START_BPS
    found = []
    for trip_us in trips_us:
        control.on_ack(1, int(trip_us * US), 0, False)
        found.append(int(control.rate_bps))
    return found


def test_below_the_low_threshold_each_round_trip_adds_a_step() -> None:
    assert rates_bps([20, 49, 21, 48, 22])[-1] == START_BPS + 5 * STEP_BPS


def test_beyond_the_high_threshold_the_rate_falls_by_a_geometric_series() -> None:
    """At a steady RTT T by 1 - beta (1 - high / T) each time, whatever the gradient."""
    factor = 1 - BETA * (1 - HIGH_US / 625)
    found = rates_bps([625] * 8)
    assert found == [pytest.approx(START_BPS * factor**n, rel=1e-6) for n in range(1, 9)]


def test_between_the_thresholds_a_rising_round_trip_lowers_the_rate_by_its_smoothed_gradient() -> None:
    """If it rises by D each time, the mean change is D (1 - (1 - alpha)^n) after n changes."""
    rise_us, expected, found = 8, float(START_BPS + STEP_BPS), rates_bps([100 + 8 * n for n in range(12)])
    assert found[0] == expected  # no change yet: no gradient
    for n in range(1, 12):
        expected *= 1 - BETA * rise_us * (1 - (1 - ALPHA) ** n) / LEAST_US
        assert found[n] == pytest.approx(expected, rel=1e-4)


def test_between_the_thresholds_a_falling_one_adds_steps_five_at_a_time_from_the_fifth_on() -> None:
    found = rates_bps([300 - 10 * n for n in range(9)])
    assert [rate - START_BPS for rate in found] == [n * STEP_BPS for n in (1, 2, 3, 4, 9, 14, 19, 24, 29)]
    # A rise in between begins the count anew: 200 us is 10 more than before.
    after = rates_bps([300 - 10 * n for n in range(9)] + [240, 230, 220])
    assert after[9] < found[8]
    assert [b - a for a, b in pairwise(after[9:])] == [STEP_BPS] * 2


def test_patched_timely_settles_at_its_fixed_point_and_shares_the_link() -> None:
    """62.5 us with two flows, steps of 10 Mb/s and beta 0.008, from 6 and 3 Gb/s."""
    control = {
        "kind": "emu.examples.timely:PatchedTimely",
        "low": "50us",
        "high": "500us",
        "least_rtt": "20us",
        "step": "10M",
        "beta_thousandths": 8,
    }
    rates = dict.fromkeys(range(3), "10G")
    one = scenario(star(3, rates, d0="5us", d1="5us", d2="5us"), transport={"congestion_control": control})
    fabric = Fabric(one, [(0, 2), (1, 2)])
    controls = [cast("Timely", fabric.pair(connection).control) for connection in fabric.connections]
    for sender, rate_bps in enumerate((6 * 10**9, 3 * 10**9)):
        controls[sender].rate_bps = rate_bps
        fabric.post(0, sender, 64 << 20)
    fabric.run(15_000 * US)
    apart_bps = int(controls[0].rate_bps - controls[1].rate_bps)
    trips = []
    for at_us in range(15_200, 30_200, 200):
        fabric.run(at_us * US)
        trips += [int(control.previous_ps) for control in controls]
    assert mean(trips) == pytest.approx(62.5 * US, rel=0.02)
    # There e is 1/4 and w 1/2, so each round trip takes 1/1000 off what one rate is above the other.
    left = (1 - 0.008 / 2 / 4) ** (15_000 / 62.5)
    assert controls[0].rate_bps - controls[1].rate_bps == pytest.approx(apart_bps * left, rel=0.02)
    assert controls[0].rate_bps + controls[1].rate_bps == pytest.approx(LINE_BPS, rel=0.01)
