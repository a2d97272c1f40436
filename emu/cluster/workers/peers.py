"""Connections between workers: finding each other, the handshake, reaching each other.

Each worker listens on a Unix socket in a directory of its own that nobody else may enter, and, where the
run spans hosts, on a TCP port that the kernel chooses. Of two workers the one with the higher number
connects. Whoever connects must prove the run's secret within `HANDSHAKE_S`,
before a byte of it is decoded; whoever does not is closed, noted with its address and the reason, and the run
goes on undisturbed. At most `STRANGERS` connections may be unproven at one time: when one more comes, the
oldest goes. So a flood of them does not keep a peer out, which proves itself at once. Who connects and is
turned away all the same, or hears nothing (the listener's process may be stopped), calls again, `TRIES` times
in all.

Over TCP every body is sealed as well (`emu.cluster.workers.exchange`).

trio runs all of this. Then the connections are handed to what moves the windows: to the thread that
simulates (`SocketExchange`), with the seals of those over TCP. Its reference is `StreamExchange`, where trio
reads and writes on behalf of that thread: plainer, and much dearer (`docs/scale.md`).

The handshake, in which two workers prove that they belong to the same run. Every run has a secret, which
workers get from the coordinator and which never leaves them. On a new connection:

    connector -> listener   hello: magic, worker, incarnation, nonce
    listener -> connector   hello, and a proof over both hellos
    connector -> listener   a proof over both hellos
    listener -> connector   a byte: welcome

A proof is HMAC-SHA256 under the secret over who proves it, the run's name, and both hellos. Nonces are
fresh and roles differ, so a recorded or reflected proof is worth nothing. All have a fixed size;
nothing in them has a length of its own, so there is nothing to decode. The last byte proves nothing: it tells
a connector that was slow (its process was stopped) whether the listener still waits.

The *incarnation* counts how often the run has gone back to a snapshot. All workers of a run have the same
one, and it is in the hellos, so in every proof and seal: a worker that was left behind when the others went
back is refused, whatever it remembers.

Not covered: secrecy. Whoever can read the network can read the packets of the emulation.
"""

from __future__ import annotations

import errno
import hmac
import os
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from emu.base.errors import EmuError, ProtocolError, RuntimeFailure
from emu.base.short_paths import private_directory, remove_private
from emu.cluster.workers.exchange import CHUNK_BYTES, PeerGone, Seal, Unframer, framed

MAGIC: Final = b"emu2"
NONCE_BYTES: Final = 32
HELLO: Final = struct.Struct(f"<4sII{NONCE_BYTES}s")
HELLO_BYTES: Final = HELLO.size
PROOF_BYTES: Final = 32
SECRET_BYTES: Final = 32
WELCOME: Final = b"\x01"

_CONNECTOR: Final = b"connector"
_LISTENER: Final = b"listener"
_FROM_CONNECTOR: Final = b"seal from connector"
_FROM_LISTENER: Final = b"seal from listener"


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What the workers of a run share: its name, its secret, how many they are, and their incarnation."""

    run: str
    secret: bytes
    workers: int
    incarnation: int = 0

    def __repr__(self) -> str:
        return f"RunIdentity({self.run!r}, workers={self.workers}, incarnation={self.incarnation})"


class Handshake:
    """One side of the proof of one connection, without the socket."""

    def __init__(self, identity: RunIdentity, worker: int, connects: bool) -> None:
        self._identity = identity
        self._worker = worker
        self._connects = connects
        self.hello = HELLO.pack(MAGIC, worker, identity.incarnation, secrets.token_bytes(NONCE_BYTES))
        """The first bytes this side sends."""
        self._theirs = b""
        self.peer = -1
        """Who the other side says it is; believe it once its proof was accepted."""

    def take_hello(self, hello: bytes) -> None:
        """The other side's hello. Raises ProtocolError."""
        magic, worker, incarnation, nonce = HELLO.unpack(hello)
        if magic != MAGIC:
            raise ProtocolError("whoever connected does not speak this protocol")
        if worker >= self._identity.workers or worker == self._worker:
            raise ProtocolError(f"whoever connected calls itself worker {worker} of {self._identity.workers}")
        mine = self._identity.incarnation
        if incarnation != mine:
            raise ProtocolError(
                f"whoever calls itself worker {worker} is of incarnation {incarnation}; "
                f"this run is in its {mine}"
            )
        if nonce == self.hello[-NONCE_BYTES:]:
            raise ProtocolError("whoever connected sends our own hello back")
        self._theirs = hello
        self.peer = worker

    def proof(self) -> bytes:
        """What this side proves itself with, once it has the other's hello."""
        return self._proof_of(self._connects)

    def check_proof(self, proof: bytes) -> None:
        """The other side's proof. Raises ProtocolError."""
        if not hmac.compare_digest(proof, self._proof_of(not self._connects)):
            raise ProtocolError(
                f"whoever calls itself worker {self.peer} does not know the secret of this run"
            )

    def seals(self) -> tuple[Seal, Seal]:
        """For what this side sends and what it receives on this connection."""
        ways = (_FROM_CONNECTOR, _FROM_LISTENER) if self._connects else (_FROM_LISTENER, _FROM_CONNECTOR)
        return Seal(self._derived(ways[0])), Seal(self._derived(ways[1]))

    def _proof_of(self, connector: bool) -> bytes:
        return self._derived(_CONNECTOR if connector else _LISTENER)

    def _derived(self, purpose: bytes) -> bytes:
        """32 bytes that only who knows the secret can make, for one purpose on this connection."""
        assert self._theirs, "the other side's hello comes first"
        first, second = (self.hello, self._theirs) if self._connects else (self._theirs, self.hello)
        said = b"\0".join((purpose, self._identity.run.encode())) + b"\0" + first + second
        return hmac.digest(self._identity.secret, said, "sha256")


