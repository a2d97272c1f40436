"""Is the page of a run that goes on the run's, for who has the link alone, and gone with the run?"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from emu.views.reports.live import MOST_CLIENTS, Following
from emu.views.reports.recording import MEASURES, read_recording
from tests.engine.patience import PATIENCE_S, alive, children_of, until
from tests.reports.test_page import browser, errors
from tests.reports.test_page import pytestmark as needs_browser
from tests.reports.test_recording import PAIR, recorded

__all__ = ["browser"]


def up(place: Path, *words: str) -> "subprocess.Popen[str]":
    """A live run, with its output in a file."""
    words = ("up", "tiny_all_reduce", "--local", "--pace=200us/s", "--out", str(place), *words)
    with place.with_suffix(".txt").open("w") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "emu.cli.main", *words], stdout=out, stderr=subprocess.STDOUT, text=True
        )


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    run = up(tmp_path / "run")
    url = tmp_path / "run" / "page.url"
    yield run, until(lambda: url.read_text().strip() if url.exists() else "")
    run.kill()
    run.wait()


def asked(url: str, method: str = "GET", **headers: str) -> HTTPResponse:
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.netloc), timeout=PATIENCE_S)
    connection.request(method, f"{parts.path}?{parts.query}", headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


@needs_browser
def test_the_page_follows_the_run_and_says_when_it_is_over(
    browser: webdriver.Chrome, live: tuple["subprocess.Popen[str]", str], tmp_path: Path
) -> None:
    run, url = live
    browser.get(url)
    count = "return count"
    seen = until(lambda: browser.execute_script(count))
    until(lambda: browser.execute_script(count) > seen)
    assert browser.execute_script("return at === count - 1 && edges.length === count + 1")
    slider = browser.find_element(By.ID, "slider")
    slider.send_keys(Keys.HOME)  # Who looks at an earlier time is left there.
    seen = browser.execute_script(count)
    until(lambda: browser.execute_script(count) > seen)
    assert browser.execute_script("return at") == 0
    until(lambda: "all_reduce" in browser.find_element(By.ID, "jobs").text)
    assert "no job failed" in browser.find_element(By.ID, "verdict").text
    assert browser.find_elements(By.CSS_SELECTOR, "#chart-0 circle")
    last = browser.find_element(By.ID, "last-0").get_attribute("textContent")
    assert last is not None
    assert "all_reduce 256KiB" in last
    assert errors(browser) == []
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE_S) == 0
    until(lambda: "it is over" in browser.find_element(By.ID, "state").text)
    assert not (tmp_path / "run" / "page.url").exists()
    assert url not in (tmp_path / "run.txt").read_text()  # A link is told where somebody looks.


def test_only_who_has_the_link_is_answered_and_nothing_is_left_behind_by_a_run_that_is_killed(
    live: tuple["subprocess.Popen[str]", str],
) -> None:
    run, url = live
    assert children_of(run.pid) == []  # Nobody looks: nothing is started.
    whole = asked(url)
    assert whole.status == 200
    assert whole.headers["Access-Control-Allow-Origin"] is None
    assert whole.headers["Cache-Control"] == "no-store"
    server = urlsplit(url).netloc
    port = server.partition(":")[2]
    assert asked(url + "news?since=0", Origin=f"http://{server}").status == 200
    assert asked(f"http://{server}/").status == 404
    assert asked(f"http://{server}/{'x' * 22}/news").status == 404
    assert asked(url, Host="evil.example").status == 403
    assert asked(url, Host=f"evil.example:{port}").status == 403
    assert asked(url + "news?since=0", Origin="http://elsewhere").status == 403
    assert asked(url + "news?since=0", Origin="null").status == 403
    assert asked(url + "news?since=-1").status == 400
    assert asked(url + "news", "POST").status == 501  # It shows, and does not command.
    (page,) = children_of(run.pid)
    token = url.rstrip("/").rpartition("/")[2]
    assert token not in Path(f"/proc/{page}/cmdline").read_text()
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    until(lambda: not alive(page))


def test_clients_that_trickle_hold_no_more_threads_than_there_are_places(
    live: tuple["subprocess.Popen[str]", str],
) -> None:
    run, url = live
    assert asked(url).status == 200
    (page,) = children_of(run.pid)
    address = ("127.0.0.1", int(urlsplit(url).netloc.partition(":")[2]))
    with ExitStack() as until_here:
        clients = [
            until_here.enter_context(socket.create_connection(address)) for _ in range(3 * MOST_CLIENTS)
        ]
        for client in clients:
            client.sendall(b"GET /")
        refused = [
            client for client in clients[-MOST_CLIENTS:] if client.recv(64).startswith(b"HTTP/1.1 503")
        ]
        assert len(refused) == MOST_CLIENTS
        status = Path(f"/proc/{page}/status").read_text("ascii")
        (threads,) = [line.split()[1] for line in status.splitlines() if line.startswith("Threads:")]
        assert int(threads) <= 2 * MOST_CLIENTS + 4  # one that answers and one that watches the time, each
    until(lambda: asked(url).status == 200)


def test_no_page_serves_none(tmp_path: Path) -> None:
    run = up(tmp_path / "run", "--no-page", "--for=100us")
    until((tmp_path / "run" / "samples.jsonl").exists)
    assert not (tmp_path / "run" / "page.url").exists()
    run.send_signal(signal.SIGINT)
    run.wait(PATIENCE_S)


def test_what_is_read_while_the_file_grows_is_what_the_report_has(tmp_path: Path) -> None:
    recorded(PAIR, tmp_path / "run")
    whole = read_recording(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "growing")
    file = tmp_path / "growing" / "samples.jsonl"
    content = file.read_bytes()
    ends = [at + 1 for at, sign in enumerate(content) if sign == ord("\n")]
    file.write_bytes(content[: ends[0] // 2])
    following = Following(tmp_path / "growing")
    following.look()
    assert following.news(0)["edges"] == [0]
    for end in (*(one + 7 for one in ends[5:-1:5]), len(content)):  # In the middle of lines.
        file.write_bytes(content[:end])
        following.look()
    news = following.news(0)
    assert tuple(news["edges"]) == whole.edges_ps
    rows = [b"".join(one[at] for one in following.intervals) for at in range(len(MEASURES))]
    assert tuple(rows) == whole.measures
    assert following.news(3)["edges"] == news["edges"][3:]
    assert news["down"] == [[*one[:3], 150_000_000] for one in news["down"]]
    assert len(news["down"]) == 1
    drops = whole.summary.fabric.drops
    assert drops is not None
    assert drops.by_reason["link_down"] == drops.total > 0
    assert news["verdict"] == [
        "no job failed",
        f"{drops.total} frames dropped (link_down {drops.total})",
        f"{whole.summary.fabric.nic_retransmitted_frames} retransmitted",
    ]


def test_steps_that_are_done_are_shown_with_what_they_took_and_a_job_that_failed_is_named(
    tmp_path: Path,
) -> None:
    recorded(PAIR, tmp_path / "run")
    following = Following(tmp_path / "run")
    following.hear(
        {
            "jobs": [
                {"name": "train", "operations": []},
                {"name": "ring", "operations": [["all_reduce", 4096]]},
            ]
        }
    )
    rows = [[0, 0, 0, 400, 0], [0, 1, 500, 800, 0], [1, 0, 0, 90, 7]]
    following.hear({"virtual_ps": 900, "operations": rows})
    news = following.news(0)
    assert [chart["lines"] for chart in news["charts"]] == [
        [{"name": "step", "points": [[1, 400, []], [2, 300, []]]}],
        [],
    ]
    assert news["verdict"][0] == "ring failed"
