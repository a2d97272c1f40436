"""Device state as plain lists, and lists as state again.

A snapshot holds integers, strings, bytes, booleans, None and lists of these, so that msgpack carries it and
another build, placement or number of workers reads it. Frames and messages become lists of integers. Each
class names its fields once; a test checks that no field is forgotten.
"""

from __future__ import annotations

from typing import cast

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.event import Event, Message
from actors.kernel.vectors import vec
from actors.wire.frame import Frame


def save_fields(record: object, names: tuple[str, ...]) -> list[Plain]:
    """The values of a record's plain fields, in the order of `names`."""
    return [getattr(record, name) for name in names]


def load_fields(record: object, names: tuple[str, ...], values: Plain) -> None:
    """Set a record's plain fields from what `save_fields` returned."""
    assert isinstance(values, list) and len(values) == len(names), (names, values)
    for name, value in zip(names, values, strict=True):
        setattr(record, name, value)


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


def save_event(event: Event) -> list[Plain]:
    """A pending event, message or frame as integers (and a frame's tail, and the bytes that either
    carries)."""
    if isinstance(event, Frame):
        return [
            2,
            event.time_ps,
            event.key,
            event.opcode,
            event.priority,
            event.src,
            event.dst,
            event.udp_source,
            event.qpn,
            event.psn,
            event.payload_bytes,
            event.wire_bytes,
            event.ecn,
            event.ack_request,
            event.syndrome,
            event.immediate,
            event.message_bytes,
            event.sent_ps,
            event.ingress,
            event.tail,
            event.ttl,
            event.dscp,
            event.corrupt,
            event.payload,
        ]
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
    n = [value if isinstance(value, int) else 0 for value in values]
    if n[0] == 2:
        frame = Frame(n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11])
        frame.ecn, frame.ack_request, frame.syndrome, frame.immediate = n[12], n[13], n[14], n[15]
        frame.message_bytes, frame.sent_ps, frame.ingress = n[16], n[17], n[18]
        frame.tail = cast("bytes | None", values[19])
        frame.ttl, frame.dscp, frame.corrupt = n[20], n[21], n[22]
        frame.payload = cast("bytes | None", values[23])
        frame.time_ps, frame.key = n[1], n[2]
        return frame
    if n[0] == 1:
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
