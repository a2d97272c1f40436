"""Can a run be watched and ended while it goes on, from outside, as an operator would?

`emu run` in a process of its own: scraped as Prometheus does it, interrupted as a terminal does it, and with
a worker killed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import SOAK
from tests.engine.patience import PATIENCE_S, alive, fetched, until

LONG = """\
name: long
description: An hour of work and more for compiled code, on eight racks.
topology: {kind: ai_zone, racks: 8, hosts_per_rack: 8, gpus_per_host: 1, spines: 8}
jobs:
  - {name: shuffle, workload: {kind: permutation, size: 64GiB, message: 1GiB}}
"""
DEVICES = 8 * 8 * 3 + 8 + 8 + 1
"""Hosts, GPUs and NICs, leaves, spines, and the controller."""


class Live:
    """`emu run` on the long scenario, as soon as its workers are up."""

    def __init__(self, place: Path, *options: str) -> None:
        self.out = place / "out"
        (place / "long.yaml").write_text(LONG, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "emu.cli.main",
            "run",
            str(place / "long.yaml"),
            "--out",
            str(self.out),
        ]
        self.process = subprocess.Popen(
            [*command, *options],
            env=os.environ | {"TMPDIR": str(place)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.said: list[str] = []
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("metrics of "):
                break
        else:
            raise AssertionError((self.said, self.process.stderr and self.process.stderr.read()))
        self.discovery = self.said[-1].split()[-1]

    def targets(self) -> list[str]:
        """Where the discovery page says that metrics are."""
        groups = json.loads(fetched(self.discovery))
        return [target for group in groups for target in group["targets"]]

    def end(self, number: signal.Signals) -> tuple[float, str, list[str]]:
        """Tell the whole foreground group, as a terminal does; how long it took, and what was said."""
        begun_s = time.monotonic()
        os.killpg(self.process.pid, number)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return time.monotonic() - begun_s, out, err.splitlines()


@contextmanager
def live(*options: str) -> Iterator[Live]:
    """A run that is ended at the latest here; nothing of it may be left in its temporary directory."""
    place = Path(tempfile.mkdtemp(prefix="e"))
    run = Live(place, *options)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.communicate()
        shutil.rmtree(place)


def scrape(target: str) -> str:
    """A worker's metrics page."""
    return fetched(f"http://{target}/metrics").decode()


def check_page(page: str) -> dict[str, float]:
    """That Prometheus reads the page and has nothing to complain of; the values of series without labels."""
    families = list(text_string_to_metric_families(page))
    assert len(families) > 20
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run(
            [promtool, "check", "metrics"], input=page, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {one.name: one.value for family in families for one in family.samples if not one.labels}


def test_promtool_is_asked_where_it_is_installed() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed, so pages are parsed by prometheus-client alone")


def test_local_run_answers_scrapes_and_ends_on_ctrl_c_with_what_there_is() -> None:
    scrapes_s = []
    with live("--local") as run:
        (target,) = run.targets()
        reached = until(lambda: check_page(scrape(target))["emu_virtual_seconds_total"])
        for _ in range(5):
            begun_s = time.monotonic()
            page = scrape(target)
            scrapes_s.append(time.monotonic() - begun_s)
            assert reached <= (reached := check_page(page)["emu_virtual_seconds_total"])
        took_s, out, err = run.end(signal.SIGINT)
        assert (run.process.returncode, err) == (130, ["emu: interrupted"])
        assert "digest none: the run is partial" in out.splitlines()
        assert f"results in {run.out}" in out.splitlines()
        summary = json.loads((run.out / "summary.json").read_text("utf-8"))
        assert (summary["ending"], summary["digest"]) == ("interrupted", "")
        assert summary["virtual_ps"] > 0
        assert sum(link["data_bytes"] for link in summary["fabric"]["links"]) > 0
    if SOAK:
        assert min(scrapes_s) < 0.2
        assert took_s < 0.5


@pytest.mark.ray
def test_killed_worker_ends_the_run_with_one_line_and_leaves_nothing() -> None:
    with live("--workers=2", "--recoveries=0") as run:
        workers = json.loads((run.out / "workers.json").read_text("utf-8"))["workers"]
        assert run.targets() == [worker["metrics_address"] for worker in workers]
        pages = [scrape(worker["metrics_address"]) for worker in workers]
        assert all("emu_virtual_seconds_total" in check_page(page) for page in pages)
        for worker, page in zip(workers, pages, strict=True):
            named = set(re.findall(r'device="([^"]*)"', page))
            assert named
            assert named <= set(worker["devices"])
        assert sum(len(worker["devices"]) for worker in workers) == DEVICES
        assert {worker["worker"]: worker["node"] for worker in workers} == dict.fromkeys(
            (0, 1), os.uname().nodename
        )
        pids = [worker["pid"] for worker in workers]
        assert all(map(alive, pids))
        os.kill(pids[1], signal.SIGKILL)
        out, err = run.process.communicate(timeout=PATIENCE_S)
        assert run.process.returncode == 4
        (line,) = err.splitlines()
        hosted = workers[1]["devices"]
        shown = f"{hosted[0]}, {hosted[1]}, {hosted[2]} and {len(hosted) - 3} more"
        assert line.startswith(f"emu: worker 1 (pid {pids[1]}, hosting {shown}) died: ")
        assert "digest none: the run is partial" in out.splitlines()
        assert json.loads((run.out / "summary.json").read_text("utf-8"))["ending"] == "failed"
        until(lambda: not any(map(alive, pids)))
        # What a worker could not remove itself goes a moment after it.
        until(lambda: {path.name for path in run.out.parent.iterdir()} == {"long.yaml", "out"})
