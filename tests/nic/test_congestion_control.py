"""Does congestion control follow its papers, step by step?

The recurrences are written out again here, from the papers, in plain integers. In the fabric tests a tap on
a wire marks packets where a switch would.
"""

from itertools import pairwise
from typing import Any

import pytest

from actors.nic.congestion.control import CongestionControl
from actors.nic.congestion.dcqcn import Dcqcn
from actors.optional.swift import Swift
from actors.wire.frame import CNP, ECN_CAPABLE, ECN_CONGESTED, Frame
from emu.base.errors import ScenarioError
from emu.scenario.sections.nic import CONTROLS, CongestionSection
from tests.fabric.rig import Fabric, Tap
from tests.fabric.sections import scenario, star

LINE = 40_000_000_000
US = 1_000_000
ONE = 1 << 20


def paper() -> Dcqcn:
    """The paper's constants at 40G."""
    constants = {
        "gain_bits": 8,
        "alpha_timer": "55us",
        "increase_timer": "55us",
        "byte_counter": "10MB",
        "fast_recovery": 5,
        "additive": "40M",
        "hyper": "400M",
        "least": "10M",
    }
    return Dcqcn(LINE, 1024, CONTROLS.section("dcqcn", **constants))


def test_the_first_cnp_halves_the_rate() -> None:
    control = paper()
    assert control.rate_bps == LINE
    control.on_cnp(1_000)
    assert control.rate_bps == LINE // 2
    assert control.target_bps == LINE
    assert control.alpha == ONE  # (1 - g) + g


