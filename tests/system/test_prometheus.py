"""Does a real Prometheus find a live run, see a fault in it, and fire the alert?"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from emu.engine.live.control_socket import ask
from emu.views import dashboard
from tests.engine.patience import PATIENCE_S, fetched, until
from tests.summary.prometheus import INSTALLED, Prometheus, free_port

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


TENDED = """
name: tended
topology: {kind: ai_zone, racks: 3, hosts_per_rack: 2, gpus_per_host: 2, spines: 2}
frontend: {enabled: true, hosts_per_rsw: 8, fsws: 1, storage: {servers: 2, link: 100G, disk: 50M}}
ncclx: {channels: 2, init: {store: serial}}
operator:
  job: train
  spare_hosts: 2
  restarts: 2
  heartbeat: {every: 250ms, rows: 8, straggler: {steps: 2, slower_by: 1/20, then: tell}}
  self_check: {size: 64KiB, deadline: 1s}
  launch: 500ms
  checkpoint: {every: 5, size: 128KiB}
jobs:
  - name: train
    ranks: 8
    workload:
      kind: program
      steps: 1000
      operations: [{do: compute, time: 90ms}, {do: all_reduce, size: 64KiB}]
"""
TWO_BEATS_PS = 500 * 10**9 + 10**9
"""And the management network."""
NOTICED = (
    (
        {"kind": "gpu_slow", "target": "gpu-0-1", "factor": 1.2},
        "straggler",
        "host-0",
        "EmuStraggler",
        "ticket",
    ),
    ({"kind": "row_remap", "target": "gpu-2-0", "rows": 8}, "rows", "host-2", "EmuRowsRemapped", "ticket"),
    ({"kind": "gpu_lost", "target": "gpu-1-1"}, "failed", "host-1", "EmuHostNoticed", "page"),
)
"""A fault, the rule and the host by which the operator notices it, the alert and how urgent that is."""
ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")


def configured(place: Path, discovery: str, alertmanager: str = "127.0.0.1:9093") -> Path:
    """The configuration of `deploy/`, which looks for the run at `discovery`, five times as often."""
    for name in ("recording.yml", "alerts.yml"):
        shutil.copy(DEPLOY / name, place / name)
    text = (DEPLOY / "prometheus.yml").read_text("utf-8")
    places = {"http://127.0.0.1:9400/sd": discovery, '"127.0.0.1:9093"': f'"{alertmanager}"'}
    for shipped, wanted in (INTERVALS | places).items():
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


@contextmanager
def watching(place: Path, text: str, pace: str, alertmanager: str = "127.0.0.1:9093") -> Iterator[Watch]:
    """A live run in `place`, and a Prometheus that watches it."""
    scenario = place / "live.yaml"
    scenario.write_text(text, "utf-8")
    command = [sys.executable, "-m", "emu.cli.main", "up", str(scenario), "--local", "--pace", pace]
    with (place / "up.log").open("w", encoding="utf-8") as log:
        run = subprocess.Popen(
            [*command, "--out", str(place / "run")], stdout=log, text=True, start_new_session=True
        )
    try:
        assert until(lambda: run.poll() is not None or (place / "run" / "workers.json").exists())
        assert run.poll() is None
        metrics = re.compile("^metrics of .* (http.*)$", re.MULTILINE)
        (discovery,) = until(lambda: metrics.findall((place / "up.log").read_text("utf-8")))
        prometheus = Prometheus(configured(place, discovery, alertmanager), place / "data")
        try:
            yield Watch(prometheus)
        finally:
            prometheus.close()
    finally:
        os.killpg(run.pid, signal.SIGINT)
        run.communicate(timeout=PATIENCE_S)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Watch, Path]]:
    """A live run, and a Prometheus that watches it."""
    with watching(tmp_path, TWO_JOBS, "1ms/s") as seen:
        yield seen, tmp_path / "run"


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """The address of an Alertmanager with the configuration of `deploy/`."""
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            str(ALERTMANAGER),
            f"--config.file={DEPLOY / 'alertmanager.yml'}",
            f"--storage.path={tmp_path / 'alerts'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@NEEDS_PROMETHEUS
@pytest.mark.skipif(ALERTMANAGER is None, reason="Alertmanager is not installed")
def test_what_an_operator_notices_is_an_alert_a_line_and_a_journal_entry_while_the_run_goes_on(
    tmp_path: Path, alertmanager: str
) -> None:
    """A straggler, remapped rows and a lost GPU, each noticed within two heartbeats."""
    run = tmp_path / "run"

    def noticed(rule: str) -> dict[str, Any]:
        lines = (run / "journal.jsonl").read_text("utf-8").splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return next((one for one in entries if one["kind"] == "operator" and one.get("rule") == rule), {})

    def alerted(name: str, severity: str) -> bool:
        text = fetched(f"http://{alertmanager}/api/v2/alerts?filter=alertname={name}")
        return [one["labels"]["severity"] for one in json.loads(text)] == [severity]

    def logged(line: str) -> bool:
        return line in (tmp_path / "up.log").read_text("utf-8")

    with watching(tmp_path, TENDED, "1s/s", alertmanager) as seen:
        until(lambda: seen.value("emu_operator_step"))
        seen.comes_to("emu_operator_working", 1)
        for fault, rule, host, alert, severity in NOTICED:
            until(lambda: seen.value("emu_operator_working") == 1)
            at_ps = ask(run, {"do": "inject", "fault": fault})["at_ps"]
            entry = until(partial(noticed, rule))
            assert entry["host"] == host
            assert 0 < entry["virtual_ps"] - at_ps <= TWO_BEATS_PS
            until(partial(alerted, alert, severity))
            line = f"operator of train: {entry['what']} {host} (rule {rule})"
            until(partial(logged, line))
        until(lambda: seen.firing("EmuJobFailed"))
        top = subprocess.run(
            [sys.executable, "-m", "emu.cli.main", "top", run, "--once"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "host-0 straggler" in top.stdout
        seen.comes_to("emu_job_failed", 0)
        seen.comes_to("sum(emu_operator_restarts_total)", 2)
        seen.comes_to("count(emu_operator_evictions_total)", 2)
        assert 0 < (seen.value("emu_operator_goodput_ratio") or 0) < 1
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    kinds = [json.loads(line)["kind"] for line in (run / "journal.jsonl").read_text("utf-8").splitlines()]
    assert kinds[-1] == "end"
    assert len(summary["operator"]["restarts"]) == 2


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
    assert alert["annotations"]["summary"].startswith("job ring ended with an error")
    labels = seen.server.get("labels")
    assert {"job", "job_name", "run", "worker"} <= set(labels)
    assert [label for label in labels if label.startswith("exported_")] == [], "a scrape had it already"


def chosen(expression: str) -> str:
    """An expression of the dashboard with everything chosen at its top."""
    return expression.replace("$run", ".*").replace("$device", ".*")
