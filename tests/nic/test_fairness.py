"""Who gets how much of a port with PFC alone, and who pays for it?

Every link is 400G and 500 ns long.
"""

import pytest

from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star

US = 1_000_000
MS = 1_000_000_000


def shares(fabric: Fabric, bytes_each: int, from_ps: int, until_ps: int) -> list[int]:
    """Packets of each connection that are taken in a time, if all have so much to send from the beginning."""
    pairs = [fabric.pair(connection.reversed()) for connection in fabric.connections]
    for connection in range(len(fabric.connections)):
        fabric.post(0, connection, bytes_each)
    fabric.run(from_ps)
    before = [int(pair.expected_psn) for pair in pairs]
    fabric.run(until_ps)
    return [int(pair.expected_psn) - psn for pair, psn in zip(pairs, before, strict=True)]


def jain(counts: list[int]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has all."""
    return sum(counts) ** 2 / (len(counts) * sum(count**2 for count in counts))


@pytest.mark.parametrize("pool", ["64MB", "16MB"])
def test_16_hosts_of_a_leaf_share_a_port_evenly_over_a_millisecond(pool: str) -> None:
    one = scenario(star(17), switch={"buffer": {"pool": pool}}, transport={"timeout": 0})
    fabric = Fabric(one, [(source, 16) for source in range(16)])
    packets = shares(fabric, 8 * 2**20, 0, MS)
    assert jain(packets) >= 0.99
    assert sum(packets) * 4_178 * 20 / MS > 0.99
    assert fabric.congestion_drops() == 0


PARKING = [
    *[(f"nic-{number}", "far") for number in range(3)],
    ("far", "near"),
    ("nic-3", "near"),
    ("nic-4", "near"),
]


def test_pfc_gives_a_near_sender_as_much_as_all_that_share_an_uplink() -> None:
    one = scenario(graph(PARKING), switch={"buffer": {"pool": "8MB"}}, transport={"timeout": 0})
    fabric = Fabric(one, [(source, 4) for source in range(4)])
    packets = shares(fabric, 32 * 2**20, 200 * US, 500 * US)
    assert packets[3] / sum(packets) == pytest.approx(1 / 2, abs=0.05)
    assert [count / sum(packets) for count in packets[:3]] == pytest.approx([1 / 6] * 3, abs=0.03)
    assert fabric.congestion_drops() == 0


TIERS = [
    *[(f"nic-{number}", "leaf-1") for number in range(9)],
    *[(f"nic-{number}", "leaf-0") for number in range(9, 11)],
    ("leaf-1", "spine"),
    ("leaf-0", "spine"),
]
"""Nine hosts under one leaf, two under another."""


def across(*, incast: bool) -> Fabric:
    """8:1 from the first leaf to nic-9, or not; and the ninth host to nic-10 from 100 us on."""
    one = scenario(graph(TIERS), switch={"buffer": {"pool": "8MB"}}, transport={"timeout": 0})
    fabric = Fabric(one, [*[(source, 9) for source in range(8)], (8, 10)])
    if incast:
        for connection in range(8):
            fabric.post(0, connection, 2 * 2**20)
    fabric.post(100 * US, 8, 2**20)
    fabric.run()
    assert fabric.broken(at_rest=True, lossless=True) == []
    return fabric


def test_with_pfc_alone_an_incast_across_tiers_loses_nothing_and_pauses_reach_the_senders() -> None:
    one = scenario(graph(TIERS), switch={"buffer": {"pool": "8MB"}}, transport={"timeout": 0})
    # A ninth sender beside the receiver makes its port the bottleneck, and not only the senders' uplink.
    fabric = Fabric(one, [(source, 9) for source in range(8)] + [(10, 9)])
    for connection in range(9):
        fabric.post(0, connection, 2 * 2**20)
    fabric.run()
    assert fabric.broken(at_rest=True, lossless=True) == []
    assert fabric.total("port_dropped_frames") == 0
    for name in ("spine", "leaf-1"):  # told by the receiver's leaf, and by the spine
        flow_controls = [port.pfc for port in fabric.switch(name).ports]
        assert sum(int(pfc.received[3]) for pfc in flow_controls if pfc is not None) > 0
    heard = [int(pfc.received[3]) for nic in fabric.nics[:8] if (pfc := nic.ports()[0].pfc) is not None]
    assert min(heard) > 0  # by their leaf, two tiers up from the receiver's


def test_a_flow_that_only_shares_a_paused_link_slows_down() -> None:
    alone = across(incast=False).deliveries(8)[0].time_ps - 100 * US
    victim = across(incast=True).deliveries(8)[0].time_ps - 100 * US
    # 257 frames of 4,178 bytes and a little over three links of which none is shared.
    assert alone == pytest.approx(256 * 4_178 * 20 + 3 * 500_000 + 300_000, rel=0.02)
    assert victim > 3 * alone
