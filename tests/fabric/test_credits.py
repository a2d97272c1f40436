"""Do links with credits lose nothing, keep nobody from sending who has room, and survive a flap?

Links are 400G (20 ps a byte) and 500 ns long. A frame of 4,096 bytes of payload takes 65 blocks of 64 bytes.
"""

from random import Random
from typing import Any

import pytest

from emu.base.errors import ScenarioError
from emu.engine.waiting import explain, waits_of
from tests.fabric.random_fabric import random_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star, zone

US = 1_000_000
WEST_EAST = zone(2, 4, 2)


def credited(connections: Any, topology: Any = None, **sections: Any) -> Fabric:
    """A fabric whose links have credits."""
    link = {"flow_control": "credits", **sections.pop("link", {})}
    transport = {"mtu": 4096, "timeout": 0, **sections.pop("transport", {})}
    return Fabric(
        scenario(topology or star(3), link=link, transport=transport, **sections), list(connections)
    )


def beyond(fabric: Fabric) -> list[str]:
    """Lanes whose receiver may be sent more than it has room for, or that sent more than they were told."""
    found = []
    for device in (*fabric.switches, *fabric.nics):
        for end in fabric.topology.ports(device.number):
            if end.kind != "fabric":
                continue
            number = next(
                n for n, other in enumerate(fabric.topology.ports(end.peer)) if other.link == end.link
            )
            there = fabric.port(end.peer, end.peer_port)
            assert number == end.peer_port
            here = next(
                fabric.port(device.number, n)
                for n, other in enumerate(fabric.topology.ports(device.number))
                if other.link == end.link
            )
            ours, theirs = here.credits, there.credits
            assert ours is not None
            assert theirs is not None
            for lane in range(8):
                flying = ours.spent[lane] - theirs.taken[lane]
                room = ours.limit[lane] - theirs.taken[lane] + theirs.held[lane]
                if flying < 0 or room > theirs.buffer_blocks or ours.spent[lane] > ours.limit[lane]:
                    found.append(f"{device.number} to {end.peer}, lane {lane}: {flying} fly, {room} allowed")
    return found


def test_an_unloaded_link_gives_the_times_it_has_with_pfc() -> None:
    times = []
    for flow_control in ("pfc", "credits"):
        fabric = credited([(0, 1)], link={"flow_control": flow_control})
        fabric.post(0, 0, 4096)
        fabric.run()
        times += [delivery.time_ps for delivery in fabric.deliveries(0)]
    assert times == [1_167_760, 1_167_760]


def test_enough_credits_for_the_round_trip_give_the_whole_rate() -> None:
    fabric = credited([(0, 1)])
    fabric.post(0, 0, 1000 * 4096)
    fabric.run()
    # 4,194 bytes and 999 x 4,178 on the first link, and one more of the last over the second.
    least_ps = (4_194 + 999 * 4_178 + 4_178) * 20 + 2 * 500_000
    # Now and then an update for the lane of the acknowledgements goes first: 8 bytes for each 66 of them.
    assert 0 <= fabric.deliveries(0)[0].time_ps - least_ps <= 2 * 16 * 160


def test_few_credits_are_one_buffer_a_round_trip() -> None:
    # 260 blocks are four frames; an update of one frame's 65 blocks is told for each.
    fabric = credited([(0, 1)], link={"credits": {"buffer": "16640B", "update": "4160B"}})
    fabric.post(0, 0, 1000 * 4096)
    fabric.run()
    # A lane stops below a largest frame's 66 blocks, so three frames go in each round trip of a link: the
    # frame's 83.56 ns, 500 ns, an update of 8 bytes, and 500 ns back. Some wait for an ACK.
    round_ps = 83_560 + 500_000 + 160 + 500_000
    took = fabric.deliveries(0)[0].time_ps
    assert took == pytest.approx(1000 / 3 * round_ps, rel=0.03)


