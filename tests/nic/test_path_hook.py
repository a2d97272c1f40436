"""Do marks, round trips and paths of single packets come back to a control, and can it choose paths?

The example plug-ins stand on that: DCTCP is held against its paper's closed form, NSCC against its target
delay and quick adapt, REPS against a path that dies. Every link is 400G (20 ps a byte) unless said; a packet
in the middle of a message is 4,178 bytes on the wire.
"""

from __future__ import annotations

from itertools import pairwise
from math import sqrt
from typing import Any

import pytest

from actors.nic.congestion.control import CongestionControl
from actors.wire.frame import ACKNOWLEDGE, ECN_CAPABLE, ECN_CONGESTED, Frame
from emu.base.errors import ScenarioError
from emu.examples.nscc import Nscc
from emu.examples.reps import Reps
from emu.scenario.sections.nic import CONTROLS
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star
from tests.fabric.test_snapshots import through_msgpack

US = 1_000_000
PACKET = 4178
MTU = 4096
MIB = 2**20
OUT_OF_ORDER = {"kind": "go_back_n", "placement": "out_of_order", "reorder": 256, "window": "2MB"}


class Listener(CongestionControl):
    """Writes down what it hears."""

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: object = None) -> None:
        super().__init__(line_bps, mtu_bytes)
        self.wants_echo = True
        self.heard: list[tuple[int, int, bool]] = []
        self.paths: list[tuple[int, bool]] = []

    def on_ack(self, packets: int, rtt_ps: int, now: int, marked: bool) -> None:
        self.heard.append((packets, rtt_ps, marked))

    def on_path(self, entropy: int, marked: bool, now: int) -> None:
        self.paths.append((entropy, marked))


class ByTurns(Listener):
    """A path of its own for each packet, in turn."""

    def __init__(self, line_bps: int, mtu_bytes: int, knobs: object = None) -> None:
        super().__init__(line_bps, mtu_bytes)
        self.picks_entropy = True

    def entropy(self, psn: int) -> int:
        return 50_000 + psn % 100


class Drawn(Reps):
    """Draws a path for every packet, whatever comes back."""

    def on_path(self, entropy: int, marked: bool, now: int) -> None: ...

    def on_loss(self, now: int) -> None: ...


def own(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


def heard(fabric: Fabric) -> Any:
    """The control of the first connection's sender."""
    return fabric.pair(fabric.connections[0]).control


def two(kind: str, **transport: Any) -> Fabric:
    """Two NICs at a switch."""
    section = {"congestion_control": {"kind": kind}, **transport}
    return Fabric(scenario(star(2), transport=section), [(0, 1)])


@pytest.mark.parametrize("every", [1, 4])
def test_each_mark_comes_back_with_the_answer_to_its_packet_and_none_as_a_cnp(every: int) -> None:
    fabric = two(own(Listener), ack_every=every)
    back: list[Frame] = []

    def third(frame: Frame) -> bool:
        if frame.ecn == ECN_CAPABLE and frame.psn % 3 == 0:
            frame.ecn = ECN_CONGESTED
        return False

    fabric.tap("switch", 1, third)
    fabric.tap("nic-1", 0, lambda frame: bool(back.append(frame)))  # type: ignore[func-returns-value]
    fabric.set_first_psn(0, 0)
    fabric.post(0, 0, 12 * MTU)
    fabric.run()
    assert {frame.opcode for frame in back} == {ACKNOWLEDGE}  # no CNP
    marks = [frame.psn for frame in back if frame.ecn == ECN_CONGESTED]
    assert marks == [0, 3, 6, 9]
    assert all(frame.immediate == frame.psn for frame in back)
    control = heard(fabric)
    assert sum(packets for packets, _, _ in control.heard) == 12
    assert sum(marked for _, _, marked in control.heard) == 4
    # Two links there and two back. RETH makes the first packet longer; the others wait for it.
    unloaded_ps = 4 * 500_000 + 2 * (PACKET + 86) * 20
    assert [rtt - unloaded_ps for _, rtt, _ in control.heard] == [640] + [320] * (len(control.heard) - 1)


def test_an_answer_goes_back_by_the_port_of_its_packet_and_tells_it() -> None:
    fabric = two(own(ByTurns), recovery=OUT_OF_ORDER)
    there: list[int] = []
    back: list[int] = []
    fabric.tap("nic-0", 0, lambda frame: bool(there.append(frame.udp_source)))  # type: ignore[func-returns-value]
    fabric.tap("nic-1", 0, lambda frame: bool(back.append(frame.udp_source)))  # type: ignore[func-returns-value]
    fabric.set_first_psn(0, 7)
    fabric.post(0, 0, 5 * MTU)
    fabric.run()
    assert there == back == [port for port, _ in heard(fabric).paths] == [50_007 + at for at in range(5)]


def test_a_packet_that_overtook_is_answered_at_once_and_counted_once() -> None:
    fabric = two(own(Listener), recovery=OUT_OF_ORDER)
    seen = [0]

    def second(_: Frame) -> bool:
        seen[0] += 1
        return seen[0] == 2

    fabric.tap("switch", 1, second)
    fabric.post(0, 0, 6 * MTU)
    fabric.run(100 * US)
    # The second is lost: the first is acknowledged, and the four that follow are answered all the same.
    assert [packets for packets, _, _ in heard(fabric).heard] == [1] * 5
    fabric.run()
    assert [packets for packets, _, _ in heard(fabric).heard][5:8] == [1, 0, 0]


# ---- many paths


def spread(kind: str) -> Fabric:
    """One queue pair at 400G over four paths of 100G."""
    links, rates = [("nic-0", "left"), ("nic-1", "right")], {}
    for spine in range(4):
        for link in (("left", f"spine-{spine}"), (f"spine-{spine}", "right")):
            rates[len(links)] = "100G"
            links.append(link)
    transport = {
        "recovery": OUT_OF_ORDER,
        "congestion_control": {"kind": kind},
        "adaptive_retransmission": {"enabled": True, "least": "100us"},
    }
    routing = {"kind": "e_ecmp", "convergence": "100ms"}
    return Fabric(scenario(graph(links, rates), routing=routing, transport=transport), [(0, 1)])


def rate_bps(fabric: Fabric, size: int) -> float:
    (delivery,) = fabric.deliveries(0)
    return size // MTU * PACKET * 8e12 / delivery.time_ps


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("none", 98, 100), (own(Drawn), 370, 400), ("emu.examples.reps:Reps", 385, 400)],
)
def test_a_queue_pair_has_one_path_by_its_port_and_all_of_them_by_entropies(
    kind: str, least: int, most: int
) -> None:
    fabric = spread(kind)
    fabric.post(0, 0, 8 * MIB)
    fabric.run()
    assert least < rate_bps(fabric, 8 * MIB) / 1e9 <= most
    assert fabric.total("nic_retransmitted_frames") == 0


