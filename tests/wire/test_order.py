"""Is an order read as it was written, and nothing else read at all?"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gpu.memory import ORDER_RECEIVES, ORDER_SENDS, Order, read_order, write_order
from emu.base.errors import ProtocolError

STRETCHES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2**20), st.integers(0, 50)), max_size=4)


@given(STRETCHES, st.booleans(), st.booleans())
def test_order_comes_out_as_it_went_in(
    reads: list[tuple[int, int, int]], receives: bool, sends: bool
) -> None:
    size = sum(size for _, _, size in reads)
    data = bytes(range(size % 256)) + bytes(size - size % 256) if receives else None
    packed = write_order(1, 2, 3, reads, [(0, 8, size)], data, sends=sends)
    flags = ORDER_RECEIVES * receives | ORDER_SENDS * sends
    assert read_order(packed) == Order(1, 2, 3, flags, tuple(reads), ((0, 8, size),), data or b"")


REFUSED = {
    "too short for its head": b"\0" * 40,
    "a negative rank": struct.pack("<6q", 0, -1, 0, 0, 0, 0),
    "flags that are none": struct.pack("<6q", 0, 0, 0, 4, 0, 0),
    "stretches that are not there": struct.pack("<6q", 0, 0, 0, 0, 1, 0),
    "more stretches than any": struct.pack("<6q", 0, 0, 0, 0, 2**40, 0),
    "bytes that nobody sent": struct.pack("<6q", 0, 0, 0, 0, 0, 0) + b"abc",
    "a fourth buffer": write_order(0, 0, 0, [(3, 0, 8)], [], None, sends=False),
    "a place beyond any buffer": write_order(0, 0, 0, [(0, 2**30, 8)], [], None, sends=False),
    "a place before any buffer": write_order(0, 0, 0, [(0, -8, 8)], [], None, sends=False),
    "reads more than it writes": write_order(0, 0, 0, [(0, 0, 8)], [(0, 0, 4)], None, sends=False),
    "reduces with something shorter": write_order(0, 0, 0, [(0, 0, 8)], [], b"abcd", sends=False),
}


@pytest.mark.parametrize("packed", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_order_is_refused(packed: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_order(packed)
