"""How does a sync message of the window protocol become the body of a frame on a socket, and a sync message
again?

The envelope is `actors.wire.codec`'s. A peer that gives up says so in a `leave` frame, which becomes a
`PeerLeft` with its reason.
"""

from __future__ import annotations

from actors.wire.batch import Batch
from actors.wire.codec import (
    BATCH,
    BATCH_HEAD,
    LEAVE,
    LONGEST_REASON,
    bytes_of,
    decode,
    decode_quiet,
    encode,
    encode_quiet,
    pack_integers,
    text_of,
    unpack_integers,
)
from emu.errors import ProtocolError, RuntimeFailure
from emu.runtime.sync.rounds import SyncMessage


class PeerLeft(RuntimeFailure):
    """A peer ended its side of the run; the text is its reason."""


def encode_sync_message(sync_message: SyncMessage) -> bytes:
    """The body of the frame that carries a sync message."""
    batch = sync_message.batch
    if sync_message.kind != BATCH:
        return encode(sync_message.kind, pack_integers((sync_message.round,), sync_message.values))
    if batch is None:
        return encode_quiet(sync_message.round, sync_message.values)
    head = (sync_message.round, batch.frames, batch.messages, batch.tails)
    return encode(BATCH, pack_integers(head, sync_message.values), batch.integers, batch.blob)


def encode_leave(reason: str) -> bytes:
    """The body of the last frame of a worker that gives up."""
    return encode(LEAVE, reason[:LONGEST_REASON])


def decode_sync_message(body: bytes) -> SyncMessage:
    """The sync message in a frame's body. Raises ProtocolError, or PeerLeft."""
    integers, blob = b"", b""
    head = decode_quiet(body)
    if len(head) == 0:
        kind, fields = decode(body)
        if kind == LEAVE:
            raise PeerLeft(text_of(fields[0])[:LONGEST_REASON])
        head = unpack_integers(bytes_of(fields[0]))
        if kind != BATCH:
            if len(head) == 0:
                raise ProtocolError(f"a {kind} frame without a round")
            return SyncMessage(kind, head[0], head[1:], None)
        if len(head) < BATCH_HEAD:
            count = len(head)
            raise ProtocolError(
                f"a batch frame whose head has {count} integers; it has at least {BATCH_HEAD}"
            )
        integers, blob = bytes_of(fields[1]), bytes_of(fields[2])
    batch: Batch | None = None
    if integers or blob or head[1] or head[2] or head[3]:
        batch = Batch(head[1], head[2], head[3], integers, blob)
    return SyncMessage(BATCH, head[0], head[BATCH_HEAD:], batch)
