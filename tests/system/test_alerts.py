"""Does a fault of each harmful kind fire an alert that names device, port and peer?

docs/metrics.md has the table of `FAULTS`; a live run with a real Prometheus gets each of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from emu.engine.live.control_socket import ask
from tests.engine.patience import until
from tests.system.test_prometheus import NEEDS_PROMETHEUS, ROOT, Watch, watching

PAGE = ROOT / "docs" / "metrics.md"
PAIRS = """
name: pairs
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 12, gpus_per_host: 1, spines: 4}
switch: {ecn: {enabled: false}}
transport: {timeout: 6}
ncclx: {protocol: simple}
jobs:
"""
WORK = "{kind: collective, op: all_reduce, sizes: [256KiB]}"
COMPUTING = """  - name: computing
    ranks: [11, 23]
    workload: {kind: program, operations: [{do: compute, time: 50us}, {do: all_reduce, size: 64KiB}]}
"""
JOBS = (f"  - {{name: pair{at}, ranks: [{at}, {at + 12}], workload: {WORK}}}\n" for at in range(11))
SCENARIO = PAIRS + "".join(JOBS) + COMPUTING


class Broken(NamedTuple):
    """A fault, and what its alert says."""

    fault: dict[str, Any]
    alert: str
    device: str
    peer: str
    """Empty where the device itself is at fault: a GPU, or the job of a rank."""

    def row(self) -> str:
        """In the table of the page."""
        kind = self.fault["kind"]
        how = next((f" (`{key}`)" for key in ("loss", "bit_errors") if key in self.fault), "")
        names = f"{self.device}, port, peer {self.peer}" if self.peer else self.device
        return f"| `{kind}`{how} of `{self.fault['target']}` | `{self.alert}` | {names} |"


FAULTS = (
    Broken({"kind": "link_down", "target": "rtsw-0:ctsw-0"}, "EmuPortDown", "rtsw-0", "ctsw-0"),
    Broken({"kind": "switch_crash", "target": "ctsw-1"}, "EmuPortDown", "rtsw-1", "ctsw-1"),
    Broken({"kind": "nic_down", "target": "nic-0-0"}, "EmuPortDown", "rtsw-0", "nic-0-0"),
    Broken({"kind": "host_lost", "target": "host-1"}, "EmuPortDown", "rtsw-0", "nic-1-0"),
    Broken({"kind": "port_down", "target": "rtsw-0>nic-2-0"}, "EmuPortDown", "nic-2-0", "rtsw-0"),
    Broken(
        {"kind": "link_flap", "target": "rtsw-0:nic-3-0", "down": "50us", "up": "500us", "flaps": 40},
        "EmuLinkFlaps",
        "rtsw-0",
        "nic-3-0",
    ),
    Broken(
        {"kind": "degrade", "target": "rtsw-0:nic-4-0", "sender": "rtsw-0", "loss": "1/50"},
        "EmuCorruptFrames",
        "nic-4-0",
        "rtsw-0",
    ),
    Broken(
        {"kind": "degrade", "target": "rtsw-0:nic-5-0", "sender": "nic-5-0", "bit_errors": "1/1000000"},
        "EmuCorruptFrames",
        "rtsw-0",
        "nic-5-0",
    ),
    Broken({"kind": "gpu_slow", "target": "gpu-6-0", "factor": 4}, "EmuSlowGpu", "gpu-6-0", ""),
    Broken({"kind": "straggler", "target": "host-11", "factor": 2}, "EmuSlowComputing", "host-11", ""),
    Broken(
        {"kind": "slow_receiver", "target": "nic-7-0", "rate": "1G"}, "EmuPortPaused", "rtsw-0", "nic-7-0"
    ),
    Broken({"kind": "pause_storm", "target": "nic-8-0"}, "EmuPausesFromEmptyBuffer", "nic-8-0", "rtsw-0"),
    Broken({"kind": "pause_storm", "target": "nic-8-0"}, "EmuPortPaused", "rtsw-0", "nic-8-0"),
)
"""In this order: the last two stop what goes through their leaf."""


def named(seen: Watch, one: Broken) -> list[dict[str, str]]:
    """The alerts that name what is broken."""
    return [
        labels
        for labels in seen.firing(one.alert)
        if labels.get("device") == one.device and labels.get("peer", "") == one.peer
    ]


@NEEDS_PROMETHEUS
def test_each_fault_that_harms_fires_an_alert_that_names_device_port_and_peer(tmp_path: Path) -> None:
    with watching(tmp_path, SCENARIO, "1ms/s") as seen:
        run = tmp_path / "run"
        until(lambda: seen.value("sum(emu_job_operations_total)"))
        until(lambda: seen.value("count(emu:gpu_copy_seconds_per_byte) >= 20"))
        for alert in {one.alert for one in FAULTS}:
            assert seen.firing(alert) == []
        injected: dict[str, int] = {}
        for one in FAULTS:
            key = f"{one.fault['kind']} {one.fault['target']}"
            if key not in injected:
                injected[key] = len(injected)
                ask(run, {"do": "inject", "fault": one.fault})
            found = until(partial(named, seen, one))
            if one.peer:
                assert all(labels["port"].isdigit() for labels in found)
            if one.fault["kind"] == "slow_receiver":
                ask(run, {"do": "clear", "fault": injected[key]})


def test_the_page_says_which_alert_a_fault_fires() -> None:
    table = "\n".join(["| fault | alert | names |", "|---|---|---|", *(one.row() for one in FAULTS)])
    assert table in PAGE.read_text("utf-8")
