"""Batches for tests: of packets, and with something wrong in a column."""

from collections.abc import Callable

import msgpack  # type: ignore[import-untyped]  # it ships no types
from mypy_extensions import i64

from actors.kernel.event import Event, Message
from actors.kernel.vectors import append, vec
from actors.wire.batch import Batch, encode_batch
from actors.wire.codec import decode_batch_body, encode_batch_body, pack_integers
from actors.wire.frame import Frame
from actors.wire.frame_columns import FrameColumns


def batch_of(*events: Event) -> Batch:
    """The batch of these frames and messages."""
    frames, messages = FrameColumns(), vec[Message]()
    for event in events:
        if isinstance(event, Frame):
            frames.add(event)
        else:
            assert isinstance(event, Message), event
            messages = append(messages, event)
    batch = encode_batch(frames, messages)
    return Batch(batch.frames, batch.messages, batch.tails, b"".join(batch.pieces))


def body_of(batch: Batch) -> bytes:
    """A batch as it travels, in round 7, of two workers."""
    head = (7, batch.frames, batch.messages, batch.tails)
    fields = Batch(batch.frames, batch.messages, batch.tails, batch.data[batch.begin :])
    return encode_batch_body(pack_integers(head, vec[i64]([0] * 11)), fields)


def fields_of(batch: Batch) -> dict[str, bytes]:
    """The fields of a batch that are bytes, as any msgpack finds them, but for its head."""
    record: dict[str, bytes] = msgpack.unpackb(body_of(batch))
    return {name: value for name, value in record.items() if name not in ("version", "kind", "head")}


def changed(batch: Batch, name: str, change: Callable[[bytes], bytes]) -> Batch:
    """What comes in of a batch of which somebody has changed one field: ProtocolError where it is none."""
    record = msgpack.unpackb(body_of(batch))
    record[name] = change(record[name])
    received = decode_batch_body(msgpack.packb(record))
    assert received is not None, name
    return received.batch
