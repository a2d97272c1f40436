"""Are rates worked out only where something changed, and as if all were worked out anew?"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from actors.flow.filling import LIGHT, UNIT
from actors.flow.progress import Link, Progress, Shape, Strand
from actors.flow.switch_queues import Buffers

LINE = 400_000_000
"""In kbit/s."""
RACKS = 4
NICS = 8 * RACKS
SPINES = 4
UP = 2 * NICS
DOWN = UP + RACKS * SPINES
LINKS = DOWN + RACKS * SPINES


def path(source: int, target: int, spine: int) -> tuple[int, ...]:
    """Links from NIC to NIC over a spine, of racks of eight."""
    rack, other = source // 8, target // 8
    between = () if rack == other else (UP + rack * SPINES + spine, DOWN + other * SPINES + spine)
    return (source, *between, NICS + target)


class Anew(Progress):
    """Forgets all that it knows at every change."""

    def _solve(self) -> None:
        self._known.clear()
        self._rated.clear()
        self._shaken.update(self._parts)
        super()._solve()


class Whole(Anew):
    """Takes all transfers for coupled."""

    def _loads_of(self, shape: Shape) -> dict[int, int]:
        return super()._loads_of(shape) | {LINKS: 0}

    def _couples(self, number: int, link: Link) -> bool:
        return True


def shapes(dice: random.Random, *, windows: bool) -> list[Shape]:
    """Flows, and rings of eight over two queue pairs; with windows they fill no buffers."""
    found = []
    for _ in range(30):
        source, target = dice.sample(range(NICS), 2)
        there = Strand(UNIT, path(source, target, dice.randrange(SPINES)))
        back = Strand(UNIT // 50, path(target, source, dice.randrange(SPINES)), LIGHT)
        most = dice.choice((0, 0, 90_000_000))
        found.append(Shape((there, back), UNIT, most, 10**6 if windows else 0))
        if source // 8 != target // 8:
            parts = tuple(Strand(UNIT // SPINES, path(source, target, spine)) for spine in range(SPINES))
            found.append(Shape(parts, UNIT, 0, 10**6 if windows else 0))
    for _ in range(4):
        around = dice.sample(range(NICS), 8)
        strands = tuple(
            Strand(UNIT // 2, path(a, b, dice.randrange(SPINES)))
            for a, b in zip(around, around[1:] + around[:1], strict=True)
            for _ in range(2)
        )
        found.append(Shape(strands, 2 * UNIT, 0, 10**6))
    return found


def seen(kind: type[Progress], seed: int, buffers: Buffers | None, *, windows: bool) -> tuple[list[Any], int]:
    """When transfers that are drawn end, and all rates then; and of how many they were worked out."""
    dice = random.Random(seed)
    progress = kind([LINE] * LINKS + [LINE] * (kind is Whole), buffers)
    reported: list[Any] = []

    def note(name: int) -> None:
        rates = [(work.shape, work.rate) for work in progress._works]
        reported.append((name, progress.now_ps, sorted(rates)))

    kinds = shapes(dice, windows=windows)
    for name in range(40):
        bits = dice.randrange(10**6, 10**8)
        begin = partial(progress.begin, dice.choice(kinds), bits, partial(note, name))
        progress.at(dice.randrange(2 * 10**9), begin)
    assert progress.run(10**15)
    return reported, progress.touched


def small_buffers() -> Buffers:
    """Every link leads to a switch, or to a NIC; a switch holds 4 Mbit."""
    buffer_of = [nic // 8 for nic in range(NICS)] + [-1] * NICS
    buffer_of += [RACKS + at % SPINES for at in range(RACKS * SPINES)]
    buffer_of += [at // SPINES for at in range(RACKS * SPINES)]
    return Buffers(
        buffer_of,
        [4_000_000] * (RACKS + SPINES),
        [UNIT // 8] * (RACKS + SPINES),
        10_000,
        [],
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("buffers", [None, small_buffers()], ids=["without buffers", "with pauses"])
def test_what_changes_is_worked_out_as_if_all_were(seed: int, buffers: Buffers | None) -> None:
    found, touched = seen(Progress, seed, buffers, windows=False)
    anew, all_touched = seen(Anew, seed, buffers, windows=False)
    assert found == anew
    assert touched < all_touched


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("buffers", [None, small_buffers()], ids=["without buffers", "with pauses"])
def test_parts_have_the_rates_of_a_filling_of_the_whole(seed: int, buffers: Buffers | None) -> None:
    assert seen(Progress, seed, buffers, windows=True)[0] == seen(Whole, seed, buffers, windows=True)[0]


def test_a_flow_that_can_meet_nobody_is_left_alone() -> None:
    progress = Progress([LINE] * LINKS)
    rows = []
    for at, (source, target) in enumerate([(0, 9), (1, 9), (16, 25), (17, 26)]):
        shape = Shape((Strand(UNIT, path(source, target, at)),))
        progress.at(at * 1000, partial(progress.begin, shape, 10**6, lambda: None))
    progress.at(4000, lambda: rows.append((progress.solves, progress.touched)))
    assert progress.run(10**12)
    assert rows == [(4, 5)]
