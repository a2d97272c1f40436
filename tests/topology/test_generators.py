"""Do the generated fabrics have the counts, rates and ratios that their sources publish?"""

from fractions import Fraction
from time import process_time
from typing import Any

import pytest

from actors.fabric.model import FABRIC, Topology, TopologyError
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.topology.fabrics import build
from emu.topology.outline import Tier, describe
from tests.topology.fabrics import NS, G, fabric_of, path_set

LLAMA3 = {
    "link_bps": 400 * G,
    "nic_delay_ps": 500 * NS,
    "ctsw_delay_ps": 500 * NS,
    "atsw_delay_ps": 500 * NS,
    "host_link_rate_bps": 512 * G,
    "host_link_delay_ps": 250 * NS,
    "nic_link_delay_ps": 800 * NS,
}


def tiers(fabric: Topology) -> dict[str, Tier]:
    """The switches of each model taken together."""
    return {tier.model: tier for tier in describe(fabric).tiers}


def rates(fabric: Topology, lower: str, upper: str) -> set[int]:
    """The rates of the links between two kinds of device."""
    nodes = fabric.nodes
    return {
        link.rate_bps
        for link in fabric.links
        if nodes[link.a].model == lower and nodes[link.b].model == upper
    }


def leaves_of_host(fabric: Topology, host: str) -> list[str]:
    """The switches that the NICs of a server hang on, NIC by NIC and port by port."""
    server = fabric.server(fabric.node_named(host).host)
    nodes = fabric.nodes
    return [
        nodes[port.peer].name
        for device in server
        if nodes[device].model == "nic"
        for port in fabric.ports(device)
        if port.kind == FABRIC
    ]


def test_llama3_is_24576_gpus_in_pods_of_3072() -> None:
    fabric = fabric_of(kind="llama3")
    found = tiers(fabric)
    assert len(fabric.gpus) == len(fabric.nics) == 24_576
    assert len(fabric.hosts) == 3_072
    assert found["rtsw"].switches == 8 * 192
    assert found["ctsw"].switches == 8 * 16
    assert len(fabric.gpus) // 8 == 3_072
    one_pod = fabric_of(kind="llama3", pods=1)
    assert len(one_pod.gpus) == 3_072
    assert "atsw" not in tiers(one_pod)


@pytest.mark.soak
def test_24576_gpus_are_built_in_two_seconds() -> None:
    took = []
    for _ in range(2):
        begin = process_time()
        assert len(build("llama3", **LLAMA3).gpus) == 24_576
        took.append(process_time() - begin)
    assert min(took) < 2


def test_llama3_is_full_bisection_in_a_pod_and_seven_to_one_between_pods() -> None:
    fabric = fabric_of(kind="llama3")
    found = tiers(fabric)
    assert found["rtsw"].down_to_up == 1
    ratio = found["ctsw"].down_to_up
    assert ratio is not None
    assert abs(ratio - 7) < Fraction(1, 10**9)
    assert rates(fabric, "rtsw", "ctsw") == {400 * G}
    assert found["ctsw"].down_links == found["ctsw"].switches * 192
    assert found["atsw"].down_links == found["ctsw"].switches * 28


def test_llama3_puts_the_16_gpus_of_a_rack_on_one_rtsw() -> None:
    fabric = fabric_of(kind="llama3", pods=2, racks_per_pod=3)
    assert leaves_of_host(fabric, "host-2") == leaves_of_host(fabric, "host-3") == ["rtsw-1"] * 8
    assert len(path_set(fabric, fabric.nics[0], fabric.nics[16])) == 16
    across = path_set(fabric, fabric.nics[0], fabric.nics[-1])
    assert len(across) == 16 * 28 * 16
    assert {len(path) for path in across} == {6}


def test_hpn_is_15360_gpus_in_segments_of_1024() -> None:
    fabric = fabric_of(kind="hpn")
    found = tiers(fabric)
    assert len(fabric.gpus) == 15_360
    assert found["tor"].switches == 15 * 16
    assert found["agg"].switches == 2 * 60
    assert sum(1 for host in fabric.hosts if fabric.nodes[host].rack == 0) * 8 == 1_024
    assert describe(fabric).most_switches == 3


