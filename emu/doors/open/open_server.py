"""An open run for callers in other processes, over a Unix socket or a loopback TCP port.

Frames: four bytes of length, most significant first, then one value in msgpack. The server begins with
["emu", version, nonce]. A caller answers [name, proof]: HMAC-SHA256 over nonce and name with the run's token.
From then on each request [method, arguments, named arguments] has one answer, in order: [false, result], or
[true, why it is refused]. A request is looked at once those before it are answered; a refused one changes
nothing, whatever is wrong with it.

All callers are known from the start by name, and time does not begin before each has come: who comes first
does not matter. A caller that goes without `close`, or posts for a time that is past, is ended at its last
promise, and its posts stand. If those that hold the run up say nothing for long (by the wall clock), the run
ends as interrupted.
"""

from __future__ import annotations

import hmac
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]

from emu.base.errors import EmuError, UsageError
from emu.doors.open.open_client import LENGTH, MOST_BYTES, VERSION
from emu.engine.live.open_run import MAIN, NEXT, NEXT_BEFORE, UNTIL, Caller, Completion, OpenRun, PastError

WAITS: Final = (NEXT, NEXT_BEFORE, UNTIL)
METHODS: Final = ("post", "compute", "collective", "cancel", "promise", *WAITS, "close")
STEPS: Final = 64
"""Between looks at the sockets."""
MOST_OF_A_STRANGER: Final = 1 << 10
"""Bytes of the largest frame before the token."""
MOST_OF_AN_ANSWER: Final = 2000
"""Characters of a refusal: it may repeat what was asked."""
LINGER_S: Final = 5.0
"""For a caller that does not read what is sent to it."""


class Stalling(Exception):
    """Callers that hold the run up say nothing."""