def test_recycled_entropies_leave_a_dead_path_and_drawn_ones_lose_a_quarter_for_ever() -> None:
    lost, sent = {}, {}
    for kind in (Drawn, Reps):
        fabric = spread(own(kind))
        fabric.post(0, 0, 8 * MIB)
        fabric.set_link("left:spine-1", 100 * US, up=False, converge=False)
        fabric.run(100 * US)
        before = fabric.total("port_transmit_frames")
        fabric.run(3000 * US)
        lost[kind] = fabric.total("port_dropped_frames", "link_down")
        sent[kind] = fabric.total("port_transmit_frames") - before
        assert len(fabric.deliveries(0)) == (kind is Reps)
    # In flight on one of four paths when it dies: a round trip at 100G, queues of 64 packets included.
    assert lost[Reps] < 160
    assert lost[Drawn] > 1000


def test_ways_by_entropies_need_a_transport_that_takes_packets_out_of_order() -> None:
    with pytest.raises(ScenarioError, match=r"reorders packets.*takes packets out of order"):
        two("emu.examples.reps:Reps")


class Short(CongestionControl):
    """`on_ack` as it was."""

    def on_ack(self, packets, rtt_ps, now): ...  # type: ignore[no-untyped-def, override]


def test_a_control_of_an_earlier_release_is_reported_what_on_ack_takes() -> None:
    with pytest.raises(
        ScenarioError, match=r"on_ack.*other arguments; accepted: on_ack\(self, packets, rtt_ps, now, mark"
    ):
        two(own(Short))


# ---- DCTCP


def incast(kind: str, senders: int, delay: str, kmin: int, kmax: int, **knobs: Any) -> Fabric:
    """Flows without end from so many NICs to one, through a switch that marks between thresholds in bytes."""
    ecn = {"enabled": True, "kmin": f"{kmin}B", "kmax": f"{kmax}B", "pmax": "1"}
    delays = {f"d{link}": delay for link in range(senders + 1)}
    control = {"kind": kind, **knobs}
    one = scenario(
        star(senders + 1, None, **delays), switch={"ecn": ecn}, transport={"congestion_control": control}
    )
    fabric = Fabric(one, [(sender, senders) for sender in range(senders)])
    for sender in range(senders):
        fabric.post(0, sender, 512 * MIB)
    return fabric


def waiting(fabric: Fabric) -> float:
    """Packets in the switch."""
    return float(fabric.switch("switch").buffer.held_bytes) / (PACKET - 20)


