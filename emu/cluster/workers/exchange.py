"""Exchange of frames with the other workers while a round waits for them.

A frame on a socket is a 4-byte little-endian length and a body. `SocketExchange` is the fast path: the
thread that simulates drives all its sockets itself, both directions at once, so that two workers with full
buffers never wait for each other. A window of two workers costs a few tens of us; more where workers share
cores, since then each sleeps and has to be woken. Sockets come to it authenticated
(`emu.cluster.workers.peers`): Unix sockets, and TCP sockets with a `Seal` for each direction.

Of a TCP socket the buffers stay as the kernel sizes them, which does so by the connection's round trip; to
set them would end that, and at a smaller size.

The seal shows a worker that what arrives over TCP is what its peer sent, all of it, in order, and once.
Between hosts a connection can be tampered with by whoever is on the path; that it was authenticated when it
began is not enough. Each direction of a connection has a key of its own, derived from the run's secret and
both hellos (`emu.cluster.workers.peers`), so what was recorded on another connection or in the other
direction is worth nothing. Before every body goes a keyed BLAKE2b hash (RFC 7693) of its number in the stream
and the body. The number itself does not travel: both ends count.

Not covered by the seal: secrecy, and who cuts the connection.
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, Protocol

from librt.strings import read_i32_le

from emu.base.errors import ProtocolError, RuntimeFailure

MAC_BYTES: Final = 16
_NUMBER_BYTES: Final = 8


class Seal:
    """One direction of one connection, at one end."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(digest_size=MAC_BYTES, key=key)
        """The hash when it has taken in the key and nothing else: a copy costs two thirds of a new one."""
        self._number = 0

    def close(self, body: bytes) -> bytes:
        """The next body, sealed."""
        return self._mac(body) + body

    def open(self, sealed: bytes) -> bytes:
        """The body in the next sealed one. Raises ProtocolError if it is not what the peer sent next."""
        mac, body = sealed[:MAC_BYTES], sealed[MAC_BYTES:]
        number = self._number
        if not hmac.compare_digest(mac, self._mac(body)):
            raise ProtocolError(f"frame {number} was changed, repeated or left out on the way: a broken seal")
        return body

    def _mac(self, body: bytes) -> bytes:
        hashed = self._keyed.copy()
        hashed.update(self._number.to_bytes(_NUMBER_BYTES, "little"))
        hashed.update(body)
        self._number += 1
        return hashed.digest()


LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = 4
MOST_BODY_BYTES: Final = 1 << 28
"""A longer frame is refused before its body is read: a batch of the most packets there may be fits."""
QUIET_BYTES: Final = 479
"""The first read of a frame: a round without packets fits, in the largest of Python's own small blocks."""
CHUNK_BYTES: Final = 1 << 20
BUFFER_BYTES: Final = 1 << 22
"""Of a socket, each way."""
FLUSH_POLL_MS: Final = 20
"""Between looks at whether a peer reads again."""
POLLIN: Final = select.POLLIN
POLLOUT: Final = select.POLLOUT
_LENGTHS: Final = [LENGTH.pack(length) for length in range(QUIET_BYTES)]
"""The lengths of the bodies of most rounds, packed."""


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


def length_of(body: bytes) -> bytes:
    """What stands before a body."""
    size = len(body)
    assert 0 < size <= MOST_BODY_BYTES, size
    return _LENGTHS[size] if size < QUIET_BYTES else LENGTH.pack(size)


def framed(body: bytes) -> bytes:
    """A body with its length before it."""
    return length_of(body) + body


