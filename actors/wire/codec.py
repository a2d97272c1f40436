"""Frames between two workers: their header, and what is refused before it is read.

The body of every frame on a socket is one msgpack map: `version`, `kind`, and the fields that its kind has,
in this order, no more and no fewer, each of its declared type. Integers travel packed, eight bytes each, in
`head`. A body that is anything else (truncated, trailing bytes, a wrong version, an unknown kind, a
missing, surplus or mistyped field) raises `ProtocolError`, and nothing else. How long a body may be is
bounded by whoever reads the socket, before it is read.

    batch   head: round, frames, messages, tails, values of the reduction...
            time_ps, key, sent_ps, numbers, headers, source, sizes, reth: an integer for each frame
            message_time_ps, message_key, message_op, message_a to message_f: one for each message
            carried_place, carried_tail_bytes, carried_data_bytes: one for each tail
            blob: what the tails are of (see `actors.wire.batch`)
    quiet   head: round, values...    a batch without packets
    gather  head: round, values...    towards the root of the reduction
    spread  head: round, values...    from the root of the reduction
    leave   reason                    the sender gives up, and says why
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import msgpack  # type: ignore[import-untyped]  # it ships no types
from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from actors.kernel.errors import ProtocolError
from actors.kernel.vectors import vec
from actors.wire.batch import COLUMNS, Batch, bytes_at, header_of, layout_fault

VERSION: Final = 2
MOST_INTEGERS: Final = 1 << 16
"""More packed integers than that in one field are refused."""
BATCH_HEAD: Final = 4
"""Integers of a batch's head before the values: round, frames, messages, tails."""
LONGEST_REASON: Final = 2000

BATCH: Final = "batch"
QUIET: Final = "quiet"
GATHER: Final = "gather"
SPREAD: Final = "spread"
LEAVE: Final = "leave"

Field = str | bytes
_FIELDS: Final[dict[str, dict[str, type]]] = {
    BATCH: {"head": bytes, **dict.fromkeys(COLUMNS, bytes), "blob": bytes},
    QUIET: {"head": bytes},
    GATHER: {"head": bytes},
    SPREAD: {"head": bytes},
    LEAVE: {"reason": str},
}
_SHAPES: Final = {
    kind: (["version", "kind", *fields], [int, str, *fields.values()]) for kind, fields in _FIELDS.items()
}
"""The names and types of a whole map, in order."""


def _quiet_parts() -> dict[int, tuple[bytes, bytes]]:
    """What stands before and after the head of a quiet round, by the length of the head."""
    names, _ = _SHAPES[QUIET]
    parts: dict[int, tuple[bytes, bytes]] = {}
    for length in range(8, 256, 8):
        head = b"\xff" * length
        packed: bytes = msgpack.packb(dict(zip(names, (VERSION, QUIET, head), strict=True)))
        before, _, after = packed.partition(head)
        parts[length] = (before, after)
    return parts


_QUIET: Final = _quiet_parts()
"""Most windows carry no packets, and their envelope is always the same: no need to ask msgpack each time."""
_QUIET_BODIES: Final = {
    len(before) + length + len(after): (before, after) for length, (before, after) in _QUIET.items()
}


_BEFORE_HEAD: Final[bytes] = msgpack.Packer().pack_map_header(len(_SHAPES[BATCH][0])) + b"".join(
    msgpack.packb(one) for one in ("version", VERSION, "kind", BATCH, "head")
)


def encode(kind: str, *values: Field) -> bytes:
    """The body of a frame, from the values of its kind's fields."""
    names, _ = _SHAPES[kind]
    packed: bytes = msgpack.packb(dict(zip(names, (VERSION, kind, *values), strict=True)))
    return packed


def encode_quiet(round_: i64, values: vec[i64]) -> bytes:
    """The body of a batch without packets: what `encode` makes of it, sooner."""
    around = _QUIET.get(8 * (1 + len(values)))
    if around is None:
        return encode(QUIET, pack_integers((round_,), values))
    writer = BytesWriter()
    writer.write(around[0])
    write_i64_le(writer, round_)
    for value in values:
        write_i64_le(writer, value)
    writer.write(around[1])
    return writer.getvalue()


