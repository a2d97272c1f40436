"""In which order do a NIC's queue pairs and acknowledgements use its port?"""

from __future__ import annotations

from itertools import pairwise

import pytest

from actors.wire.frame import ACKNOWLEDGE
from emu.base.errors import ScenarioError
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star
from tests.fabric.test_snapshots import through_msgpack

US = 1_000_000
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


# ---- jitter


def jittered(jitter: str) -> Fabric:
    """64 packets, each posted long after the one before."""
    fabric = Fabric(scenario(WIRE, nic={"jitter": jitter}), [(0, 1)])
    for turn in range(64):
        fabric.post(turn * 10 * US, 0, 1024)
    return fabric


def test_a_queue_pair_begins_after_a_drawn_delay_of_up_to_the_jitter() -> None:
    fabrics = [jittered(jitter) for jitter in ("0us", "1us", "1us")]
    at_once, late, copy = fabrics
    late.run(300 * US)
    copy.load(through_msgpack(late.save()))
    for fabric in fabrics:
        fabric.run()
    there = [[delivery.time_ps for delivery in fabric.deliveries(0)] for fabric in fabrics]
    delays = [after - before for before, after in zip(there[0], there[1], strict=True)]
    assert min(delays) >= 0
    assert max(delays) <= US
    # Uniform: a mean of a half, within three standard errors of 64 draws.
    assert sum(delays) / 64 == pytest.approx(US / 2, abs=3 * 0.289 * US / 8)
    assert copy.digest() == late.digest() != at_once.digest()


def test_what_has_packets_under_way_is_not_delayed() -> None:
    fabric = Fabric(scenario(WIRE, nic={"jitter": "2ms"}), [(0, 1)])
    for turn in range(8):
        fabric.post(turn, 0, 4096)
    fabric.run()
    times = [delivery.time_ps for delivery in fabric.deliveries(0)]
    assert {after - before for before, after in pairwise(times)} == {4194 * 20}


def lossy(jitter: str) -> float:
    """Of the link's rate, what eight equal senders deliver from the first to the third millisecond."""
    one = scenario(
        star(9),
        switch={"pfc": {"enabled": False}, "buffer": {"pool": "4MB"}},
        nic={"jitter": jitter},
        transport={
            "data_priority": 0,
            "recovery": {"kind": "selective_repeat", "window": "256KB"},
            "adaptive_retransmission": {"enabled": True, "least": "64us"},
        },
    )
    fabric = Fabric(one, [(sender, 8) for sender in range(8)])
    for sender in range(8):
        fabric.post(0, sender, 64 * 2**20)
    fabric.run(1000 * US)
    receivers = [fabric.pair(connection.reversed()) for connection in fabric.connections]
    before = sum(int(pair.expected_psn) for pair in receivers)
    fabric.run(3000 * US)
    return (sum(int(pair.expected_psn) for pair in receivers) - before) * 4178 * 20 / (2000 * US)


def test_equal_lossy_senders_fall_into_step_and_a_microsecond_ends_it() -> None:
    assert lossy("0us") < 0.6
    assert lossy("1us") > 0.95


def test_a_jitter_of_milliseconds_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"nic.jitter.*at most 2ms"):
        scenario(WIRE, nic={"jitter": "3ms"})
