"""Does a run choose between one process and workers by what it is, and by nothing else?"""

from typing import Any

import pytest

from actors.kernel.event import NEVER_PS
from emu import api
from emu.devices.pricing.distribution import distributed
from emu.devices.pricing.estimate import Estimate
from emu.engine.distributing import choice_of, settled
from emu.engine.outcome import RunOptions

POD = {"topology": {"kind": "llama3", "pods": 1, "racks_per_pod": 8}, "jobs[0].workload.size": "256KiB"}
LONG = Estimate(100_000_000, 1 << 30, 40.0, packets_s=38.0, least_ps=10**9)


def chosen(overrides: dict[str, Any], cost: Estimate | None, cores: int) -> tuple[int, str]:
    choice = choice_of(api.prepare("permutation", overrides).blueprint, cost, cores)
    return choice.workers, choice.why


def test_the_terms_are_those_of_the_formula() -> None:
    """By hand: H = 100 M hops at .2 us, a quarter crosses, 1 ms of virtual time in windows of 1 us."""
    cost = Estimate(100_000_000, 0, 21.0, packets_s=20.0, least_ps=10**9)
    two = distributed(cost, 1024, 2000, 2, 0.5, 10**6)
    assert two.alone_s == 1.0
    assert two.ray_s == pytest.approx(2.4 + 2000 * 450e-6)
    assert two.packets_s == pytest.approx(20.0 * 0.5 * 1.1)
    assert two.crossing_s == pytest.approx(25_000_000 / 2 * 0.33e-6)
    assert two.windows_s == pytest.approx(1000 * 21e-6)
    assert two.wall_s == pytest.approx(1 + 3.3 + 11 + 4.125 + 0.021)
    assert two.bound == "packets"
    taking_turns = distributed(cost, 1024, 2000, 4, 0.25, 10**6, cores=2)
    assert taking_turns.packets_s == pytest.approx(2 * 20.0 * 0.25 * 1.1)
    assert taking_turns.windows_s == pytest.approx(2 * 1000 * 2 * 21e-6)


def test_two_workers_cross_as_often_as_was_counted() -> None:
    """docs/scale.md: 503,808 hops of 64 hosts, 131,072 of which crossed between two workers, 183,296 between
    four."""
    cost = Estimate(503_808, 0, 1.0)
    for workers, counted in ((2, 131_072), (4, 183_296)):
        crossing_s = distributed(cost, 64, 0, workers, 1 / workers, int(NEVER_PS)).crossing_s
        assert crossing_s * workers / 0.13e-6 == pytest.approx(counted, rel=0.04)


def test_a_short_run_stays_in_one_process_and_says_what_workers_would_take() -> None:
    cost = Estimate(6528, 0, 0.15, packets_s=0.001)
    workers, why = choice_of(api.prepare("tiny_all_reduce").blueprint, cost, 64)[:2]
    assert (workers, why) == (1, "two workers would take about 2.6 s instead of 0.1 s")


def test_workers_are_chosen_where_they_end_a_fifth_sooner() -> None:
    found, why = chosen(POD, LONG, 8)
    assert found == 8
    assert why.startswith("eight workers take about ")
    least = LONG._replace(wall_s=10.0, packets_s=8.0)
    assert chosen(POD, least, 2)[0] == 1


@pytest.mark.parametrize(
    ("overrides", "cost", "cores", "why"),
    [
        (POD, LONG, 1, "this process may use one core"),
        ({"run.repeat": True, "run.max_time": "1ms"}, LONG, 8, "a run whose jobs repeat"),
        ({"fidelity": "flow", "expect": []}, None, 8, "a run at flow level is in one process"),
        (POD, None, 8, "no upper figure of its length is known"),
    ],
)
def test_without_an_upper_figure_or_a_second_core_it_is_one_process(
    overrides: dict[str, Any], cost: Estimate | None, cores: int, why: str
) -> None:
    found, reason = chosen(overrides, cost, cores)
    assert found == 1
    assert reason.startswith(why)


def test_what_is_asked_for_is_not_chosen_and_a_live_run_stays_here() -> None:
    blueprint = api.prepare("tiny_all_reduce").blueprint
    asked = settled(RunOptions(workers=3), blueprint, None, 8)
    assert (asked.local, asked.workers, asked.why) == (False, 3, "asked for")
    paced = settled(RunOptions(chooses=True, pace_ps=1), blueprint, LONG, 8)
    assert (paced.local, paced.chooses, paced.why) == (True, False, "a live run has no known end")
    spread = settled(RunOptions(chooses=True), api.prepare("permutation", POD).blueprint, LONG, 8)
    assert (spread.local, spread.chooses, spread.workers) == (False, False, 8)


def test_the_summary_has_the_choice() -> None:
    few = {"jobs[0].workload.sizes": "[1KiB]", "expect": []}
    summary = api.run("tiny_all_reduce", few).summary
    assert (summary.engine.placement, summary.engine.workers) == ("local", 1)
    assert summary.engine.choice.startswith(("two workers would take", "this process may use one core"))
    assert api.run("tiny_all_reduce", few, local=True).summary.engine.choice == "asked for"
