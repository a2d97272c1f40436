"""Which frames does a bad cable spoil?

A link with a bit error rate spoils a frame with probability bits x rate, the first-order form of
1 - (1 - rate)^bits, over all bits from preamble to FCS. The receiving port, which checks the FCS, draws for
each frame that arrives from a random stream of its own, so that what one link spoils never moves what another
does. A frame with a wrong FCS is dropped and counted there, reason `corrupt`.

The probability is a fixed-point number of 48 bits.

Source: IEEE 802.3: a link promises a bit error rate of 1e-12 or better after correction.

Not modelled: bursts, forward error correction, errors in PFC frames.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.mixing import Stream

RATE_BITS: Final = 48
"""A bit error rate is a fixed-point number with this many fractional bits."""
_DRAW_SHIFT: Final[i64] = 14
"""From the 62 bits of a draw to the 48 of a rate."""


class BitErrors:
    """The errors of one direction of a link."""

    def __init__(self, rate_fixed: int, stream: Stream) -> None:
        assert 0 <= rate_fixed <= 1 << 38, rate_fixed
        self.rate_fixed: i64 = rate_fixed
        self.more_fixed: i64 = 0
        """What a fault adds to the rate."""
        self.loss_fixed: i64 = 0
        """The probability with which a fault spoils a frame of any size."""
        self.stream: Stream = stream

    def spoils(self, wire_bytes: i64) -> bool:
        """Whether a frame of this size on the wire arrives with a wrong FCS."""
        chance: i64 = (self.rate_fixed + self.more_fixed) * wire_bytes * 8 + self.loss_fixed
        return chance > 0 and (self.stream.draw62() >> _DRAW_SHIFT) < chance
