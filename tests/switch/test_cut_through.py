"""Does a frame leave a cut-through switch when its head is through, and wait for its tail when it must?

62 B of head are 1,240 ps at 400G and 4,960 ps at 100G; a WRITE_ONLY of 4,096 B, 4,194 B on the wire, is
83,880 and 335,520 ps.
"""

from __future__ import annotations

import pytest

from actors.wire.frame import Frame
from tests.fabric.rig import Fabric
from tests.fabric.sections import Section, graph, scenario, star, zone

CUT: Section = {"forwarding": "cut_through"}


def delivered_ps(fabric: Fabric, connection: int = 0) -> int:
    (delivery,) = fabric.deliveries(connection)
    return delivery.time_ps


def run(fabric: Fabric, *posts: tuple[int, int, int]) -> Fabric:
    for at_ps, connection, size in posts:
        fabric.post(at_ps, connection, size)
    fabric.run()
    assert fabric.broken(at_rest=True, lossless=True) == []
    return fabric


@pytest.mark.parametrize(
    ("forwarding", "expected"),
    # Three switches of head 1,240 + link 500,000 + pipeline 300,000, then 83,880 + 500,000 to the NIC;
    # stored, each of the three takes 83,880 for 1,240.
    [("cut_through", 2_987_600), ("store_and_forward", 3_235_520)],
)
def test_three_switches_forward_after_the_head_and_their_pipeline(forwarding: str, expected: int) -> None:
    switch = {"forwarding": forwarding, "latency": "300ns"}
    assert (
        delivered_ps(run(Fabric(scenario(zone(2, 1, 1), switch=switch), [(0, 1)]), (0, 0, 4096))) == expected
    )


def test_a_faster_egress_waits_for_the_tail() -> None:
    fabric = run(Fabric(scenario(star(2, {0: "100G"}), switch=CUT), [(0, 1)]), (0, 0, 4096))
    # 335,520 + 500,000 in, 83,880 + 500,000 out: as if stored.
    assert delivered_ps(fabric) == 1_419_400
    assert fabric.total("cut_through_frames") == 1  # its acknowledgement, the other way


def test_a_slower_egress_does_not() -> None:
    fabric = run(Fabric(scenario(star(2, {1: "100G"}), switch=CUT), [(0, 1)]), (0, 0, 4096))
    # 1,240 + 500,000 in, 335,520 + 500,000 out.
    assert delivered_ps(fabric) == 1_336_760


def test_a_busy_egress_stores_the_frame() -> None:
    fabric = run(Fabric(scenario(star(3), switch=CUT), [(0, 2), (1, 2)]), (0, 0, 4096), (0, 1, 4096))
    # The first leaves at 501,240 and holds the egress until 585,120; the tail of the second is in at 583,880.
    assert delivered_ps(fabric, 0) == 501_240 + 583_880
    assert delivered_ps(fabric, 1) == 585_120 + 583_880


def test_frames_of_a_flow_follow_each_other_in_order() -> None:
    fabric = run(
        Fabric(scenario(zone(2, 2, 1), switch=CUT), [(0, 2), (1, 3)]), (0, 0, 1 << 20), (0, 1, 1 << 20)
    )
    assert fabric.total("nic_out_of_sequence") == 0
    assert fabric.total("cut_through_frames") > 0


def test_a_wrong_fcs_is_found_where_the_frame_is_next_stored() -> None:
    errors = [{"devices": "nic-0:a", "link": {"bit_error_rate": "1/335520"}}]
    links = [("nic-0", "a"), ("a", "b"), ("b", "nic-1")]
    recovery = {"timeout": 6}
    fabric = Fabric(scenario(graph(links), switch=CUT, overrides=errors, transport=recovery), [(0, 1)])
    run(fabric, (0, 0, 1 << 18))
    assert fabric.port(fabric.topology.nics[1], 0).corrupted > 0
    # Stored at b only behind the frame before it, at a never: nothing else uses its egress.
    assert fabric.switch("a").ports[0].corrupted == 0


def test_the_books_are_right_while_frames_wait_for_their_tails() -> None:
    fabric = Fabric(scenario(star(3, {0: "100G", 1: "100G"}), switch=CUT), [(0, 2), (1, 2)])
    fabric.post(0, 0, 16384)
    fabric.post(0, 1, 16384)
    most = 0
    while fabric.run_events(1):
        assert fabric.broken(lossless=True) == []
        pending = fabric.queue.pending()
        most = max(most, sum(isinstance(event, Frame) and event.cut < 0 for event in pending))
    assert most == 2
    assert fabric.broken(at_rest=True, lossless=True) == []


def test_a_frame_that_waits_for_its_tail_survives_a_snapshot() -> None:
    one, other = (Fabric(scenario(star(2, {0: "100G"}), switch=CUT), [(0, 1)]) for _ in range(2))
    one.post(0, 0, 4096)
    one.run(600_000)  # the head is in, the tail is not
    other.load(one.save())
    one.run()
    other.run()
    assert one.digest() == other.digest()
