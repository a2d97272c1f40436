"""Is every frame that a switch drops counted under the reason why?"""

from __future__ import annotations

from typing import Any

import pytest

from emu.base.errors import ScenarioError
from emu.scenario.resolve import resolve
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star, zone
from tests.switch.frames import frame_arrives

LOOP = [
    {"switch": "rtsw-0", "destination": "nic-1-0", "via": "ctsw-0"},
    {"switch": "ctsw-0", "destination": "nic-1-0", "via": "rtsw-0"},
]


def dropped(fabric: Fabric) -> dict[str, int]:
    """Frames by reason, those that occurred."""
    counts: dict[str, int] = {}
    for device in fabric.devices():
        for series, value in zip(device.series(), device.counters(), strict=True):
            if series.metric == "port_dropped_frames" and value:
                counts[series.reason] = counts.get(series.reason, 0) + value
    return counts


def test_a_packet_in_a_routing_loop_passes_as_many_switches_as_its_ttl_less_one() -> None:
    fabric = Fabric(scenario(zone(2, 1, 1), switch={"static_routes": LOOP}, nic={"ttl": 9}), [(0, 1)])
    up, down = fabric.tap("rtsw-0", 1), fabric.tap("ctsw-0", 0)
    fabric.post(0, 0, 4096)
    fabric.run(4_000_000_000)
    assert dropped(fabric) == {"ttl": 1}
    # The ninth switch drops it: eight were passed, of which the leaf and the spine four each.
    assert len(up.seen) + len(down.seen) == 8


@pytest.mark.parametrize(("ttl", "arrives"), [(3, False), (4, True)])
def test_three_switches_need_a_ttl_of_four(ttl: int, arrives: bool) -> None:
    fabric = Fabric(scenario(zone(2, 1, 1), nic={"ttl": ttl}), [(0, 1)])
    fabric.post(0, 0, 64)
    fabric.run(1_000_000_000)
    assert (len(fabric.deliveries(0)) == 1) == arrives
    assert dropped(fabric) == ({} if arrives else {"ttl": 1})


def test_frames_leave_their_nic_with_a_ttl_of_64() -> None:
    fabric = Fabric(scenario(star(2)))
    frame = frame_arrives(fabric, 1_000_000, 0, 1)
    assert frame.ttl == 64
    fabric.run()
    assert frame.ttl == 63


def test_a_static_route_takes_its_way_whatever_the_graph_says() -> None:
    links = [("nic-0", "a"), ("a", "b"), ("b", "nic-1"), ("a", "c"), ("c", "b")]
    detour = [{"switch": "a", "destination": "nic-1", "via": "c"}]
    fabric = Fabric(scenario(graph(links), switch={"static_routes": detour}), [(0, 1)])
    fabric.post(0, 0, 4096)
    fabric.run()
    # Four hops of 83,880 + 500,000 where the graph has three.
    assert [one.time_ps for one in fabric.deliveries(0)] == [2_335_520]


def test_bit_errors_spoil_the_share_of_frames_that_their_rate_says() -> None:
    errors = [{"devices": "nic-0:switch", "link": {"bit_error_rate": "1/335520"}}]
    fabric = Fabric(scenario(star(2), overrides=errors))
    # 4,194 B are 33,552 bits: one frame in ten.
    for turn in range(2000):
        frame_arrives(fabric, 1_000_000 + turn * 83_880, 0, 1)
    fabric.run()
    lost = dropped(fabric)
    assert list(lost) == ["corrupt"]
    assert 160 <= lost["corrupt"] <= 240
    assert fabric.switch("switch").ports[0].corrupted == lost["corrupt"]