def decode(body: bytes) -> tuple[str, list[Field]]:
    """The kind of a frame's body and the values of its fields. Raises ProtocolError."""
    try:
        record = msgpack.unpackb(body, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a frame of {len(body)} bytes is no msgpack: {_first_line(error)}") from None
    if type(record) is not dict:
        raise ProtocolError(f"a frame holds a {type(record).__name__}, not a map")
    kind = record.get("kind")
    shape = _SHAPES.get(kind) if type(kind) is str else None
    values = [*record.values()]
    if shape is None or [*record] != shape[0] or [*map(type, values)] != shape[1] or values[0] != VERSION:
        raise ProtocolError(_fault(record))
    return cast("str", kind), values[2:]


def decode_quiet(body: bytes) -> vec[i64]:
    """The head of a batch without packets; empty for every other body, and where it is long."""
    around = _QUIET_BODIES.get(len(body))
    if around is None or not body.startswith(around[0]) or not body.endswith(around[1]):
        return vec[i64]()
    at: i64 = len(around[0])
    head = vec[i64]([0] * ((len(body) - at - len(around[1])) >> 3))
    place: i64 = 0
    while place < len(head):
        head[place] = read_i64_le(body, at)
        place += 1
        at += 8
    return head


class Received:
    """A batch as it came: its head, and its packets."""

    __slots__ = ("batch", "head")

    def __init__(self, head: vec[i64], batch: Batch) -> None:
        self.head: vec[i64] = head
        self.batch: Batch = batch


def encode_batch_body(head: bytes, batch: Batch) -> bytes:
    """The body of a batch: what `encode` makes of its fields."""
    return b"".join([_BEFORE_HEAD, header_of(len(head)), head, *batch.pieces])


def decode_batch_body(body: bytes) -> Received | None:
    """A batch whose body begins as `encode_batch_body` has it: nothing is copied. None for every other body.
    Raises ProtocolError for one whose head or columns are not those of a batch.
    """
    if not body.startswith(_BEFORE_HEAD):
        return None
    begin, end = bytes_at(body, len(_BEFORE_HEAD))
    if end < 0:
        return None
    head = unpack_integers(body[begin:end])
    if len(head) < BATCH_HEAD:
        raise ProtocolError(
            f"a batch frame whose head has {len(head)} integers; it has at least {BATCH_HEAD}"
        )
    batch = Batch(head[1], head[2], head[3], body, end)
    fault = layout_fault(batch)
    if fault:
        plain = as_encoded(body)
        if plain != body:
            return decode_batch_body(plain)
        raise ProtocolError(fault)
    return Received(head, batch)


def as_encoded(body: bytes) -> bytes:
    """The same map as `encode` writes it: another msgpack may write lengths in more bytes than they need.
    Raises ProtocolError."""
    kind, fields = decode(body)
    return encode(kind, *fields)


def _fault(record: dict[str, object]) -> str:
    """What is wrong with a map that has not the shape of its kind."""
    version, kind = record.get("version"), record.get("kind")
    if version != VERSION or type(version) is not int:
        return f"a frame's version is {_shown(version)}; this worker speaks {VERSION}"
    if type(kind) is not str or kind not in _FIELDS:
        return f"a frame's kind is {_shown(kind)}; there are {', '.join(_FIELDS)}"
    names, types = _SHAPES[kind]
    if [*record] != names:
        return f"a {kind} frame has the fields {_shown([*record])}, not {names}"
    wrong = [
        f"{name} of a {kind} frame is a {type(record[name]).__name__}, not {expected.__name__}"
        for name, expected in zip(names, types, strict=True)
        if type(record[name]) is not expected
    ]
    return wrong[0]


def pack_integers(first: Sequence[int], values: vec[i64]) -> bytes:
    """Signed 64-bit integers as little-endian bytes, `values` behind the first."""
    writer = BytesWriter()
    for one in first:
        write_i64_le(writer, one)
    for value in values:
        write_i64_le(writer, value)
    return writer.getvalue()


def unpack_integers(packed: bytes) -> vec[i64]:
    """The integers that `pack_integers` packed. Raises ProtocolError."""
    size: i64 = len(packed)
    if size % 8 or size > 8 * MOST_INTEGERS:
        raise ProtocolError(f"{size} bytes are not at most {MOST_INTEGERS} integers of 8 bytes")
    values = vec[i64]([0] * (size >> 3))
    at: i64 = 0
    while at < len(values):
        values[at] = read_i64_le(packed, at << 3)
        at += 1
    return values


def text_of(value: Field) -> str:
    """The value of a field that is declared as text."""
    return cast("str", value)


def bytes_of(value: Field) -> bytes:
    """The value of a field that is declared as bytes."""
    return cast("bytes", value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
