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

from actors.runtime.control_socket import ask
from emu.measure import dashboard
from tests.measure.prometheus import INSTALLED, Prometheus
from tests.runtime.patience import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
NEEDS_PROMETHEUS = pytest.mark.skipif(
    not INSTALLED, reason="Prometheus is not installed (apt install prometheus)"
)


def configured(place: Path, discovery: str) -> Path:
    """The configuration of `deploy/`, which looks for the run at `discovery`."""
    for name in ("recording.yml", "alerts.yml"):
        shutil.copy(DEPLOY / name, place / name)
    text = (DEPLOY / "prometheus.yml").read_text("utf-8")
    assert "http://127.0.0.1:9400/sd" in text
    (place / "prometheus.yml").write_text(text.replace("http://127.0.0.1:9400/sd", discovery), "utf-8")
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

    def firing(self, alert: str) -> list[dict[str, str]]:
        """The labels of an alert that is fired, line by line."""
        alerts = self.server.get("alerts")["alerts"]
        labels = [one["labels"] for one in alerts if one["state"] == "firing"]
        return [one for one in labels if one["alertname"] == alert]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Watch, Path]]:
    """A live run, and a Prometheus that watches it."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "emu.cli.main", "up", str(ROOT / "scenarios" / "tiny_all_reduce.yaml")]
    run = subprocess.Popen(
        [*command, "--local", "--pace", "1ms/s", "--out", str(out), "--set", "transport.timeout=9"],
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
    seen.comes_to('emu_run_info{run="tiny_all_reduce",role="worker"}', 1)
    assert not seen.firing("EmuPortDown")
    fault = {"kind": "link_down", "target": "rtsw-0:ctsw-0"}
    answer = ask(out, {"do": "inject", "fault": fault})
    down = until(lambda: seen.firing("EmuPortDown"))
    assert {one["device"] for one in down} == {"rtsw-0", "ctsw-0"}
    assert {one["severity"] for one in down} == {"page"}
    seen.comes_to("emu_faults_active", 1)
    reached = until(lambda: seen.value("emu_virtual_seconds_total"))
    assert reached is not None
    assert reached * 1e12 > answer["at_ps"]
    seen.comes_to('sum(emu_port_link_downed_total{device="rtsw-0"})', 1)
    ask(out, {"do": "clear", "fault": 0})
    seen.comes_to("count(emu_port_up == 1)", 16)
    until(lambda: not seen.firing("EmuPortDown"))
    seen.comes_to("emu_faults_active", 0)
    until(lambda: seen.value("emu:delivered_bits_per_virtual_second"))
    shown = dashboard.dashboard()
    expressions = [target["expr"] for panel in shown["panels"] for target in panel.get("targets", [])]
    expressions += [one["expr"] for one in shown["annotations"]["list"]]
    for expression in expressions:
        until(partial(seen.answers, chosen(expression)))
    for title, expression, *_ in dashboard.QUESTIONS:
        if title != "Marked frames":  # No queue of this run marks.
            until(partial(seen.shows, chosen(expression)))
    assert not seen.firing("EmuPortUpWithoutReachability")


def chosen(expression: str) -> str:
    """An expression of the dashboard with everything chosen at its top."""
    return expression.replace("$run", ".*").replace("$device", ".*")
