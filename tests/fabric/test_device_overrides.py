"""Does a device that is configured otherwise than the rest behave so, and the rest as before?

Every link is 400G (20 ps a byte) and 500 ns long, devices have no latency of their own. A packet has 82 bytes
on the wire besides its payload, the first of a message 16 more.
"""

from __future__ import annotations

from typing import Any

import pytest

from actors.fabric.model import HOST
from emu import api
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star
from tests.scenario.plain import plain

US = 1_000_000
BYTE_PS = 20
TWIN = graph([*((f"nic-{nic}", "ab"[nic // 3]) for nic in range(6)), ("a", "b")])
"""Two switches with three NICs each."""
INCASTS = ((0, 2), (1, 2), (3, 5), (4, 5))
"""The same incast at each."""
SIZE_BYTES = 64 * 4096


def peaks(fabric: Fabric, switch: str, metric: str) -> list[int]:
    """By priority, the highest value of a series over the ports of a switch."""
    device = fabric.switch(switch)
    found = [0] * 8
    for series, value in zip(device.series(), device.counters(), strict=True):
        if series.metric == metric and series.priority >= 0:
            found[series.priority] = max(found[series.priority], value)
    return found


def arrives_ps(packets: int, payload_bytes: int, byte_ps: int = BYTE_PS, delay_ps: int = 500_000) -> int:
    """When the last packet of a message has come, over a first link like this and a second of 400G.

    On links of one rate all packets come as much later as the first one is longer.
    """
    sent_ps = (packets * (payload_bytes + 82) + 16) * byte_ps
    later_bytes = 16 if byte_ps == BYTE_PS else 0
    return sent_ps + delay_ps + (payload_bytes + 82 + later_bytes) * BYTE_PS + 500_000


def test_a_nic_with_a_smaller_mtu_makes_its_queue_pairs_send_smaller_packets_and_no_others() -> None:
    """Both ways: the smaller MTU of the two ends counts. 256 packets of 1,106 bytes, not 64 of 4,178."""
    wrong = [{"devices": "nic-1", "transport": {"mtu": 1024}}]
    fabric = Fabric(scenario(star(4), overrides=wrong), ((0, 1), (2, 3), (1, 0)))
    for connection, at_us in enumerate((0, 100, 200)):
        fabric.post(at_us * US, connection, SIZE_BYTES)
    fabric.run()
    took_ps = [fabric.deliveries(at)[0].time_ps - at * 100 * US for at in range(3)]
    small_ps, full_ps = arrives_ps(256, 1024), arrives_ps(64, 4096)
    assert took_ps == [small_ps, full_ps, small_ps]
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_wrong_dscp_map_on_one_switch_puts_the_class_into_the_wrong_queue_there_alone() -> None:
    wrong = [{"devices": "b", "switch": {"qos": {"dscp_to_tc": {24: 1}}}}]
    fabric = Fabric(scenario(TWIN, overrides=wrong, transport={"ack_priority": 6}), INCASTS)
    for connection in range(4):
        fabric.post(0, connection, SIZE_BYTES)
    fabric.run()
    queues = [peaks(fabric, switch, "queue_peak_bytes") for switch in ("a", "b")]
    assert [[priority for priority in range(8) if queue[priority]] for queue in queues] == [[3], [1]]
    assert queues[0][3] == queues[1][1]
    assert peaks(fabric, "b", "pfc_transmit_xoff_frames") == [0] * 8  # priority group 1 is lossy
    classes = [fabric.switch(switch).classes for switch in ("a", "b")]
    assert [one and one.moved for one in classes] == [0, 2 * 64]


def first_stops_ps(fabric: Fabric, switches: tuple[str, ...]) -> list[int]:
    """When each switch first stopped a sender."""
    found: dict[str, int] = {}
    ports = {switch: fabric.switch(switch).ports for switch in switches}
    while len(found) < len(switches) and fabric.run_events(1):
        for switch in switches:
            if any(port.pfc is not None and port.pfc.stopping for port in ports[switch]):
                found.setdefault(switch, fabric.queue.now_ps)
    return [found[switch] for switch in switches]


def test_a_threshold_of_half_the_size_on_one_switch_stops_its_senders_in_half_the_time() -> None:
    """Of two senders at 400G one half leaves: each group grows by 200 Gbit/s, 40 ps a byte."""
    buffer = {"xoff": "200KB", "reserve": 0}
    wrong = [{"devices": "b", "switch": {"buffer": {"xoff": "100KB"}}}]
    fabric = Fabric(scenario(TWIN, switch={"buffer": buffer}, overrides=wrong), INCASTS)
    for connection in range(4):
        fabric.post(0, connection, 4 * 2**20)
    usual_ps, early_ps = first_stops_ps(fabric, ("a", "b"))
    frame_ps = 4_194 * 2 * BYTE_PS
    assert usual_ps - early_ps == pytest.approx(100_000 * 2 * BYTE_PS, abs=2 * frame_ps)
    fabric.run()
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_switch_with_ecn_off_among_others_marks_nothing() -> None:
    ecn = {"enabled": True, "kmin": "10KB", "kmax": "20KB"}
    wrong = [{"devices": "b", "switch": {"ecn": {"enabled": False}}}]
    control = {"congestion_control": {"kind": "dcqcn"}}
    fabric = Fabric(scenario(TWIN, switch={"ecn": ecn}, transport=control, overrides=wrong), INCASTS)
    for connection in range(4):
        fabric.post(0, connection, SIZE_BYTES)
    fabric.run()
    assert peaks(fabric, "a", "queue_marked_frames")[3] > 0
    assert peaks(fabric, "b", "queue_marked_frames")[3] == 0


def test_a_nic_with_another_timer_sends_again_after_its_own_timeout() -> None:
    """4.096 us x 2^timeout after the only packet, which was lost, and again as long."""
    wrong = [{"devices": "nic-2", "transport": {"timeout": 4}}]
    fabric = Fabric(scenario(star(4), transport={"timeout": 6}, overrides=wrong), ((0, 1), (2, 3)))
    lost: dict[str, list[int]] = {"nic-0": [], "nic-2": []}
    for nic, sent in lost.items():

        def lose(frame: Any, sent: list[int] = sent) -> bool:
            sent.append(frame.sent_ps)
            return len(sent) < 2

        fabric.tap(nic, 0, lose)
    for connection in (0, 1):
        fabric.post(0, connection, 4096)
    fabric.run()
    waited_ps = [fabric.deliveries(at)[0].time_ps - arrives_ps(1, 4096) for at in (0, 1)]
    assert waited_ps == pytest.approx([4_096_000 << 6, 4_096_000 << 4], rel=0.01)


def test_a_link_with_another_rate_and_delay_has_them_both_ways_and_in_its_headroom() -> None:
    """100G is 80 ps a byte."""
    slow = [{"devices": "switch:nic-0", "link": {"rate": "100G", "delay": "2us"}}]
    fabric = Fabric(scenario(star(4), overrides=slow), ((0, 1), (2, 3)))
    for connection in (0, 1):
        fabric.post(0, connection, SIZE_BYTES)
    fabric.run()
    slow_ps = arrives_ps(64, 4096, 80, 2_000_000)
    assert [fabric.deliveries(at)[0].time_ps for at in (0, 1)] == [slow_ps, arrives_ps(64, 4096)]
    headroom = [int(group.headroom_bytes) for group in fabric.switch("switch").buffer.groups]
    assert headroom[8 + 3] == headroom[16 + 3]
    # 2 x propagation x rate: 2 x 2 us at 100G is as much as 2 x 500 ns at 400G
    assert headroom[3] == headroom[8 + 3]


def test_pfc_off_at_one_nic_is_off_at_both_ends_of_its_links() -> None:
    wrong = [{"devices": "nic-1", "switch": {"pfc": {"enabled": False}}}]
    fabric = Fabric(scenario(star(3), overrides=wrong))
    assert [port.pfc is None for port in fabric.switch("switch").ports] == [False, True, False]
    assert [nic.ports()[0].pfc is None for nic in fabric.nics] == [False, True, False]


def test_of_several_overrides_the_last_that_has_a_key_counts_and_a_host_stands_for_its_nics() -> None:
    several = [
        {"devices": "nic-*", "nic": {"ttl": 9, "corrupt_every": 5}, "transport": {"timeout": 3}},
        {"devices": ["host-1", "nic-2"], "nic": {"ttl": 7}},
        {"devices": "nic-2", "nic": {"ttl": 5}},
    ]
    made = scenario(star(4), transport={"retry_count": 2}, overrides=several)
    topology = build_topology(made)
    views = [made.at(topology, nic) for nic in topology.nics]
    assert [view.nic.ttl for view in views] == [9, 7, 5, 9]
    assert {
        (view.nic.corrupt_every, view.transport.timeout, view.transport.retry_count) for view in views
    } == {(5, 3, 2)}


def test_an_override_of_another_kind_has_the_defaults_of_that_kind_and_of_the_same_kind_the_rest() -> None:
    recovery = {"kind": "selective_repeat", "reorder": 9, "window": "2MB"}
    several = [
        {"devices": "nic-1", "transport": {"recovery": {"reorder": 4}}},
        {"devices": "nic-2", "transport": {"recovery": {"kind": "go_back_0"}}},
    ]
    made = scenario(star(3), transport={"recovery": recovery}, overrides=several)
    topology = build_topology(made)
    found = [made.at(topology, nic).transport.recovery.model_dump(by_alias=True) for nic in topology.nics]
    assert found[1] == found[0] | {"reorder": 4}
    assert found[2] == {"kind": "go_back_0"}


def test_one_pcie_link_of_half_the_rate_is_that_nics_alone() -> None:
    made = scenario(star(3), overrides=[{"devices": "nic-1", "host": {"link_rate": "256G"}}])
    topology = build_topology(made)
    ends = [end for nic in topology.nics for end in topology.ports(nic) if end.kind == HOST]
    assert [end.rate_bps // 10**9 for end in ends] == [512, 256, 512]


def test_a_gpu_with_half_the_copy_rate_takes_twice_as_long_for_its_copies() -> None:
    mapping: dict[str, Any] = plain(
        {
            "name": "copies",
            "topology": {"kind": "star", "hosts": 2, "gpus_per_host": 1},
            "overrides": [{"devices": "gpu-1-0", "gpu": {"copy_rate": "12T"}}],
            "jobs": [
                {"name": "job", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]}}
            ],
        }
    )
    result = api.run(mapping, local=True)
    copy_ps = [
        value
        for device in result.outcome.devices
        for series, value in zip(device.series, device.counters, strict=True)
        if series.metric == "gpu_copy_ps"
    ]
    assert copy_ps[0] > 0
    assert copy_ps[1] == pytest.approx(2 * copy_ps[0], rel=0.001)


@pytest.mark.parametrize("parts", [2, 3])
def test_a_run_with_overrides_has_one_digest_in_every_partition(parts: int) -> None:
    mapping: dict[str, Any] = plain(
        {
            "name": "spread",
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2},
            "overrides": [
                {"devices": "rtsw-0", "switch": {"latency": "100ns", "buffer": {"xoff": "50KB"}}},
                {"devices": "nic-3-0", "transport": {"mtu": 1024}, "nic": {"latency": 0}},
                {"devices": "rtsw-1:ctsw-*", "link": {"delay": "3us", "rate": "100G"}},
            ],
            "jobs": [
                {"name": "job", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["256KiB"]}}
            ],
        }
    )
    digests = [api.run(mapping, local=True, parts=at).summary.digest for at in (1, parts)]
    assert digests[0] == digests[1]
