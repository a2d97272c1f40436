"""Arithmetic of times, sizes and rates: the one place where a size and a rate become a time.

Time is in picoseconds, size in bytes, rate in bit/s. The product of a serialisation passes 63 bits at about
1.1 MB, so code that uses native integers must not inline it: devices call `sending_ps`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

PS_PER_S: Final = 10**12
BIT_PS_PER_BYTE: Final = 8 * 10**12
"""Bits in a byte times picoseconds in a second."""
_BIT_PS_PER_BYTE: Final[i64] = 8_000_000_000_000
_NATIVE_BYTES: Final[i64] = 1 << 20
_NATIVE_BPS: Final[i64] = 1 << 59
"""Up to these the product of a serialisation, and a rate more, are below 2**63."""


def serialisation_ps(size_bytes: int, rate_bps: int) -> int:
    """Time to put `size_bytes` on a wire of `rate_bps` (above zero), rounded up to the next ps."""
    return -(-size_bytes * BIT_PS_PER_BYTE // rate_bps)


def sending_ps(size_bytes: i64, rate_bps: i64) -> i64:
    """`serialisation_ps`, where all three fit 63 bits: in native integers up to a mebibyte."""
    if size_bytes <= _NATIVE_BYTES and rate_bps <= _NATIVE_BPS:
        return (size_bytes * _BIT_PS_PER_BYTE + rate_bps - 1) // rate_bps
    return serialisation_ps(size_bytes, rate_bps)
