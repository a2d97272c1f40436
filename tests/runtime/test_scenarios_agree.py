"""Every scenario has one answer, however many parts it is cut into and whatever delays lie between them."""

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from actors.runtime.outcome import Ending
from tests.conftest import SOAK
from tests.runtime.spread_runs import ROOT, SCENARIOS, SpreadRun, plan_of

TINY = "tiny_flap"
SEEDS = range(100)


BRIEF = {"jobs[0].workload.flows[0].size": "512KiB", "jobs[0].workload.flows[1].size": "256KiB"}
"""Enough for both flows to lose packets, and short enough for a hundred runs."""


def answer(name: str, parts: int, seed: int = 1, overrides: Mapping[str, object] | None = None) -> str:
    run = SpreadRun(plan_of(name, parts, overrides), seed)
    run.start()
    assert run.run() is Ending.FINISHED
    return run.digest()


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_has_one_answer_in_one_part_and_in_several(name: str) -> None:
    whole = answer(name, 1)
    for parts in (2, 3, 4, 5) if SOAK else (2, 5):
        assert answer(name, parts, seed=parts) == whole, parts


@pytest.mark.parametrize("parts", [2, 3, 4, 5])
def test_a_hundred_seeds_of_delays_give_one_answer(parts: int) -> None:
    whole = answer(TINY, 1, overrides=BRIEF)
    for seed in SEEDS[parts - 2 :: 4]:
        assert answer(TINY, parts, seed, BRIEF) == whole, seed


@pytest.mark.soak
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_hundred_seeds_of_delays_give_one_answer_everywhere(name: str) -> None:
    whole = answer(name, 1)
    for seed in SEEDS:
        assert answer(name, 2 + seed % 4, seed) == whole, seed


ENVIRONMENTS = {
    "another hash seed": {"PYTHONHASHSEED": "1"},
    "a third hash seed": {"PYTHONHASHSEED": "77"},
    "interpreted": {"EMU_INTERPRETED": "1"},
}


@pytest.mark.parametrize("changed", ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_answer_depends_on_no_hash_seed_and_on_no_compiler(changed: dict[str, str]) -> None:
    code = "from tests.runtime.test_scenarios_agree import answer; print(answer('tiny_all_reduce', 3))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=dict(os.environ) | changed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == answer("tiny_all_reduce", 1)
