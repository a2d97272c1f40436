"""Make the pictures of the pages again: what `emu` writes in a browser without a window, and the dashboard.

    make pictures

The dashboard's first row is drawn here, by matplotlib, from what a real Prometheus answers to the expression
of each panel while a run goes on and an uplink goes down; Grafana is not needed, and it is not its drawing.

Pictures differ with the browser's version and fonts, so no test compares them.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import matplotlib as mpl
from matplotlib import pyplot as plt
from PIL import Image

from emu.cli.main import main as emu
from emu.measure.prometheus.dashboard import PANEL_WIDTH, QUESTIONS, WIDTH
from emu.runtime.live.control_socket import ask
from tests.measure.prometheus import Prometheus
from tests.system.test_prometheus import chosen, configured

DOCS = Path(__file__).resolve().parent.parent / "docs"
SIZE = "1280,1010"
WATCHED = """
name: watched
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 4, spines: 2}
switch: {buffer: {alpha: 1/64}, ecn: {enabled: true, kmin: 5KB, kmax: 200KB}}
transport: {timeout: 9, congestion_control: {kind: dcqcn}}
ncclx: {qps_per_connection: 2, channels: 2}
jobs:
  - {name: ring, ranks: 8, placement: scattered, workload: {kind: collective, op: all_reduce, sizes: [1MiB]}}
  - name: train
    ranks: 8
    placement: scattered
    workload: {kind: program, operations: [{do: compute, time: 50us}, {do: all_to_all, size: 4MiB}]}
"""
BEFORE_S, BROKEN_S, AFTER_S = 25, 10, 20
MOST_LINES = 6


def report_picture() -> None:
    """Run the quickstart, write its report, and take its picture."""
    picture = DOCS / "report.png"
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        assert emu(["run", "quickstart", "--local", "--quiet", "--out", str(run)]) == 0
        assert emu(["report", str(run)]) == 0
        browser = ["chromium", "--headless=new", "--no-sandbox", "--hide-scrollbars"]
        shot = [
            "--virtual-time-budget=5000",
            f"--window-size={SIZE}",
            f"--screenshot={picture}",
            (run / "report.html").as_uri(),
        ]
        subprocess.run([*browser, *shot], check=True, capture_output=True)
    smaller(picture)


def smaller(picture: Path) -> None:
    """Few colours are enough."""
    with Image.open(picture) as taken:
        taken.quantize(64).save(picture, optimize=True)


def dashboard_picture() -> None:
    """Run, break, watch, and draw the panels."""
    with tempfile.TemporaryDirectory() as text:
        place = Path(text)
        scenario, run = place / "watched.yaml", place / "run"
        scenario.write_text(WATCHED, "utf-8")
        words = ["up", str(scenario), "--local", "--pace", "1ms/s", "--out", str(run), "--no-page"]
        emulated = subprocess.Popen(
            [sys.executable, "-m", "emu.cli.main", *words], stdout=subprocess.PIPE, text=True
        )
        assert emulated.stdout is not None
        try:
            found = next(line.split()[-1] for line in emulated.stdout if line.startswith("metrics of "))
            server = Prometheus(configured(place, found), place / "data")
            try:
                begin_s = time.time()
                time.sleep(BEFORE_S)
                ask(run, {"do": "inject", "fault": {"kind": "link_down", "target": "rtsw-0:ctsw-0"}})
                time.sleep(BROKEN_S)
                ask(run, {"do": "clear", "fault": 0})
                time.sleep(AFTER_S)
                draw([answer(server, one.expr, begin_s) for one in QUESTIONS], begin_s)
            finally:
                server.close()
        finally:
            emulated.send_signal(signal.SIGINT)
            emulated.communicate()
    smaller(DOCS / "dashboard.png")


def answer(server: Prometheus, expression: str, begin_s: float) -> list[dict[str, Any]]:
    """The series of an expression since the beginning."""
    asked = {"query": chosen(expression), "start": begin_s, "end": time.time(), "step": "0.5"}
    with urlopen(f"http://{server.address}/api/v1/query_range?{urlencode(asked)}") as reported:
        series: list[dict[str, Any]] = json.load(reported)["data"]["result"]
    if not series:
        sys.stdout.write(f"no data: {expression}\n")
    return series


def draw(answers: list[list[dict[str, Any]]], begin_s: float) -> None:
    """The panels in rows, as the dashboard has them: the lines that reach highest are named."""
    mpl.use("Agg")
    across = WIDTH // PANEL_WIDTH
    down = -(-len(answers) // across)
    figure, places = plt.subplots(down, across, figsize=(15, 2.5 * down), layout="constrained")
    for place, one, series in zip(places.flat, QUESTIONS, answers, strict=False):
        place.set_title(f"{one.asked}\n{one.title} [{one.unit}]", fontsize=8, loc="left")
        ranked = sorted(series, key=lambda line: -max(float(value) for _, value in line["values"]))
        for nth, line in enumerate(ranked):
            xs = [float(at_s) - begin_s for at_s, _ in line["values"]]
            name = one.legend
            for label in re.findall(r"{{(\w+)}}", name):
                name = name.replace(f"{{{{{label}}}}}", line["metric"].get(label, ""))
            ys = [float(value) for _, value in line["values"]]
            place.plot(xs, ys, linewidth=1, label=name if nth < MOST_LINES else None)
        place.axvspan(BEFORE_S, BEFORE_S + BROKEN_S, color="red", alpha=0.08)
        place.set_xlim(0, BEFORE_S + BROKEN_S + AFTER_S)
        place.set_ylim(0, 1.5 * (max(place.get_ylim()[1], 1e-9)))
        place.tick_params(labelsize=7)
        if ranked:
            place.legend(fontsize=6, loc="upper left", frameon=False)
    for place in places.flat[len(answers) :]:
        place.set_visible(False)
    figure.supxlabel("seconds; the red span is the fault", fontsize=8)
    figure.savefig(DOCS / "dashboard.png", dpi=85)


if __name__ == "__main__":
    if "--dashboard" not in sys.argv[1:]:
        report_picture()
    dashboard_picture()
    sys.stdout.write("written: docs/report.png, docs/dashboard.png\n")
