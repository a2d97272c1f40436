"""Make the pictures of the pages again: what `emu` writes in a browser without a window, and the dashboard.

    make pictures
    python -m tests.pictures diagnosis campaign    # some of them

The dashboard's first row is drawn here, by matplotlib, from what a real Prometheus answers to the expression
of each panel while a run goes on and an uplink goes down; Grafana is not needed, and it is not its drawing.

Pictures differ with the browser's version and fonts, so no test compares them.
"""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from urllib.request import urlopen

import matplotlib as mpl
from matplotlib import pyplot as plt
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from emu.engine.live.control_socket import ask
from emu.views.dashboard import PANEL_WIDTH, QUESTIONS, WIDTH
from tests.summary.prometheus import Prometheus
from tests.system.test_prometheus import chosen, configured

DOCS = Path(__file__).resolve().parent.parent / "docs"
WIDTH_PX = 1280
LOADS_S = 2
TOPS = """
const headings = [...document.querySelectorAll("h2")];
const at = headings.findIndex((heading) => heading.textContent.startsWith(arguments[0]));
const top = (heading) => Math.round(heading.getBoundingClientRect().top + scrollY);
return [top(headings[at]) - 8, headings[at + 1] ? top(headings[at + 1]) - 8 : document.body.scrollHeight];
"""
"""Where the part under a heading begins and ends."""
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


class Part(NamedTuple):
    """A part of a page of `emu report`, or another file that a browser shows."""

    commands: tuple[str, ...]
    """What makes it, in an empty directory."""
    file: str
    heading: str = ""
    """The heading under which the part is; empty: from the top."""
    height: int = 1010
    """In pixels at most."""


REPORT = "--local --quiet --no-expect --out run"
SLOW_GPU = "faults=[{kind: gpu_slow, at: 0s, target: gpu-0-1, factor: 1.5}]"
SLOW_CABLE = """faults=[{at: 0s, kind: degrade, target: "rtsw-0:ctsw-3", rate: 20G}]"""
BUCKET = "--local --quiet --out run small_gpt.py"
PARTS = {
    "report": Part((f"run quickstart {REPORT}", "report run"), "run/report.html"),
    "diagnosis": Part(
        (f"run quickstart {REPORT} --set '{SLOW_CABLE}'", "report run"), "run/report.html", height=900
    ),
    "faults": Part((f"run story_flapping_optic {REPORT}", "report run"), "run/report.html", "Over time", 700),
    "training": Part((f"run training_step {REPORT}", "report run"), "run/report.html", "Jobs", 900),
    "bucket_size": Part(
        (
            "new torch",
            f"torchrun --ranks 32 --set topology.spines=4 {BUCKET} --bucket-mb 100",
            "report run",
        ),
        "run/report.html",
        "Jobs",
        300,
    ),
    "tutorial_step": Part(
        (f"run step_time {REPORT} --set '{SLOW_GPU}'", "report run"), "run/report.html", "Steps of", 620
    ),
    "operator": Part((f"run operator_gpu_lost {REPORT}", "report run"), "run/report.html", "Over time", 480),
    "campaign": Part(("campaign llama3 --seeds 1 --out run",), "run/timeline.svg", height=420),
    "topologies": Part(("topo quickstart --svg fabric.svg",), "fabric.svg", height=480),
    "storage": Part(("topo checkpoint --svg fabric.svg",), "fabric.svg", height=480),
}
"""By picture, in a browser."""
LOCAL = "--local --quiet --no-expect"
SWEPT = "--local --quiet --out sweep"
ALPHAS = (
    "--set switch.buffer.alpha=1/32,1/16,1/8,1/4,1/2 --set transport.congestion_control.kind=none,dcqcn"
    " --show fabric.pfc_paused_ps"
)
SIZES = "-b 64K -e 16M -f 4 -n 1 -w 0 --ranks 16"
SHAPES = {
    "tutorial_pod": (
        *(
            f"run pod {LOCAL} --set 'routing={{kind: {kind}}}' --set jobs[2].enabled=false --out {kind}"
            for kind in ("e_ecmp", "path_pinning", "spray")
        ),
        "plot uplinks e_ecmp path_pinning spray --out shape.png",
    ),
    "tutorial_control": (
        *(
            f"run two_flows {LOCAL} --set transport.congestion_control.kind={kind} --out {kind}"
            for kind in ("dcqcn", "swift", "hpcc")
        ),
        "plot time dcqcn swift hpcc --series queue_bytes --device tor-0 --out shape.png",
    ),
    "tutorial_loads": (
        f"sweep telling_loads {SWEPT} --variants all --set topology.spines=8,4,2 --show jobs.load.end_ps",
        "plot sweep sweep --x variant --y jobs.load.end_ps --by topology.spines --out shape.png",
    ),
    "sweep": (
        f"sweep pod {SWEPT} --set 'routing={{kind: spray}}' --set jobs[2].enabled=false {ALPHAS}",
        "plot sweep sweep --x switch.buffer.alpha --y fabric.pfc_paused_ps --out shape.png",
    ),
    "serving": (
        f"run serving {LOCAL} --out beside_training",
        f"run serving {LOCAL} --variant alone --out alone",
        "plot flows beside_training alone --out shape.png",
    ),
    "jobs": (
        *(
            f"perf all_reduce {SIZES} --algorithm {algorithm} --out {algorithm}"
            for algorithm in ("ring", "double_binary_tree")
        ),
        "plot busbw ring double_binary_tree --out shape.png",
    ),
}
"""By picture, what makes it and leaves it in `shape.png`: drawn by matplotlib."""


def commanded(place: Path, commands: Iterable[str]) -> None:
    """Carry out commands of emu in a directory; each must succeed."""
    for command in commands:
        words = [sys.executable, "-m", "emu.cli.main", *shlex.split(command)]
        subprocess.run(words, check=True, cwd=place, capture_output=True)


def take(name: str) -> None:
    """Make one picture."""
    picture = DOCS / f"{name}.png"
    with tempfile.TemporaryDirectory() as text:
        place = Path(text)
        if name in SHAPES:
            commanded(place, SHAPES[name])
            shutil.copyfile(place / "shape.png", picture)
        else:
            part = PARTS[name]
            commanded(place, part.commands)
            shown(place / part.file, part, picture)
    smaller(picture)


def shown(file: Path, part: Part, picture: Path) -> None:
    """Take a file in a browser without a window: all of it, then cut to its part."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={WIDTH_PX},1010",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver") or ""))
    try:
        driver.get(file.as_uri())
        time.sleep(LOADS_S)
        if part.heading:
            driver.set_window_size(WIDTH_PX, driver.execute_script("return document.body.scrollHeight") + 200)
            time.sleep(LOADS_S)
        tops = driver.execute_script(TOPS, part.heading) if part.heading else [0, part.height]
        driver.save_screenshot(str(picture))
    finally:
        driver.quit()
    with Image.open(picture) as whole:
        bottom = min(tops[1], tops[0] + part.height, whole.height)
        whole.crop((0, tops[0], whole.width, bottom)).save(picture)


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
    for wanted in sys.argv[1:] or (*PARTS, *SHAPES, "dashboard"):
        dashboard_picture() if wanted == "dashboard" else take(wanted)
        sys.stdout.write(f"written: docs/{wanted}.png\n")