class _Peer:
    """One connection."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.nonce = secrets.token_bytes(16)
        self.kept = bytearray()
        self.caller: Caller | None = None


class OpenServer:
    """Serves the callers of one run until all have ended. `address` is a path, or a port of loopback."""

    def __init__(
        self,
        run: OpenRun,
        address: str | int,
        names: Sequence[str] = (MAIN,),
        timeout_s: float = 0.0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.token = secrets.token_hex(32)
        self._run = run
        self._timeout_s = timeout_s
        self._say = say
        self._callers = {name: run.main if name == MAIN else run.caller(name) for name in names}
        if MAIN not in names:
            run.main.close()
        self._came: list[str] = []
        self._peers: dict[socket.socket, _Peer] = {}
        self._selector = selectors.DefaultSelector()
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            before = os.umask(0o177)
            try:
                self._socket.bind(address)
            except OSError as error:
                self._socket.close()
                self._selector.close()
                raise UsageError(f"{address}: cannot be made: {error.strerror}") from None
            finally:
                os.umask(before)
        else:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._socket.bind(("127.0.0.1", address))
        self._socket.listen(len(names) + 8)
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._heard_s = time.monotonic()

    @property
    def port(self) -> int:
        """The port of loopback, where there is one."""
        return int(self._socket.getsockname()[1])

    def serve(self) -> str:
        """Until all callers have ended; the run's digest. Raises Stalling, and StallError."""
        try:
            while any(one.ended_ps < 0 for one in self._callers.values()):
                moved = len(self._came) == len(self._callers) and self._step()
                self._listen(0.0 if moved else 0.05)
                if moved:
                    self._heard_s = time.monotonic()
                elif self._timeout_s and time.monotonic() - self._heard_s > self._timeout_s:
                    raise Stalling(self._holders())
            return self._run.close()
        except EmuError as error:
            for peer in list(self._peers.values()):
                self._answer(peer, refused=True, value=str(error))
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close all sockets."""
        for peer in list(self._peers.values()):
            peer.socket.close()
        self._peers.clear()
        self._selector.close()
        name = self._socket.getsockname()
        self._socket.close()
        if isinstance(name, str):
            Path(name).unlink(missing_ok=True)

    def _holders(self) -> str:
        run = self._run
        silent = [name for name in self._callers if name not in self._came]
        if silent:
            return f"caller {silent[0]} has not come for {self._timeout_s:g} s"
        holder = min(self._callers.values(), key=lambda one: (one.bound_ps(), one.name))
        return f"caller {holder.name} has said nothing for {self._timeout_s:g} s, at {run.now_ps} ps"

    def _step(self) -> bool:
        """Advance a little; whether anything moved."""
        moved = self._resolve()
        for _ in range(STEPS):
            if moved or not self._run.step():
                return moved
            moved = self._resolve()
        return True

    def _resolve(self) -> bool:
        """Answer callers that have what they wait for; whether there were any."""
        found = False
        for peer in list(self._peers.values()):
            if peer.caller is not None and peer.caller.answered():
                found = True
                self._answer(peer, refused=False, value=_plain(peer.caller.answer()))
                if not self._take(peer):
                    self._leave(peer)
        return found

    def _listen(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            self._heard_s = time.monotonic()
            if key.fileobj is self._socket:
                opened, _ = self._socket.accept()
                opened.settimeout(LINGER_S)
                peer = self._peers[opened] = _Peer(opened)
                self._selector.register(opened, selectors.EVENT_READ)
                self._write(peer, ["emu", VERSION, peer.nonce])
                continue
            assert isinstance(key.fileobj, socket.socket)
            peer = self._peers[key.fileobj]
            try:
                more = peer.socket.recv(1 << 20)
            except OSError:
                more = b""
            peer.kept += more
            if not more or not self._take(peer):
                self._leave(peer)

    def _take(self, peer: _Peer) -> bool:
        """Take the requests that are there whole, up to one that waits; whether the connection goes on."""
        if len(peer.kept) > LENGTH.size + MOST_BYTES:
            return False
        while len(peer.kept) >= LENGTH.size and not (peer.caller is not None and peer.caller.waits):
            (length,) = LENGTH.unpack_from(peer.kept)
            if length > (MOST_OF_A_STRANGER if peer.caller is None else MOST_BYTES):
                return False
            end = LENGTH.size + length
            if len(peer.kept) < end:
                return True
            body = bytes(peer.kept[LENGTH.size : end])
            del peer.kept[:end]
            goes_on = peer.caller is not None
            try:
                asked = msgpack.unpackb(body)
                if peer.caller is None:
                    goes_on = self._greet(peer, asked)
                else:
                    goes_on = self._do(peer, peer.caller, asked)
            except (ValueError, TypeError, msgpack.UnpackException) as error:
                reason = f"not a request: {error}; accepted: [method, arguments, named arguments]"
                self._answer(peer, refused=True, value=reason)
            if not goes_on:
                return False
        return True

    def _greet(self, peer: _Peer, asked: Any) -> bool:
        name, proof = asked
        expected = hmac.digest(bytes.fromhex(self.token), peer.nonce + str(name).encode(), "sha256")
        if not isinstance(proof, bytes) or not hmac.compare_digest(proof, expected):
            self._answer(
                peer, refused=True, value="the token is wrong; accepted: the one that emu serve printed"
            )
            return False
        if name not in self._callers or name in self._came:
            why = "is here already" if name in self._came else "is not expected"
            self._answer(
                peer, refused=True, value=f"caller {name} {why}; accepted: {', '.join(self._callers)}"
            )
            return False
        self._came.append(name)
        peer.caller = self._callers[name]
        self._answer(peer, refused=False, value=self._run.ranks)
        return True

    def _do(self, peer: _Peer, caller: Caller, asked: Any) -> bool:
        method, args, keys = asked
        if not isinstance(args, list) or not isinstance(keys, dict):
            raise TypeError("arguments are no list, or named ones no mapping")
        if method not in METHODS:
            self._answer(
                peer, refused=True, value=f"there is no call {method}; accepted: {', '.join(METHODS)}"
            )
            return True
        if caller.ended_ps >= 0:
            reason = f"{method}(): caller {caller.name} is closed; accepted: before close()"
            self._answer(peer, refused=True, value=reason)
            return False
        try:
            called = getattr(caller, method)
            try:
                signature(called).bind(*args, **keys)
            except TypeError as error:
                raise UsageError(f"{method}(): {error}; accepted: {_form(called)}") from None
            if method in WAITS:
                caller.ask(method, *args, *keys.values())
            else:
                self._answer(peer, refused=False, value=called(*args, **keys))
        except UsageError as error:
            self._answer(peer, refused=True, value=str(error))
            if isinstance(error, PastError):
                self._say(f"caller {caller.name} is ended: {error}")
                return False
        return True

    def _leave(self, peer: _Peer) -> None:
        self._selector.unregister(peer.socket)
        self._peers.pop(peer.socket)
        peer.socket.close()
        caller = peer.caller
        if caller is not None and caller.ended_ps < 0:
            caller.close()
            self._say(f"caller {caller.name} is gone; it is ended at {caller.ended_ps} ps")

    def _answer(self, peer: _Peer, *, refused: bool, value: object) -> None:
        self._write(peer, [refused, str(value)[:MOST_OF_AN_ANSWER] if refused else value])

    def _write(self, peer: _Peer, value: object) -> None:
        body = msgpack.packb(value)
        try:
            peer.socket.sendall(LENGTH.pack(len(body)) + body)
        except OSError:
            return  # what it does not read, it does not hear; its end is seen as it is listened to


def _form(called: Callable[..., Any]) -> str:
    """A method with its arguments and their defaults."""
    bare = [one.replace(annotation=Parameter.empty) for one in signature(called).parameters.values()]
    return f"{called.__name__}{Signature(bare)}"


def _plain(answer: Completion | list[Completion] | None) -> Any:
    """An answer as it is sent: without notes, and with a result where there is one."""
    if isinstance(answer, list):
        return [_plain(one) for one in answer]
    if answer is None:
        return None
    return list(answer[:-2] if answer.data is None else answer[:-1])
