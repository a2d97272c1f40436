"""Is what a GPU reduces what its type says, to the bit?"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from actors.gpu.array_reductions import reduced
from actors.gpu.memory import ELEMENT_BYTES, REDUCTIONS, decode, encode, one_by_one, reduce
from actors.kernel.mixing import Stream


def fp32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def int32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def bf16(*bits: int) -> bytes:
    return struct.pack(f"<{len(bits)}H", *bits)


def test_fp32_rounds_to_nearest_even_after_each_step() -> None:
    # 2^24 + 1 lies between two floats and goes to the even one; 2^24 + 3 goes up.
    one, other = fp32(2.0**24, 2.0**24, 1e38), fp32(1.0, 3.0, 1e38)
    assert reduce("fp32", "sum", one, other) == fp32(2.0**24, 2.0**24 + 4, 2e38)
    assert reduce("fp32", "prod", fp32(1.5, -2.0), fp32(1.5, 0.25)) == fp32(2.25, -0.5)


def test_int32_wraps() -> None:
    most = 2**31 - 1
    assert reduce("int32", "sum", int32(most, -5), int32(1, 7)) == int32(-(2**31), 2)
    assert reduce("int32", "prod", int32(65536, -3), int32(65536, 7)) == int32(0, -21)
    assert reduce("int32", "min", int32(-1, 5), int32(1, 4)) == int32(-1, 4)
    assert reduce("int32", "max", int32(-1, 5), int32(1, 4)) == int32(1, 5)


def test_bf16_rounds_to_nearest_even() -> None:
    # 0x4380 is 256: its neighbours are 2 apart. 256 + 1 goes to the even 256, 258 + 1 to the even 260.
    assert reduce("bf16", "sum", bf16(0x4380, 0x4381), bf16(0x3F80, 0x3F80)) == bf16(0x4380, 0x4382)
    assert reduce("bf16", "max", bf16(0xBF80, 0x4000), bf16(0x3F80, 0xC000)) == bf16(0x3F80, 0x4000)


def test_fp16_rounds_to_nearest_even_and_overflows_to_infinity() -> None:
    def fp16(*bits: int) -> bytes:
        return struct.pack(f"<{len(bits)}H", *bits)

    # 0x6800 is 2048: its neighbours are 2 apart. 2048 + 1 goes to the even 2048, 2050 + 1 to the even 2052.
    assert one_by_one("fp16", "sum", fp16(0x6800, 0x6801), fp16(0x3C00, 0x3C00)) == fp16(0x6800, 0x6802)
    assert one_by_one("fp16", "sum", fp16(0x7BFF, 0xFBFF), fp16(0x7BFF, 0xFBFF)) == fp16(0x7C00, 0xFC00)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int32", "fp16", "fp64", "int64"])
def test_whole_numbers_go_in_and_come_out(dtype: str) -> None:
    numbers = [0, 1, 2, 127, 128, 200, 255, 256]
    assert list(decode(dtype, encode(dtype, numbers))) == numbers


INFINITY = 0x7F800000
SPECIAL = (0, 1 << 31, INFINITY, INFINITY | 1 << 31, INFINITY - 1, 1, 0x807FFFFF, 0x3F800000, 0x7FFFFFFF)
"""Zeros, infinities, the largest, subnormals, one, the largest integer."""


@pytest.mark.parametrize("dtype", list(ELEMENT_BYTES))
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_numpy_reduces_to_the_same_bits(dtype: str, reduction: str) -> None:
    stream = Stream(7, 0, 0)
    drawn = [stream.below(1 << 16) << 16 | stream.below(1 << 16) for _ in range(4096)]
    pairs = [(a, b) for a in SPECIAL for b in SPECIAL] + list(zip(drawn[::2], drawn[1::2], strict=True))
    if dtype != "int32":  # what a NaN carries is not modelled
        pairs = [pair for pair in pairs if max(bits & 0x7FFFFFFF for bits in pair) <= INFINITY]
    if dtype == "fp16":
        pairs = [
            pair for pair in pairs if max(bits >> by & 0x7FFF for bits in pair for by in (0, 16)) <= 0x7C00
        ]
    if dtype == "bf16":
        pairs = [(a >> 16, b >> 16) for a, b in pairs]
    kind = "H" if dtype == "bf16" else "I"
    one, other = (struct.pack(f"<{len(pairs)}{kind}", *side) for side in zip(*pairs, strict=True))
    assert reduced(np, dtype, reduction, one, other) == one_by_one(dtype, reduction, one, other)
    assert reduce(dtype, reduction, one, other) == one_by_one(dtype, reduction, one, other)
