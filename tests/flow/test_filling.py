"""Do rates on shared links follow max-min, and the ports that pauses are shared by?

Every link carries 400 Gbit/s. Links are numbered by hand; a path is their list.
"""

from __future__ import annotations

import random

import pytest

from actors.flow.filling import UNIT, Filling

LINE = 400_000_000
"""In kbit/s."""


def rates(links: int, paths: list[list[int]], *, pauses: bool) -> list[int]:
    """Of flows with these paths, in Gbit/s, rounded."""
    filling = Filling([LINE] * links, pauses=pauses)
    for path in paths:
        filling.strand(filling.transfer(), UNIT, path)
    return [round(rate / 1e6) for rate in filling.rates()]


@pytest.mark.parametrize("pauses", [False, True])
def test_an_incast_shares_the_receivers_link_evenly(pauses: bool) -> None:
    assert rates(17, [[sender, 16] for sender in range(16)], pauses=pauses) == [25] * 16


PARKING = [[0, 4, 5], [1, 4, 5], [2, 4, 5], [3, 5]]
"""Three behind an uplink (4), one beside the receiver (5)."""


def test_a_parking_lot_is_shared_by_flows_without_pauses() -> None:
    assert rates(6, PARKING, pauses=False) == [100] * 4


def test_with_pauses_it_is_shared_by_ports() -> None:
    assert rates(6, PARKING, pauses=True) == [67, 67, 67, 200]


def test_a_chain_of_parking_lots_halves_at_every_switch() -> None:
    """Sender k joins at switch k; the last switch leads to the receiver."""
    chain = [[0, 10, 11, 12, 13], [1, 10, 11, 12, 13], [2, 11, 12, 13], [3, 12, 13], [4, 13]]
    assert rates(14, chain, pauses=True) == [25, 25, 50, 100, 200]


VICTIM = [[sender, 20] for sender in range(11)] + [[0, 21]]
"""Eleven send to one receiver, and the first of them also to an idle one."""


def test_without_pauses_a_victim_of_an_incast_takes_what_its_nic_has_left() -> None:
    assert rates(22, VICTIM, pauses=False) == [36] * 11 + [364]


def test_with_pauses_it_is_as_slow_as_the_incast() -> None:
    assert rates(22, VICTIM, pauses=True) == [36] * 12


def test_a_pause_goes_on_to_the_ports_before_it() -> None:
    """Eight of a rack and one beside the receiver; a ninth of the rack only shares the trunk (9).

    At the receiver's port trunk and neighbour have 200 each. The trunk's nine ports have a ninth of what it
    carries: an eighth of 200 for the incast, and as much for the ninth.
    """
    paths = [[sender, 9, 10] for sender in range(8)] + [[8, 9, 11], [12, 10]]
    assert rates(13, paths, pauses=True) == [25] * 9 + [200]


def test_what_another_link_holds_back_leaves_the_rest_to_others() -> None:
    """A flow that shares its NIC with three others needs less than its part of the receiver's port."""
    paths = [[0, 9], [1, 5], [1, 6], [1, 7], [1, 9]]
    assert rates(10, paths, pauses=True) == [300, 100, 100, 100, 100]


@pytest.mark.parametrize("pauses", [False, True])
def test_a_transfer_is_as_fast_as_its_slowest_strand(pauses: bool) -> None:
    """A ring of four edges, each over two queue pairs; one of eight meets a flow on its uplink (12)."""
    filling = Filling([LINE] * 20, pauses=pauses)
    ring = filling.transfer(2 * UNIT)
    for edge in range(4):
        for pair in range(2):
            filling.strand(ring, UNIT // 2, [edge, 8 + 2 * edge + pair, 4 + (edge + 1) % 4])
    other = filling.transfer()
    filling.strand(other, UNIT, [16, 12, 17])
    assert [round(rate / 1e6) for rate in filling.rates()] == [400, 200]


def test_a_limit_leaves_the_rest_to_others() -> None:
    filling = Filling([LINE] * 3, pauses=True)
    slow = filling.transfer()
    filling.strand(slow, UNIT, [0, 2])
    filling.limit(slow, 50_000_000)
    filling.strand(filling.transfer(), UNIT, [1, 2])
    assert [round(rate / 1e6) for rate in filling.rates()] == [50, 350]


def some_paths(seed: int) -> list[list[int]]:
    """Flows of 32 NICs of four racks, each over a spine of eight that is drawn."""
    dice = random.Random(seed)
    paths = []
    for source in range(32):
        target = (source + 8 + dice.randrange(16)) % 32
        spine = dice.randrange(8)
        uplink, downlink = 64 + source // 8 * 8 + spine, 96 + spine * 4 + target // 8
        paths.append([source, uplink, downlink, 32 + target])
    return paths


@pytest.mark.parametrize("seed", range(8))
def test_no_link_carries_more_than_it_can_and_every_flow_meets_a_full_one(seed: int) -> None:
    paths = some_paths(seed)
    filling = Filling([LINE] * 128, pauses=False)
    for path in paths:
        filling.strand(filling.transfer(), UNIT, path)
    found = filling.rates()
    loads = [0] * 128
    for path, rate in zip(paths, found, strict=True):
        for link in path:
            loads[link] += rate
    assert max(loads) <= LINE
    assert all(max(loads[link] for link in path) > LINE * 0.999 for path in paths)


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_transfers_makes_no_difference(seed: int) -> None:
    paths = some_paths(seed)
    order = list(range(32))
    random.Random(seed).shuffle(order)
    shuffled = rates(128, [paths[at] for at in order], pauses=True)
    assert [shuffled[order.index(at)] for at in range(32)] == rates(128, paths, pauses=True)
