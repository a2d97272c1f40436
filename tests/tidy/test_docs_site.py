"""Does the site have every page, and does it take nothing from elsewhere?"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from emu.cli.main import commands
from tests.tidy.docs_site import plain
from tests.tidy.tracked import ROOT

SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>")


def pages(menu: Any) -> Iterator[str]:
    for entry in menu:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from pages(below)


def test_the_menu_has_every_page_once() -> None:
    listed = sorted(pages(SITE["nav"]))
    assert listed == sorted(["index.md", *(path.name for path in (ROOT / "docs").glob("*.md"))])


def test_fonts_are_those_of_the_reader_and_links_are_checked() -> None:
    assert SITE["theme"]["font"] is False
    assert SITE["strict"] is True


@pytest.mark.parametrize(("extra", "needed"), [("docs", "mkdocs-material"), ("release", "auditwheel")])
def test_what_builds_the_site_and_the_wheels_is_pinned(extra: str, needed: str) -> None:
    lines = (ROOT / f"constraints-{extra}.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines, key=str.lower)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9.]+", line) for line in lines)
    assert needed in {line.partition("==")[0] for line in lines}


def test_links_to_files_beside_the_pages_become_their_names() -> None:
    text = "[a](../deploy/README.md), [b](nic.md#counters), [c](#here), [d](scenarios/start), [e](x.png)"
    expected = "a (`deploy/README.md`), [b](nic.md#counters), [c](#here), d (`scenarios/start`), [e](x.png)"
    assert plain(text) == expected


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    if find_spec("material") is None:
        pytest.skip("the extra docs is not installed")
    built = tmp_path_factory.mktemp("docs") / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    env = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, check=False, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.soak
def test_the_site_is_built_without_a_warning_and_fetches_nothing(site: Path) -> None:
    built = sorted(site.glob("*.html"))
    assert {path.stem for path in built} == {Path(page).stem for page in pages(SITE["nav"])} | {"404"}
    assert [found for path in built for found in FETCHED.findall(path.read_text("utf-8"))] == []


QUESTIONS = {
    "PFC headroom": "switch",
    "DCQCN": "congestion_control",
    "convergence": "routing",
    "ECMP hash": "routing",
    "pcap": "captures",
    "SONiC": "foreign accept",
    "drop reasons": "switch metrics results",
    "install": "install",
    "cluster": "cluster",
    "timeout": "nic ncclx",
    "PFC watchdog": "switch",
    "bit error rate": "faults",
    "exposed communication": "training",
    "Grafana": "metrics operating",
    "flapping link": "faults routing",
    "ECN defaults": "switch congestion_control",
    "lossless": "switch",
    "units": "scenario",
    "MTU": "nic scenario",
    "packet spraying": "routing",
    "busbw formula": "jobs collectives",
    "plot queue depth": "report",
    "BFD": "routing",
    "find the failing link": "diagnosis",
}
"""What a network engineer types, and the pages that answer it."""
RIGHT = 22
READERS = {
    "PFC headroom cable length": r"follows the cable length, which is the link.s",
    "ECN default kmin kmax": r"Off by default .*kmin.* is 800 KB and .*kmax.* 3200 KB",
    "ECMP hash polarisation seeds": r"another .*polynomial.* or .*bit_offset.* per tier",
    "BFD debounce convergence link failure": r"set it to your BFD interval",
    "SONiC config_db.json": r"emu accept sonic --config-db|buffers, PFC, watchdog, WRED, schedulers, maps",
    "capture packets Wireshark": r"ports: .*nic-0-0",
    "drop reasons": r"the switch drops the frame|counts? drops by reason",
    "degraded link bit error rate": r"rate.*: the next frame takes longer",
    "PFC watchdog detection restoration": r"paused for .*detection.* \(200 ms\)",
    "plot queue depth over time": r"emu plot",
    "busbw formula nccl-tests": r"2\(n-1\)/n",
    "FSDP script 64 ranks without GPU": r"emu torchrun --ranks 64",
    "exposed communication": r"exposed communication: waiting for communication of a dimension",
    "MFU": r"is model FLOPs of the step over the peak",
    "NCCL environment variables": r"takes NCCL.s variables as you would export them",
    "slow GPU straggler": r"gpu_slow",
    "tensor pipeline data expert parallelism": r"tp: 8.*pp: 4",
    "force algorithm protocol NCCL_ALGO": r"To force one, set",
    "cluster size memory time packets": r"step of 12,288 GPUs",
    "prefill decode KV transfer": r"prefill and decode run on separate GPUs",
    "Prometheus Grafana": r"--discovery-port 9400",
    "job slow find cause": r"emu diagnose RUN",
    "inject fault live run": r"emu fault inject runs/quickstart-1",
    "exit status stalled": r"the fabric stalled, time ran out",
    "alert rules": r"deploy/prometheus/alerts.yml",
    "Ray several machines": r"--address auto",
    "worker dies resume": r"emu run --resume",
    "goodput weeks checkpoint failures": r"emu campaign llama3",
    "security scenario from somebody else": r"somebody else.s scenario is safe",
    "JUnit CI no drops expectation": r"--junit out.xml",
}
"""What ten network engineers, ten who train models and ten who run clusters type, and words of the answer: a
reader opens the first two pages.
"""
ANSWERED = 28
SEARCH = """
const [questions, done] = arguments;
(async () => {
  const settings = JSON.parse(document.getElementById("__config").textContent);
  const {config, docs} = await (await fetch("search/search_index.json")).json();
  const worker = new Worker(settings.search), found = {};
  const ask = (message) => new Promise((resolve) => {
    worker.onmessage = ({data}) => resolve(data);
    worker.postMessage(message);
  });
  await ask({type: 0, data: {config, docs, options: {suggest: false}}});
  for (const question of questions)
    found[question] = (await ask({type: 2, data: question})).data.items.map((item) => item[0].location);
  done(found);
})();
"""
"""Ask the site's own search, as its pages do; 0 sets it up, 2 is a query."""


