"""A round of the window protocol: what goes in, what comes out, and how it is encoded.

A contribution in, sync messages to and from the other workers, a step out. The rules are in
`emu.engine.sync.window`. There is a round for each window, so these are plain classes: what a dataclass
generates for itself is never compiled.

A sync message is encoded as the body of a frame, in the envelope of `actors.wire.codec`. A peer that gives up
says so in a `leave` frame, which becomes a `PeerLeft` with its reason.
"""

from __future__ import annotations

from mypy_extensions import i64

from actors.kernel.event import NEVER_PS
from actors.kernel.vectors import vec
from actors.wire.batch import Batch
from actors.wire.codec import (
    BATCH,
    BATCH_HEAD,
    LEAVE,
    LONGEST_REASON,
    QUIET,
    as_encoded,
    bytes_of,
    decode,
    decode_batch_body,
    decode_quiet,
    encode,
    encode_batch_body,
    encode_quiet,
    pack_integers,
    text_of,
    unpack_integers,
)
from emu.base.errors import ProtocolError, RuntimeFailure
from emu.engine.outcome import Ending
from emu.engine.sync.sync_points import SyncPoint


class SyncMessage:
    """What one worker sends another in a round: integers of the reduction, packets, or both."""

    __slots__ = ("batch", "kind", "round", "values")

    def __init__(self, kind: str, round_: int, values: vec[i64], batch: Batch | None) -> None:
        self.kind = kind
        self.round = round_
        self.values: vec[i64] = values
        self.batch = batch


class Contribution:
    """What a worker knows of itself when a round begins.

    next_ps      the time of its next event, or earlier
    sent_ps      the earliest arrival in the batch for each worker; NEVER_PS where there is none
    stop_ps      the end of the run, if a device here has announced it
    progress     the progress of its devices
    work         how much is pending besides upkeep, here and in the batches
    promises     how much of it says that something goes on by itself (`Partition.outlook`)
    reached_ps   it has executed nothing at or after this time
    busiest      who of those that live here has sent most; the least of all is taken
    pause_ps     the run is to stand still then, for a program that steps it
    acts_ps      when a watched device acts, here or where the batches go

    Progress, work and promises count if the machine wants totals, `busiest` if it wants to measure targets.
    """

    __slots__ = (
        "acts_ps",
        "busiest",
        "next_ps",
        "pause_ps",
        "progress",
        "promises",
        "reached_ps",
        "sent_ps",
        "stop_ps",
        "work",
    )

    def __init__(
        self,
        next_ps: int,
        sent_ps: list[int],
        stop_ps: int = NEVER_PS,
        progress: int = 0,
        work: int = 0,
        promises: int = 0,
        reached_ps: int = 0,
        busiest: int = NEVER_PS,
        pause_ps: int = NEVER_PS,
        acts_ps: int = NEVER_PS,
    ) -> None:
        self.next_ps = next_ps
        self.sent_ps = sent_ps
        self.stop_ps = stop_ps
        self.progress = progress
        self.work = work
        self.promises = promises
        self.reached_ps = reached_ps
        self.busiest = busiest
        self.pause_ps = pause_ps
        self.acts_ps = acts_ps


class Round:
    """What has arrived of one round."""

    __slots__ = ("batches", "heard", "result", "values")

    def __init__(self) -> None:
        self.values: vec[i64] = vec[i64]()
        """The reduction over the contributions that have arrived."""
        self.heard: list[int] = []
        """Whose contributions these are: peers, or children in the tree."""
        self.batches: dict[int, Batch | None] = {}
        self.result: vec[i64] = vec[i64]()
        """The reduction over everyone's; empty until it is known."""


def reduced(mine: vec[i64], others: vec[i64], minima: i64, peer: int) -> vec[i64]:
    """Two contributions in one: the first `minima` by minimum, the rest by sum. Raises ProtocolError."""
    both = vec[i64]([0] * len(mine))
    at: i64 = 0
    while at < len(mine):
        one: i64 = mine[at]
        other: i64 = others[at]
        if at >= minima:
            if one > NEVER_PS - other:
                raise ProtocolError(f"worker {peer} contributed {other}, beyond what can be counted")
            one += other
        elif other < one:
            one = other
        both[at] = one
        at += 1
    return both


class Step:
    """What a worker does after a round: take the batches, act at a sync point, then execute everything before
    `until_ps`, but for a short rest that it `may_leave`; or end, at `virtual_ps`.
    """

    __slots__ = ("batches", "ending", "may_leave", "sync", "until_ps", "virtual_ps")

    def __init__(
        self,
        batches: list[tuple[int, Batch]],
        sync: SyncPoint | None,
        until_ps: int,
        ending: Ending | None = None,
        virtual_ps: int = 0,
        may_leave: bool = False,
    ) -> None:
        self.batches = batches
        self.sync = sync
        self.until_ps = until_ps
        self.ending = ending
        self.virtual_ps = virtual_ps
        self.may_leave = may_leave


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
    return encode_batch_body(pack_integers(head, sync_message.values), batch)


def encode_leave(reason: str) -> bytes:
    """The body of the last frame of a worker that gives up."""
    return encode(LEAVE, reason[:LONGEST_REASON])


def decode_sync_message(body: bytes) -> SyncMessage:
    """The sync message in a frame's body. Raises ProtocolError, or PeerLeft."""
    head = decode_quiet(body)
    if len(head) > 0:
        return SyncMessage(BATCH, head[0], head[1:], None)
    received = decode_batch_body(body)
    if received is None:
        kind, fields = decode(body)
        if kind == LEAVE:
            raise PeerLeft(text_of(fields[0])[:LONGEST_REASON])
        if kind != BATCH:
            head = unpack_integers(bytes_of(fields[0]))
            if len(head) == 0:
                raise ProtocolError(f"a {kind} frame without a round")
            return SyncMessage(BATCH if kind == QUIET else kind, head[0], head[1:], None)
        received = decode_batch_body(as_encoded(body))
        assert received is not None, len(body)
    head = received.head
    return SyncMessage(BATCH, head[0], head[BATCH_HEAD:], received.batch)
