"""Do all NICs meet, do planes stay apart, and does a NIC of two leaves survive the loss of one?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.fabric.model import FABRIC, Topology, TopologyError
from actors.fabric.paths import count_paths, first_paths
from emu.topology.fabric_blocks import planes
from tests.topology.fabrics import (
    PlannedLink,
    dcn_pluses,
    drawn,
    hpns,
    path_set,
    server,
    single_homed,
    switches,
)

fabrics = hpns() | dcn_pluses() | single_homed()


@settings(max_examples=60)
@given(fabrics, st.data())
def test_every_pair_of_nics_is_joined(fabric: Topology, data: st.DataObject) -> None:
    source, target = data.draw(st.sampled_from(fabric.nics)), data.draw(st.sampled_from(fabric.nics))
    if source != target:
        count = count_paths(fabric, source, target)
        assert count > 0
        paths = first_paths(fabric, source, target, 50)
        assert len(paths) == len(dict.fromkeys(paths)) == min(count, 50)
        for path in paths:
            assert fabric.nodes[fabric.links[path[0]].a].number == source
            assert fabric.nodes[fabric.links[path[-1]].a].number == target


@settings(max_examples=60)
@given(fabrics)
def test_a_switch_never_sends_a_packet_back_to_where_paths_began(fabric: Topology) -> None:
    source, target = fabric.nics[0], fabric.nics[-1]
    if source == target:
        return
    for path in first_paths(fabric, source, target, 20):
        tiers = [fabric.nodes[fabric.links[link].b].tier for link in path[:-1]]
        top = tiers.index(max(tiers))
        assert tiers[: top + 1] == sorted(tiers[: top + 1])
        assert tiers[top:] == sorted(tiers[top:], reverse=True)


@settings(max_examples=60)
@given(hpns(least_planes=2), st.data())
def test_what_leaves_port_0_arrives_on_port_0(fabric: Topology, data: st.DataObject) -> None:
    source, target = data.draw(st.sampled_from(fabric.nics)), data.draw(st.sampled_from(fabric.nics))
    if source != target:
        for path in first_paths(fabric, source, target, 200):
            assert fabric.links[path[0]].a_port == fabric.links[path[-1]].a_port
            leaves = {fabric.nodes[fabric.links[link].b].name.split("-")[-1] for link in (path[0], path[-1])}
            assert leaves == {str(fabric.links[path[0]].a_port)}


@settings(max_examples=60)
@given(hpns() | dcn_pluses(), st.data())
def test_losing_one_leaf_of_a_pair_keeps_every_nic_reachable(fabric: Topology, data: st.DataObject) -> None:
    leaf = data.draw(st.sampled_from([s for s in fabric.switches if fabric.nodes[s].tier == 1]))
    down = frozenset(port.link for port in fabric.ports(leaf))
    source, target = fabric.nics[0], data.draw(st.sampled_from(fabric.nics))
    if source != target:
        paths = path_set(fabric, source, target, down)
        assert paths
        for path in paths:
            assert not down & frozenset(path)


@settings(max_examples=60)
@given(hpns() | dcn_pluses(), st.data())
def test_losing_one_port_of_a_nic_keeps_it_reachable_from_every_port_of_its_plane(
    fabric: Topology, data: st.DataObject
) -> None:
    target = data.draw(st.sampled_from(fabric.nics))
    lost = data.draw(st.integers(0, 1))
    port = fabric.ports(target)[lost]
    assert port.kind == FABRIC
    down = frozenset([port.link])
    for source in fabric.nics[:4]:
        if source == target:
            continue
        ends = {fabric.links[path[0]].a_port for path in path_set(fabric, source, target, down)}
        apart = len(dict.fromkeys(planes(fabric).values()))
        assert ends == ({1 - lost} if apart == 2 else {0, 1})


def test_a_plane_that_is_cut_is_refused_by_its_leaf_though_the_other_plane_joins_everybody() -> None:
    nodes = [*server("a"), *server("b"), *switches("left-a", "left-b", "left-top", "right-a", "right-b")]
    links = [PlannedLink(f"{host}-nic-0", f"{side}-{host}") for host in "ab" for side in ("left", "right")]
    links += [PlannedLink(f"left-{host}", "left-top") for host in "ab"]
    with pytest.raises(TopologyError) as error:
        drawn(nodes, links)
    assert str(error.value) == (
        "links: the plane of right-a is cut: no path from the port of a-nic-0 there to b-nic-0;"
        " links that lead from right-a to b-nic-0"
    )
    links.append(PlannedLink("right-a", "right-b"))
    fabric = drawn(nodes, links)
    assert count_paths(fabric, fabric.nics[0], fabric.nics[1]) == 2
