"""Batches: how the packets of a window cross from one worker to another.

As columns, each a named field of the map that travels (`actors.wire.codec`) and a run of signed 64-bit
little-endian integers: eight of the frames, as `actors.wire.frame_columns` has them; nine of the messages,
their time, key, operation and six integers; and, for each packet that carries bytes, its place among the
frames (of a message, its place counted behind them), how many bytes of the blob are its tail (INT), and how
many behind these are its payload; -1 where there is none.

Building an object per packet on the wire would cost more than forwarding the packet does. A frame is written
into its columns as it leaves, and made of a used one as it comes.

Reading trusts nothing. A batch is decoded for one partition, which says what it hosts and before which time
it takes nothing; every field is held against its range, the size of a packet against its headers, and the
first that does not fit raises `ProtocolError` with the field and its value. Bytes are taken only where the
scenario has real payload, of a frame exactly as many as its payload, of a message as many as it speaks of.
"""

from __future__ import annotations

from typing import Final, cast

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from actors.kernel.errors import ProtocolError
from actors.kernel.event import (
    DEVICE_SHIFT,
    KIND_MASK,
    KIND_SHIFT,
    MESSAGE,
    NEVER_PS,
    PAUSE,
    PORT_MASK,
    PORT_SHIFT,
    SUBJECT_MASK,
    Event,
    Message,
    describe_key,
)
from actors.kernel.queue import EventQueue
from actors.kernel.vectors import append, vec
from actors.wire.frame import (
    ACKNOWLEDGE,
    CNP,
    MOST_CROSSED,
    PATH_PROBE,
    PATHED,
    PSN_MASK,
    READ_REQUEST,
    WRITE_ONLY_IMM,
    Frame,
    Spares,
    pathed_size,
    wire_size,
)
from actors.wire.frame_columns import FRAME_COLUMNS, WORDS, FrameColumns, Rows
from actors.wire.message import (
    COPY,
    CREDIT_UPDATE,
    OPERATIONS,
    PAUSE_FRAME,
    REPORT,
    speaks_of,
)

MESSAGE_COLUMNS: Final = (
    *("message_time_ps", "message_key", "message_op", "message_a", "message_b", "message_c"),
    *("message_d", "message_e", "message_f"),
)
CARRIED_COLUMNS: Final = ("carried_place", "carried_tail_bytes", "carried_data_bytes")
COLUMNS: Final = (*FRAME_COLUMNS, *MESSAGE_COLUMNS, *CARRIED_COLUMNS)
"""Of a batch, in the order in which they travel."""
_NAMES: Final = [bytes((0xA0 | len(name),)) + name.encode() for name in (*COLUMNS, "blob")]
"""As msgpack has them."""
_NAMES_BYTES: Final[vec[i64]] = vec[i64]([sum(map(len, _NAMES[:at])) for at in range(len(_NAMES) + 1)])
"""How many bytes those in front of each take together."""
MESSAGES_AT: Final[i64] = 8
CARRIED_AT: Final[i64] = 17
BLOB_AT: Final[i64] = 20
"""The first column of messages and of what packets carry, and how many there are."""
_NAME_WORDS: Final[vec[i64]] = vec[i64](
    [int.from_bytes(name.ljust(8, b"\0"), "little", signed=True) for name in _NAMES[: len(FRAME_COLUMNS)]]
)
_NAME_MASKS: Final[vec[i64]] = vec[i64](
    [(1 << 8 * len(name)) - 1 if len(name) < 8 else -1 for name in _NAMES[: len(FRAME_COLUMNS)]]
)
"""The names of the columns of frames, none longer than eight bytes, as numbers, and which bytes of these."""
_NOTHING_MORE: Final = b"".join(name + b"\xc4\x00" for name in _NAMES[len(FRAME_COLUMNS) :])
"""What follows the columns of frames where there are neither messages nor bytes that packets carry."""

MOST_PACKETS: Final[i64] = 1 << 20
"""More frames, or more messages, than that in one batch are refused."""
_HEADER_WIDTHS: Final = {b"\xc4": 1, b"\xc5": 2, b"\xc6": 4}
"""How many bytes tell the length, by msgpack's mark of bytes."""
LARGEST_PAYLOAD_BYTES: Final[i64] = 4096
"""The largest MTU of the InfiniBand architecture."""

