"""Do ranks land on the GPUs, and in the order, that a job asks for?"""

from itertools import pairwise

import pytest

from emu.workload.ranks import PlacementError, place_ranks

FOUR_RACKS = [0, 0, 1, 1, 2, 2, 3, 3]
"""Eight GPUs, two in a rack."""


@pytest.mark.parametrize(
    ("ranks", "order", "placed"),
    [
        ("all", "contiguous", (0, 1, 2, 3, 4, 5, 6, 7)),
        ("all", "strided", (0, 2, 4, 6, 1, 3, 5, 7)),
        (3, "contiguous", (0, 1, 2)),
        (3, "strided", (0, 2, 1)),
        ((7, 0, 1), "contiguous", (7, 0, 1)),
        ((7, 0, 1), "strided", (7, 0, 1)),
        ((0, 1, 7), "strided", (0, 7, 1)),
        ((7, 0, 1), (2, 0, 1), (1, 7, 0)),
        (2, (1, 0), (1, 0)),
    ],
)
def test_ranks_are_placed_in_order(
    ranks: str | int | tuple[int, ...], order: str | tuple[int, ...], placed: tuple[int, ...]
) -> None:
    assert place_ranks(FOUR_RACKS, ranks, order) == placed


def test_strided_neighbours_sit_in_different_racks_as_long_as_the_racks_last() -> None:
    placed = place_ranks([gpu // 8 for gpu in range(64)], "all", "strided")
    assert sorted(placed) == list(range(64))
    assert all(one // 8 != other // 8 for one, other in pairwise(placed))


@pytest.mark.parametrize(
    ("ranks", "order", "said"),
    [
        (9, "contiguous", "ranks: 9 ranks on a fabric of 8 GPUs; accepted: at most 8"),
        ((0, 8), "contiguous", "ranks: there is no GPU 8: the fabric has 8; accepted: numbers from 0 to 7"),
        ("all", (0, 1), "order: does not order 8 ranks; accepted: each of 0 to 7 once"),
        (2, (0, 2), "order: does not order 2 ranks; accepted: each of 0 to 1 once"),
    ],
)
def test_what_the_fabric_has_no_room_for_is_refused(
    ranks: str | int | tuple[int, ...], order: str | tuple[int, ...], said: str
) -> None:
    with pytest.raises(PlacementError) as error:
        place_ranks(FOUR_RACKS, ranks, order)
    assert str(error.value) == said


def test_a_fabric_of_one_gpu_has_nobody_to_talk_to() -> None:
    with pytest.raises(PlacementError, match="the fabric has 1 GPU;"):
        place_ranks([0], "all", "contiguous")
