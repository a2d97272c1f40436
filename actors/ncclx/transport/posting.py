"""Queue-pair policies: which queue pair carries which bytes, and when a slice is there.

A connection is a few queue pairs from one rank to another. `Sender` is its end that writes, `Receiver` the
other. Both count slices; where a slice's bytes are copied from and to is the channel's business.

    round_robin    slice s goes whole to queue pair s modulo their number; over a merged NIC of n ports it is
                   cut over the n queue pairs from s x n on, one on each port, as `split` cuts it over all
    split          every slice is cut over all queue pairs, in pieces of (size / pairs) rounded up to 128 B;
                   the last pieces may be shorter or empty
    dqplb          a slice is cut into segments of `segment_bytes`, each on the next queue pair in turn that
                   has fewer than `most_messages` outstanding; where none has, the rest waits for an
                   acknowledgement
    least_loaded   a slice goes whole to the NIC of the host with the fewest bytes posted and not
                   acknowledged by the job's ranks there (each connection to another host has queue pairs on
                   all NICs), and on it to the queue pair of this connection with the fewest; among equals to
                   the next after the last choice. Where `loads` is not given, only the last of these: among
                   the queue pairs between one pair of NICs

Every WRITE carries an immediate. Under `dqplb` it is the segment's sequence number, with bit 31 set on the
last segment of a slice: the receiver passes a slice on when all up to its last are here (in-order
notification). Under the others it is the number of the slice, and the receiver counts the pieces and puts
slices that overtook each other in order.

A connection may have a limit on bytes posted and not acknowledged. A slice that would pass it waits, unless
nothing is outstanding.

A work request's id is slice x pairs + the place of the queue pair, so a completion tells whose room it frees.

Source: NCCL 2.30, `net_ib.cc` (ncclIbMultiSend: split at 128 B, round robin); NCCLX, `CtranIbVc` (segments,
messages outstanding per queue pair, sequence number and notify bit in the immediate); HPN, section 6.1 (least
outstanding).

Not modelled: adaptive-routing mode of NCCL (a separate empty WRITE_WITH_IMM), queue pairs that are added or
taken away while a connection lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

from actors.host.host import Host
from actors.kernel.device import Plain
from actors.kernel.state import as_bytes, as_int, as_list, load_fields, save_fields
from actors.kernel.vectors import vec
from actors.wire.message import POST_PROTOCOL, POST_WITH_IMMEDIATE

ROUND_ROBIN: Final[i64] = 0
SPLIT: Final[i64] = 1
LEAST_LOADED: Final[i64] = 2
DQPLB: Final[i64] = 3
POLICIES: Final = {"round_robin": 0, "split": 1, "least_loaded": 2, "dqplb": 3}

SPLIT_ALIGN_BYTES: Final[i64] = 128
IMMEDIATE_MASK: Final[i64] = 0xFFFFFFFF
SEQUENCE_MASK: Final[i64] = 0x7FFFFFFF
NOTIFY: Final[i64] = 0x80000000
"""In the immediate of a slice's last segment."""

_SENDER_FIELDS: Final = (
    "outstanding_bytes",
    "last",
    "sequence",
    "slice",
    "left_bytes",
    "whole_bytes",
    "held",
    "deferred",
    "diverted",
    "data",
    "flags",
    "slot_pieces",
    "pair_bytes",
    "pair_messages",
)
_LOAD_FIELDS: Final = ("outstanding", "last")
_RECEIVER_FIELDS: Final = ("ready", "next", "unread", "arrived")


class NicLoads:
    """What the ranks of a job on one host have outstanding on each of its NICs, in bytes."""

    def __init__(self, nics: int) -> None:
        nothing: list[int] = [0] * nics
        self.outstanding: vec[i64] = vec[i64](nothing)
        self.last: i64 = nics - 1
        """The NIC chosen last."""

    def least(self, nics: i64) -> i64:
        """The least loaded among the first `nics`, the next after the last choice among equals."""
        best: i64 = -1
        step: i64 = 1
        while step <= nics:
            nic: i64 = (self.last + step) % nics
            if best < 0 or self.outstanding[nic] < self.outstanding[best]:
                best = nic
            step += 1
        self.last = best
        return best


class Totals:
    """What the ends of a rank have counted in all. No state: each end keeps its own."""

    def __init__(self) -> None:
        self.held: i64 = 0
        self.deferred: i64 = 0
        self.diverted: i64 = 0
        self.direct: i64 = 0


