"""Both scores of a diagnosis are held against what was done to runs, and printed.

Of all seeds that are scored (docs/diagnosis.md) none was looked at while rules were written. A sample is of
seeds on which rules were written.
"""

from __future__ import annotations

import sys

import pytest

from emu import api
from emu.base.cores import usable_cores
from tests.conftest import SOAK
from tests.diagnosis import healthy
from tests.diagnosis.scores import KINDS, RULES_SEEDS, Score, at_most_percent, cases_of, first_seed, scores

SAMPLE = {
    "single": 5,
    "pairs": 2,
    "suffice": 1,
    "odd_pairs": 1,
    "contention": 2,
    "oddities": 3,
    "healthy": 2,
    "live": 0,
}
LEAST_NAMED = {
    "single": 98,
    "pairs": 90,
    "suffice": 90,
    "odd_pairs": 85,
    "contention": 98,
    "oddities": 0,
    "healthy": 0,
    "live": 90,
}
"""After healing, in per cent of the runs with something to name."""
MOST_ACCUSED = 1
"""After healing, in per cent of the runs."""
HEALTHY_SAMPLE, HEALTHY_WHOLE = 10, 50
THAT_MATTERS = 700_001
"""A seed whose single fault does harm."""


@pytest.mark.parametrize("name", [name for name in KINDS if SOAK or SAMPLE[name]])
def test_after_healing_what_did_harm_is_named_and_no_innocent_accused(name: str) -> None:
    count, cores = (KINDS[name].runs, usable_cores()) if SOAK else (SAMPLE[name], 1)
    cases = cases_of(KINDS[name], count, first_seed() if SOAK else RULES_SEEDS[0], cores)
    symptoms, healed = scores(cases)
    sys.stdout.write("\n".join((str(symptoms), str(healed), *(one.fault() for one in cases if one.fault()))))
    assert healed.named * 100 >= healed.asked * LEAST_NAMED[name]
    assert healed.accused * 100 <= healed.runs * MOST_ACCUSED
    assert healed.asked > 0 or name in ("oddities", "healthy")


def test_seeds_of_scores_follow_from_a_commit_and_are_none_on_which_rules_were_made() -> None:
    assert first_seed() == first_seed() >= 2_000_000 > max(RULES_SEEDS) + 100_000


def test_a_run_that_is_missed_or_accuses_an_innocent_lowers_the_score() -> None:
    (case,) = cases_of(KINDS["single"], 1, THAT_MATTERS)
    assert scores([case])[1] == Score(1, 1, 1, 0)
    silent = case._replace(healed=[])
    assert scores([silent])[1] == Score(1, 1, 0, 0)
    elsewhere = [one.model_copy(update={"place": "nobody"}) for one in case.healed]
    assert scores([case._replace(healed=elsewhere)])[1] == Score(1, 1, 0, 1)
    assert scores([case._replace(healed=[*elsewhere, *case.healed])])[1] == Score(1, 1, 0, 1)
    assert scores([case._replace(answers=[])])[1] == Score(1, 0, 0, 1)


@pytest.mark.parametrize(
    ("count", "runs", "most"), [(0, 20, 13.9), (0, 100, 3.0), (0, 300, 1.0), (1, 20, 21.6), (10, 20, 69.8)]
)
def test_what_a_score_shows_of_other_runs_is_the_bound_of_clopper_and_pearson(
    count: int, runs: int, most: float
) -> None:
    """None of n: three in n at most (Hanley and Lippman-Hand, 1983); the others are exact limits."""
    assert at_most_percent(count, runs) == pytest.approx(most, abs=0.06)


@pytest.mark.parametrize("seed", range(HEALTHY_WHOLE if SOAK else HEALTHY_SAMPLE))
def test_nothing_is_named_in_a_healthy_run_but_jobs_that_keep_each_other_waiting(seed: int) -> None:
    result = api.run(healthy.scenario(seed), local=True)
    assert [job.status for job in result.summary.jobs.values()] == ["success"] * len(result.summary.jobs)
    allowed = ["contention"] if len(result.summary.jobs) > 1 else []
    assert [one.cause for one in result.summary.diagnosis if one.cause not in allowed] == []


@pytest.mark.parametrize("seed", [4, 20])
def test_a_gpu_that_was_meant_to_take_longer_for_a_copy_is_not_accused_of_it(seed: int) -> None:
    slower = {"devices": "gpu-1-0", "gpu": {"copy_latency": "2us"}}
    assert api.run(healthy.scenario(seed) | {"overrides": [slower]}, local=True).summary.diagnosis == []
