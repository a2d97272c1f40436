"""Is the page on topologies true?"""

import re
from pathlib import Path

from emu.cli.topo_views import round_trip
from emu.scenario.load import load_text
from emu.scenario.resolve import build_topology
from emu.topology.outline import describe, outline, to_text

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "topologies.md").read_text(encoding="utf-8")
JOB = "name: x\njobs: [{name: a, workload: {kind: permutation, size: 1MiB}}]\n"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(found, str)
    return found


def test_the_figures_on_the_page_are_those_of_its_fabric() -> None:
    scenario = load_text(JOB + block("yaml")).scenario
    fabric = build_topology(scenario)
    (line,) = round_trip(scenario, fabric)
    assert block("text-topo") == f"{to_text(describe(fabric))}\n{line}\n\n{outline(fabric)}\n"


def test_the_file_on_the_page_is_read() -> None:
    loaded = load_text(JOB + block("yaml-file"), directory=ROOT / "scenarios/fabrics")
    assert len(build_topology(loaded.scenario).gpus) == 4


def test_the_names_on_the_page_are_those_that_are_given() -> None:
    small = {
        "ai_zone": "racks: 2, hosts_per_rack: 1, spines: 1",
        "llama3": "pods: 2, racks_per_pod: 1",
        "hpn": "pods: 2, hosts_per_segment: 1",
        "dcn_plus": "pods: 2",
        "megascale": "pods: 2, hosts_per_block: 1",
        "multi_plane": "tiers: 3, radix: 4, hosts: 8, planes: 2, gpus_per_host: 2",
        "fat_tree": "k: 4",
        "rail_only": "segments: 2, hosts_per_segment: 1, aggs_per_rail: 1",
    }
    rows = re.findall(r"^\| `(\w+)` \| (`\w+-<.*>`.*) \|$", PAGE, re.MULTILINE)
    assert [kind for kind, _ in rows] == list(small)
    for kind, cells in rows:
        fabric = build_topology(load_text(f"{JOB}topology: {{kind: {kind}, {small[kind]}}}\n").scenario)
        shapes = dict.fromkeys(
            re.sub(r"[0-9]+", "#", fabric.nodes[switch].name) for switch in fabric.switches
        )
        shown = [re.sub(r"<\w+>", "#", cell.strip(" `")) for cell in cells.split("|")]
        assert list(shapes) == [name for name in shown if name]