class Unframer:
    """Cuts the bytes of a stream into bodies. Raises ProtocolError for a length that is out of bounds.

    What is not whole yet waits in a buffer that is kept for the next frame: a buffer for each would be made
    and undone by the kernel, page by page.
    """

    def __init__(self) -> None:
        self.lacking = 0
        """Bytes that the frame lacks that has begun; 0 if none has, or its length is unknown."""
        self._buffer = bytearray()
        self._filled = 0
        """Bytes at its beginning that are pending."""

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete with `data`, in order."""
        filled = self._filled
        size = len(data)
        if filled == 0 and size > LENGTH_BYTES and read_i32_le(data, 0) == size - LENGTH_BYTES:
            return [data[LENGTH_BYTES:]]
        self._reserve(filled + size)
        self._buffer[filled : filled + size] = data
        return self.take(size)

    def room(self, most: int) -> memoryview:
        """Where what is lacking belongs, at most so much of it: to be filled from its start, then taken."""
        end = self._filled + min(self.lacking, most)
        self._reserve(end)
        return memoryview(self._buffer)[self._filled : end]

    def take(self, size: int) -> list[bytes]:
        """The bodies that are complete with the next `size` bytes of the buffer, in order."""
        buffer = self._buffer
        filled = self._filled + size
        bodies: list[bytes] = []
        at = 0
        self.lacking = 0
        while filled - at >= LENGTH_BYTES:
            (length,) = LENGTH.unpack_from(buffer, at)
            if not 0 < length <= MOST_BODY_BYTES:
                raise ProtocolError(f"a frame of {length} bytes; at most {MOST_BODY_BYTES} may be")
            end = at + LENGTH_BYTES + length
            if filled < end:
                self.lacking = end - filled
                break
            bodies.append(bytes(memoryview(buffer)[at + LENGTH_BYTES : end]))
            at = end
        if 0 < at < filled:
            buffer[: filled - at] = buffer[at:filled]
        self._filled = filled - at
        return bodies

    def _reserve(self, size: int) -> None:
        """Have the buffer be so long at least."""
        more = size - len(self._buffer)
        if more > 0:
            self._buffer += bytes(more)


class _Line:
    """One peer's socket, its seals (None on a Unix socket), and what waits to be sent on it."""

    __slots__ = ("closes", "lost", "opens", "out", "peer", "socket", "unframer")

    def __init__(self, peer: int, connection: socket.socket, seals: tuple[Seal, Seal] | None) -> None:
        self.peer = peer
        self.socket = connection
        self.closes: Seal | None = None if seals is None else seals[0]
        self.opens: Seal | None = None if seals is None else seals[1]
        self.out: deque[memoryview] = deque()
        self.unframer = Unframer()
        self.lost: PeerGone | None = None
        """How its connection ended, once it has."""

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

    def pass_to_socket(self, data: bytes | memoryview, length: bytes = b"") -> int:
        """How many of these bytes, behind those of `length`, the socket takes now; all, if nobody is there
        to read them."""
        if self.lost is not None:
            return len(length) + len(data)
        try:
            return self.socket.sendmsg((length, data)) if length else self.socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.lost = PeerGone(self.peer, error.strerror or str(error))
            return len(length) + len(data)

    def pull(self, received: list[tuple[int, bytes]]) -> None:
        """Take what has arrived by now; the bodies that are complete with it come behind `received`."""
        unframer = self.unframer
        while True:
            bodies: list[bytes] = []
            asked = min(unframer.lacking, CHUNK_BYTES) or QUIET_BYTES
            try:
                if unframer.lacking:
                    size = self.socket.recv_into(unframer.room(asked))
                    bodies = unframer.take(size)
                else:
                    data = self.socket.recv(asked)
                    size = len(data)
                    bodies = unframer.feed(data) if size else bodies
                if self.opens is not None:
                    bodies = [self.opens.open(body) for body in bodies]
            except BlockingIOError:
                return
            except OSError as error:
                self.lost = self.lost or PeerGone(self.peer, error.strerror or str(error))
                return
            except ProtocolError as error:
                raise ProtocolError(f"from worker {self.peer}: {error}") from None
            if size == 0:
                self.lost = self.lost or PeerGone(self.peer, "it closed its connection")
                return
            received += [(self.peer, body) for body in bodies]
            if size < asked or not unframer.lacking:
                return


