"""Mixing of integers for digests, random streams and hashes, alike in every build.

The digest. Each port of each device keeps a 62-bit mix of what the model did there, in order, and each device
one of what concerns no port. Of every entry the time comes first, with a *tag* in its upper bits:

    a frame arrived            opcode                ECN; then PSN, QP number and size
    a frame is lost            DROP_TAG + reason     PSN, QP number and size
    a pause, message or fault  KIND_TAG + its kind   operation and subject, then every field
    a timer had an effect      KIND_TAG + its kind   port and subject

That is what a device was told and what became of it, and not how the engine got there: not when a port turned
to what waits (a departure shows as the peer's arrival), not a timer that found nothing due, nor the windows,
slices and events in which the work was done. Mixing is a bijection of either operand, so that one other word
is another mix for ever.

Native integers wrap at 64 bits and Python's do not, so every product here is masked: to 62 bits for digests
and streams (a wider constant would not be native), to 32 bits for the hashes that switches compute.
Multipliers are odd constants with well spread bits; the shifts bring the high bits, where a product mixes
best, back down.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

MASK62: Final[i64] = 0x3FFFFFFFFFFFFFFF
MASK32: Final[i64] = 0xFFFFFFFF

TAG_SHIFT: Final[i64] = 52
"""Where a tag, 8 bits, stands above a time: 75 minutes of virtual time before the two share bits."""
ECN_SHIFT: Final[i64] = 60
KIND_TAG: Final[i64] = 32
"""No opcode is from here to 63."""
DROP_TAG: Final[i64] = 48

DIGEST_MULTIPLIER: Final[i64] = 0x2545F4914F6CDD1D
"""That of xorshift64* (Vigna, 2014): odd, so that a multiplication loses nothing."""
MULTIPLIER32: Final[i64] = 0x9E3779B1
"""2^32 over the golden ratio, odd (Knuth, The Art of Computer Programming, 6.4)."""
_STREAM_STEP: Final[i64] = 0x1E3779B97F4A7C15
_STREAM_MULTIPLIER_A: Final[i64] = 0x3F58476D1CE4E5B9
_STREAM_MULTIPLIER_B: Final[i64] = 0x14D049BB133111EB
"""Step and multipliers of SplitMix64, cut to 62 bits: an i64 of compiled code has no unsigned product."""


def mix(state: i64, word: i64) -> i64:
    """The next 62-bit state of a running digest after `word` (0 <= word < 2**62)."""
    h: i64 = ((state ^ word) * DIGEST_MULTIPLIER) & MASK62
    return h ^ (h >> 29)


def scramble(word: i64) -> i64:
    """A 62-bit value in which every bit of `word` shows in every bit (a splitmix finaliser)."""
    h: i64 = ((word ^ (word >> 30)) * _STREAM_MULTIPLIER_A) & MASK62
    h = ((h ^ (h >> 27)) * _STREAM_MULTIPLIER_B) & MASK62
    return h ^ (h >> 31)


def mix32(state: i64, word: i64) -> i64:
    """The next 32-bit state of a non-linear hash after a 32-bit `word`."""
    h: i64 = ((state ^ word) * MULTIPLIER32) & MASK32
    return h ^ (h >> 15)


class Stream:
    """A counter-based random stream: its state is one integer, its values depend on its name alone.

    Named by (seed, device, purpose), so that drawing more in one place never moves what another place draws.
    """

    __slots__ = ("_base", "counter")

    def __init__(self, seed: int, device: int, purpose: int) -> None:
        base: i64 = scramble((seed ^ (seed >> 62)) & MASK62)
        base = scramble((base + device * 0x9E3779B1 + 1) & MASK62)
        self._base: i64 = scramble((base + purpose * 0x85EBCA77 + 1) & MASK62)
        self.counter: i64 = 0

    def draw62(self) -> i64:
        """The next value, uniform over 0 <= value < 2**62."""
        self.counter += 1
        return scramble((self._base + self.counter * _STREAM_STEP) & MASK62)

    def below(self, bound: i64) -> i64:
        """The next value, uniform over 0 <= value < bound, for 0 < bound <= 2**31 (bias below 2**-31)."""
        assert 0 < bound <= 0x80000000, bound
        return ((self.draw62() >> 31) * bound) >> 31
