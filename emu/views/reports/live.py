"""The page of a run that goes on, served by a process of its own: `python -m emu.views.reports.live DIR FD`.

It reads what the run directory has so far (scenario, journal, samples), hears over its standard input which
operations have ended, and ends when that ends: with the run, or with the process of the run however that
ends. It shows and does not command.

GET /TOKEN/ is the page, GET /TOKEN/news?since=N what there is behind its first N intervals, as JSON. A
request must name this server as its host (a page of another name that leads here is none of ours) and comes
from no other origin; answers allow no other origin to read them.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from actors.kernel.counters import NIC_RETRANSMITTED_FRAMES, PORT_DROPPED_FRAMES
from actors.wire.message import STATUS_SUCCESS
from emu.base.errors import UsageError
from emu.base.units import about_bandwidth, about_size, about_time
from emu.run_directory.run_directory import LineFile
from emu.run_directory.sample_rows import batched
from emu.run_directory.samples import Column, SampleReader
from emu.scenario.faults.events import Fault
from emu.scenario.load import load
from emu.scenario.resolve import build_topology
from emu.stored_run import stored_run
from emu.summary.summary_report import so_far
from emu.topology.outline import describe, summary_line
from emu.views.reports.html_file import document, folded, packed
from emu.views.reports.page import (
    MOST_BARS,
    fabric_data,
    fabric_pictures,
    fault_end,
    jobs_data,
    links_down,
    links_weak,
    over_time,
)
from emu.views.reports.recording import (
    MEASURES,
    MOST_INTERVALS,
    ROLES,
    Figures,
    Slowed,
    fabric_ports,
    slowed_ports,
)

RETRANSMITTED: Final = NIC_RETRANSMITTED_FRAMES
COUNTED: Final = (PORT_DROPPED_FRAMES, RETRANSMITTED)
AT_ONCE: Final = 20
"""A look has at most so many new intervals, each of as many samples as that takes."""
TIMEOUT_S: Final = 5.0
DEADLINE_S: Final = 20.0
"""How long a connection may last, from its request to the end of its answer."""
MOST_CLIENTS: Final = 32
"""Connections at one time, whoever they are: nobody has shown a token yet."""


class Following:
    """What is known of a run that goes on. Every method may be called by several threads, one at a time."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.Lock()
        self._path = path
        self.scenario = load(path / "scenario.yaml").scenario
        self.topology = build_topology(self.scenario)
        self.ports = fabric_ports(self.topology)
        self._reader: SampleReader | None = None
        self._figures: Figures | None = None
        self._edges_ps = [0]
        self.intervals: list[tuple[bytes, ...]] = []
        self._forgotten = 0
        """How many intervals there were before those that are kept."""
        self._journal = LineFile(path / "journal.jsonl")
        self._events: list[Mapping[str, Any]] = []
        self._faults: tuple[Fault, ...] = ()
        """Every occurrence of what is scripted, and of what was injected so far."""
        self._slowed: Mapping[int, Sequence[Slowed]] = {}
        self._plans: list[Mapping[str, Any]] = []
        self._operations: list[list[Sequence[int]]] = []
        self._virtual_ps = 0
        self._dropped: dict[str, int] = {}
        """Frames by reason."""
        self._retransmitted = 0
        self._failed: set[int] = set()
        """Jobs of which an operation failed."""

    def hear(self, record: Mapping[str, Any]) -> None:
        """A line of the run."""
        if "jobs" in record:
            self._plans = record["jobs"]
            self._operations = [[] for _ in self._plans]
            return
        self._virtual_ps = record["virtual_ps"]
        for row in record["operations"]:
            of_job = self._operations[row[0]]
            of_job.append(row)
            if row[4] != STATUS_SUCCESS:
                self._failed.add(row[0])
            del of_job[: -2 * MOST_BARS]

    def look(self) -> None:
        """Read what the run has written since the last look."""
        events = self._journal.records()
        self._events += events
        if any(event.get("kind") in ("fault", "change", "target") for event in events):
            self._faults = stored_run(self._path).faults(self.topology)
            self._slowed = slowed_ports(self.ports, self._faults)
        if self._reader is None:
            try:
                self._reader = SampleReader(self._path / "samples.jsonl")
            except (OSError, UsageError):  # There is no sample yet.
                return
            self._figures = Figures(self.ports, self._reader, self._slowed)
        assert self._figures is not None
        self._figures.slowed = self._slowed
        news = list(self._reader.news((*ROLES, *COUNTED)))
        for _, grown in news:
            self._count(grown)
        for some in batched(news, -(-len(news) // AT_ONCE) or 1):
            now_ps = some[-1][0]
            begin_ps = self._edges_ps[-1]
            self.intervals.append(self._figures.interval([grown for _, grown in some], begin_ps, now_ps))
            self._edges_ps.append(now_ps)
        beyond = len(self.intervals) - MOST_INTERVALS
        if beyond > 0:
            del self.intervals[:beyond], self._edges_ps[:beyond]
            self._forgotten += beyond

    def _count(self, grown: Mapping[str, Column]) -> None:
        """Add what a sample tells against the run."""
        assert self._reader is not None
        for metric in COUNTED:
            counters = self._reader.counters(metric)
            for row, more in zip(*grown.get(metric, ((), ())), strict=True):
                device, place = counters[row]
                if metric == RETRANSMITTED:
                    self._retransmitted += more
                else:
                    reason = self._reader.series[device][place].reason
                    self._dropped[reason] = self._dropped.get(reason, 0) + more

    def news(self, since: int) -> dict[str, Any]:
        """What a page that has so many intervals of the run lacks."""
        have = min(max(since - self._forgotten, 0), len(self.intervals))
        some = self.intervals[have:]
        return {
            "first": self._forgotten + have,
            "edges": self._edges_ps[have:],
            "series": [packed(b"".join(one[at] for one in some)) for at in range(len(MEASURES))],
            "most": MOST_INTERVALS,
            "span": max(self._edges_ps[-1], self._virtual_ps, 1),
            "rows": list(self._rows()),
            "down": links_down(self.topology, self._events, self._now_ps()),
            "weak": links_weak(self.topology, self._faults, self._now_ps()),
            "jobs": [self._job(number, plan) for number, plan in enumerate(self._plans)],
            "charts": [self._chart(number, plan) for number, plan in enumerate(self._plans)],
            "verdict": so_far(
                [self._plans[number]["name"] for number in sorted(self._failed)],
                self._dropped,
                self._retransmitted,
            ),
        }

    def page(self) -> str:
        """The page, with nothing of the run on it yet but its fabric."""
        data = fabric_data(self.topology, self.ports, (0,), (b"",) * len(MEASURES))
        data |= {"rows": [], "down": [], "weak": [], "measure": 0, "start": 0, "first": -1, "live": True}
        data["jobs"] = jobs_data(self.scenario, self.topology)
        return document(self.scenario.name, self._body(), data, asks="'self'")

    def _body(self) -> Iterator[str]:
        yield f"<h1>{escape(self.scenario.name)}</h1>"
        yield f'<p class="quiet">{escape(summary_line(describe(self.topology)))}</p>'
        yield '<p><b id="state" role="status">waiting for the first sample</b></p>'
        yield '<ul id="verdict" class="plain" aria-label="Verdict so far"></ul>'
        yield from over_time()
        yield "<h2>Jobs</h2>"
        yield '<div class="wide"><table id="jobs"></table></div>'
        for number, job in enumerate(self.scenario.jobs):
            yield f'<div id="took-{number}" hidden><h3>{escape(job.name)}: time of each operation</h3>'
            yield f'<div class="chart" id="chart-{number}"></div>'
            yield folded("The last of them as a table", f'<table id="last-{number}"></table>')
            yield "</div>"
        yield "<h2>Fabric</h2>"
        yield from fabric_pictures(self.topology, 1, [job.name for job in self.scenario.jobs])
        yield (
            '<p class="quiet">Who waited for whom, busbw, causes and expectations are known when the run is'
            " over: <code>emu report"
            f" {escape(str(self._path))}</code> writes the whole page.</p>"
        )

    def _what(self, number: int, operation: int) -> tuple[str, int]:
        plan = self._plans[number]["operations"]
        if not plan:
            return f"step {operation + 1}", 0
        op, size_bytes = plan[operation % len(plan)]
        return op, size_bytes

    def _job(self, number: int, plan: Mapping[str, Any]) -> list[str]:
        rows = self._operations[number]
        if not rows:
            return [plan["name"], "0" if plan["operations"] else "-", "-", "-", "-", "-"]
        _, operation, start_ps, end_ps, status = rows[-1]
        op, size_bytes = self._what(number, operation)
        equal = [row for row in rows if not size_bytes or self._what(number, row[1]) == (op, size_bytes)]
        took_ps = sorted(row[3] - row[2] for row in equal)
        spread = " / ".join(about_time(took_ps[at]) for at in (0, len(took_ps) // 2, -1))
        rate = about_bandwidth(size_bytes * 8 * 10**12 // max(end_ps - start_ps, 1)) if size_bytes else "-"
        shown = f"{op} {about_size(size_bytes)}" if size_bytes else op
        took = about_time(end_ps - start_ps) if status == STATUS_SUCCESS else "failed"
        return [plan["name"], str(operation + 1), shown, took, spread, rate]

    def _chart(self, number: int, plan: Mapping[str, Any]) -> dict[str, Any]:
        """How long the last operations or steps took, each kind a line."""
        lines: dict[str, list[Any]] = {}
        for _, operation, start_ps, end_ps, status in self._operations[number][-MOST_BARS:]:
            if status == STATUS_SUCCESS:
                op, size_bytes = self._what(number, operation)
                kind = f"{op} {about_size(size_bytes)}" if size_bytes else "step"
                lines.setdefault(kind, []).append([operation + 1, end_ps - start_ps, []])
        return {
            "label": f"{plan['name']}: time of each operation or step",
            "x": "number",
            "y": "took_ps",
            "lines": [{"name": kind, "points": points} for kind, points in lines.items()],
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the time axis: operations of each job, faults, changes by hand."""
        for number, plan in enumerate(self._plans):
            bars: list[list[Any]] = []
            for _, operation, start_ps, end_ps, status in self._operations[number][-MOST_BARS:]:
                op, size_bytes = self._what(number, operation)
                words = f"{op} {about_size(size_bytes)}" if size_bytes else op
                kind = "job" if status == STATUS_SUCCESS else "failed"
                bars.append([start_ps, end_ps, words, kind, plan["name"]])
            yield {"label": plan["name"], "bars": bars}
        end_ps = max(self._edges_ps[-1], self._virtual_ps)
        by_fault: dict[int, list[list[Any]]] = {}
        for event in self._events:
            at_ps = event["virtual_ps"]
            if event.get("kind") == "fault" and at_ps <= end_ps:
                target = event.get("target", "")
                until_ps = fault_end(self.scenario, event, end_ps)
                bar = [at_ps, until_ps, f"{event['what']} {target}", "fault", target]
                by_fault.setdefault(event["fault"], []).append(bar)
            elif event.get("kind") == "change" and "fault" in event:
                injected = event["change"].get("inject")
                bars = by_fault.setdefault(event["fault"], [])
                if injected is not None:
                    target = injected.get("target", "")
                    bars.append([at_ps, end_ps, f"{injected.get('kind', 'fault')} {target}", "fault", target])
                elif bars:
                    bars[-1][1] = at_ps
        for _, bars in sorted(by_fault.items()):
            yield {"label": bars[0][2], "bars": [[bar[0], min(bar[1], end_ps), *bar[2:]] for bar in bars]}

    def _now_ps(self) -> int:
        return max(self._edges_ps[-1], self._virtual_ps)


class _Answering(BaseHTTPRequestHandler):
    """Answers a request; `server` is a `_Server`."""

    timeout = TIMEOUT_S
    server_version = "emu"
    sys_version = ""

    def setup(self) -> None:
        """Begin, with a time by which all of it is over, however the request trickles in."""
        super().setup()
        self._deadline = threading.Timer(DEADLINE_S, self._break_off)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        """Answered, or given up."""
        self._deadline.cancel()
        super().finish()

    def _break_off(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """The page, or what is new."""
        server = self.server
        assert isinstance(server, _Server)
        asked = urlsplit(self.path)
        parts = asked.path.split("/")
        origin = self.headers.get("Origin")
        if self.headers.get("Host") not in server.hosts:
            self._answer(403, "text/plain", "this server has another name\n")
        elif origin is not None and origin.removeprefix("http://") not in server.hosts:
            self._answer(403, "text/plain", "no page of another origin is answered\n")
        elif len(parts) != 3 or not secrets.compare_digest(parts[1].encode(), server.token.encode()):
            self._answer(404, "text/plain", "not found\n")
        elif parts[2] == "":
            with server.following.lock:
                page = server.following.page()
            self._answer(200, "text/html; charset=utf-8", page)
        elif parts[2] == "news":
            since = parse_qs(asked.query).get("since", ["0"])[0]
            if not since.isdecimal() or len(since) > 15:
                self._answer(400, "text/plain", "since: accepted: a whole number\n")
                return
            with server.following.lock:
                server.following.look()
                news = server.following.news(int(since))
            self._answer(200, "application/json", json.dumps(news, separators=(",", ":")))
        else:
            self._answer(404, "text/plain", "not found\n")

    def _answer(self, status: int, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


class _Server(ThreadingHTTPServer):
    """Serves from a socket that listens already."""

    daemon_threads = True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; more than `MOST_CLIENTS` at one time are told so and closed."""
        if self.clients.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.settimeout(0)
            request.send(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n")
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one, and make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.clients.release()

    def __init__(self, listening: socket.socket, token: str, following: Following) -> None:
        super().__init__(listening.getsockname(), _Answering, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        # A connection beyond the queue would ask again after seconds, and not be told that it has no place.
        listening.listen(4 * MOST_CLIENTS)
        port = listening.getsockname()[1]
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.token = token
        self.following = following
        self.clients = threading.BoundedSemaphore(MOST_CLIENTS)


def main(path: Path, descriptor: int) -> None:
    """Serve until standard input ends; its first line is the token."""
    token = sys.stdin.readline().strip()
    if not token:
        return
    following = Following(path)
    server = _Server(socket.socket(fileno=descriptor), token, following)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for text in sys.stdin:
        with following.lock:
            following.hear(json.loads(text))
    os._exit(0)  # Nobody is asked to let go: whoever looks hears no more of the run.


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
