"""How do bodies of frames get to the other workers and back, while a round waits for them?

A frame on a socket is a 4-byte little-endian length and a body. `SocketExchange` is the fast path: the
thread that simulates drives all its sockets itself, both directions at once, so that two workers with full
buffers never wait for each other. It serves Unix sockets, where a window of two workers costs a few tens of
us; more where workers share cores, since then each sleeps and has to be woken. Sockets come to it
authenticated (`actors.runtime.peers`).
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

from emu.errors import ProtocolError, RuntimeFailure

LENGTH: Final = struct.Struct("<I")
MOST_BODY_BYTES: Final = 1 << 28
"""A longer frame is refused before its body is read: a batch of the most packets there may be fits."""
CHUNK_BYTES: Final = 1 << 20
BUFFER_BYTES: Final = 1 << 22
FLUSH_POLL_MS: Final = 20


class PeerGone(RuntimeFailure):
    """A worker's connection ended before the run did."""

    def __init__(self, peer: int, reason: str) -> None:
        super().__init__(peer, reason)
        self.peer = peer
        self.reason = reason

    def __str__(self) -> str:
        return f"worker {self.peer} went away: {self.reason}"


class Exchange(Protocol):
    """What moves bodies between workers."""

    def send(self, peer: int, body: bytes) -> None:
        """Send a body to a worker, now or while `receive` waits."""

    def receive(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Wait until something has arrived, in order from each peer; empty after the timeout.

        Raises PeerGone, or ProtocolError.
        """

    def flush(self, timeout_s: float) -> None:
        """Send what is left, as far as the peers take it in time.

        A worker whose round is complete does so before its window: its peers still read, because they
        cannot be done before they have it all.
        """

    def close(self) -> None:
        """Close every connection. May be called again."""


def framed(body: bytes) -> bytes:
    """A body with its length before it."""
    assert 0 < len(body) <= MOST_BODY_BYTES, len(body)
    return LENGTH.pack(len(body)) + body


class Unframer:
    """Cuts the bytes of a stream into bodies. Raises ProtocolError for a length that is out of bounds."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete with `data`, in order."""
        pending = self._pending
        if not pending and len(data) > LENGTH.size and LENGTH.unpack_from(data)[0] == len(data) - LENGTH.size:
            return [data[LENGTH.size :]]
        pending += data
        bodies: list[bytes] = []
        at = 0
        size = len(pending)
        while size - at >= LENGTH.size:
            (length,) = LENGTH.unpack_from(pending, at)
            if not 0 < length <= MOST_BODY_BYTES:
                raise ProtocolError(f"a frame of {length} bytes; at most {MOST_BODY_BYTES} may be")
            end = at + LENGTH.size + length
            if size < end:
                break
            bodies.append(bytes(pending[at + LENGTH.size : end]))
            at = end
        if at:
            del pending[:at]
        return bodies


class _Line:
    """One peer's socket and what waits to be sent on it."""

    __slots__ = ("out", "peer", "socket", "unframer")

    def __init__(self, peer: int, connection: socket.socket) -> None:
        self.peer = peer
        self.socket = connection
        self.out: deque[memoryview] = deque()
        self.unframer = Unframer()

    def push(self) -> None:
        """Send as much as the socket takes now."""
        out = self.out
        while out:
            head = out[0]
            sent = self.pass_to_socket(head)
            if sent < len(head):
                out[0] = head[sent:]
                return
            out.popleft()

    def pass_to_socket(self, data: memoryview) -> int:
        """How many of these bytes the socket takes now."""
        try:
            return self.socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerGone(self.peer, error.strerror or str(error)) from None

    def pull(self) -> list[bytes]:
        """The bodies that have arrived by now."""
        try:
            data = self.socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            raise PeerGone(self.peer, error.strerror or str(error)) from None
        if not data:
            raise PeerGone(self.peer, "it closed its connection")
        return self.unframer.feed(data)


class SocketExchange:
    """Drives connected, authenticated sockets from one thread.

    It looks for what arrives for `spin_s` before it sleeps: to be woken takes longer than most windows.
    """

    def __init__(self, sockets: Mapping[int, socket.socket], spin_s: float = 0.0) -> None:
        self._spin_s = spin_s
        self._lines = {peer: _Line(peer, connection) for peer, connection in sorted(sockets.items())}
        self._by_descriptor: dict[int, _Line] = {}
        self._poll = select.poll()
        for line in self._lines.values():
            line.socket.settimeout(0)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                line.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            self._by_descriptor[line.socket.fileno()] = line
            self._poll.register(line.socket, select.POLLIN)

    def send(self, peer: int, body: bytes) -> None:
        """Send a body to a worker, now or while `receive` waits."""
        line = self._lines[peer]
        frame = memoryview(framed(body))
        if not line.out:
            sent = line.pass_to_socket(frame)
            if sent == len(frame):
                return
            frame = frame[sent:]
        line.out.append(frame)

    def receive(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Wait until something has arrived; empty after the timeout. Raises PeerGone, or ProtocolError."""
        received: list[tuple[int, bytes]] = []
        asleep_s = time.perf_counter() + self._spin_s
        while True:
            for line in self._lines.values():
                if line.out:
                    line.push()
                received += [(line.peer, body) for body in line.pull()]
            if received:
                return received
            if time.perf_counter() >= asleep_s:
                break
        deadline_s = time.monotonic() + timeout_s
        while not received:
            stuck = [line for line in self._lines.values() if line.out]
            for line in stuck:
                self._poll.modify(line.socket, select.POLLIN | select.POLLOUT)
            for descriptor, event in self._poll.poll(timeout_s * 1000):
                line = self._by_descriptor[descriptor]
                if event & select.POLLOUT:
                    line.push()
                if event & ~select.POLLOUT:
                    received += [(line.peer, body) for body in line.pull()]
            for line in stuck:
                if not line.out:
                    self._poll.modify(line.socket, select.POLLIN)
            if time.monotonic() >= deadline_s:
                break
        return received

    def flush(self, timeout_s: float) -> None:
        """Send what is left, as far as the peers take it in time."""
        deadline_s = time.monotonic() + timeout_s
        for line in self._lines.values():
            while line.out and time.monotonic() < deadline_s:
                self._poll.modify(line.socket, select.POLLOUT)
                self._poll.poll(FLUSH_POLL_MS)
                line.push()
                self._poll.modify(line.socket, select.POLLIN)

    def close(self) -> None:
        """Close every connection. May be called again."""
        for line in self._lines.values():
            line.socket.close()
