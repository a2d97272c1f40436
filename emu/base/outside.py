"""The one reader of files from outside: bytes, texts and JSON of which somebody else decides the size.

What is refused has taken no more than some 200 MB and 5 s by then. So a file is read up to its limit and one
byte more, whatever it is (`/dev/zero` has no size to ask for), a packed one is unpacked a chunk at a time,
and JSON is parsed only if it has few enough parts: each takes 60 to 100 bytes, however short it is.
Formats of which whole files are large by nature (traces) count their parts by their bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from emu.base.errors import UsageError

MOST_BYTES: Final = 64 << 20
MOST_PARTS: Final = 1_000_000
GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_MARKS: Final = (b"{", b"[", b",")


def file_bytes(path: Path, accepted: str, most_bytes: int = MOST_BYTES) -> bytes:
    """What a file holds. Raises UsageError."""
    try:
        with path.open("rb") as opened:
            found = opened.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot be read: {reason}; accepted: {accepted}") from error
    if len(found) > most_bytes:
        raise UsageError(f"{path}: larger than {most_bytes >> 20} MiB; accepted: {accepted}")
    return found


def file_text(path: Path, accepted: str, most_bytes: int = MOST_BYTES, *, strict: bool = False) -> str:
    """The text of a file; bytes that are none become a mark, unless it is `strict`. Raises UsageError."""
    try:
        return file_bytes(path, accepted, most_bytes).decode("utf-8", "strict" if strict else "replace")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no text; accepted: {accepted}") from error


def json_of(text: str | bytes, most_parts: int = MOST_PARTS) -> Any:
    """The value of a JSON text. Raises ValueError for all that is wrong with it: nested too deep, too many
    parts, numbers of thousands of digits."""
    parts = parts_in(text.encode() if isinstance(text, str) else text)
    if parts > most_parts:
        raise ValueError(f"has {parts} parts, more than {most_parts}")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deep") from error


def parts_in(data: bytes) -> int:
    """At least how many values JSON has."""
    return sum(map(data.count, _MARKS))


def unpacking(data: bytes) -> Iterator[bytes]:
    """What a plain or gzipped file holds, a chunk at a time. ValueError if it is cut off or no gzip."""
    if not data.startswith(GZIP):
        for at in range(0, len(data), _CHUNK):
            yield data[at : at + _CHUNK]
        return
    opened = zlib.decompressobj(wbits=31)
    try:
        for at in range(0, len(data), _CHUNK):
            left = data[at : at + _CHUNK]
            while left and not opened.eof:
                yield opened.decompress(left, _CHUNK)
                left = opened.unconsumed_tail
    except zlib.error as error:
        raise ValueError(f"cannot be unpacked: {error}") from error
    if not opened.eof:
        raise ValueError("is cut off")
