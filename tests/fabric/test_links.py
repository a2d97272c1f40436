"""What happens to frames, routes and pauses when a link goes down and comes back?

Frames of 4,194 B take 83,880 ps; links are 500 ns.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.port.port import Port
from actors.wire.message import STATUS_RETRY_EXCEEDED, STATUS_SUCCESS
from tests.fabric.invariants import queued
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star, zone

LATENCY_PS = 300_000
SENT_PS = 83_880
AT_SWITCH_PS = 583_880


def flapped(down_ps: int, up_ps: int, link: str = "nic-0:switch", **transport: int) -> Fabric:
    """NIC 0 writes 4,096 B to NIC 1 at time 0 while a link is down from `down_ps` to `up_ps`."""
    settled = {"timeout": 1, **transport}
    fabric = Fabric(scenario(star(2), transport=settled), [(0, 1)])
    fabric.set_link(link, down_ps, up=False, converge=False)
    fabric.set_link(link, up_ps, up=True, converge=False)
    fabric.post(0, 0, 4096)
    return fabric


def port_with_latency() -> Port:
    """A port of a switch whose frames arrive `LATENCY_PS` after their last bit."""
    fabric = Fabric(scenario(star(2), switch={"latency": "300ns"}), [(0, 1)])
    return fabric.switches[0].ports[0]


@pytest.mark.parametrize(
    ("down_ps", "up_ps", "lost"),
    [
        (1, 2, True),  # its first bit has just left
        (SENT_PS - 1, SENT_PS, True),
        (300_000, 300_001, True),  # all of it is on its way
        (AT_SWITCH_PS - 1, AT_SWITCH_PS, True),
        (AT_SWITCH_PS, AT_SWITCH_PS + 1, True),  # the last bit and the failure at one instant
        (AT_SWITCH_PS + 1, AT_SWITCH_PS + 2, False),  # it is in the switch
    ],
)
def test_a_frame_is_lost_if_the_link_was_down_at_any_moment_of_its_flight(
    down_ps: int, up_ps: int, lost: bool
) -> None:
    fabric = flapped(down_ps, up_ps)
    fabric.run(8_000_000)
    assert fabric.total("port_dropped_frames", "link_down") == int(lost)
    assert fabric.nics[1].delivered_bytes == (0 if lost else 4096)
    assert fabric.broken() == []
    fabric.run()
    assert [c.status for c in fabric.completions(0)] == [STATUS_SUCCESS]
    assert fabric.broken(at_rest=True) == []


def test_what_is_in_the_ingress_pipeline_has_arrived() -> None:
    # The last bit is at the switch at 583,880, the frame leaves its pipeline at 883,880.
    for down_ps, lost in ((AT_SWITCH_PS, 1), (AT_SWITCH_PS + 1, 0)):
        setting = scenario(star(2), switch={"latency": "300ns"}, transport={"timeout": 1})
        fabric = Fabric(setting, [(0, 1)])
        fabric.set_link("nic-0:switch", down_ps, up=False, converge=False)
        fabric.post(0, 0, 4096)
        fabric.run(5_000_000)
        assert fabric.total("port_dropped_frames", "link_down") >= lost
        assert fabric.nics[1].delivered_bytes == 4096 * (1 - lost)


def test_nothing_is_sent_while_a_link_is_down_and_everything_once_it_is_up() -> None:
    fabric = flapped(0, 2_000_000)
    fabric.run(2_000_000)
    assert fabric.total("port_transmit_frames") == 0
    assert fabric.broken() == []
    fabric.run()
    # Lossless classes are held while a pause could still be on its way: a frame of 4,198 B in progress at the
    # other end (83,960 ps), the pause frame (1,680) and the link (500,000).
    assert [delivery.time_ps for delivery in fabric.deliveries(0)] == [2_000_000 + 585_640 + 1_167_760]


def test_a_frame_that_leaves_at_the_instant_its_link_comes_back_arrives() -> None:
    fabric = Fabric(scenario(star(2)), [(0, 1)], [0])  # lossy: it need not wait for a pause
    fabric.set_link("nic-0:switch", 1_000_000, up=False, converge=False)
    fabric.set_link("nic-0:switch", 2_000_000, up=True, converge=False)
    fabric.post(1_500_000, 0, 4096)
    fabric.run()
    assert [delivery.time_ps for delivery in fabric.deliveries(0)] == [2_000_000 + 1_167_760]
    assert fabric.total("port_dropped_frames", "link_down") == 0


def test_both_ends_change_at_one_instant() -> None:
    fabric = flapped(1_000, 2_000)
    (switch,) = fabric.switches
    ends = (fabric.nics[0].ports()[0], switch.ports[0])
    for moment_ps, up in ((1_000, True), (1_001, False), (2_000, False), (2_001, True)):
        fabric.run(moment_ps)
        assert [port.up for port in ends] == [up, up]


@given(st.lists(st.tuples(st.integers(1, LATENCY_PS), st.integers(0, LATENCY_PS)), max_size=60), st.data())
def test_what_a_port_keeps_of_its_failures_answers_as_all_of_them_would(
    flaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    port = port_with_latency()
    failures: list[tuple[int, int]] = []
    now = 0
    for up_ps, down_ps in flaps:
        failures.append((now + up_ps, now + up_ps + down_ps))
        port.set_link(False, failures[-1][0])
        port.set_link(True, failures[-1][1])
        now = failures[-1][1]
        arrived_ps = data.draw(st.integers(now - LATENCY_PS, now))
        sent_ps = arrived_ps - data.draw(st.integers(0, 40 * LATENCY_PS))
        lost = any(begin_ps <= arrived_ps and end_ps > sent_ps for begin_ps, end_ps in failures)
        assert port.was_down(sent_ps, arrived_ps) == lost
    assert port.downs == len(failures)


def test_a_port_and_its_snapshot_keep_sixteen_failures_of_five_thousand() -> None:
    port = port_with_latency()
    for number in range(5_000):
        port.set_link(False, (2 * number + 1) * LATENCY_PS)
        port.set_link(True, (2 * number + 2) * LATENCY_PS)
    _, starts, ends, *_ = Port.save(port)
    assert starts == [(2 * number + 1) * LATENCY_PS for number in range(4_984, 5_000)]
    assert ends == [(2 * number + 2) * LATENCY_PS for number in range(4_984, 5_000)]
    assert port.downs == 5_000


def test_frames_that_wait_for_a_link_are_lost_with_it_and_give_their_room_back() -> None:
    fabric = Fabric(scenario(star(3), transport={"timeout": 1}), [(0, 2), (1, 2)])
    (switch,) = fabric.switches
    for connection in (0, 1):
        fabric.post(0, connection, 10 * 4096)
    fabric.set_link("nic-2:switch", 1_000_000, up=False, converge=False)
    fabric.run(1_000_000)
    assert len(queued(switch.ports[2])) > 2
    fabric.run(1_000_001)
    assert queued(switch.ports[2]) == []
    assert switch.buffer.held_bytes == 0
    assert fabric.broken() == []
    fabric.set_link("nic-2:switch", 3_000_000, up=True, converge=False)
    fabric.run()
    assert sum(len(fabric.deliveries(connection)) for connection in (0, 1)) == 2
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_link_that_stays_down_ends_in_an_error_of_the_queue_pair() -> None:
    fabric = Fabric(scenario(star(2), transport={"timeout": 1, "retry_count": 3}), [(0, 1)])
    fabric.set_link("nic-1:switch", 0, up=False, converge=False)
    fabric.post(0, 0, 4096)
    fabric.run()
    assert [(c.status, c.time_ps) for c in fabric.completions(0)] == [
        (STATUS_RETRY_EXCEEDED, 4 * 8_192_000 + 251_000)
    ]
    assert fabric.total("port_dropped_frames", "link_down") == 4
    assert fabric.broken() == []


def spread(down_ps: int = 0) -> Fabric:
    """Two racks of four hosts over two spines, convergence of 50 us; 64 queue pairs across."""
    setting = scenario(
        zone(2, 4, 2), routing={"convergence": "50us"}, transport={"timeout": 3, "retry_count": 7}
    )
    fabric = Fabric(setting, [(n % 4, 4 + n // 4 % 4) for n in range(64)])
    if down_ps:
        fabric.set_link("rtsw-0:ctsw-0", down_ps, up=False)
    return fabric


def test_until_routing_has_converged_a_dead_link_is_a_black_hole_and_then_it_is_out_of_the_group() -> None:
    fabric = spread(down_ps=1_000_000)
    leaf, far = fabric.switch("rtsw-0"), fabric.switch("rtsw-1")
    dead, alive = leaf.ports[4], leaf.ports[5]
    prefix = fabric.topology.address_of(fabric.topology.nics[4]) >> 10
    back = fabric.topology.address_of(fabric.topology.nics[0]) >> 10
    for wave, at_ps in enumerate((2_000_000, 100_000_000)):
        for connection in range(64):
            fabric.post(at_ps + 1_000 * connection, connection, 4096, number=wave)
    fabric.run(50_999_999)
    assert list(leaf._groups[prefix].ports) == [4, 5]
    lost = dead.lost_link_down
    assert lost > 16  # the hash sent about half of them there, each again and again
    assert dead.sent_frames == 0
    fabric.run(51_000_001)
    assert list(leaf._groups[prefix].ports) == [5]
    # The far leaf must not use the spine that lost its way either.
    assert list(far._groups[back].ports) == [5]
    lost = dead.lost_link_down
    fabric.run()
    assert dead.lost_link_down == lost
    assert alive.sent_frames > 64
    assert [len(fabric.completions(connection)) for connection in range(64)] == [2] * 64
    assert all(c.status == STATUS_SUCCESS for n in range(64) for c in fabric.completions(n))
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_link_that_came_back_is_used_again_once_routing_knows() -> None:
    fabric = spread(down_ps=1_000_000)
    fabric.set_link("rtsw-0:ctsw-0", 200_000_000, up=True)
    leaf = fabric.switch("rtsw-0")
    back_in_use = leaf.ports[4]
    for at_ps in (210_000_000, 300_000_000):
        for connection in range(64):
            fabric.post(at_ps + 1_000 * connection, connection, 4096)
    fabric.run(249_999_999)
    assert back_in_use.sent_frames == 0
    fabric.run()
    assert back_in_use.sent_frames > 16
    assert back_in_use.lost_link_down == 0
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_nic_that_is_cut_off_has_no_route_once_routing_knows() -> None:
    fabric = spread()
    fabric.set_link("nic-4-0:rtsw-1", 1_000_000, up=False)
    fabric.post(60_000_000, 0, 4096)  # connection 0 leads to NIC 4
    fabric.run()
    assert [c.status for c in fabric.completions(0)] == [STATUS_RETRY_EXCEEDED]
    assert fabric.total("port_dropped_frames", "no_route") == 8
    assert fabric.total("port_dropped_frames", "link_down") == 0
    assert fabric.broken() == []


def test_without_any_way_left_frames_have_no_route() -> None:
    fabric = spread()
    for spine in ("ctsw-0", "ctsw-1"):
        fabric.set_link(f"rtsw-0:{spine}", 1_000_000, up=False)
    fabric.post(60_000_000, 0, 4096)
    fabric.run()
    assert fabric.total("port_dropped_frames", "no_route") == 8
    assert [c.status for c in fabric.completions(0)] == [STATUS_RETRY_EXCEEDED]


@pytest.mark.parametrize("seed", range(6))
def test_flaps_under_pauses_leave_the_fabric_whole(seed: int) -> None:
    buffer = {"pool": "3MB"}
    setting = scenario(
        zone(2, 4, 2),
        seed=seed,
        switch={"buffer": buffer},
        transport={"timeout": 3, "retry_count": 7},
        routing={"convergence": "5us"},
    )
    fabric = Fabric(setting, [(n, 0) for n in range(1, 8)] + [(0, n) for n in range(1, 8)])
    for connection in range(14):
        fabric.post(0, connection, 150_000)
    for number, link in enumerate(("rtsw-0:ctsw-0", "rtsw-1:ctsw-1", "nic-0-0:rtsw-0", "nic-5-0:rtsw-1")):
        first_ps = 2_000_000 + 700_000 * number + 130_000 * seed
        for flap in range(4):
            fabric.set_link(link, first_ps + 5_000_000 * flap, up=False)
            fabric.set_link(link, first_ps + 5_000_000 * flap + 40_000 * (flap * 20 + 1), up=True)
    while fabric.run_events(701) == 701:
        assert fabric.broken() == []
    assert fabric.broken(at_rest=True) == []
    assert fabric.nics[0].delivered_bytes == 7 * 150_000
    assert fabric.total("port_dropped_frames", "link_down") > 0
