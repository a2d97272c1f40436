"""Queues of switches while nobody is paused: what they pass on, and when they are so full that they pause.

Without pauses every sender sends as fast as its NIC lets it, and a full link passes on what comes in the
proportion in which it comes: first in, first out. What comes on a link depends on the links before it alone,
so a pass over the paths, repeated as often as the longest of them has links, has the rates of all.

What a link cannot pass on waits in the buffer, on the account of the port by which it came. A port is paused
when its account passes a threshold, a share (alpha) of what is free of the pool. What a transfer can have
waiting is bounded by what is left of it, and by its window, if it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.flow.filling import UNIT

SCALE: Final = 1 << 20


class Buffers(NamedTuple):
    """Of switches, by their numbers."""

    switch_of: Sequence[int]
    """By directed link, the switch that it leads to, or -1."""
    pools_bits: Sequence[int]
    alpha_scaled: int
    """In units of 2^-20."""
    reserve_bits: int
    """Of a port, before it takes from the pool."""


class Lane(NamedTuple):
    """A strand as queues see it."""

    transfer: int
    weight: int
    share: int
    links: tuple[int, ...]
    most_kbps: int


class _Excess(NamedTuple):
    """What a link cannot pass on of a lane."""

    transfer: int
    before: int
    """The link by which it comes."""
    link: int
    part: int
    """Of what the transfer sends in that time, in units of 2^-20."""


class Waiting(NamedTuple):
    """Bits that came by a link and wait for another."""

    before: int
    link: int
    bits: int


class Queues:
    """What some transfers make of queues. `rates` are at the end of each lane's path, by place."""

    def __init__(self, capacities_kbps: Sequence[int], lanes: Sequence[Lane]) -> None:
        self.lanes = lanes
        self._entering = _entering(capacities_kbps, lanes)
        self._passing = [[rate] * len(lane.links) for lane, rate in zip(lanes, self._entering, strict=True)]
        """By lane and hop, what leaves by that link."""
        for _ in range(max((len(lane.links) for lane in lanes), default=0)):
            self._pass(capacities_kbps)
        self.rates = [rates[-1] for rates in self._passing]
        self._excess = [
            _Excess(
                lane.transfer,
                lane.links[hop - 1],
                lane.links[hop],
                lane.share * (rates[hop - 1] - rates[hop]) // rates[hop - 1],
            )
            for lane, rates in zip(lanes, self._passing, strict=True)
            for hop in range(1, len(lane.links))
            if rates[hop] < rates[hop - 1]
        ]
        self.waits_for = frozenset(one.link for one in self._excess)
        """Links for which something waits."""

    def _pass(self, capacities_kbps: Sequence[int]) -> None:
        coming: dict[int, int] = {}
        for lane, rates, enters in zip(self.lanes, self._passing, self._entering, strict=True):
            before = enters
            for link, rate in zip(lane.links, rates, strict=True):
                coming[link] = coming.get(link, 0) + before
                before = rate
        for lane, rates, enters in zip(self.lanes, self._passing, self._entering, strict=True):
            before = enters
            for hop, link in enumerate(lane.links):
                after = rates[hop]
                most = capacities_kbps[link]
                rates[hop] = before if coming[link] <= most else max(before * most // coming[link], 1)
                before = after

    def waiting(self, waiting_bits: Sequence[int]) -> list[Waiting]:
        """What waits where, if transfers have so many bits that can wait."""
        return [
            Waiting(before, link, waiting_bits[transfer] * part // UNIT)
            for transfer, before, link, part in self._excess
        ]


def jammed(buffers: Buffers, waiting: Sequence[Waiting]) -> set[int]:
    """The links for which ports are paused where so much waits."""
    accounts: dict[int, int] = {}
    used: dict[int, int] = {}
    for before, _, bits in waiting:
        accounts[before] = accounts.get(before, 0) + bits
        switch = buffers.switch_of[before]
        used[switch] = used.get(switch, 0) + bits
    full: set[int] = set()
    for before, bits in accounts.items():
        switch = buffers.switch_of[before]
        free = max(buffers.pools_bits[switch] - used[switch], 0)
        if switch >= 0 and bits > buffers.reserve_bits + free * buffers.alpha_scaled // SCALE:
            full.add(before)
    return {one.link for one in waiting if one.before in full}


def _entering(capacities_kbps: Sequence[int], lanes: Sequence[Lane]) -> list[int]:
    """What every lane sends into its first link: NICs serve queue pairs in turn."""
    weights: dict[int, int] = {}
    for lane in lanes:
        first = lane.links[0]
        weights[first] = weights.get(first, 0) + lane.weight * lane.share // UNIT
    found = []
    for lane in lanes:
        first = lane.links[0]
        mine = lane.weight * lane.share // UNIT
        rate = capacities_kbps[first] * mine // max(weights[first], 1)
        if lane.most_kbps:
            rate = min(rate, lane.most_kbps * lane.share // UNIT)
        found.append(max(rate, 1))
    return found
