"""Batches: how the packets of a window cross from one worker to another.

As one flat run of signed 64-bit little-endian integers and one blob. First every frame, `FRAME_INTEGERS`
each; then every message, `MESSAGE_INTEGERS` each; then, for each frame that carries bytes, its place among
the frames and how many bytes of the blob are its tail (INT) and its payload, and likewise for each message
that carries bytes, its place counted behind the frames. Building an object per packet on the wire would cost
more than forwarding the packet does; this costs about a fifth of it. What is short in a frame's headers
shares an integer, as it does in the headers (bits, lowest first):

    frame    time
             key
             sent
             opcode 8, priority 3, ecn 2, ack_request 1, syndrome 8, udp_source 16,
             ttl 8, dscp 6, corrupt 1
             src 24, dst 24, wire_bytes 14
             qpn 24, psn 24, payload_bytes 14
             immediate 32
             message_bytes 32
    message  time, key, op, a, b, c, d, e, f
    tail     place, length of the tail, length of the data; -1 where there is none

Reading trusts nothing. A batch is decoded for one partition, which says what it hosts and before which time
it takes nothing; every field is held against its range, the size of a packet against its headers, and the
first that does not fit raises `ProtocolError` with the field and its value. Bytes are taken only where the
scenario has real payload, of a frame exactly as many as its payload, of a message as many as it speaks of.
"""

from __future__ import annotations

from typing import Final, cast

from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i32, i64, u8

