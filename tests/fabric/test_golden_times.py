"""Is every time what one works out by hand, to the picosecond?

400G carries a byte in 20 ps, 100G in 80, 40G in 200. A WRITE_ONLY of 4,096 B is 4,096 + 62 (Ethernet 18,
IPv4 20, UDP 8, BTH 12, ICRC 4) + RETH 16 + preamble and gap 20 = 4,194 B on the wire; a WRITE_LAST lacks the
RETH: 4,178. An ACK is 62 + 4 + 20 = 86 B. Links are 500 ns long. Expected values are literals.
"""

import pytest

from actors.wire.message import COMPLETED_RECEIVE, COMPLETED_SEND, STATUS_SUCCESS
from tests.fabric.rig import Completion, Fabric
from tests.fabric.sections import scenario, star, zone


def delivered_ps(fabric: Fabric, connection: int = 0) -> int:
    """When the only message of a connection was delivered."""
    (delivery,) = fabric.deliveries(connection)
    return delivery.time_ps


def one_write(
    topology: dict[str, object], size_bytes: int = 4096, dst: int = 1, **sections: object
) -> Fabric:
    """NIC 0 writes to NIC `dst` at time 0; run to the end."""
    fabric = Fabric(scenario(topology, **sections), [(0, dst)])  # type: ignore[arg-type]
    fabric.post(0, 0, size_bytes)
    fabric.run()
    return fabric


def test_one_packet_through_one_switch_is_delivered_at_1167760_ps() -> None:
    # 2 x (4,194 x 20 + 500,000)
    assert delivered_ps(one_write(star(2))) == 1_167_760


def test_its_completion_takes_an_acknowledgement_back_and_a_host_link() -> None:
    fabric = one_write(star(2))
    # 1,167,760 + 2 x (86 x 20 + 500,000) = 2,171,200 at the NIC; then 64 B at 512G and 250 ns to the host.
    assert fabric.completions(0) == [Completion(2_422_200, 0, 0, 0, 4096, COMPLETED_SEND, STATUS_SUCCESS)]


def test_the_second_packet_of_a_message_follows_the_first_back_to_back() -> None:
    # FIRST has 4,194 B, LAST 4,178 B. LAST is at the switch at 667,440, where FIRST leaves until 667,760; it
    # ends at 667,760 + 83,560 + 500,000.
    assert delivered_ps(one_write(star(2), 8192)) == 1_251_320


def test_four_hops_between_racks() -> None:
    # 4 x (83,880 + 500,000)
    assert delivered_ps(one_write(zone(2, 1, 1))) == 2_335_520


def test_each_switch_and_the_receiving_nic_add_their_latency() -> None:
    # 2,335,520 + three switches of 300 ns, and then the NIC's 200 ns.
    switch = {"latency": "300ns"}
    assert delivered_ps(one_write(zone(2, 1, 1), switch=switch)) == 3_235_520
    assert delivered_ps(one_write(zone(2, 1, 1), switch=switch, nic={"latency": "200ns"})) == 3_435_520


@pytest.mark.parametrize(
    ("first", "second", "expected_ps"),
    [
        ("100G", "100G", 1_671_040),  # 2 x (4,194 x 80 + 500,000)
        ("40G", "40G", 2_677_600),  # 2 x (4,194 x 200 + 500,000)
        ("100G", "400G", 1_419_400),  # 335,520 + 83,880 + 1,000,000
        ("400G", "40G", 1_922_680),  # 83,880 + 838,800 + 1,000,000
        ("56G", "56G", 2_198_286),  # 33,552 bit at 56G are 599,142.86 ps, rounded up on each link
        ("3G", "7G", 16_977_143),  # 11,184,000 exactly, and 4,793,142.86 rounded up
    ],
)
def test_serialisation_is_rounded_up_on_each_link(first: str, second: str, expected_ps: int) -> None:
    assert delivered_ps(one_write(star(2, {0: first, 1: second}))) == expected_ps


