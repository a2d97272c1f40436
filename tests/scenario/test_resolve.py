"""What do a scenario's words mean on its fabric, and is what does not fit refused with its line?"""

from pathlib import Path

import pytest

from actors.fabric.model import Role
from emu.scenario.faults.events import LinkChange
from emu.scenario.resolve import build_topology
from emu.scenario.workloads.flows import FlowList
from emu.workload.flows import Flow
from tests.scenario.scenarios import (
    ROOT,
    SMALL,
    from_file,
    loaded,
    refusals,
    resolved,
    scenario,
    unresolvable,
)

FLOWS = SMALL.replace(
    "{kind: collective, op: all_reduce, sizes: [1MiB]}",
    "{kind: incast, size: 1KiB, fan_in: 2}",
)
GRAPH = from_file(ROOT / "scenarios/fabrics/graph.yaml")


def test_ranks_are_gpus_by_node_number() -> None:
    topology = build_topology(scenario())
    (job,) = resolved().jobs
    assert job.gpus == topology.gpus
    assert job.racks == (0, 0, 0, 0, 1, 1, 1, 1)
    (job,) = resolved(SMALL, "jobs[0].order=strided", "jobs[0].ranks=[0, 1, 7]").jobs
    assert [topology.nodes[gpu].name for gpu in job.gpus] == ["gpu-0-0", "gpu-3-1", "gpu-0-1"]
    assert job.racks == (0, 1, 0)


def test_flows_are_planned_for_flows_and_for_nothing_else() -> None:
    assert resolved().jobs[0].flows == ()
    assert resolved(FLOWS).jobs[0].flows == (Flow(1, 0, 1024), Flow(2, 0, 1024))
    assert [flow.src for flow in resolved(FLOWS, "jobs[0].workload.racks=distinct").jobs[0].flows] == [4, 5]


def test_faults_become_changes_of_links_by_number() -> None:
    topology = build_topology(scenario())
    (link,) = topology.links_named("rtsw-0:ctsw-1")
    fault = "faults=[{kind: link_down, at: 1us, for: 2us, target: 'ctsw-1:rtsw-0'}]"
    assert resolved(SMALL, fault).link_changes == (
        LinkChange(1_000_000, link, False, 0),
        LinkChange(3_000_000, link, True, 0),
    )


def test_a_link_that_is_several_goes_down_as_a_whole_or_by_its_number() -> None:
    double = "topology.uplinks_per_leaf_spine=2"
    both = "faults=[{kind: link_down, at: 1us, target: 'rtsw-0:ctsw-1'}]"
    one = "faults=[{kind: link_down, at: 1us, target: 'rtsw-0:ctsw-1/1'}]"
    assert len(resolved(SMALL, double, both).link_changes) == 2
    assert len(resolved(SMALL, double, one).link_changes) == 1


def test_a_graph_is_built_node_by_node() -> None:
    topology = build_topology(GRAPH)
    assert [node.name for node in topology.nodes if node.role is Role.SWITCH] == ["left", "right", "top"]
    assert len(topology.gpus) == 3


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("jobs[0].ranks=9", "jobs[0].ranks: 9 ranks on a fabric of 8 GPUs; accepted: at most 8"),
        (
            "jobs[0].ranks=[0, 8]",
            "jobs[0].ranks: there is no GPU 8: the fabric has 8; accepted: numbers from",
        ),
        ("jobs[0].order=[1, 0]", "jobs[0].order: does not order 8 ranks; accepted: each of 0 to 7 once"),
        ("jobs[0].workload.fan_in=8", "jobs[0].workload.fan_in: 8 senders, but the job has 7 other ranks"),
        ("jobs[0].workload.destination=8", "jobs[0].workload.destination: there is no rank 8: the job has 8"),
        (
            "jobs[0].workload={kind: flows, flows: [{src: 0, dst: 8, size: 1B}]}",
            "jobs[0].workload.flows[0].dst: there is no rank 8: the job has 8; accepted: a rank from 0 to 7",
        ),
        (
            "faults=[{kind: link_down, at: 0, target: 'rtsw-0:ctsw-2'}]",
            "faults[0].target: no link is named 'rtsw-0:ctsw-2'; did you mean",
        ),
        (
            "faults=[{kind: link_down, at: 0, target: 'host-0:gpu-0-0'}]",
            "faults[0].target: 'host-0:gpu-0-0' is inside a server; accepted: a link of the fabric",
        ),
    ],
)
def test_what_the_fabric_does_not_have_is_refused_by_key(assignment: str, said: str) -> None:
    (reported,) = unresolvable(FLOWS, assignment)
    assert reported.startswith(f"--set {assignment}: {said}")


