"""Every scenario has one answer, into however many parts and blocks it is cut, with whatever delays."""

from collections.abc import Mapping

import pytest

from tests.conftest import SOAK
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of
from tests.scenarios_run.small import PACKETS, brief

pytestmark = pytest.mark.long

TINY = "tiny_flap"
SEEDS = range(100)

BRIEF = {"jobs[0].workload.flows[0].size": "512KiB", "jobs[0].workload.flows[1].size": "256KiB"}
"""Enough for both flows to lose packets, and short enough for a hundred runs."""


def answer(
    name: str,
    parts: int,
    seed: int = 1,
    overrides: Mapping[str, object] | None = None,
    block: int | None = None,
) -> str:
    run = SpreadRun(plan_of(name, parts, overrides, block), seed)
    run.start()
    assert run.run() in ENDINGS
    return run.digest()


@pytest.mark.parametrize("name", PACKETS)
def test_scenario_has_one_answer_in_one_part_and_in_several_parts_of_many_blocks(name: str) -> None:
    whole = answer(name, 1, overrides=brief(name))
    for parts in (2, 3, 4, 5) if SOAK else (2 + PACKETS.index(name) % 4,):
        assert answer(name, parts, parts, brief(name), block=1) == whole, parts


@pytest.mark.parametrize("parts", [2, 3, 4, 5])
def test_a_hundred_seeds_of_delays_give_one_answer(parts: int) -> None:
    whole = answer(TINY, 1, overrides=BRIEF)
    for seed in SEEDS[parts - 2 :: 4]:
        assert answer(TINY, parts, seed, BRIEF) == whole, seed


@pytest.mark.soak
@pytest.mark.parametrize("name", PACKETS)
def test_scenario_has_one_answer_in_one_block_and_in_many(name: str) -> None:
    whole = answer(name, 1, overrides=brief(name))
    for block in (1, 3):
        assert answer(name, 1, overrides=brief(name), block=block) == whole, block


@pytest.mark.soak
@pytest.mark.parametrize("name", PACKETS)
def test_a_hundred_seeds_of_delays_give_one_answer_everywhere(name: str) -> None:
    whole = answer(name, 1)
    for seed in SEEDS:
        assert answer(name, 2 + seed % 4, seed) == whole, seed
