"""Is what a GPU reduces what its type says, to the bit?"""

from __future__ import annotations

import struct

import pytest

from actors.gpu.memory import decode, encode, reduce


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


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int32"])
def test_whole_numbers_go_in_and_come_out(dtype: str) -> None:
    numbers = [0, 1, 2, 127, 128, 200, 255, 256]
    assert list(decode(dtype, encode(dtype, numbers))) == numbers
