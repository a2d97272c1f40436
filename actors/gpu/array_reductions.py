"""Reductions by numpy, where it is there: bit for bit those of `actors.gpu.memory`, far faster.

Sums and products of fp32 in single precision are those in double precision rounded once more (2 x 24 + 2 bits
are enough). The least and the greatest of two are chosen by comparison, as Python's `min` and `max` do, so
that zeros of both signs and NaN come out alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

LEAST_BYTES: Final = 256
"""Fewest bytes for numpy: for less, a call of it costs more than it saves."""
_KINDS: Final = {
    "fp32": "<f4",
    "int32": "<i4",
    "fp16": "<f2",
    "fp64": "<f8",
    "int64": "<i8",
    "int8": "i1",
    "uint8": "u1",
}


@cache
def library() -> Any:
    """numpy; None where it is not installed. Loaded when the first reduction asks."""
    try:
        import numpy as np  # noqa: PLC0415  a tenth of a second that runs without real payload do not pay
    except ImportError:
        return None
    return np


def combining(np: Any, reduction: str) -> Callable[[Any, Any], Any]:
    """The reduction of two arrays."""
    if reduction == "sum":
        return lambda one, other: one + other
    if reduction == "prod":
        return lambda one, other: one * other
    if reduction == "min":
        return lambda one, other: np.where(other < one, other, one)
    return lambda one, other: np.where(other > one, other, one)


def reduced(np: Any, dtype: str, reduction: str, one: bytes, other: bytes) -> bytes:
    """The two, reduced element by element."""
    combine = combining(np, reduction)
    with np.errstate(all="ignore"):
        if dtype != "bf16":
            kind = _KINDS[dtype]
            return bytes(combine(np.frombuffer(one, kind), np.frombuffer(other, kind)).tobytes())
        wide = [(np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4") for data in (one, other)]
        bits = combine(*wide).view("<u4")
        return bytes(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes())
