"""Whatever breaks, when and where: nothing crashes, nothing hangs, and every invariant holds."""

import pytest

from tests.faults.scripts import played


def play(seeds: range) -> None:
    for seed in seeds:
        run, found = played(seed)
        assert found == [], f"script {seed} at {run.now_ps} ps"
        assert run.ending is not None or run.now_ps == 1_000_000_000, seed


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_no_script_breaks_an_invariant(first: int) -> None:
    play(range(first, first + 10))


@pytest.mark.parametrize("seed", [1120, 1225, 1426])
def test_a_port_that_goes_down_at_the_instant_of_a_route_change_finds_another(seed: int) -> None:
    play(range(seed, seed + 1))


@pytest.mark.parametrize("first", range(30, 2030, 100))
@pytest.mark.soak
def test_no_script_of_two_thousand_breaks_an_invariant(first: int) -> None:
    play(range(first, first + 100))


@pytest.mark.parametrize("seed", [1, 5, 9])
def test_a_script_gives_one_answer_in_any_number_of_parts(seed: int) -> None:
    assert played(seed)[0].digest() == played(seed, parts=3)[0].digest()