def test_the_trajectory_after_one_cnp_is_the_recurrence() -> None:
    control = paper()
    control.on_cnp(0)
    rate, target = LINE // 2, LINE
    for step in range(1, 60):
        if step > 5:
            target = min(LINE, target + 40_000_000)
        rate = -(-(rate + target) // 2)
        control.on_send(0, step * 55 * US)
        assert (control.rate_bps, control.target_bps) == (rate, target), step
    assert rate == LINE


def test_alpha_falls_by_g_each_period_without_a_cnp_and_the_next_cut_is_smaller() -> None:
    control = paper()
    control.on_cnp(0)
    alpha, rate, target = ONE, LINE // 2, LINE
    for _ in range(20):
        alpha -= alpha >> 8
        rate = -(-(rate + target) // 2)
    control.on_cnp(20 * 55 * US + 7)
    assert control.target_bps == rate
    assert control.rate_bps == rate - rate * alpha // (2 * ONE)
    assert control.alpha == alpha - (alpha >> 8) + (ONE >> 8)


def test_steps_by_bytes_and_by_time_count_apart_and_hyper_increase_needs_both() -> None:
    control = paper()
    for at in range(8):
        control.on_cnp(at)
    rate, target = control.rate_bps, control.target_bps
    for count in range(1, 9):
        control.on_send(10_000_000, 100)
        target += 40_000_000 if count > 5 else 0
        rate = -(-(rate + target) // 2)
        assert (control.rate_bps, control.target_bps) == (rate, target)
    for count in range(1, 9):
        control.on_send(0, 7 + count * 55 * US)
        target += 400_000_000 if count > 5 else 40_000_000
        rate = -(-(rate + target) // 2)
        assert (control.rate_bps, control.target_bps) == (rate, target)


def test_a_cnp_begins_fast_recovery_anew_by_time_and_by_bytes() -> None:
    for sent_bytes, period_ps in ((0, 55 * US), (10_000_000, 1)):
        control = paper()
        control.on_cnp(0)
        for step in range(1, 9):  # beyond fast recovery: the target rises
            control.on_send(sent_bytes, step * period_ps)
        again_ps = 8 * period_ps
        control.on_cnp(again_ps)
        control.on_cnp(again_ps)
        target = control.target_bps
        targets = []
        for step in range(1, 8):
            control.on_send(sent_bytes, again_ps + step * period_ps)
            targets.append(control.target_bps - target)
        assert targets == [0, 0, 0, 0, 0, 40_000_000, 80_000_000]


def test_clocks_worked_out_late_give_what_clocks_worked_out_in_time_give() -> None:
    often, late = paper(), paper()
    for at_us in (0, 30, 61, 62, 500):
        often.on_cnp(at_us * US)
        late.on_cnp(at_us * US)
        for more in range(0, 30, 3):
            often.on_send(0, (at_us + more // 10) * US)
    for at_us in range(500, 1200):
        often.on_send(0, at_us * US)
    late.on_send(0, 1199 * US)
    assert often.save() == late.save()


def test_swift_opens_by_a_packet_and_closes_in_proportion() -> None:
    knobs = {
        "target": "25us",
        "additive_thousandths": 1000,
        "beta_thousandths": 800,
        "most_decrease_thousandths": 500,
        "window": "102_400B",
    }
    control = Swift(LINE, 1024, CONTROLS.section("swift", **knobs))
    assert control.window_packets == 100
    control.on_ack(10, 50 * US, 0, marked=False)  # excess is a half: 0.8 x 0.5 = 0.4
    assert control.window_packets == 60
    control.on_ack(10, 1_000 * US, 0, marked=False)  # at most by a half
    assert control.window_packets == 30
    control.on_ack(10, 24 * US, 0, marked=False)
    assert control.window_packets == 31
    control.on_ack(10, -1, 0, marked=False)
    assert control.window_packets == 31
    for _ in range(12):
        control.on_ack(1, 1_000 * US, 0, marked=False)
    assert control.window_packets == 1
    assert 0 < control.rate_bps < 1024 * 8 * 1000  # less than a packet in a millisecond


def controlled(algorithm: str, connections: Any = ((0, 1),), **knobs: Any) -> Fabric:
    """NICs around a switch."""
    section = {"mtu": 1024, "congestion_control": {"kind": algorithm, **knobs}}
    return Fabric(scenario(star(3), transport=section), list(connections))


def mark(fabric: Fabric, until_ps: int) -> Tap:
    """Mark every packet that passes the switch's port to NIC 1 before a time."""

    def seen(frame: Frame) -> bool:
        if frame.ecn == ECN_CAPABLE and fabric.queue.now_ps < until_ps:
            frame.ecn = ECN_CONGESTED
        return False

    return fabric.tap("switch", 1, seen)


def test_packets_are_ecn_capable_only_where_control_wants_marks() -> None:
    for algorithm, ecn in (("none", 0), ("dcqcn", 2), ("swift", 0), ("hybrid", 2)):
        fabric = controlled(algorithm)
        codes: list[int] = []
        fabric.tap("nic-0", 0, lambda frame, codes=codes: codes.append(frame.ecn) or False)  # type: ignore[misc]
        fabric.post(0, 0, 4096)
        fabric.run()
        assert codes == [ecn] * 4


def test_cnps_are_50_us_apart_and_each_cuts_the_rate() -> None:
    fabric = controlled("dcqcn")
    mark(fabric, 10**18)
    back = fabric.tap("nic-1", 0)
    fabric.post(0, 0, 8 * 2**20)
    fabric.run(300 * US)
    cnps = sum(opcode == CNP for opcode, _, _ in back.seen)
    assert cnps == 6  # at about 1, 51, .., 251 us
    assert fabric.total("nic_np_cnp_sent") == fabric.total("nic_rp_cnp_handled") == cnps
    assert fabric.total("nic_np_ecn_marked_roce_packets") > 100
    control = fabric.pair(fabric.connections[0]).control
    assert control is not None
    assert control.rate_bps < 400_000_000_000 // 2**5


def cnp_times(control: dict[str, str], until_ps: int = 300 * US) -> list[int]:
    """When CNPs leave NIC 1, of whose packets each is marked."""
    fabric = controlled("dcqcn", **control)
    mark(fabric, 10**18)
    times: list[int] = []

    def seen(frame: Frame) -> bool:
        if frame.opcode == CNP:
            times.append(fabric.queue.now_ps)
        return False

    fabric.tap("nic-1", 0, seen)
    fabric.post(0, 0, 8 * 2**20)
    fabric.run(until_ps)
    return times


def test_a_cnp_leaves_its_delay_after_the_mark_and_the_interval_counts_from_the_mark() -> None:
    at_once, later = cnp_times({}), cnp_times({"cnp_delay": "6us"})
    assert later[0] - at_once[0] == 6 * US
    assert len(later) == len(at_once)
    for times in (at_once, later):
        # the first mark after an interval; a sender that was cut sends a packet every few us
        assert all(50 * US <= after - before < 60 * US for before, after in pairwise(times))


def test_a_delay_that_is_no_shorter_than_the_interval_is_refused() -> None:
    reported = "cnp_delay: is no shorter than the interval of 50us between CNPs; accepted: less than"
    with pytest.raises(ScenarioError, match=reported):
        controlled("dcqcn", cnp_delay="50us")


def test_a_paced_queue_pair_sends_at_its_rate() -> None:
    fabric = controlled("dcqcn", least="50G")
    mark(fabric, 400 * US)
    fabric.post(0, 0, 64 * 2**20)
    fabric.run(350 * US)
    before = fabric.total("nic_delivered_bytes")
    fabric.run(390 * US)
    goodput = (fabric.total("nic_delivered_bytes") - before) * 8e12 / (40 * US)
    assert goodput == pytest.approx(50e9 * 1024 / 1106, rel=0.02)


def test_dcqcn_recovers_to_the_line_rate_and_loses_nothing() -> None:
    fabric = controlled("dcqcn", additive="4G", hyper="40G", increase_timer="20us")
    mark(fabric, 20 * US)
    fabric.post(0, 0, 24 * 2**20)
    fabric.run()
    control = fabric.pair(fabric.connections[0]).control
    assert control is not None
    assert 399_999_000_000 < control.rate_bps <= 400_000_000_000
    assert fabric.broken(at_rest=True) == []


@pytest.mark.parametrize("algorithm", ["swift", "hybrid"])
def test_delay_alone_keeps_the_queue_of_two_senders_short(algorithm: str) -> None:
    fabric = controlled(algorithm, [(0, 2), (1, 2)], target="10us")
    for connection in (0, 1):
        fabric.post(0, connection, 10 * 2**20)
    fabric.run(100 * US)
    queue = fabric.switch("switch").buffer
    held = []
    for at_us in range(100, 400, 5):
        fabric.run(at_us * US)
        held.append(queue.held_bytes)
    # 10 us of delay at 400G are 500 kB; 2 us of it are the links.
    assert sum(held) / len(held) < 500_000
    assert fabric.total("pfc_transmit_xoff_frames") == 0
    fabric.run()
    assert fabric.broken(at_rest=True) == []


@pytest.mark.parametrize("algorithm", ["dcqcn", "swift", "hybrid"])
def test_a_run_goes_on_from_its_state(algorithm: str) -> None:
    def make() -> Fabric:
        fabric = controlled(algorithm, [(0, 1), (2, 1)], cnp_delay="30us")
        fabric.nics[1].corrupt_every = 0
        mark(fabric, 10**18)
        return fabric

    whole, first, second = make(), make(), make()
    for fabric in (whole, first):
        fabric.post(0, 0, 2**20)
        fabric.post(0, 1, 2**20)
    whole.run()
    first.run_events(3000)
    second.load(first.save())
    second.run()
    assert second.digest() == whole.digest()


class Halved(CongestionControl):
    """One's own: half the line rate, and a timer that fires once."""

    fired = 0

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: CongestionSection) -> None:
        super().__init__(line_bps, mtu_bytes, knobs)
        self.rate_bps = line_bps // 2
        self.timer_ps = 5 * US

    def on_timer(self, now: int) -> None:
        Halved.fired += 1
        self.rate_bps = self.line_bps // 4


def test_a_control_of_ones_own_is_loaded_by_name() -> None:
    Halved.fired = 0
    fabric = controlled(f"{__name__}:Halved")
    fabric.post(0, 0, 2**20)
    fabric.run(20 * US)
    before = fabric.total("nic_delivered_bytes")
    fabric.run(40 * US)
    goodput = (fabric.total("nic_delivered_bytes") - before) * 8e12 / (20 * US)
    assert goodput == pytest.approx(100e9 * 1024 / 1106, rel=0.02)
    assert Halved.fired == 1


@pytest.mark.parametrize(
    ("control", "reported"),
    [
        ({"kind": "dctcp"}, "dctcp"),
        ({"kind": "no_such_module:Mine"}, "does not load"),
        ({"kind": "swift", "window": "512B"}, "holds no packet"),
        ({"kind": "dcqcn", "least": 5}, "bare number"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(control: dict[str, Any], reported: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(star(2), transport={"congestion_control": control})
    assert reported in str(caught.value)