@pytest.mark.parametrize("flows", [2, 8])
def test_dctcp_saws_between_the_queues_of_its_paper(flows: int) -> None:
    threshold = 65
    fabric = incast(
        "emu.examples.dctcp:Dctcp", flows, "5us", threshold * PACKET, threshold * PACKET, gain_bits=6
    )
    fabric.run(4500 * US)
    queue, alpha = [], []
    for at_us in range(4500, 5500):
        fabric.run((at_us + 1) * US)
        queue.append(waiting(fabric))
        alpha.append(heard(fabric).alpha / 65536)
    # Section 3.3, in packets: C RTT, W* = (C RTT + K) / N, alpha = sqrt(2 / W*), A = sqrt(N (C RTT + K) / 2).
    flight = (4 * 5 * US + 2 * (PACKET + 86) * 20) / (PACKET * 20)
    assert max(queue) == pytest.approx(threshold + flows, abs=1.5)
    assert sum(alpha) / len(alpha) == pytest.approx(sqrt(2 * flows / (flight + threshold)), rel=0.08)
    deepest = sqrt(flows * (flight + threshold) / 2)
    # Each window grows by a packet while its cut is on the way, as in the paper's simulation below its line.
    assert deepest - flows <= max(queue) - min(queue) <= deepest


# ---- NSCC

PRODUCT = 300_000
"""400G and 6 us, in bytes."""


def nscc(flows: int) -> Fabric:
    """Marks from a fifth of the bandwidth-delay product to four fifths."""
    return incast("emu.examples.nscc:Nscc", flows, "1us", PRODUCT // 5, PRODUCT * 4 // 5, base_rtt="6us")


def test_nscc_holds_the_queue_at_its_target_and_shares_the_link() -> None:
    fabric = nscc(2)
    receivers = [fabric.pair(connection.reversed()) for connection in fabric.connections]
    fabric.run(300 * US)
    before = [int(pair.expected_psn) for pair in receivers]
    delays = []
    for at_us in range(300, 600):
        fabric.run((at_us + 1) * US)
        delays.append(waiting(fabric) * PACKET * 20 / US)
    took = [int(pair.expected_psn) - psn for pair, psn in zip(receivers, before, strict=True)]
    assert sum(delays) / len(delays) == pytest.approx(6, rel=0.05)
    assert sum(took) * PACKET * 20 == pytest.approx(300 * US, rel=0.001)
    assert took[0] / sum(took) == pytest.approx(0.5, abs=0.05)


def test_quick_adapt_takes_the_window_that_the_last_round_trip_brought() -> None:
    flows = 16
    fabric = nscc(flows)
    windows: list[int] = []
    for at_us in range(200):
        fabric.run((at_us + 1) * US)
        windows.append(int(heard(fabric).window))
    cuts = [(before, after) for before, after in pairwise(windows) if after < before // 4]
    assert cuts[0][0] == PRODUCT * 3 // 2
    # A sixteenth of the link for an unloaded round trip and a target, each at most 6 us and at least 4.2.
    share = 400e9 / 8 / flows * MTU / PACKET
    assert share * 10.2e-6 - MTU < cuts[0][1] < share * 12e-6 + MTU


def test_nscc_grows_below_its_target_and_falls_beyond_by_the_excess() -> None:
    target = 6 * US
    for marked, delay_ps, sign in (
        (False, 2 * US, 1),
        (False, 8 * US, 1),
        (True, 2 * US, 0),
        (True, 12 * US, -1),
    ):
        one = Nscc(400 * 10**9, MTU, CONTROLS.section("emu.examples.nscc:Nscc", base_rtt="6us"))
        one.base_ps, one.mean_ps, one.cut_ps = 4 * US, delay_ps, -target
        one.set_window(50 * MTU)
        one.added_ps = 10**12  # no step by time
        one.adapt_ps = 10**12
        for _ in range(8 if sign >= 0 else 1):
            one.on_ack(1, one.base_ps + delay_ps, 100 * US, marked=marked)
        if sign > 0:
            # A is 2: 5 A packets a window of 40, and 4 A B more (B is a half) where the room is two thirds.
            more = 5 * 2 + (4 * 2 * 0.5 * (target - delay_ps) / target if delay_ps < target else 0)
            assert one.window - 50 * MTU == pytest.approx(8 * more * MTU / 50, rel=0.01)
        else:
            # gamma 0.8 of an excess of a half.
            assert one.window == pytest.approx(50 * MTU * (1 if sign == 0 else 1 - 0.8 * 0.5), rel=0.001)


# ---- snapshots


@pytest.mark.parametrize("example", ["dctcp:Dctcp", "nscc:Nscc", "reps:Reps"])
def test_an_example_goes_on_from_a_snapshot_as_if_nothing_had_been(example: str) -> None:
    def built() -> Fabric:
        kind = f"emu.examples.{example}"
        fabric = spread(kind) if "reps" in example else incast(kind, 3, "1us", 60_000, 240_000)
        if "reps" in example:
            fabric.post(0, 0, 8 * MIB)
        return fabric

    whole, copy = built(), built()
    whole.run(60 * US)
    copy.load(through_msgpack(whole.save()))
    assert heard(copy).save() == heard(whole).save() != heard(built()).save()
    whole.run(150 * US)
    copy.run(150 * US)
    assert copy.digest() == whole.digest()
