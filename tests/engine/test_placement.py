"""Does a placement host every device once, keep racks whole and cut what it says it cuts?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fabric.model import Topology
from emu.base.errors import UsageError
from emu.engine.sync.placement import (
    PLACEMENTS,
    Placement,
    assign,
    cut_links,
    expected_loads,
    workers_of,
)
from tests.topology.fabrics import (
    dcn_pluses,
    dual_tor,
    fabric_of,
    hpns,
    single_homed,
    switch_graphs,
    zone,
    zones,
)

fabrics = zones | switch_graphs() | hpns() | dcn_pluses() | single_homed()


def hosted(fabric: Topology, assignment: tuple[int, ...], worker: int) -> str:
    """The names of the devices of a worker."""
    return " ".join(node.name for node in fabric.nodes if assignment[node.number] == worker)


@given(fabrics, st.integers(1, 6), st.sampled_from(PLACEMENTS))
def test_workers_are_numbered_without_gaps_and_the_controller_is_on_the_first(
    fabric: Topology, workers: int, kind: Placement
) -> None:
    assignment = assign(fabric, min(workers, len(fabric.nodes) - 1), kind)
    assert len(assignment) == len(fabric.nodes)
    assert sorted(set(assignment)) == list(range(workers_of(assignment)))
    assert assignment[fabric.controller] == 0


@given(fabrics, st.data())
def test_packing_gives_each_of_the_workers_asked_for_a_device(fabric: Topology, data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, len(fabric.nodes) - 1))
    assignment = assign(fabric, workers)
    assert sorted(set(assignment[:-1])) == list(range(workers))
    assert assign(fabric, workers) == assignment


@given(fabrics)
def test_one_worker_hosts_everything_and_cuts_nothing(fabric: Topology) -> None:
    assignment = assign(fabric, 1)
    assert set(assignment) == {0}
    assert cut_links(fabric, assignment) == {}


@given(fabrics, st.integers(1, 5), st.sampled_from(PLACEMENTS))
def test_cut_links_are_those_between_workers_listed_both_ways(
    fabric: Topology, workers: int, kind: Placement
) -> None:
    assignment = assign(fabric, min(workers, len(fabric.nodes) - 1), kind)
    cuts = cut_links(fabric, assignment)
    assert list(cuts) == sorted(cuts)
    for (one, other), links in cuts.items():
        assert one != other
        assert cuts[other, one] == links == tuple(sorted(links))
        for link in links:
            ends = {assignment[fabric.links[link].a], assignment[fabric.links[link].b]}
            assert ends == {one, other}
    listed = sum(len(links) for links in cuts.values())
    crossing = [link for link in fabric.links if assignment[link.a] != assignment[link.b]]
    assert listed == 2 * len(crossing)


def test_two_workers_share_a_zone_rack_by_rack() -> None:
    fabric = zone(racks=4, hosts_per_rack=1, gpus_per_host=1, spines=2)
    assignment = assign(fabric, 2)
    assert hosted(fabric, assignment, 0) == (
        "host-0 gpu-0-0 nic-0-0 host-1 gpu-1-0 nic-1-0 rtsw-0 rtsw-1 ctsw-0 controller"
    )
    assert (
        hosted(fabric, assignment, 1) == "host-2 gpu-2-0 nic-2-0 host-3 gpu-3-0 nic-3-0 rtsw-2 rtsw-3 ctsw-1"
    )
    names = [fabric.links[link].name for link in cut_links(fabric, assignment)[0, 1]]
    assert names == ["rtsw-0:ctsw-1", "rtsw-1:ctsw-1", "rtsw-2:ctsw-0", "rtsw-3:ctsw-0"]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
def test_racks_stay_whole_and_parts_are_equal_where_they_divide(
    workers: int, racks_each: int, gpus: int, spines_each: int, hosts: int
) -> None:
    fabric = zone(workers * racks_each, hosts, gpus, workers * spines_each)
    assignment = assign(fabric, workers)
    for node in fabric.nodes:
        if node.rack >= 0:
            assert assignment[node.number] == node.rack // racks_each
    spines = [assignment[switch] for switch in fabric.switches if fabric.nodes[switch].tier == 2]
    assert [spines.count(worker) for worker in range(workers)] == [spines_each] * workers


def test_a_worker_with_fewer_racks_takes_more_spines() -> None:
    fabric = zone(racks=3, hosts_per_rack=1, gpus_per_host=8, spines=8)
    assignment = assign(fabric, 2)
    racks = [assignment[switch] for switch in fabric.switches[:3]]
    spines = [assignment[switch] for switch in fabric.switches[3:]]
    few = min((0, 1), key=racks.count)
    assert racks.count(few) == 1
    assert spines.count(few) > spines.count(1 - few)


def test_a_single_rack_falls_apart_into_servers_and_its_leaf() -> None:
    fabric = zone(racks=1, hosts_per_rack=4, gpus_per_host=2, spines=0)
    assignment = assign(fabric, 3)
    for node in fabric.nodes[:-1]:
        if node.host >= 0:
            assert assignment[node.number] == assignment[fabric.host_of(node.number)]
    leaf = assignment[fabric.switches[0]]
    assert [assignment[host] for host in fabric.hosts].count(leaf) < 2


def test_servers_fall_apart_only_when_there_are_too_few_pieces() -> None:
    fabric = zone(racks=1, hosts_per_rack=1, gpus_per_host=1, spines=0)
    assert sorted(assign(fabric, 4)[:-1]) == [0, 1, 2, 3]


def test_servers_on_the_same_two_leaves_stay_together() -> None:
    fabric = dual_tor(hosts=4)
    assignment = assign(fabric, 2, loads=[1] * 12 + [20] * 3 + [5] * 5 + [0])
    shared = {
        assignment[fabric.node_named(name).number] for name in ("h0", "h3", "h1-nic-0", "tor-a", "tor-b")
    }
    apart = {
        assignment[fabric.node_named(name).number] for name in ("far", "far-gpu-0", "far-nic-0", "tor-c")
    }
    assert shared | apart == {0, 1}
    assert len(shared) == len(apart) == 1


def test_given_loads_decide_the_balance() -> None:
    fabric = zone(racks=4, hosts_per_rack=1, gpus_per_host=1, spines=0 + 1)
    loads = [0] * len(fabric.nodes)
    for rack, load in enumerate((100, 100, 100, 300)):
        loads[fabric.hosts[rack]] = load
    assignment = assign(fabric, 2, loads=loads)
    assert [assignment[host] for host in fabric.hosts] == [0, 0, 0, 1]


def test_node_puts_each_server_and_each_switch_on_a_worker() -> None:
    fabric = zone(racks=2, hosts_per_rack=1, gpus_per_host=1, spines=1)
    assignment = assign(fabric, 0, "node")
    assert [hosted(fabric, assignment, worker) for worker in range(workers_of(assignment))] == [
        *("host-0 gpu-0-0 nic-0-0 controller", "host-1 gpu-1-0 nic-1-0", "rtsw-0", "rtsw-1", "ctsw-0"),
    ]


def test_device_puts_each_device_on_a_worker_and_the_controller_with_the_first() -> None:
    fabric = zone(racks=1, hosts_per_rack=1, gpus_per_host=1, spines=0)
    assert assign(fabric, 0, "device") == (0, 1, 2, 3, 0)


@pytest.mark.parametrize("workers", [0, -1, 15])
def test_more_workers_than_devices_are_refused(workers: int) -> None:
    with pytest.raises(UsageError, match="workers for 14 devices; accepted: from 1 to 14"):
        assign(zone(), workers)


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("kind", ["llama3", "hpn", "dcn_plus", "megascale"])
def test_the_large_fabrics_are_packed_evenly_with_few_links_cut(kind: str, workers: int) -> None:
    fabric = fabric_of(kind=kind, pods=2)
    loads = expected_loads(fabric)
    assignment = assign(fabric, workers, "packed", loads)
    share = [0] * workers
    for node, worker in enumerate(assignment):
        share[worker] += loads[node]
    assert max(share) * workers * 100 < sum(share) * 105
    cut = sum(len(links) for links in cut_links(fabric, assignment).values()) // 2
    assert 4 * cut <= len(fabric.links)