def test_what_bit_errors_cost_is_sent_again() -> None:
    errors = [{"devices": "nic-0:switch", "link": {"bit_error_rate": 0.000001}}]
    fabric = Fabric(scenario(star(2), overrides=errors, transport={"timeout": 6}), [(0, 1)])
    fabric.post(0, 0, 1 << 21)
    fabric.run()
    assert [one.size_bytes for one in fabric.deliveries(0)] == [1 << 21]
    assert dropped(fabric)["corrupt"] > 0
    assert fabric.broken(at_rest=True) == []


def test_every_port_counts_what_it_spoils() -> None:
    fabric = Fabric(scenario(star(2)))
    rows = [
        (device.number, series.port)
        for device in fabric.devices()
        for series in device.series()
        if series.reason == "corrupt"
    ]
    switch = fabric.topology.switches[0]
    assert sorted(rows) == sorted([(switch, 0), (switch, 1), *((nic, 0) for nic in fabric.topology.nics)])


def test_a_full_lossy_queue_a_dead_link_and_a_route_to_nowhere_have_reasons_of_their_own() -> None:
    fabric = Fabric(scenario(star(4), switch={"buffer": {"egress_limit": "8388B"}}))
    for port in (0, 1, 2):  # One leaves at once, two fill the queue of two frames, three are too many.
        for turn in range(2):
            frame_arrives(fabric, 1_000_000 + turn, port, 3, priority=0)
    fabric.set_link("nic-1:switch", 2_000_000, up=False, converge=False)
    frame_arrives(fabric, 3_000_000, 0, 1)
    fabric.set_link("nic-2:switch", 2_000_000, up=False)
    converged_ps = 2_000_000 + fabric.scenario.routing.convergence_ps
    frame_arrives(fabric, converged_ps + 1_000_000, 0, 2)
    fabric.run()
    assert dropped(fabric) == {"egress_limit": 3, "link_down": 1, "no_route": 1}


def test_a_lossy_queue_may_hold_its_share_of_the_free_pool_and_a_lossless_one_more() -> None:
    # 33,552 B are shared. A frame is admitted while its queue, with it, is within half of what is free.
    ports, headroom_bytes = 4, 200_000
    pool_bytes = 33_552 + ports * 2 * headroom_bytes
    buffer = {
        "pool": f"{pool_bytes}B",
        "alpha": 8,
        "reserve": 0,
        "headroom": f"{headroom_bytes}B",
        "egress_alpha": "1/2",
    }
    counts = []
    for priority in (0, 3):
        fabric = Fabric(scenario(star(ports), switch={"buffer": buffer}))
        for turn in range(8):
            frame_arrives(fabric, 1_000_000 + turn, turn % 3, 3, priority=priority)
        fabric.run()
        counts.append(dropped(fabric))
    # One leaves at once. Of those behind it, 4,194 B on the wire and 4,174 B in the buffer, three may wait:
    # 4,194 of 16,776, 8,388 of 14,689 and 12,582 of 12,602 B; the next would make 16,776 of 10,515.
    assert counts == [{"egress_limit": 8 - 1 - 3}, {}]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"switch": {"static_routes": [{"switch": "rtsw-0", "destination": "nic-1-0", "via": "rtsw-1"}]}},
            "switch.static_routes[0].via: rtsw-0 has no link to rtsw-1",
        ),
        (
            {"switch": {"static_routes": [{"switch": "nic-0-0", "destination": "rtsw-0", "via": "rtsw-0"}]}},
            "switch.static_routes[0].switch: nic-0-0 is a nic; accepted: a switch",
        ),
    ],
)
def test_what_the_fabric_does_not_have_is_refused_by_name(section: dict[str, Any], said: str) -> None:
    one = scenario(zone(2, 1, 1), **section)
    with pytest.raises(ScenarioError) as caught:
        resolve(one, Fabric(scenario(zone(2, 1, 1))).topology)
    assert said in str(caught.value)


def test_more_than_one_error_in_a_thousand_bits_is_refused() -> None:
    with pytest.raises(ScenarioError, match="up to 1/1000"):
        scenario(star(2), link={"bit_error_rate": "1/10"})
