"""Do ECMP and E-ECMP spread flows as luck would, no better and no worse?

16 NICs of a rack on 16 uplinks, one flow each to the next rack, over 200 seeds. What luck would do is thrown
here with dice of its own: one ball for each queue pair, 16 bins.
"""

from __future__ import annotations

from random import Random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.nic.queue_pair.numbers import assign_qpns, assign_udp_source, hash_seed
from actors.switch.routing.hashing import E_ECMP, ECMP, choose, flow_hash
from actors.wire.frame import WRITE_MIDDLE, Frame
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, zone

FLOWS = UPLINKS = 16
SEEDS = range(200)
TRIALS = 4000
RACKS = zone(2, FLOWS, UPLINKS)
TOPOLOGY = build_topology(scenario(RACKS))
LEAF = TOPOLOGY.node_named("rtsw-0").number


def chosen(seed: int, queue_pairs: int, policy: int, port_per_pair: bool) -> list[list[int]]:
    """The uplink of each queue pair of each flow, as the leaf's hash has it."""
    uplinks = []
    for flow in range(FLOWS):
        src, dst = TOPOLOGY.nics[flow], TOPOLOGY.nics[FLOWS + flow]
        numbers = assign_qpns(seed, dst, queue_pairs)
        ports = [assign_udp_source(seed, src, 0 if port_per_pair else n) for n in range(queue_pairs)]
        here = []
        for number, port in zip(numbers, ports, strict=True):
            addresses = TOPOLOGY.address_of(src), TOPOLOGY.address_of(dst)
            frame = Frame(WRITE_MIDDLE, 3, *addresses, port, number, 0, 4096, 4178)
            here.append(choose(flow_hash(frame, policy, hash_seed(seed, LEAF)), UPLINKS))
        uplinks.append(here)
    return uplinks


def fullest_and_idle(uplinks: list[list[int]]) -> tuple[float, int]:
    """Load of the fullest uplink, in flows, and how many uplinks have nothing to carry."""
    counts = [0] * UPLINKS
    for here in uplinks:
        for uplink in here:
            counts[uplink] += 1
    return max(counts) / len(uplinks[0]), counts.count(0)


def luck(queue_pairs: int) -> list[tuple[float, int]]:
    """The same of balls thrown into bins."""
    dice = Random(queue_pairs)
    return [
        fullest_and_idle([[dice.randrange(UPLINKS) for _ in range(queue_pairs)] for _ in range(FLOWS)])
        for _ in range(TRIALS // queue_pairs)
    ]


def assert_within_three_standard_errors(seen: list[float], expected: list[float]) -> None:
    """The two means agree as well as two such samples do."""
    error = (stdev(seen) ** 2 / len(seen) + stdev(expected) ** 2 / len(expected)) ** 0.5
    assert abs(fmean(seen) - fmean(expected)) <= 3 * error, (fmean(seen), fmean(expected), error)


@pytest.mark.parametrize(
    ("policy", "queue_pairs", "port_per_pair"),
    [
        (E_ECMP, 1, False),
        (E_ECMP, 4, False),
        (E_ECMP, 16, False),
        (E_ECMP, 1, True),
        (E_ECMP, 4, True),
        (E_ECMP, 16, True),
        (ECMP, 1, True),
        (ECMP, 1, False),
        (ECMP, 4, False),
        (ECMP, 16, False),
    ],
)
def test_the_fullest_uplink_and_the_idle_ones_are_as_luck_has_it(
    policy: int, queue_pairs: int, port_per_pair: bool
) -> None:
    seen = [fullest_and_idle(chosen(seed, queue_pairs, policy, port_per_pair)) for seed in SEEDS]
    expected = luck(queue_pairs)
    assert_within_three_standard_errors([full for full, _ in seen], [full for full, _ in expected])
    assert_within_three_standard_errors([float(idle) for _, idle in seen], [float(i) for _, i in expected])


@pytest.mark.parametrize("queue_pairs", [4, 16])
def test_with_the_five_tuple_and_one_port_per_pair_more_queue_pairs_change_nothing(queue_pairs: int) -> None:
    for seed in SEEDS[:50]:
        alone = chosen(seed, 1, ECMP, port_per_pair=True)
        assert chosen(seed, queue_pairs, ECMP, port_per_pair=True) == [here * queue_pairs for here in alone]


@pytest.mark.parametrize("policy", ["ecmp", "e_ecmp"])
def test_a_running_switch_sends_where_its_hash_says(policy: str) -> None:
    seed = 11
    pairs = [(flow, FLOWS + flow) for flow in range(FLOWS) for _ in range(4)]
    fabric = Fabric(scenario(RACKS, seed=seed, routing={"kind": policy}), pairs)
    for number in range(len(pairs)):
        fabric.post(0, number, 4096 * (number + 1))
    leaf = fabric.switch("rtsw-0")
    expected = [0] * UPLINKS
    for connection in fabric.connections:
        pair = fabric.pair(connection)
        addresses = pair.address, pair.remote_address
        frame = Frame(WRITE_MIDDLE, 3, *addresses, pair.udp_source, pair.remote_qpn, 0, 4096, 4178)
        hash32 = flow_hash(frame, E_ECMP if policy == "e_ecmp" else ECMP, hash_seed(seed, LEAF))
        expected[choose(hash32, UPLINKS)] += connection.number + 1
    fabric.run()
    assert [port.sent_data_bytes // 4096 for port in leaf.ports[FLOWS:]] == expected
    assert fabric.broken(at_rest=True, lossless=True) == []


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**20))
def test_a_choice_is_a_member(hash32: int, members: int) -> None:
    assert 0 <= choose(hash32, members) < members
    assert choose(0, members) == 0
    assert choose(2**32 - 1, members) == members - 1


