"""Is a fabric spelled out node by node built as written, and refused with every fault in its place?"""

import pytest

from actors.fabric.model import TopologyError
from actors.fabric.routes import equal_cost_groups
from emu.topology.fabrics import GENERATORS, build
from tests.topology.fabrics import G, PlannedLink, PlannedNode, drawn, dual_tor, server, switches, zone

SOUND_NODES = [*server("a"), *server("b"), *switches("s")]
SOUND_LINKS = [PlannedLink("a-nic-0", "s"), PlannedLink("b-nic-0", "s")]


def faults_of(nodes: list[PlannedNode], links: list[PlannedLink]) -> list[tuple[tuple[str | int, ...], str]]:
    with pytest.raises(TopologyError) as found:
        drawn(nodes, links)
    return [(fault.path, fault.reason) for fault in found.value.faults]


def test_two_servers_and_a_switch() -> None:
    fabric = drawn(SOUND_NODES, SOUND_LINKS)
    assert [node.name for node in fabric.nodes] == [
        *("a", "a-gpu-0", "a-nic-0", "b", "b-gpu-0", "b-nic-0", "s", "controller"),
    ]
    assert [link.name for link in fabric.links] == [
        *("a-nic-0:s", "b-nic-0:s", "a:a-gpu-0", "a:a-nic-0", "b:b-gpu-0", "b:b-nic-0"),
    ]
    assert [(link.rate_bps, link.delay_ps) for link in fabric.links[1:3]] == [
        *((400 * G, 500_000), (512 * G, 250_000)),
    ]


def test_ports_follow_the_order_of_the_file_and_the_lower_tier_comes_first_in_a_name() -> None:
    nodes = [*switches("top", "left", "right"), *server("a"), *server("b")]
    links = [
        PlannedLink("top", "left"),
        PlannedLink("right", "top", rate_bps=100 * G),
        PlannedLink("left", "a-nic-0"),
        PlannedLink("b-nic-0", "right"),
    ]
    fabric = drawn(nodes, links)
    assert [link.name for link in fabric.links[:4]] == [
        "left:top",
        "right:top",
        "a-nic-0:left",
        "b-nic-0:right",
    ]
    assert [port.rate_bps for port in fabric.ports(0)] == [400 * G, 100 * G]
    assert [fabric.nodes[port.peer].name for port in fabric.ports(1)] == ["top", "a-nic-0"]


def test_tiers_follow_the_distance_from_the_nics_and_racks_the_leaves() -> None:
    fabric = dual_tor(hosts=2)
    tiers = {fabric.nodes[switch].name: fabric.nodes[switch].tier for switch in fabric.switches}
    assert tiers == {"tor-a": 1, "tor-b": 1, "tor-c": 1, "agg-0": 2, "agg-1": 2}
    racks = {name: fabric.node_named(name).rack for name in ("h0", "h1-gpu-0", "far-nic-0", "tor-b", "agg-0")}
    assert racks == {"h0": 0, "h1-gpu-0": 0, "far-nic-0": 2, "tor-b": 1, "agg-0": -1}
    assert [fabric.node_named(name).model for name in ("tor-a", "agg-1")] == ["rtsw", "ctsw"]


def test_tier_and_rack_are_as_given_where_they_are_given() -> None:
    nodes = [
        PlannedNode("h", "host", rack=7),
        PlannedNode("n", "nic", "h"),
        PlannedNode("m", "nic", "h"),
        PlannedNode("s", "switch", tier=2, rack=9),
    ]
    fabric = drawn(nodes, [PlannedLink("n", "s"), PlannedLink("m", "s")])
    assert [(node.tier, node.rack) for node in fabric.nodes[:4]] == [(-1, 7), (0, 7), (0, 7), (2, 9)]


def test_a_host_may_come_after_its_devices() -> None:
    nodes = [PlannedNode("n", "nic", "h"), PlannedNode("s", "switch"), *server("o"), PlannedNode("h", "host")]
    fabric = drawn(nodes, [PlannedLink("n", "s"), PlannedLink("o-nic-0", "s")])
    assert [fabric.nodes[nic].name for nic in fabric.nics] == ["o-nic-0", "n"]
    assert fabric.host_of(0) == fabric.node_named("h").number


def test_two_nics_may_be_joined_by_a_wire() -> None:
    fabric = drawn([*server("a"), *server("b")], [PlannedLink("a-nic-0", "b-nic-0")])
    assert (fabric.switches, fabric.prefixes, fabric.prefix_switches(0)) == ((), 1, ())


def test_a_graph_that_spells_out_a_zone_routes_as_the_zone_does() -> None:
    wanted = zone(racks=3, spines=2)
    nodes = [
        PlannedNode(
            node.name, node.role.value, f"host-{node.host}" if node.role.value in {"gpu", "nic"} else None
        )
        for node in wanted.nodes[:-1]
    ]
    names = [node.name for node in wanted.nodes]
    links = [PlannedLink(names[link.a], names[link.b]) for link in wanted.links if link.kind == "fabric"]
    fabric = drawn(nodes, links)
    assert (fabric.nodes, fabric.links) == (wanted.nodes, wanted.links)
    for switch in fabric.switches:
        assert equal_cost_groups(fabric, switch) == equal_cost_groups(wanted, switch)


def test_a_link_to_a_device_that_does_not_exist_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(TopologyError) as found:
        drawn(SOUND_NODES, [SOUND_LINKS[0], PlannedLink("b-nic-1", "s")])
    assert str(found.value) == "links.1.a: no device is named 'b-nic-1'; did you mean 'b-nic-0'?"


