"""Does a fabric's description state what was asked for, in figures worked out by hand?"""

from fractions import Fraction

import pytest

from emu.engine.sync.placement import expected_loads
from emu.topology.outline import describe, to_text
from tests.topology.fabrics import G, PlannedLink, drawn, server, switches, zone

QUICKSTART = """\
ai_zone: 64 GPUs in 8 hosts in 4 racks, 64 NICs, 12 switches, 4 prefixes

tier    switches  links down/up  rate down   rate up               down:up
1 rtsw         4          64/32   25.6Tbps  12.8Tbps  2:1 (oversubscribed)
2 ctsw         8           32/0   12.8Tbps         -                     -

cable        links     rate  delay
nic - rtsw      64  400Gbps  500ns
rtsw - ctsw     32  400Gbps  500ns
host - gpu      64  512Gbps  250ns
host - nic      64  512Gbps  250ns

bisection 6.4Tbps, 50 % of what half the NICs send
paths pass at most 3 switches; 8 equal-cost paths from nic-0-0 to nic-7-7"""


def test_the_text_of_a_zone() -> None:
    assert to_text(describe(zone(racks=4, hosts_per_rack=2, gpus_per_host=8, spines=8))) == QUICKSTART


@pytest.mark.parametrize(
    ("spines", "uplink_rate_bps", "ratio", "text"),
    [
        (16, 400 * G, Fraction(1), "1:1"),
        (18, 400 * G, Fraction(8, 9), "1:1.125 (more up than down)"),
        (16, 800 * G, Fraction(1, 2), "1:2 (more up than down)"),
        (6, 400 * G, Fraction(8, 3), "2.667:1 (oversubscribed)"),
    ],
)
def test_oversubscription_says_which_side_has_more(
    spines: int, uplink_rate_bps: int, ratio: Fraction, text: str
) -> None:
    found = describe(zone(2, 2, 8, spines, uplink_rate_bps=uplink_rate_bps))
    assert found.tiers[0].down_to_up == ratio
    assert found.tiers[1].down_to_up is None
    assert f"{text}\n" in to_text(found)


def test_more_uplink_than_nics_does_not_raise_the_bisection() -> None:
    assert describe(zone(2, 1, 8, 16)).bisection_bps == 8 * 400 * G


def test_a_ring_of_switches_states_no_bisection() -> None:
    names = ("r", "s", "t")
    nodes = [node for name in names for node in server(f"h{name}")] + switches(*names)
    links = [PlannedLink(f"h{name}-nic-0", name) for name in names]
    links += [PlannedLink("r", "s"), PlannedLink("s", "t"), PlannedLink("t", "r")]
    found = describe(drawn(nodes, links))
    assert (found.bisection_bps, found.most_switches, found.far_paths) == (None, 2, 1)
    assert "bisection" not in to_text(found)


def test_two_nics_on_a_wire_are_described_too() -> None:
    fabric = drawn([*server("a"), *server("b")], [PlannedLink("a-nic-0", "b-nic-0")])
    assert to_text(describe(fabric)).splitlines()[0] == (
        "graph: 2 GPUs in 2 hosts, 2 NICs, 0 switches, 1 prefix"
    )


def test_uniform_traffic_loads_a_leaf_with_what_goes_up_and_comes_down() -> None:
    # Two racks of two NICs at 400G: half of what a NIC sends stays in its rack, half crosses a spine.
    fabric = zone(racks=2, hosts_per_rack=1, gpus_per_host=2, spines=2)
    loads = expected_loads(fabric)
    by_name = {node.name: loads[node.number] for node in fabric.nodes}
    assert by_name["nic-0-0"] == 800_001
    assert by_name["rtsw-0"] == by_name["rtsw-1"] == 800_000 + 400_000 + 1
    assert by_name["ctsw-0"] == by_name["ctsw-1"] == 400_000 + 1
    assert by_name["host-0"] == 2 * 50_000 + 1
    assert by_name["gpu-0-0"] == 25_000 + 1
    assert by_name["controller"] == 0


def test_what_crosses_a_leaf_is_no_more_than_its_uplinks_carry() -> None:
    fabric = zone(racks=4, hosts_per_rack=1, gpus_per_host=8, spines=1)
    loads = expected_loads(fabric)
    assert loads[fabric.node_named("rtsw-0").number] == 8 * 400_000 + 400_000 + 1
    assert loads[fabric.node_named("ctsw-0").number] == 4 * 400_000 + 1
