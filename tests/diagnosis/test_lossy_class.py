"""Does the DSCP map of the switches decide what class data is in, and is data in a lossy class named?"""

from __future__ import annotations

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.results.summary import Summary
from emu.scenario.load import Loaded, load_mapping
from emu.scenario.resolve import build_topology
from emu.scenario.sections.switch import EcnSection
from emu.scenario.traffic_classes import class_warnings

MAPS = {"dscp_to_tc": {0: 0, 3: 3, 26: 3, 46: 5, 48: 6, 8: 4}, "tc_to_priority_group": {5: 7, 6: 4}}
"""DSCPs 3 and 26 are in group 3, 46 in 7, 8 and 48 in 4; all others in the group of their class selector,
where 5 is 7 and 6 is 4."""
JOB = [{"name": "a", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]}}]


def loaded(switch: dict[str, Any], **more: Any) -> Loaded:
    fabric = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2}
    return load_mapping({"name": "a", "topology": fabric, "jobs": JOB, "switch": switch} | more)


def drops_of(summary: Summary) -> int:
    """Frames dropped to congestion."""
    assert summary.fabric.drops is not None
    return summary.fabric.drops.congestion


@pytest.mark.parametrize("dscp", range(64))
def test_the_map_of_the_switches_decides_the_priority_of_every_traffic_class(dscp: int) -> None:
    """The group by the two maps above, written out again; PFC and ECN follow it."""
    traffic_class = {0: 0, 3: 3, 26: 3, 46: 5, 48: 6, 8: 4}.get(dscp, dscp // 8)
    group = {5: 7, 6: 4}.get(traffic_class, traffic_class)
    switch = {"qos": MAPS, "pfc": {"priorities": [group, 1]} if group != 1 else {}, "ecn": {"enabled": True}}
    scenario = loaded(switch, ncclx={"env": {"NCCL_IB_TC": 4 * dscp}}).scenario
    assert scenario.transport.data_priority == group
    assert scenario.nic.dscp[group] == dscp
    assert group in scenario.switch.pfc.priorities
    assert isinstance(scenario.switch.ecn, EcnSection)
    assert scenario.switch.ecn.priorities == (traffic_class,)
    # A pause of priority 7 or 4 stops the queue of that number, and these two classes are in queues 5 and 6.
    assert bool(class_warnings(scenario, build_topology(scenario))) == (traffic_class in (5, 6))


@pytest.mark.parametrize("priority", [0, 1, 2, 4, 5, 6, 7])
def test_ecn_follows_data_unless_the_scenario_says_which_queues_mark(priority: int) -> None:
    pfc = {"priorities": [priority]}
    transport = {"data_priority": priority}
    for ecn, marks in (({"enabled": True}, (priority,)), ({"enabled": True, "priorities": [2]}, (2,))):
        made = loaded({"pfc": pfc, "ecn": ecn}, transport=transport)
        assert isinstance(made.scenario.switch.ecn, EcnSection)
        assert made.scenario.switch.ecn.priorities == marks
    note = f"data is in queue {priority}, so switch.ecn.priorities: [{priority}]"
    assert note in loaded({"pfc": pfc, "ecn": {"enabled": True}}, transport=transport).notes


def test_data_that_a_map_puts_into_a_lossy_class_is_reported_before_and_named_after() -> None:
    """Of DSCPs 24 to 31, the data of priority 3, a map leaves none in group 3; 40 alone is lossless."""
    switch = {"buffer": {"pool": "2MB"}, "qos": {"dscp_to_tc": {**dict.fromkeys(range(24, 32), 0), 40: 3}}}
    job = {"name": "burst", "workload": {"kind": "incast", "fan_in": 3, "size": "2MiB"}}
    fabric = {"kind": "star", "hosts": 4, "gpus_per_host": 1}
    changes = {"topology": fabric, "jobs": [job], "transport": {"timeout": 8}}
    made = loaded(switch, **changes)
    (line,) = class_warnings(made.scenario, build_topology(made.scenario))
    assert line == (
        "switch.qos: data of priority 3 leaves NICs with DSCP 24 and is lossy on tor-0 (priority group 0 has"
        " no PFC there): frames are dropped where they would be paused; nic.dscp: {3: 40} would be"
        " lossless on every switch"
    )
    found = api.run(made, local=True).summary
    dropped = drops_of(found)
    assert dropped > 0
    assert [(one.cause, one.place) for one in found.diagnosis] == [("lossy_class", "tor-0")]
    assert f"{dropped:,} frames dropped there; nic.dscp: {{3: 40}}" in found.diagnosis[0].sentence
    mended = api.run(loaded(switch, **changes, nic={"dscp": {3: 40}}), local=True).summary
    assert drops_of(mended) == 0
    assert mended.diagnosis == []


def test_a_switch_without_pfc_is_reported_and_lossy_data_that_is_meant_is_not() -> None:
    off = [{"devices": "rtsw-1", "switch": {"pfc": {"enabled": False}}}]
    scenario = loaded({}, overrides=off).scenario
    (line,) = class_warnings(scenario, build_topology(scenario))
    assert "is lossy on rtsw-1 (priority group 3 has no PFC there)" in line
    for switch in ({"pfc": {"enabled": False}}, {"deep_buffer": {"where": "all"}}):
        scenario = loaded(switch).scenario
        assert class_warnings(scenario, build_topology(scenario)) == []


def test_data_of_a_priority_that_no_switch_keeps_is_refused() -> None:
    with pytest.raises(ScenarioError, match="data at priority 2 is not lossless"):
        loaded({"pfc": {"priorities": [3]}}, ncclx={"env": {"NCCL_IB_TC": 64}})


BURST = [{"name": "burst", "workload": {"kind": "incast", "fan_in": 6, "size": "2MiB", "racks": "any"}}]
RACKS = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 2, "link": "100G"}


