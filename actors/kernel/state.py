"""Device state as plain lists, and lists as state again.

A snapshot holds integers, strings, bytes, booleans, None and lists of these, so that msgpack carries it and
another build, placement or number of workers reads it. Messages become lists of integers, frames the bytes
that they are on a socket between workers. Each class names its fields once; a test checks that no field is
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i32, i64

from actors.kernel.cache import fetch_behind
from actors.kernel.device import Plain
from actors.kernel.event import Event, Message
from actors.kernel.vectors import vec
from actors.wire.frame import Frame
from actors.wire.frame_columns import read_frame, write_frame

_TABLE: Final[type] = type(vec[i64]([0]))
"""The class of a table of integers; interpreted it is `list`."""


def save_fields(record: object, names: tuple[str, ...]) -> list[Plain]:
    """The values of a record's fields, in the order of `names`: plain values, lists of them, tables of
    integers, and dictionaries, which become lists of pairs.
    """
    return [_saved(getattr(record, name)) for name in names]


def _saved(value: object) -> Plain:
    if isinstance(value, list):
        return [_saved(one) for one in value]
    if isinstance(value, dict):
        return [[key, _saved(one)] for key, one in value.items()]
    if type(value) is _TABLE:
        return list(cast("Iterable[int]", value))
    return cast("Plain", value)


def load_fields(record: object, names: tuple[str, ...], values: Plain) -> None:
    """Set a record's fields from what `save_fields` returned. What each holds says of which kind it is."""
    assert isinstance(values, list) and len(values) == len(names), (names, values)
    for name, value in zip(names, values, strict=True):
        setattr(record, name, _loaded(value, getattr(record, name)) if isinstance(value, list) else value)


def _loaded(values: list[Plain], before: object) -> object:
    if isinstance(before, dict):
        return {as_int(as_list(pair)[0]): _copied(as_list(pair)[1]) for pair in values}
    if isinstance(before, list):
        return _copied(values)
    return load_integers(values)


def _copied(value: Plain) -> Plain:
    return [_copied(one) for one in value] if isinstance(value, list) else value


def as_list(value: Plain) -> list[Plain]:
    """A part of a snapshot that is a list."""
    assert isinstance(value, list), value
    return value


def as_int(value: Plain) -> int:
    """A part of a snapshot that is an integer."""
    assert isinstance(value, int), value
    return value


def as_bytes(value: Plain) -> bytes:
    """A part of a snapshot that is bytes."""
    assert isinstance(value, bytes), type(value)
    return value


def save_integers(values: vec[i64]) -> list[Plain]:
    """A table of integers as a list."""
    return list(values)


def load_integers(values: Plain) -> vec[i64]:
    """A table of integers from a list."""
    return vec[i64]([as_int(value) for value in as_list(values)])


FRAME_RECORD_BYTES: Final[i64] = 72
"""A frame as on a socket between workers, and its `ingress`."""


def save_event(event: Event) -> list[Plain]:
    """A pending event, message or frame as integers (of a frame packed ones, and its tail; and the bytes that
    either carries)."""
    if isinstance(event, Frame):
        writer = BytesWriter()
        _write_record(writer, event, waits=False)
        return [2, event.time_ps, event.key, writer.getvalue(), event.tail, event.payload]
    if isinstance(event, Message):
        return [
            1,
            event.time_ps,
            event.key,
            event.op,
            event.a,
            event.b,
            event.c,
            event.d,
            event.e,
            event.f,
            event.data,
        ]
    return [0, event.time_ps, event.key]


def load_event(state: Plain) -> Event:
    """The event that `save_event` returned."""
    values = as_list(state)
    kind = as_int(values[0])
    if kind == 2:
        frame = _read_record(as_bytes(values[3]), 0)
        frame.tail, frame.payload = cast("bytes | None", values[4]), cast("bytes | None", values[5])
        return frame
    n = [value if isinstance(value, int) else 0 for value in values]
    if kind == 1:
        message = Message(n[3], n[4], n[5], n[6], n[7], n[8], n[9])
        message.time_ps, message.key = n[1], n[2]
        message.data = cast("bytes | None", values[10])
        return message
    return Event(n[1], n[2])


def load_frame(state: Plain) -> Frame:
    """The frame that `save_event` returned."""
    frame = load_event(state)
    assert isinstance(frame, Frame), state
    return frame


def save_frames(first: Frame | None) -> list[Plain]:
    """The frames that wait one behind the other, from the first on: packed, with what few of them carry.

    In one run of bytes, since a deep buffer holds millions: as a list each, they took three times the memory
    that the fabric takes.
    """
    writer = BytesWriter()
    carried: list[Plain] = []
    place: i64 = 0
    frame = first
    while frame is not None:
        _write_record(writer, frame)
        if frame.carried is not None:
            carried.append([place, frame.tail, frame.payload])
        place += 1
        frame = cast("Frame | None", frame.chain)
        if frame is not None:
            fetch_behind(frame)
    return [writer.getvalue(), carried]


def load_frames(state: Plain) -> list[Frame]:
    """The frames that `save_frames` returned, in their order."""
    packed, carried = as_list(state)
    records = as_bytes(packed)
    frames = [_read_record(records, at) for at in range(0, len(records), FRAME_RECORD_BYTES)]
    for row in as_list(carried):
        place, tail, payload = as_list(row)
        frame = frames[as_int(place)]
        frame.tail, frame.payload = cast("bytes | None", tail), cast("bytes | None", payload)
    return frames


def _write_record(writer: BytesWriter, frame: Frame, waits: bool = True) -> None:
    """`waits`: whether it is in a device, and not on a link, where `whence` does not say where it came in."""
    write_frame(writer, frame)
    place: int = 0
    if frame.cut < 0:
        place = frame.cut
    elif waits:
        place = frame.whence
    write_i64_le(writer, place)


def _read_record(records: bytes, at: i64) -> Frame:
    frame = Frame(0, 0, 0, 0, 0, 0, 0, 0, 0)
    read_frame(frame, records, at)
    place: i64 = read_i64_le(records, at + FRAME_RECORD_BYTES - 8)
    if place < 0:
        frame.cut = i32(place)
    else:
        frame.whence = i32(place)
    return frame
