"""Does a packet get the queue and the priority group that the maps of each switch give its DSCP?"""

from __future__ import annotations

from typing import Any

import pytest

from actors.wire.frame import Frame
from emu.base.errors import ScenarioError
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star, zone
from tests.switch.frames import FULL_PS, frame_arrives, pause_arrives

US = 1_000_000


def mapped(**maps: Any) -> Fabric:
    return Fabric(scenario(star(3), switch={"qos": maps}))


def test_a_packet_waits_in_the_queue_that_its_dscp_is_mapped_to() -> None:
    fabric = mapped(dscp_to_tc={24: 5}, tc_to_queue={5: 1})
    for port in (0, 1):
        frame_arrives(fabric, 1 * US, port, 2)  # priority 3, so DSCP 24
    fabric.run(1 * US + 1)
    exit_port = fabric.switch("switch").ports[2]
    assert [queue.queued_bytes for queue in exit_port.queues] == [0, 4194, 0, 0, 0, 0, 0, 0]
    assert [group.held_bytes for group in fabric.switch("switch").buffer.groups[8:16]] == [0] * 5 + [
        4174,
        0,
        0,
    ]
    fabric.run()
    assert fabric.switch("switch").buffer.held_bytes == 0
    assert fabric.total("qos_moved_frames") == 2


def test_a_pause_stops_the_queue_that_its_priority_is_mapped_to() -> None:
    fabric = mapped(tc_to_queue={3: 1, 1: 3}, pfc_priority_to_queue={3: 1, 1: 3})
    pause_arrives(fabric, 1 * US, 2, stop=1 << 3)
    held = frame_arrives(fabric, 2 * US, 0, 2, priority=3)
    free = frame_arrives(fabric, 2 * US + 1, 1, 2, priority=1)
    pause_arrives(fabric, 5 * US, 2, resume=1 << 3)
    fabric.run()
    assert (free.sent_ps, held.sent_ps) == (2 * US + 1, 5 * US)


def test_a_queue_whose_pause_goes_elsewhere_is_not_stopped() -> None:
    fabric = mapped(tc_to_queue={3: 1})
    pause_arrives(fabric, 1 * US, 2, stop=1 << 3)
    frame = frame_arrives(fabric, 2 * US, 0, 2, priority=3)
    fabric.run()
    assert frame.sent_ps == 2 * US


def test_a_group_that_is_not_lossless_drops_and_does_not_pause() -> None:
    buffer = {"reserve": 0, "alpha": "1/65536"}
    maps = {"tc_to_priority_group": {3: 0}}
    for qos, pauses in (({}, 1), (maps, 0)):
        fabric = Fabric(scenario(star(3), switch={"buffer": buffer, "qos": qos}))
        for turn in range(10):
            frame_arrives(fabric, turn * 2, 0, 2)
            frame_arrives(fabric, turn * 2 + 1, 1, 2)
        fabric.run()
        assert (fabric.total("pfc_transmit_xoff_frames") > 0) == bool(pauses)
        assert (fabric.total("port_dropped_frames", "no_shared_room") > 0) != bool(pauses)


def test_the_next_switch_goes_by_the_dscp_and_not_by_what_the_last_made_of_it() -> None:
    wrong = [{"devices": "rtsw-0", "switch": {"qos": {"dscp_to_tc": {24: 0}}}}]
    answers = {"ack_priority": 6}
    fabric = Fabric(scenario(zone(2, 1, 1), overrides=wrong, transport=answers), [(0, 1)])
    fabric.post(0, 0, 4096)
    fabric.run()
    moved = {
        fabric.topology.nodes[switch.number].name: value
        for switch in fabric.switches
        for series, value in zip(switch.series(), switch.counters(), strict=True)
        if series.metric == "qos_moved_frames"
    }
    assert moved == {"rtsw-0": 1, "rtsw-1": 0, "ctsw-0": 0}


def test_packets_leave_their_nic_with_the_dscp_of_their_priority() -> None:
    maps = {"dscp_to_tc": {26: 3, 48: 6}}
    sections: dict[str, Any] = {
        "nic": {"dscp": {3: 26}},
        "switch": {"qos": maps},
        "transport": {"ack_priority": 6},
    }
    fabric = Fabric(scenario(star(2), **sections), [(0, 1)])
    seen: list[tuple[int, int]] = []

    def pass_by(frame: Frame) -> bool:
        seen.append((frame.priority, frame.dscp))
        return False

    fabric.tap("nic-0", 0, pass_by)
    fabric.tap("nic-1", 0, pass_by)
    fabric.post(0, 0, 4096)
    fabric.run()
    assert seen == [(3, 26), (6, 48)]


def test_maps_that_change_nothing_give_the_times_of_no_maps() -> None:
    sent = []
    for dscp in ({}, {7: 57}):
        fabric = Fabric(scenario(star(3), nic={"dscp": dscp}), [(0, 2), (1, 2)])
        for connection in (0, 1):
            fabric.post(0, connection, 1 << 16)
        fabric.run()
        assert fabric.broken(at_rest=True, lossless=True) == []
        sent.append([fabric.deliveries(0), fabric.deliveries(1)])
    assert sent[0] == sent[1]


def test_a_snapshot_keeps_queues_and_what_was_moved() -> None:
    one, other = (mapped(dscp_to_tc={24: 5}, tc_to_queue={5: 1}) for _ in range(2))
    for port in (0, 1):
        frame_arrives(one, 1 * US, port, 2)
    one.run(1 * US + FULL_PS // 2)
    other.load(one.save())
    one.run()
    other.run()
    assert one.digest() == other.digest()


@pytest.mark.parametrize(
    ("qos", "said"),
    [
        ({"dscp_to_tc": {64: 3}}, "switch.qos.dscp_to_tc: '64' is no key of this map"),
        ({"dscp_to_tc": {26: 8}}, "switch.qos.dscp_to_tc: 8 is out of range"),
        ({"tc_to_queue": [3]}, "switch.qos.tc_to_queue: [3] is not a mapping"),
        (
            {"pfc_priority_to_queue": {3: 4}},
            "switch.qos.pfc_priority_to_queue: two priorities stop one queue",
        ),
    ],
)
def test_a_map_that_cannot_be_is_refused_by_name(qos: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        mapped(**qos)
    assert said in str(caught.value)
