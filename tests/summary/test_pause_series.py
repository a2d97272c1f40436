"""Do both ends of a link tell the same pauses: how often, and for how long?"""

import pytest

from emu import api
from emu.counts.collected import DeviceRecord
from emu.scenario.resolve import build_topology


def value(record: DeviceRecord, metric: str, port: int, priority: int) -> int:
    (found,) = (
        count
        for series, count in zip(record.series, record.counters, strict=True)
        if (series.metric, series.port, series.priority) == (metric, port, priority)
    )
    return found


INCAST = {
    "name": "paused",
    "topology": {
        "kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 2, "link": "100G"
    },
    "switch": {"buffer": {"pool": "1MiB"}, "pfc": {"quanta": 400}},
    "jobs": [
        {"name": "incast", "workload": {"kind": "incast", "size": "256KiB", "fan_in": 7}}
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def result() -> api.Result:
    return api.run(INCAST, local=True, diagnose=False)


def test_what_one_end_tells_the_other_obeys_as_often_and_as_long(result: api.Result) -> None:
    topology = build_topology(api.load(INCAST).scenario)
    records = {record.number: record for record in result.outcome.devices}
    stops = 0
    for switch in topology.switches:
        for port, end in enumerate(topology.ports(switch)):
            mine, peers = records[switch], records[end.peer]
            for priority in range(8):
                reported = value(mine, "pfc_transmit_transitions", port, priority)
                assert reported == value(peers, "pfc_receive_transitions", end.peer_port, priority)
                stopped_ps = value(mine, "pfc_transmit_paused_ps", port, priority)
                # Both frames of a pause take as long to fly and to be obeyed, so the spans are equal.
                assert stopped_ps == value(peers, "pfc_paused_ps", end.peer_port, priority)
                assert (stopped_ps > 0) == (reported > 0)
                assert reported <= value(mine, "pfc_transmit_xoff_frames", port, priority)
                assert reported == value(mine, "pfc_transmit_xon_frames", port, priority)
                assert reported == value(peers, "pfc_receive_xon_frames", end.peer_port, priority)
                stops += reported
    assert stops > 3


def test_a_reminder_is_no_transition(result: api.Result) -> None:
    counted = {"pfc_transmit_transitions": 0, "pfc_transmit_xoff_frames": 0}
    for record in result.outcome.devices:
        for series, count in zip(record.series, record.counters, strict=True):
            if series.metric in counted:
                counted[series.metric] += count
    assert 0 < counted["pfc_transmit_transitions"] < counted["pfc_transmit_xoff_frames"]


def test_a_pause_that_goes_on_is_counted_up_to_now() -> None:
    storm = {"kind": "pause_storm", "at": "10us", "target": "nic-0-0"}
    run = {"max_time": "200us", "stall_after": "1ms"}
    result = api.run(INCAST | {"faults": [storm], "run": run}, local=True, diagnose=False)
    topology = build_topology(api.load(INCAST).scenario)
    nic = topology.node_named("nic-0-0").number
    record = result.outcome.devices[nic]
    assert result.outcome.virtual_ps == 200_000_000
    assert value(record, "pfc_transmit_transitions", 0, 3) == 1
    assert value(record, "pfc_transmit_paused_ps", 0, 3) == 190_000_000


def test_a_link_that_goes_down_ends_what_was_reported() -> None:
    faults = [
        {"kind": "pause_storm", "at": "10us", "target": "nic-0-0", "for": "100us"},
        {"kind": "nic_down", "at": "50us", "target": "nic-0-0", "for": "20us"},
    ]
    run = {"max_time": "200us", "stall_after": "1ms"}
    result = api.run(INCAST | {"faults": faults, "run": run}, local=True, diagnose=False)
    topology = build_topology(api.load(INCAST).scenario)
    record = result.outcome.devices[topology.node_named("nic-0-0").number]
    assert value(record, "pfc_transmit_transitions", 0, 3) == 2
    assert value(record, "pfc_transmit_paused_ps", 0, 3) == (40 + 40) * 1_000_000
