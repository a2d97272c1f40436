"""Max-min rates of a few large transfers, of which each goes at one rate over very many links.

A transfer that is thousands of connections in step is known by its *footprint*: on how many of them, of each
kind, a link carries. Its rate rises until a link that carries data of it is full. What full links do to the
ports before them is not followed: with all connections of a footprint at one rate, each of them waits for the
slowest whatever stands behind a pause.

Links on which every footprint puts the same are one link here.

Rates are in kbit/s, shares and weights in units of 2^-20, as in `actors.flow.filling`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from actors.kernel.vectors import vec

DATA: Final = 0
"""Carries data between NICs."""
ACKS: Final = 1
"""Carries acknowledgements: it takes its part of links, and full ones do not stop it."""
INSIDE: Final = 2
"""Carries data over NVLink."""
KINDS: Final = 3
_ACKS: Final[i64] = 1
_KINDS: Final[i64] = 3
_UNIT_BITS: Final[i64] = 20
_NONE: Final[i64] = -1


class Footprint:
    """What one transfer puts on links: parallel lists of link, kind and number of ways, by link."""

    def __init__(self, links: list[int], kinds: list[int], counts: list[int]) -> None:
        self.links: vec[i64] = vec[i64](links)
        self.kinds: vec[i64] = vec[i64](kinds)
        self.counts: vec[i64] = vec[i64](counts)

    def stopped_by(self, link: i64) -> bool:
        """Whether it has data on a link."""
        low: i64 = 0
        high: i64 = len(self.links)
        while low < high:
            middle: i64 = (low + high) >> 1
            if self.links[middle] < link:
                low = middle + 1
            else:
                high = middle
        while low < len(self.links) and self.links[low] == link:
            if self.kinds[low] != _ACKS:
                return True
            low += 1
        return False


class Transfer:
    """A footprint in use: the share of its rate that a way of each kind carries, and its weight."""

    def __init__(self, footprint: Footprint, shares: list[int], weight: int, most_kbps: int) -> None:
        self.footprint: Footprint = footprint
        self.shares: vec[i64] = vec[i64](shares)
        self.weight: i64 = weight
        self.most_kbps: i64 = most_kbps
        """0: links alone limit it."""
        self.rate: i64 = _NONE


class Ground:
    """The links, with their capacities in kbit/s."""

    def __init__(self, capacities_kbps: list[int]) -> None:
        self.capacities: vec[i64] = vec[i64](capacities_kbps)
        self.left: vec[i64] = vec[i64](capacities_kbps)
        self.load: vec[i64] = vec[i64]([0] * len(capacities_kbps))
        """Load on each link of what still rises."""
        self.data: vec[i64] = vec[i64]([0] * len(capacities_kbps))
        """How many of those that rise have data there."""

    def rates(self, transfers: list[Transfer]) -> list[int]:
        """The rate of each, in kbit/s."""
        for one in transfers:
            one.rate = _NONE
            self._use(one, 1, 0)
        rising: i64 = len(transfers)
        while rising > 0:
            level, full = self._fullest(transfers)
            stopped: i64 = 0
            for one in transfers:
                if one.rate < 0 and self._stops(one, level, full):
                    rate: i64 = (one.weight * level) >> _UNIT_BITS
                    if 0 < one.most_kbps < rate:
                        rate = one.most_kbps
                    one.rate = rate
                    self._use(one, -1, rate)
                    stopped += 1
            assert stopped > 0, "nothing stops"
            rising -= stopped
        for one in transfers:
            self._clear(one)
        return [int(one.rate) for one in transfers]

    def _stops(self, one: Transfer, level: i64, full: i64) -> bool:
        if one.most_kbps > 0 and one.most_kbps << _UNIT_BITS <= one.weight * level:
            return True
        return full >= 0 and one.footprint.stopped_by(full)

    def _use(self, one: Transfer, sign: i64, rate: i64) -> None:
        """Let a transfer rise (1), or keep its rate (-1)."""
        footprint = one.footprint
        at: i64 = 0
        while at < len(footprint.links):
            link: i64 = footprint.links[at]
            kind: i64 = footprint.kinds[at]
            share: i64 = one.shares[kind] * footprint.counts[at]
            if share > 0:
                self.load[link] += sign * ((one.weight * share) >> _UNIT_BITS)
                self.left[link] -= (rate * share) >> _UNIT_BITS
                if kind != _ACKS:
                    self.data[link] += sign
            at += 1

    def _clear(self, one: Transfer) -> None:
        footprint = one.footprint
        at: i64 = 0
        while at < len(footprint.links):
            link: i64 = footprint.links[at]
            self.left[link] = self.capacities[link]
            self.load[link] = 0
            self.data[link] = 0
            at += 1

    def _fullest(self, transfers: list[Transfer]) -> tuple[int, int]:
        """The level at which the next thing is full, and the link; -1 where it is a transfer's own limit."""
        least: i64 = 1 << 62
        full: i64 = _NONE
        for one in transfers:
            if one.rate >= 0:
                continue
            if one.most_kbps > 0:
                own: i64 = (one.most_kbps << _UNIT_BITS) // one.weight + 1
                if own < least:
                    least = own
                    full = _NONE
            footprint = one.footprint
            at: i64 = 0
            while at < len(footprint.links):
                link: i64 = footprint.links[at]
                at += 1
                load: i64 = self.load[link]
                if load <= 0 or self.data[link] <= 0:
                    continue
                left: i64 = self.left[link]
                level: i64 = (left << _UNIT_BITS) // load if left > 0 else 0
                if level < least or (level == least and link < full):
                    least = level
                    full = link
        return int(least), int(full)