@pytest.mark.parametrize(
    ("link", "path", "reason"),
    [
        (PlannedLink("s", "s"), ("links", 2), "a link from 's' to itself"),
        (PlannedLink("a", "s"), ("links", 2, "a"), "'a' is a host: a cable joins switches and NICs"),
        (
            PlannedLink("s", "a-gpu-0"),
            ("links", 2, "b"),
            "'a-gpu-0' is a gpu: a cable joins switches and NICs",
        ),
        (PlannedLink("s", "t", rate_bps=0), ("links", 2, "rate"), "a link of 0 bit/s carries nothing"),
        (PlannedLink("s", "t", rate_bps=-1), ("links", 2, "rate"), "a link of -1 bit/s carries nothing"),
        (PlannedLink("s", "t", delay_ps=0), ("links", 2, "delay"), "a link without delay"),
        (PlannedLink("s", "t", delay_ps=999), ("links", 2, "delay"), "a link's delay of 999 ps"),
    ],
)
def test_an_impossible_link_is_refused(link: PlannedLink, path: tuple[str | int, ...], reason: str) -> None:
    assert faults_of([*SOUND_NODES, *switches("t")], [*SOUND_LINKS, link]) == [(path, reason)]


def test_a_link_of_a_nanosecond_is_long_enough() -> None:
    links = [PlannedLink("a-nic-0", "s", delay_ps=1000), SOUND_LINKS[1]]
    assert drawn(SOUND_NODES, links).links[0].delay_ps == 1000


@pytest.mark.parametrize(
    ("node", "path", "reason"),
    [
        (PlannedNode("a", "switch"), ("nodes", 7, "name"), "a second device named 'a'"),
        (PlannedNode("controller", "switch"), ("nodes", 7, "name"), "a second device named 'controller'"),
        (PlannedNode("n", "nic"), ("nodes", 7), "nic 'n' belongs to no host"),
        (PlannedNode("g", "gpu"), ("nodes", 7), "gpu 'g' belongs to no host"),
        (PlannedNode("g", "gpu", "c"), ("nodes", 7, "host"), "no host is named 'c'"),
        (PlannedNode("g", "gpu", "s"), ("nodes", 7, "host"), "'s' is a switch, not a host"),
        (PlannedNode("n", "nic", "a"), ("nodes", 7), "nic 'n' hangs on no link"),
        (PlannedNode("t", "switch"), ("nodes", 7), "switch 't' hangs on no link"),
        (PlannedNode("h", "host"), ("nodes", 7), "host 'h' has no NIC"),
    ],
)
def test_an_impossible_device_is_refused(node: PlannedNode, path: tuple[str | int, ...], reason: str) -> None:
    assert faults_of([*SOUND_NODES, node], SOUND_LINKS) == [(path, reason)]


def test_a_gpu_needs_a_nic_beside_it() -> None:
    nodes = [*SOUND_NODES, PlannedNode("h", "host"), PlannedNode("g", "gpu", "h")]
    reason = "gpu 'g' has no NIC to send through: 'h' has none"
    assert faults_of(nodes, SOUND_LINKS) == [(("nodes", 8), reason)]


def test_every_fault_is_reported_at_once_in_the_order_of_the_file() -> None:
    nodes = [*SOUND_NODES, PlannedNode("n", "nic"), PlannedNode("s", "switch")]
    links = [PlannedLink("a-nic-0", "x", rate_bps=0), PlannedLink("s", "s", delay_ps=1)]
    assert [path for path, _ in faults_of(nodes, links)] == [
        *(("nodes", 8, "name"), ("nodes", 7)),
        *(("links", 0, "b"), ("links", 0, "rate"), ("links", 1), ("links", 1, "delay")),
    ]


def test_a_graph_in_two_parts_is_refused() -> None:
    nodes = [*SOUND_NODES, *switches("t", "u")]
    reason = "the fabric is not connected: no path from 'a' to 't'"
    assert faults_of(nodes, [*SOUND_LINKS, PlannedLink("t", "u")]) == [(("links",), reason)]


def test_servers_do_not_forward_so_a_server_between_two_switches_does_not_connect_them() -> None:
    nodes = [*server("a"), *server("b"), *server("both", nics=2), *switches("s", "t")]
    links = [
        PlannedLink("a-nic-0", "s"),
        PlannedLink("both-nic-0", "s"),
        PlannedLink("both-nic-1", "t"),
        PlannedLink("b-nic-0", "t"),
    ]
    assert faults_of(nodes, links) == [
        (("links",), "the fabric is not connected: no path through switches from a-nic-0 to both-nic-1"),
    ]


def test_a_fabric_without_a_nic_is_refused() -> None:
    assert faults_of(switches("s", "t"), [PlannedLink("s", "t")]) == [
        (("nodes",), "a fabric without a NIC carries nothing"),
    ]


def test_every_kind_is_built_by_name_and_an_unknown_one_is_refused() -> None:
    assert " ".join(GENERATORS) == (
        "ai_zone llama3 hpn dcn_plus megascale multi_plane fat_tree rail_only star graph"
    )
    fabric = build(
        "graph",
        nodes=SOUND_NODES,
        links=SOUND_LINKS,
        host_link_rate_bps=512 * G,
        host_link_delay_ps=250_000,
        nic_link_delay_ps=800_000,
    )
    assert fabric.kind == "graph"
    with pytest.raises(TopologyError, match=r"no fabric is called 'ai-zone'; did you mean 'ai_zone'\?"):
        build("ai-zone")
