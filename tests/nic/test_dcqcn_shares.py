"""Do two DCQCN flows share a link, as the paper's figures show?

Two NICs send to a third through one switch that marks; every link has the same rate. The long runs take
seconds compiled and minutes interpreted, and are left to compiled runs.
"""

from typing import NamedTuple

import pytest

from actors.compiled.finder import is_compiled
from emu.devices.nics import control_warnings
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

MS = 1_000_000_000
MESSAGE = 16 * 2**20

compiled_only = pytest.mark.skipif(not is_compiled(), reason="takes minutes interpreted")


def two_flows(rate: str, marking: dict[str, str], additive: str, hyper: str, mtu: int) -> Fabric:
    """The fabric, before anything is posted."""
    ecn = {"enabled": True, "reference": rate, **marking}
    control = {"kind": "dcqcn", "additive": additive, "hyper": hyper}
    transport = {"mtu": mtu, "congestion_control": control}
    star_of_three = star(3, {0: rate, 1: rate, 2: rate})
    return Fabric(scenario(star_of_three, switch={"ecn": ecn}, transport=transport), [(0, 2), (1, 2)])


class Shares(NamedTuple):
    """What was measured over a time."""

    first: float
    """Share of the first flow."""
    utilisation: float
    """Payload and headers of both, over the line rate."""
    mean_queue_bytes: float


def measured(fabric: Fabric, rate_bps: float, from_ms: int, until_ms: int) -> Shares:
    """Run on, look at the queue every 50 us from one time until another, and at what was taken in between."""
    mtu = fabric.scenario.transport.mtu_bytes
    receivers = [fabric.pair(connection.reversed()) for connection in fabric.connections]
    fabric.run(from_ms * MS)
    before = [pair.expected_psn for pair in receivers]
    queue = []
    for time_ps in range(from_ms * MS, until_ms * MS, MS // 20):
        fabric.run(time_ps + MS // 20)
        queue.append(fabric.switch("switch").buffer.held_bytes)
    packets = [int(pair.expected_psn - psn) for pair, psn in zip(receivers, before, strict=True)]
    wire_bits = sum(packets) * (mtu + 82) * 8
    return Shares(
        packets[0] / sum(packets),
        wire_bits / (rate_bps * (until_ms - from_ms) / 1000),
        sum(queue) / len(queue),
    )


@compiled_only
def test_at_40g_a_second_flow_gets_its_half_and_the_queue_stays_between_the_thresholds() -> None:
    marking = {"kmin": "5KB", "kmax": "200KB", "pmax": "1/100"}
    fabric = two_flows("40G", marking, "40M", "400M", 1024)
    for _ in range(64):
        fabric.post(0, 0, MESSAGE)
        fabric.post(20 * MS, 1, MESSAGE)
    shares = measured(fabric, 40e9, 60, 200)
    assert shares.first == pytest.approx(0.5, abs=0.05)
    assert shares.utilisation > 0.95
    assert 5_000 < shares.mean_queue_bytes < 200_000
    assert fabric.congestion_drops() == 0


MARKING_400G = {"kmin": "800KB", "kmax": "3200KB", "pmax": "1/5"}


@compiled_only
def test_at_400g_with_r_ai_scaled_the_shares_are_even() -> None:
    fabric = two_flows("400G", MARKING_400G, "400M", "4G", 4096)
    for _ in range(200):
        fabric.post(0, 0, MESSAGE)
        fabric.post(5 * MS, 1, MESSAGE)
    shares = measured(fabric, 400e9, 20, 60)
    assert shares.first == pytest.approx(0.5, abs=0.10)
    assert shares.utilisation > 0.95


@compiled_only
@pytest.mark.parametrize(("additive", "hyper", "slow"), [("40M", "400M", True), ("4G", "40G", False)])
def test_at_400g_r_ai_of_40_mbps_leaves_the_link_half_empty_for_tens_of_milliseconds(
    additive: str, hyper: str, slow: bool
) -> None:
    fabric = two_flows("400G", MARKING_400G, additive, hyper, 4096)
    for count in range(200):
        fabric.post(0, 0, MESSAGE)
        if count < 30:
            fabric.post(0, 1, MESSAGE)
    while len(fabric.deliveries(1)) < 30:
        fabric.run(fabric.queue.now_ps + MS // 10)
    # The second flow has ended; what does the first make of the free half within 10 ms?
    now_ms = fabric.queue.now_ps // MS + 1
    utilisation = measured(fabric, 400e9, int(now_ms), int(now_ms) + 10).utilisation
    assert (utilisation < 0.75) if slow else (utilisation > 0.95)


def test_at_40g_two_flows_share_and_the_queue_stays_short_already_after_milliseconds() -> None:
    marking = {"kmin": "5KB", "kmax": "200KB", "pmax": "1/100"}
    fabric = two_flows("40G", marking, "40M", "400M", 4096)
    for connection in (0, 1):
        fabric.post(0, connection, 2 * MESSAGE)
    shares = measured(fabric, 40e9, 3, 8)
    assert shares.first == pytest.approx(0.5, abs=0.1)
    assert shares.utilisation > 0.8
    assert shares.mean_queue_bytes < 200_000
    assert fabric.congestion_drops() == 0


@pytest.mark.parametrize(
    ("rate", "additive", "reported"), [("40G", "40M", 0), ("400G", "40M", 1), ("400G", "400M", 0)]
)
def test_r_ai_that_is_small_for_the_link_is_reported_with_what_it_costs(
    rate: str, additive: str, reported: int
) -> None:
    control = {"kind": "dcqcn", "additive": additive, "hyper": "400M"}
    one = scenario(star(2, {0: rate, 1: rate}), transport={"congestion_control": control})
    lines = control_warnings(one, build_topology(one))
    assert len(lines) == reported
    # 40 Mb/s each 55 us would take 220 ms for 160 Gb/s; but 10 MB are sent six times in 2.4 ms, and from then
    # on each of both kinds of step adds R_HAI, ten times as much.
    assert all("nine tenths of it after 20 ms" in line for line in lines)
