"""What is not one of our frames is refused with one named error, whatever it is."""

import struct

import msgpack  # type: ignore[import-untyped]  # it ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mypy_extensions import i64

from actors.kernel.vectors import vec
from actors.wire.batch import COLUMNS, Batch
from actors.wire.codec import (
    decode,
    decode_batch_body,
    decode_quiet,
    encode,
    encode_batch_body,
    encode_quiet,
    pack_integers,
    unpack_integers,
)
from emu.base.errors import ProtocolError

GATHER = {"head": b"\x01\x02"}
BATCH = (b"12345678", *[b"column"] * 20, b"blob")


def body(**changes: object) -> bytes:
    """A gather frame with some entries changed; None takes one away."""
    record = {"version": 2, "kind": "gather", **GATHER, **changes}
    packed: bytes = msgpack.packb({name: value for name, value in record.items() if value is not None})
    return packed


def test_frame_comes_out_as_it_went_in() -> None:
    assert decode(encode("batch", *BATCH)) == ("batch", [*BATCH])
    assert decode(encode("gather", b"\x01\x02")) == ("gather", [b"\x01\x02"])
    assert decode(encode("leave", "ünd so")) == ("leave", ["ünd so"])
    assert encode("gather", b"\x01\x02") == body()


@pytest.mark.parametrize("head", [4, 31, 32])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 8191, 8192, 25_000])
@pytest.mark.parametrize("blob", [b"", b"blob", b"b" * 70_000])
def test_body_of_a_batch_is_what_msgpack_writes(head: int, count: int, blob: bytes) -> None:
    values = struct.pack(f"<{head}q", 7, count, 0, int(blob != b""), *range(head - 4))
    column = struct.pack(f"<{count}q", *range(count))
    one = struct.pack("<q", 0) if blob else b""
    fields = [*[column] * 8, *[b""] * 9, *[one] * 3, blob]
    whole: bytes = msgpack.packb(
        {"version": 2, "kind": "batch", "head": values, **dict(zip((*COLUMNS, "blob"), fields, strict=True))}
    )
    assert whole == encode("batch", values, *fields)
    if blob and count == 0:  # of whom?
        with pytest.raises(ProtocolError):
            decode_batch_body(whole)
        return
    received = decode_batch_body(whole)
    assert received is not None
    batch = received.batch
    assert (batch.frames, batch.messages, batch.tails) == (count, 0, int(blob != b""))
    assert encode_batch_body(values, Batch(count, 0, batch.tails, whole[batch.begin :])) == whole
    for place in range(8):
        begin = batch.column(place)
        assert whole[begin : begin + batch.length(place)] == column
    for broken in (whole[:-1], whole + b"\0", whole[: whole.index(b"time_ps")]):
        with pytest.raises(ProtocolError):
            decode_batch_body(broken)
    for other in (whole[1:], whole[:20], b"", encode("gather", b"")):
        assert decode_batch_body(other) is None


def wide(value: bytes) -> bytes:
    """Bytes with a length of four bytes, whatever it is, as some other msgpack may write them."""
    return b"\xc6" + len(value).to_bytes(4, "big") + value


def test_batch_of_another_msgpack_is_taken_with_lengths_in_more_bytes() -> None:
    head = struct.pack("<5q", 7, 2, 0, 0, 9)
    fields = [*[bytes(16)] * 8, *[b""] * 13]
    parts = [msgpack.packb("version"), msgpack.packb(2), msgpack.packb("kind"), msgpack.packb("batch")]
    parts += [msgpack.packb("head"), msgpack.packb(head)]
    for name, value in zip((*COLUMNS, "blob"), fields, strict=True):
        parts += [msgpack.packb(name), wide(value)]
    body = msgpack.Packer().pack_map_header(24) + b"".join(parts)
    received = decode_batch_body(body)
    assert received is not None
    assert (list(received.head), received.batch.frames) == ([7, 2, 0, 0, 9], 2)


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_what_looks_like_the_body_of_a_batch_is_what_msgpack_finds_in_it(place: int, byte: int) -> None:
    head = struct.pack("<4q", 7, 1, 0, 0)
    spoilt = bytearray(encode("batch", head, *[b"12345678"] * 8, *[b""] * 13))
    spoilt[place % len(spoilt)] = byte
    body = bytes(spoilt)
    try:
        received = decode_batch_body(body)
    except ProtocolError:
        return
    if received is not None:
        batch = received.batch
        columns = [body[batch.column(at) : batch.column(at) + batch.length(at)] for at in range(20)]
        assert decode(body) == ("batch", [pack_integers((), received.head), *columns, b""])