def pages_found(site: Path, questions: Iterable[str]) -> dict[str, list[str]]:
    """By question, the pages that the site's search brings, best first."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        driver = webdriver.Chrome(options, Service(shutil.which("chromedriver") or ""))
        try:
            driver.get(f"http://127.0.0.1:{server.server_address[1]}/index.html")
            driver.set_script_timeout(60)
            found = driver.execute_async_script(SEARCH, list(questions))
        finally:
            driver.quit()
            server.shutdown()
    return {
        question: list(dict.fromkeys(one.partition(".html")[0] for one in places))
        for question, places in found.items()
    }


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("chromedriver") is None, reason="no chromedriver")
def test_the_search_brings_the_page_that_answers_a_question(site: Path) -> None:
    typed = ("live run", "--live", "-b 1M", "~pfc", "a^b", "transport.timeout:")
    words = {*commands(), *typed}  # what a user has before him, and what Lunr reads as operators
    found = pages_found(site, (*QUESTIONS, *READERS, *sorted(words)))
    assert [word for word in sorted(words) if not found[word]] == []
    missed = {
        question: found[question][:3]
        for question, answers in QUESTIONS.items()
        if not set(found[question][:3]) & set(answers.split())
    }
    assert len(QUESTIONS) - len(missed) >= RIGHT, missed
    unanswered = {
        question: found[question][:2]
        for question, answer in READERS.items()
        if not any(re.search(answer, read(site, page)) for page in found[question][:2])
    }
    assert len(READERS) - len(unanswered) >= ANSWERED, unanswered


def read(site: Path, page: str) -> str:
    """The words of a page of the site, on one line."""
    text = (site / f"{page}.html").read_text("utf-8").partition("<article")[2].partition("</article")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split())
