"""What does a frame between two workers say of itself, and what is refused before anyone looks inside?

The body of every frame on a socket is one msgpack map: `version`, `kind`, and the fields that its kind has,
no more and no fewer, each of its declared type. Integers are not negative and fit 63 bits; what may be
negative or is many travels as packed integers in `bytes`. A body that is anything else (truncated, trailing
bytes, a wrong version, an unknown kind, a missing, surplus or mistyped field) raises `ProtocolError`, and
nothing else. How long a body may be is bounded by whoever reads the socket, before it is read.

    batch   round, values, frames, messages, tails, integers, blob   a window's packets: emu.wire.batch
    gather  round, values                                            towards the root of the reduction
    spread  round, values                                            from the root of the reduction
    leave   reason                                                   the sender gives up, and says why
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgpack  # type: ignore[import-untyped]  # it ships no types

from emu.errors import ProtocolError

VERSION: Final = 1
MOST_VALUES: Final = 1 << 16
"""More packed integers than that in one field are refused."""
LONGEST_REASON: Final = 2000
_LARGEST: Final = (1 << 63) - 1

BATCH: Final = "batch"
GATHER: Final = "gather"
SPREAD: Final = "spread"
LEAVE: Final = "leave"

Field = int | str | bytes
_FIELDS: Final[dict[str, dict[str, type]]] = {
    BATCH: {
        "round": int,
        "values": bytes,
        "frames": int,
        "messages": int,
        "tails": int,
        "integers": bytes,
        "blob": bytes,
    },
    GATHER: {"round": int, "values": bytes},
    SPREAD: {"round": int, "values": bytes},
    LEAVE: {"reason": str},
}


def encode(kind: str, fields: dict[str, Field]) -> bytes:
    """The body of a frame. The fields are those of its kind; the caller's mistake is an assertion."""
    assert fields.keys() == _FIELDS[kind].keys(), (kind, sorted(fields))
    packed: bytes = msgpack.packb({"version": VERSION, "kind": kind, **fields})
    return packed


def decode(body: bytes) -> tuple[str, dict[str, Field]]:
    """The kind and the fields of a frame's body. Raises ProtocolError."""
    try:
        record = msgpack.unpackb(body, raw=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"a frame of {len(body)} bytes is no msgpack: {_first_line(error)}") from None
    if type(record) is not dict:
        raise ProtocolError(f"a frame holds a {type(record).__name__}, not a map")
    version = record.pop("version", None)
    if version != VERSION or type(version) is not int:
        raise ProtocolError(f"a frame's version is {_shown(version)}; this worker speaks {VERSION}")
    kind = record.pop("kind", None)
    declared = _FIELDS.get(kind) if type(kind) is str else None
    if declared is None:
        raise ProtocolError(f"a frame's kind is {_shown(kind)}; there are {', '.join(_FIELDS)}")
    if record.keys() != declared.keys():
        raise ProtocolError(
            f"a {kind} frame has the fields {_shown(sorted(map(str, record)))}, not {sorted(declared)}"
        )
    for name, expected in declared.items():
        value = record[name]
        if type(value) is not expected:
            raise ProtocolError(
                f"{name} of a {kind} frame is a {type(value).__name__}, not {expected.__name__}"
            )
        if isinstance(value, int) and not 0 <= value <= _LARGEST:
            raise ProtocolError(f"{name} of a {kind} frame is {value}, which is out of range")
    return str(kind), record


def pack_integers(values: Sequence[int]) -> bytes:
    """Signed 64-bit integers as little-endian bytes."""
    return struct.pack(f"<{len(values)}q", *values)


def unpack_integers(packed: bytes, count: int) -> list[int]:
    """Exactly `count` integers that `pack_integers` packed. Raises ProtocolError."""
    if len(packed) != 8 * count or count > MOST_VALUES:
        raise ProtocolError(f"{len(packed)} bytes where {count} integers of 8 bytes were due")
    return list(struct.unpack(f"<{count}q", packed))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]
