"""How does a parcel of the window protocol become the body of a frame on a socket, and a parcel again?

The envelope is `emu.wire.codec`'s. A peer that gives up says so in a `leave` frame, which becomes a
`PeerLeft` with its reason.
"""

from __future__ import annotations

from typing import Final, cast

from actors.runtime.window import Parcel
from emu.errors import RuntimeFailure
from emu.wire.batch import Batch
from emu.wire.codec import BATCH, LEAVE, LONGEST_REASON, decode, encode, pack_integers, unpack_integers

_NOTHING: Final = Batch(0, 0, 0, b"", b"")


class PeerLeft(RuntimeFailure):
    """A peer ended its side of the run; the text is its reason."""


def encode_parcel(parcel: Parcel) -> bytes:
    """The body of the frame that carries a parcel."""
    values = pack_integers(parcel.values)
    if parcel.kind != BATCH:
        return encode(parcel.kind, {"round": parcel.round, "values": values})
    batch = parcel.batch or _NOTHING
    return encode(
        BATCH,
        {
            "round": parcel.round,
            "values": values,
            "frames": batch.frames,
            "messages": batch.messages,
            "tails": batch.tails,
            "integers": batch.integers,
            "blob": batch.blob,
        },
    )


def encode_leave(reason: str) -> bytes:
    """The body of the last frame of a worker that gives up."""
    return encode(LEAVE, {"reason": reason[:LONGEST_REASON]})


def decode_parcel(body: bytes) -> Parcel:
    """The parcel in a frame's body. Raises ProtocolError, or PeerLeft."""
    kind, fields = decode(body)
    if kind == LEAVE:
        raise PeerLeft(cast("str", fields["reason"])[:LONGEST_REASON])
    packed = cast("bytes", fields["values"])
    values = unpack_integers(packed, len(packed) // 8)
    batch: Batch | None = None
    if kind == BATCH:
        frames, messages, tails = (cast("int", fields[name]) for name in ("frames", "messages", "tails"))
        integers, blob = cast("bytes", fields["integers"]), cast("bytes", fields["blob"])
        if frames or messages or tails or integers or blob:
            batch = Batch(frames, messages, tails, integers, blob)
    return Parcel(kind, cast("int", fields["round"]), values, batch)
