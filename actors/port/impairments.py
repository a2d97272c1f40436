"""Impairments of a link: bit errors, added delay and jitter.

A link with a bit error rate spoils a frame with probability bits x rate, the first-order form of
1 - (1 - rate)^bits, over all bits from preamble to FCS. The receiving port, which checks the FCS, draws for
each frame that arrives from a random stream of its own, so that errors of one link never move those of
another. It drops a frame with a wrong FCS and counts it, reason `corrupt`. The probability is a fixed-point
number of 48 bits.

An added delay, and jitter drawn anew for each frame, hold back what leaves a port. Nothing is ever early:
windows of virtual time rest on a link's least delay. Frames keep their order and do not overlap where they
arrive, also when the delay ends: those that follow then catch up, and no more. Pauses get the added delay.

Source: IEEE 802.3: a link promises a bit error rate of 1e-12 or better after correction.

Not modelled: bursts, forward error correction, errors in PFC frames.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.device import Plain
from actors.kernel.mixing import Stream
from actors.kernel.state import as_list, load_fields, save_fields

_FIELDS: Final = (
    "added_ps",
    "jitter_ps",
    "drawn",
    "last_ps",
    "last_size_ps",
    "last_pause_ps",
    "late_frames",
    "late_ps",
    "latest_ps",
    "late_since_ps",
)


class AddedDelay:
    """What holds back the frames of one port, and when the last of them arrives."""

    def __init__(self) -> None:
        self.added_ps: i64 = 0
        self.jitter_ps: i64 = 0
        self.drawn: i64 = 0
        """Draws so far."""
        self.last_ps: i64 = 0
        self.last_size_ps: i64 = 0
        self.last_pause_ps: i64 = 0
        self.dice: Stream | None = None
        self.late_frames: i64 = 0
        """Frames that took longer than the link takes, as time stamps at both ends tell."""
        self.late_ps: i64 = 0
        """By how much, in all."""
        self.latest_ps: i64 = 0
        """By how much, at most."""
        self.late_since_ps: i64 = -1
        """When the first of them should have arrived."""

    def set(self, added_ps: int, jitter_ps: int, dice: Stream | None) -> None:
        """Hold back what leaves from now on by so much, and by up to `jitter_ps` more as the dice fall."""
        self.added_ps, self.jitter_ps = added_ps, jitter_ps
        if dice is not None:
            dice.counter = self.drawn
        self.dice = dice

    def frame_ps(self, arrival_ps: i64, size_ps: i64, heads: bool) -> i64:
        """When a frame arrives that would at `arrival_ps`; `size_ps` is its serialisation. It is the
        last bit, at least so long behind that of the frame before; or (`heads`) the head, behind the whole
        frame before.
        """
        time_ps: i64 = arrival_ps + self.added_ps
        dice = self.dice
        if dice is not None and self.jitter_ps > 0:
            self.drawn += 1
            time_ps += dice.draw62() % (self.jitter_ps + 1)
        apart_ps: i64 = size_ps
        if heads:
            apart_ps = self.last_size_ps
        if self.last_ps > 0 and time_ps < self.last_ps + apart_ps:
            time_ps = self.last_ps + apart_ps
        self.last_ps = time_ps
        self.last_size_ps = size_ps
        late_ps: i64 = time_ps - arrival_ps
        if late_ps > 0:
            if self.late_frames == 0:
                self.late_since_ps = arrival_ps
            self.late_frames += 1
            self.late_ps += late_ps
            if late_ps > self.latest_ps:
                self.latest_ps = late_ps
        return time_ps

    def pause_ps(self, arrival_ps: i64) -> i64:
        """When a pause takes effect that would at `arrival_ps`."""
        time_ps: i64 = arrival_ps + self.added_ps
        if time_ps <= self.last_pause_ps:
            time_ps = self.last_pause_ps + 1
        self.last_pause_ps = time_ps
        return time_ps

    def save(self) -> list[Plain]:
        """Its state, without what the dice are called."""
        return save_fields(self, _FIELDS)

    def load(self, state: Plain) -> None:
        """Take the state that `save` returned."""
        load_fields(self, _FIELDS, as_list(state))


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