def test_every_host_of_hpn_hangs_on_16_tors() -> None:
    fabric = fabric_of(kind="hpn", segments_per_pod=2, hosts_per_segment=3)
    for host, segment in (("host-0", 0), ("host-2", 0), ("host-3", 1)):
        assert leaves_of_host(fabric, host) == [
            f"tor-{segment}-{rail}-{port}" for rail in range(8) for port in range(2)
        ]


def test_hpn_has_128_ports_of_200g_below_a_tor_and_60_of_400g_above() -> None:
    fabric = fabric_of(kind="hpn")
    tor = fabric.ports(fabric.node_named("tor-3-5-1").number)
    assert [port.rate_bps for port in tor] == [200 * G] * 128 + [400 * G] * 60
    assert tiers(fabric)["tor"].down_to_up == Fraction(16, 15)


def test_hpn_oversubscribes_its_core_fifteen_to_one() -> None:
    # Two servers of 64 times the rate load a ToR as its 128 do, and are built 64 times as fast.
    fabric = fabric_of(kind="hpn", pods=2, hosts_per_segment=2, link="12800G")
    found = tiers(fabric)
    assert found["agg"].down_to_up == 15
    agg = fabric.ports(fabric.node_named("agg-1-0-59").number)
    assert [port.rate_bps for port in agg] == [400 * G] * 128
    assert found["core"].switches == 2 * 60


def test_a_small_hpn_has_whole_uplinks_where_the_page_says_so() -> None:
    small = {"kind": "hpn", "segments_per_pod": 2, "gpus_per_host": 1}
    assert rates(fabric_of(**small, hosts_per_segment=2), "tor", "agg") == {6_250_000_000}
    assert rates(fabric_of(**small, hosts_per_segment=2, aggs_per_plane=1), "tor", "agg") == {375 * G}
    whole = fabric_of(**small, hosts_per_segment=2, aggs_per_plane=1, tor_oversubscription=1)
    assert rates(whole, "tor", "agg") == {400 * G}
    assert rates(fabric_of(**small, hosts_per_segment=32, aggs_per_plane=15), "tor", "agg") == {400 * G}


def test_hpn_of_one_plane_joins_every_tor_to_every_aggregation_switch_of_its_pod() -> None:
    fabric = fabric_of(kind="hpn", planes=1, segments_per_pod=2, hosts_per_segment=2, aggs_per_plane=4)
    for name in ("tor-0-0-0", "tor-1-7-1"):
        ports = fabric.ports(fabric.node_named(name).number)
        assert [fabric.nodes[port.peer].name for port in ports[2:]] == [f"agg-0-0-{a}" for a in range(4)]


def test_hpn_with_a_single_tor_has_one_port_of_400g_to_a_nic() -> None:
    fabric = fabric_of(kind="hpn", nic_ports=1, hosts_per_segment=2, segments_per_pod=2, aggs_per_plane=2)
    assert leaves_of_host(fabric, "host-0") == [f"tor-0-{rail}-0" for rail in range(8)]
    assert rates(fabric, "nic", "tor") == {400 * G}


def test_dcn_plus_is_16384_gpus_in_segments_of_128_on_one_pair_of_tors() -> None:
    fabric = fabric_of(kind="dcn_plus")
    found = tiers(fabric)
    assert len(fabric.gpus) == 32 * 4 * 128 == 16_384
    assert found["tor"].switches == 32 * 4 * 2
    assert found["tor"].down_to_up == found["agg"].down_to_up == Fraction(1)
    for tier, count in (("tor-0-0", 128 + 64), ("agg-0-0", 64 + 64), ("core-0", 128)):
        assert len(fabric.ports(fabric.node_named(tier).number)) == count
    assert rates(fabric, "tor", "agg") == rates(fabric, "agg", "core") == {400 * G}
    assert leaves_of_host(fabric, "host-17") == ["tor-1-0", "tor-1-1"] * 8


