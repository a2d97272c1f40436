"""Devices that are built when something first happens to them: nothing tells them from others."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.fabric.model import Role
from actors.kernel.event import NEVER_PS
from actors.kernel.kernel import Idle
from emu import api
from emu.devices.sleeping import IdleKinds
from emu.engine.sync.logical_process import records_of
from tests.engine.spread_runs import SpreadRun, plan_of

IDLE = {
    "name": "idle",
    "topology": {"kind": "llama3", "pods": 2, "racks_per_pod": 4},
    "jobs": [
        {
            "name": "one",
            "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 100, "size": "256KiB"}]},
        }
    ],
    "run": {"sample_every": "5us"},
    "faults": [
        {"kind": "link_down", "target": "rtsw-6:ctsw-1-3", "at": "20us", "for": "30us"},
        {"kind": "switch_crash", "target": "ctsw-0-1", "at": "15us"},
    ],
}
"""One flow across two pods; of the faults one strikes where nothing goes on."""
OF_EACH_KIND = (
    "tiny_all_reduce",
    "ring_deadlock",
    "traffic_engineering",
    "dual_tor_planes",
    "multipath_loss",
    "storage_tectonic",
    "story_headroom",
    "operator_gpu_lost",
    "payload_real",
    "bit_errors",
    "cut_through",
    "sonic",
    "pod",
)
"""Shipped scenarios whose switches, NICs, hosts or fabrics differ; most have devices that no flow reaches."""


def test_devices_that_sleep_are_those_of_which_nothing_is_planned() -> None:
    prepared = api.prepare(IDLE)
    kinds = IdleKinds(prepared.scenario, prepared.topology, prepared.plan)
    nodes = prepared.topology.nodes
    awake = [node for node in nodes if kinds.of(node.number) is None]
    assert sorted(node.name for node in awake) == ["controller", "host-0", "nic-0-0", "nic-12-4"]
    by_role = {role: {kinds.of(one.number) for one in nodes if one.role is role} for role in Role}
    # A place in the server may matter to a NIC and a GPU; a fabric has three kinds of switches.
    assert {role: len(found - {None}) for role, found in by_role.items()} == {
        Role.GPU: 8,
        Role.NIC: 8,
        Role.HOST: 1,
        Role.SWITCH: 3,
        Role.NVSWITCH: 1,
        Role.CONTROLLER: 0,
    }


@pytest.mark.parametrize("name", ["idle", *OF_EACH_KIND])
def test_a_device_that_sleeps_is_what_it_is_once_it_is_built(name: str, tmp_path: Path) -> None:
    if name == "idle":
        name = str(tmp_path / "idle.yaml")
        Path(name).write_text(json.dumps(IDLE), "utf-8")
    partition = plan_of(name, 1).partition(0)
    kernel, sleepers = partition.kernel, partition.kernel.sleepers
    asleep = {number: sleepers.idle(number) for number in kernel.asleep()} if sleepers is not None else {}
    before = len(kernel.pending())
    for number, idle in asleep.items():
        device = kernel.device(number)
        assert idle.silent
        built = Idle(device)
        assert vars_of(built) == vars_of(idle), device
        device.start()
        assert device.due_ps == NEVER_PS
        assert device.executed == device.progress == 0
    assert len(kernel.pending()) == before
    assert not kernel.asleep()


def vars_of(idle: Idle) -> tuple[object, ...]:
    series = [one.place for one in idle.series]
    return series, idle.counters, idle.end_states, idle.results, idle.first_reading


def results(directory: Path) -> dict[str, Any]:
    """What a run left, without how it was carried out."""
    names = ("ports.csv", "samples.jsonl", "digests.jsonl", "shown.jsonl", "flows.csv", "summary.json")
    found: dict[str, Any] = {name: (directory / name).read_text("utf-8") for name in names}
    found["summary.json"] = json.loads(found["summary.json"]) | {"engine": None}
    return found


@pytest.mark.parametrize("parts", [1, 3])
def test_a_run_leaves_the_same_whether_devices_sleep_or_not(
    parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.run(IDLE, local=True, parts=parts, out=tmp_path / "asleep")
    with monkeypatch.context() as patched:
        patched.setattr(IdleKinds, "of", lambda _self, _number: None)
        api.run(IDLE, local=True, out=tmp_path / "awake")
    assert results(tmp_path / "asleep") == results(tmp_path / "awake")


def test_devices_that_slept_when_a_snapshot_was_taken_are_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "idle.yaml").write_text(json.dumps(IDLE), "utf-8")
    plan = plan_of(str(tmp_path / "idle.yaml"), 2)
    first = SpreadRun(plan)
    first.start()
    first.snapshot_at(10_000_000)
    first.run()
    assert first.snapshot is not None
    whole = first.digest()
    again = SpreadRun(plan)
    again.resume(first.snapshot)
    assert any(one.partition.kernel.asleep() for one in again.logical_processes)
    again.run()
    assert again.digest() == whole


def test_idle_devices_are_marked_wherever_they_live() -> None:
    def idle(parts: int) -> list[int]:
        run = SpreadRun(plan_of("quickstart", parts))
        run.start()
        run.run()
        found = [record for one in run.logical_processes for record in records_of(one.partition)]
        return sorted(record.number for record in found if record.idle)

    assert idle(1) == idle(3)