FAULTS = {
    "nothing": b"",
    "no msgpack": b"\xc1",
    "truncated": body()[:-1],
    "trailing bytes": body() + b"\x00",
    "no map": msgpack.packb([1, 2]),
    "an integer": b"\x05",
    "number as key": msgpack.packb({1: 2}),
    "no version": body(version=None),
    "another version": body(version=1),
    "version true": body(version=True),
    "no kind": body(kind=None),
    "unknown kind": body(kind="pickle"),
    "kind that is a list": body(kind=["gather"]),
    "missing field": body(head=None),
    "surplus field": body(more=1),
    "text for bytes": body(head="12"),
    "number for bytes": body(head=7),
    "fields in another order": msgpack.packb({"kind": "gather", "version": 2, "head": b""}),
    "bytes that are no text": b"\x83\xa7version\x01\xa4kind\xa5leave\xa6reason\xa1\xff",
    "array that claims to be huge": b"\xdd\xff\xff\xff\xff",
    "map that claims to be huge": b"\xdf\xff\xff\xff\xff",
    "deeply nested": b"\x91" * 5000,
    "extension type": msgpack.packb(msgpack.ExtType(4, b"x")),
    "timestamp as a field": body(head=msgpack.Timestamp(1)),
}


@pytest.mark.parametrize("data", FAULTS.values(), ids=FAULTS.keys())
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


@given(st.binary(max_size=200))
def test_no_bytes_get_anything_but_the_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5))
def test_no_mutation_gets_anything_but_the_protocol_error(changes: list[tuple[int, int]]) -> None:
    data = bytearray(encode("batch", *BATCH))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        kind, fields = decode(bytes(data))
    except ProtocolError:
        return
    assert kind in {"batch", "quiet", "gather", "spread", "leave"}
    assert len(fields) == (22 if kind == "batch" else 1)


def test_error_is_one_short_line_whatever_was_sent() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(body(kind="x" * 10_000 + "\n"))
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_packed_integers_come_out_as_they_went_in() -> None:
    values = [0, 1, -1, 2**62, -(2**63)]
    assert list(unpack_integers(pack_integers(values[:2], vec[i64](values[2:])))) == values
    assert list(unpack_integers(b"")) == []
    for wrong in (bytes(7), bytes(9), bytes(8 * 2**16 + 8)):
        with pytest.raises(ProtocolError):
            unpack_integers(wrong)


@pytest.mark.parametrize("count", [0, 1, 4, 10, 27, 28, 512])
def test_batch_without_packets_is_the_same_msgpack_as_any_other(count: int) -> None:
    head = [7, *[2**62 - at for at in range(count)]]
    packed = struct.pack(f"<{len(head)}q", *head)
    record = {"version": 2, "kind": "quiet", "head": packed}
    body = encode_quiet(7, vec[i64](head[1:]))
    assert body == encode("quiet", packed) == msgpack.packb(record)
    assert decode(body) == ("quiet", [packed])
    assert list(decode_quiet(body)) in (head, [])


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3), st.integers(-3, 3))
def test_what_is_read_without_msgpack_is_what_msgpack_would_read(
    changes: list[tuple[int, int]], longer: int
) -> None:
    data = bytearray(encode_quiet(7, vec[i64]([1, 2, 3, 4])))
    for at, value in changes:
        data[at % len(data)] = value
    body = bytes(data[: len(data) + min(longer, 0)]) + bytes(max(longer, 0))
    head = list(decode_quiet(body))
    assert head or changes or longer
    if head:
        packed = struct.pack(f"<{len(head)}q", *head)
        assert decode(body) == ("quiet", [packed])