def test_dcn_plus_reaches_both_tors_of_a_pair_from_either() -> None:
    fabric = fabric_of(kind="dcn_plus", pods=1, links_per_tor_agg=1, hosts_per_segment=1)
    source, target = fabric.node_named("nic-0-0").number, fabric.node_named("nic-3-0").number
    ends = {(path[0], path[-1]) for path in path_set(fabric, source, target)}
    assert len(ends) == 4


def test_megascale_gives_a_nic_half_of_what_an_uplink_carries() -> None:
    fabric = fabric_of(kind="megascale")
    found = tiers(fabric)
    assert len(fabric.gpus) == 12_288
    assert rates(fabric, "nic", "tor") == {200 * G}
    assert rates(fabric, "tor", "agg") == rates(fabric, "agg", "core") == {400 * G}
    for name, down, up in (("tor-0-0", 64, 32), ("agg-0-0", 32, 32)):
        ports = fabric.ports(fabric.node_named(name).number)
        below = [port for port in ports if fabric.nodes[port.peer].tier < fabric.node_named(name).tier]
        assert (len(below), len(ports) - len(below)) == (down, up)
    assert found["tor"].down_to_up == found["agg"].down_to_up == Fraction(1)
    assert leaves_of_host(fabric, "host-64") == [f"tor-1-{i}" for i in range(8)]