@pytest.mark.parametrize("members", [2, 3, 7, 12, 64])
def test_no_size_of_group_is_favoured(members: int) -> None:
    counts = [0] * members
    draws = 300 * members
    for flow in range(draws):
        frame = Frame(WRITE_MIDDLE, 3, flow, flow // 8 + 1024, 49152 + flow * 7 % 16384, 5, 0, 4096, 4178)
        counts[choose(flow_hash(frame, E_ECMP, 12345), members)] += 1
    statistic = sum((count - 300) ** 2 / 300 for count in counts)
    assert abs(statistic - (members - 1)) < 4 * (2 * (members - 1)) ** 0.5


def test_another_seed_is_another_hash_and_not_a_permutation_of_the_members() -> None:
    # Flows that collide under one seed collide under another no more often than any two do: 1 in 16.
    frames = [Frame(WRITE_MIDDLE, 3, n, 1024 + n, 50_000, 77, 0, 4096, 4178) for n in range(200)]
    together = again = 0
    for seed in range(20):
        one = [choose(flow_hash(frame, ECMP, hash_seed(seed, 1)), 16) for frame in frames]
        other = [choose(flow_hash(frame, ECMP, hash_seed(seed, 2)), 16) for frame in frames]
        for a in range(200):
            for b in range(a):
                if one[a] == one[b]:
                    together += 1
                    again += other[a] == other[b]
    share = again / together
    assert abs(share - 1 / 16) < 4 * (1 / 16 * 15 / 16 / together) ** 0.5


def test_acknowledgements_of_a_flow_may_take_another_way_than_its_data() -> None:
    data = chosen(3, 1, E_ECMP, port_per_pair=False)
    back = []
    for flow in range(FLOWS):
        src, dst = TOPOLOGY.nics[FLOWS + flow], TOPOLOGY.nics[flow]
        frame = Frame(
            WRITE_MIDDLE, 3, TOPOLOGY.address_of(src), TOPOLOGY.address_of(dst), 50_000, 9, 0, 0, 86
        )
        back.append([choose(flow_hash(frame, E_ECMP, hash_seed(3, LEAF)), UPLINKS)])
    assert data != back
