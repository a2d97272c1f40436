"""Does a lossless fabric lose nothing, whatever its shape, its thresholds and its traffic?"""

from random import Random

import pytest

from actors.wire.message import STATUS_RETRY_EXCEEDED
from tests.fabric.random_fabric import random_fabric
from tests.fabric.rig import Fabric
from tests.fabric.test_lossless_flaps import flap_and_check


def run_and_check(seed: int, lossless: tuple[int, ...] = (3, 6), varied: bool = False) -> None:
    """Run a random fabric to its end, looking at every rule at random moments and at rest."""
    fabric = random_fabric(seed, lossless=lossless, varied=varied)
    nothing_lossy = lossless == (3, 6)
    random = Random(seed + 1_000_000)
    moments = 12
    while True:
        budget = random.choice((1, 7, 50, 400, 1500)) if moments else 10**9
        done = fabric.run_events(budget)
        if done < budget:
            break
        if moments:
            moments -= 1
            assert fabric.broken(lossless=nothing_lossy) == [], f"seed {seed}"
    assert fabric.broken(at_rest=True, lossless=nothing_lossy) == [], f"seed {seed}"
    assert fabric.total("port_dropped_frames", "headroom_overrun") == 0, f"seed {seed}"
    if nothing_lossy and not varied:
        assert fabric.total("nic_out_of_sequence") == fabric.total("nic_duplicate_request") == 0
    if (fabric.scenario.nic.corrupt_every or not nothing_lossy) and given_up(fabric):
        return  # losses in a rhythm, or a class without pauses, can meet one packet eight times
    assert sum(nic.delivered_bytes for nic in fabric.nics) == fabric.posted_bytes, f"seed {seed}"
    assert sum(size for nic in fabric.nics for _, _, _, size in nic.deliveries) == fabric.posted_bytes


def given_up(fabric: Fabric) -> bool:
    """Whether a queue pair has used up its retries."""
    ends = (end for connection in fabric.connections for end in (connection, connection.reversed()))
    return any(c.status == STATUS_RETRY_EXCEEDED for end in ends for c in fabric.completions(end))


@pytest.mark.parametrize("seed", range(140))
def test_a_lossless_fabric_loses_nothing_and_comes_to_rest(seed: int) -> None:
    run_and_check(seed)


@pytest.mark.parametrize("seed", range(50))
def test_a_lossless_class_loses_nothing_beside_a_lossy_one(seed: int) -> None:
    run_and_check(seed, lossless=(3,))


@pytest.mark.parametrize("seed", range(50))
def test_a_lossless_fabric_loses_nothing_whatever_ways_packets_take(seed: int) -> None:
    run_and_check(seed, varied=True)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(200))
def test_a_lossless_fabric_loses_nothing_over_thousands_of_seeds(block: int) -> None:
    for seed in range(1000 + 100 * block, 1100 + 100 * block, 4):
        run_and_check(seed)
        run_and_check(seed + 1, lossless=(3,))
        run_and_check(seed + 2, varied=True)
        flap_and_check(seed + 3)
