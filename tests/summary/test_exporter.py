"""Does a worker answer a scrape while it runs, and does promtool like the answer?"""

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from actors.kernel.device import Series, tally_of
from emu.cluster.pages import server as pages
from emu.cluster.pages.metrics_page import Discovery, Exporter
from tests.engine.patience import PATIENCE_S, fetched
from tests.summary.test_exposition import check_format

DEVICES = [("rtsw-0", [Series("port_transmit_bytes", 0), Series("pfc_paused_ps", 0, 3)])]
INFO = {"build_info": {"version": "0.1.0", "compiled": "no"}, "run_info": {"scenario": "tiny", "seed": "7"}}


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is as patient with its clients as they are with it, where that is not what is asked."""
    monkeypatch.setattr(pages, "TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    one = Exporter(DEVICES, INFO)
    yield one
    one.close()


def scrape(address: str) -> str:
    with urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = answer.read().decode()
        return text


def test_scrape_shows_the_last_snapshot(exporter: Exporter) -> None:
    address = exporter.start()
    exporter.publish(2_500_000_000_000, tally_of([[84, 10**12]]), {"events": 12, "packet_hops": 3})
    text = scrape(address)
    assert 'emu_port_transmit_bytes_total{device="rtsw-0",port="0"} 84\n' in text
    assert 'emu_pfc_paused_seconds_total{device="rtsw-0",port="0",priority="3"} 1.000000000000\n' in text
    assert "emu_virtual_seconds_total 2.5\n" in text
    assert "emu_events_total 12.0\n" in text
    assert 'emu_run_info{scenario="tiny",seed="7"} 1.0\n' in text


def test_scrape_gets_a_snapshot_taken_for_it(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emu.cluster.pages.metrics_page.WAIT_S", PATIENCE_S)
    address = exporter.start()
    exporter.publish(0, tally_of([[0, 0]]))
    answers: list[str] = []
    scraping = threading.Thread(target=lambda: answers.append(scrape(address)))
    scraping.start()
    while scraping.is_alive() and not answers:
        if exporter.wanted:
            exporter.publish(10**12, tally_of([[4194, 0]]))
    scraping.join()
    assert 'emu_port_transmit_bytes_total{device="rtsw-0",port="0"} 4194\n' in answers[0]
    assert not exporter.wanted


def test_scrape_before_the_first_snapshot_tells_what_is_known(exporter: Exporter) -> None:
    text = scrape(exporter.start())
    assert "emu_build_info" in text
    assert "emu_port" not in text
    assert "emu_virtual_seconds" not in text


def test_page_is_well_formed(exporter: Exporter) -> None:
    address = exporter.start()
    exporter.publish(1, tally_of([[84, 5]]), {"events": 1})
    device_lines = scrape(address).split("# HELP emu_virtual_seconds_total")[0]
    assert len(check_format(device_lines)) == 2


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say(exporter: Exporter) -> None:
    address = exporter.start()
    exporter.publish(
        1, tally_of([[84, 5]]), {"events": 1, "packet_hops": 2, "data_packet_hops": 1, "windows": 4}
    )
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=scrape(address), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_unknown_page_is_answered_with_what_there_is(exporter: Exporter) -> None:
    address = exporter.start()
    with pytest.raises(HTTPError) as caught:
        urlopen(f"http://{address}/nothing", timeout=PATIENCE_S)
    with caught.value as answer:
        assert answer.code == 404
        assert b"/metrics" in answer.read()


@pytest.mark.parametrize(
    "request_text", [b"POST /metrics HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"\r\n\r\n"]
)
def test_other_requests_are_refused_and_the_next_is_served(exporter: Exporter, request_text: bytes) -> None:
    address = exporter.start()
    exporter.publish(1, tally_of([[84, 5]]))
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        client.sendall(request_text)
        answer = client.recv(4096)
    assert answer.startswith((b"HTTP/1.1 405", b"HTTP/1.1 400"))
    assert "emu_port_transmit_bytes_total" in scrape(address)


def test_client_that_goes_away_does_no_harm(exporter: Exporter) -> None:
    address = exporter.start()
    exporter.publish(1, tally_of([[84, 5]]))
    host, port = address.split(":")
    socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    assert "emu_port_transmit_bytes_total" in scrape(address)


def test_clients_that_trickle_keep_nobody_waiting_for_long(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "TIMEOUT_S", 0.2)
    address = exporter.start()
    exporter.publish(1, tally_of([[84, 5]]))
    host, port = address.split(":")
    slow = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(pages.THREADS)]
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(0.02):
            for client in slow:
                with suppress(OSError):
                    client.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        assert b"emu_port_transmit_bytes_total" in fetched(f"http://{address}/metrics")
    finally:
        over.set()
        thread.join()
        for client in slow:
            client.close()


@pytest.mark.parametrize("first", [b"", b"GET /metrics HTTP/1.1\r\n"])
def test_a_scrape_waits_for_no_client_that_trickles(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    """Sixty of them, which nobody closes meanwhile: their time is not up."""
    monkeypatch.setattr(pages, "TIMEOUT_S", 10 * PATIENCE_S)
    address = exporter.start()
    exporter.publish(1, tally_of([[84, 5]]))
    host, port = address.split(":")
    slow = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(60)]
    try:
        for client in slow:
            client.sendall(first + b"x")
        for _ in range(3):
            assert "emu_port_transmit_bytes_total" in scrape(address)
        for client in slow:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)
        slow[0].setblocking(True)
        slow[0].sendall(b" /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" if not first else b"\r\n\r\n")
        assert slow[0].recv(12) in (b"HTTP/1.1 405", b"HTTP/1.1 200")
    finally:
        for client in slow:
            client.close()


def test_a_client_that_does_not_read_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "TIMEOUT_S", 10 * PATIENCE_S)

    class Large:
        content_type = "text/plain"
        told = 0

        def body(self) -> bytes:
            return b"x" * 50_000_000

        def sent(self) -> None:
            self.told += 1

    large = Large()
    server = pages.PageServer({"/large": large}, "large")
    host, port = server.address.split(":")
    deaf = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(2 * pages.THREADS)]
    for client in deaf:
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with pytest.raises(HTTPError, match="404"):
        fetched(f"http://{server.address}/small")
    found = b""
    while more := deaf[0].recv(1 << 20):
        found += more
    assert len(found.partition(b"\r\n\r\n")[2]) == 50_000_000
    for client in deaf:
        client.close()
    deadline_s = time.monotonic() + PATIENCE_S
    while large.told < len(deaf) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert large.told == len(deaf)
    server.close()


def test_closed_exporter_can_be_closed_again_and_publishes_to_nobody() -> None:
    one = Exporter(DEVICES)
    one.start()
    one.close()
    one.close()
    one.publish(1, tally_of([[1, 2]]))


def test_discovery_lists_the_workers_as_http_sd_wants_it() -> None:
    discovery = Discovery("tiny", [(0, "127.0.0.1:1234")])
    try:
        discovery.set_targets([(0, "127.0.0.1:1234"), (1, "127.0.0.1:1235")])
        with urlopen(discovery.url, timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            listed = json.loads(answer.read())
    finally:
        discovery.close()
    assert listed == [
        {"targets": ["127.0.0.1:1234"], "labels": {"run": "tiny", "role": "worker", "worker": "0"}},
        {"targets": ["127.0.0.1:1235"], "labels": {"run": "tiny", "role": "worker", "worker": "1"}},
    ]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9", 200),
        ("localhost", 200),
        ("[::1]:80", 200),
        ("evil.example", 403),
        ("evil.example:80", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:80", 403),
    ],
)
def test_a_page_is_served_under_names_of_this_host_alone(host: str, status: int) -> None:
    exporter = Exporter([])
    address = exporter.start()
    try:
        connection = HTTPConnection(address, timeout=20)
        connection.request("GET", "/metrics", headers={"Host": host})
        assert connection.getresponse().status == status
        connection.close()
    finally:
        exporter.close()