def test_everything_that_does_not_fit_is_reported_at_once_with_its_line() -> None:
    text = FLOWS.replace("fan_in: 2", "fan_in: 20") + (
        "faults:\n  - {kind: link_down, at: 0, target: 'a:b'}\n  - {kind: link_up, at: 1us, target: 'c:d'}\n"
    )
    assert [line.split(": ")[:2] for line in unresolvable(text)] == [
        ["file:5", "jobs[0].workload.fan_in"],
        ["file:7", "faults[0].target"],
        ["file:8", "faults[1].target"],
    ]


def test_a_graph_that_cannot_be_is_refused_with_its_line() -> None:
    text = (ROOT / "scenarios/fabrics/graph.yaml").read_text(encoding="utf-8")
    line = next(at for at, one in enumerate(text.splitlines(), 1) if "a: nic-b" in one)
    (reported,) = unresolvable(text.replace("a: nic-b", "a: nic-bb"))
    assert reported.startswith(
        f"file:{line}: topology.links[1].a: no device is named 'nic-bb'; did you mean 'nic-b'?"
    )
    (reported,) = unresolvable(text, "topology.links[1].b=nic-a", "topology.links[3].b=top")
    assert "not connected" in reported or "hangs on no link" in reported


def test_gpus_and_nics_need_a_host_and_nobody_else_has_one() -> None:
    text = (ROOT / "scenarios/fabrics/graph.yaml").read_text(encoding="utf-8")
    host, tier = "topology.nodes[0].host=host-b", "topology.nodes[1].tier=2"
    assert refusals(text, host, tier) == [
        f"--set {host}: topology.nodes[0].host: a host belongs to no host; accepted: no host here",
        f"--set {tier}: topology.nodes[1].tier: a gpu has no tier; accepted: no tier here",
    ]


def test_a_table_becomes_flows_that_remember_their_lines(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("src,dst,size\n0,1,1KiB\n# more\n1,9,2KiB\n", encoding="utf-8")
    text = SMALL.replace(
        "{kind: collective, op: all_reduce, sizes: [1MiB]}", "{kind: flow_table, file: t.csv}"
    )
    found = loaded(text, directory=tmp_path)
    workload = found.scenario.jobs[0].workload
    assert isinstance(workload, FlowList)
    assert [(flow.src, flow.dst, flow.size_bytes) for flow in workload.flows] == [(0, 1, 1024), (1, 9, 2048)]
    place = found.source.tree.find(("jobs", 0, "workload", "flows", 1, "dst"))
    assert (place.file, place.line) == (str(tmp_path / "t.csv"), 4)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("src,dst\n0,1\n", "{table}:1: jobs[0].workload.file: columns src,dst; accepted: src,dst,size"),
        ("src,dst,size\n0,0,1KiB\n", "{table}:2: jobs[0].workload.flows[0].dst: rank 0 sends to itself"),
        ("src,dst,size\n0,1,1K\n", "{table}:2: jobs[0].workload.flows[0].size: '1K': 'K' may mean KB"),
        ("src,dst,size_bytes\n0,one,7\n", "{table}:2: jobs[0].workload.flows[0].dst: 'one' is not a whole"),
        (None, "file:5: jobs[0].workload.file: {table}: there is no such file"),
    ],
)
def test_what_is_wrong_in_a_table_is_reported_with_its_own_line(
    tmp_path: Path, table: str | None, said: str
) -> None:
    if table is not None:
        (tmp_path / "t.csv").write_text(table, encoding="utf-8")
    text = SMALL.replace(
        "{kind: collective, op: all_reduce, sizes: [1MiB]}", "{kind: flow_table, file: t.csv}"
    )
    (reported,) = refusals(text, directory=tmp_path)
    assert reported.startswith(said.format(table=tmp_path / "t.csv"))


def test_links_and_devices_that_switch_sections_name_must_exist() -> None:
    half = "overrides=[{devices: rtsw-0, switch: {pfc: {ignores: [nic-9-9]}}}]"
    reported = unresolvable(SMALL, "routing.link_weights=[{link: 'rtsw-0:ctsw-9', weight: 2}]", half)
    assert len(reported) == 2
    assert "routing.link_weights[0].link: no link is named 'rtsw-0:ctsw-9'" in reported[0]
    assert "overrides[0].switch.pfc.ignores[0]: no link leads to 'nic-9-9'" in reported[1]