@pytest.mark.parametrize(
    ("size_bytes", "immediate", "expected_ps"),
    [
        (0, None, 1_003_920),  # 62 + 16 + 20 = 98 B: 2 x (1,960 + 500,000)
        (1, None, 1_004_080),  # padded to 4 B: 102 B
        (4, None, 1_004_080),
        (5, None, 1_004_240),  # 106 B
        (0, 9, 1_004_080),  # ImmDt, 4 B: 102 B
        (4096, 9, 1_167_920),  # 4,198 B
    ],
)
def test_small_and_empty_writes(size_bytes: int, immediate: int | None, expected_ps: int) -> None:
    fabric = Fabric(scenario(star(2)), [(0, 1)])
    fabric.post(0, 0, size_bytes, immediate=immediate)
    fabric.run()
    assert delivered_ps(fabric) == expected_ps
    assert fabric.deliveries(0)[0].size_bytes == size_bytes


def test_a_write_with_immediate_tells_the_receiver_when_its_last_byte_is_there() -> None:
    fabric = Fabric(scenario(star(2)), [(0, 1)])
    fabric.post(0, 0, 4096, immediate=77)
    fabric.run()
    # 1,167,920 (4,198 B, twice) + 1,000 + 250,000
    receiver = fabric.completions(fabric.connections[0].reversed())
    assert receiver == [Completion(1_418_920, 0, 0, 77, 4096, COMPLETED_RECEIVE, STATUS_SUCCESS)]


def test_of_two_that_arrive_together_the_lower_port_goes_first_and_the_other_waits_one_frame() -> None:
    fabric = Fabric(scenario(star(3)), [(1, 2), (0, 2)])
    fabric.post(0, 0, 4096)
    fabric.post(0, 1, 4096)
    fabric.run()
    assert delivered_ps(fabric, 1) == 1_167_760
    assert delivered_ps(fabric, 0) == 1_251_640  # 83,880 later


def test_a_higher_priority_overtakes_what_waits_but_not_the_frame_in_progress() -> None:
    fabric = Fabric(scenario(star(4)), [(0, 3), (1, 3), (2, 3)], priorities=[3, 3, 6])
    fabric.post(0, 0, 8192)
    fabric.post(0, 1, 8192)
    fabric.post(60_000, 2, 4096)
    fabric.run()
    # At the switch: A1, B1 at 583,880; D at 643,880; A2, B2 at 667,440. Out: A1 until 667,760, then D until
    # 751,640, B1 until 835,520, A2 (83,560) until 919,080, B2 until 1,002,640; each 500,000 later at the
    # receiver.
    assert delivered_ps(fabric, 2) == 1_251_640
    assert delivered_ps(fabric, 0) == 1_419_080
    assert delivered_ps(fabric, 1) == 1_502_640


def test_what_arrives_at_the_instant_a_port_becomes_free_may_still_go_first() -> None:
    fabric = Fabric(scenario(star(4)), [(0, 3), (1, 3), (2, 3)], priorities=[3, 3, 6])
    fabric.post(0, 0, 4096)
    fabric.post(0, 1, 4096)
    fabric.post(83_880, 2, 4096)
    fabric.run()
    # D is at the switch at 667,760, when A's frame has left and B's is due: arrivals come before a serve.
    assert delivered_ps(fabric, 2) == 1_251_640
    assert delivered_ps(fabric, 1) == 1_335_520


def test_a_slow_sender_leaves_gaps_that_another_fills() -> None:
    # NIC 0 has 100G. Its two packets leave until 335,520 and 669,760 (335,520 + 4,178 x 80).
    fabric = Fabric(scenario(star(3, {0: "100G"})), [(0, 2), (1, 2)])
    fabric.post(0, 0, 8192)
    fabric.post(300_000, 1, 4096)
    fabric.run()
    # The other's frame is at the switch at 883,880, where the slow one's first left from 835,520 to 919,400.
    assert delivered_ps(fabric, 1) == 1_503_280
    # The slow one's second is there at 1,169,760 and finds the port free again.
    assert delivered_ps(fabric, 0) == 1_753_320  # 1,169,760 + 83,560 + 500,000
