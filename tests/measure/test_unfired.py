"""Is every feature that was configured in vain named, and no other?"""

from typing import Any

import pytest

from emu import api
from tests.measure.handmade import all_reduce_plan, fabric, record, summary

MS_PS = 10**9
DONE = {"operations": [[0, 0, 0, 100_000_000, 0]]}


def unfired(**changes: Any) -> list[str]:
    topology = fabric()
    records = [
        record(topology, "controller", results=DONE),
        record(
            topology,
            "rtsw-0",
            [("port_transmit_payload_bytes", 2, -1, "", 1), ("pfc_transmit_xoff_frames", 0, 3, "", 1)],
        ),
    ]
    return [one.feature for one in summary(records, [all_reduce_plan()], MS_PS, **changes).never_fired]


def test_run_in_which_everything_fired_has_no_line() -> None:
    assert unfired() == []


def test_pause_that_was_never_sent_is_named() -> None:
    quiet = summary([record(fabric(), "controller", results=DONE)], [all_reduce_plan()])
    assert [one.feature for one in quiet.never_fired] == ["switch.pfc", "routing.kind"]


def test_pfc_that_is_off_is_not_named() -> None:
    quiet = summary(
        [record(fabric(), "controller", results=DONE)],
        [all_reduce_plan()],
        switch={"pfc": {"enabled": False}},
    )
    assert "switch.pfc" not in [one.feature for one in quiet.never_fired]


def test_fault_after_the_end_is_named() -> None:
    fault = {"at": "1ms", "kind": "link_down", "target": "rtsw-0:ctsw-0"}
    assert unfired(faults=[fault]) == ["faults[0]"]
    assert unfired(faults=[fault | {"at": "999us"}]) == []


def test_repair_of_what_is_up_is_named() -> None:
    repair = {"at": "500us", "kind": "link_up", "target": "rtsw-0:ctsw-0"}
    fault = {"at": "100us", "kind": "link_down", "target": "rtsw-0:ctsw-0"}
    assert unfired(faults=[repair]) == ["faults[0]"]
    assert unfired(faults=[fault, repair]) == []


IDLE: dict[str, tuple[dict[str, Any], tuple[str, int, int, str, int]]] = {
    "pause_loss": ({"target": "rtsw-0"}, ("pfc_transmit_xoff_frames", 0, 3, "", 1)),
    "headroom_drift": ({"target": "rtsw-0", "headroom": "0B"}, ("headroom_peak_bytes", 0, 3, "", 1)),
    "alpha_drift": ({"target": "rtsw-0", "alpha": "1"}, ("port_dropped_frames", 0, -1, "no_shared_room", 1)),
    "pfc_drift": ({"target": "rtsw-0/0"}, ("pfc_transmit_xoff_frames", 0, 3, "", 1)),
    "hash_seed_drift": ({"target": "rtsw-0", "seed": 7}, ("port_transmit_payload_bytes", 2, -1, "", 1)),
    "hash_fields_drift": (
        {"target": "rtsw-0", "policy": "ecmp"},
        ("port_transmit_payload_bytes", 3, -1, "", 1),
    ),
    "gpu_slow": ({"target": "gpu-0-0"}, ("gpu_copies", -1, -1, "", 1)),
    "gpu_hung": ({"target": "gpu-0-0"}, ("gpu_copies", -1, -1, "", 1)),
}
"""Keys of a fault, and a counter without which it did nothing."""


@pytest.mark.parametrize("kind", IDLE)
def test_fault_of_what_nothing_used_is_named(kind: str) -> None:
    keys, counter = IDLE[kind]
    faults = [{"at": "1us", "kind": kind} | keys]
    for counters, named in (([], True), ([counter], False)):
        records = [record(fabric(), "controller", results=DONE), record(fabric(), "rtsw-0", counters)]
        found = summary(records, [all_reduce_plan()], MS_PS, faults=faults).never_fired
        assert ("faults[0]" in [one.feature for one in found]) == named


