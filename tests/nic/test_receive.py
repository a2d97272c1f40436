"""Does a NIC whose memory is slower than its link pause its leaf, at the times worked out by hand?

Every link is 400G (20 ps a byte) and 500 ns long, devices have no latency of their own, and the leaf obeys
a pause at once. Packets carry 1,024 bytes; the first of a message is 1,122 bytes on the wire, the others
1,106. At 100 Gbit/s memory takes one in 81,920 ps.
"""

from typing import Any

import pytest

from actors.kernel.event import ARRIVAL, pack_key
from actors.wire.frame import CNP, Frame, wire_size
from emu.base.errors import ScenarioError
from emu.devices.nics import receive_warnings
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

TAKES_PS = 81_920
FIRST_AT_PS = 2 * (1_122 * 20 + 500_000)


def slow(connections: Any = ((0, 1),), nics: int = 2, **receive: Any) -> Fabric:
    """NICs around a switch, the second with 100 Gbit/s to memory."""
    section = {"enabled": True, "rate": "100G", **receive}
    one = [{"devices": "nic-1", "nic": {"receive": section}}]
    return Fabric(scenario(star(nics), transport={"mtu": 1024, "timeout": 0}, overrides=one), connections)


@pytest.mark.parametrize("packets", [1, 2, 100, 4000])
def test_a_message_is_delivered_when_memory_has_taken_all_its_packets(packets: int) -> None:
    fabric = slow()
    fabric.post(0, 0, packets * 1024)
    fabric.run()
    (delivery,) = fabric.deliveries(0)
    assert delivery.time_ps == FIRST_AT_PS + packets * TAKES_PS
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_memory_that_keeps_up_only_adds_its_own_time() -> None:
    fabric = slow(rate="63GB/s")
    fabric.post(0, 0, 100 * 1024)
    fabric.run()
    (delivery,) = fabric.deliveries(0)
    # 99 packets of 1,106 bytes arrive after the first; the last takes 1024 x 8 / 504G more, rounded up.
    assert delivery.time_ps == FIRST_AT_PS + 99 * 1_106 * 20 + 16_254
    assert fabric.total("pfc_transmit_xoff_frames") == 0


XON = 46 * 1_086
"""So many frames without preamble and gap."""


def test_it_pauses_its_leaf_above_xoff_and_lets_it_go_on_at_xon() -> None:
    fabric = slow(buffer="400KB", xoff="100KB", xon=f"{XON}B")
    fabric.post(0, 0, 2**20)
    reported: list[tuple[int, int]] = []
    port = fabric.nics[1].ports()[0]
    pfc = port.pfc
    receive = fabric.nics[1].receive
    assert pfc is not None
    assert receive is not None
    group = receive.groups[3]
    while fabric.run_events(1):
        if pfc.stopping >> 3 != len(reported) % 2:
            reported.append((pfc.stopping >> 3, group.held_bytes))
    # Frames are 1,086 bytes without preamble and gap.
    assert reported[0][0] == 1
    assert 100_000 < reported[0][1] <= 100_000 + 1_086
    assert [stopped for stopped, _ in reported[:4]] == [1, 0, 1, 0]
    assert all(held == XON for stopped, held in reported if not stopped)
    leaf = fabric.switch("switch").ports[1].pfc
    assert leaf is not None
    assert leaf.received[3] >= 2
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_what_still_comes_after_xoff_is_what_the_formula_says_and_nothing_is_lost() -> None:
    fabric = slow(buffer="300KB")
    fabric.post(0, 0, 4 * 2**20)
    fabric.run()
    receive = fabric.nics[1].receive
    assert receive is not None
    # Headroom: 2 x 500 ns at 400G, three frames of 1,106 (1,024 + 82), a pause frame of 84.
    xoff = 300_000 - (50_000 + 3 * 1_106 + 84)
    assert xoff < receive.groups[3].peak_bytes <= 300_000
    assert fabric.total("port_dropped_frames", "receive_overrun") == 0
    assert len(fabric.deliveries(0)) == 1


def test_one_slow_receiver_holds_up_a_flow_that_only_shares_the_senders_link() -> None:
    def took(rate: str) -> int:
        fabric = slow([(0, 1), (0, 2)], 3, rate=rate)
        for _ in range(8):
            fabric.post(0, 0, 2**20)
        fabric.post(400_000_000, 1, 2**20)
        fabric.run()
        assert fabric.broken(at_rest=True, lossless=True) == []
        return fabric.deliveries(1)[0].time_ps - 400_000_000

    quick = took("63GB/s")
    assert took("10G") > 3 * quick


def test_a_congestion_notification_does_not_wait_for_memory() -> None:
    slow_memory = [{"devices": "nic-1", "nic": {"receive": {"enabled": True, "rate": "1G"}}}]
    transport = {"mtu": 1024, "congestion_control": {"kind": "dcqcn"}}
    fabric = Fabric(scenario(star(2), transport=transport, overrides=slow_memory), [(0, 1), (1, 0)])
    fabric.post(0, 0, 64 * 1024)
    at_ps = FIRST_AT_PS + 70 * 1_106 * 20  # all of it is here, and memory takes 8 us for each packet
    pair = fabric.pair(fabric.connections[1])
    src, dst, qpn = int(pair.remote_address), int(pair.address), int(pair.qpn)
    cnp = Frame(CNP, 6, src, dst, pair.udp_source, qpn, 0, 0, wire_size(CNP, 0))
    cnp.time_ps, cnp.key = at_ps, pack_key(fabric.nics[1].number, ARRIVAL, 0, 0)
    fabric.queue.push(cnp)
    fabric.run(at_ps)
    assert (fabric.total("nic_delivered_bytes"), fabric.total("nic_rp_cnp_handled")) == (0, 0)
    fabric.run(at_ps + 1)
    assert (fabric.total("nic_delivered_bytes"), fabric.total("nic_rp_cnp_handled")) == (0, 1)


def test_without_pfc_what_does_not_fit_is_dropped_and_counted() -> None:
    section = {"enabled": True, "rate": "100G", "buffer": "64KiB", "xoff": "32KiB"}
    off = {"pfc": {"enabled": False}}
    one = scenario(star(2), nic={"receive": section}, transport={"mtu": 1024}, switch=off)
    fabric = Fabric(one, [(0, 1)])
    fabric.post(0, 0, 2**20)
    fabric.run(300_000_000)
    assert fabric.total("port_dropped_frames", "receive_overrun") > 0
    receive = fabric.nics[1].receive
    assert receive is not None
    assert receive.groups[3].peak_bytes <= 65_536


def test_a_run_goes_on_from_its_state() -> None:
    whole, first, second = slow(), slow(), slow()
    for fabric in (whole, first):
        fabric.post(0, 0, 2**20)
    whole.run()
    first.run_events(3000)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()


def test_a_buffer_without_room_for_what_may_come_is_warned_of() -> None:
    for receive, reported in (({"buffer": "512KiB"}, 0), ({"buffer": "40KiB"}, 1), ({"xoff": "500KiB"}, 1)):
        one = scenario(star(2), nic={"receive": {"enabled": True, **receive}})
        assert len(receive_warnings(one, build_topology(one))) == reported


@pytest.mark.parametrize(
    ("receive", "reported"),
    [
        ({"xoff": "1MB"}, "not below the buffer's size"),
        ({"xoff": "64KiB", "xon": "65KiB"}, "lies above xoff"),
        ({"rate": 100}, "bare number"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(receive: dict[str, Any], reported: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(star(2), nic={"receive": {"enabled": True, **receive}})
    assert reported in str(caught.value)
