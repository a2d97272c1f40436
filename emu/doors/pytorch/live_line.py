"""How the ranks of a live run talk to the process that emulates: frames over a pair of sockets, msgpack.

A rank says `["call", number, fields]`, which is not answered, `["wait", number]`, `["until", at_ps]`, and at
its end `["end", status]`. The answer to `wait` is `["done", at_ps, status, data]`, to `until` the numbers of
the calls that are over; the emulator's last word, at any time, is `["over", reason]`.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no types

LENGTH: Final = struct.Struct(">Q")


class LiveCall(NamedTuple):
    """What a rank calls."""

    op: str
    size: int
    """Bytes, as in a benchmark."""
    ranks: tuple[int, ...]
    on: str
    """Name of the communicator."""
    root: int
    dtype: str
    redop: str
    algorithm: str
    """Empty for the library's choice; a transfer between two has one."""
    at_ps: int
    data: bytes
    what: str
    """Operation, types and shapes as the script called it, which all ranks must agree on."""


class OverError(Exception):
    """The emulator has ended the job; the text says why."""


class Wire:
    """One end of the pair."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._kept = bytearray()

    def send(self, value: Any) -> None:
        """Write a value."""
        body = msgpack.packb(value)
        self.socket.sendall(LENGTH.pack(len(body)) + body)

    def feed(self) -> bool:
        """Read what is there; false at the end."""
        more = self.socket.recv(1 << 20)
        self._kept += more
        return bool(more)

    def frame(self) -> Any:
        """The first value that is there whole; None if there is none."""
        kept = self._kept
        if len(kept) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(kept)[0]
        if len(kept) < end:
            return None
        value = msgpack.unpackb(bytes(kept[LENGTH.size : end]))
        del kept[:end]
        return value

    def read(self) -> Any:
        """The next value. Raises OverError at the end of the connection."""
        while (value := self.frame()) is None:
            try:
                if not self.feed():
                    raise OverError("the emulator has ended")
            except ConnectionError:
                raise OverError("the emulator has ended") from None
        return value


class Line:
    """A rank's calls to the emulator."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._number = 0
        self.now_ps = 0
        """Nothing of this rank happens before."""

    def post(self, call: LiveCall) -> int:
        """Begin a call; its number."""
        self._number += 1
        self._wire.send(["call", self._number, list(call)])
        return self._number

    def wait(self, number: int) -> tuple[int, int, bytes]:
        """Wait for a call: when it was over, its status, and its result. Raises OverError."""
        self._wire.send(["wait", number])
        at_ps, status, data = self._answer("done")
        self.now_ps = max(self.now_ps, at_ps)
        return at_ps, status, data

    def over_by(self, at_ps: int) -> set[int]:
        """The calls that are over at a time. Raises OverError."""
        self._wire.send(["until", max(at_ps, self.now_ps)])
        (numbers,) = self._answer("by then")
        self.now_ps = max(self.now_ps, at_ps)
        return set(numbers)

    def end(self, status: int) -> None:
        """Call nothing any more."""
        self._wire.send(["end", status])

    def _answer(self, expected: str) -> list[Any]:
        kind, *values = self._wire.read()
        if kind == "over":
            raise OverError(values[0])
        assert kind == expected, kind
        return list(values)
