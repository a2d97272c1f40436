"""Does a 16:1 incast take as long as in simulators that others wrote, and lose nothing for the right reason?

On `tests.agreement.leaf_spine` sixteen hosts send 16 MiB each to one. Independent simulators are done after
5,431-5,464 us; the receiver's link alone needs 65,536 x 4,178 B at 400 Gbit/s, 5,476 us.
"""

from typing import Any

import pytest

from emu.api import Result, prepare
from tests.agreement.leaf_spine import run, scenario
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario as rig
from tests.fabric.sections import star
from tests.summary.known import known

US = 1_000_000
INCAST: dict[str, Any] = {"kind": "incast", "fan_in": 16, "size": "16MiB"}
"""Of the receiver's leaf 7 senders, of the next 8, and of the third 1."""
HEADROOM_BYTES = 131_072
LOSSLESS = {
    "latency": 0,
    "buffer": {"pool": "64MB", "alpha": "1/8", "reserve": 0, "headroom": "128KiB"},
    "pfc": {"priorities": [3, 6]},
}
"""Sizes as numbers, so that what is left to share follows from this page."""
FRAME_BYTES = 4_158
DATA_PRIORITY = 3


def shared_bytes(ports: int) -> int:
    """What is left of 64 MB: each port has headroom for two lossless priorities."""
    return 64_000_000 - ports * 2 * HEADROOM_BYTES


def counters(result: Result, metric: str) -> dict[tuple[int, int], int]:
    """(switch, port) -> counter, of the priority of data; port -1 is the whole switch."""
    return {
        (device.number, series.port): value
        for device in result.outcome.devices
        for series, value in zip(device.series, device.counters, strict=True)
        if series.metric == metric and series.priority in (DATA_PRIORITY, -1)
    }


def test_incast_ends_when_independent_simulators_say_and_loses_nothing() -> None:
    result = run(64, INCAST)
    flows = result.summary.jobs["job"].flows
    end_us = max(flow.completed_ps or 0 for flow in flows) / US
    assert 5_431 * 0.99 <= end_us <= 5_464 * 1.01
    assert [flow.status for flow in flows] == ["success"] * 16
    assert known(result.summary.drops).total == 0
    assert result.summary.fabric.nic_retransmitted_frames == 0
    assert known(result.summary.fabric.pfc_transmit_xoff_frames) > 0


def test_pauses_are_sent_exactly_where_an_ingress_share_exceeds_xoff() -> None:
    """XOFF is an eighth of what the switch has left to share: least when it held most, most when empty."""
    result = run(64, INCAST, switch=LOSSLESS)
    topology = prepare(scenario(64, INCAST)).topology
    shares, pauses = counters(result, "ingress_peak_bytes"), counters(result, "pfc_transmit_xoff_frames")
    headroom, held = counters(result, "headroom_peak_bytes"), counters(result, "buffer_peak_bytes")
    alone = 0
    for switch in topology.switches:
        ports = range(len(topology.ports(switch)))
        shared = shared_bytes(len(ports))
        in_use = [port for port in ports if shares[switch, port] > 10 * FRAME_BYTES]
        for port in ports:
            share = shares[switch, port] - headroom[switch, port]
            if pauses[switch, port]:
                assert share > (shared - held[switch, -1]) // 8, (switch, port)
            else:
                assert share <= shared // 8, (switch, port)
            if in_use == [port]:
                # One sender alone finds XOFF at alpha / (1 + alpha) of what is shared, and stops there.
                alone += 1
                stopped_at = range(shared // 9 + 1, shared // 9 + 1 + FRAME_BYTES)
                assert (pauses[switch, port] > 0) == (share in stopped_at), (switch, port)
                assert share < stopped_at.stop
    assert known(result.summary.drops).total == 0
    assert sum(count > 0 for count in pauses.values()) > alone > 0


def test_without_pfc_a_small_buffer_drops_and_every_byte_arrives() -> None:
    incast = {**INCAST, "size": "1MiB"}
    switch = {"latency": 0, "buffer": {"pool": "1MB"}, "pfc": {"enabled": False}}
    result = run(64, incast, switch=switch, transport={"ack_every": 1, "timeout": 6})
    summary = result.summary
    assert known(summary.drops).congestion == known(summary.drops).by_reason["no_shared_room"] > 0
    assert summary.fabric.pfc_transmit_xoff_frames == 0
    assert known(summary.fabric.nic_retransmitted_frames) >= known(summary.drops).total
    flows = summary.jobs["job"].flows
    assert [(flow.status, flow.bytes) for flow in flows] == [("success", 1 << 20)] * 16
    assert sum(counters(result, "nic_delivered_bytes").values()) == 16 << 20


PACKET_BYTES = 4096
"""The unit of csg-htsim's thresholds."""


@pytest.mark.parametrize(
    ("xoff_bytes", "xon_bytes", "stops_elsewhere"),
    [
        (500_000, 100_000, None),
        (200_000, 150_000, None),
        (120 * PACKET_BYTES, 24 * PACKET_BYTES, 85),
        (48 * PACKET_BYTES, 36 * PACKET_BYTES, 374),
    ],
)
def test_two_senders_are_stopped_as_often_as_a_closed_form_and_another_simulator_say(
    xoff_bytes: int, xon_bytes: int, stops_elsewhere: int | None
) -> None:
    """Each group rises and falls at half of the link's rate C, and goes on for D after it told its sender to
    stop or to go on: a period of 4 ((XOFF - XON) / C + D), D being both ways and a pause frame. csg-htsim is
    asked with the delay of links as an option: with delays from a topology file its pauses take no time.
    """
    buffer = {"pool": "64MB", "xoff": f"{xoff_bytes}B", "xon": f"{xon_bytes}B"}
    fabric = Fabric(rig(star(3), switch={"buffer": buffer}), [(0, 2), (1, 2)])
    for sender in (0, 1):
        fabric.post(0, sender, 256 << 20)
    reported = []
    for until_us in (300, 3300):
        fabric.run(until_us * US)
        reported.append(fabric.total("pfc_transmit_transitions"))
    on_the_wire = round((xoff_bytes - xon_bytes) / FRAME_BYTES) * 4_178  # groups hold whole packets
    period_ps = 4 * (on_the_wire * 20 + 2 * 500_000 + 84 * 20)
    stops = (reported[1] - reported[0]) / 2
    assert stops == pytest.approx(3000 * US / period_ps, abs=1)
    assert stops == pytest.approx(stops_elsewhere or stops, rel=0.015)
    # Reminders are frames, and stop nobody who is not stopped.
    assert fabric.total("pfc_transmit_xoff_frames") > 1.05 * reported[1]
