"""A small HTTP server that answers while compiled code keeps the interpreter lock.

With the least HTTP/1.1 there is: one request a connection, one receive, one send, close, in threads of its
own. Every blocking call of such a thread gives the lock away and must get it back from a run that holds it
for a slice at a time, so there are as few of them as can be. A request that is not there after `TIMEOUT_S` is
not waited for, however it trickles.

The list of a run's workers (`http_sd`) is served here; their metrics pages are in
`emu.cluster.pages.metrics_page`.

Not here: TLS, authentication (loopback only), compression, keep-alive.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from emu.base.errors import RuntimeFailure
from emu.engine.result import target_list

THREADS: Final = 2
TIMEOUT_S: Final = 2.0
LEAST_WAIT_S: Final = 0.001
MAX_REQUEST_BYTES: Final = 16 * 1024
LOOPBACK: Final = ("", "127.0.0.1", "localhost", "[::1]")
"""Names of this host under which a page is served, by any port, since a tunnel may have another."""
JSON_TYPE: Final = "application/json"


class Page(Protocol):
    """What a `PageServer` serves under one path."""

    content_type: str

    def body(self) -> bytes:
        """The page, now. Called from a server's thread."""

    def sent(self) -> None:
        """The answer is out, or the client is gone; called once for each call of `body`."""


class PageServer:
    """A few pages over HTTP/1.1 on a loopback port; one request a connection.

    Port 0 lets the kernel choose. Answers GET with a page or 404, anything else with 405. Its threads are
    daemons; `close` ends them. Raises RuntimeFailure if the port cannot be had.
    """

    def __init__(self, pages: Mapping[str, Page], name: str, port: int = 0) -> None:
        self.pages = dict(pages)
        try:
            self._socket = socket.create_server(("127.0.0.1", port), backlog=16)
            # Who connects and says nothing does not take a thread from a scrape.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, int(TIMEOUT_S))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise RuntimeFailure(
                f"port {port} of 127.0.0.1 cannot be had for the {name} page: {reason}"
            ) from None
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"{name}-{at}", daemon=True) for at in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop listening and let the threads end. May be called again."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except ConnectionError:
                continue
            except OSError:
                return
            with connection:
                try:
                    self._answer(connection)
                except OSError:
                    continue

    def _answer(self, connection: socket.socket) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        connection.settimeout(TIMEOUT_S)
        request = connection.recv(MAX_REQUEST_BYTES)
        while request and b"\r\n\r\n" not in request and len(request) < MAX_REQUEST_BYTES:
            connection.settimeout(max(deadline_s - time.monotonic(), LEAST_WAIT_S))
            more = connection.recv(MAX_REQUEST_BYTES)
            if not more:
                return
            request += more
        connection.settimeout(TIMEOUT_S)
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            _send(connection, "400 Bad Request", "text/plain", b"not HTTP/1\n")
            return
        if _host(request) not in LOOPBACK:
            _send(connection, "403 Forbidden", "text/plain", b"this server has another name\n")
            return
        page = self.pages.get(words[1].split("?", 1)[0])
        if words[0] != "GET":
            _send(connection, "405 Method Not Allowed", "text/plain", b"only GET\n")
        elif page is None:
            known = "".join(f"{path}\n" for path in tuple(self.pages)).encode()
            _send(connection, "404 Not Found", "text/plain", b"there is:\n" + known)
        else:
            try:
                _send(connection, "200 OK", page.content_type, page.body())
            finally:
                page.sent()


def _host(request: bytes) -> str:
    """The name by which a client calls this server, without its port; empty if it gives none.

    A page of somebody's web site whose name was made to lead here gives its own.
    """
    for line in request.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"host":
            host = value.strip().decode("latin-1").lower()
            return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return ""


def _send(connection: socket.socket, status: str, content_type: str, body: bytes) -> None:
    """Answer; a page of megabytes is not copied to stand behind its head."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")
    sent = connection.sendmsg([head, body])
    for part in (head[sent:], memoryview(body)[max(sent - len(head), 0) :]):
        connection.sendall(part)


class Discovery:
    """The page that lists the workers of a run for Prometheus' `http_sd_configs`: `http://ADDRESS/sd`.

    `targets` are (worker number, metrics address) pairs; `set_targets` replaces them when a worker is
    restarted. Pages that a Prometheus here cannot reach are served beside it.
    """

    content_type = JSON_TYPE

    def __init__(self, run: str, targets: Iterable[tuple[int, str]] = (), port: int = 0) -> None:
        self.run = run
        self._body = b"[]"
        self.set_targets(targets)
        self._server = PageServer({"/sd": self}, "discovery", port)
        self.url = f"http://{self._server.address}/sd"

    def set_targets(self, targets: Iterable[tuple[int, str]]) -> None:
        """List these workers from now on."""
        self._body = target_list(self.run, targets).encode()

    def serve(self, worker: int, page: Page) -> str:
        """Serve a worker's page from here on; its address."""
        self._server.pages[f"/workers/{worker}/metrics"] = page
        return f"{self._server.address}/workers/{worker}"

    def body(self) -> bytes:
        """The list, as JSON."""
        return self._body

    def sent(self) -> None:
        """Nothing waits for a scrape of this page."""

    def close(self) -> None:
        """Stop serving. May be called again."""
        self._server.close()
