"""Does every kind of workload run soundly on every kind of fabric, with defaults only?

Each fabric is the smallest that has its mechanism. `make test` runs every pair of kinds once, with protocols
dealt over them, and collectives by rates; `make soak` runs every pair with every protocol, and by rates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from actors.fabric.model import FABRIC, Topology
from emu.api import prepare, run
from emu.results.summary import Collective, Summary
from emu.scenario.sections.topology import TOPOLOGIES
from emu.scenario.workloads.jobs import WORKLOADS
from emu.summary.summary_report import closing_lines
from tests.conftest import SOAK
from tests.topology.test_runs import FABRICS

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).resolve().parents[2] / "scenarios"
HOSTS: Final = range(4)


def spelled_out() -> dict[str, Any]:
    """Two switches with two servers each, and two cables between."""
    nodes: list[dict[str, Any]] = [{"name": name, "role": "switch"} for name in ("left", "right")]
    for host in HOSTS:
        nodes.append({"name": f"host-{host}", "role": "host"})
        nodes += [{"name": f"{role}-{host}", "role": role, "host": f"host-{host}"} for role in ("gpu", "nic")]
    cable = {"rate": "400G", "delay": "500ns"}
    ends = [(f"nic-{host}", "left" if host < 2 else "right") for host in HOSTS]
    ends += [("left", "right")] * 2
    return {"kind": "graph", "nodes": nodes, "links": [{"a": a, "b": b, **cable} for a, b in ends]}


PRESETS: Final[dict[str, dict[str, Any]]] = {
    **{name: {"kind": name, **given} for name, given in FABRICS.items()},
    "one server": {"kind": "star", "hosts": 1, "gpus_per_host": 8},
    "ai_zone": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 2},
    "multi_plane": {"kind": "multi_plane", "planes": 2, "hosts": 4, "gpus_per_host": 1, "nic_ports": 2},
    "graph": spelled_out(),
    "file": {"kind": "file", "format": "ns3", "path": str(ROOT / "fabrics" / "topology_file.txt")},
}

MODEL: Final[dict[str, Any]] = {
    "model": "own",
    "own": {"layers": 2, "hidden": 1024, "heads": 16, "kv_heads": 16, "ffn": 4096, "sequence": 256},
}
STORAGE: Final = {"checkpoint", "reads", "repair", "rebalance"}
FOUR_RANKS: Final = {"simai_trace", "chakra_trace", "serving", "flow_table", "training"}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "collective": {"op": "all_reduce", "sizes": ["8B", "64KiB", "512KiB", "2MiB"]},
    "simai_trace": {"file": str(ROOT / "workloads" / "trace.txt")},
    "chakra_trace": {"file": str(ROOT / "workloads" / "chakra")},
    "permutation": {"size": "256KiB"},
    "incast": {"size": "128KiB", "fan_in": 3},
    "flows": {"flows": [{"src": src, "dst": src + 1, "size": "256KiB"} for src in (0, 2)]},
    "flow_table": {},
    "poisson": {"flows": 20, "size_scale": "1/20"},
    "poisson_incasts": {"fan_in": 2, "size": "64KiB", "incasts": 4},
    "training": {**MODEL, "tp": 2, "micro_batches": 2},
    "serving": {
        **MODEL,
        "prefills": 2,
        "decodes": 2,
        "requests": 4,
        "rate": 20000,
        "prompt": 64,
        "output": 2,
    },
    "program": {
        "operations": [
            {"do": "compute", "time": "5us"},
            {"do": "all_reduce", "size": "64KiB"},
            {"do": "all_gather", "size": "64KiB"},
            {"do": "barrier"},
        ]
    },
    "checkpoint": {"size": "200KB"},
    "reads": {"size": "200KB", "steps": 1, "every": "1ms"},
    "repair": {"server": 1, "size": "500KB", "block": "50KB", "parity": 1},
    "rebalance": {"server": 1, "size": "500KB", "block": "50KB"},
}
PROTOCOLS: Final = ("auto", "simple", "ll128", "ll")
IN_A_SERVER: Final = {"nvls": 490.3, "": 370.8}
"""GB/s of busbw that eight H100 reach with NVLS, and otherwise: what NVLinks carry (480, 370 published)."""
MEMBERS: Final = [
    (preset, kind, protocol, "packet")
    for row, preset in enumerate(PRESETS)
    for column, kind in enumerate(KINDS)
    for turn, protocol in enumerate(PROTOCOLS)
    if SOAK or (row + column) % len(PROTOCOLS) == turn
] + [(preset, kind, "auto", "flow") for preset in PRESETS for kind in (KINDS if SOAK else ["collective"])]


def test_no_kind_is_left_out() -> None:
    """Of `open`, what runs is posted from outside: tests/engine/test_open*.py."""
    assert {one["kind"] for one in PRESETS.values()} == set(TOPOLOGIES.table)
    assert set(KINDS) == set(WORKLOADS.table) - {"open"}


def most_gbytes(topology: Topology, row: Collective) -> float:
    """What a call's busbw is below. No algorithm sends a server less than S once, as trees of NVSwitches over
    two servers, and busbw counts it twice: between servers it is twice what their NICs carry.
    """
    hosts = {topology.host_of(gpu) for gpu in topology.gpus}
    first = topology.host_of(topology.gpus[0])
    inside = max(IN_A_SERVER.get(row.algorithm, 0), IN_A_SERVER[""])
    if len(hosts) == 1 or row.communicator:
        return inside
    nics = [nic for nic in topology.nics if topology.host_of(nic) == first]
    line_bps = sum(end.rate_bps for nic in nics for end in topology.ports(nic) if end.kind == FABRIC)
    return 2 * line_bps * 4096 / 4178 / 8e9


def faults_of(topology: Topology, summary: Summary) -> list[str]:
    """What is unsound about a run that set nothing."""
    found: list[str] = []
    job, fabric = summary.jobs["job"], summary.fabric
    if job.status != "success":
        found.append(f"ended with {job.status}")
    for link in fabric.links:
        shares: dict[str, float | None] = {"busy": link.utilisation}
        if summary.fidelity == "packet":
            shares["paused"] = link.paused
        found += [
            f"{link.source} to {link.destination}: {name} {share}"
            for name, share in shares.items()
            if share is None or not 0 <= share <= 1
        ]
    lines = closing_lines(summary)
    if fabric.timers is not None:
        found.append(f"a timer fired: {fabric.timers}")
    if (fabric.timers is not None) != any(line.startswith("timers: ") for line in lines):
        found.append("timers and their line")
    for row in job.collectives:
        if row.ranks > 1 and row.bytes and row.algorithm and not row.busbw:
            found.append(f"no busbw of {row.op} of {row.bytes} B")
        if row.busbw and row.busbw / 8e9 > most_gbytes(topology, row):
            found.append(f"{row.op} of {row.bytes} B by {row.algorithm}: {row.busbw / 8e9} GB/s")
    if job.training is not None and not any(line.startswith("computing ") for line in lines):
        found.append("no shares of a step")
    return found


@pytest.mark.parametrize(("preset", "kind", "protocol", "fidelity"), MEMBERS)
def test_every_kind_of_work_runs_soundly_on_every_kind_of_fabric(
    preset: str, kind: str, protocol: str, fidelity: str, tmp_path: Path
) -> None:
    workload = {"kind": kind, **KINDS[kind]}
    if kind == "flow_table":
        table = tmp_path / "flows.csv"
        table.write_text("src,dst,size,start\n0,2,256KiB,0\n1,3,64KiB,10us\n", encoding="utf-8")
        workload["file"] = str(table)
    job = {"name": "job", "workload": workload} | ({"ranks": 4} if kind in FOUR_RANKS else {})
    given = {
        "name": "defaults",
        "fidelity": fidelity,
        "topology": PRESETS[preset],
        "ncclx": {"protocol": protocol},
        "jobs": [job],
    }
    if kind in STORAGE:
        given["frontend"] = {"enabled": True, "storage": {"servers": 4}, "metadata": {"servers": 1}}
    result = run(given, local=True, diagnose=False)
    assert result.exit_status == 0
    assert faults_of(prepare(given).topology, result.summary) == []
    if kind in ("collective", "program", "simai_trace", "chakra_trace"):
        assert result.summary.jobs["job"].collectives
