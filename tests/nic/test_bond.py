"""What becomes of queue pairs when one of their NIC's two ports is lost, or the only one?

Two NICs, each on the same two switches, which are joined. Links are 400G and 500 ns long.
"""

import random
from typing import Any

import pytest

from actors.wire.message import STATUS_RETRY_EXCEEDED
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario

LINKS = [("nic-0", "left"), ("nic-0", "right"), ("nic-1", "left"), ("nic-1", "right"), ("left", "right")]
US = 1_000_000


def two_ports(pairs: int, **sections: Any) -> Fabric:
    """NICs 0 and 1 with so many connections."""
    sections = {"routing": {"convergence": "1us"}, "transport": {"mtu": 1024}, **sections}
    return Fabric(scenario(graph(LINKS), **sections), [(0, 1)] * pairs)


def sent(fabric: Fabric, nic: int) -> list[int]:
    """Payload bytes that each port of a NIC sent."""
    return [port.sent_data_bytes for port in fabric.nics[nic].ports()]


def test_queue_pairs_use_both_ports_in_turn() -> None:
    fabric = two_ports(4)
    for connection in range(4):
        fabric.post(0, connection, 2**20)
    fabric.run()
    assert sent(fabric, 0) == [2 * 2**20, 2 * 2**20]
    assert fabric.broken(at_rest=True) == []


def test_or_all_use_the_first() -> None:
    fabric = two_ports(4, nic={"bond": "first"})
    for connection in range(4):
        fabric.post(0, connection, 2**20)
    fabric.run()
    assert sent(fabric, 0) == [4 * 2**20, 0]


@pytest.mark.parametrize("at_us", [1, 10, 23])
def test_a_lost_port_is_no_timeout_and_no_lost_message(at_us: int) -> None:
    fabric = two_ports(4)
    for connection in range(4):
        for _ in range(4):
            fabric.post(0, connection, 2**18)
    fabric.set_link("nic-0:left", at_us * US, up=False)
    fabric.run()
    for connection in range(4):
        assert [d.size_bytes for d in fabric.deliveries(connection)] == [2**18] * 4
        assert [done.status for done in fabric.completions(connection)] == [0] * 4
    assert fabric.total("nic_local_ack_timeout_err") == 0
    assert fabric.nics[0].bond_failovers == 2
    assert fabric.broken(at_rest=True) == []


