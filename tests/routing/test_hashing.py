"""Do the hashes agree with their sources, and polarise exactly where a linear hash must?"""

from __future__ import annotations

import binascii
import zlib
from itertools import product

import pytest
from mypy_extensions import i64

from actors.kernel.mixing import Stream
from actors.kernel.vectors import vec
from actors.switch.routing.hashing import (
    CRC16,
    CRC32,
    E_ECMP,
    ECMP,
    FIELDS,
    MIX,
    RSS_KEY,
    TOEPLITZ,
    XOR_FOLD,
    FieldHash,
    choose,
    flow_hash,
)
from actors.wire.frame import WRITE_MIDDLE, Frame

KEYS = [b"", b"\x00", b"123456789", bytes(range(21)), b"\xff" * 20]
FIVE_TUPLE = [0, 1, 2, 3, 4]


def hash_of(function: int, key: bytes, seed: int = 0, polynomial: int = 0) -> int:
    return FieldHash(function, FIVE_TUPLE, polynomial, 0, seed).of_bytes(vec[i64](list(key)))


def reversed_bits(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def frames(count: int, seed: int = 1) -> list[Frame]:
    stream = Stream(seed, 0, 99)
    return [
        Frame(
            WRITE_MIDDLE, 3, int(stream.below(1 << 14)), int(stream.below(1 << 14)),
            49152 + int(stream.below(1 << 14)), int(stream.below(1 << 24)), 0, 64, 200,
        )
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("seed", [0, 1, 0xFFFF])
def test_crc16_is_that_of_the_library(key: bytes, seed: int) -> None:
    assert hash_of(CRC16, key, seed) == binascii.crc_hqx(key, seed)


@pytest.mark.parametrize("key", KEYS)
def test_crc32_is_that_of_the_library_in_the_other_bit_order(key: bytes) -> None:
    mirrored = bytes(reversed_bits(byte, 8) for byte in key)
    expected = reversed_bits(zlib.crc32(mirrored), 32) ^ 0xFFFFFFFF
    assert hash_of(CRC32, key, 0xFFFFFFFF) == expected


def test_toeplitz_gives_the_published_values() -> None:
    # Microsoft's verification suite: source and destination address, source and destination port.
    key = bytes([66, 9, 149, 187, 161, 142, 100, 80]) + (2794).to_bytes(2, "big") + (1766).to_bytes(2, "big")
    assert hash_of(TOEPLITZ, key) == 0x51CCC178
    assert len(RSS_KEY) == 40


def test_xor_fold_is_the_sum_of_the_words() -> None:
    assert hash_of(XOR_FOLD, b"\x12\x34\x00\xff\x80", 0x0001) == 0x1234 ^ 0x00FF ^ 0x8000 ^ 1


def test_mix_over_the_usual_fields_is_the_one_written_out() -> None:
    for frame in frames(50):
        for policy, fields in ((ECMP, FIVE_TUPLE), (E_ECMP, [*FIVE_TUPLE, FIELDS.index("qpn")])):
            one = FieldHash(MIX, fields, 0, 0, 77)
            assert one.of(frame) == flow_hash(frame, policy, 77)
            assert one.member(frame, 7) == choose(flow_hash(frame, policy, 77), 7)


def test_the_key_has_two_bytes_of_the_port_of_entry_and_one_of_the_dscp() -> None:
    (frame,) = frames(1)
    frame.whence, frame.dscp = (300 << 3) | 5, 26
    fields = [FIELDS.index(name) for name in ("ingress_port", "dscp")]
    for function in (CRC16, CRC32, XOR_FOLD, TOEPLITZ):
        one = FieldHash(function, fields, 0, 0, 9)
        assert one.of(frame) == one.of_bytes(vec[i64]([300 >> 8, 300 & 0xFF, 26]))


@pytest.mark.parametrize("name", ["ingress_port", "dscp"])
def test_mix_tells_ports_of_entry_and_dscps_apart(name: str) -> None:
    one = FieldHash(MIX, [FIELDS.index(name)], 0, 0, 9)
    (frame,) = frames(1)
    found = []
    for value in range(60):
        frame.whence = value << 3 if name == "ingress_port" else 0
        frame.dscp = value if name == "dscp" else 0
        found.append(one.of(frame))
    assert len(dict.fromkeys(found)) == 60


@pytest.mark.parametrize("function", [CRC16, CRC32, XOR_FOLD, TOEPLITZ])
def test_a_seed_of_a_linear_hash_adds_a_constant(function: int) -> None:
    one, other = (FieldHash(function, FIVE_TUPLE, 0, 0, seed) for seed in (5, 99_999))
    assert len({one.of(frame) ^ other.of(frame) for frame in frames(200)}) == 1


def paths_used(lower: FieldHash, upper: FieldHash, width: int, flows: int) -> int:
    """How many of width x width paths are used by flows that choose twice among `width`."""
    return len({(lower.member(frame, width), upper.member(frame, width)) for frame in frames(flows)})


@pytest.mark.parametrize("function", [CRC16, CRC32, XOR_FOLD, TOEPLITZ])
@pytest.mark.parametrize("seeds", [(0, 0), (1, 2), (12_345, 54_321)])
def test_two_tiers_of_one_linear_hash_use_one_path_in_eight_whatever_their_seeds(
    function: int, seeds: tuple[int, int]
) -> None:
    lower, upper = (FieldHash(function, FIVE_TUPLE, 0, 0, seed) for seed in seeds)
    assert paths_used(lower, upper, 8, 2000) == 8


@pytest.mark.parametrize("function", [CRC16, CRC32, TOEPLITZ])
def test_another_bit_offset_above_cures_it(function: int) -> None:
    lower, upper = (FieldHash(function, FIVE_TUPLE, 0, offset, 7) for offset in (0, 8))
    assert paths_used(lower, upper, 8, 2000) == 64


@pytest.mark.parametrize(("function", "polynomial"), [(CRC16, 0x8005), (CRC32, 0x1EDC6F41)])
def test_another_polynomial_above_cures_it(function: int, polynomial: int) -> None:
    lower, upper = (FieldHash(function, FIVE_TUPLE, given, 0, 7) for given in (0, polynomial))
    assert paths_used(lower, upper, 8, 2000) == 64


def test_mix_needs_differing_seeds_and_no_more() -> None:
    equal = [FieldHash(MIX, FIVE_TUPLE, 0, 0, 7) for _ in range(2)]
    assert paths_used(equal[0], equal[1], 8, 2000) == 8
    assert paths_used(equal[0], FieldHash(MIX, FIVE_TUPLE, 0, 0, 8), 8, 2000) == 64


def test_every_member_of_every_group_is_as_likely() -> None:
    count = 4000
    sample = frames(count)
    for function, width in product((MIX, CRC16, CRC32, TOEPLITZ), (3, 8, 16)):
        one = FieldHash(function, FIVE_TUPLE, 0, 3, 11)
        loads = [0] * width
        for frame in sample:
            loads[one.member(frame, width)] += 1
        # Six standard deviations of a fair draw.
        spread = 6 * (count / width * (1 - 1 / width)) ** 0.5
        assert all(abs(load - count / width) < spread for load in loads), (function, width, loads)


def unevenness(function: int, seed: int, width: int = 16) -> float:
    """Chi-square of the loads of equal ports under queue pairs of two segments: 192 hosts of one send to
    their twins in the other with eight queue pairs each, addresses, source ports and QPNs counted up."""
    one = FieldHash(function, FIVE_TUPLE, 0, 0, seed)
    loads = [0] * width
    for host, pair in product(range(192), range(8)):
        source, destination = 0x0A000000 + host, 0x0A010000 + host
        frame = Frame(WRITE_MIDDLE, 3, source, destination, 49152 + pair, 1000 + host * 8 + pair, 0, 64, 200)
        loads[one.member(frame, width)] += 1
    mean = 192 * 8 / width
    return sum((load - mean) ** 2 for load in loads) / mean


def test_mix_spreads_two_segments_like_a_random_function_and_linear_hashes_keep_their_order() -> None:
    count, free = 20, 15
    found = sum(unevenness(MIX, seed) for seed in range(count)) / count
    # A random function has a mean of as many as are free and twice that variance; five standard deviations.
    assert abs(found - free) < 5 * (2 * free / count) ** 0.5
    assert [unevenness(function, 7) for function in (CRC16, CRC32, TOEPLITZ)] == [0, 0, 0]
    assert unevenness(XOR_FOLD, 7) == 192 * 8 * 15  # all on one port: both addresses move together
