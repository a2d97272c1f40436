"""Does HPCC follow its algorithm, and do switches say what they should?

Every link is 400G (20 ps a byte) and 500 ns long. With an MTU of 4,096 and 42 bytes of INT a packet in the
middle of a message is 4,220 bytes on the wire.
"""

from typing import Any

import pytest

from actors.optional.hpcc import Hpcc
from actors.wire.frame import ACKNOWLEDGE, CNP, Frame
from actors.wire.telemetry import PLACE, QUEUE, RATE, RECORD_BYTES, SENT, TIME, field_of, with_hop
from emu.base.errors import ScenarioError
from emu.scenario.sections.nic import CONTROLS
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star

US = 1_000_000
LINE = 400_000_000_000
PACKET = 4_220


def controlled(connections: Any, topology: Any = None, **knobs: Any) -> Fabric:
    """NICs with HPCC around a switch, or on another fabric."""
    control = {"kind": "hpcc", "base_rtt": "4us", **knobs}
    transport = {"mtu": 4096, "timeout": 0, "congestion_control": control}
    return Fabric(scenario(topology or star(3), transport=transport), list(connections))


def control() -> Hpcc:
    """T = 10 us at 400G: 500,000 bytes; eta = 0.95, two additive steps of 1,000 bytes."""
    knobs = {"base_rtt": "10us", "eta": "95/100", "max_stage": 2, "additive": "1KB", "int": "42B"}
    return Hpcc(LINE, 4096, CONTROLS.section("hpcc", **knobs))


def hop(now_ps: int, queued_bytes: int, sent_bytes: int) -> bytes:
    """What one link says."""
    return with_hop(b"", 7, now_ps, queued_bytes, sent_bytes, LINE)


def test_a_record_says_where_when_how_much_waits_and_how_much_was_sent() -> None:
    tail = with_hop(hop(1, 2, 3), 8, 10**15, 5, 2**40, LINE)
    assert len(tail) == 2 * RECORD_BYTES
    fields = [field_of(tail, 1, field) for field in (PLACE, TIME, QUEUE, SENT, RATE)]
    assert fields == [8, 10**15, 5, 2**40, LINE]


