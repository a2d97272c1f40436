"""Arithmetic of times, sizes and rates: the one place where a size and a rate become a time.

Every quantity is a plain `int`: time in picoseconds, size in bytes, rate in bit/s. The product of a
serialisation passes 63 bits at about 1.1 MB, so code that uses native integers must not inline it.
"""

from __future__ import annotations

from typing import Final

PS_PER_S: Final = 10**12
BIT_PS_PER_BYTE: Final = 8 * 10**12
"""Bits in a byte times picoseconds in a second."""


def serialisation_ps(size_bytes: int, rate_bps: int) -> int:
    """Time to put `size_bytes` on a wire of `rate_bps` (above zero), rounded up to the next ps."""
    return -(-size_bytes * BIT_PS_PER_BYTE // rate_bps)
