"""Does a modular switch let frames cross on credit alone, and hold up nobody for another's sake?

A frame of 4,194 B takes 83,880 ps at 400G. Reports and grants take 1 us each here, unless a test says
otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.optional.deep import DeepSwitch
from actors.wire.frame import ECN_CAPABLE, ECN_CONGESTED
from emu.base.errors import ScenarioError
from emu.engine.waiting import explain, waits_of
from emu.scenario.load import load_mapping
from tests.fabric.invariants import queued, waiting_frames
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star, zone
from tests.switch.frames import FULL_PS, frame_arrives, pause_arrives

US = 1_000_000
FULL_WIRE = 4194
"""A WRITE_ONLY of 4,096 B on the wire."""


def deep(nics: int, **more: Any) -> Fabric:
    section = {"where": "all", "credit_delay": "1us", **more}
    return Fabric(scenario(star(nics), switch={"deep_buffer": section}))


def modular(fabric: Fabric) -> DeepSwitch:
    switch = fabric.switch("switch")
    assert isinstance(switch, DeepSwitch)
    return switch


def test_a_frame_leaves_after_a_report_and_a_grant() -> None:
    fabric = deep(2)
    frame = frame_arrives(fabric, 5 * US, 0, 1)
    fabric.run()
    assert frame.sent_ps == 7 * US
    assert fabric.total("credit_grants") == 1
    assert modular(fabric).buffer.held_bytes == 0


def test_with_the_defaults_the_unloaded_round_trip_across_one_is_about_22_us() -> None:
    one = load_mapping(
        {
            "name": "rtt",
            "topology": zone(2, 1, 1),
            "switch": {"deep_buffer": {"where": "spines"}},
            "host": {"nic_link_delay": "auto"},
            "jobs": [{"name": "unused", "workload": {"kind": "permutation", "size": "1KiB"}}],
        }
    ).scenario
    fabric = Fabric(one, [(0, 1)])
    fabric.post(0, 0, 4096)
    fabric.run()
    # 4 x (83,880 + 500,000) + 3 x 300,000 + 300,000 + 2 x 3,800,000 there, and back
    # 4 x (1,720 + 500,000) and the same latencies.
    assert [one.time_ps for one in fabric.deliveries(0)] == [11_135_520]
    (done,) = fabric.completions(0)
    assert done.time_ps - 251_000 == 11_135_520 + 4 * 501_720 + 4 * 300_000 + 7_600_000 == 21_942_400


def test_a_stopped_egress_is_granted_nothing_and_holds_up_no_other() -> None:
    fabric = deep(3)
    pause_arrives(fabric, 1 * US, 1, stop=1 << 3)
    held = [frame_arrives(fabric, 2 * US + turn, 0, 1) for turn in range(10)]
    free = frame_arrives(fabric, 2 * US + 100, 0, 2)
    pause_arrives(fabric, 20 * US, 1, resume=1 << 3)
    fabric.run(19 * US)
    assert free.sent_ps == 4 * US + 100
    assert queued(modular(fabric).ports[1]) == []
    assert len(waiting_frames(modular(fabric))) == 10
    fabric.run()
    assert held[0].sent_ps == 21 * US
    assert modular(fabric).buffer.held_bytes == 0


def test_one_egress_serves_its_ingresses_in_turn_at_the_rate_of_its_link() -> None:
    fabric = deep(4, initial_credit="32KiB", credit_growth=1, most_credit="32KiB")
    frames = [frame_arrives(fabric, 5 * US + turn, port, 3) for turn in range(20) for port in (0, 1, 2)]
    fabric.run()
    times = sorted(frame.sent_ps for frame in frames)
    assert times[0] == 7 * US
    # The first of each is reported alone, the others 1 us later and together.
    assert times[-1] <= 8 * US + 60 * FULL_PS
    sent = [sum(frame.sent_ps <= times[29] for frame in frames[port::3]) for port in range(3)]
    assert max(sent) - min(sent) <= 7  # a window holds seven frames


def test_an_egress_grants_no_more_than_its_link_carries() -> None:
    fabric = deep(5, initial_credit="32KiB", credit_growth=1, most_credit="32KiB")
    for turn in range(40):
        for port in range(4):
            frame_arrives(fabric, 5 * US + turn * FULL_PS, port, 4)
    fabric.run()
    # What waits at the egress itself is what one grant brought, and the single frames of the first reports.
    assert max(queue.peak_bytes for queue in modular(fabric).ports[4].queues) <= 32 * 1024 + 4 * FULL_WIRE


def test_a_higher_class_is_granted_first() -> None:
    fabric = deep(3)
    low = [frame_arrives(fabric, 5 * US + turn, 0, 2, priority=3) for turn in range(60)]
    high = frame_arrives(fabric, 5 * US + 100, 1, 2, priority=6)
    fabric.run()
    assert high.sent_ps < low[20].sent_ps


@pytest.mark.parametrize("quantum_kib", [4, 8, 16, 64])
def test_a_frame_of_a_class_of_its_own_waits_for_one_quantum_and_one_frame_at_most(quantum_kib: int) -> None:
    """However large the windows of the class that fills the egress have grown (1 MiB is 21 us at 400G)."""
    fabric = deep(5, credit_quantum=f"{quantum_kib}KiB")
    for turn in range(600):
        for port in range(3):
            frame_arrives(fabric, 5 * US + turn * FULL_PS, port, 4)
    alone = [
        (at_ps, frame_arrives(fabric, at_ps, 3, 4, priority=6, payload_bytes=64))
        for at_ps in range(20 * US, 50 * US, 3_000_700)
    ]
    fabric.run(55 * US)
    assert max(int(voq.window_bytes) for voq in modular(fabric).voqs.values()) >= 512 * 1024
    waits = [frame.sent_ps - at_ps - 2 * US for at_ps, frame in alone]
    quantum_ps = quantum_kib * 1024 * 20
    assert all(0 <= wait <= quantum_ps + FULL_PS for wait in waits), waits
    assert max(waits) > quantum_ps // 4


def events_and_grants(quantum_bytes: int) -> tuple[int, int]:
    """What three senders into one port and one beside them cost, with grants of so much."""
    section = {"where": "all", "credit_delay": "1us"}
    connections = [(0, 4), (1, 4), (2, 4), (3, 0)]
    fabric = Fabric(scenario(star(5), switch={"deep_buffer": section}), connections)
    for granter in modular(fabric).granters:
        granter.quantum_bytes = quantum_bytes
    for sender in range(4):
        fabric.post(sender, sender, 1 << 20)
    return fabric.run(), fabric.total("credit_grants")


def test_a_quantum_costs_two_events_and_16_kib_a_fifth_more_at_most_than_whole_windows() -> None:
    whole, grants = events_and_grants(1 << 20)
    costs = {kib: events_and_grants(kib << 10) for kib in (4, 8, 16)}
    for events, granted in costs.values():
        assert events - whole == pytest.approx(2 * (granted - grants), rel=0.15)
    assert whole < costs[16][0] <= 1.2 * whole
    assert costs[16] < costs[8] < costs[4]


@pytest.mark.parametrize(("growth", "grown"), [(1, 16_384), (2, 131_072), (8, 131_072)])
def test_the_window_grows_as_credit_is_used_up_to_its_limit(growth: int, grown: int) -> None:
    fabric = deep(2, initial_credit="16KiB", credit_growth=growth, most_credit="128KiB")
    for turn in range(400):
        frame_arrives(fabric, 5 * US + turn * FULL_PS, 0, 1)
    fabric.run(5 * US + 390 * FULL_PS)
    (voq,) = modular(fabric).voqs.values()
    assert voq.window_bytes == grown
    fabric.run()
    assert voq.window_bytes == 16_384
    assert (voq.queued_bytes, voq.wanted_bytes, voq.unused_bytes, voq.credit_bytes) == (0, 0, 0, 0)


def test_more_credit_carries_more() -> None:
    ends = []
    for most in ("16KiB", "64KiB", "256KiB"):
        fabric = deep(2, initial_credit="16KiB", most_credit=most, credit_delay="2us")
        for turn in range(400):
            frame_arrives(fabric, 5 * US + turn * FULL_PS, 0, 1)
        fabric.run()
        ends.append(fabric.queue.now_ps)
    assert ends[0] > ends[1] > ends[2]
    # A window of 16,384 B in each 2 us, and at last the rate of the link (100 kB in 2 us).
    assert ends[0] > 5 * US + 400 * 4194 * 2 * US // 16_384 - 10 * US
    assert ends[2] < 5 * US + 400 * FULL_PS + 25 * US


def test_each_port_has_a_buffer_of_its_own() -> None:
    fabric = deep(3, port_buffer="300KB")
    for turn in range(100):
        frame_arrives(fabric, 5 * US + turn, 0, 2)
    other = frame_arrives(fabric, 5 * US + 200, 1, 2)
    fabric.run(6 * US)
    groups = modular(fabric).buffer.groups
    first, second = modular(fabric).ports[0].pfc, modular(fabric).ports[1].pfc
    assert first is not None
    assert second is not None
    assert groups[3].held_bytes > 100_000
    assert first.sent[3] == 1
    assert second.sent[3] == 0
    fabric.run()
    assert other.sent_ps > 0
    assert modular(fabric).buffer.held_bytes == 0


def test_what_waits_for_a_link_that_goes_down_is_lost_and_counted() -> None:
    fabric = deep(3)
    for turn in range(20):
        frame_arrives(fabric, 5 * US + turn, 0, 1)
    kept = frame_arrives(fabric, 5 * US + 100, 0, 2)
    fabric.set_link("nic-1:switch", 6 * US + 500_000, up=False)
    fabric.set_link("nic-1:switch", 6 * US + 600_000, up=True)
    again = frame_arrives(fabric, 9 * US, 0, 1)
    fabric.run()
    assert fabric.total("port_dropped_frames", "link_down") == 20
    assert (kept.sent_ps, again.sent_ps) == (7 * US + 100, 11 * US)
    assert modular(fabric).buffer.held_bytes == 0


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_nothing_is_lost_and_all_is_let_go_whatever_comes_and_stops(data: st.DataObject) -> None:
    one, other = deep(4, port_buffer="1MB"), deep(4, port_buffer="1MB")
    ports = st.integers(0, 3)
    for turn in range(data.draw(st.integers(1, 60))):
        source, further = data.draw(ports), data.draw(st.integers(1, 3))
        at_ps = data.draw(st.integers(0, 20)) * 100_000 + turn
        frame_arrives(one, at_ps, source, (source + further) % 4, data.draw(st.sampled_from([0, 3, 6])))
    for turn in range(data.draw(st.integers(0, 4))):
        pause_arrives(one, data.draw(st.integers(0, 50)) * 100_000 + turn, data.draw(ports), stop=1 << 3)
    one.run(data.draw(st.integers(0, 60)) * 100_000)
    other.load(one.save())
    one.run()
    other.run()
    assert one.digest() == other.digest()
    assert one.congestion_drops() == 0
    switch = modular(one)
    assert (switch.buffer.held_bytes, waiting_frames(switch)) == (0, [])
    assert all(voq.credit_bytes == voq.unused_bytes == voq.wanted_bytes == 0 for voq in switch.voqs.values())


def victim_ps(where: str) -> int:
    """When a flow to rack 2 is delivered, beside three flows from its rack into one NIC of rack 1."""
    topology = zone(3, 4, 1, uplink="1600G")
    switch = {"deep_buffer": {"where": where, "credit_delay": "1us"}, "buffer": {"pool": "4MB"}}
    fabric = Fabric(scenario(topology, switch=switch), [(0, 4), (1, 4), (2, 4), (3, 8)])
    for connection in range(3):
        fabric.post(0, connection, 1 << 21)
    fabric.post(20 * US, 3, 1 << 18)
    fabric.run()
    assert fabric.broken(at_rest=True, lossless=True) == []
    (delivery,) = fabric.deliveries(3)
    return delivery.time_ps - 20 * US


def test_a_flow_to_another_egress_is_not_held_up_by_an_incast() -> None:
    # 64 packets of 4,178 B and the RETH at 400G are 5,360,000 and some; four links, and the credit.
    assert victim_ps("spines") < 12 * US
    assert victim_ps("none") > 20 * US


def test_spines_of_llama3_are_modular_and_others_are_not() -> None:
    llama = {"kind": "llama3", "pods": 1, "racks_per_pod": 2, "hosts_per_rack": 1, "gpus_per_host": 1}
    llama |= {"ctsws_per_pod": 1, "atsws": 0}
    kinds = []
    for topology, where in (
        (llama, "auto"),
        (llama, "none"),
        (zone(2, 1, 1), "auto"),
        (zone(2, 1, 1), "spines"),
    ):
        fabric = Fabric(scenario(topology, switch={"deep_buffer": {"where": where}}))
        kinds.append([isinstance(switch, DeepSwitch) for switch in fabric.switches].count(True))
    assert kinds == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"initial_credit": "8KB"}, "switch.deep_buffer.initial_credit: may hold less than two frames"),
        ({"most_credit": "10KB"}, "switch.deep_buffer.most_credit: lies below initial_credit"),
        ({"credit_quantum": "2KiB"}, "switch.deep_buffer.credit_quantum: is no quantum of credit"),
        ({"credit_quantum": "1MiB"}, "switch.deep_buffer.credit_quantum: is no quantum of credit"),
        (
            {"port_buffer": "1TB", "alpha": 1024},
            "switch.deep_buffer.port_buffer: makes thresholds of more than 64 TB",
        ),
        ({"port_buffer": "50KB"}, "switch.deep_buffer.port_buffer: reserves and headroom"),
    ],
)
def test_what_cannot_work_is_refused_by_name(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        Fabric(scenario(zone(2, 1, 1), switch={"deep_buffer": {"where": "spines", **section}}))
    assert said in str(caught.value)


def test_a_frame_is_marked_by_the_depth_of_the_virtual_output_queue_that_it_leaves() -> None:
    ecn = {"enabled": True, "scaled": False, "kmin": f"{4 * FULL_WIRE}B", "kmax": f"{4 * FULL_WIRE}B"}
    section = {"where": "all", "credit_delay": "1us"}
    fabric = Fabric(scenario(star(3), switch={"deep_buffer": section, "ecn": ecn}))
    frames = [frame_arrives(fabric, 5 * US + turn, turn % 2, 2) for turn in range(20)]
    for frame in frames:
        frame.ecn = ECN_CAPABLE
    fabric.run()
    # Ten wait at either ingress; the first crosses alone, and leaves nine behind it with itself counted.
    for ingress in (0, 1):
        marked = [frame.ecn == ECN_CONGESTED for frame in frames[ingress::2]]
        assert marked == [True] * 6 + [False] * 4
    assert fabric.total("queue_marked_frames") == 12


def test_a_storm_is_seen_where_all_that_waits_is_in_virtual_output_queues_and_drops_it_there() -> None:
    watchdog = {"enabled": True, "detection": "10us", "restoration": "20us"}
    section = {"where": "all", "credit_delay": "1us"}
    fabric = Fabric(scenario(star(3), switch={"deep_buffer": section, "pfc": {"watchdog": watchdog}}))
    pause_arrives(fabric, 1 * US, 1, stop=1 << 3)
    for turn in range(10):
        frame_arrives(fabric, 2 * US + turn, 0, 1)
    other = frame_arrives(fabric, 2 * US + 100, 0, 1, priority=6)
    fabric.run(10 * US)
    assert len(waiting_frames(modular(fabric))) == 10
    late = frame_arrives(fabric, 15 * US, 0, 1)
    fabric.run(16 * US)
    assert waiting_frames(modular(fabric)) == []
    assert fabric.total("port_dropped_frames", "watchdog") == 11
    assert fabric.total("pfc_watchdog_storms") == 1
    assert (late.sent_ps, other.sent_ps) == (14 * US + 500_000, 4 * US + 100)
    assert modular(fabric).buffer.held_bytes == 0
    assert list(modular(fabric).ports[1].voq_bytes) == [0] * 8


def test_what_waits_for_a_port_counts_its_virtual_output_queues() -> None:
    fabric = deep(3)
    for turn in range(6):
        frame_arrives(fabric, 5 * US + turn, turn % 2, 2, priority=3 + turn % 3)
    fabric.run(6 * US)
    port = modular(fabric).ports[2]
    assert list(port.voq_bytes) == [0, 0, 0, 2 * FULL_WIRE, 2 * FULL_WIRE, 2 * FULL_WIRE, 0, 0]
    assert port.backlog_bytes() == 6 * FULL_WIRE
    loaded = deep(3)
    loaded.load(fabric.save())
    assert modular(loaded).ports[2].backlog_bytes() == 6 * FULL_WIRE
    fabric.run()
    assert port.backlog_bytes() == 0


def test_adaptive_routing_avoids_the_port_that_virtual_output_queues_wait_for() -> None:
    # With the default grade a frame that waits makes no difference.
    routing = {"kind": "adaptive", "granularity": "packet", "grade": "1KiB", "allow_reordering": True}
    modular = [{"devices": "rtsw-0", "switch": {"deep_buffer": {"where": "all", "credit_delay": "1us"}}}]
    fabric = Fabric(scenario(zone(2, 2, 2), overrides=modular, routing=routing))
    leaf = fabric.switch("rtsw-0")
    assert isinstance(leaf, DeepSwitch)
    pause_arrives(fabric, 1 * US, 2, stop=1 << 3, node="rtsw-0")
    for turn in range(6):
        frame_arrives(fabric, (2 + 4 * turn) * US, 0, 2, switch="rtsw-0")
    fabric.run(30 * US)
    # Of the two uplinks, ports 2 and 3, the stopped one gets a frame once, which waits in a VOQ.
    assert [port.sent_frames for port in leaf.ports] == [0, 0, 0, 5]
    assert list(leaf.ports[2].voq_bytes) == [0, 0, 0, FULL_WIRE, 0, 0, 0, 0]


def test_a_stall_names_the_frames_that_wait_in_virtual_output_queues() -> None:
    fabric = deep(3)
    pause_arrives(fabric, 1 * US, 2, 1 << 3)
    for ingress in (0, 1, 1):
        frame_arrives(fabric, (5 + ingress) * US + len(fabric.queue.pending()) * 100_000, ingress, 2)
    fabric.run(20 * US)
    assert len(waiting_frames(modular(fabric))) == 3
    lines = explain(waits_of(fabric.devices(), fabric.topology), fabric.topology)
    assert lines == [
        (
            "switch waits for nic-2: 3 frames of priority 3 are in virtual output queues of port 2,"
            " told to hold it"
        )
    ]


def test_an_egress_limit_is_refused_where_a_switch_is_modular() -> None:
    section = {"deep_buffer": {"where": "all"}, "buffer": {"egress_limit": "1MB"}}
    with pytest.raises(ScenarioError, match="switch is modular: its egress queues are short"):
        Fabric(scenario(star(2), switch=section))
