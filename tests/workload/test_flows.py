"""Do patterns become the flows they promise, the same ones for the same seed?"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.devices.drawing import blueprint_of
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.workload.flows import Flow, PatternError, check_ranks, incast, permutation

KIB = 1024
RACKS = st.lists(st.integers(min_value=0, max_value=5), min_size=2, max_size=40)
SEEDS = st.integers(min_value=0, max_value=2**63 - 1)


def ends(flows: list[Flow]) -> list[int]:
    """The receiver of each rank in turn, checking that every rank sends once and receives once."""
    assert [flow.src for flow in flows] == list(range(len(flows)))
    receivers = [flow.dst for flow in flows]
    assert sorted(receivers) == list(range(len(flows)))
    return receivers


@given(RACKS, SEEDS)
def test_nobody_sends_to_itself(racks: list[int], seed: int) -> None:
    receivers = ends(permutation(racks, KIB, "any", seed))
    assert all(src != dst for src, dst in enumerate(receivers))


@given(RACKS, SEEDS)
def test_distinct_racks_are_kept_or_refused(racks: list[int], seed: int) -> None:
    fullest = max(Counter(racks).values())
    if 2 * fullest > len(racks):
        with pytest.raises(
            PatternError, match=rf"racks: one rack has {fullest} of the job's {len(racks)} ranks"
        ):
            permutation(racks, KIB, "distinct", seed)
        return
    receivers = ends(permutation(racks, KIB, "distinct", seed))
    assert all(racks[src] != racks[dst] for src, dst in enumerate(receivers))


def test_the_next_rack_receives_place_by_place() -> None:
    assert ends(permutation([0, 0, 1, 1, 2, 2], KIB, "next", 1)) == [2, 3, 4, 5, 0, 1]
    assert ends(permutation([7, 3, 7, 3], KIB, "next", 1)) == [1, 0, 3, 2]


@pytest.mark.parametrize("racks", [[0, 0], [0, 0, 1]])
def test_next_racks_that_differ_are_refused(racks: list[int]) -> None:
    with pytest.raises(PatternError, match="accepted: two or more racks, equally full"):
        permutation(racks, KIB, "next", 1)


def test_a_permutation_depends_on_the_seed_and_the_job_alone() -> None:
    racks = [rank // 8 for rank in range(64)]
    one = permutation(racks, KIB, "any", 7)
    assert one == permutation(racks, KIB, "any", 7)
    assert one != permutation(racks, KIB, "any", 8)
    assert one != permutation(racks, KIB, "any", 7, job=1)


def test_permutations_are_drawn_evenly() -> None:
    """Over 3,000 seeds each of the 9 derangements of 4 is drawn 333 times, give or take 5 standard errors."""
    counts = Counter(tuple(ends(permutation([0] * 4, KIB, "any", seed))) for seed in range(3000))
    assert len(counts) == 9
    error = (3000 * (1 / 9) * (8 / 9)) ** 0.5
    assert all(abs(count - 3000 / 9) < 5 * error for count in counts.values()), counts


def test_the_permutation_of_a_seed_never_changes() -> None:
    assert ends(permutation([0, 0, 0, 0, 1, 1, 1, 1], KIB, "any", 1)) == [2, 3, 6, 5, 7, 0, 1, 4]
    assert ends(permutation([0, 0, 0, 0, 1, 1, 1, 1], KIB, "distinct", 1)) == [7, 5, 4, 6, 2, 3, 0, 1]


def test_an_incast_is_fed_by_the_ranks_after_its_destination() -> None:
    flows = incast([0] * 6, KIB, fan_in=3, destination=4)
    assert flows == [Flow(5, 4, KIB), Flow(0, 4, KIB), Flow(1, 4, KIB)]


def test_an_incast_from_other_racks_leaves_its_own_out() -> None:
    flows = incast([0, 0, 1, 1, 2, 2], KIB, fan_in=4, destination=2, spread="distinct")
    assert [flow.src for flow in flows] == [4, 5, 0, 1]


@pytest.mark.parametrize(
    ("fan_in", "destination", "spread", "said"),
    [
        (6, 0, "any", "fan_in: 6 senders, but the job has 5 other ranks; accepted: at most 5"),
        (
            5,
            0,
            "distinct",
            "fan_in: 5 senders, but the job has 4 other ranks in other racks; accepted: at mo",
        ),
        (1, 6, "any", "destination: there is no rank 6: the job has 6; accepted: a rank from 0 to 5"),
    ],
)
def test_more_senders_than_ranks_are_refused(fan_in: int, destination: int, spread: str, said: str) -> None:
    with pytest.raises(PatternError) as error:
        incast([0, 0, 1, 1, 2, 2], KIB, fan_in, destination, spread)
    assert str(error.value).startswith(said)


def test_flows_of_ranks_that_do_not_exist_are_found() -> None:
    assert check_ranks([Flow(0, 1, KIB), Flow(2, 5, KIB), Flow(9, 0, KIB)], ranks=3) == [
        (1, "dst", 5),
        (2, "src", 9),
    ]


def test_a_flow_of_a_list_has_the_traffic_class_that_it_names_or_that_of_its_job() -> None:
    flows = [{"src": 0, "dst": 1, "size": "1KiB"}, {"src": 0, "dst": 1, "size": "1KiB", "priority": 5}]
    workload = {"kind": "flows", "qps": 2, "flows": flows}
    for own, expected in (({}, [3, 3, 5, 5]), ({"data_priority": 4}, [4, 4, 5, 5])):
        mapping = {
            "name": "classes",
            "topology": {"kind": "star", "hosts": 2, "gpus_per_host": 1},
            "jobs": [{"name": "a", "workload": workload, **own}],
        }
        one = load_mapping(mapping).scenario
        topology = build_topology(one)
        plan = blueprint_of(one, topology).plan
        for nic in topology.nics:
            assert [pair.priority for pair in plan.pairs[nic]] == expected