_INDEX_BITS: Final[i64] = 10
_INDEX_MASK: Final[i64] = 0x3FF
"""An address is a prefix and an index below it (`actors.fabric.model`)."""
_NO_NUMBERS: Final[i64] = -0xFFFFFF01000000
_NO_HEADERS: Final[i64] = -0x307FFFF01000000
_NO_SOURCE: Final[i64] = -0xFFFF01000000
_NO_SIZES: Final[i64] = 0x8000FEC000FE
"""Bits of a frame's words that no field has; of sizes, the highest besides."""
_PORT_FIELD: Final[i64] = 0x7FF0000000
"""The port in a key."""
_ARRIVAL_FIELD: Final[i64] = 0x18000000000
"""The kind of an arrival in a key."""
_LARGEST: Final[i64] = 0x3FFFFFFFFFFFFFFF
_OPERATIONS: Final[i64] = len(OPERATIONS)


class Batch:
    """What one partition sends another in one window: how many frames, how many messages, how many of both
    carry bytes, and its fields as they travel: those of `COLUMNS` and `blob` (what packets carry), from
    `begin` on to the end of `data`. Nothing is copied out of a body that was received. Of one that is to be
    sent there are the `pieces` of that, which are joined once, with what goes before.
    """

    __slots__ = ("begin", "data", "frames", "messages", "pieces", "tails")

    def __init__(
        self,
        frames: i64,
        messages: i64,
        tails: i64,
        data: bytes,
        begin: i64 = 0,
        pieces: list[bytes] | None = None,
    ) -> None:
        self.frames: i64 = frames
        self.messages: i64 = messages
        self.tails: i64 = tails
        self.data: bytes = data
        self.begin: i64 = begin
        self.pieces: list[bytes] = [data] if pieces is None else pieces

    def column(self, number: i64) -> i64:
        """Where the content of a column begins; of `BLOB_AT`, where its header does."""
        at: i64 = self.begin + _NAMES_BYTES[number + 1]
        if number < MESSAGES_AT:
            return at + number * 8 * self.frames + (number + 1) * header_bytes(8 * self.frames)
        at += MESSAGES_AT * (8 * self.frames + header_bytes(8 * self.frames))
        rest: i64 = number - MESSAGES_AT
        if number < CARRIED_AT:
            return at + rest * 8 * self.messages + (rest + 1) * header_bytes(8 * self.messages)
        at += (CARRIED_AT - MESSAGES_AT) * (8 * self.messages + header_bytes(8 * self.messages))
        rest = number - CARRIED_AT
        if number == BLOB_AT:
            return at + rest * (8 * self.tails + header_bytes(8 * self.tails))
        return at + rest * 8 * self.tails + (rest + 1) * header_bytes(8 * self.tails)

    def length(self, number: i64) -> i64:
        """How many bytes a column has."""
        if number < MESSAGES_AT:
            return 8 * self.frames
        return 8 * self.messages if number < CARRIED_AT else 8 * self.tails


def header_bytes(size: i64) -> i64:
    """How many bytes msgpack writes before so many."""
    if size <= 0xFF:
        return 2
    return 3 if size <= 0xFFFF else 5


_HEADERS: Final[dict[int, bytes]] = {}
"""Those of up to 64 KiB that were asked for."""


def header_of(size: int) -> bytes:
    """What msgpack writes before so many bytes."""
    found = _HEADERS.get(size)
    if found is not None:
        return found
    if size > 0xFFFF:
        return b"\xc6" + size.to_bytes(4, "big")
    found = b"\xc4" + size.to_bytes(1, "big") if size <= 0xFF else b"\xc5" + size.to_bytes(2, "big")
    _HEADERS[size] = found
    return found


def bytes_at(data: bytes, at: int) -> tuple[int, int]:
    """Where the bytes begin and end whose header stands there; the end is -1 where there are none."""
    width = _HEADER_WIDTHS.get(data[at : at + 1], 0)
    begin = at + 1 + width
    if width == 0 or begin > len(data):
        return at, -1
    end = begin + int.from_bytes(data[at + 1 : begin], "big")
    return begin, end if end <= len(data) else -1