@pytest.mark.parametrize(
    ("switch", "priority", "dscp", "why", "value"),
    [
        (
            {"pfc": {"priorities": [3, 4]}, "qos": {"dscp_to_tc": {26: 4}}},
            3,
            26,
            "its pauses stop priority 4, and NICs go on sending priority 3",
            24,
        ),
        (
            {
                "pfc": {"priorities": [7]},
                "qos": {"dscp_to_tc": {46: 5}, "tc_to_priority_group": {5: 7}},
            },
            7,
            46,
            "a NIC's pause of priority 7 stops queue 7, and it is in queue 5",
            56,
        ),
        (
            {
                "pfc": {"priorities": [3]},
                "qos": {"pfc_priority_to_queue": {3: 4, 4: 3}},
            },
            3,
            24,
            "a NIC's pause of priority 3 stops queue 4, and it is in queue 3",
            None,
        ),
    ],
    ids=["group", "queue", "pause"],
)
def test_data_that_no_pause_stops_is_reported_before_and_named_after_with_the_map(
    switch: dict[str, Any], priority: int, dscp: int, why: str, value: int | None
) -> None:
    """Its group is lossless, and the pauses of that group, or of NICs, stop something else."""
    mapping = {
        "topology": RACKS,
        "jobs": BURST,
        "nic": {"dscp": {priority: dscp}},
        "transport": {"timeout": 8, "data_priority": priority},
    }
    made = loaded(switch | {"buffer": {"pool": "4MB"}}, **mapping)
    (line,) = class_warnings(made.scenario, build_topology(made.scenario))
    assert line.startswith(f"switch.qos: data of priority {priority} leaves NICs with DSCP {dscp} and is in")
    assert why in line
    found = api.run(made, local=True).summary
    assert found.fabric.drops is not None
    lost = {reason: found.fabric.drops.by_reason.get(reason, 0) for reason in ("headroom_overrun",)}
    assert lost["headroom_overrun"] > 0
    first = found.diagnosis[0]
    assert first.cause == "lossy_class"
    assert why in first.sentence
    if value is None:  # no DSCP is in the queue that the pause stops
        assert first.back_ps is None
        return
    mended = loaded(switch | {"buffer": {"pool": "4MB"}}, **(mapping | {"nic": {"dscp": {priority: value}}}))
    well = api.run(mended, local=True).summary
    assert drops_of(well) == 0
    (job, quick) = (one.jobs["burst"] for one in (found, well))
    took_ps = (job.end_ps or 0) - (job.start_ps or 0)
    assert first.back_ps == took_ps - ((quick.end_ps or 0) - (quick.start_ps or 0)) > took_ps // 20
    assert f"with nic.dscp.{priority}: {value}, burst would take" in first.sentence
