"""What do queue pairs cost whose contexts a NIC does not have at hand?

A WRITE of 256 B has 354 B on the wire, 7,080 ps at 400G; links are 500 ns long, a fetch takes 20 ns. Queue
pairs take turns, a packet each.
"""

from typing import Any

import pytest

from emu.api import load, run
from emu.base.errors import ScenarioError
from emu.preparing import prepare
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

SIZE = 256
WIRE_PS = 354 * 20
FETCH_PS = 20_000
FLIGHT_PS = 2 * (WIRE_PS + 500_000)
PAIRS, ROUNDS = 9, 6


def built(entries: int, where: str = "*") -> Fabric:
    """Nine queue pairs, on each of which NIC 0 writes six messages to NIC 1."""
    cache = {"context_cache": {"entries": entries, "miss_penalty": "20ns"}}
    given: dict[str, Any] = {"nic": cache}
    if where != "*":
        given = {"overrides": [{"devices": [where], "nic": cache}]}
    fabric = Fabric(scenario(star(2), **given), [(0, 1)] * PAIRS)
    for _ in range(ROUNDS):
        for connection in range(PAIRS):
            fabric.post(0, connection, SIZE)
    return fabric


def last_ps(fabric: Fabric) -> int:
    return max(one.time_ps for number in range(PAIRS) for one in fabric.deliveries(number))


def test_with_one_entry_too_few_every_packet_is_fetched_for_at_both_ends() -> None:
    fabric = built(PAIRS - 1)
    fabric.run()
    # Packets leave a fetch apart, and the last is taken when its context is there.
    assert last_ps(fabric) == (PAIRS * ROUNDS - 1) * FETCH_PS + FLIGHT_PS + FETCH_PS
    assert fabric.total("nic_context_misses") == 2 * PAIRS * ROUNDS
    assert fabric.total("nic_pcie_wait_ps") == PAIRS * ROUNDS * (FETCH_PS - WIRE_PS)


def test_with_enough_entries_only_first_packets_are() -> None:
    fabric = built(PAIRS)
    fabric.run()
    first_round_ps = PAIRS * FETCH_PS
    read_ps = 3  # 256 B at a rate that is none
    assert last_ps(fabric) == first_round_ps + (PAIRS * (ROUNDS - 1) - 1) * WIRE_PS + FLIGHT_PS + read_ps
    assert fabric.total("nic_context_misses") == 2 * PAIRS


def test_a_receiver_that_fetches_for_every_packet_takes_one_in_each_fetch() -> None:
    fabric = built(PAIRS - 1, "nic-1")
    fabric.run()
    assert last_ps(fabric) == FLIGHT_PS + PAIRS * ROUNDS * FETCH_PS
    assert fabric.total("nic_context_misses") == PAIRS * ROUNDS


@pytest.mark.parametrize("events", [1, 40, 150])
def test_a_saved_nic_knows_which_contexts_it_has(events: int) -> None:
    whole, begun, resumed = built(PAIRS - 1), built(PAIRS - 1), built(PAIRS - 1)
    whole.run()
    begun.run_events(events)
    resumed.load(begun.save())
    resumed.run()
    assert (resumed.digest(), resumed.total("nic_context_misses")) == (
        whole.digest(),
        whole.total("nic_context_misses"),
    )


def test_more_queue_pairs_than_a_nic_may_have_are_refused_by_name() -> None:
    given = load("many_queue_pairs", {"nic.queue_pairs": 4999})
    with pytest.raises(ScenarioError) as refused:
        prepare(given)
    assert "nic.queue_pairs: nic-0-0 would have 5000 queue pairs, and may have 4999; accepted: fewer" in str(
        refused.value
    )
    prepare(load("many_queue_pairs", {"nic.queue_pairs": 5000}))


def test_a_run_whose_nic_fetched_contexts_says_so_and_names_the_nic() -> None:
    summary = run("many_queue_pairs", local=True).summary
    assert "nic.context_cache" not in [one.feature for one in summary.never_fired]
    first = summary.diagnosis[0]
    assert first.sentence.startswith("nic-0-0 does not take what arrives as fast as its link brings it")
    assert "nic-0-0: 40000 contexts of queue pairs fetched" in first.evidence


def test_sixteen_queue_pairs_a_connection_cost_small_messages_half_their_rate_and_large_ones_nothing() -> (
    None
):
    """The published spread: 1 (NCCL), 4 and 16 (Meta) a connection with eight peers, 128 contexts at hand."""
    took_ps: dict[int, list[int]] = {}
    for pairs in (1, 4, 16):
        changes = {"ncclx.qps_per_connection": pairs, "expect": "[]"}
        summary = run(load("queue_pairs_a_nic", changes), local=True, diagnose=False).summary
        took_ps[pairs] = [
            one.end_ps - one.start_ps
            for one in summary.jobs["exchange"].collectives
            if one.end_ps is not None and one.start_ps is not None
        ]
        misses, of_nic = summary.fabric.nic_context_misses, 2 * 8 * pairs + 2 * 8
        assert misses == 9 * of_nic if of_nic <= 128 else misses > 9 * 2 * 8 * 16, pairs
    small, large = zip(*(took_ps[pairs] for pairs in (1, 4, 16)), strict=True)
    assert small[1] / small[0] < 1.02
    assert small[2] >= 2 * 8 * 16 * 42_000
    assert 1.6 < small[2] / small[0] < 2
    assert max(large) / min(large) < 1.01