HANDSHAKE_S: Final = 20.0
CONNECT_S: Final = 150.0
"""Until all workers are connected."""
TRIES: Final = 5
AGAIN_S: Final = 0.1
"""How often, and how soon again, a peer is called that hangs up or says nothing."""
SCARCE: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED))
"""What keeps a listener from accepting now, and not for ever."""
STRANGERS: Final = 64
MOST_REFUSALS: Final = 100
MOST_WAITING: Final = 64
"""Bodies of a known peer that may wait in a `StreamExchange`: more than the protocol needs."""
FORCING_TCP: Final = ("tcp", "streams")
"""Values of `RunOptions.sockets` with which workers of one host use TCP too."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a worker can be reached: `unix` on its own host, `tcp` as HOST:PORT; empty if not at all."""

    host: str
    """Which host it is on: equal for workers that can share Unix sockets."""
    unix: str
    tcp: str

    def way_from(self, mine: Address, sockets: str) -> str:
        """The way from `mine` to here: a Unix path, or HOST:PORT."""
        return self.unix if self.host == mine.host and sockets not in FORCING_TCP else self.tcp


class HungUp(ProtocolError):
    """The other side closed a connection, or said nothing, before both knew each other."""


class Peers:
    """The connections of one worker to the others. Its async methods run under trio."""

    def __init__(self, identity: RunIdentity, worker: int) -> None:
        self._identity = identity
        self._worker = worker
        self._directory: Path | None = None
        self._listeners: list[trio.SocketListener] = []
        self._arrived = trio.Condition()
        self._strangers: list[trio.CancelScope] = []
        """Connections that have proved nothing yet, the oldest first."""
        self.streams: dict[int, trio.SocketStream] = {}
        self.seals: dict[int, tuple[Seal, Seal]] = {}
        """For connections over TCP: what goes to a peer is sealed with the first, what comes with the
        second."""
        self.refused = 0
        """How many connections were refused."""
        self.refusals: list[str] = []
        """From where and why, until someone takes them away: at most `MOST_REFUSALS` of them."""

    async def listen(self, host: str, tcp_host: str) -> Address:
        """Open the sockets; `tcp_host` is the address to listen on for other hosts, empty for none."""
        self._directory = private_directory()
        path = self._directory / "peers"
        unix = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        await unix.bind(str(path))
        unix.listen(STRANGERS)
        self._listeners.append(trio.SocketListener(unix))
        tcp = ""
        if tcp_host:
            listener = (await trio.open_tcp_listeners(0, host=tcp_host, backlog=STRANGERS))[0]
            self._listeners.append(listener)
            tcp = f"{tcp_host}:{listener.socket.getsockname()[1]}"
        return Address(host, str(path), tcp)

    async def serve(self) -> None:
        """Accept connections until cancelled."""
        async with trio.open_nursery() as nursery:
            for listener in self._listeners:
                nursery.start_soon(self._accept, listener, nursery)

    async def connect(self, addresses: dict[int, str]) -> None:
        """Connect to every peer below this worker, and wait for those above. Raises EmuError.

        `addresses` are Unix paths or HOST:PORT, by worker.
        """
        with trio.move_on_after(CONNECT_S) as limit:
            for peer, address in sorted(addresses.items()):
                if peer < self._worker:
                    await self._reach(peer, address)
            async with self._arrived:
                while len(self.streams) < len(addresses):
                    await self._arrived.wait()
        if limit.cancelled_caught:
            absent = [peer for peer in sorted(addresses) if peer not in self.streams]
            raise RuntimeFailure(
                f"worker {self._worker} has no connection to worker {absent[0]} at {addresses[absent[0]]} "
                f"after {CONNECT_S:.0f} s{self._why()}"
            )

    def drain_refusals(self) -> tuple[str, ...]:
        """The refusals since the last call; also from another thread."""
        taken, self.refusals = self.refusals, []
        return tuple(taken)

    def take_sockets(self) -> dict[int, socket.socket]:
        """The authenticated connections as plain sockets; trio knows them no longer."""
        sockets = {}
        for peer, stream in sorted(self.streams.items()):
            family, kind = stream.socket.family, stream.socket.type
            sockets[peer] = socket.socket(family, kind, fileno=stream.socket.detach())
        self.streams = {}
        return sockets

    async def close(self) -> None:
        """Close listeners and connections and remove the directory. May be called again."""
        for listener in self._listeners:
            listener.socket.close()
        for stream in self.streams.values():
            stream.socket.close()
        if self._directory is not None:
            remove_private(self._directory)
        await trio.lowlevel.checkpoint()

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in SCARCE:
                    return
                await trio.sleep(AGAIN_S)  # until a stranger is turned away, or a file is closed
                continue
            except trio.ClosedResourceError:
                return
            if len(self._strangers) >= STRANGERS:
                self._strangers.pop(0).cancel()
            patience = trio.CancelScope()
            self._strangers.append(patience)
            nursery.start_soon(self._admit, stream, patience)

    async def _admit(self, stream: trio.SocketStream, patience: trio.CancelScope) -> None:
        whence = _whence(stream)
        handshake: Handshake | None = None
        try:
            with patience, trio.fail_after(HANDSHAKE_S):
                _check_credentials(stream)
                handshake = await self._prove(stream, connects=False)
            if handshake is None:
                raise ProtocolError(f"more than {STRANGERS} connections at one time have proved nothing")
            peer = handshake.peer
            if peer <= self._worker or peer in self.streams:
                raise ProtocolError(f"worker {peer} connected, which it need not do")
            await stream.send_all(WELCOME)
            await self._keep(handshake, stream)
        except (
            ProtocolError,
            trio.TooSlowError,
            trio.BrokenResourceError,
            trio.ClosedResourceError,
        ) as error:
            self._refuse(whence, str(error) or f"a connection proved nothing in {HANDSHAKE_S:.0f} s")
            stream.socket.close()
        finally:
            if patience in self._strangers:
                self._strangers.remove(patience)

    async def _reach(self, peer: int, address: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                await self._call(peer, address)
            except HungUp:
                if not left:
                    raise
                await trio.sleep(AGAIN_S)
            else:
                return

    async def _call(self, peer: int, address: str) -> None:
        try:
            stream = await _open(address)
        except OSError as error:
            reason = error.strerror or str(error)
            raise RuntimeFailure(f"worker {peer} cannot be reached at {address}: {reason}") from None
        try:
            with trio.fail_after(HANDSHAKE_S):
                handshake = await self._prove(stream, connects=True)
            if handshake.peer != peer:
                raise ProtocolError(f"worker {handshake.peer} answers at {address}, not worker {peer}")
            await _exactly(stream, len(WELCOME))
        except EmuError as error:
            stream.socket.close()
            raise type(error)(f"worker {peer} at {address}: {error}") from None
        except (trio.TooSlowError, trio.BrokenResourceError) as error:
            stream.socket.close()
            slow = isinstance(error, trio.TooSlowError)
            reason = f"no proof in {HANDSHAKE_S:.0f} s" if slow else "the connection broke"
            raise HungUp(f"worker {peer} at {address}: {reason}") from None
        await self._keep(handshake, stream)

    async def _prove(self, stream: trio.SocketStream, *, connects: bool) -> Handshake:
        handshake = Handshake(self._identity, self._worker, connects)
        if connects:
            await stream.send_all(handshake.hello)
            handshake.take_hello(await _exactly(stream, HELLO_BYTES))
            handshake.check_proof(await _exactly(stream, PROOF_BYTES))
            await stream.send_all(handshake.proof())
        else:
            handshake.take_hello(await _exactly(stream, HELLO_BYTES))
            await stream.send_all(handshake.hello + handshake.proof())
            handshake.check_proof(await _exactly(stream, PROOF_BYTES))
        return handshake

    async def _keep(self, handshake: Handshake, stream: trio.SocketStream) -> None:
        self.streams[handshake.peer] = stream
        if stream.socket.family != socket.AF_UNIX:
            self.seals[handshake.peer] = handshake.seals()
        async with self._arrived:
            self._arrived.notify_all()

    def _refuse(self, whence: str, reason: str) -> None:
        self.refused += 1
        if len(self.refusals) < MOST_REFUSALS:
            self.refusals.append(f"{whence}: {reason}")

    def _why(self) -> str:
        return f" (refused: {self.refusals[-1]})" if self.refusals else ""


class StreamExchange:
    """Moves bodies over trio's streams on behalf of the thread that simulates."""

    def __init__(
        self,
        streams: dict[int, trio.SocketStream],
        token: trio.lowlevel.TrioToken,
        spawn: Callable[..., None],
        seals: Mapping[int, tuple[Seal, Seal]] | None = None,
    ) -> None:
        self._token = token
        self._seals = dict(seals or {})
        self._streams = streams
        self._inbox: queue.SimpleQueue[tuple[int, list[bytes] | EmuError]] = queue.SimpleQueue()
        self._outboxes: dict[int, trio.MemorySendChannel[bytes]] = {}
        self._came = dict.fromkeys(streams, 0)
        self._taken = dict.fromkeys(streams, 0)
        """How many bodies of each peer trio has read, and the other thread has taken."""
        self._asked = 0
        self._written = 0
        self._wrote = threading.Event()
        for peer, stream in sorted(streams.items()):
            sender, receiver = trio.open_memory_channel[bytes](1 << 16)
            self._outboxes[peer] = sender
            spawn(self._write, peer, stream, receiver)
            spawn(self._read, peer, stream)

    def send(self, peer: int, body: bytes) -> None:
        """Send a body to a worker as soon as its stream takes it."""
        self._asked += 1
        if peer in self._seals:
            body = self._seals[peer][0].close(body)
        self._token.run_sync_soon(self._outboxes[peer].send_nowait, framed(body))

    def receive(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Wait until something has arrived; empty after the timeout. Raises PeerGone, or ProtocolError."""
        try:
            peer, found = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return []
        if isinstance(found, EmuError):
            raise found
        self._taken[peer] += len(found)
        return [(peer, body) for body in found]

    def flush(self, timeout_s: float) -> None:
        """Wait until everything was handed to the streams, or the time is over."""
        deadline_s = time.monotonic() + timeout_s
        while self._written < self._asked and (left_s := deadline_s - time.monotonic()) > 0:
            self._wrote.wait(left_s)
            self._wrote.clear()

    def close(self) -> None:
        """Close every connection. May be called again."""
        for stream in self._streams.values():
            self._token.run_sync_soon(stream.socket.close)

    async def _write(
        self, peer: int, stream: trio.SocketStream, bodies: trio.MemoryReceiveChannel[bytes]
    ) -> None:
        try:
            async for body in bodies:
                await stream.send_all(body)
                self._written += 1
                self._wrote.set()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._inbox.put((peer, PeerGone(peer, _reason(error))))

    async def _read(self, peer: int, stream: trio.SocketStream) -> None:
        unframer = Unframer()
        try:
            while data := await stream.receive_some(CHUNK_BYTES):
                bodies = unframer.feed(bytes(data))
                if peer in self._seals:
                    bodies = [self._seals[peer][1].open(body) for body in bodies]
                if bodies:
                    self._came[peer] += len(bodies)
                    if self._came[peer] - self._taken[peer] > MOST_WAITING:
                        raise ProtocolError(f"more than {MOST_WAITING} frames that were not due")
                    self._inbox.put((peer, bodies))
            self._inbox.put((peer, PeerGone(peer, "it closed its connection")))
        except ProtocolError as error:
            self._inbox.put((peer, ProtocolError(f"from worker {peer}: {error}")))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._inbox.put((peer, PeerGone(peer, _reason(error))))


async def _open(address: str) -> trio.SocketStream:
    if address.startswith("/"):
        return await trio.open_unix_socket(address)
    host, _, port = address.rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


async def _exactly(stream: trio.SocketStream, count: int) -> bytes:
    """Exactly so many bytes. Raises HungUp if the stream ends before."""
    data = b""
    while len(data) < count:
        more = await stream.receive_some(count - len(data))
        if not more:
            raise HungUp(f"a connection ended {count - len(data)} bytes before its proof did")
        data += bytes(more)
    return data


def _check_credentials(stream: trio.SocketStream) -> None:
    """On a Unix socket the peer must run as the same user."""
    if stream.socket.family != socket.AF_UNIX:
        return
    _, user = _credentials(stream)
    if user != os.getuid():
        raise ProtocolError(f"a connection of user {user}, who does not own this run")


def _credentials(stream: trio.SocketStream) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket, as the kernel knows them."""
    found = stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    process, user, _ = struct.unpack("3i", found)
    return process, user


def _whence(stream: trio.SocketStream) -> str:
    """Where a connection comes from, for a line that a user reads."""
    try:
        if stream.socket.family == socket.AF_UNIX:
            process, user = _credentials(stream)
            return f"process {process} of user {user}"
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return "a connection that is gone"
    return f"{host}:{port}"


def _reason(error: Exception) -> str:
    cause = error.__cause__
    return str(cause) if isinstance(cause, OSError) else "the connection broke"