def test_a_full_link_without_a_queue_scales_the_window_by_eta() -> None:
    one = control()
    one.on_telemetry(hop(0, 0, 0), 1, 100, 0)
    one.on_telemetry(hop(10 * US, 0, 500_000), 101, 200, 0)  # a whole T at line rate: u = U = 1
    expected = 500_000 * (65536 * 95 // 100) // 65536 + 1_000
    assert one.window_bytes == one.reference_bytes == expected
    assert one.window_packets == -(-expected // PACKET)
    assert one.rate_bps == pytest.approx(expected * 8 / 10e-6, rel=1e-4)


def test_a_queue_counts_as_bytes_in_flight_and_the_lesser_of_two_looks() -> None:
    one = control()
    one.on_telemetry(hop(0, 900_000, 0), 1, 100, 0)
    one.on_telemetry(hop(10 * US, 500_000, 500_000), 101, 200, 0)  # u = 1 + 500,000 / 500,000 = 2
    assert one.window_bytes == 500_000 * (65536 * 95 // 100) // (2 * 65536) + 1_000


def test_below_eta_it_takes_additive_steps_and_then_follows_the_measurement() -> None:
    one = control()
    one.on_telemetry(hop(0, 0, 0), 1, 100, 0)
    one.on_telemetry(hop(10 * US, 500_000, 500_000), 101, 200, 0)
    # From then on nothing is measured: U = 0 after a whole T. Two steps, and then the largest window.
    base, seen = one.reference_bytes, []
    for count in range(3):
        one.on_telemetry(hop((20 + 10 * count) * US, 0, 500_000), 201 + 100 * count, 300 + 100 * count, 0)
        seen.append(one.window_bytes)
    assert seen == [base + 1_000, base + 2_000, 500_000]


def test_within_a_round_trip_every_answer_is_taken_from_the_same_reference() -> None:
    one = control()
    one.on_telemetry(hop(0, 0, 0), 1, 100, 0)
    one.on_telemetry(hop(10 * US, 0, 500_000), 101, 200, 0)
    reference = one.reference_bytes
    for acknowledged in (102, 150, 200):
        one.on_telemetry(
            hop((10 + acknowledged) * US, 0, 500_000 + 50_000 * acknowledged), acknowledged, 300, 0
        )
        assert one.reference_bytes == reference
    one.on_telemetry(hop(400 * US, 0, 20_000_000), 201, 400, 0)
    assert one.reference_bytes != reference


def test_a_new_path_begins_a_new_measurement() -> None:
    one = control()
    one.on_telemetry(hop(0, 0, 0), 1, 100, 0)
    before = one.save()
    one.on_telemetry(with_hop(b"", 8, 10 * US, 9 * 10**5, 500_000, LINE), 101, 200, 0)
    assert one.save()[:-1] == before[:-1]


def test_int_takes_its_room_on_packets_and_acknowledgements_and_nowhere_else() -> None:
    for size, added in (("42B", 42), ("0B", 0)):
        fabric = controlled([(0, 1)], int=size)
        there: list[Frame] = []
        back: list[Frame] = []
        fabric.tap("nic-0", 0, lambda frame, seen=there: bool(seen.append(frame)))  # type: ignore[misc]
        fabric.tap("nic-1", 0, lambda frame, seen=back: bool(seen.append(frame)))  # type: ignore[misc]
        fabric.post(0, 0, 3 * 4096)
        fabric.run()
        assert [frame.wire_bytes for frame in there] == [4_194 + added, 4_178 + added, 4_178 + added]
        assert {int(frame.wire_bytes) for frame in back if frame.opcode == ACKNOWLEDGE} == {86 + added}
        assert CNP not in {frame.opcode for frame in back}


def test_an_answer_brings_back_one_record_for_each_switch_in_order() -> None:
    links = [("nic-0", "left"), ("left", "right"), ("right", "nic-1")]
    fabric = controlled([(0, 1)], graph(links))
    back: list[Frame] = []
    fabric.tap("nic-1", 0, lambda frame: bool(back.append(frame)))  # type: ignore[func-returns-value]
    fabric.post(0, 0, 2 * 4096)
    fabric.run()
    tails = [frame.tail for frame in back]
    assert [None if tail is None else len(tail) for tail in tails] == [2 * RECORD_BYTES] * 2
    first = tails[0]
    assert first is not None
    # 4,236 bytes (RETH on the first packet) and 500 ns to each switch.
    hop_ps = 4_236 * 20 + 500_000
    assert [field_of(first, at, TIME) for at in (0, 1)] == [hop_ps, 2 * hop_ps]
    assert [field_of(first, at, SENT) for at in (0, 1)] == [0, 0]
    second = tails[1]
    assert second is not None
    assert [field_of(second, at, SENT) for at in (0, 1)] == [4_236, 4_236]
    assert [field_of(second, at, QUEUE) for at in (0, 1)] == [0, 0]


def test_two_flows_share_a_link_at_eta_with_next_to_no_queue() -> None:
    fabric = controlled([(0, 2), (1, 2)], flows=20)
    for connection in (0, 1):
        fabric.post(0, connection, 64 * 2**20)
    fabric.run(300 * US)
    receivers = [fabric.pair(connection.reversed()) for connection in fabric.connections]
    before = [int(pair.expected_psn) for pair in receivers]
    queue = []
    for at_us in range(300, 800, 4):
        fabric.run((at_us + 4) * US)
        queue.append(int(fabric.switch("switch").buffer.held_bytes))
    packets = [int(pair.expected_psn) - psn for pair, psn in zip(receivers, before, strict=True)]
    utilisation = sum(packets) * PACKET * 8 / (LINE * 500e-6)
    assert packets[0] / sum(packets) == pytest.approx(0.5, abs=0.03)
    assert utilisation == pytest.approx(0.95, abs=0.04)
    assert sum(queue) / len(queue) < 2 * PACKET
    assert fabric.total("pfc_transmit_xoff_frames") == 0
    assert fabric.congestion_drops() == 0


def test_windows_smaller_than_the_distance_of_answers_stop_nobody() -> None:
    """Sixteen senders share a window of 48 packets, and an answer comes every 4 or 32; no timer helps."""
    for ack_every in (4, 32):
        transport = {
            "ack_every": ack_every,
            "timeout": 0,
            "congestion_control": {"kind": "hpcc", "base_rtt": "4us"},
        }
        fabric = Fabric(scenario(star(17), transport=transport), [(sender, 16) for sender in range(16)])
        for sender in range(16):
            fabric.post(0, sender, 400 * 4096)
        fabric.run()
        assert [len(fabric.completions(sender)) for sender in range(16)] == [1] * 16
        # The port to the receiver is all that they wait for: 400 packets of each, and the way there and back.
        assert fabric.queue.now_ps < 24 * 16 * 400 * PACKET


def test_a_run_goes_on_from_its_state() -> None:
    whole, first, second = (controlled([(0, 2), (1, 2)]) for _ in range(3))
    for fabric in (whole, first):
        fabric.post(0, 0, 2**20)
        fabric.post(0, 1, 2**20)
    whole.run()
    first.run_events(1500)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()
    assert whole.broken(at_rest=True, lossless=True) == []


@pytest.mark.parametrize(
    ("knobs", "reported"),
    [
        ({"base_rtt": "1ns"}, "base_rtt: '1ns' is too small; accepted: 1us to 100us"),
        ({"eta": 2}, "eta: 2 is out of range; accepted: a fraction above 0 and up to 1"),
        ({"int": "1KiB"}, "int: '1KiB' is too large; accepted: 0B to 512B"),
        ({"kmin": "5KB"}, "unknown key"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(knobs: dict[str, Any], reported: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(star(2), transport={"congestion_control": {"kind": "hpcc", **knobs}})
    assert reported in str(caught.value)
