"""Are devices numbered, named and addressed by the graph alone?"""

import pickle

import pytest
from hypothesis import given

from actors.fabric.model import (
    FABRIC,
    HOST,
    Fault,
    Role,
    Topology,
    TopologyError,
    format_address,
    prefix_of,
)
from tests.topology.fabrics import (
    PlannedLink,
    PlannedNode,
    drawn,
    dual_tor,
    server,
    switch_graphs,
    switches,
    zone,
    zones,
)


def test_a_zone_names_servers_then_leaves_then_spines_and_ends_with_the_controller() -> None:
    assert [node.name for node in zone().nodes] == [
        *("host-0", "gpu-0-0", "gpu-0-1", "nic-0-0", "nic-0-1"),
        *("host-1", "gpu-1-0", "gpu-1-1", "nic-1-0", "nic-1-1"),
        *("rtsw-0", "rtsw-1", "ctsw-0", "ctsw-1", "controller"),
    ]


def test_a_zone_links_nics_then_spines_then_the_inside_of_servers() -> None:
    assert [link.name for link in zone().links] == [
        *("nic-0-0:rtsw-0", "nic-0-1:rtsw-0", "nic-1-0:rtsw-1", "nic-1-1:rtsw-1"),
        *("rtsw-0:ctsw-0", "rtsw-0:ctsw-1", "rtsw-1:ctsw-0", "rtsw-1:ctsw-1"),
        *("host-0:gpu-0-0", "host-0:gpu-0-1", "host-0:nic-0-0", "host-0:nic-0-1"),
        *("host-1:gpu-1-0", "host-1:gpu-1-1", "host-1:nic-1-0", "host-1:nic-1-1"),
    ]


def test_a_zone_places_every_node() -> None:
    fabric = zone(racks=3, hosts_per_rack=2)
    nic, leaf, spine = (fabric.node_named(name) for name in ("nic-3-1", "rtsw-2", "ctsw-1"))
    assert (nic.role, nic.tier, nic.rack, nic.host, nic.position) == (Role.NIC, 0, 1, 3, 1)
    assert (leaf.role, leaf.model, leaf.tier, leaf.rack, leaf.host, leaf.position) == (
        *(Role.SWITCH, "rtsw", 1, 2, -1, 2),
    )
    assert (spine.model, spine.tier, spine.rack, spine.position) == ("ctsw", 2, -1, 1)
    assert fabric.nodes[fabric.controller].role is Role.CONTROLLER


def test_a_leaf_has_its_down_ports_first_and_a_nic_its_host_link_last() -> None:
    fabric = zone(racks=2, hosts_per_rack=2, gpus_per_host=2, spines=3)
    leaf = fabric.ports(fabric.node_named("rtsw-1").number)
    assert [fabric.nodes[port.peer].name for port in leaf] == [
        *("nic-2-0", "nic-2-1", "nic-3-0", "nic-3-1", "ctsw-0", "ctsw-1", "ctsw-2"),
    ]
    nic = fabric.ports(fabric.node_named("nic-3-1").number)
    assert [(fabric.nodes[port.peer].name, port.kind) for port in nic] == [
        ("rtsw-1", FABRIC),
        ("host-3", HOST),
    ]
    gpu = fabric.ports(fabric.node_named("gpu-3-1").number)
    assert [(fabric.nodes[port.peer].name, port.kind, port.rate_bps) for port in gpu] == [
        ("host-3", HOST, 512_000_000_000),
    ]


@given(zones | switch_graphs())
def test_both_ends_of_every_port_agree(fabric: Topology) -> None:
    for node in fabric.nodes:
        for number, port in enumerate(fabric.ports(node.number)):
            back = fabric.ports(port.peer)[port.peer_port]
            assert (back.peer, back.peer_port, back.link) == (node.number, number, port.link)
            assert (back.rate_bps, back.delay_ps, back.kind) == (port.rate_bps, port.delay_ps, port.kind)
    assert sum(len(fabric.ports(node.number)) for node in fabric.nodes) == 2 * len(fabric.links)


@given(zones | switch_graphs())
def test_numbers_are_indices_and_names_find_them(fabric: Topology) -> None:
    assert [node.number for node in fabric.nodes] == list(range(len(fabric.nodes)))
    assert [link.number for link in fabric.links] == list(range(len(fabric.links)))
    for node in fabric.nodes:
        assert fabric.node_named(node.name) is node
    for link in fabric.links:
        assert fabric.links_named(link.name) == (link.number,)


@given(zones | switch_graphs())
def test_every_nic_has_an_address_of_its_own_in_its_prefix(fabric: Topology) -> None:
    addresses = [fabric.address_of(nic) for nic in fabric.nics]
    assert len(set(addresses)) == len(fabric.nics)
    for nic, address in zip(fabric.nics, addresses, strict=True):
        assert fabric.nic_at(address) == nic
        assert fabric.prefix_nics(prefix_of(address))[address & 1023] == nic
        peers = sorted(port.peer for port in fabric.ports(nic) if port.kind == FABRIC)
        assert fabric.prefix_switches(prefix_of(address)) == tuple(peers)


def test_addresses_read_as_a_subnet_of_four_octets_per_leaf() -> None:
    fabric = zone(racks=3, hosts_per_rack=1, gpus_per_host=2)
    texts = [format_address(fabric.address_of(nic)) for nic in fabric.nics]
    assert texts == ["10.0.0.0", "10.0.0.1", "10.0.4.0", "10.0.4.1", "10.0.8.0", "10.0.8.1"]
    assert format_address((16383 << 10) | 1023) == "10.255.255.255"