@pytest.mark.parametrize(("pair", "named"), [(0, False), (500, True)])
def test_a_queue_pair_that_a_nic_does_not_have_is_named(pair: int, named: bool) -> None:
    fault = {"at": "10us", "kind": "qp_error", "target": "nic-0-0", "pair": pair}
    result = api.run(
        "scenarios/start/tiny_all_reduce.yaml",
        overrides={"faults": [fault], "expect": []},
        local=True,
        diagnose=False,
    )
    lines = {one.feature: one.reason for one in result.summary.never_fired}
    assert lines.get("faults[0]", "").startswith("nic-0-0 has no such queue pair") == named


def test_rates_at_which_nothing_broke_are_named_and_counted_as_nothing() -> None:
    drawn = {"kind": "random", "table": "llama3", "acceleration": 1, "within": "1ms"}
    rows = [record(fabric(), "controller", results=DONE)]
    found = summary(rows, [all_reduce_plan()], MS_PS, faults=[drawn])
    (line,) = [one for one in found.never_fired if one.feature == "faults[0]"]
    assert line.reason == "none was drawn: raise acceleration or within"
    assert (found.faults[0].happened, found.faults[0].times) == (False, 0)


def test_knob_that_is_not_the_default_and_did_nothing_is_named() -> None:
    assert unfired(transport={"timeout": 8}) == ["transport.timeout"]
    assert unfired(transport={"timeout": 0}) == []
    assert unfired(switch={"buffer": {"headroom": "100KB"}}) == ["switch.buffer.headroom"]


def test_profile_of_groups_and_queues_that_nothing_came_near_is_named() -> None:
    group, queue = [{"priorities": [5]}], [{"priorities": [5]}]
    switch = {"buffer": {"profiles": group}, "ecn": {"enabled": True, "profiles": queue}}
    assert unfired(switch=switch) == ["switch.ecn", "switch.buffer.profiles[0]", "switch.ecn.profiles[0]"]
    topology = fabric()
    used = [
        ("port_transmit_payload_bytes", 2, -1, "", 1),
        ("pfc_transmit_xoff_frames", 0, 3, "", 1),
        ("ingress_peak_bytes", 0, 5, "", 4158),
        ("queue_marked_frames", 2, 5, "", 1),
    ]
    records = [record(topology, "controller", results=DONE), record(topology, "rtsw-0", used)]
    assert summary(records, [all_reduce_plan()], MS_PS, switch=switch).never_fired == []


def test_limit_of_lossy_queues_and_static_threshold_that_nothing_reached_are_named() -> None:
    assert unfired(switch={"buffer": {"egress_limit": "1MB"}}) == ["switch.buffer.egress_limit"]
    assert unfired(switch={"buffer": {"egress_alpha": 1}}) == ["switch.buffer.egress_alpha"]
    assert unfired(switch={"buffer": {"xoff": "1MB"}}) == []  # a pause was sent
    quiet = summary(
        [record(fabric(), "controller", results=DONE)],
        [all_reduce_plan()],
        switch={"buffer": {"xoff": "1MB"}},
    )
    assert "switch.buffer.xoff" in [one.feature for one in quiet.never_fired]


def test_nvlink_that_nobody_sent_over_is_named() -> None:
    assert unfired(host={"nvlink": {"rate": "7200G"}}) == ["host.nvlink"]
    assert unfired(host={"nvlink": {"enabled": False}}) == []


def test_pcie_that_nothing_waited_for_is_named() -> None:
    assert unfired(host={"pcie": {"enabled": True}}) == ["host.pcie"]


def test_a_cache_of_contexts_that_held_all_is_named() -> None:
    assert unfired(nic={"context_cache": {"entries": 8}}) == ["nic.context_cache"]


def test_library_that_no_job_uses_is_named() -> None:
    flows = [
        {"name": "bench", "workload": {"kind": "permutation", "size": "1MiB"}},
    ]
    assert unfired(jobs=flows, ncclx={"channels": 2}) == ["ncclx"]
    assert unfired(jobs=flows) == []


def test_job_that_the_run_did_not_get_to_is_named() -> None:
    workload = {"kind": "permutation", "size": "1MiB"}
    assert unfired(jobs=[{"name": "bench", "start": "1ms", "workload": workload}]) == ["jobs[0]"]
    assert unfired(jobs=[{"name": "bench", "start": "999us", "workload": workload}]) == []


