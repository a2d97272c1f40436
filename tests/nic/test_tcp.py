"""Do TCP connections go as fast as TCP's formulas say, share evenly, and send again what they should?

NIC 0 writes to NIC 1 through one switch. Links are 400G, so a round trip is the delay of NIC 0's link twice.
"""

import math
from itertools import pairwise
from typing import Any

import pytest

from actors.optional.tcp import Tcp, TcpFlow
from actors.optional.tcp_window import ONE_SEGMENT, TcpWindow
from actors.wire.frame import ACKNOWLEDGE, Frame
from emu.base.errors import ScenarioError
from emu.devices.drawing import blueprint_of
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Delivery, Fabric, kept
from tests.fabric.sections import scenario, star, zone
from tests.nic.test_fairness import jain

MS = 1_000_000_000
SEGMENT = 1024
LOSSY = {"pfc": {"enabled": False}}
WHOLE: dict[str, Any] = {"recovery": {"kind": "tcp"}, "congestion_control": {"kind": "reno"}}
LONG = {"window": "64KiB", "least_timeout": "100ms", "first_timeout": "200ms"}
"""For round trips of 20 ms."""
MARKS = {"enabled": True, "scaled": False, "kmin": "200KB", "kmax": "200KB", "pmax": 1}


def tcp(
    delay: str = "1ms", kind: str = "reno", knobs: Any = (), recovery: Any = (), **sections: Any
) -> Fabric:
    """A connection over a link of NIC 0's with a delay; nothing is posted."""
    slow = {"window": "16MB", "least_timeout": "20ms", "first_timeout": "50ms", "delayed_ack": "5ms"}
    transport = {
        "mtu": SEGMENT,
        "recovery": {"kind": "tcp", **slow, **dict(recovery)},
        "congestion_control": {"kind": kind, **dict(knobs)},
    }
    built = scenario(star(2, d0=delay), switch=LOSSY, transport=transport, **sections)
    return Fabric(built, [(0, 1)])