@pytest.mark.parametrize("k", [2, 4, 6])
def test_a_fat_tree_has_a_quarter_of_k_cubed_nics_and_a_quarter_of_k_squared_paths(k: int) -> None:
    fabric = fabric_of(kind="fat_tree", k=k)
    found = tiers(fabric)
    assert len(fabric.nics) == k**3 // 4
    assert (found["tor"].switches, found["agg"].switches) == (k * k // 2, k * k // 2)
    assert found["core"].switches == k * k // 4
    assert {len(fabric.ports(switch)) for switch in fabric.switches} == {k}
    assert len(path_set(fabric, fabric.nics[0], fabric.nics[-1])) == k * k // 4


def test_each_core_switch_of_a_fat_tree_reaches_every_pod_once() -> None:
    fabric = fabric_of(kind="fat_tree", k=6)
    for core in range(9):
        ports = fabric.ports(fabric.node_named(f"core-{core}").number)
        assert [fabric.nodes[port.peer].name for port in ports] == [
            f"agg-{pod}-{core // 3}" for pod in range(6)
        ]


def test_rails_alone_share_no_switch() -> None:
    fabric = fabric_of(kind="rail_only", segments=2, hosts_per_segment=2, gpus_per_host=4, aggs_per_rail=2)
    by_rail = [[nic for nic in fabric.nics if fabric.nodes[nic].position == rail] for rail in range(4)]
    for rail, nics in enumerate(by_rail):
        assert len(path_set(fabric, nics[0], nics[-1])) == 2
        for other in by_rail[rail + 1 :]:
            assert path_set(fabric, nics[0], other[-1]) == ()


def test_a_star_is_one_switch() -> None:
    fabric = fabric_of(kind="star", hosts=5, gpus_per_host=2)
    assert [fabric.nodes[switch].name for switch in fabric.switches] == ["tor-0"]
    assert len(fabric.ports(fabric.switches[0])) == 10


SHRUNK: list[tuple[dict[str, Any], dict[str, Fraction]]] = [
    (
        {
            "kind": "llama3",
            "pods": 2,
            "racks_per_pod": 3,
            "hosts_per_rack": 1,
            "ctsws_per_pod": 2,
            "atsws": 3,
        },
        {"rtsw": Fraction(1), "ctsw": Fraction(7)},
    ),
    (
        {
            "kind": "hpn",
            "pods": 2,
            "segments_per_pod": 2,
            "hosts_per_segment": 2,
            "aggs_per_plane": 2,
            "cores_per_plane": 2,
            "core_uplinks_per_agg": 1,
        },
        {"tor": Fraction(16, 15), "agg": Fraction(15)},
    ),
    (
        {
            "kind": "dcn_plus",
            "pods": 2,
            "hosts_per_segment": 1,
            "aggs_per_pod": 2,
            "links_per_tor_agg": 1,
            "cores": 2,
            "core_uplinks_per_agg": 3,
        },
        {"tor": Fraction(1), "agg": Fraction(1)},
    ),
    (
        {
            "kind": "megascale",
            "pods": 2,
            "blocks_per_pod": 1,
            "hosts_per_block": 2,
            "aggs_per_pod": 4,
            "cores": 4,
            "core_uplinks_per_agg": 2,
        },
        {"tor": Fraction(1), "agg": Fraction(1)},
    ),
]


@pytest.mark.parametrize(("section", "ratios"), SHRUNK, ids=lambda given: given.get("kind", ""))
def test_a_small_fabric_keeps_the_ratios_of_the_large_one(
    section: dict[str, Any], ratios: dict[str, Fraction]
) -> None:
    found = tiers(fabric_of(**section))
    for model, ratio in ratios.items():
        shown = found[model].down_to_up
        assert shown is not None
        assert abs(shown - ratio) < Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"kind": "hpn", "aggs_per_plane": 0}, "aggs_per_plane: plane 0 has no path between its ToRs"),
        (
            {"kind": "hpn", "pods": 2, "cores_per_plane": 0},
            "cores_per_plane: plane 0 has no path between its 2 pods",
        ),
        ({"kind": "hpn", "planes": 2, "nic_ports": 1}, "planes: plane 1 has no path: NICs of one port"),
        (
            {"kind": "hpn", "pods": 2, "cores_per_plane": 7},
            "cores_per_plane: 60 x 8 uplinks of a pod do not divide among 7 core switches; a divisor of 480",
        ),
        ({"kind": "llama3", "atsws": 0}, "atsws: 0 is too few"),
        ({"kind": "llama3", "ctsws_per_pod": 0}, "ctsws_per_pod: 0 is too few"),
        ({"kind": "dcn_plus", "cores": 0}, "cores: 0 is too few"),
        ({"kind": "dcn_plus", "cores": 96}, "cores: 8 x 64 uplinks of a pod do not divide among 96"),
        ({"kind": "megascale", "cores": 5}, "cores: 32 x 32 uplinks of a pod do not divide among 5"),
        ({"kind": "fat_tree", "k": 5}, "k: 5 ports cannot be halved; an even number of at least 2"),
        (
            {"kind": "fat_tree", "k": 8, "gpus_per_host": 3},
            "gpus_per_host: servers of 3 NICs do not divide the 4 ports of a ToR; a divisor of 4",
        ),
        (
            {"kind": "rail_only", "segments": 2, "hosts_per_segment": 1},
            "aggs_per_rail: rail 0 has no path between its 2 segments",
        ),
        ({"kind": "star", "hosts": 2049}, "tor-0 needs 2049 ports; at most 2048 for each device"),
        ({"kind": "star", "hosts": 65536, "gpus_per_host": 65536}, "more than 262143 devices"),
        ({"kind": "llama3", "ctsw_oversubscription": "1/1000", "link": "4000000T"}, "asks for uplinks of"),
        ({"kind": "llama3", "link": "1bps"}, "leaves uplinks of less than 1 bit/s"),
    ],
    ids=str,
)
def test_what_cannot_be_built_is_refused_by_key(section: dict[str, Any], said: str) -> None:
    with pytest.raises(TopologyError) as error:
        fabric_of(**section)
    assert said in str(error.value)


def test_a_fabric_of_the_scenario_is_refused_in_the_scenarios_keys() -> None:
    scenario = load_mapping(
        {
            "name": "x",
            "topology": {"kind": "hpn", "pods": 2, "cores_per_plane": 7},
            "jobs": [{"name": "a", "workload": {"kind": "permutation", "size": "1MiB"}}],
        }
    ).scenario
    with pytest.raises(Exception, match=r"topology\.cores_per_plane: 60 x 8 uplinks"):
        build_topology(scenario)
