"""A caller of an open run that `emu serve` offers: one file, without anything but Python's own library.

    from open_client import Client

    with Client("/tmp/run.sock", token="...", name="main") as run:
        run.post(0, 4, "2MiB", at_ps=0)
        while run.outstanding:
            print(run.next())

Copy it where it is needed. docs/open.md has the wire format, for callers in other languages.
"""

from __future__ import annotations

import hmac
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

VERSION: Final = 1
MOST_BYTES: Final = 1 << 28
"""Largest frame."""
LENGTH: Final = struct.Struct(">I")


class Done(NamedTuple):
    """A completion: see docs/open.md."""

    number: int
    kind: str
    rank: int
    begun_ps: int
    at_ps: int
    status: int
    data: Any = None
    """The result of a collective of a run with `payload: real`: see docs/open.md."""


class RefusedCall(Exception):
    """The run refuses a call, or has ended; the text says why and what would be accepted."""


def packed(value: object) -> bytes:
    """A value in msgpack: None, bools, whole numbers, texts, bytes, lists and mappings."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes((value,))
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str):
        text = value.encode()
        return b"\xdb" + LENGTH.pack(len(text)) + text
    if isinstance(value, bytes):
        return b"\xc6" + LENGTH.pack(len(value)) + value
    if isinstance(value, Mapping):
        pairs = b"".join(packed(key) + packed(item) for key, item in value.items())
        return b"\xdf" + LENGTH.pack(len(value)) + pairs
    assert isinstance(value, Sequence), value
    return b"\xdd" + LENGTH.pack(len(value)) + b"".join(map(packed, value))


_SIZES: Final = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_SIZES_OF_MANY: Final = {0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
_NUMBERS: Final = {
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
    0xCB: ">d",
}
_PLAIN: Final = {0xC0: None, 0xC2: False, 0xC3: True}


def unpacked(body: bytes, at: int = 0) -> tuple[Any, int]:
    """The value in msgpack at a place, and where the next one is."""
    head = body[at]
    at += 1
    if head < 0x80:
        return head, at
    if head >= 0xE0:
        return head - 256, at
    if head in _PLAIN:
        return _PLAIN[head], at
    if head in _NUMBERS:
        form = _NUMBERS[head]
        return struct.unpack_from(form, body, at)[0], at + struct.calcsize(form)
    if 0xA0 <= head < 0xC0:
        return body[at : at + head - 0xA0].decode(), at + head - 0xA0
    if head in _SIZES:
        size = struct.unpack_from(_SIZES[head], body, at)[0]
        at += struct.calcsize(_SIZES[head])
        found = body[at : at + size]
        return (found if head in (0xC4, 0xC5, 0xC6) else found.decode()), at + size
    count, maps = head & 0xF, head < 0x90 or head in (0xDE, 0xDF)
    if head in _SIZES_OF_MANY:
        count = struct.unpack_from(_SIZES_OF_MANY[head], body, at)[0]
        at += struct.calcsize(_SIZES_OF_MANY[head])
    items = []
    for _ in range(2 * count if maps else count):
        item, at = unpacked(body, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if maps else items), at


class Client:
    """One caller. `address` is the path of a Unix socket, or (host, port)."""

    def __init__(self, address: str | tuple[str, int], token: str, name: str = "main") -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.connect(address)
        if family == socket.AF_INET:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._kept = bytearray()
        self.outstanding = 0
        """Completions that are still to come, and were not taken."""
        self._both: set[int] = set()
        """Posts of which two come."""
        try:
            self.ranks: int = self._greet(token, name)
            """How many ranks there are."""
        except RefusedCall:
            self._socket.close()
            raise

    def _greet(self, token: str, name: str) -> int:
        hello, version, nonce = self._read()
        if (hello, version) != ("emu", VERSION):
            raise RefusedCall(f"the run speaks version {version}; accepted: {VERSION}")
        self._write([name, hmac.digest(bytes.fromhex(token), nonce + name.encode(), "sha256")])
        ranks: int = self._answer()
        return ranks

    def call(self, method: str, *args: object, **keys: object) -> Any:
        """Call a method of the run. Raises RefusedCall."""
        self._write([method, list(args), keys])
        return self._answer()

    def post(self, src: int, dst: int, size: int | str, **keys: object) -> int:
        """A transfer; returns its number."""
        number: int = self.call("post", src, dst, size, **keys)
        self.outstanding += 1
        if keys.get("tell") == "both":
            self.outstanding += 1
            self._both.add(number)
        return number

    def compute(self, rank: int, duration: int | str, **keys: object) -> int:
        """Computing; returns its number."""
        number: int = self.call("compute", rank, duration, **keys)
        self.outstanding += 1
        return number

    def collective(self, op: str, size: int | str, ranks: Sequence[int], **keys: object) -> int:
        """A collective; returns its number."""
        number: int = self.call("collective", op, size, list(ranks), **keys)
        self.outstanding += len(ranks) if keys.get("each") and keys.get("rank") is None else 1
        return number

    def next(self) -> Done:
        """The next completion, at its own time."""
        done = Done(*self.call("next"))
        self.outstanding -= 1
        return done

    def next_before(self, at_ps: int) -> Done | None:
        """The next completion before a time; None if there is none, at that time."""
        found = self.call("next_before", at_ps)
        self.outstanding -= found is not None
        return None if found is None else Done(*found)

    def until(self, at_ps: int) -> list[Done]:
        """Go on to a time: what came and was not taken."""
        found = [Done(*one) for one in self.call("until", at_ps)]
        self.outstanding -= len(found)
        return found

    def promise(self, no_sooner_ps: int) -> None:
        """Post nothing before a time."""
        self.call("promise", no_sooner_ps)

    def cancel(self, number: int) -> bool:
        """Take back a post whose time has not come."""
        could: bool = self.call("cancel", number)
        if could:
            self.outstanding -= 2 if number in self._both else 1
        return could

    def close(self) -> None:
        """Post nothing any more."""
        self.call("close")
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        self._socket.close()

    def _answer(self) -> Any:
        refused, found = self._read()
        if refused:
            raise RefusedCall(found)
        return found

    def _write(self, value: object) -> None:
        body = packed(value)
        try:
            self._socket.sendall(LENGTH.pack(len(body)) + body)
        except ConnectionError:
            raise RefusedCall("the run has ended") from None

    def _read(self) -> Any:
        kept = self._kept
        while len(kept) < 4 or len(kept) < 4 + LENGTH.unpack_from(kept)[0]:
            try:
                more = self._socket.recv(1 << 20)
            except ConnectionError:
                more = b""
            if not more:
                raise RefusedCall("the run has ended")
            kept += more
            if len(kept) >= 4 and LENGTH.unpack_from(kept)[0] > MOST_BYTES:
                raise RefusedCall("the run sends a frame that is too large")
        end = 4 + LENGTH.unpack_from(kept)[0]
        body = bytes(kept[4:end])
        del kept[:end]
        return unpacked(body)[0]
