"""Whatever breaks off where, and however it is spread and delayed before and after: one answer."""

from collections.abc import Callable
from functools import cache

import pytest

from actors.kernel.mixing import Stream
from emu.engine.blueprint import RunPlan
from tests.conftest import SOAK
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of

NAMES = ("tiny_flap", "tiny_all_reduce", "incast_lossy")
SEEDS = 100 if SOAK else 24
BRIEF = {"run.max_time": "300us"}


@cache
def answer(name: str) -> str:
    run = SpreadRun(plan_of(name, 1, BRIEF))
    run.start()
    assert run.run() in ENDINGS
    return run.digest()


def drawn_plan(name: str, draw: Stream) -> RunPlan:
    """Spread over a drawn number of parts, each in blocks of a drawn number of NICs."""
    return plan_of(name, 1 + draw.below(4), BRIEF, 1 + draw.below(3))


def breaking_after(slices: int) -> Callable[[], bool]:
    left = [slices]

    def between() -> bool:
        left[0] -= 1
        return left[0] > 0

    return between


@pytest.mark.parametrize("seed", range(SEEDS))
def test_runs_that_break_off_anywhere_and_go_on_spread_otherwise_give_one_answer(seed: int) -> None:
    name = NAMES[seed % len(NAMES)]
    draw = Stream(seed, 1, 3)
    run = SpreadRun(drawn_plan(name, draw), seed=draw.below(1 << 30))
    run.snapshot_at(1 + draw.below(250_000_000))
    run.start()
    ending = run.run(breaking_after(1 + draw.below(400)))
    attempts = 0
    while ending is None and attempts < 20:
        attempts += 1
        snapshot = run.snapshot
        run = SpreadRun(drawn_plan(name, draw), seed=draw.below(1 << 30))
        run.snapshot_at(1 + draw.below(250_000_000))
        if snapshot is None:
            run.start()
        else:
            run.resume(snapshot)
            run.snapshot = snapshot
        ending = run.run(breaking_after(1 + draw.below(400 * attempts)))
    if ending is None:
        ending = run.run()
    assert ending in ENDINGS
    assert run.digest() == answer(name)
