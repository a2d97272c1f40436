"""The handshake in which two workers prove that they belong to the same run.

Every run has a secret, which workers get from the coordinator and which never leaves them. On a new
connection:

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

import hmac
import secrets
import struct
from dataclasses import dataclass
from typing import Final

from emu.errors import ProtocolError
from emu.runtime.workers.exchange import Seal

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
