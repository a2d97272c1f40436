"""Do the equal-cost groups hold every shortest path and nothing else?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fabric.model import FABRIC, Role, Topology, prefix_of
from actors.fabric.paths import count_paths, first_paths, path_text
from actors.fabric.routes import Routes, equal_cost_groups, host_groups, local_ports
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from tests.topology.fabrics import dual_tor, path_set, switch_graphs, zone, zones


def number(fabric: Topology, name: str) -> int:
    return fabric.node_named(name).number


def hops_to(fabric: Topology, prefix: int, down: frozenset[int]) -> dict[int, int]:
    """An oracle: breadth-first search outwards from the switches of a prefix, one link at a time."""
    hops = dict.fromkeys(fabric.prefix_switches(prefix), 0)
    edge = list(hops)
    while edge:
        here = edge.pop(0)
        for link in fabric.links:
            ends = (link.a, link.b)
            if here not in ends or link.number in down:
                continue
            other = ends[0] if here == ends[1] else ends[1]
            if fabric.nodes[other].role is Role.SWITCH and other not in hops:
                hops[other] = hops[here] + 1
                edge.append(other)
    return hops


def test_groups_of_a_zone_with_parallel_uplinks() -> None:
    fabric = zone(racks=3, gpus_per_host=2, spines=2, parallel=2)
    assert equal_cost_groups(fabric, number(fabric, "rtsw-1")) == ((2, 3, 4, 5), (), (2, 3, 4, 5))
    assert equal_cost_groups(fabric, number(fabric, "ctsw-0")) == ((0, 1), (2, 3), (4, 5))


def test_a_switch_delivers_to_its_own_nics() -> None:
    fabric = zone(racks=2, hosts_per_rack=2, gpus_per_host=2)
    assert local_ports(fabric, number(fabric, "rtsw-1")) == {1024: 0, 1025: 1, 1026: 2, 1027: 3}
    assert local_ports(fabric, number(fabric, "ctsw-0")) == {}


@given(zones)
def test_every_pair_of_nics_is_joined_by_as_many_paths_as_uplinks(fabric: Topology) -> None:
    leaf = fabric.ports(fabric.switches[0])
    uplinks = [port for port in leaf if fabric.nodes[port.peer].tier == 2]
    spines = len({port.peer for port in uplinks})
    across = len(uplinks) * (len(uplinks) // spines)
    for source in fabric.nics[:3]:
        for target in fabric.nics[-3:]:
            if source == target:
                continue
            paths = path_set(fabric, source, target)
            same_rack = fabric.nodes[source].rack == fabric.nodes[target].rack
            assert len(paths) == len(set(paths)) == (1 if same_rack else across)
            assert {len(path) for path in paths} == {2 if same_rack else 4}


@given(zones)
def test_paths_there_are_paths_back(fabric: Topology) -> None:
    one, other = fabric.nics[0], fabric.nics[-1]
    if one != other:
        there = path_set(fabric, one, other)
        back = path_set(fabric, other, one)
        assert sorted(there) == sorted(tuple(reversed(path)) for path in back)


@given(switch_graphs(), st.data())
def test_groups_are_the_ports_one_hop_nearer(fabric: Topology, data: st.DataObject) -> None:
    fabric_links = [link.number for link in fabric.links if link.kind == FABRIC]
    down = data.draw(st.frozensets(st.sampled_from(fabric_links), max_size=4))
    for prefix in range(fabric.prefixes):
        hops = hops_to(fabric, prefix, down)
        for switch in fabric.switches:
            here = hops.get(switch, -1)
            nearer = [
                index
                for index, port in enumerate(fabric.ports(switch))
                if port.link not in down and here > 0 and hops.get(port.peer) == here - 1
            ]
            assert equal_cost_groups(fabric, switch, down)[prefix] == tuple(nearer)
            assert Routes(fabric, down).distance(switch, prefix) == here


@given(zones, st.data())
def test_a_lost_uplink_leaves_the_group_of_its_leaf_and_no_other_member(
    fabric: Topology, data: st.DataObject
) -> None:
    uplinks = [link for link in fabric.links if fabric.nodes[link.b].tier == 2]
    lost = data.draw(st.sampled_from(uplinks))
    before = equal_cost_groups(fabric, lost.a)
    after = equal_cost_groups(fabric, lost.a, frozenset({lost.number}))
    for was, now in zip(before, after, strict=True):
        assert now == tuple(port for port in was if port != lost.a_port)


@given(zones, st.data())
def test_other_leaves_avoid_a_spine_only_once_it_lost_its_last_link_to_the_target(
    fabric: Topology, data: st.DataObject
) -> None:
    leaf, spine = fabric.node_named("rtsw-0"), fabric.node_named("ctsw-0")
    links = fabric.links_named("rtsw-0:ctsw-0")
    count = data.draw(st.integers(0, len(links)))
    only_spine = len([s for s in fabric.switches if fabric.nodes[s].tier == 2]) == 1
    down = frozenset(links[:count])
    for other in fabric.switches:
        if fabric.nodes[other].tier != 1 or other == leaf.number:
            continue
        for prefix, (was, now) in enumerate(
            zip(equal_cost_groups(fabric, other), equal_cost_groups(fabric, other, down), strict=True)
        ):
            if prefix == 0 and count == len(links):
                towards = {i for i, port in enumerate(fabric.ports(other)) if port.peer == spine.number}
                assert now == (() if only_spine else tuple(port for port in was if port not in towards))
            else:
                assert now == was


def test_a_spine_cut_off_from_a_leaf_goes_round_by_another_leaf() -> None:
    fabric = zone(racks=3, spines=2)
    down = frozenset(fabric.links_named("rtsw-0:ctsw-0"))
    assert equal_cost_groups(fabric, number(fabric, "ctsw-0"), down) == ((1, 2), (1,), (2,))


def test_a_leaf_without_uplinks_has_empty_groups() -> None:
    fabric = zone(racks=2, spines=2)
    down = frozenset(fabric.links_named("rtsw-0:ctsw-0") + fabric.links_named("rtsw-0:ctsw-1"))
    assert equal_cost_groups(fabric, number(fabric, "rtsw-0"), down) == ((), ())
    assert path_set(fabric, fabric.nics[0], fabric.nics[-1], down) == ()


def test_a_nic_whose_link_is_down_is_not_delivered_to() -> None:
    fabric = zone(racks=2, gpus_per_host=2)
    down = frozenset(fabric.links_named("nic-1-0:rtsw-1"))
    leaf = number(fabric, "rtsw-1")
    assert local_ports(fabric, leaf, down) == {1025: 1}
    assert equal_cost_groups(fabric, leaf, down) == equal_cost_groups(fabric, leaf)


def test_a_host_link_that_is_down_changes_no_route() -> None:
    fabric = zone()
    down = frozenset(fabric.links_named("host-0:nic-0-0"))
    for switch in fabric.switches:
        assert equal_cost_groups(fabric, switch, down) == equal_cost_groups(fabric, switch)


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    fabric = zone(racks=4, spines=4)
    leaf = number(fabric, "rtsw-0")
    uplinks = [link.number for link in fabric.links if link.a == leaf]
    asked = [frozenset({link}) for link in uplinks] + [frozenset(uplinks[:2]), frozenset()]
    first = [equal_cost_groups(fabric, leaf, down) for down in asked]
    again = [equal_cost_groups(fabric, leaf, down) for down in reversed(asked)]
    assert first == again[::-1] == [Routes(fabric, down).groups(leaf) for down in asked]


def test_a_nic_on_two_leaves_is_reached_through_both() -> None:
    fabric = dual_tor()
    target = fabric.nics[0]
    group = equal_cost_groups(fabric, number(fabric, "agg-0"))[prefix_of(fabric.address_of(target))]
    peers = [fabric.nodes[fabric.ports(number(fabric, "agg-0"))[port].peer].name for port in group]
    assert peers == ["tor-a", "tor-b"]
    assert len(path_set(fabric, number(fabric, "far-nic-0"), target)) == 4


@given(zones)
def test_paths_are_counted_without_being_listed(fabric: Topology) -> None:
    for target in fabric.nics[1:3] + fabric.nics[-1:]:
        if target != fabric.nics[0]:
            paths = path_set(fabric, fabric.nics[0], target)
            assert count_paths(fabric, fabric.nics[0], target) == len(paths)
            assert first_paths(fabric, fabric.nics[0], target, 3) == paths[:3]


def test_a_path_reads_as_the_devices_on_the_way() -> None:
    fabric = zone(racks=2, gpus_per_host=1, spines=2)
    source, target = fabric.nics
    assert [path_text(fabric, source, path) for path in path_set(fabric, source, target)] == [
        "nic-0-0 rtsw-0 ctsw-0 rtsw-1 nic-1-0",
        "nic-0-0 rtsw-0 ctsw-1 rtsw-1 nic-1-0",
    ]


@pytest.mark.parametrize(("racks", "spines", "most"), [(1, 0, 1), (1, 2, 1), (2, 2, 3), (5, 1, 3)])
def test_the_longest_path_passes_two_leaves_and_a_spine(racks: int, spines: int, most: int) -> None:
    assert Routes(zone(racks=racks, spines=spines)).most_switches() == most


def names_of(fabric: Topology, switch: str, ports: tuple[int, ...]) -> list[str]:
    """The devices at the other end of these ports of a switch."""
    at = fabric.ports(number(fabric, switch))
    return [fabric.nodes[at[port].peer].name for port in ports]


def test_other_switches_stop_sending_to_the_leaf_that_lost_a_nic_and_to_no_other_nic_of_it() -> None:
    fabric = dual_tor()
    lost, kept = (fabric.address_of(number(fabric, name)) for name in ("h1-nic-0", "h2-nic-0"))
    down = frozenset(fabric.links_named("h1-nic-0:tor-a"))
    at_agg = host_groups(fabric, number(fabric, "agg-0"), down)
    assert list(at_agg) == [lost]
    assert names_of(fabric, "agg-0", at_agg[lost]) == ["tor-b"]
    whole = equal_cost_groups(fabric, number(fabric, "agg-0"), down)[prefix_of(kept)]
    assert names_of(fabric, "agg-0", whole) == ["tor-a", "tor-b"]


def test_the_leaf_that_lost_a_nic_sends_to_the_other_leaf_of_the_pair() -> None:
    fabric = dual_tor()
    lost = fabric.address_of(number(fabric, "h1-nic-0"))
    down = frozenset(fabric.links_named("h1-nic-0:tor-a"))
    leaf, other = number(fabric, "tor-a"), number(fabric, "tor-b")
    assert lost not in local_ports(fabric, leaf, down)
    assert names_of(fabric, "tor-a", host_groups(fabric, leaf, down)[lost]) == ["agg-0", "agg-1"]
    assert local_ports(fabric, other, down)[lost] == 1
    assert host_groups(fabric, other, down) == {}


def test_a_nic_that_lost_both_links_has_no_route_anywhere() -> None:
    fabric = dual_tor()
    lost = fabric.address_of(number(fabric, "h1-nic-0"))
    down = frozenset(fabric.links_named("h1-nic-0:tor-a") + fabric.links_named("h1-nic-0:tor-b"))
    for switch in fabric.switches:
        assert host_groups(fabric, switch, down) == {lost: ()}
        assert lost not in local_ports(fabric, switch, down)


def test_a_prefix_on_one_leaf_needs_no_host_routes() -> None:
    fabric = zone(racks=2, gpus_per_host=2)
    down = frozenset(fabric.links_named("nic-1-0:rtsw-1"))
    assert [host_groups(fabric, switch, down) for switch in fabric.switches] == [{}] * 4


@given(st.data())
def test_host_routes_lead_to_a_leaf_that_still_has_the_nic(data: st.DataObject) -> None:
    fabric = dual_tor(hosts=3)
    cables = [link.number for link in fabric.links if link.kind == FABRIC]
    down = data.draw(st.frozensets(st.sampled_from(cables), max_size=5))
    target, source = fabric.nics[0], number(fabric, "far-nic-0")
    for path in path_set(fabric, source, target, down):
        assert not down & frozenset(path)
        assert fabric.links[path[-1]].a == target


def valley_free_hops(fabric: Topology, source: int, prefix: int, down: frozenset[int]) -> int:
    """An oracle: breadth-first search from a switch over (switch, whether the path went down already)."""
    edge, seen = [(source, False, 0)], {(source, False)}
    while edge:
        here, fell, hops = edge.pop(0)
        if here in fabric.prefix_switches(prefix):
            return hops
        for end in fabric.ports(here):
            peer = fabric.nodes[end.peer]
            falls = peer.tier < fabric.nodes[here].tier
            if peer.role is Role.SWITCH and end.link not in down and (falls or not fell):
                state = (end.peer, fell or falls)
                if state not in seen:
                    seen.add(state)
                    edge.append((*state, hops + 1))
    return -1


ANY_JOB = {"name": "job", "workload": {"kind": "permutation", "size": "1MiB"}}
TIERED: dict[str, dict[str, int]] = {
    "ai_zone": {"racks": 3, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 2},
    "fat_tree": {"k": 4},
    "hpn": {"segments_per_pod": 2, "hosts_per_segment": 1, "gpus_per_host": 2, "aggs_per_plane": 2},
    "dcn_plus": {"pods": 2, "segments_per_pod": 2, "hosts_per_segment": 1, "gpus_per_host": 1},
    "llama3": {"pods": 2, "racks_per_pod": 2, "hosts_per_rack": 1, "ctsws_per_pod": 2, "atsws": 2},
}


@pytest.mark.parametrize("kind", TIERED)
@given(data=st.data())
def test_tiered_fabrics_have_the_shortest_of_the_paths_that_go_up_and_then_down(
    kind: str, data: st.DataObject
) -> None:
    mapping = {"name": kind, "topology": {"kind": kind, **TIERED[kind]}, "jobs": [ANY_JOB]}
    fabric = build_topology(load_mapping(mapping).scenario)
    between = [one.number for one in fabric.links if {one.a, one.b} <= set(fabric.switches)]
    down = frozenset(data.draw(st.sets(st.sampled_from(between), max_size=4)))
    found = Routes(fabric, down)
    if not down:
        shortest = build_topology(load_mapping(mapping | {"routing": {"paths": "shortest"}}).scenario)
        assert [found.groups(one) for one in fabric.switches] == [
            Routes(shortest).groups(one) for one in fabric.switches
        ]
    for switch in fabric.switches:
        for prefix in range(fabric.prefixes):
            hops = valley_free_hops(fabric, switch, prefix, down)
            assert found.distance(switch, prefix) == hops
            ports = [fabric.ports(switch)[port].peer for port in found.groups(switch)[prefix]]
            assert bool(ports) == (hops > 0)
            assert {found.distance(peer, prefix) for peer in ports} <= {hops - 1}


def test_a_spine_that_lost_a_leaf_is_a_black_hole_and_not_a_way_through_a_third_rack() -> None:
    mapping = {"name": "zone", "topology": {"kind": "ai_zone", **TIERED["ai_zone"]}, "jobs": [ANY_JOB]}
    reached = {}
    for paths in ("auto", "shortest"):
        fabric = build_topology(load_mapping(mapping | {"routing": {"paths": paths}}).scenario)
        links = [fabric.links_named(name)[0] for name in ("rtsw-0:ctsw-0", "rtsw-1:ctsw-1")]
        found = Routes(fabric, frozenset(links))
        reached[paths] = [
            found.distance(number(fabric, source), 1) for source in ("rtsw-0", "ctsw-1", "rtsw-2")
        ]
    assert reached == {"auto": [-1, -1, 2], "shortest": [4, 3, 2]}