def test_queue_pairs_go_home_when_the_port_is_back() -> None:
    fabric = two_ports(2)
    fabric.set_link("nic-0:left", 5 * US, up=False)
    fabric.set_link("nic-0:left", 15 * US, up=True)
    for connection in range(2):
        for _ in range(16):
            fabric.post(0, connection, 2**17)
    fabric.run(16 * US)
    away = sent(fabric, 0)
    fabric.run(30 * US)
    back = sent(fabric, 0)
    assert [pair.port for pair in fabric.nics[0].pairs] == [0, 1]
    assert back[0] - away[0] == pytest.approx(14 * 50_000 * 1024 // 1106, rel=0.05)
    fabric.run()
    assert [done.status for connection in range(2) for done in fabric.completions(connection)] == [0] * 32
    assert fabric.broken(at_rest=True) == []


def test_a_nic_without_a_port_left_waits_for_one() -> None:
    fabric = two_ports(2, transport={"mtu": 1024, "timeout": 5, "retry_count": 7})
    for name in ("nic-0:left", "nic-0:right"):
        fabric.set_link(name, 5 * US, up=False)
    fabric.set_link("nic-0:right", 50 * US, up=True)
    for connection in range(2):
        fabric.post(0, connection, 2**20)
    fabric.run()
    assert [fabric.completions(connection)[0].status for connection in range(2)] == [0, 0]
    assert sent(fabric, 0)[1] > 2**20


def test_a_run_goes_on_from_its_state_while_failed_over() -> None:
    def make() -> Fabric:
        fabric = two_ports(4)
        for connection in range(4):
            fabric.post(0, connection, 2**19)
        fabric.set_link("nic-0:left", 5 * US, up=False)
        fabric.set_link("nic-0:left", 15 * US, up=True)
        return fabric

    whole, first, second = make(), make(), make()
    whole.run()
    first.run(9 * US)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()


PLANES = [("nic-0", "left"), ("nic-0", "right"), ("nic-1", "left"), ("nic-1", "right")]


def two_planes(pairs: int) -> Fabric:
    """NICs 0 and 1 on two switches that nothing joins, with so many connections."""
    known = {"convergence": "5us"}
    return Fabric(scenario(graph(PLANES), routing=known, transport={"mtu": 1024}), [(0, 1)] * pairs)


@pytest.mark.parametrize("at_us", [1, 10, 23])
def test_a_port_that_the_peer_lost_on_one_plane_is_no_timeout_and_no_lost_message(at_us: int) -> None:
    fabric = two_planes(4)
    for connection in range(4):
        for _ in range(8):
            fabric.post(0, connection, 2**18)
    fabric.set_link("nic-1:left", at_us * US, up=False)
    fabric.run((at_us + 5) * US)
    assert [pair.port for pair in fabric.nics[0].pairs] == [0, 1, 0, 1]
    fabric.run((at_us + 5) * US + 1)
    assert [pair.port for pair in fabric.nics[0].pairs] == [1, 1, 1, 1]
    assert fabric.nics[0].bond_failovers == 2
    fabric.run()
    for connection in range(4):
        assert [d.size_bytes for d in fabric.deliveries(connection)] == [2**18] * 8
        assert [done.status for done in fabric.completions(connection)] == [0] * 8
    assert fabric.total("nic_local_ack_timeout_err") == 0
    assert fabric.broken(at_rest=True) == []


def test_queue_pairs_go_home_when_routing_knows_that_the_peers_port_is_back() -> None:
    fabric = two_planes(2)
    fabric.set_link("nic-1:left", 5 * US, up=False)
    fabric.set_link("nic-1:left", 15 * US, up=True)
    for connection in range(2):
        for _ in range(16):
            fabric.post(0, connection, 2**17)
    ports = []
    for at_us in (9, 11, 19, 21):
        fabric.run(at_us * US)
        ports.append([pair.port for pair in fabric.nics[0].pairs])
    assert ports == [[0, 1], [1, 1], [1, 1], [0, 1]]
    fabric.run()
    assert [done.status for connection in range(2) for done in fabric.completions(connection)] == [0] * 32
    assert fabric.broken(at_rest=True) == []


def test_what_routing_knows_is_in_a_snapshot() -> None:
    fabric, other = two_planes(4), two_planes(4)
    for connection in range(4):
        fabric.post(0, connection, 2**20)
    fabric.set_link("nic-1:left", 1 * US, up=False)
    fabric.run(8 * US)
    other.load(fabric.save())
    for one in (fabric, other):
        one.set_link("nic-1:right", 9 * US, up=False)
        one.set_link("nic-1:right", 10 * US, up=True)
        one.run()
    assert fabric.digest() == other.digest()
    assert fabric.total("nic_local_ack_timeout_err") == 0


def test_with_no_plane_left_queue_pairs_stay_where_they_are() -> None:
    fabric = two_planes(2)
    fabric.set_link("nic-1:left", 5 * US, up=False)
    fabric.set_link("nic-1:right", 5 * US, up=False)
    for connection in range(2):
        fabric.post(0, connection, 2**20)
    fabric.run(30 * US)
    assert [pair.port for pair in fabric.nics[0].pairs] == [0, 1]
    fabric.set_link("nic-1:left", 40 * US, up=True)
    fabric.run()
    assert [done.status for connection in range(2) for done in fabric.completions(connection)] == [0] * 2
    assert [pair.port for pair in fabric.nics[0].pairs] == [0, 0]


SPINES = [(leaf, spine) for leaf in ("left", "right") for spine in ("spine-0", "spine-1")]
FABRICS = {"joined": LINKS, "spines": [*PLANES, *SPINES], "planes": PLANES}
KNOWN_US = 5
MESSAGES, MESSAGE_BYTES = 12, 2**16
ONE_PORT_PS = MESSAGES * MESSAGE_BYTES // 1024 * 1106 * 20
"""All that is posted, over one port of 400G."""


@pytest.mark.parametrize("back_us", [0, 3, 7, 60])
@pytest.mark.parametrize("victim", ["nic-0:left", "nic-1:left"])
@pytest.mark.parametrize("shape", FABRICS)
def test_a_port_of_either_end_may_die_at_any_moment_and_nobody_waits_for_a_timer(
    shape: str, victim: str, back_us: int
) -> None:
    moments = random.Random(f"{shape} {victim} {back_us}")
    for _ in range(5):
        at_ps = moments.randrange(US, ONE_PORT_PS)
        routing = {"convergence": f"{KNOWN_US}us"}
        fabric = Fabric(
            scenario(graph(FABRICS[shape]), routing=routing, transport={"mtu": 1024}), [(0, 1)] * 4
        )
        for message in range(MESSAGES):
            fabric.post(0, message % 4, MESSAGE_BYTES)
        fabric.set_link(victim, at_ps, up=False)
        if back_us:
            fabric.set_link(victim, at_ps + back_us * US, up=True)
        fabric.run()
        done = [one for connection in range(4) for one in fabric.completions(connection)]
        assert [one.status for one in done] == [0] * MESSAGES, at_ps
        assert fabric.total("nic_local_ack_timeout_err") == 0, at_ps
        # At worst all goes out again when routing knows, over one port, and 6 us are two round trips.
        assert max(one.time_ps for one in done) <= at_ps + KNOWN_US * US + ONE_PORT_PS + 6 * US, at_ps
        assert fabric.broken(at_rest=True) == []


def test_queue_pairs_come_home_when_routing_sends_answers_there_again() -> None:
    fabric = two_planes(2)
    fabric.set_link("nic-0:left", 5 * US, up=False)
    fabric.set_link("nic-0:left", 8 * US, up=True)  # before anybody has heard that it was down
    for connection in range(2):
        for _ in range(16):
            fabric.post(0, connection, 2**17)
    ports = []
    for at_us in (4, 6, 9, 12, 14):
        fabric.run(at_us * US)
        ports.append([pair.port for pair in fabric.nics[0].pairs])
    assert ports == [[0, 1], [1, 1], [1, 1], [1, 1], [0, 1]]


TIMEOUT_PS = 4_096_000 * 2**3
RETRIES = 3
LINK_PS = 1122 * 20 + 500_000
"""Of a packet over one link."""


def single_port(victim: str, back_ps: int) -> int:
    """The status of one packet from NIC 0 to NIC 1, whose only link is lost as it leaves."""
    transport = {"mtu": 1024, "timeout": 3, "retry_count": RETRIES}
    one_leaf = graph([("nic-0", "leaf"), ("nic-1", "leaf")])
    lossy = {"pfc": {"enabled": False}}  # with it, a port holds its frames for a moment after link-up
    fabric = Fabric(scenario(one_leaf, transport=transport, switch=lossy), [(0, 1)])
    fabric.post(0, 0, 1024)
    fabric.set_link(victim, 1, up=False)
    fabric.set_link(victim, back_ps, up=True)
    fabric.run()
    assert fabric.total("nic_local_ack_timeout_err") <= RETRIES + 1
    return fabric.completions(0)[0].status


@pytest.mark.parametrize(
    ("victim", "last_ps"),
    [
        # What was sent for the last time has to find the link up, one link and a switch further on ...
        ("nic-1:leaf", RETRIES * TIMEOUT_PS + LINK_PS),
        # ... and a NIC without a signal keeps it until the signal is back, or no retry is left.
        ("nic-0:leaf", (RETRIES + 1) * TIMEOUT_PS),
    ],
)
def test_a_single_port_outlives_what_timeout_and_retries_allow_and_not_a_packet_more(
    victim: str, last_ps: int
) -> None:
    assert single_port(victim, last_ps) == 0
    assert single_port(victim, last_ps + 1) == int(STATUS_RETRY_EXCEEDED)
