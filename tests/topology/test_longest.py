"""Is the longest round trip what links and latencies add up to, and what a packet needs?"""

from __future__ import annotations

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.devices.round_trip import longest_round_trip_ps, settled
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from tests.fabric.rig import Fabric
from tests.fabric.sections import graph, scenario, star, zone

WIRE, ACK = 4_194, 86
"""A WRITE_ONLY of 4,096 B and its acknowledgement."""


def link_ps(rate_gbps: int, delay_ps: int = 500_000, more: int = 0) -> int:
    """Both over one link."""
    return -(-(WIRE + more) * 8000 // rate_gbps) - (-(ACK + more) * 8000 // rate_gbps) + 2 * delay_ps


def round_trip(topology: dict[str, Any], **sections: Any) -> int:
    one = scenario(topology, **sections)
    return longest_round_trip_ps(one, build_topology(one))


def test_it_is_the_dearest_of_the_shortest_ways() -> None:
    assert round_trip(zone(2, 1, 2)) == 4 * link_ps(400)
    assert round_trip(zone(1, 2, 1)) == 2 * link_ps(400)
    # Of three NICs around a switch the two with the longest cables count.
    cables = star(3, {0: "100G"}, d1="100ns", d2="3us")
    assert round_trip(cables) == link_ps(100) + link_ps(400, 3_000_000)
    # Two switches are fewer than three, however long the cable between them.
    detour = [("nic-0", "a"), ("a", "b"), ("b", "nic-1"), ("a", "c"), ("c", "b")]
    assert round_trip(graph(detour, d1="9us")) == 2 * link_ps(400) + link_ps(400, 9_000_000)


def test_latencies_and_the_credit_of_modular_switches_count() -> None:
    latencies = {"switch": {"latency": "300ns"}, "nic": {"latency": "200ns"}}
    assert round_trip(zone(2, 1, 1), **latencies) == 4 * link_ps(400) + 6 * 300_000 + 2 * 200_000
    deep = {"latency": "300ns", "deep_buffer": {"where": "spines", "credit_delay": "2us"}}
    assert round_trip(zone(2, 1, 1), switch=deep) == 4 * link_ps(400) + 6 * 300_000 + 4 * 2_000_000


def test_three_tiers_are_passed_up_and_down() -> None:
    pods = {"kind": "llama3", "pods": 2, "racks_per_pod": 2, "hosts_per_rack": 1}
    pods |= {"ctsws_per_pod": 2, "atsws": 2}
    one = scenario(pods, switch={"deep_buffer": {"where": "none"}})
    topology = build_topology(one)
    rates = {
        frozenset(topology.nodes[node].model for node in (link.a, link.b)): link.rate_bps // 10**9
        for link in topology.links
    }
    expected = 2 * sum(
        link_ps(rates[frozenset(ends)]) for ends in (("nic", "rtsw"), ("rtsw", "ctsw"), ("ctsw", "atsw"))
    )
    # Rates of links between tiers are no whole numbers of Gbit/s here.
    assert longest_round_trip_ps(one, topology) == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("topology", [zone(3, 2, 2, uplink="100G"), star(4, {1: "40G"}, d1="2us")])
def test_a_packet_on_the_empty_fabric_needs_it(topology: dict[str, Any]) -> None:
    one = scenario(topology, switch={"latency": "300ns"}, nic={"latency": "100ns"}, transport={"timeout": 0})
    fabric = Fabric(one, [(0, 1), (0, 2), (1, 3), (0, 3)])
    for connection in range(4):
        fabric.post(100_000_000 * connection, connection, 4096)
    fabric.run()
    # Until the host knows, which is over a link of 250 ns.
    ends = [fabric.completions(connection)[0].time_ps for connection in range(4)]
    took = [end - 100_000_000 * connection - 251_000 for connection, end in enumerate(ends)]
    assert max(took) == longest_round_trip_ps(one, fabric.topology)


@pytest.mark.parametrize(("delay", "settled_us"), [("500ns", 5), ("1us", 9), ("11us", 89)])
def test_hpcc_takes_it_rounded_up_to_a_microsecond(delay: str, settled_us: int) -> None:
    transport = {"congestion_control": {"kind": "hpcc"}}
    one = scenario(zone(2, 1, 1, nic_delay=delay, uplink_delay=delay), transport=transport)
    section = settled(one, build_topology(one), 0)
    exact = 4 * (link_ps(400, 0, more=42) + 2 * {"500ns": 500_000, "1us": 10**6, "11us": 11 * 10**6}[delay])
    assert section.base_rtt_ps == -(-exact // 10**6) * 10**6 == settled_us * 10**6
    given = scenario(zone(2, 1, 1), transport={"congestion_control": {"kind": "hpcc", "base_rtt": "12us"}})
    assert settled(given, build_topology(given), 0) is given.transport.congestion_control


def test_a_fabric_that_is_too_long_for_hpcc_is_refused_by_name() -> None:
    long = {
        "name": "long",
        "topology": zone(2, 1, 1, uplink_delay="30us"),
        "transport": {"congestion_control": {"kind": "hpcc"}},
        "jobs": [{"name": "a", "workload": {"kind": "permutation", "size": "1KiB"}}],
    }
    said = r"base_rtt: the longest round trip takes .*; accepted: 1us to 100us"
    with pytest.raises(ScenarioError, match=said):
        api.prepare(load_mapping(long))
