"""Does a real Prometheus find a live run, see a fault in it, and fire the alert?"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from actors.runtime.control_socket import ask
from emu.measure import dashboard

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
NEEDS_PROMETHEUS = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is not installed (apt install prometheus)"
)
PATIENCE_S = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


class Prometheus:
    """A server with the configuration of `deploy/`, which looks for the run at `discovery`."""

    def __init__(self, place: Path, discovery: str) -> None:
        for name in ("recording.yml", "alerts.yml"):
            shutil.copy(DEPLOY / name, place / name)
        text = (DEPLOY / "prometheus.yml").read_text("utf-8")
        assert "http://127.0.0.1:9400/sd" in text
        (place / "prometheus.yml").write_text(text.replace("http://127.0.0.1:9400/sd", discovery), "utf-8")
        self.address = f"127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={place / 'prometheus.yml'}",
                f"--storage.tsdb.path={place / 'data'}",
                f"--web.listen-address={self.address}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str) -> Any:
        try:
            with urlopen(f"http://{self.address}/api/v1/{path}", timeout=5) as answer:
                return json.loads(answer.read())["data"]
        except (URLError, ConnectionError, TimeoutError):
            return None

    def value(self, query: str) -> float | None:
        found = self.get(f"query?query={quote(query)}")
        return float(found["result"][0]["value"][1]) if found and found["result"] else None

    def firing(self) -> list[dict[str, str]]:
        found = self.get("alerts")
        alerts = found["alerts"] if found else []
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Prometheus, Path]]:
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
    prometheus = Prometheus(tmp_path, discovery)
    try:
        yield prometheus, out
    finally:
        prometheus.process.terminate()
        prometheus.process.wait(30)
        os.killpg(run.pid, signal.SIGINT)
        run.communicate(timeout=30)


def until(what: Callable[[], object]) -> object:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if found := what():
            return found
        time.sleep(0.2)
    pytest.fail(f"not within {PATIENCE_S} s: {what}")


@NEEDS_PROMETHEUS
def test_prometheus_reads_the_run_and_fires_the_alert_of_an_injected_fault(
    watched: tuple[Prometheus, Path],
) -> None:
    prometheus, out = watched
    until(lambda: prometheus.value("emu_job_operations_total"))
    assert prometheus.value("count(emu_port_up)") == 16
    assert prometheus.value('emu_run_info{run="tiny_all_reduce",role="worker"}') == 1
    assert prometheus.value("sum(emu_port_up == 0)") is None
    assert not [alert for alert in prometheus.firing() if alert["alertname"] == "EmuPortDown"]
    fault = {"kind": "link_down", "target": "rtsw-0:ctsw-0"}
    answer = ask(out, {"do": "inject", "fault": fault})
    down = until(lambda: [one for one in prometheus.firing() if one["alertname"] == "EmuPortDown"])
    assert isinstance(down, list)
    assert {one["device"] for one in down} == {"rtsw-0", "ctsw-0"}
    assert {one["severity"] for one in down} == {"page"}
    assert prometheus.value("emu_faults_active") == 1
    reached = prometheus.value("emu_virtual_seconds_total")
    assert reached is not None
    assert reached * 1e12 > answer["at_ps"]
    assert prometheus.value('sum(emu_port_link_downed_total{device="rtsw-0"})') == 1
    ask(out, {"do": "clear", "fault": 0})
    until(lambda: not [one for one in prometheus.firing() if one["alertname"] == "EmuPortDown"])
    assert prometheus.value("emu_faults_active") == 0
    assert until(lambda: prometheus.value("emu:delivered_bits_per_virtual_second"))
    shown = dashboard.dashboard()
    expressions = [target["expr"] for panel in shown["panels"] for target in panel.get("targets", [])]
    expressions += [one["expr"] for one in shown["annotations"]["list"]]
    assert [one for one in expressions if prometheus.get(f"query?query={quote(chosen(one))}") is None] == []
    for title, expression, *_ in dashboard.QUESTIONS:
        if title != "Marked frames":  # No queue of this run marks.
            assert prometheus.value(chosen(expression)) is not None, title
    assert not [one for one in prometheus.firing() if one["alertname"] == "EmuPortUpWithoutReachability"]


def chosen(expression: str) -> str:
    """An expression of the dashboard with everything chosen at its top."""
    return expression.replace("$run", ".*").replace("$device", ".*")
