"""Placement by what the jobs send: where the plan says more than uniform traffic would, fewer packets cross
and the busiest worker has less to do."""

from typing import Any

from click.testing import CliRunner

from actors.fabric.model import FABRIC, Topology
from emu.cli.main import cli
from emu.devices.drawing import draw
from emu.devices.pricing.planned_traffic import UNIT_BYTES, PlannedTraffic, planned_traffic
from emu.engine.blueprint import spread
from emu.engine.sync.placement import assign, planned_cut
from emu.scenario.load import load_mapping

MIB = 2**20 // UNIT_BYTES


def flows(*ends: tuple[int, int], size: str = "1MiB") -> dict[str, Any]:
    listed = [{"src": src, "dst": dst, "size": size} for src, dst in ends]
    return {"name": "a", "workload": {"kind": "flows", "flows": listed}}


def interleaved() -> dict[str, Any]:
    """Four racks of one host; racks 0 and 2 share a spine, and so do 1 and 3; a core joins the two."""
    nodes: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    for at in range(4):
        nodes += [{"name": f"h{at}", "role": "host"}, {"name": f"g{at}", "role": "gpu", "host": f"h{at}"}]
        nodes += [
            {"name": f"n{at}", "role": "nic", "host": f"h{at}"},
            {"name": f"leaf{at}", "role": "switch"},
        ]
        links += [{"a": f"n{at}", "b": f"leaf{at}"}, {"a": f"leaf{at}", "b": f"spine{at % 2}"}]
    nodes += [{"name": name, "role": "switch"} for name in ("spine0", "spine1", "core")]
    links += [{"a": "spine0", "b": "core"}, {"a": "spine1", "b": "core"}]
    fabric = {
        "kind": "graph",
        "nodes": nodes,
        "links": [{**one, "rate": "400G", "delay": "500ns"} for one in links],
    }
    return {"name": "x", "topology": fabric, "jobs": [flows((0, 2), (2, 0), (1, 3), (3, 1))]}


def planned_of(mapping: dict[str, Any]) -> tuple[Topology, PlannedTraffic]:
    blueprint = draw(load_mapping(mapping).scenario)
    planned = planned_traffic(blueprint.scenario, blueprint.topology, blueprint.plan)
    assert planned is not None
    return blueprint.topology, planned


def test_links_carry_what_the_flows_over_them_send_in_both_directions() -> None:
    topology, planned = planned_of(interleaved())
    carried = {
        tuple(sorted((topology.nodes[link.a].name, topology.nodes[link.b].name))): planned.links[link.number]
        for link in topology.links
        if link.kind == FABRIC
    }
    # Two flows of 1 MiB pass each link, and the acknowledgement of each of their packets comes back.
    expected = {(f"leaf{at}", f"n{at}"): 4 * MIB for at in range(4)}
    expected |= {(f"leaf{at}", f"spine{at % 2}"): 4 * MIB for at in range(4)}
    expected |= {("core", "spine0"): 0, ("core", "spine1"): 0}
    assert carried == expected


def test_racks_that_send_to_each_other_live_together() -> None:
    mapping = interleaved()
    topology, planned = planned_of(mapping)
    even, by_plan = (assign(topology, 2, planned=one) for one in (None, planned))
    names = {node.name: by_plan[node.number] for node in topology.nodes}
    assert names["leaf0"] == names["leaf2"] == names["spine0"] != names["leaf1"] == names["leaf3"]
    assert planned_cut(topology, by_plan, planned) == 0
    assert planned_cut(topology, even, planned) >= 8 * MIB, "neighbouring racks, as for uniform traffic"
    assert spread(draw(load_mapping(mapping).scenario), 2).assignment == by_plan


def test_racks_that_are_busy_are_shared_out_where_others_are_idle() -> None:
    fabric = {"kind": "ai_zone", "racks": 8, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2}
    first_four = [(rank, (rank + 2) % 8) for rank in range(8)]
    topology, planned = planned_of({"name": "x", "topology": fabric, "jobs": [flows(*first_four)]})
    busiest = []
    for one in (None, planned):
        assignment = assign(topology, 2, planned=one)
        handled = [0, 0]
        for nic in topology.nics:
            handled[assignment[nic]] += planned.loads[nic] - 1  # each has 1 at least
        busiest.append(max(handled) / sum(handled))
    assert busiest[0] > 0.99, "all eight hosts that send are in the first half of the racks"
    assert busiest[1] == 0.5


def test_traffic_that_is_as_even_as_none_is_placed_as_before() -> None:
    fabric = {"kind": "ai_zone", "racks": 8, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 2}
    everyone = [(a, b) for a in range(8) for b in range(8) if a != b]
    topology, planned = planned_of({"name": "x", "topology": fabric, "jobs": [flows(*everyone)]})
    assert assign(topology, 2, planned=planned) == assign(topology, 2)


def test_topo_prints_both_cuts() -> None:
    arguments = ["topo", "permutation", "--placement", "2", "--json"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert '"planned_cut_percent"' in result.output
    assert '"uniform_planned_cut_percent"' in result.output