def test_the_1025th_nic_of_a_leaf_opens_another_prefix() -> None:
    fabric = zone(racks=1, hosts_per_rack=129, gpus_per_host=8, spines=0)
    leaf = fabric.switches[0]
    assert (fabric.prefixes, fabric.prefix_switches(0), fabric.prefix_switches(1)) == (2, (leaf,), (leaf,))
    assert fabric.address_of(fabric.nics[1023]) == 1023
    assert fabric.address_of(fabric.nics[1024]) == 1024
    assert len(fabric.prefix_nics(1)) == 8


def test_nics_on_the_same_two_leaves_share_a_prefix() -> None:
    fabric = dual_tor(hosts=3)
    tors = tuple(fabric.node_named(name).number for name in ("tor-a", "tor-b"))
    assert fabric.prefixes == 2
    assert fabric.prefix_switches(0) == tors
    assert [fabric.address_of(nic) for nic in fabric.nics] == [0, 1, 2, 1024]


def test_gpus_are_ranked_host_by_host_and_use_the_nic_of_their_position() -> None:
    fabric = zone(racks=2, hosts_per_rack=2, gpus_per_host=3)
    names = [fabric.nodes[gpu].name for gpu in fabric.gpus]
    assert names == [f"gpu-{host}-{i}" for host in range(4) for i in range(3)]
    for gpu in fabric.gpus:
        (nic,) = fabric.nics_of_gpu(gpu)
        assert fabric.nodes[nic].name == fabric.nodes[gpu].name.replace("gpu", "nic")
        assert fabric.host_of(gpu) == fabric.host_of(nic) == fabric.hosts[fabric.nodes[gpu].host]


@pytest.mark.parametrize(
    ("gpus", "nics", "expected"),
    [
        (2, 4, [("0", "1"), ("2", "3")]),
        (4, 2, [("0",), ("0",), ("1",), ("1",)]),
        (2, 3, [("0",), ("1", "2")]),
        (1, 1, [("0",)]),
    ],
)
def test_gpus_and_nics_of_a_server_are_matched_in_order(
    gpus: int, nics: int, expected: list[tuple[str, ...]]
) -> None:
    nodes = [*server("h", nics=nics, gpus=gpus), *switches("s")]
    fabric = drawn(nodes, [PlannedLink(f"h-nic-{i}", "s") for i in range(nics)])
    matched = [
        tuple(fabric.nodes[nic].name.removeprefix("h-nic-") for nic in fabric.nics_of_gpu(gpu))
        for gpu in fabric.gpus
    ]
    assert matched == expected


def test_parallel_links_have_names_of_their_own_and_share_one() -> None:
    fabric = zone(parallel=2)
    assert [link.name for link in fabric.links[4:8]] == [
        *("rtsw-0:ctsw-0/0", "rtsw-0:ctsw-0/1", "rtsw-0:ctsw-1/0", "rtsw-0:ctsw-1/1"),
    ]
    assert fabric.links_named("rtsw-0:ctsw-1") == (6, 7)
    assert fabric.links_named("ctsw-1:rtsw-0") == (6, 7)
    assert fabric.links_named("ctsw-1:rtsw-0/1") == (7,)


def test_an_unknown_device_or_link_is_refused_with_the_nearest_name() -> None:
    fabric = zone()
    with pytest.raises(TopologyError) as found:
        fabric.node_named("rtws-1")
    assert str(found.value) == "no device is named 'rtws-1'; did you mean 'rtsw-1'?"
    with pytest.raises(TopologyError) as found:
        fabric.links_named("rtsw-0:ctsw-9")
    assert str(found.value) == "no link is named 'rtsw-0:ctsw-9'; did you mean 'rtsw-0:ctsw-1'?"


def test_an_error_crosses_processes_with_its_faults() -> None:
    error = TopologyError([Fault(("links", 3, "b"), "no device is named 'x'", "did you mean 'y'?")])
    assert pickle.loads(pickle.dumps(error)).faults == error.faults
    assert str(error) == "links.3.b: no device is named 'x'; did you mean 'y'?"
    assert error.exit_status == 2


def test_more_spines_renumber_no_server() -> None:
    few, many = zone(spines=1), zone(spines=5)
    servers = len(few.hosts) * 5
    assert few.nodes[:servers] == many.nodes[:servers]


def test_a_fabric_is_the_same_each_time_it_is_built() -> None:
    one, other = zone(racks=3, parallel=2), zone(racks=3, parallel=2)
    assert (one.nodes, one.links) == (other.nodes, other.links)


def test_every_argument_of_a_zone_that_is_out_of_range_is_named_at_once() -> None:
    with pytest.raises(TopologyError) as found:
        zone(racks=2, gpus_per_host=0, spines=0, link_rate_bps=-1, nic_delay_ps=0, host_link_delay_ps=999)
    paths = [fault.path for fault in found.value.faults]
    assert paths == [("gpus_per_host",), ("spines",), ("link",), ("nic_delay",), ("host_link_delay",)]


def test_one_rack_may_do_without_spines() -> None:
    fabric = zone(racks=1, spines=0)
    assert [fabric.nodes[switch].name for switch in fabric.switches] == ["rtsw-0"]


def test_a_server_lists_its_host_then_gpus_then_nics_whatever_the_order_of_the_file() -> None:
    nodes = [
        PlannedNode("n", "nic", "h"),
        PlannedNode("g", "gpu", "h"),
        PlannedNode("s", "switch"),
        PlannedNode("h", "host"),
    ]
    fabric = drawn(nodes, [PlannedLink("s", "n")])
    assert fabric.server(0) == (3, 1, 0)