def layout_fault(batch: Batch) -> str:
    """What is wrong with the counts of a batch, or with where its columns are: each in its place, by its
    name, and as long as the counts say. Empty where nothing is: then every column may be read."""
    frames: i64 = batch.frames
    messages: i64 = batch.messages
    tails: i64 = batch.tails
    if not (0 <= frames <= MOST_PACKETS and 0 <= messages <= MOST_PACKETS):
        return f"a batch of {frames} frames and {messages} messages"
    if tails < 0 or tails > frames + messages:
        return f"a batch of {frames} frames, {messages} messages and {tails} tails"
    data = batch.data
    if messages == 0 and tails == 0 and _frames_fit(batch):
        return ""
    place: i64 = 0
    while place < BLOB_AT:
        size: i64 = batch.length(place)
        before = _NAMES[place] + header_of(int(size))
        at: i64 = batch.column(place)
        if at + size > len(data) or not data.startswith(before, at - len(before)):
            return f"a batch has no {size} bytes of {COLUMNS[place]}, which its counts ask for"
        place += 1
    blob: i64 = batch.column(BLOB_AT)
    if not data.startswith(_NAMES[BLOB_AT], blob - len(_NAMES[BLOB_AT])):
        return "a batch has no blob"
    if bytes_at(data, int(blob))[1] != len(data):
        return "a batch does not end with its blob"
    return ""


def _frames_fit(batch: Batch) -> bool:
    """The same of a batch that has frames and nothing else, as most have: whether each column is in its
    place. Names of at most eight bytes are compared as numbers, and so are headers."""
    data = batch.data
    size: i64 = 8 * batch.frames
    end: i64 = batch.column(MESSAGES_AT - 1) + size
    if end + len(_NOTHING_MORE) != len(data) or not data.endswith(_NOTHING_MORE):
        return False
    wide: i64 = header_bytes(size)
    before: i64 = 0xFFFF
    header: i64 = 0xC4 | (size << 8)
    if wide == 3:
        before = 0xFFFFFF
        header = 0xC5 | (size & 0xFF00) | ((size & 0xFF) << 16)
    elif wide == 5:
        before = 0xFFFFFFFFFF
        header = 0xC6 | ((size >> 24) << 8) | (((size >> 16) & 0xFF) << 16) | (((size >> 8) & 0xFF) << 24)
        header |= (size & 0xFF) << 32
    at: i64 = batch.begin
    place: i64 = 0
    while place < MESSAGES_AT:
        if read_i64_le(data, at) & _NAME_MASKS[place] != _NAME_WORDS[place]:
            return False
        at += _NAMES_BYTES[place + 1] - _NAMES_BYTES[place]
        if read_i64_le(data, at) & before != header:
            return False
        at += wide + size
        place += 1
    return True


def encode_batch(frames: FrameColumns, messages: vec[Message]) -> Batch:
    """The batch of these frames and messages."""
    header = header_of(8 * int(frames.count))
    parts: list[bytes] = []
    place: i64 = 0
    for column in frames.columns():
        parts.append(_NAMES[place])
        parts.append(header)
        parts.append(column)
        place += 1
    if len(messages) == 0 and len(frames.carrying) == 0:
        parts.append(_NOTHING_MORE)
        return Batch(frames.count, 0, 0, b"", 0, parts)
    carried = _carried_columns(frames, messages)
    for column in _message_columns(messages) + carried:
        parts.append(_NAMES[place])
        parts.append(header_of(len(column)))
        parts.append(column)
        place += 1
    return Batch(frames.count, len(messages), len(carried[0]) >> 3, b"", 0, parts)


def _carried_columns(frames: FrameColumns, messages: vec[Message]) -> list[bytes]:
    """The columns of what packets carry, and the blob."""
    place = BytesWriter()
    tail_bytes = BytesWriter()
    data_bytes = BytesWriter()
    blob = BytesWriter()
    for at, tail, payload in frames.carrying:
        write_i64_le(place, at)
        _write_carried(tail_bytes, blob, tail)
        _write_carried(data_bytes, blob, payload)
    behind: i64 = frames.count
    for message in messages:
        carried = message.data
        if carried is not None:
            write_i64_le(place, behind)
            write_i64_le(tail_bytes, -1)
            _write_carried(data_bytes, blob, carried)
        behind += 1
    return [place.getvalue(), tail_bytes.getvalue(), data_bytes.getvalue(), blob.getvalue()]