def segments_per_s(deliveries: list[Delivery], first: int = 0) -> float:
    """What came from the message `first` on, counted from its arrival, or from the beginning."""
    since_ps = deliveries[first - 1].time_ps if first else 0
    packets = sum(-(-one.size_bytes // SEGMENT) for one in deliveries[first:])
    return packets / (deliveries[-1].time_ps - since_ps) * 1e12


def padhye(loss: float, rtt_s: float, timeout_s: float, b: int) -> float:
    """Segments a second of Reno: Padhye et al., SIGCOMM'98, equation 30."""
    timeouts = timeout_s * min(1.0, 3 * math.sqrt(3 * b * loss / 8)) * loss * (1 + 32 * loss**2)
    return 1 / (rtt_s * math.sqrt(2 * b * loss / 3) + timeouts)


@pytest.mark.parametrize(("loss", "b"), [(0.004, 1), (0.01, 1), (0.01, 2)])
def test_goodput_under_drawn_loss_is_padhyes(loss: float, b: int) -> None:
    # A window that counts acknowledgements grows by 1/b a round trip, one that counts segments by 1.
    drawn = {"at": 0, "kind": "degrade", "target": "switch:nic-1", "loss": loss, "sender": "switch"}
    fabric = tcp(knobs={"byte_counting": b == 1}, faults=[drawn])
    fabric.post(0, 0, 40_000 * SEGMENT)
    fabric.run()
    assert fabric.broken(at_rest=True) == []
    found = segments_per_s(fabric.deliveries(0))
    assert found == pytest.approx(padhye(loss, 2.001e-3, 20e-3, b), rel=0.1)


def test_reno_under_a_loss_every_1000_segments_is_the_square_root_law() -> None:
    fabric = tcp("10ms", recovery=LONG, nic={"corrupt_every": 1000})
    for _ in range(20):
        fabric.post(0, 0, 1000 * SEGMENT)
    fabric.run()
    rate = segments_per_s(fabric.deliveries(0), 5)
    # Mathis et al. (1997): sqrt(3/2) / sqrt(p) segments a round trip. A cycle of 26 round trips, from 25.8 to
    # 51.6 segments, has up to two more in which the loss is repaired.
    assert 26 / 28 <= rate * 20e-3 / math.sqrt(1.5 * 1000) <= 1
    assert fabric.total("nic_local_ack_timeout_err") == 0


def test_cubic_follows_its_response_function() -> None:
    # RFC 8312, equation 6, for a loss every 5,000 segments and 200 ms: 187 segments, where Reno has 87. The
    # receive window keeps slow start from 5,000, from which it takes 100 losses to come down.
    timeouts = {"least_timeout": "2s", "first_timeout": "3s", "window": "256KB"}
    fabric = tcp("100ms", "cubic", {"fast_convergence": False}, timeouts, nic={"corrupt_every": 5000})
    for _ in range(24):
        fabric.post(0, 0, 5000 * SEGMENT)
    fabric.run()
    expected = (0.4 * (3 + 0.7) / (4 * (1 - 0.7))) ** 0.25 * 0.2**0.75 * 5000**0.75
    assert segments_per_s(fabric.deliveries(0), 8) * 0.2 == pytest.approx(expected, rel=0.1)


def test_cubic_is_reno_with_its_own_beta_where_round_trips_are_short() -> None:
    # RFC 9438, section 4.3: the region where W_est leads; sqrt(alpha (1 + beta) / (2 (1 - beta) p)).
    fabric = tcp("10ms", "cubic", recovery=LONG, nic={"corrupt_every": 1000})
    for _ in range(24):
        fabric.post(0, 0, 1000 * SEGMENT)
    fabric.run()
    alpha = 3 * 0.3 / 1.7
    expected = math.sqrt(alpha * 1.7 / (2 * 0.3) * 1000)
    assert segments_per_s(fabric.deliveries(0), 6) * 20e-3 == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("kind", ["reno", "cubic"])
def test_eight_equal_flows_share_a_port_evenly(kind: str) -> None:
    # 10 Gbit/s and 200 us of round trip are 61 segments; the port may hold as many again.
    timeouts = {"least_timeout": "1ms", "first_timeout": "10ms", "delayed_ack": "500us"}
    built = scenario(
        star(9, {8: "10G"}, **{f"d{nic}": "99500ns" for nic in range(8)}),
        switch={**LOSSY, "buffer": {"pool": "1MB", "alpha": "1/3"}},
        nic={"jitter": "100us"},
        transport={"recovery": {"kind": "tcp", **timeouts}, "congestion_control": {"kind": kind}},
    )
    fabric = Fabric(built, [(source, 8) for source in range(8)])
    for connection in range(8):
        fabric.post(0, connection, 2**29)
    taken = [fabric.pair(connection.reversed()) for connection in fabric.connections]
    fabric.run(20 * MS)
    before = [int(pair.expected_psn) for pair in taken]
    fabric.run(120 * MS)
    shares = [int(pair.expected_psn) - psn for pair, psn in zip(taken, before, strict=True)]
    assert jain(shares) >= 0.95
    assert sum(shares) * 4178 * 8 / 0.1 > 0.9 * 10e9


def lone(fabric: Fabric, lost: int, packets: int) -> list[Frame]:
    """Send a message of which one segment is lost once; what NIC 0 sent."""
    seen: list[Frame] = []
    first = int(fabric.nics[0].pairs[0].una_psn)

    def lose(frame: Frame) -> bool:
        seen.append(kept(frame))
        return len(seen) == lost + 1 and frame.psn == (first + lost) & 0xFFFFFF

    fabric.tap("nic-0", 0, lose)
    fabric.post(0, 0, packets * SEGMENT)
    fabric.run()
    return seen


def test_a_lost_segment_is_sent_again_alone_and_halves_the_window() -> None:
    fabric = tcp(knobs={"initial_window": 32})
    seen = lone(fabric, 7, 32)
    assert len(seen) == 33
    assert seen[-1].psn == seen[7].psn
    control = fabric.nics[0].pairs[0].control
    assert control is not None
    assert control.window_packets == (32 - 7) // 2  # of what was in flight as the loss was noticed
    assert fabric.total("nic_local_ack_timeout_err") == 0
    # The message is there a round trip after the segment would have been: 2 ms and the time of what is sent.
    assert fabric.deliveries(0)[0].time_ps == pytest.approx(1 * MS + 2 * MS, rel=0.01)


def test_the_last_segments_of_a_message_wait_for_the_timer_if_they_are_lost() -> None:
    fabric = tcp()
    seen = lone(fabric, 9, 10)
    assert len(seen) == 11
    assert fabric.total("nic_local_ack_timeout_err") == 1
    # The timer began anew with the acknowledgement of the ninth, delayed by 5 ms.
    assert fabric.deliveries(0)[0].time_ps == pytest.approx((2 + 5 + 20 + 1) * MS, rel=0.01)


def test_the_timer_doubles_and_gives_up_after_its_retries() -> None:
    fabric = tcp(recovery={"retries": 3})
    times: list[int] = []

    def lose(frame: Frame) -> bool:
        times.append(fabric.queue.now_ps)
        return True

    fabric.tap("nic-0", 0, lose)
    fabric.post(0, 0, SEGMENT)
    fabric.run()
    # RFC 6298: 50 ms before there is a sample, then twice as long each time.
    assert [later - time for time, later in pairwise(times)] == [
        50 * MS,
        100 * MS,
        200 * MS,
    ]
    assert [done.status for done in fabric.completions(0)] != [0]


def test_every_second_segment_is_acknowledged_and_a_lone_one_after_the_delay() -> None:
    fabric = tcp(knobs={"initial_window": 20})
    fabric.post(0, 0, 21 * SEGMENT)
    fabric.run()
    assert fabric.total("nic_transmit_acks") == 11  # ten pairs, and the last of the message at once
    fabric = tcp(knobs={"initial_window": 1})
    fabric.post(0, 0, 2 * SEGMENT)
    fabric.run()
    assert fabric.deliveries(0)[0].time_ps == pytest.approx((3 + 5) * MS, rel=0.01)


def test_an_idle_connection_begins_with_its_first_window_again() -> None:
    fabric = tcp(knobs={"initial_window": 2})
    fabric.post(0, 0, 300 * SEGMENT)
    fabric.post(100 * MS, 0, 300 * SEGMENT)
    sent: list[int] = []

    def note(frame: Frame) -> bool:
        sent.append(fabric.queue.now_ps)
        return False

    fabric.tap("nic-0", 0, note)
    fabric.run()
    assert sum(1 for time in sent if 100 * MS <= time < 101.9 * MS) == 2


def test_marks_close_the_window_and_nothing_is_lost() -> None:
    # Three senders into a port of 10 Gbit/s, which marks from 200 KB on.
    timeouts = {"least_timeout": "1ms", "first_timeout": "10ms", "delayed_ack": "500us"}
    built = scenario(
        star(4, {3: "10G"}, **{f"d{nic}": "50us" for nic in range(3)}),
        switch={**LOSSY, "ecn": MARKS},
        transport={
            "recovery": {"kind": "tcp", **timeouts},
            "congestion_control": {"kind": "reno", "ecn": True},
        },
    )
    fabric = Fabric(built, [(source, 3) for source in range(3)])
    for connection in range(3):
        fabric.post(0, connection, 8 * 2**20)
    fabric.run()
    assert fabric.total("nic_np_ecn_marked_roce_packets") > 0
    assert fabric.total("nic_np_cnp_sent") == 0
    assert fabric.total("nic_retransmitted_frames") == 0
    assert fabric.broken(at_rest=True) == []
    last_ps = max(fabric.deliveries(connection)[0].time_ps for connection in range(3))
    assert last_ps == pytest.approx(3 * 2048 * 4178 * 800, rel=0.1)  # 10 Gbit/s is 800 ps a byte


def test_a_snapshot_in_the_middle_of_a_recovery_goes_on_alike() -> None:
    drawn = {"at": 0, "kind": "degrade", "target": "switch:nic-1", "loss": 0.05, "sender": "switch"}

    def made() -> Fabric:
        return tcp(kind="cubic", faults=[drawn])

    whole, half = made(), made()
    for fabric in (whole, half):
        fabric.post(0, 0, 3000 * SEGMENT)
        fabric.run(1000 * MS)
    state = half.save()
    assert int(half.pair(half.connections[0]).una_psn) < int(half.pair(half.connections[0]).next_psn)
    again = made()
    again.load(state)
    again.run()
    whole.run()
    assert again.digest() == whole.digest()
    assert whole.deliveries(0)


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        ({"congestion_control": {"kind": "cubic"}}, "cubic is a window of TCP"),
        ({"recovery": {"kind": "tcp"}}, "TCP has a congestion window, and none gives it none"),
        (
            WHOLE | {"adaptive_retransmission": {"enabled": True}},
            "TCP's timer follows the round trip already",
        ),
        (WHOLE | {"receive_queue": {"depth": 4}}, "TCP has no receives that may be missing"),
        (WHOLE | {"remote_access": "write"}, "TCP has no remote access to forbid"),
        (WHOLE | {"recovery": {"kind": "tcp", "least_timeout": "2s"}}, "timeouts are not in the order"),
    ],
)
def test_half_a_tcp_is_refused(transport: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        scenario(star(2), transport=transport)


def test_a_run_is_not_taken_for_stalled_while_a_connection_may_try_again() -> None:
    timeouts = {"least_timeout": "1ms", "first_timeout": "8ms", "most_timeout": "20ms", "retries": 3}
    recovery = {"kind": "tcp", **timeouts}
    transport = {"recovery": recovery, "congestion_control": {"kind": "reno"}, "timeout": 1}
    # 8 and 16, then 20 ms twice, and the 20 ms after which it gives up.
    assert scenario(star(2), transport=transport).stall_after_ps == (8 + 16 + 3 * 20) * MS
    assert scenario(star(2), transport={"timeout": 1}).stall_after_ps == 10 * MS


def refused(verb: str = "write", **sections: Any) -> None:
    """Load a flow from one NIC to another, and wire it."""
    flows = {"kind": "flows", "verb": verb, "flows": [{"src": 0, "dst": 1, "size": "1KiB"}]}
    job = {"name": "flow", "workload": flows}
    built = load_mapping({"name": "one", "topology": zone(1, 2, 1), "jobs": [job], **sections}).scenario
    blueprint_of(built, build_topology(built))


def test_a_tcp_connection_to_a_queue_pair_is_refused() -> None:
    with pytest.raises(ScenarioError, match="nic-0-0 has queue pairs and nic-1-0 TCP connections"):
        refused(overrides=[{"devices": "nic-1-0", "transport": WHOLE}])


def test_a_read_over_tcp_is_refused() -> None:
    with pytest.raises(ScenarioError, match="TCP has no READ"):
        refused("read", transport=WHOLE)


def test_acknowledgements_of_a_gap_carry_its_blocks() -> None:
    fabric = tcp(knobs={"initial_window": 12})
    first = int(fabric.nics[0].pairs[0].una_psn)
    lost = [(first + at) & 0xFFFFFF for at in (2, 5, 8)]
    blocks: list[list[int]] = []

    def note(frame: Frame) -> bool:
        if frame.opcode == ACKNOWLEDGE and frame.tail:
            edges = range(0, len(frame.tail), 4)
            blocks.append([int.from_bytes(frame.tail[at : at + 4], "big") - first for at in edges])
        return False

    fabric.tap("nic-1", 0, note)

    def lose(frame: Frame) -> bool:
        gone = int(frame.psn) in lost
        if gone:
            lost.remove(int(frame.psn))
        return gone

    fabric.tap("nic-0", 0, lose)
    fabric.post(0, 0, 12 * SEGMENT)
    fabric.run()
    # RFC 2018: the block of the segment that came is the first.
    assert blocks[:2] == [[3, 4], [3, 5]]
    assert [9, 12, 6, 8, 3, 5] in blocks
    assert fabric.total("nic_retransmitted_frames") == 3
    assert len(fabric.deliveries(0)) == 1


def test_the_time_out_follows_the_samples_as_rfc_6298_says() -> None:
    """Section 2, by hand for round trips of 8, 12, 4 and 40 ms: SRTT, RTTVAR, and RTO = SRTT + 4 RTTVAR."""
    recovery = tcp(recovery={"least_timeout": "1us"}).nics[0].recovery
    assert isinstance(recovery, Tcp)
    flow = TcpFlow(0, 0)
    found = []
    for round_trip_ms in (8, 12, 4, 40):
        recovery._sample(flow, round_trip_ms * MS)
        found.append((flow.srtt_ps / MS, flow.rttvar_ps / MS, recovery._timeout_ps(flow) / MS))
    assert found == [
        (8, 4, 24),
        (8.5, 4, 24.5),
        (7.9375, 4.125, 24.4375),
        (11.9453125, 11.109375, 56.3828125),
    ]


def test_a_segment_that_is_sent_again_gives_no_sample() -> None:
    fabric = tcp(knobs={"initial_window": 8})
    assert len(lone(fabric, 4, 8)) == 9  # noticed by the last of the eight, so no later NAK ends the timing
    recovery = fabric.nics[0].recovery
    assert isinstance(recovery, Tcp)
    (flow,) = recovery._flows
    # All eight leave at once, so the first is the only one timed: 2 ms. RFC 6298, section 2: after one sample
    # RTTVAR is half of SRTT; a second one, of the segment sent again (section 3), would make it 3/8.
    assert flow.srtt_ps == pytest.approx(2 * MS, rel=0.01)
    assert flow.rttvar_ps == flow.srtt_ps >> 1


def test_an_acknowledgement_ends_the_doubling_of_the_timer() -> None:
    fabric = tcp()
    times: dict[int, list[int]] = {}

    def lose(frame: Frame) -> bool:
        times.setdefault(frame.psn, []).append(fabric.queue.now_ps)
        return len(times[frame.psn]) <= (2 if len(times) == 1 else 1)

    fabric.tap("nic-0", 0, lose)
    fabric.post(0, 0, SEGMENT)
    fabric.post(1000 * MS, 0, SEGMENT)
    fabric.run()
    gaps = [[later - time for time, later in pairwise(sent)] for sent in times.values()]
    # The first segment was sent again and gives no sample (RFC 6298, section 3), so the second waits for
    # `first_timeout` too: 50 ms, and 200 ms if it were still doubled.
    assert gaps == [[50 * MS, 100 * MS], [50 * MS]]


def test_a_second_time_out_in_a_row_leaves_the_threshold() -> None:
    fabric = tcp(knobs={"initial_window": 32})
    seen: list[int] = []

    def lose(frame: Frame) -> bool:
        seen.append(fabric.queue.now_ps)
        return fabric.queue.now_ps < 149 * MS  # all of it, and what is sent again after 50 ms

    fabric.tap("nic-0", 0, lose)
    fabric.post(0, 0, 32 * SEGMENT)
    fabric.run(151 * MS)
    control = fabric.nics[0].pairs[0].control
    assert isinstance(control, TcpWindow)
    assert fabric.total("nic_local_ack_timeout_err") == 2
    # RFC 5681, section 3.1: half of what was in flight at the first time-out, held constant at the second.
    assert control.threshold == 16 * ONE_SEGMENT
    assert control.window_packets == 1
