"""A small HTTP server that answers while compiled code keeps the interpreter lock.

With the least HTTP/1.1 there is: one request a connection, one receive, one send, close, in threads of its
own. Every blocking call of such a thread gives the lock away and must get it back from a run that holds it
for a slice at a time, so there are as few of them as can be. A thread waits for all of its connections at
once: however many trickle their requests, or do not read, a scrape is answered when it is there. What is not
there or not read after `TIMEOUT_S` is closed; of more than `MOST_CLIENTS` the first goes.

The list of a run's workers (`http_sd`) is served here; their metrics pages are in
`emu.cluster.pages.metrics_page`.

Not here: TLS, authentication (loopback only), compression, keep-alive.
"""

from __future__ import annotations

import contextlib
import os
import selectors
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
MOST_CLIENTS: Final = 128
"""Connections of a thread."""
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
        self._socket.settimeout(0)
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
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        self._socket.close()  # after those that wait for it, who would hear no more of it

    def _serve(self) -> None:
        """Answer requests as they are there whole; none waits for another."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            clients: dict[_Client, None] = {}
            while True:
                first_s = min((one.deadline_s for one in clients), default=None)
                wait_s = None if first_s is None else max(first_s - time.monotonic(), LEAST_WAIT_S)
                for key, _ in selector.select(wait_s):
                    client = key.data
                    if client is None:
                        try:
                            client = _Client(self._socket.accept()[0])
                        except (BlockingIOError, ConnectionError):  # the other thread has it, or it has gone
                            continue
                        except OSError:
                            for one in clients:
                                one.close()
                            return
                        clients[client] = None
                        if len(clients) > MOST_CLIENTS:
                            _drop(next(iter(clients)), clients, selector)
                    if not self._go_on(client, selector):
                        _drop(client, clients, selector)
                now_s = time.monotonic()
                for client in [one for one in clients if one.deadline_s <= now_s]:
                    _drop(client, clients, selector)

    def _go_on(self, client: _Client, selector: selectors.BaseSelector) -> bool:
        """Receive or send what can be now; whether the connection goes on."""
        try:
            if not client.left:
                more = client.socket.recv(MAX_REQUEST_BYTES)
                client.request += more
                whole = b"\r\n\r\n" in client.request or len(client.request) >= MAX_REQUEST_BYTES
                if not more and not client.request:
                    return False
                if not whole and more:
                    _listen(selector, client, selectors.EVENT_READ)
                    return True
                client.left = self._answer(client)
                client.deadline_s = time.monotonic() + TIMEOUT_S
            while client.left:
                sent = client.socket.sendmsg(client.left)
                while client.left and sent >= len(client.left[0]):
                    sent -= len(client.left.pop(0))
                if sent:
                    client.left[0] = client.left[0][sent:]
        except BlockingIOError:
            _listen(selector, client, selectors.EVENT_WRITE if client.left else selectors.EVENT_READ)
            return True
        except OSError:
            pass
        return False

    def _answer(self, client: _Client) -> list[memoryview]:
        """The answer to a request."""
        request = bytes(client.request)
        words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _parts("400 Bad Request", "text/plain", b"not HTTP/1\n")
        if _host(request) not in LOOPBACK:
            return _parts("403 Forbidden", "text/plain", b"this server has another name\n")
        page = self.pages.get(words[1].split("?", 1)[0])
        if words[0] != "GET":
            return _parts("405 Method Not Allowed", "text/plain", b"only GET\n")
        if page is None:
            known = "".join(f"{path}\n" for path in tuple(self.pages)).encode()
            return _parts("404 Not Found", "text/plain", b"there is:\n" + known)
        client.page = page
        return _parts("200 OK", page.content_type, page.body())


class _Client:
    """A connection, and what is left of its request or its answer."""

    def __init__(self, opened: socket.socket) -> None:
        opened.settimeout(0)
        self.socket = opened
        self.deadline_s = time.monotonic() + TIMEOUT_S
        self.request = bytearray()
        self.left: list[memoryview] = []
        self.page: Page | None = None
        """Whose body it has."""
        self.listening = 0

    def close(self) -> None:
        """Close the connection; the page hears of it if it was asked."""
        self.socket.close()
        if self.page is not None:
            self.page.sent()


def _listen(selector: selectors.BaseSelector, client: _Client, events: int) -> None:
    if client.listening == events:
        return
    if client.listening:
        selector.modify(client.socket, events, client)
    else:
        selector.register(client.socket, events, client)
    client.listening = events


def _drop(client: _Client, clients: dict[_Client, None], selector: selectors.BaseSelector) -> None:
    if client in clients:
        del clients[client]
        if client.listening:
            selector.unregister(client.socket)
        client.close()


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


def _parts(status: str, content_type: str, body: bytes) -> list[memoryview]:
    """An answer; a page of megabytes is not copied to stand behind its head."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")
    return [memoryview(head), memoryview(body)] if body else [memoryview(head)]


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
