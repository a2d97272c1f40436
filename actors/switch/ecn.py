"""ECN marking by random early detection (RED).

Random early detection on the egress queue, at dequeue, so that a mark says what the queue is when the frame
leaves: none up to Kmin, all from Kmax on, and between them with a probability that rises linearly to Pmax.
The queue counts with the frame itself, in bytes on the wire. Only frames that say they are ECN-capable are
marked, and none is ever dropped for it.

The probability is a fixed-point number and the dice are the device's own random stream, one draw for each
frame that leaves a queue between the thresholds.

Source: RFC 3168; DCQCN (SIGCOMM 2015), section 3.1, whose RED looks at the instantaneous queue.

Not modelled: averaging, marking at enqueue, dropping what is not capable.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.mixing import Stream

ONE: Final[i64] = 0x40000000
"""Certainty, as a fixed-point number."""


class Red:
    """The thresholds of one queue, and its dice."""

    def __init__(self, kmin_bytes: int, kmax_bytes: int, pmax_fixed: int, stream: Stream) -> None:
        assert 0 <= kmin_bytes <= kmax_bytes < 1 << 32, (kmin_bytes, kmax_bytes)
        assert 0 <= pmax_fixed <= ONE, pmax_fixed
        self.built_kmin_bytes: int = kmin_bytes
        self.built_kmax_bytes: int = kmax_bytes
        self.built_pmax_fixed: int = pmax_fixed
        self.kmin_bytes: i64 = kmin_bytes
        self.kmax_bytes: i64 = kmax_bytes
        self.pmax_fixed: i64 = pmax_fixed
        self.stream: Stream = stream
        self.marked: i64 = 0

    def set_thresholds(self, kmin_bytes: int, kmax_bytes: int, pmax_fixed: int) -> None:
        """Mark by these from now on."""
        self.kmin_bytes, self.kmax_bytes, self.pmax_fixed = kmin_bytes, kmax_bytes, pmax_fixed

    def marks(self, queued_bytes: i64) -> bool:
        """Whether the frame that leaves a queue of this depth is marked."""
        if queued_bytes <= self.kmin_bytes:
            return False
        if queued_bytes < self.kmax_bytes:
            above: i64 = self.pmax_fixed * (queued_bytes - self.kmin_bytes)
            if self.stream.below(ONE) * (self.kmax_bytes - self.kmin_bytes) >= above:
                return False
        self.marked += 1
        return True
