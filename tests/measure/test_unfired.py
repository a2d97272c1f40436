"""Is every feature that was configured in vain named, and no other?"""

from typing import Any

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
            [("port_sent_data_bytes", 2, -1, "", 1), ("pfc_sent_frames", 0, 3, "", 1)],
        ),
    ]
    return [one.feature for one in summary(records, [all_reduce_plan()], MS_PS, **changes).never_fired]


def test_run_in_which_everything_fired_has_no_line() -> None:
    assert unfired() == []


def test_pause_that_was_never_sent_is_named() -> None:
    quiet = summary([record(fabric(), "controller", results=DONE)], [all_reduce_plan()])
    assert [one.feature for one in quiet.never_fired] == ["switch.pfc", "routing.policy"]


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


def test_knob_that_is_not_the_default_and_did_nothing_is_named() -> None:
    assert unfired(transport={"timeout": 8}) == ["transport.timeout"]
    assert unfired(transport={"timeout": 0}) == []
    assert unfired(switch={"buffer": {"headroom": "100KB"}}) == ["switch.buffer.headroom"]


def test_library_that_no_job_uses_is_named() -> None:
    flows = [
        {"name": "bench", "workload": {"kind": "flows", "pattern": "permutation", "size": "1MiB"}},
    ]
    assert unfired(jobs=flows, ncclx={"channels": 2}) == ["ncclx"]
    assert unfired(jobs=flows) == []


def test_job_that_the_run_did_not_get_to_is_named() -> None:
    workload = {"kind": "flows", "pattern": "permutation", "size": "1MiB"}
    assert unfired(jobs=[{"name": "bench", "start": "1ms", "workload": workload}]) == ["jobs[0]"]
    assert unfired(jobs=[{"name": "bench", "start": "999us", "workload": workload}]) == []


def test_a_way_to_memory_on_which_nothing_waited_is_named() -> None:
    assert unfired(nic={"receive": {"enabled": True}}) == ["nic.receive"]