class Sender:
    """The end of a connection that writes.

    `pairs` are queue pairs of the NICs behind `ports`, the host's, equally many on each, NIC by NIC. `loads`
    is shared by the job's ranks of the host, if slices choose among NICs. `most_bytes` bounds what is
    outstanding, 0 does not. With `round_robin` a slice is cut over `spread` queue pairs in a row.
    """

    def __init__(
        self,
        policy: int,
        ports: list[int],
        pairs: list[int],
        slots: int,
        loads: NicLoads | None,
        segment_bytes: int,
        most_messages: int,
        most_bytes: int,
        spread: int = 1,
    ) -> None:
        assert len(pairs) % spread == 0, (pairs, spread)
        assert pairs and ports and len(pairs) % len(ports) == 0, (pairs, ports)
        self.policy: i64 = policy
        self.ports: vec[i64] = vec[i64](ports)
        self.pairs: vec[i64] = vec[i64](pairs)
        self.each: i64 = len(pairs) // len(ports)
        self.spread: i64 = len(pairs) if policy == SPLIT else spread
        """Queue pairs over which a slice is cut; 1 where it is not cut evenly."""
        self.loads: NicLoads | None = loads
        self.slots: i64 = slots
        self.segment_bytes: i64 = segment_bytes
        self.most_messages: i64 = most_messages
        self.most_bytes: i64 = most_bytes
        self.slot_pieces: vec[i64] = vec[i64]([0] * slots)
        """Pieces of the slice in each slot that are not acknowledged yet."""
        self.pair_bytes: vec[i64] = vec[i64]([0] * len(pairs))
        self.pair_messages: vec[i64] = vec[i64]([0] * len(pairs))
        self.outstanding_bytes: i64 = 0
        self.last: i64 = len(pairs) - 1
        """The queue pair chosen last, where there is a choice."""
        self.sequence: i64 = 0
        """Segments posted."""
        self.slice: i64 = 0
        """The slice whose segments are being posted."""
        self.left_bytes: i64 = -1
        """What of it is still to be posted; -1 if nothing is."""
        self.whole_bytes: i64 = 0
        """All of it."""
        self.data: bytes | None = None
        """The slice itself, where payload is real."""
        self.held: i64 = 0
        """Slices that waited because the limit on outstanding bytes was reached."""
        self.deferred: i64 = 0
        """Times that a segment waited because every queue pair had its most messages outstanding."""
        self.diverted: i64 = 0
        """Slices that went to another queue pair than the next in turn, which had more outstanding."""
        self.totals: Totals = Totals()
        """Totals of the rank, once it has its ends."""
        self.inside: bool = False
        """Whether it is over NVLink."""
        self.flags: i64 = POST_WITH_IMMEDIATE
        """Flags of its POSTs."""

    def use(self, protocol: i64) -> None:
        """What is sent from now on has this protocol, which a GPU has to know."""
        if self.inside:
            self.flags = POST_WITH_IMMEDIATE + POST_PROTOCOL * protocol

    def has_room(self, size: i64) -> bool:
        """Whether a slice of so many bytes may be sent now."""
        if self.left_bytes >= 0:
            return False
        if self.most_bytes == 0 or self.outstanding_bytes == 0:
            return True
        return self.outstanding_bytes + size <= self.most_bytes

    def send(self, host: Host, program: i64, number: i64, size: i64, data: bytes | None = None) -> None:
        """Post a slice, which is `data` where payload is real."""
        self.data = data
        slot: i64 = number % self.slots
        pairs: i64 = len(self.pairs)
        if self.policy == ROUND_ROBIN and self.spread == 1:
            self.slot_pieces[slot] = 1
            self._write(host, program, number, number % pairs, size, number & IMMEDIATE_MASK, 0)
        elif self.policy == ROUND_ROBIN or self.policy == SPLIT:
            self.slot_pieces[slot] = self.spread
            self._split(host, program, number, size)
        elif self.policy == LEAST_LOADED:
            self.slot_pieces[slot] = 1
            place: i64 = self._least_loaded(size)
            self._write(host, program, number, place, size, number & IMMEDIATE_MASK, 0)
        else:
            segments: i64 = (size + self.segment_bytes - 1) // self.segment_bytes
            self.slot_pieces[slot] = max(segments, 1)
            self.slice = number
            self.left_bytes = size
            self.whole_bytes = size
            self._post_segments(host, program)

    def on_acknowledged(self, host: Host, program: i64, request: i64, size: i64) -> None:
        """A piece was acknowledged."""
        pairs: i64 = len(self.pairs)
        place: i64 = request % pairs
        self.slot_pieces[request // pairs % self.slots] -= 1
        self.pair_bytes[place] -= size
        self.pair_messages[place] -= 1
        self.outstanding_bytes -= size
        loads = self.loads
        if loads is not None:
            loads.outstanding[place // self.each] -= size
        if self.left_bytes >= 0:
            self._post_segments(host, program)

    def is_acknowledged(self, number: i64) -> bool:
        """Whether all of a slice was; it must have been sent, and be the last in its slot."""
        return self.slot_pieces[number % self.slots] == 0

    def waiting_place(self) -> i64:
        """The place of the first queue pair with something outstanding; 0 if none has."""
        for place, messages in enumerate(self.pair_messages):
            if messages > 0:
                return place
        return 0

    def _split(self, host: Host, program: i64, number: i64, size: i64) -> None:
        pieces: i64 = self.spread
        piece: i64 = (size + pieces - 1) // pieces
        piece = (piece + SPLIT_ALIGN_BYTES - 1) // SPLIT_ALIGN_BYTES * SPLIT_ALIGN_BYTES
        left: i64 = size
        place: i64 = number * pieces % len(self.pairs)
        last: i64 = place + pieces
        while place < last:
            if piece > left:
                piece = left
            self._write(host, program, number, place, piece, number & IMMEDIATE_MASK, size - left)
            left -= piece
            place += 1

    def _least_loaded(self, size: i64) -> i64:
        """The queue pair for a slice, whose bytes are counted for its NIC."""
        first: i64 = 0
        loads = self.loads
        usual: bool = True
        if loads is not None:
            next_nic: i64 = (loads.last + 1) % len(self.ports)
            nic: i64 = loads.least(len(self.ports))
            usual = nic == next_nic
            loads.outstanding[nic] += size
            first = nic * self.each
        best: i64 = -1
        step: i64 = 1
        while step <= self.each:
            place: i64 = first + (self.last + step) % self.each
            if best < 0 or self.pair_bytes[place] < self.pair_bytes[best]:
                best = place
            step += 1
        if not usual or best != first + (self.last + 1) % self.each:
            self.diverted += 1
            self.totals.diverted += 1
        self.last = best
        return best

    def _post_segments(self, host: Host, program: i64) -> None:
        """Post what is left of a slice, as far as queue pairs have room for messages."""
        pairs: i64 = len(self.pairs)
        while self.left_bytes >= 0:
            place: i64 = (self.last + 1) % pairs
            tried: i64 = 1
            while self.pair_messages[place] >= self.most_messages and tried < pairs:
                place = (place + 1) % pairs
                tried += 1
            if self.pair_messages[place] >= self.most_messages:
                self.deferred += 1
                self.totals.deferred += 1
                return
            self.last = place
            size: i64 = self.left_bytes
            start: i64 = self.whole_bytes - size
            immediate: i64 = self.sequence & SEQUENCE_MASK
            self.sequence += 1
            if size > self.segment_bytes:
                size = self.segment_bytes
                self.left_bytes -= size
            else:
                immediate |= NOTIFY
                self.left_bytes = -1
            self._write(host, program, self.slice, place, size, immediate, start)

    def _write(
        self, host: Host, program: i64, number: i64, place: i64, size: i64, immediate: i64, start: i64
    ) -> None:
        """Post a piece of a slice, `size` bytes from `start` on."""
        self.pair_bytes[place] += size
        self.pair_messages[place] += 1
        self.outstanding_bytes += size
        request: i64 = number * len(self.pairs) + place
        port: i64 = self.ports[place // self.each]
        data = self.data
        piece: bytes | None = None
        if data is not None:
            piece = data[start : start + size]
        host.post(program, port, self.pairs[place], request, size, self.flags, immediate, piece)

    def save(self) -> list[Plain]:
        """The end's state, and that of the NICs' loads."""
        loads = self.loads
        outstanding: Plain = None if loads is None else save_fields(loads, _LOAD_FIELDS)
        return [save_fields(self, _SENDER_FIELDS), outstanding]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, outstanding = as_list(state)
        load_fields(self, _SENDER_FIELDS, fields)
        if self.loads is not None:  # every rank of the job on this host brings the same
            load_fields(self.loads, _LOAD_FIELDS, outstanding)


class Receiver:
    """The end of a connection that is written to: which slices are here, in order, and where payload is real
    what is in them. `pairs` are its queue pairs in the sender's order.
    """

    def __init__(self, policy: int, pairs: Sequence[int], spread: int = 1) -> None:
        self.policy: i64 = policy
        self.pairs = list(pairs)
        self.needed: i64 = len(pairs) if policy == SPLIT else spread if policy == ROUND_ROBIN else 1
        """Pieces of a slice."""
        self.ready: i64 = 0
        """Slices that are here, with all before them."""
        self.next: i64 = 0
        """The next segment in order."""
        self.early: i64 = 0
        """How many `arrived` has, which most often is none."""
        self.keeps: bool = False
        """Whether `pieces` had anything."""
        self.arrived: dict[int, int] = {}
        """Pieces of slices that are not ready, by slice; or whether an early segment notifies, by sequence
        number."""
        self.pieces: dict[int, list[tuple[int, bytes]]] = {}
        """Where payload is real: the bytes of slices that were not taken, by immediate, each with its place
        in the slice; for `dqplb` by sequence number, with whether it notifies."""
        self.unread: i64 = 0
        """The next segment to take."""

    def keep(self, immediate: i64, pair: i64, data: bytes) -> None:
        """The bytes of a piece that arrived on a queue pair."""
        self.keeps = True
        if self.policy == DQPLB:
            self.pieces[immediate & SEQUENCE_MASK] = [(immediate & NOTIFY, data)]
            return
        place: int = self.pairs.index(pair) if self.needed > 1 else 0
        self.pieces.setdefault(immediate, []).append((place, data))

    def take(self, number: i64) -> bytes | None:
        """The bytes of a slice that is ready, which is forgotten; None where payload is sizes only."""
        if not self.keeps or not self.pieces:
            return None
        if self.policy != DQPLB:
            return b"".join([data for _, data in sorted(self.pieces.pop(number & IMMEDIATE_MASK))])
        found: list[bytes] = []
        while True:
            ((notifies, data),) = self.pieces.pop(self.unread & SEQUENCE_MASK)
            self.unread += 1
            found.append(data)
            if notifies != 0:
                return b"".join(found)

    def on_arrived(self, immediate: i64) -> i64:
        """A piece arrived; returns how many slices are ready by it."""
        before: i64 = self.ready
        if self.policy == DQPLB:
            at: i64 = immediate & SEQUENCE_MASK
            assert at not in self.arrived, (immediate, self.next)
            self.arrived[at] = immediate & NOTIFY
            at = self.next & SEQUENCE_MASK
            while at in self.arrived:
                if self.arrived.pop(at) != 0:
                    self.ready += 1
                self.next += 1
                at = self.next & SEQUENCE_MASK
            return self.ready - before
        if self.needed == 1 and immediate == self.ready & IMMEDIATE_MASK:  # the next one, as it mostly is
            self.ready += 1
        else:
            pieces: i64 = self.arrived.get(immediate, 0) + 1
            assert pieces <= self.needed, (immediate, pieces, self.needed)
            if pieces == 1:
                self.early += 1
            self.arrived[immediate] = pieces
        while self.early > 0 and self.arrived.get(self.ready & IMMEDIATE_MASK, 0) == self.needed:
            del self.arrived[self.ready & IMMEDIATE_MASK]
            self.early -= 1
            self.ready += 1
        return self.ready - before

    def save(self) -> list[Plain]:
        """The end's state."""
        held: list[Plain] = []
        for key, pieces in self.pieces.items():
            for place, data in pieces:
                held.append([key, place, data])
        return [save_fields(self, _RECEIVER_FIELDS), held]

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        fields, held = as_list(state)
        load_fields(self, _RECEIVER_FIELDS, fields)
        self.early = len(self.arrived)
        self.keeps = True
        self.pieces = {}
        for entry in as_list(held):
            key, place, data = as_list(entry)
            self.pieces.setdefault(as_int(key), []).append((as_int(place), as_bytes(data)))
