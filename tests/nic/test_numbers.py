"""Do queue pairs and flows get numbers that flatter no hash, the same in every worker?"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.ncclx.transport.wiring import PlannedPairs
from actors.nic.queue_pair.numbers import assign_qpns, assign_udp_source, first_psn, hash_seed, slots_for
from actors.nic.queue_pair.pair_columns import PairColumns, connect


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**18 - 1), st.integers(1, 300))
def test_queue_pairs_of_a_nic_differ_in_their_low_bits(seed: int, nic: int, count: int) -> None:
    qpns = assign_qpns(seed, nic, count)
    slots = slots_for(count)
    assert slots >= max(16, count)
    assert len(dict.fromkeys(qpn % slots for qpn in qpns)) == len(qpns) == count
    assert all(0 <= qpn < 2**24 for qpn in qpns)


def test_queue_pair_numbers_do_not_count_up() -> None:
    steps = [abs(b - a) for nic in range(50) for qpns in [assign_qpns(3, nic, 32)] for a, b in pairwise(qpns)]
    # Neighbours are on average a third of the range apart, and hardly ever next to each other.
    assert 2**24 // 4 < sum(steps) // len(steps) < 2**24 // 2
    assert sum(step < 64 for step in steps) <= 2


def test_every_low_bit_of_the_numbers_is_as_often_one_as_zero() -> None:
    qpns = [qpn for nic in range(200) for qpn in assign_qpns(5, nic, 4)]
    for bit in range(24):
        ones = sum(qpn >> bit & 1 for qpn in qpns)
        assert abs(ones - 400) < 4 * (800 / 4) ** 0.5, bit


@pytest.mark.parametrize("changed", [(2, 1), (1, 2)])
def test_numbers_depend_on_seed_and_nic(changed: tuple[int, int]) -> None:
    assert assign_qpns(*changed, 16) != assign_qpns(1, 1, 16)
    assert assign_qpns(1, 1, 16) == assign_qpns(1, 1, 16)
    drawn = [(assign_udp_source(*changed, n), first_psn(*changed, n)) for n in range(8)]
    assert drawn != [(assign_udp_source(1, 1, n), first_psn(1, 1, n)) for n in range(8)]


def test_udp_source_ports_are_spread_over_the_dynamic_range() -> None:
    ports = [assign_udp_source(9, nic, flow) for nic in range(100) for flow in range(10)]
    assert min(ports) >= 49152
    assert max(ports) <= 65535
    # 1,000 draws of 16,384 leave about 970 different ones.
    assert 940 < len(dict.fromkeys(ports)) < 1000
    for bit in range(14):
        assert abs(sum(port >> bit & 1 for port in ports) - 500) < 4 * (1000 / 4) ** 0.5, bit


def test_first_packet_numbers_have_24_bits() -> None:
    psns = [first_psn(9, nic, index) for nic in range(100) for index in range(10)]
    assert all(0 <= psn < 2**24 for psn in psns)
    assert max(psns) > 0.99 * 2**24
    assert len(dict.fromkeys(psns)) > 990


def test_every_switch_has_a_hash_seed_of_its_own_unless_they_are_to_be_equal() -> None:
    seeds = [hash_seed(1, switch) for switch in range(1000)]
    assert len(dict.fromkeys(seeds)) == 1000
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert hash_seed(1, -1) == hash_seed(1, -1) != hash_seed(2, -1)


@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=12),
    st.booleans(),
)
def test_both_ends_of_a_connection_know_each_other_by_number(
    seed: int, connections: list[tuple[int, int, int, bool]], by_peer: bool
) -> None:
    columns = {nic: PairColumns(nic) for nic in range(4)}
    for job, (nic, peer, count, flags) in enumerate(connections):
        connect(columns[nic], columns[peer], 3, job, count, logs=True, flags=flags)
    for one in columns.values():
        one.draw_numbers(seed)
    for one in columns.values():
        one.meet(columns)
        one.draw_sources(seed, by_peer)
    addresses = {nic: 100 + nic for nic in columns}
    plans = {nic: PlannedPairs(one, addresses) for nic, one in columns.items()}
    assert sum(map(len, plans.values())) == 2 * sum(count for _, _, count, _ in connections)
    for nic, pairs in plans.items():
        turns: Counter[tuple[bool, bool]] = Counter()
        qpns = assign_qpns(seed, nic, len(pairs))
        for index, pair in enumerate(pairs):
            other = plans[pair.remote_nic][pair.remote_index]
            assert (pair.nic, pair.index, pair.qpn) == (nic, index, qpns[index])
            assert (other.remote_nic, other.remote_index, other.remote_qpn) == (nic, index, pair.qpn)
            assert pair.remote_address == addresses[other.nic]
            assert pair.udp_source == assign_udp_source(seed, nic, other.nic if by_peer else index)
            flags = connections[pair.job][3]
            assert pair.log_deliveries != other.log_deliveries, "the end that data arrives at logs"
            assert pair.sends == (other.log_deliveries and not flags)
            assert pair.turn == turns[pair.log_deliveries, flags]
            turns[pair.log_deliveries, flags] += 1
