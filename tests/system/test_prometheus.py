"""Does a real Prometheus find a live run, see a fault in it, and fire the alert?"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from emu.measure.prometheus import dashboard
from emu.runtime.live.control_socket import ask
from tests.measure.prometheus import INSTALLED, Prometheus
from tests.runtime.patience import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
NEEDS_PROMETHEUS = pytest.mark.skipif(
    not INSTALLED, reason="Prometheus is not installed (apt install prometheus)"
)


INTERVALS = {
    "scrape_interval: 1s": "scrape_interval: 200ms",
    "scrape_timeout: 900ms": "scrape_timeout: 190ms",
    "evaluation_interval: 1s": "evaluation_interval: 200ms",
}
TWO_JOBS = """
name: live
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 1, gpus_per_host: 2, spines: 2}
switch: {ecn: {enabled: true}}
transport: {timeout: 6, congestion_control: {kind: dcqcn}}
jobs:
  - {name: ring, ranks: 2, placement: scattered,
     workload: &ring {kind: collective, op: all_reduce, sizes: [256KiB]}}
  - name: other
    ranks: 2
    placement: scattered
    workload:
      kind: program
      operations: [{do: compute, time: 20us}, {do: all_reduce, size: 256KiB}]
"""


def configured(place: Path, discovery: str) -> Path:
    """The configuration of `deploy/`, which looks for the run at `discovery`, five times as often."""
    for name in ("recording.yml", "alerts.yml"):
        shutil.copy(DEPLOY / name, place / name)
    text = (DEPLOY / "prometheus.yml").read_text("utf-8")
    for shipped, wanted in (INTERVALS | {"http://127.0.0.1:9400/sd": discovery}).items():
        assert text.count(shipped) == 1
        text = text.replace(shipped, wanted)
    (place / "prometheus.yml").write_text(text, "utf-8")
    return place / "prometheus.yml"


class Watch:
    """What a server sees of a run, now: nothing where its last scrape failed, as of a process that was
    stopped for a moment. So what must come is waited for."""

    def __init__(self, server: Prometheus) -> None:
        self.server = server

    def value(self, query: str) -> float | None:
        found = self.server.vector(query)
        return float(found[0]["value"][1]) if found else None

    def answers(self, query: str) -> bool:
        """Whether a query is taken."""
        return self.server.vector(query) is not None

    def shows(self, query: str) -> bool:
        """Whether a query has a value."""
        return self.value(query) is not None

    def comes_to(self, query: str, value: float) -> None:
        """Wait until a query has this value."""
        until(lambda: self.value(query) == value)

    def alerts(self) -> list[dict[str, dict[str, str]]]:
        """The alerts that are fired."""
        return [one for one in self.server.get("alerts")["alerts"] if one["state"] == "firing"]

    def firing(self, alert: str) -> list[dict[str, str]]:
        """The labels of an alert that is fired, line by line."""
        labels = [one["labels"] for one in self.alerts()]
        return [one for one in labels if one["alertname"] == alert]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Watch, Path]]:
    """A live run, and a Prometheus that watches it."""
    out = tmp_path / "run"
    scenario = tmp_path / "live.yaml"
    scenario.write_text(TWO_JOBS, "utf-8")
    run = subprocess.Popen(
        [sys.executable, "-m", "emu.cli.main", "up", scenario, "--local", "--pace", "1ms/s", "--out", out],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert run.stdout is not None
    discovery = next(line.split()[-1] for line in run.stdout if line.startswith("metrics of "))
    try:
        prometheus = Prometheus(configured(tmp_path, discovery), tmp_path / "data")
        try:
            yield Watch(prometheus), out
        finally:
            prometheus.close()
    finally:
        os.killpg(run.pid, signal.SIGINT)
        run.communicate(timeout=PATIENCE_S)


@NEEDS_PROMETHEUS
def test_prometheus_reads_the_run_and_fires_the_alert_of_an_injected_fault(
    watched: tuple[Watch, Path],
) -> None:
    seen, out = watched
    until(lambda: seen.value("emu_job_operations_total"))
    seen.comes_to("count(emu_port_up == 1)", 16)
    seen.comes_to('emu_run_info{run="live",role="worker"}', 1)
    assert not seen.firing("EmuPortDown")
    fault = {"kind": "link_down", "target": "rtsw-0:ctsw-0"}
    answer = ask(out, {"do": "inject", "fault": fault})
    down = until(lambda: seen.firing("EmuPortDown"))
    assert {one["device"] for one in down} == {"rtsw-0", "ctsw-0"}
    assert {one["severity"] for one in down} == {"page"}
    seen.comes_to("emu_faults_active", 1)
    until(lambda: (seen.value("emu_virtual_seconds_total") or 0) * 1e12 > answer["at_ps"])
    seen.comes_to('sum(emu_port_link_downed_total{device="rtsw-0"})', 1)
    ask(out, {"do": "clear", "fault": 0})
    seen.comes_to("count(emu_port_up == 1)", 16)
    until(lambda: not seen.firing("EmuPortDown"))
    seen.comes_to("emu_faults_active", 0)
    until(lambda: seen.value("emu:delivered_bits_per_virtual_second"))
    shown = dashboard.dashboard()
    expressions = [
        target["expr"] for panel in dashboard.panels_of(shown) for target in panel.get("targets", [])
    ]
    expressions += [one["expr"] for one in shown["annotations"]["list"]]
    for expression in expressions:
        until(partial(seen.answers, chosen(expression)))
    for one in dashboard.QUESTIONS:
        until(partial(seen.shows, chosen(one.expr)))
    assert not seen.firing("EmuPortUpWithoutReachability")
    assert not seen.firing("EmuJobFailed")
    lost = {"kind": "link_down", "target": "nic-0-0:rtsw-0"}
    ask(out, {"do": "inject", "fault": lost})
    (failed,) = until(lambda: seen.firing("EmuJobFailed"))
    assert (failed["job_name"], failed["job"]) == ("ring", "emu")
    (alert,) = [one for one in seen.alerts() if one["labels"]["alertname"] == "EmuJobFailed"]
    assert alert["annotations"]["summary"] == "job ring ended with an error"
    labels = seen.server.get("labels")
    assert {"job", "job_name", "run", "worker"} <= set(labels)
    assert [label for label in labels if label.startswith("exported_")] == [], "a scrape had it already"


def chosen(expression: str) -> str:
    """An expression of the dashboard with everything chosen at its top."""
    return expression.replace("$run", ".*").replace("$device", ".*")