def test_a_way_to_memory_on_which_nothing_waited_is_named() -> None:
    assert unfired(nic={"receive": {"enabled": True}}) == ["nic.receive"]


LIST = {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "1MiB"}]}


def test_transport_that_had_nothing_to_do_is_named() -> None:
    assert unfired(transport={"recovery": {"kind": "selective_repeat"}}) == ["transport.recovery"]
    assert unfired(transport={"recovery": {"kind": "go_back_n"}}) == []
    adaptive = {"adaptive_retransmission": {"enabled": True}}
    assert unfired(transport=adaptive) == ["transport.adaptive_retransmission"]
    assert unfired(transport={"receive_queue": {"depth": 4}, "rnr_retry": 3}) == ["transport.receive_queue"]
    assert unfired(transport={"rnr_retry": 3}) == ["transport.rnr_retry"]
    assert unfired(transport={"max_rd_atomic": 3}) == ["transport.max_rd_atomic"]
    assert unfired(nic={"bond": "first"}) == ["nic.bond"]
    assert unfired(nic={"corrupt_every": 100}) == ["nic.corrupt_every"]


def test_transport_that_had_something_to_do_is_not_named() -> None:
    topology = fabric()
    counted = [("nic_out_of_sequence", -1, -1, "", 1), ("nic_roce_adp_retrans", -1, -1, "", 1)]
    counted += [("nic_out_of_buffer", -1, -1, "", 1), ("nic_bond_failovers", -1, -1, "", 1)]
    records = [
        record(topology, "controller", results=DONE),
        record(
            topology,
            "rtsw-0",
            [("port_transmit_payload_bytes", 2, -1, "", 1), ("pfc_transmit_xoff_frames", 0, 3, "", 1)],
        ),
        record(topology, "nic-0-0", counted),
    ]
    transport = {
        "recovery": {"kind": "selective_repeat"},
        "adaptive_retransmission": {"enabled": True},
        "receive_queue": {"depth": 4},
        "max_rd_atomic": 3,
    }
    jobs = [{"name": "bench", "workload": {**LIST, "verb": "read"}}]
    found = summary(records, [], transport=transport, nic={"bond": "first"}, jobs=jobs).never_fired
    assert found == []


def test_congestion_control_that_had_no_reason_to_act_is_named() -> None:
    for algorithm in ("dcqcn", "swift"):
        one = {"congestion_control": {"kind": algorithm}}
        assert unfired(transport=one) == ["transport.congestion_control"]


def test_credits_that_never_ran_out_are_named() -> None:
    assert unfired(link={"flow_control": "credits"}) == ["link.flow_control"]


def test_a_static_route_that_nothing_took_is_named() -> None:
    taken = {"switch": "rtsw-0", "destination": "nic-1-0", "via": "ctsw-0"}
    idle = {"switch": "rtsw-1", "destination": "nic-0-0", "via": "ctsw-0"}
    assert unfired(switch={"static_routes": [taken, idle]}) == ["switch.static_routes[1]"]


def test_halves_of_pfc_are_named_if_nothing_was_paused_or_dropped() -> None:
    off: list[dict[str, Any]] = [
        {"devices": "nic-0-0", "switch": {"pfc": {"enabled": False}}},
        {"devices": "nic-1-0", "switch": {"pfc": {"ignores": ["*"]}}},
    ]
    assert unfired(overrides=off) == []
    quiet = summary(
        [record(fabric(), "controller", results=DONE)],
        [all_reduce_plan()],
        overrides=off,
    )
    named = [one.feature for one in quiet.never_fired]
    asked = ["overrides[0].switch.pfc.enabled", "routing.kind", "overrides[1].switch.pfc"]
    assert named == ["switch.pfc", *asked]


def test_a_control_that_had_no_queue_to_answer_to_is_named() -> None:
    for name in ("swift", "hybrid", "hpcc"):
        control = {"congestion_control": {"kind": name}}
        assert unfired(transport=control) == ["transport.congestion_control"], name
