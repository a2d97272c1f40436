"""Do the two ends of every connection agree, and does the plan follow from the scenario alone?"""

from typing import Any

import pytest

from actors.fabric.model import Topology
from emu.devices.job_plans import job_plans
from emu.devices.plan import Plan, make_plan
from emu.scenario.resolve import build_topology, resolve
from tests.ncclx.toy import collective, scenario


def planned(jobs: list[dict[str, Any]], **sections: Any) -> tuple[Topology, Plan]:
    given = scenario(jobs, **sections)
    topology = build_topology(given)
    return topology, make_plan(given, topology, resolve(given, topology))


def permutation(**more: Any) -> dict[str, Any]:
    workload = {"kind": "permutation", "size": "64KiB", **more}
    return {"name": "perm", "workload": workload}


BOTH = [collective("all_reduce", "1MiB"), permutation(qps=3)]


def test_the_two_ends_of_every_queue_pair_name_each_other() -> None:
    topology, plan = planned(BOTH, ncclx={"qps_per_connection": 4, "channels": 2})
    for nic, pairs in plan.pairs.items():
        assert [pair.index for pair in pairs] == list(range(len(pairs)))
        for pair in pairs:
            other = plan.pairs[pair.remote_nic][pair.remote_index]
            assert (other.remote_nic, other.remote_index, other.remote_qpn) == (nic, pair.index, pair.qpn)
            assert (other.qpn, other.priority, other.job) == (pair.remote_qpn, pair.priority, pair.job)
            assert pair.remote_address == topology.address_of(pair.remote_nic)
        assert len({pair.qpn for pair in pairs}) == len(pairs)


def test_a_ring_has_data_and_control_queue_pairs_to_both_neighbours_on_every_channel() -> None:
    _, plan = planned([collective("all_reduce", "1MiB")], ncclx={"qps_per_connection": 4, "channels": 2})
    assert [len(pairs) for pairs in plan.pairs.values()] == [2 * 2 * (4 + 1)] * 4
    for pairs in plan.pairs.values():
        assert sorted(pair.priority for pair in pairs) == [3] * 16 + [6] * 4


@pytest.mark.parametrize(
    ("ncclx", "priorities"),
    [({"control": "data_class"}, [3, 3, 3, 3]), ({"admission": "none"}, [3, 3])],
)
def test_control_may_ride_with_the_data_or_not_exist(ncclx: dict[str, str], priorities: list[int]) -> None:
    _, plan = planned([collective("all_reduce", "1MiB")], ncclx=ncclx)
    assert [pair.priority for pair in next(iter(plan.pairs.values()))] == priorities


def test_each_direction_between_two_ranks_has_its_own_queue_pairs() -> None:
    _, plan = planned([collective("all_reduce", "1MiB")], hosts=2)
    first, second = plan.wired()[0].sides
    assert [side.sends for side in first] == [side.sends for side in reversed(second)] == [True, False]
    assert first[0].pairs != first[1].pairs
    assert [len(pairs) for pairs in plan.pairs.values()] == [4, 4]


def test_udp_source_ports_are_one_per_queue_pair_or_one_per_pair_of_nics() -> None:
    for mode, most in (("per_qp", 34), ("per_pair", 2)):
        _, plan = planned(
            [collective("all_reduce", "1MiB")],
            ncclx={"qps_per_connection": 16},
            transport={"udp_source_port": mode},
        )
        for pairs in plan.pairs.values():
            ports = {(pair.remote_nic, pair.udp_source) for pair in pairs}
            assert 0.9 * most <= len(ports) <= most
            assert all(49152 <= pair.udp_source < 65536 for pair in pairs)


def test_the_plan_is_equal_wherever_it_is_made_and_another_seed_makes_another() -> None:
    assert planned(BOTH)[1] == planned(BOTH)[1]
    other = planned(BOTH, seed=8)[1]
    assert planned(BOTH)[1].pairs != other.pairs


def test_only_receivers_of_flows_log_deliveries() -> None:
    _, plan = planned(BOTH)
    for work in plan.jobs[1].flows:
        for index, remote_index in work.pairs:
            assert not plan.pairs[work.source][index].log_deliveries
            assert plan.pairs[work.destination][remote_index].log_deliveries
    assert not any(pair.log_deliveries for pairs in plan.pairs.values() for pair in pairs if pair.job == 0)


def test_results_know_which_messages_end_a_flow() -> None:
    topology, plan = planned([permutation(qps=3, message="10KiB")])
    for work, known in zip(plan.jobs[0].flows, job_plans(plan, topology)[0].flows, strict=True):
        # 64 KiB are 7 messages of 10 KiB: 3, 2 and 2 for the three queue pairs.
        assert [message for _, message in known.messages] == [2, 1, 1]
        assert known.nic == work.destination
        assert known.source == topology.nodes[work.source].name


def test_operations_are_the_warm_ups_and_iterations_of_every_size() -> None:
    topology, plan = planned([collective("all_gather", "1KiB", "2KiB", iterations=2, warmup=1)])
    known = job_plans(plan, topology)[0].collectives
    assert [(one.operation, one.size_bytes, one.iteration, one.warmup) for one in known] == [
        (0, 1024, 0, True),
        (1, 1024, 0, False),
        (2, 1024, 1, False),
        (3, 2048, 0, True),
        (4, 2048, 0, False),
        (5, 2048, 1, False),
    ]


def test_a_strided_ring_crosses_racks_at_every_step() -> None:
    topology, plan = planned([collective("all_reduce", "1MiB", order="strided")], hosts=4, gpus_per_host=4)
    racks = [topology.nodes[gpu].rack for gpu in plan.wired()[0].gpus]
    assert all(here != there for here, there in zip(racks, racks[1:] + racks[:1], strict=True))