class SocketExchange:
    """Drives connected, authenticated sockets from one thread; every TCP socket comes with its seals.

    It looks for what arrives for `spin_s` before it sleeps: to be woken takes longer than most windows.

    Only `receive` says that a connection ended, and only once all that had arrived by then was taken, from
    every peer: a worker that gives up says why, and then it and all that hear of it close.
    """

    def __init__(
        self,
        sockets: Mapping[int, socket.socket],
        spin_s: float = 0.0,
        seals: Mapping[int, tuple[Seal, Seal]] | None = None,
    ) -> None:
        self._spin_s = spin_s
        self._lines = {
            peer: _Line(peer, connection, None if seals is None else seals.get(peer))
            for peer, connection in sorted(sockets.items())
        }
        self._by_descriptor: dict[int, _Line] = {}
        self._poll = select.poll()
        self._stuck = 0
        """How many lines have something to send that their socket did not take; they are polled for that."""
        self._lost: PeerGone | None = None
        """How the first connection ended that did."""
        for line in self._lines.values():
            line.socket.settimeout(0)
            if line.socket.family == socket.AF_UNIX:
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    line.socket.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            else:
                assert line.closes is not None, f"the connection to worker {line.peer} has no seal"
                line.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._by_descriptor[line.socket.fileno()] = line
            self._poll.register(line.socket, POLLIN)

    def send(self, peer: int, body: bytes) -> None:
        """Send a body to a worker, now or while `receive` waits."""
        line = self._lines[peer]
        if line.closes is not None:
            body = line.closes.close(body)
        if line.out or len(body) < QUIET_BYTES:
            length, frame = b"", framed(body)
        else:  # the length goes beside a long body, which is not copied behind it
            length, frame = length_of(body), body
        if line.out:
            line.out.append(memoryview(frame))
            return
        sent = line.pass_to_socket(frame, length) - len(length)
        if line.lost is not None:
            self._lost = self._lost or line.lost
        elif sent < len(frame):
            if sent < 0:
                line.out.append(memoryview(length)[sent:])
                sent = 0
            line.out.append(memoryview(frame)[sent:])
            self._poll.modify(line.socket, POLLIN | POLLOUT)
            self._stuck += 1

    def receive(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Wait until something has arrived; empty after the timeout. Raises PeerGone, or ProtocolError."""
        received: list[tuple[int, bytes]] = []
        if self._spin_s > 0:
            self._serve(self._poll.poll(0), received)
            asleep_s = 0.0 if received else time.perf_counter() + self._spin_s
            while not received and time.perf_counter() < asleep_s:
                self._serve(self._poll.poll(0), received)
        deadline_s = 0.0 if received else time.monotonic() + timeout_s
        while not received:
            lost = self._lost
            self._serve(self._poll.poll(0 if lost else timeout_s * 1000), received)
            if lost is not None and not received:
                raise lost
            if time.monotonic() >= deadline_s:
                break
        return received

    def flush(self, timeout_s: float) -> None:
        """Send what is left, as far as the peers take it in time."""
        if not self._stuck:
            return
        deadline_s = time.monotonic() + timeout_s
        for line in self._lines.values():
            if line.out:
                self._poll.modify(line.socket, POLLOUT)
                while line.out and time.monotonic() < deadline_s:
                    self._poll.poll(FLUSH_POLL_MS)
                    line.push()
                self._unstick(line)

    def close(self) -> None:
        """Close every connection. May be called again."""
        for line in self._lines.values():
            line.socket.close()

    def _serve(self, ready: list[tuple[int, int]], received: list[tuple[int, bytes]]) -> None:
        """Do what can be done with the sockets that are ready; whole bodies come behind `received`."""
        for descriptor, event in ready:
            line = self._by_descriptor[descriptor]
            if event & POLLOUT:
                line.push()
                self._unstick(line)
            if event & ~POLLOUT:
                line.pull(received)
            if line.lost is not None:
                self._lost = self._lost or line.lost

    def _unstick(self, line: _Line) -> None:
        """Poll a line that was stuck as it is now."""
        if line.out:
            self._poll.modify(line.socket, POLLIN | POLLOUT)
        else:
            self._poll.modify(line.socket, POLLIN)
            self._stuck -= 1