from actors.kernel.cache import AHEAD, fetch_frame
from actors.kernel.errors import ProtocolError
from actors.kernel.event import (
    ARRIVAL,
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
from actors.kernel.vectors import append, vec
from actors.wire.frame import (
    ACKNOWLEDGE,
    CNP,
    FRAME_INTEGERS,
    PATH_PROBE,
    PATHED,
    PSN_MASK,
    READ_REQUEST,
    WRITE_ONLY_IMM,
    Frame,
    pathed_size,
    wire_size,
)
from actors.wire.message import (
    COPY,
    CREDIT_UPDATE,
    OPERATIONS,
    PAUSE_FRAME,
    REPORT,
    speaks_of,
)

MESSAGE_INTEGERS: Final[i64] = 9
FRAME_BYTES: Final[i64] = 64
MESSAGE_RECORD_BYTES: Final[i64] = 72
TAIL_BYTES: Final[i64] = 24

MOST_PACKETS: Final[i64] = 1 << 20
"""More frames, or more messages, than that in one batch are refused."""
LARGEST_PAYLOAD_BYTES: Final[i64] = 4096
"""The largest MTU of the InfiniBand architecture."""

_INDEX_BITS: Final[i64] = 10
_INDEX_MASK: Final[i64] = 0x3FF
"""An address is a prefix and an index below it (`actors.fabric.model`)."""
_HEADER_BITS: Final[i64] = 0x1FFFFFFFFFFFFF
_LARGEST: Final[i64] = 0x3FFFFFFFFFFFFFFF
_OPERATIONS: Final[i64] = len(OPERATIONS)


class Batch:
    """What one partition sends another in one window: counts, the flat integers, and the bytes of frames and
    messages; `tails` is how many of these carry any. Of the bytes that hold the integers, `before` stand
    before them and `behind` follow: those of a body that was received are not copied out of it.
    """

    __slots__ = ("before", "behind", "blob", "frames", "integers", "messages", "tails")

    def __init__(
        self,
        frames: i64,
        messages: i64,
        tails: i64,
        integers: bytes,
        blob: bytes,
        before: i64 = 0,
        behind: i64 = 0,
    ) -> None:
        self.frames: i64 = frames
        self.messages: i64 = messages
        self.tails: i64 = tails
        self.integers: bytes = integers
        self.blob: bytes = blob
        self.before: i64 = before
        self.behind: i64 = behind


def encode_batch(frames: vec[Frame], messages: vec[Message], writer: BytesWriter | None = None) -> Batch:
    """The batch of these frames and messages; they are not changed.

    Who has many batches to write keeps a writer for the integers: it has room for as many as it had before.
    """
    if writer is None:
        writer = BytesWriter()
    else:
        writer.truncate(0)
    tails = BytesWriter()
    blob = BytesWriter()
    tailed: i64 = 0
    count: i64 = len(frames)
    at: i64 = 0
    while at < count:
        fetch_frame(frames, at + AHEAD)
        frame = frames[at]
        write_frame(writer, frame)
        if frame.carried is not None:
            _write_tail(tails, blob, at, frame.tail, frame.payload)
            tailed += 1
        at += 1
    place: i64 = len(frames)
    for message in messages:
        write_i64_le(writer, message.time_ps)
        write_i64_le(writer, message.key)
        write_i64_le(writer, message.op)
        write_i64_le(writer, message.a)
        write_i64_le(writer, message.b)
        write_i64_le(writer, message.c)
        write_i64_le(writer, message.d)
        write_i64_le(writer, message.e)
        write_i64_le(writer, message.f)
        carried = message.data
        if carried is not None:
            _write_tail(tails, blob, place, None, carried)
            tailed += 1
        place += 1
    if tailed > 0:
        writer.write(tails.getvalue())
    return Batch(len(frames), len(messages), tailed, writer.getvalue(), blob.getvalue())


def write_frame(writer: BytesWriter, frame: Frame) -> None:
    """Write a frame's `FRAME_INTEGERS`: all that travels with it but tail and data."""
    write_i64_le(writer, frame.time_ps)
    write_i64_le(writer, frame.key)
    write_i64_le(writer, frame.sent_ps)
    header: i64 = i64(frame.opcode) | (i64(frame.priority) << 8) | (i64(frame.ecn) << 11)
    header |= (i64(frame.ack_request) << 13) | (i64(frame.syndrome) << 14) | (i64(frame.udp_source) << 22)
    header |= (i64(frame.ttl) << 38) | (i64(frame.dscp) << 46) | (i64(frame.corrupt) << 52)
    write_i64_le(writer, header)
    write_i64_le(writer, i64(frame.src) | (i64(frame.dst) << 24) | (i64(frame.wire_bytes) << 48))
    numbers: i64 = i64(frame.qpn) | (i64(frame.psn) << 24) | (i64(frame.payload_bytes) << 48)
    write_i64_le(writer, numbers)
    write_i64_le(writer, frame.immediate)
    write_i64_le(writer, frame.message_bytes)


def read_frame(frame: Frame, integers: bytes, at: i64) -> None:
    """Have a frame be the one whose integers stand at that byte; nothing is checked."""
    header: i64 = read_i64_le(integers, at + 24)
    addresses: i64 = read_i64_le(integers, at + 32)
    numbers: i64 = read_i64_le(integers, at + 40)
    frame.become(
        u8(header & 0xFF),
        u8((header >> 8) & 7),
        i32(addresses & PSN_MASK),
        i32((addresses >> 24) & PSN_MASK),
        i32((header >> 22) & 0xFFFF),
        i32(numbers & PSN_MASK),
        i32((numbers >> 24) & PSN_MASK),
        i32(numbers >> 48),
        addresses >> 48,
    )
    frame.time_ps = read_i64_le(integers, at)
    frame.key = read_i64_le(integers, at + 8)
    frame.sent_ps = read_i64_le(integers, at + 16)
    frame.ecn = u8((header >> 11) & 3)
    frame.ack_request = u8((header >> 13) & 1)
    frame.syndrome = u8((header >> 14) & 0xFF)
    frame.ttl = u8((header >> 38) & 0xFF)
    frame.dscp = u8((header >> 46) & 0x3F)
    frame.corrupt = u8((header >> 52) & 1)
    immediate: i64 = read_i64_le(integers, at + 48)
    message_bytes: i64 = read_i64_le(integers, at + 56)
    if immediate != 0:
        frame.immediate = immediate
    if message_bytes != 0:
        frame.message_bytes = message_bytes


def _write_tail(
    tails: BytesWriter, blob: BytesWriter, place: i64, tail: bytes | None, data: bytes | None
) -> None:
    write_i64_le(tails, place)
    if tail is None:
        write_i64_le(tails, -1)
    else:
        write_i64_le(tails, len(tail))
        blob.write(tail)
    if data is None:
        write_i64_le(tails, -1)
    else:
        write_i64_le(tails, len(data))
        blob.write(data)


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
        self._loaded: bool = loaded
        self._used: vec[Frame] = vec[Frame]()
        self._used_again: i64 = 0

    def use_again(self, frames: vec[Frame]) -> None:
        """These frames have left for another partition: those that come may be made of them."""
        self._used = frames
        self._used_again = 0

    def _blank(self) -> Frame:
        """A frame that is to `become` another."""
        at: i64 = self._used_again
        if at == len(self._used):
            return Frame(0, 0, 0, 0, 0, 0, 0, 0, 0)
        fetch_frame(self._used, at + AHEAD)
        self._used_again = at + 1
        return self._used[at]

    def check(self, batch: Batch, since_ps: i64) -> None:
        """Hold a batch's size against its counts, and its frames against what they may be. Raises
        ProtocolError.
        """
        frames: i64 = batch.frames
        messages: i64 = batch.messages
        tails: i64 = batch.tails
        integers = batch.integers
        given: i64 = len(integers) - batch.before - batch.behind
        if not (0 <= frames <= MOST_PACKETS and 0 <= messages <= MOST_PACKETS):
            raise ProtocolError(f"a batch of {frames} frames and {messages} messages")
        if tails < 0 or tails > frames + messages:
            raise ProtocolError(f"a batch of {frames} frames, {messages} messages and {tails} tails")
        size: i64 = frames * FRAME_BYTES + messages * MESSAGE_RECORD_BYTES + tails * TAIL_BYTES
        if given != size:
            raise ProtocolError(f"a batch of {given} bytes of integers whose counts ask for {size}")
        at: i64 = batch.before
        end: i64 = at + frames * FRAME_BYTES
        while at < end:
            self._check_frame(integers, at, since_ps)
            at += FRAME_BYTES

    def frame(self, integers: bytes, at: i64) -> Frame:
        """The frame whose integers stand at that byte of a batch that was checked, without tail and data."""
        frame = self._blank()
        read_frame(frame, integers, at)
        return frame

    def messages(self, batch: Batch, since_ps: i64) -> vec[Message]:
        """The messages in a batch that was checked, without data. Raises ProtocolError."""
        messages = vec[Message]()
        at: i64 = batch.before + batch.frames * FRAME_BYTES
        count: i64 = 0
        while count < batch.messages:
            messages = append(messages, self._message(batch.integers, at, since_ps))
            at += MESSAGE_RECORD_BYTES
            count += 1
        return messages

    def decode(self, batch: Batch, since_ps: i64) -> vec[Event]:
        """The events in a batch, in its order; none may be before `since_ps`. Raises ProtocolError."""
        self.check(batch, since_ps)
        events = vec[Event]()
        at: i64 = batch.before
        end: i64 = at + batch.frames * FRAME_BYTES
        while at < end:
            events = append(events, self.frame(batch.integers, at))
            at += FRAME_BYTES
        for message in self.messages(batch, since_ps):
            events = append(events, message)
        self._attach_tails(events, batch, end + batch.messages * MESSAGE_RECORD_BYTES)
        return events

    def _check_frame(self, integers: bytes, at: i64, since_ps: i64) -> None:
        time: i64 = read_i64_le(integers, at)
        key: i64 = read_i64_le(integers, at + 8)
        self._check_target(time, key, since_ps)
        if (key >> KIND_SHIFT) & KIND_MASK != ARRIVAL or (key & SUBJECT_MASK) != 0:
            raise ProtocolError(f"a frame is no arrival: {describe_key(key)}")
        sent_ps: i64 = read_i64_le(integers, at + 16)
        # `Frame` packs its fields so: the highest 16 bits of addresses and numbers are the two sizes.
        header: i64 = read_i64_le(integers, at + 24)
        addresses: i64 = read_i64_le(integers, at + 32)
        numbers: i64 = read_i64_le(integers, at + 40)
        immediate: i64 = read_i64_le(integers, at + 48)
        message_bytes: i64 = read_i64_le(integers, at + 56)
        if (header & ~_HEADER_BITS) != 0 or addresses < 0 or numbers < 0:
            raise ProtocolError(
                f"a frame's headers {header}, {addresses} or {numbers} have bits that none has"
            )
        if (immediate | message_bytes) & ~0xFFFFFFFF != 0 or sent_ps < 0 or sent_ps >= time:
            raise ProtocolError(
                f"a frame's immediate {immediate}, message_bytes {message_bytes} or sent_ps {sent_ps} "
                f"(arrival {time}) is out of range"
            )
        opcode: i64 = header & 0xFF
        payload_bytes: i64 = numbers >> 48
        wire_bytes: i64 = addresses >> 48
        if opcode > ACKNOWLEDGE and opcode != CNP:
            self._check_pathed(opcode, payload_bytes, wire_bytes)
            self._check_addresses(addresses)
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
        self._check_addresses(addresses)

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

    def _check_addresses(self, addresses: i64) -> None:
        if len(self._prefix_nics) > 0:
            self._check_address(addresses & PSN_MASK)
            self._check_address((addresses >> 24) & PSN_MASK)

    def _message(self, integers: bytes, at: i64, since_ps: i64) -> Message:
        time: i64 = read_i64_le(integers, at)
        key: i64 = read_i64_le(integers, at + 8)
        self._check_target(time, key, since_ps)
        op: i64 = read_i64_le(integers, at + 16)
        a: i64 = read_i64_le(integers, at + 24)
        b: i64 = read_i64_le(integers, at + 32)
        c: i64 = read_i64_le(integers, at + 40)
        d: i64 = read_i64_le(integers, at + 48)
        e: i64 = read_i64_le(integers, at + 56)
        f: i64 = read_i64_le(integers, at + 64)
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

    def _check_address(self, address: i64) -> None:
        prefix: i64 = address >> _INDEX_BITS
        if prefix >= len(self._prefix_nics) or address & _INDEX_MASK >= self._prefix_nics[prefix]:
            raise ProtocolError(f"a frame's address {address} is of no NIC in this fabric")

    def _attach_tails(self, events: vec[Event], batch: Batch, at: i64) -> None:
        count: i64 = 0
        offset: i64 = 0
        before: i64 = -1
        packets: i64 = len(events)
        while count < batch.tails:
            place: i64 = read_i64_le(batch.integers, at)
            tail_bytes: i64 = read_i64_le(batch.integers, at + 8)
            data_bytes: i64 = read_i64_le(batch.integers, at + 16)
            # Ascending places: each packet has one tail at most, and a batch cannot be read twice over.
            if place <= before or place >= packets:
                raise ProtocolError(f"a tail belongs to packet {place} of {packets}, after packet {before}")
            left: i64 = len(batch.blob) - offset
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
                    event.tail = batch.blob[offset : offset + tail_bytes]
                    offset += tail_bytes
                if data_bytes >= 0:
                    event.payload = batch.blob[offset : offset + data_bytes]
                    offset += data_bytes
            else:
                message = cast(Message, event)
                if tail_bytes >= 0:
                    raise ProtocolError(
                        f"a message of operation {message.op} has a tail of {tail_bytes} bytes"
                    )
                message.data = batch.blob[offset : offset + data_bytes]
                offset += data_bytes
            before = place
            at += TAIL_BYTES
            count += 1
        if offset != len(batch.blob):
            raise ProtocolError(f"a blob of {len(batch.blob)} bytes of which {offset} are used")

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


assert FRAME_BYTES == 8 * FRAME_INTEGERS and MESSAGE_RECORD_BYTES == 8 * MESSAGE_INTEGERS
