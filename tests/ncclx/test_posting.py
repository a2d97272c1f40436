"""Does every policy put a slice's bytes where it says, and within its bounds?"""

from typing import Any

import pytest

from actors.ncclx.transport.posting import DQPLB, POLICIES, NicLoads, Receiver
from emu import api
from tests.ncclx.toy import US, Toy, collective, scenario
from tests.scenario.plain import plain


def posted(op: str, size: str, hosts: int = 2, delay_ps: int = US, **ncclx: Any) -> list[tuple[int, int]]:
    """(place of the queue pair, bytes) of every WRITE of rank 0, in order."""
    toy = Toy(scenario([collective(op, size)], hosts=hosts, ncclx=ncclx), delay_ps).run()
    side = toy.side(0)
    pairs = list(side.pairs)
    return [(pairs.index(pair), size) for pair, size, _ in toy.nic(side.nic).posted if pair in pairs]


def test_dqplb_sends_segments_to_queue_pairs_in_turn() -> None:
    policy: dict[str, Any] = {"qps_per_connection": 3, "qp_policy": "dqplb", "dqplb": {"segment": "100KB"}}
    # A block of 256 KiB: two segments of 100,000 B and what is left, 62,144 B; then the next slice goes on
    # with the next queue pair.
    assert posted("all_gather", "1MiB", hosts=4, **policy) == [
        (place, size) for _ in range(3) for place, size in ((0, 100_000), (1, 100_000), (2, 62_144))
    ]
    four: dict[str, Any] = {**policy, "qps_per_connection": 4}
    places = [place for place, _ in posted("all_gather", "1MiB", hosts=4, **four)]
    assert places == [at % 4 for at in range(9)]


def test_dqplb_never_has_more_than_its_most_segments_outstanding_on_a_queue_pair() -> None:
    most, pairs = 2, 2
    policy: dict[str, Any] = {"qp_policy": "dqplb", "dqplb": {"segment": "4KiB", "most_outstanding": most}}
    toy = Toy(
        scenario([collective("all_gather", "512KiB")], hosts=2, ncclx={**policy, "qps_per_connection": pairs})
    )
    seen = 0

    def look() -> None:
        nonlocal seen
        for program in toy.ranks():
            for send in program.ends.sends:
                seen = max(seen, *send.sender.pair_messages)
                assert max(send.sender.pair_messages) <= most

    toy.run(look)
    assert seen == most
    # 64 segments of 4 KiB, four at a time.
    assert [program.ends.sends[0].sender.deferred > 0 for program in toy.ranks()] == [True, True]


def test_dqplb_notifies_in_order_whatever_overtakes() -> None:
    receiver = Receiver(POLICIES["dqplb"], range(4))
    last = 1 << 31
    # Slices of segments 0..1, 2 and 3..5; what arrives last is the very first.
    assert [int(receiver.on_arrived(at)) for at in (1 | last, 2 | last, 4, 5 | last, 3)] == [0] * 5
    assert receiver.on_arrived(0) == 3
    assert receiver.policy == DQPLB


def test_a_sequence_number_wraps_after_31_bits() -> None:
    receiver = Receiver(POLICIES["dqplb"], range(2))
    receiver.next = (1 << 31) - 1
    last = 1 << 31
    assert receiver.on_arrived(0 | last) == 0
    assert receiver.on_arrived(((1 << 31) - 1) | last) == 2


def test_least_loaded_over_as_many_queue_pairs_as_slots_is_round_robin_and_says_so() -> None:
    # A slot is free again when the slice before in it was acknowledged: the next in turn has nothing left.
    mapping = plain(
        {
            "name": "few",
            "topology": {"kind": "star", "hosts": 2},
            "ncclx": {"qps_per_connection": 4, "qp_policy": "least_loaded"},
            "jobs": [
                {"name": "job", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]}}
            ],
        }
    )
    found = {one.feature: one.reason for one in api.run(mapping, local=True).summary.never_fired}
    assert "next in turn, as with round_robin" in found["ncclx.qp_policy"]


def test_least_loaded_takes_the_queue_pair_with_the_fewest_bytes_outstanding() -> None:
    # Four slices of 64 KiB at once, then one for each acknowledgement: always on the queue pair that is free.
    ncclx: dict[str, Any] = {"buffsize": "256KiB", "steps": 4, "chunk_steps": 4, "slice_steps": 1}
    places = [
        place
        for place, _ in posted("all_gather", "1MiB", qps_per_connection=4, qp_policy="least_loaded", **ncclx)
    ]
    assert places == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("key", ["connection", "zone"])
def test_a_connection_keeps_to_its_limit_of_outstanding_bytes(key: str) -> None:
    # The toy's hosts are in racks of their own, with one spine: three switches between two, so a zone.
    ncclx = {
        "buffsize": "256KiB",
        "steps": 4,
        "chunk_steps": 4,
        "slice_steps": 1,
        "outstanding": {key: "128KiB"},
    }
    toy = Toy(scenario([collective("all_gather", "2MiB")], hosts=2, ncclx=ncclx), 5 * US)
    seen = 0

    def look() -> None:
        nonlocal seen
        for program in toy.ranks():
            bytes_out = program.ends.sends[0].sender.outstanding_bytes
            seen = max(seen, bytes_out)
            assert bytes_out <= 131_072

    toy.run(look)
    assert seen == 131_072
    assert all(program.ends.sends[0].sender.held > 0 for program in toy.ranks())


@pytest.mark.parametrize("key", ["rack", "pod"])
def test_a_limit_of_another_distance_binds_nobody(key: str) -> None:
    ncclx: dict[str, Any] = {"buffsize": "256KiB", "steps": 4, "chunk_steps": 4, "slice_steps": 1}
    limited = {**ncclx, "outstanding": {key: "64KiB"}}
    jobs = [collective("all_gather", "2MiB")]
    free = Toy(scenario(jobs, hosts=2, ncclx=ncclx), 5 * US).run()
    assert Toy(scenario(jobs, hosts=2, ncclx=limited), 5 * US).run().operation_ps() == free.operation_ps()


def test_a_slice_larger_than_the_limit_goes_alone() -> None:
    ncclx: dict[str, Any] = {"buffsize": "256KiB", "steps": 4, "chunk_steps": 4, "slice_steps": 1}
    limited = {**ncclx, "outstanding": {"connection": "1KiB"}}
    toy = Toy(scenario([collective("all_gather", "1MiB")], hosts=2, ncclx=limited), 5 * US).run()
    # 8 slices of 64 KiB: 65,600 B at 400G, 5 us there and 5 us back each.
    took = 8 * (1_312_000 + 10 * US)
    assert abs(toy.operation_ps() - took) <= 5 * US + 200_000


def test_of_nics_with_as_much_outstanding_the_next_one_is_chosen() -> None:
    loads = NicLoads(3)
    assert [int(loads.least(3)) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    loads.outstanding[1] = 1
    assert [int(loads.least(3)) for _ in range(4)] == [2, 0, 2, 0]
