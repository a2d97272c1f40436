"""Reductions: how a GPU reduces two runs of elements.

Element by element, in the order in which the algorithm brings them together, and rounded after each step to
the type's precision: fp32 and bf16 to nearest, ties to even; int32 wraps. A sum or product of two fp32 is
worked out in double precision and rounded once more, which gives what fp32 arithmetic gives (2 x 24 + 2 bits
are enough; for bf16 a fortiori).

Source: IEEE 754; NCCL 2.30, `src/device/reduce_kernel.h` (bf16 is reduced in fp32 and rounded back).

Not modelled: subnormals flushed to zero, NaN payloads.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable
from typing import Any, Final

ELEMENT_BYTES: Final = {"fp32": 4, "bf16": 2, "int32": 4}
"""Data type -> size of an element."""
_MASK: Final = 0xFFFFFFFF
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": min,
    "max": max,
}
REDUCTIONS: Final = tuple(_COMBINE)


def decode(dtype: str, data: bytes) -> Iterable[float]:
    """The elements as numbers."""
    if dtype == "fp32":
        return memoryview(data).cast("f")
    if dtype == "int32":
        return memoryview(data).cast("i")
    wide = array("I", [half << 16 for half in memoryview(data).cast("H")])
    return memoryview(wide.tobytes()).cast("f")


def encode(dtype: str, values: Iterable[float]) -> bytes:
    """Numbers as elements, rounded to nearest, ties to even; integers modulo 2^32."""
    if dtype == "fp32":
        return array("f", values).tobytes()
    if dtype == "int32":
        return array("I", [int(value) & _MASK for value in values]).tobytes()
    wide = memoryview(array("f", values).tobytes()).cast("I")
    return array("H", [((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF for bits in wide]).tobytes()


def reduce(dtype: str, reduction: str, one: bytes, other: bytes) -> bytes:
    """The two, reduced element by element. They are equally long, and whole elements."""
    assert len(one) == len(other) and len(one) % ELEMENT_BYTES[dtype] == 0, (dtype, len(one), len(other))
    return encode(dtype, map(_COMBINE[reduction], decode(dtype, one), decode(dtype, other)))
