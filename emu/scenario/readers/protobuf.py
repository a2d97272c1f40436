"""Reader of protobuf messages whose schema is known and whose bytes are not trusted.

A message is a row of fields; a field is a key (number, and how its value is written) and a value: a varint,
4 or 8 bytes, or so many bytes as a varint says (texts, lists, messages). `fields` walks over them without
copying and refuses what is cut off, overlong, or written in a way that was given up long ago (groups).

Source: protocol buffers, "Encoding" (protobuf.dev).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from emu.errors import EmuError

VARINT: Final = 0
FIXED_64: Final = 1
LENGTH: Final = 2
FIXED_32: Final = 5
_LONGEST_VARINT: Final = 10
_MASK: Final = (1 << 64) - 1


class WireError(EmuError):
    """Bytes that are no message. `at` counts bytes from the beginning of the file."""

    exit_status = 2

    def __init__(self, at: int, reason: str) -> None:
        super().__init__(at, reason)
        self.at = at
        self.reason = reason

    def __str__(self) -> str:
        return f"byte {self.at}: {self.reason}"


class Field(NamedTuple):
    """One field. `value` is the number; where bytes follow, their place, and `end` that after them."""

    number: int
    kind: int
    value: int
    end: int


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, without a sign, and where the next thing begins."""
    value = 0
    for place in range(_LONGEST_VARINT):
        if at + place >= end:
            raise WireError(at, "a number is cut off")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & _MASK, at + place + 1
    raise WireError(at, f"a number is longer than {_LONGEST_VARINT} bytes")


def written(value: int) -> bytes:
    """A number without a sign, as a varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message from `start` to `end`. WireError where they are none."""
    at = start
    while at < end:
        begun = at
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise WireError(begun, "a field has no number")
        if kind == VARINT:
            value, at = varint(data, at, end)
            yield Field(number, kind, value, at)
            continue
        if kind == LENGTH:
            size, at = varint(data, at, end)
        elif kind in (FIXED_32, FIXED_64):
            size = 4 if kind == FIXED_32 else 8
        else:
            raise WireError(begun, f"a field is written in the unknown way {kind}")
        if size > end - at:
            raise WireError(begun, f"a field of {size} bytes is cut off after {end - at}")
        if kind == LENGTH:
            yield Field(number, kind, at, at + size)
        else:
            yield Field(number, kind, int.from_bytes(data[at : at + size], "little"), at + size)
        at += size


def numbers(data: bytes, field: Field) -> list[int]:
    """What a repeated number adds: one, or as many as are packed into the field."""
    if field.kind == VARINT:
        return [field.value]
    if field.kind != LENGTH:
        raise WireError(field.end, "a list of numbers is not written as one")
    found = []
    at = field.value
    while at < field.end:
        value, at = varint(data, at, field.end)
        found.append(value)
    return found


def text(data: bytes, field: Field, most: int) -> str:
    """A text of at most so many bytes."""
    if field.kind != LENGTH:
        raise WireError(field.end, "a text is not written as one")
    if field.end - field.value > most:
        raise WireError(field.value, f"a text of {field.end - field.value} bytes is longer than {most}")
    try:
        return data[field.value : field.end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise WireError(field.value, "a text is not UTF-8") from error


def signed(value: int) -> int:
    """A varint of the types int32 and int64."""
    return value - (1 << 64) if value >> 63 else value


def zigzag(value: int) -> int:
    """A varint of the types sint32 and sint64."""
    return (value >> 1) ^ -(value & 1)
