"""In which order do a NIC's queue pairs and acknowledgements use its port?"""

from __future__ import annotations

from actors.wire.frame import ACKNOWLEDGE
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario

WIRE = graph([("nic-0", "nic-1")])


def test_queue_pairs_take_turns_one_packet_each() -> None:
    fabric = Fabric(scenario(WIRE), [(0, 1)] * 3)
    tap = fabric.tap("nic-0", 0)
    for connection, packets in ((0, 4), (1, 2), (2, 3)):
        fabric.post(connection, connection, packets * 4096)
    fabric.run()
    turns = {fabric.nics[1].pairs[c.remote_pair].qpn: c.number for c in fabric.connections}
    # The first packet leaves, and its queue pair is in line again, before the others are posted.
    assert [turns[qpn] for _, _, qpn in tap.seen] == [0, 0, 1, 2, 0, 1, 2, 0, 2]


def test_a_higher_priority_does_not_wait_for_its_turn() -> None:
    fabric = Fabric(scenario(WIRE), [(0, 1)] * 2, priorities=[3, 6])
    tap = fabric.tap("nic-0", 0)
    fabric.post(0, 0, 4 * 4096)
    fabric.post(90_000, 1, 2 * 4096)
    fabric.run()
    turns = {fabric.nics[1].pairs[c.remote_pair].qpn: c.number for c in fabric.connections}
    # Posted while the second packet leaves.
    assert [turns[qpn] for _, _, qpn in tap.seen] == [0, 0, 1, 1, 0, 0]


def test_acknowledgements_go_before_the_data_of_their_priority() -> None:
    fabric = Fabric(scenario(WIRE, transport={"ack_priority": 3}), [(0, 1), (1, 0)])
    tap = fabric.tap("nic-1", 0)
    fabric.post(0, 0, 2 * 4096)
    fabric.post(0, 1, 12 * 4096)
    fabric.run()
    opcodes = [opcode for opcode, _, _ in tap.seen]
    # The first packet is there at 583,880, during the seventh of the other direction (501,680 to 585,240),
    # the second at 667,440, during the eighth, which the first ACK (86 B) delayed until 670,520.
    assert [place for place, opcode in enumerate(opcodes) if opcode == ACKNOWLEDGE] == [7, 9]


def test_a_message_goes_out_in_the_order_in_which_it_was_posted_on_its_queue_pair() -> None:
    fabric = Fabric(scenario(WIRE), [(0, 1)])
    sizes = [0, 10_000, 1, 4096, 4097]
    for place, size_bytes in enumerate(sizes):
        fabric.post(place, 0, size_bytes)
    fabric.run()
    assert [delivery.size_bytes for delivery in fabric.deliveries(0)] == sizes
    assert [completion.number for completion in fabric.completions(0)] == [0, 1, 2, 3, 4]
    assert fabric.broken(at_rest=True) == []