def _message_columns(messages: vec[Message]) -> list[bytes]:
    writers = [BytesWriter() for _ in MESSAGE_COLUMNS]
    for message in messages:
        write_i64_le(writers[0], message.time_ps)
        write_i64_le(writers[1], message.key)
        write_i64_le(writers[2], message.op)
        write_i64_le(writers[3], message.a)
        write_i64_le(writers[4], message.b)
        write_i64_le(writers[5], message.c)
        write_i64_le(writers[6], message.d)
        write_i64_le(writers[7], message.e)
        write_i64_le(writers[8], message.f)
    return [writer.getvalue() for writer in writers]


def _write_carried(sizes: BytesWriter, blob: BytesWriter, carried: bytes | None) -> None:
    """What a packet carries goes into the blob, and how long it is into its column."""
    if carried is None:
        write_i64_le(sizes, -1)
    else:
        write_i64_le(sizes, len(carried))
        blob.write(carried)


class BatchReader:
    """Decodes the batches for one partition.

    `ports` has, for each device of the run, how many ports it has if it is hosted here, else -1. Messages
    may also go to `management_port` of a hosted device. A packet carries at most `largest_payload_bytes`; one
    that collects telemetry is `telemetry_bytes` longer on the wire. `loaded` says that packets and messages
    carry bytes.

    Of a device's ports the first `fabric_ports` take frames and pauses, the others messages; where that is
    not given, all take all. `prefix_nics` has how many NICs each prefix of the fabric has, if there are no
    other addresses.
    """

    def __init__(
        self,
        ports: list[int],
        management_port: int,
        largest_payload_bytes: int,
        telemetry_bytes: int = 0,
        fabric_ports: list[int] | None = None,
        prefix_nics: list[int] | None = None,
        loaded: bool = False,
    ) -> None:
        assert largest_payload_bytes <= LARGEST_PAYLOAD_BYTES, largest_payload_bytes
        self._ports: vec[i64] = vec[i64](ports)
        self._management_port: i64 = management_port
        self._largest_payload_bytes: i64 = largest_payload_bytes
        self._telemetry_bytes: i64 = telemetry_bytes
        self._fabric_ports: vec[i64] = vec[i64](ports if fabric_ports is None else fabric_ports)
        self._split: bool = fabric_ports is not None
        self._prefix_nics: vec[i64] = vec[i64](prefix_nics or [])
        self._anywhere: bool = not prefix_nics
        self._loaded: bool = loaded
        self._shapes: vec[i64] = vec[i64]([-1] * 256)
        """The sizes of the last packet of each opcode that was found to be right: most are like it."""
        self.spares: Spares = Spares(MOST_CROSSED)
        """Frames that have left for another partition: those that come are made of them."""

    def take_frames(self, batch: Batch, since_ps: i64, queue: EventQueue) -> None:
        """Make the frames of a batch pending; none may be before `since_ps`. Raises ProtocolError."""
        data = batch.data
        begin: i64 = batch.column(0)
        key_at: i64 = batch.column(1)
        sent_at: i64 = batch.column(2)
        numbers_at: i64 = batch.column(3)
        headers_at: i64 = batch.column(4)
        source_at: i64 = batch.column(5)
        sizes_at: i64 = batch.column(6)
        reth_at: i64 = batch.column(7)
        spares = self.spares
        at: i64 = 0
        end: i64 = batch.frames * 8
        while at < end:
            time: i64 = read_i64_le(data, begin + at)
            key: i64 = read_i64_le(data, key_at + at)
            sent_ps: i64 = read_i64_le(data, sent_at + at)
            numbers: i64 = read_i64_le(data, numbers_at + at)
            headers: i64 = read_i64_le(data, headers_at + at)
            source: i64 = read_i64_le(data, source_at + at)
            sizes: i64 = read_i64_le(data, sizes_at + at)
            self._check_frame(time, key, sent_ps, numbers, headers, source, sizes, since_ps)
            frame = spares.take()
            reth: i64 = read_i64_le(data, reth_at + at)
            frame.arrive(time, key, sent_ps, numbers, headers, source, sizes, reth)
            queue.push(frame)
            at += 8

    def sort_frames(self, batch: Batch, since_ps: i64, block_of: vec[i64], rows: list[Rows]) -> None:
        """Give the words of each frame of a batch to its block, by its number; none may be before `since_ps`.
        Raises ProtocolError."""
        data = batch.data
        begin: i64 = batch.column(0)
        key_at: i64 = batch.column(1)
        sent_at: i64 = batch.column(2)
        numbers_at: i64 = batch.column(3)
        headers_at: i64 = batch.column(4)
        source_at: i64 = batch.column(5)
        sizes_at: i64 = batch.column(6)
        reth_at: i64 = batch.column(7)
        at: i64 = 0
        end: i64 = batch.frames * 8
        while at < end:
            time: i64 = read_i64_le(data, begin + at)
            key: i64 = read_i64_le(data, key_at + at)
            sent_ps: i64 = read_i64_le(data, sent_at + at)
            numbers: i64 = read_i64_le(data, numbers_at + at)
            headers: i64 = read_i64_le(data, headers_at + at)
            source: i64 = read_i64_le(data, source_at + at)
            sizes: i64 = read_i64_le(data, sizes_at + at)
            self._check_frame(time, key, sent_ps, numbers, headers, source, sizes, since_ps)
            reth: i64 = read_i64_le(data, reth_at + at)
            block: i64 = block_of[key >> DEVICE_SHIFT]
            rows[block].add(time, key, sent_ps, numbers, headers, source, sizes, reth)
            at += 8

    def messages(self, batch: Batch, since_ps: i64) -> vec[Message]:
        """The messages in a batch, without data. Raises ProtocolError."""
        messages = vec[Message]()
        at: i64 = 0
        while at < batch.messages:
            messages = append(messages, self._message(batch, at * 8, since_ps))
            at += 1
        return messages

    def decode(self, batch: Batch, since_ps: i64) -> vec[Event]:
        """The events in a batch, in its order, with what they carry; none may be before `since_ps`. Raises
        ProtocolError."""
        fault = layout_fault(batch)
        if fault:
            raise ProtocolError(fault)
        rows = Rows()
        self.sort_frames(batch, since_ps, vec[i64]([0] * len(self._ports)), [rows])
        events = vec[Event]()
        at: i64 = 0
        while at < rows.used:
            events = append(events, rows.frame(at, self.spares))
            at += WORDS
        for message in self.messages(batch, since_ps):
            events = append(events, message)
        self._attach(events, batch)
        return events

    def _check_frame(
        self,
        time: i64,
        key: i64,
        sent_ps: i64,
        numbers: i64,
        headers: i64,
        source: i64,
        sizes: i64,
        since_ps: i64,
    ) -> None:
        """Hold a frame's words against what they may be. Raises ProtocolError."""
        device: i64 = key >> DEVICE_SHIFT
        if time < since_ps or time >= NEVER_PS or key < 0 or device >= len(self._ports):
            self._check_target(time, key, since_ps)
        port: i64 = (key >> PORT_SHIFT) & PORT_MASK
        if (
            key & ~_PORT_FIELD != (device << DEVICE_SHIFT) | _ARRIVAL_FIELD
            or port >= self._fabric_ports[device]
        ):
            self._refuse_target(time, key, since_ps)
        unknown: i64 = (numbers & _NO_NUMBERS) | (headers & _NO_HEADERS) | (source & _NO_SOURCE)
        if unknown | (sizes & _NO_SIZES) != 0 or sizes < 0:
            raise ProtocolError(
                f"a frame's numbers {numbers}, headers {headers}, source {source} or sizes {sizes} have bits"
                " that no field has"
            )
        if sent_ps < 0 or sent_ps >= time:
            raise ProtocolError(f"a frame's sent_ps {sent_ps} (arrival {time}) is out of range")
        opcode: i64 = (headers >> 32) & 0xFF
        shape: i64 = sizes >> 32
        if self._shapes[opcode] != shape:
            self._check_sizes(opcode, shape >> 16, shape & 0xFFFF)
            self._shapes[opcode] = shape
        if self._anywhere:
            return
        src: i64 = source & PSN_MASK
        dst: i64 = headers & PSN_MASK
        prefix: i64 = src >> _INDEX_BITS
        if prefix >= len(self._prefix_nics) or src & _INDEX_MASK >= self._prefix_nics[prefix]:
            raise ProtocolError(f"a frame's address {src} is of no NIC in this fabric")
        prefix = dst >> _INDEX_BITS
        if prefix >= len(self._prefix_nics) or dst & _INDEX_MASK >= self._prefix_nics[prefix]:
            raise ProtocolError(f"a frame's address {dst} is of no NIC in this fabric")

    def _refuse_target(self, time: i64, key: i64, since_ps: i64) -> None:
        """Raise ProtocolError for a frame that is none for a fabric port here."""
        self._check_target(time, key, since_ps)
        raise ProtocolError(f"a frame is no arrival: {describe_key(key)}")

    def _check_sizes(self, opcode: i64, payload_bytes: i64, wire_bytes: i64) -> None:
        """Hold a packet's size on the wire against its opcode and payload. Raises ProtocolError."""
        if opcode > ACKNOWLEDGE and opcode != CNP:
            self._check_pathed(opcode, payload_bytes, wire_bytes)
            return
        if payload_bytes > 0 and (opcode == READ_REQUEST or opcode >= ACKNOWLEDGE):
            raise ProtocolError(f"a frame of opcode {opcode} has {payload_bytes} bytes, and no payload")
        if payload_bytes > self._largest_payload_bytes:
            raise ProtocolError(
                f"a frame's payload is {payload_bytes} bytes; at most {self._largest_payload_bytes} may be"
            )
        expected: i64 = wire_size(opcode, payload_bytes)
        if wire_bytes != expected and (opcode == CNP or wire_bytes != expected + self._telemetry_bytes):
            raise ProtocolError(
                f"a frame of opcode {opcode} with {payload_bytes} bytes of payload is "
                f"{wire_size(opcode, payload_bytes)} bytes on the wire, not {wire_bytes}"
            )

    def _check_pathed(self, opcode: i64, payload_bytes: i64, wire_bytes: i64) -> None:
        """What is no packet of a transport with paths is refused."""
        own: i64 = opcode & ~PATHED
        if opcode & PATHED != PATHED or (own > WRITE_ONLY_IMM and own != ACKNOWLEDGE and own != PATH_PROBE):
            raise ProtocolError(f"a frame's opcode is {opcode}, which is none")
        if payload_bytes > (self._largest_payload_bytes if own <= WRITE_ONLY_IMM else 0):
            raise ProtocolError(f"a frame of opcode {opcode} has {payload_bytes} bytes, which is too much")
        if wire_bytes != pathed_size(own, payload_bytes):
            raise ProtocolError(
                f"a frame of opcode {opcode} with {payload_bytes} bytes of payload is "
                f"{pathed_size(own, payload_bytes)} bytes on the wire, not {wire_bytes}"
            )

    def _message(self, batch: Batch, at: i64, since_ps: i64) -> Message:
        data = batch.data
        time: i64 = read_i64_le(data, batch.column(MESSAGES_AT) + at)
        key: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 1) + at)
        self._check_target(time, key, since_ps)
        op: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 2) + at)
        a: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 3) + at)
        b: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 4) + at)
        c: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 5) + at)
        d: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 6) + at)
        e: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 7) + at)
        f: i64 = read_i64_le(data, batch.column(MESSAGES_AT + 8) + at)
        # These bytes are from a socket, and no device looks at them again: a field out of range would index a
        # table of another size, or overflow in compiled code, long after the message came.
        kind: i64 = (key >> KIND_SHIFT) & KIND_MASK
        if kind == PAUSE:
            if op == CREDIT_UPDATE and (key & SUBJECT_MASK) == 0:
                if a < 0 or a > 7 or b < 0 or (c | d | e) != 0 or f < 0 or f >= time:
                    raise ProtocolError(f"an update of lane {a} to {b}, sent at {f}: out of range")
            elif op != PAUSE_FRAME or (key & SUBJECT_MASK) != 0:
                raise ProtocolError(f"a pause is operation {op}: {describe_key(key)}")
            elif (a | b) & ~0xFF != 0 or a & b != 0 or c & ~0xFFFF != 0 or f < 0 or f >= time:
                raise ProtocolError(
                    f"a pause stops {a}, resumes {b}, has quanta {c} or was sent at {f}: out of range"
                )
        elif kind == MESSAGE:
            if op <= PAUSE_FRAME or op >= _OPERATIONS or op == CREDIT_UPDATE:
                raise ProtocolError(f"a message's operation is {op}, which is none")
            if op <= REPORT and (a | b | c | d | e | f) < 0:
                raise ProtocolError(f"a message of operation {op} carries a negative number")
        else:
            raise ProtocolError(f"a message is neither message nor pause: {describe_key(key)}")
        for value in (a, b, c, d, e, f):
            if value < -_LARGEST or value > _LARGEST:
                raise ProtocolError(f"a message of operation {op} carries {value}, beyond 62 bits")
        message = Message(op, a, b, c, d, e, f)
        message.time_ps = time
        message.key = key
        return message

    def _check_target(self, time: i64, key: i64, since_ps: i64) -> None:
        if time < since_ps or time >= NEVER_PS:
            raise ProtocolError(f"a packet arrives at {time} ps; the window begins at {since_ps} ps")
        device: i64 = key >> DEVICE_SHIFT
        if key < 0 or device >= len(self._ports):
            raise ProtocolError(f"a packet is for device {device}; there are {len(self._ports)}")
        ports: i64 = self._ports[device]
        if ports < 0:
            raise ProtocolError(f"a packet is for device {device}, which is not hosted here")
        port: i64 = (key >> PORT_SHIFT) & PORT_MASK
        message: bool = (key >> KIND_SHIFT) & KIND_MASK == MESSAGE
        if port >= ports and (port != self._management_port or not message):
            raise ProtocolError(f"a packet is for port {port} of device {device}, which has {ports}")
        if self._split and message == (port < self._fabric_ports[device]):
            raise ProtocolError(f"port {port} of device {device} does not take that: {describe_key(key)}")

    def _attach(self, events: vec[Event], batch: Batch) -> None:
        """Give the packets of a batch what they carry. Raises ProtocolError."""
        data = batch.data
        count: i64 = 0
        begin, end = bytes_at(data, int(batch.column(BLOB_AT)))
        offset: i64 = begin
        blob_end: i64 = end
        before: i64 = -1
        packets: i64 = len(events)
        while count < batch.tails:
            place: i64 = read_i64_le(data, batch.column(CARRIED_AT) + 8 * count)
            tail_bytes: i64 = read_i64_le(data, batch.column(CARRIED_AT + 1) + 8 * count)
            data_bytes: i64 = read_i64_le(data, batch.column(CARRIED_AT + 2) + 8 * count)
            # Ascending places: each packet has one tail at most, and a batch cannot be read twice over.
            if place <= before or place >= packets:
                raise ProtocolError(f"a tail belongs to packet {place} of {packets}, after packet {before}")
            left: i64 = blob_end - offset
            if tail_bytes < -1 or tail_bytes > left:
                raise ProtocolError(f"a tail of {tail_bytes} bytes; {left} are left")
            if data_bytes < -1 or data_bytes > left - (max(0, tail_bytes)):
                raise ProtocolError(
                    f"data of {data_bytes} bytes after a tail of {tail_bytes}; {left} are left"
                )
            event = events[place]
            self._check_data(event, data_bytes)
            if isinstance(event, Frame):
                if tail_bytes >= 0:
                    event.tail = data[offset : offset + tail_bytes]
                    offset += tail_bytes
                if data_bytes >= 0:
                    event.payload = data[offset : offset + data_bytes]
                    offset += data_bytes
            else:
                message = cast(Message, event)
                if tail_bytes >= 0:
                    raise ProtocolError(
                        f"a message of operation {message.op} has a tail of {tail_bytes} bytes"
                    )
                message.data = data[offset : offset + data_bytes]
                offset += data_bytes
            before = place
            count += 1
        if offset != blob_end:
            raise ProtocolError(f"a blob of {end - begin} bytes of which {offset - begin} are used")

    def _check_data(self, event: Event, size: i64) -> None:
        """Whether a packet may carry so many bytes; a frame may carry none."""
        if size < 0 and isinstance(event, Frame):
            return
        if not self._loaded:
            raise ProtocolError(f"a packet carries {size} bytes, and payload is sizes only")
        if isinstance(event, Frame):
            own: i64 = i64(event.opcode)
            if own >= PATHED:
                own &= ~PATHED
            if size != event.payload_bytes or own > READ_REQUEST:
                raise ProtocolError(
                    f"a frame of opcode {event.opcode} with {event.payload_bytes} bytes of payload carries"
                    f" {size}"
                )
            return
        message = cast(Message, event)
        spoken: i64 = speaks_of(message.op, message.b, message.c)
        if spoken < 0 or (size > spoken if message.op == COPY else size != spoken):
            raise ProtocolError(f"a message of operation {message.op} carries {size} bytes, not {spoken}")