@pytest.mark.parametrize("policy", ["e_ecmp", "adaptive"])
def test_nobody_may_send_what_the_receiver_has_no_room_for(policy: str) -> None:
    recovery = {"kind": "selective_repeat", "reorder": 64}
    routing: dict[str, Any] = {"kind": policy}
    incast = [(source, 4) for source in (0, 1, 2, 3, 5, 6, 7)] + [(0, 7), (6, 1)]
    fabric = credited(incast, WEST_EAST, routing=routing, transport={"recovery": recovery})
    for connection in range(len(incast)):
        fabric.post(0, connection, 2**18)
    while fabric.run_events(500):
        assert beyond(fabric) == []
    assert fabric.total("port_dropped_frames") == 0
    assert fabric.total("port_transmit_wait_ps") > 0
    assert fabric.total("nic_retransmitted_frames") == 0
    assert all(len(fabric.deliveries(connection)) == 1 for connection in range(len(incast)))
    assert fabric.broken(at_rest=True) == []


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_fabric_nothing_is_lost_and_credits_never_exceed_the_room(seed: int) -> None:
    random = Random(seed)
    topology, nics = random_topology(random)
    mtu = random.choice((256, 1024, 4096))
    frames = random.choice((4, 5, 8, 40))
    link = {"flow_control": "credits", "credits": {"buffer": f"{frames * (mtu + 82 + 63)}B"}}
    one = scenario(topology, seed=seed, link=link, transport={"mtu": mtu, "timeout": 0})
    pairs = [tuple(random.sample(range(nics), 2)) for _ in range(random.randint(1, 12))]
    fabric = Fabric(one, [(src, dst) for src, dst in pairs], [random.choice((3, 3, 5)) for _ in pairs])
    for connection in range(len(pairs)):
        fabric.post(random.choice((0, 0, 10**6)), connection, random.choice((0, 1, 10_000, 150_000)))
    while fabric.run_events(random.choice((1, 50, 700))):
        assert beyond(fabric) == []
    assert fabric.broken(at_rest=True, lossless=True) == []
    assert fabric.total("port_dropped_frames") == 0
    assert sum(nic.delivered_bytes for nic in fabric.nics) == fabric.posted_bytes


def test_a_link_that_comes_back_begins_with_a_whole_buffer() -> None:
    fabric = credited([(0, 1), (2, 1)], transport={"timeout": 4}, routing={"convergence": "1us"})
    for connection in (0, 1):
        fabric.post(0, connection, 2**20)
    fabric.set_link("nic-1:switch", 20 * US, up=False)
    fabric.set_link("nic-1:switch", 40 * US, up=True)
    fabric.run()
    assert [len(fabric.deliveries(connection)) for connection in (0, 1)] == [1, 1]
    assert beyond(fabric) == []
    assert fabric.broken(at_rest=True) == []


def test_a_slow_way_to_memory_holds_up_its_leaf_without_a_pause() -> None:
    receive = {"enabled": True, "rate": "100G", "buffer": "512KiB"}
    fabric = credited([(0, 1)], nic={"receive": receive}, transport={"mtu": 4096})
    fabric.post(0, 0, 1000 * 4096)
    while fabric.run_events(500):
        assert beyond(fabric) == []
    # Memory takes 4,096 bytes in 327.68 ns, from when the first packet is there.
    first_ps = 2 * (4_194 * 20 + 500_000)
    assert fabric.deliveries(0)[0].time_ps == first_ps + 1000 * 327_680
    assert fabric.total("port_dropped_frames") == 0
    assert fabric.total("pfc_transmit_xoff_frames") == 0


def test_a_run_goes_on_from_its_state() -> None:
    whole, first, second = (credited([(0, 2), (1, 2)]) for _ in range(3))
    for fabric in (whole, first):
        fabric.post(0, 0, 2**20)
        fabric.post(0, 1, 2**20)
    whole.run()
    first.run_events(1500)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()


@pytest.mark.parametrize(
    ("sections", "reported"),
    [
        ({"link": {"credits": {"buffer": "8KiB"}}}, "less than an update and two frames"),
        ({"switch": {"pfc": {"watchdog": {"enabled": True}}}}, "nothing to watch"),
        ({"link": {"flow_control": "tokens"}}, "tokens"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(sections: dict[str, Any], reported: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        credited([(0, 1)], **sections)
    assert reported in str(caught.value)


def test_a_stall_names_who_has_no_credits() -> None:
    fabric = credited([(0, 2)])
    fabric.post(0, 0, 4_000_000)
    lanes = fabric.switches[0].ports[2].credits
    assert lanes is not None
    lanes.limit[3] = lanes.spent[3] + 2 * 67  # of the receiver's word, two frames of 66 blocks are left
    fabric.run(US)
    lines = explain(waits_of(fabric.devices(), fabric.topology), fabric.topology)
    assert "switch waits for nic-2: port 2 has no credits left for virtual lane 3" in lines


def test_modular_switches_are_refused_where_links_have_credits() -> None:
    for where in ("spines", "all"):
        with pytest.raises(ScenarioError, match="modular switches are modelled with PFC"):
            credited([], switch={"deep_buffer": {"where": where}})
