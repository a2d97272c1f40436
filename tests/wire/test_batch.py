"""A batch comes out as it went in, and whatever is not a batch is refused by name."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kernel.event import ARRIVAL, JOB, MESSAGE, PAUSE, Event, Message, pack_key
from actors.wire.batch import COLUMNS, Batch, BatchReader
from actors.wire.frame import (
    ACKNOWLEDGE,
    CNP,
    READ_REQUEST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    Frame,
    wire_size,
)
from actors.wire.message import BEGIN, COMPLETION, COPIED, COPY, PAUSE_FRAME, POST
from emu.base.errors import ProtocolError
from tests.wire.batches import batch_of, changed, fields_of

OPCODES = (*range(0x12), 0x81)
"""Of the reliable connection (volume 1, table 38), and the CNP."""
MANAGEMENT_PORT = 2047
SINCE_PS = 1_000_000
FRAME_FIELDS = (
    *("time_ps", "key", "opcode", "priority", "src", "dst", "udp_source", "qpn", "psn", "payload_bytes"),
    *("wire_bytes", "ecn", "ack_request", "syndrome", "immediate", "message_bytes", "sent_ps"),
    *("ttl", "dscp", "corrupt"),
)
MESSAGE_FIELDS = ("time_ps", "key", "op", "a", "b", "c", "d", "e", "f")


def reader(*, loaded: bool = False) -> BatchReader:
    """Devices 2 (4 ports) and 5 (no port but management) of 7 are hosted."""
    return BatchReader([-1, -1, 4, -1, -1, 0, -1], MANAGEMENT_PORT, 4096, loaded=loaded)


def frame(**fields: int) -> Frame:
    """A frame for port 3 of device 2, with some fields changed."""
    made = Frame(WRITE_MIDDLE, 3, 17, 1025, 50_000, 77, 123_456, 4096, wire_size(WRITE_MIDDLE, 4096))
    made.time_ps, made.key, made.sent_ps = 2_000_000, pack_key(2, ARRIVAL, 3, 0), 900_000
    made.ecn, made.ack_request = 2, 1
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def message(**fields: int) -> Message:
    """A message for port 1 of device 2, with some fields changed."""
    made = Message(COMPLETION, 1, 2, 3, 4, 5, 6)
    made.time_ps, made.key = 2_000_000, pack_key(2, MESSAGE, 1, 9)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def values_of(event: Event) -> tuple[int | bytes | None, ...]:
    if isinstance(event, Frame):
        return (*(getattr(event, name) for name in FRAME_FIELDS), event.tail, event.payload)
    assert isinstance(event, Message), event
    return (*(getattr(event, name) for name in MESSAGE_FIELDS), event.data)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    opcode = draw(st.sampled_from(OPCODES))
    payload = 0 if opcode in (READ_REQUEST, ACKNOWLEDGE, CNP) else draw(st.integers(0, 4096))
    time_ps = draw(st.integers(SINCE_PS, 2**61))
    made = frame(
        opcode=opcode,
        priority=draw(st.integers(0, 7)),
        src=draw(st.integers(0, 2**24 - 1)),
        dst=draw(st.integers(0, 2**24 - 1)),
        udp_source=draw(st.integers(0, 2**16 - 1)),
        qpn=draw(st.integers(0, 2**24 - 1)),
        psn=draw(st.integers(0, 2**24 - 1)),
        payload_bytes=payload,
        wire_bytes=wire_size(opcode, payload),
        ecn=draw(st.integers(0, 3)),
        ttl=draw(st.integers(0, 255)),
        dscp=draw(st.integers(0, 63)),
        corrupt=draw(st.integers(0, 1)),
        ack_request=draw(st.integers(0, 1)),
        syndrome=draw(st.integers(0, 255)),
        immediate=draw(st.integers(0, 2**32 - 1)),
        message_bytes=draw(st.integers(0, 2**32 - 1)),
        time_ps=time_ps,
        key=pack_key(2, ARRIVAL, draw(st.integers(0, 3)), 0),
        sent_ps=draw(st.integers(0, time_ps - 1)),
    )
    made.tail = draw(st.none() | st.binary(max_size=40))
    if opcode < READ_REQUEST and draw(st.booleans()):
        made.payload = bytes(payload)
    return made


@st.composite
def messages(draw: st.DrawFn) -> Message:
    time_ps = draw(st.integers(SINCE_PS, 2**61))
    if draw(st.booleans()):
        stop = draw(st.integers(0, 255))
        made = Message(
            PAUSE_FRAME, stop, draw(st.integers(0, 255)) & ~stop, draw(st.integers(0, 65535)), 0, 0, 0
        )
        made.f = draw(st.integers(0, time_ps - 1))
        made.time_ps, made.key = time_ps, pack_key(2, PAUSE, draw(st.integers(0, 3)), 0)
        return made
    values = draw(st.lists(st.integers(0, 2**61), min_size=6, max_size=6))
    a, b, c, d, e, f = values
    made = Message(draw(st.integers(1, 6)), a, b, c, d, e, f)
    if made.op in (POST, COMPLETION, COPIED) and draw(st.booleans()):
        made.b = made.c = draw(st.integers(0, 100))
        made.data = draw(st.binary(min_size=int(made.b), max_size=int(made.b)))
    device, port = draw(st.sampled_from([(2, 0), (2, 3), (2, MANAGEMENT_PORT), (5, MANAGEMENT_PORT)]))
    made.time_ps, made.key = time_ps, pack_key(device, MESSAGE, port, draw(st.integers(0, 2**28 - 1)))
    return made


@given(st.lists(frames(), max_size=6), st.lists(messages(), max_size=6))
def test_batch_comes_out_as_it_went_in(sent: list[Frame], reported: list[Message]) -> None:
    decoded = reader(loaded=True).decode(batch_of(*sent, *reported), SINCE_PS)
    assert [values_of(event) for event in decoded] == [values_of(event) for event in [*sent, *reported]]
    assert [type(event) for event in decoded] == [Frame] * len(sent) + [Message] * len(reported)


def test_frame_is_an_integer_in_each_of_eight_columns() -> None:
    batch = batch_of(frame(syndrome=0x60, immediate=2**32 - 5, message_bytes=6))
    expected = {
        "time_ps": 2_000_000,
        "key": pack_key(2, ARRIVAL, 3, 0),
        "sent_ps": 900_000,
        "numbers": 77 + 123_456 * 2**32,
        "headers": 1025 + 7 * 2**32 + 64 * 2**40 + 3 * 2**48 + 2 * 2**56,
        "source": 17 + 50_000 * 2**32,
        "sizes": 1
        + 0x60 * 2**8
        + 24 * 2**16
        + 4178 * 2**32
        + 4096 * 2**48,  # the class selector of priority 3
        "reth": 2**32 - 5 + 6 * 2**32,
    }
    fields = fields_of(batch)
    assert {name: struct.unpack("<q", value)[0] for name, value in fields.items() if value} == expected
    assert [*fields] == [*COLUMNS, "blob"]
    assert (batch.frames, batch.messages, batch.tails) == (1, 0, 0)


FRAME_FAULTS = {
    "before the window": {"time_ps": SINCE_PS - 1},
    "after the end of time": {"time_ps": 2**62 - 1},
    "negative key": {"key": -1},
    "device beyond the last": {"key": pack_key(7, ARRIVAL, 0, 0)},
    "device that lives elsewhere": {"key": pack_key(3, ARRIVAL, 0, 0)},
    "port beyond the last": {"key": pack_key(2, ARRIVAL, 4, 0)},
    "frame to the management port": {"key": pack_key(2, ARRIVAL, MANAGEMENT_PORT, 0)},
    "frame that is a timer": {"key": pack_key(2, JOB, 0, 0)},
    "frame that is a message": {"key": pack_key(2, MESSAGE, 0, 0)},
    "arrival with a subject": {"key": pack_key(2, ARRIVAL, 0, 1)},
    "unknown opcode": {"opcode": 0x12},
    "payload beyond the MTU": {"payload_bytes": 4097, "wire_bytes": wire_size(WRITE_MIDDLE, 4097)},
    "size that does not fit the payload": {"wire_bytes": 4177},
    "size that does not fit the opcode": {"opcode": int(WRITE_ONLY)},
    "sent when it arrives": {"sent_ps": 2_000_000},
    "sent before time began": {"sent_ps": -1},
}


@pytest.mark.parametrize("fields", FRAME_FAULTS.values(), ids=FRAME_FAULTS.keys())
def test_frame_with_a_field_out_of_range_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ProtocolError):
        reader().decode(batch_of(frame(), frame(**fields)), SINCE_PS)


def bits_of(*widths: int) -> int:
    """Of fields so far apart and so wide by turns, from the lowest bit on: which bits of 64 none has."""
    used, at = 0, 0
    for gap, width in zip(widths[::2], widths[1::2], strict=True):
        at += gap
        used |= ((1 << width) - 1) << at
        at += width
    return ~used & (2**64 - 1)


FREE_BITS = {
    "numbers": bits_of(0, 24, 8, 24),
    "headers": bits_of(0, 24, 8, 8, 0, 8, 0, 3, 5, 2),
    "source": bits_of(0, 24, 8, 16),
    "sizes": bits_of(0, 1, 7, 8, 0, 6, 2, 1, 7, 15, 1, 15),
}


@pytest.mark.parametrize(
    ("column", "bit"),
    [(name, bit) for name, bits in FREE_BITS.items() for bit in range(64) if bits >> bit & 1],
)
def test_bits_of_a_frame_that_no_field_has_are_refused(column: str, bit: int) -> None:
    (value,) = struct.unpack("<Q", fields_of(batch_of(frame()))[column])
    wrong = struct.pack("<Q", value | 1 << bit)
    with pytest.raises(ProtocolError, match="bits that no field has"):
        reader().decode(changed(batch_of(frame()), column, lambda _: wrong), SINCE_PS)


def test_size_of_each_packet_is_checked_also_behind_another_of_its_opcode() -> None:
    good = reader()
    sizes = [(4096, 4178), (4096, 4178), (100, 182), (4096, 4178)]
    made = [frame(payload_bytes=payload, wire_bytes=wire) for payload, wire in sizes]
    assert len(good.decode(batch_of(*made), SINCE_PS)) == 4
    for payload, wire in ((4096, 4174), (100, 178), (4097, 4178), (0, 4178)):
        with pytest.raises(ProtocolError, match=r"on the wire|at most"):
            good.decode(batch_of(frame(payload_bytes=payload, wire_bytes=wire)), SINCE_PS)


PAUSE_KEY = pack_key(2, PAUSE, 1, 0)
MESSAGE_FAULTS = {
    "before the window": {"time_ps": SINCE_PS - 1},
    "device that lives elsewhere": {"key": pack_key(0, MESSAGE, 0, 0)},
    "port beyond the last": {"key": pack_key(2, MESSAGE, 4, 0)},
    "message that is an arrival": {"key": pack_key(2, ARRIVAL, 0, 0)},
    "message that is a timer": {"key": pack_key(2, JOB, 0, 0)},
    "unknown operation": {"op": 99},
    "negative operation": {"op": -1},
    "pause frame as a message": {"op": int(PAUSE_FRAME)},
    "message as a pause": {"key": PAUSE_KEY},
    "value beyond 62 bits": {"d": 2**62},
    "negative queue pair": {"a": -1},
    "negative size": {"op": 3, "b": -5},
    "pause with a subject": {"key": pack_key(2, PAUSE, 1, 1), "op": 0, "a": 8, "b": 0, "c": 1, "f": 0},
    "pause of class 8": {"key": PAUSE_KEY, "op": 0, "a": 256, "b": 0, "c": 1, "f": 0},
    "pause that stops and resumes": {"key": PAUSE_KEY, "op": 0, "a": 8, "b": 8, "c": 1, "f": 0},
    "pause with 17-bit quanta": {"key": PAUSE_KEY, "op": 0, "a": 8, "b": 0, "c": 65536, "f": 0},
    "pause sent when it arrives": {"key": PAUSE_KEY, "op": 0, "a": 8, "b": 0, "c": 1, "f": 2_000_000},
}


@pytest.mark.parametrize("fields", MESSAGE_FAULTS.values(), ids=MESSAGE_FAULTS.keys())
def test_message_with_a_field_out_of_range_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ProtocolError):
        reader().decode(batch_of(message(), message(**fields)), SINCE_PS)


def test_message_of_write_last_with_immediate_has_its_size() -> None:
    size = wire_size(WRITE_LAST_IMM, 1)
    assert size == 62 + 4 + 4 + 20
    reader().decode(batch_of(frame(opcode=int(WRITE_LAST_IMM), payload_bytes=1, wire_bytes=size)), SINCE_PS)


def tailed() -> Batch:
    one, two = frame(), frame()
    one.tail, two.tail = b"abc", b"defg"
    return batch_of(one, frame(), two)


COUNT_FAULTS = {
    "fewer frames than integers": {"frames": 2},
    "more frames than integers": {"frames": 4},
    "negative frames": {"frames": -1},
    "a million frames and more": {"frames": 2**20 + 1},
    "messages that are not there": {"messages": 1},
    "more tails than frames": {"tails": 4},
    "tails that are not there": {"tails": 3},
}


@pytest.mark.parametrize("fields", COUNT_FAULTS.values(), ids=COUNT_FAULTS.keys())
def test_batch_whose_counts_do_not_fit_is_refused(fields: dict[str, int]) -> None:
    batch = tailed()
    for name, value in fields.items():
        setattr(batch, name, value)
    with pytest.raises(ProtocolError):
        reader().decode(batch, SINCE_PS)


@pytest.mark.parametrize("change", [lambda it: it + b"h", lambda it: it[:-1]], ids=["longer", "shorter"])
@pytest.mark.parametrize("name", [*COLUMNS, "blob"])
def test_field_of_another_length_is_refused(name: str, change: Callable[[bytes], bytes]) -> None:
    one = frame()
    one.tail = b"abc"
    batch = batch_of(one, frame(), message())
    assert len(reader().decode(changed(batch, name, bytes), SINCE_PS)) == 3
    with pytest.raises(ProtocolError):
        reader().decode(changed(batch, name, change), SINCE_PS)


@pytest.mark.parametrize(
    ("places", "tails", "payloads"),
    [
        ((0, 0), (3, 4), (-1, -1)),
        ((2, 0), (3, 4), (-1, -1)),
        ((0, 3), (3, 4), (-1, -1)),
        ((-1, 2), (3, 4), (-1, -1)),
        ((0, 2), (-3, 4), (-1, -1)),
        ((0, 2), (3, -1), (-1, -1)),
        ((0, 2), (3, 4), (-2, -1)),
        ((0, 2), (3, 5), (-1, -1)),
    ],
)
def test_tails_belong_to_frames_in_order(
    places: tuple[int, int], tails: tuple[int, int], payloads: tuple[int, int]
) -> None:
    batch = tailed()
    for name, values in zip(COLUMNS[-3:], (places, tails, payloads), strict=True):
        packed = struct.pack("<2q", *values)
        batch = changed(batch, name, lambda _, packed=packed: packed)  # type: ignore[misc]
    with pytest.raises(ProtocolError):
        reader().decode(batch, SINCE_PS)


def mutated(batch: Batch, data: st.DataObject) -> None:
    """Change some bytes of what a batch holds."""
    spoilt = bytearray(batch.data)
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    batch.data = bytes(spoilt)


@given(st.data())
def test_no_mutation_gets_anything_but_the_protocol_error(data: st.DataObject) -> None:
    batch = tailed() if data.draw(st.booleans()) else batch_of(frame(), message())
    mutated(batch, data)
    try:
        events = reader().decode(batch, SINCE_PS)
    except ProtocolError:
        return
    assert all(event.time_ps >= SINCE_PS for event in events)


def posted(op: int, size_bytes: int, data: bytes) -> Message:
    made = message(op=op, b=size_bytes, c=size_bytes)
    made.data = data
    return made


def loaded(opcode: int, payload_bytes: int, data: bytes) -> Frame:
    made = frame(opcode=opcode, payload_bytes=payload_bytes, wire_bytes=wire_size(opcode, payload_bytes))
    made.payload = data
    return made


DATA_FAULTS = {
    "a frame with fewer bytes than its payload": loaded(int(WRITE_LAST_IMM), 4, b"abc"),
    "a frame with more": loaded(int(WRITE_LAST_IMM), 2, b"abc"),
    "an acknowledgement with bytes": loaded(int(ACKNOWLEDGE), 0, b""),
    "a post with fewer than it speaks of": posted(int(POST), 4, b"abc"),
    "a completion with more": posted(int(COMPLETION), 2, b"abc"),
    "a copy that ended with more": posted(int(COPIED), 2, b"abc"),
    "an order that is longer than any": posted(int(COPY), 0, bytes(2**20 + 1)),
    "a message that never carries any": posted(int(BEGIN), 3, b"abc"),
}


@pytest.mark.parametrize("event", DATA_FAULTS.values(), ids=DATA_FAULTS.keys())
def test_packets_carry_as_many_bytes_as_they_speak_of(event: Frame | Message) -> None:
    with pytest.raises(ProtocolError, match="carries"):
        reader(loaded=True).decode(batch_of(event), SINCE_PS)


def test_bytes_are_refused_where_packets_carry_sizes() -> None:
    for event in (loaded(int(WRITE_LAST_IMM), 3, b"abc"), posted(int(POST), 3, b"abc")):
        assert reader(loaded=True).decode(batch_of(event), SINCE_PS)[0].time_ps >= SINCE_PS
        with pytest.raises(ProtocolError, match="sizes only"):
            reader().decode(batch_of(event), SINCE_PS)


@given(st.data())
def test_no_mutation_of_loaded_packets_gets_anything_but_the_protocol_error(data: st.DataObject) -> None:
    one = loaded(int(WRITE_LAST_IMM), 3, b"abc")
    one.tail = b"hops"
    batch = batch_of(one, frame(), posted(int(COMPLETION), 5, b"bytes"))
    mutated(batch, data)
    try:
        events = reader(loaded=True).decode(batch, SINCE_PS)
    except ProtocolError:
        return
    assert len(events) == 3
