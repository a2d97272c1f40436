"""Queues of switches while nobody is paused: what they pass on, and when they are so full that they pause.

Without pauses every sender sends as fast as its NIC lets it, and a full link passes on what comes in the
proportion in which it comes: first in, first out. What comes on a link depends on the links before it alone,
so a pass over the paths, repeated as often as the longest of them has links, has the rates of all.

What a link cannot pass on waits in the buffer, on the account of the port by which it came. A port is paused
when its account passes a threshold, a share (alpha) of what is free of the pool. What a transfer can have
waiting is bounded by what is left of it, and by its window, if it has one.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from actors.flow.filling import UNIT

SCALE: Final = 1 << 20


class Buffers(NamedTuple):
    """Buffers of switches, by their numbers."""

    buffer_of: Sequence[int]
    """By directed link, the buffer that it leads to, or -1: the number of its switch, and a larger one for
    each port of a modular switch."""
    pools_bits: Sequence[int]
    """By buffer; with the number of a modular switch, that of one of its ports."""
    alphas_scaled: Sequence[int]
    """In units of 2^-20."""
    reserve_bits: int
    """Room of a port before it takes from the pool."""
    behind: Sequence[bool]
    """By directed link, whether it is the egress of a modular switch; empty: there are none."""


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
    """Share of what the transfer sends in that time, in units of 2^-20."""
    beyond: int
    """Where the link before is the egress of a modular switch, by which that is fed; else -1."""


class Waiting(NamedTuple):
    """Bits that came by a link and wait for another."""

    before: int
    link: int
    bits: int
    beyond: int = -1
    """The port where it waits in a modular switch once the one before is paused."""


class Queues:
    """What some transfers make of queues. `rates` are at the end of each lane's path, by place."""

    def __init__(
        self, capacities_kbps: Sequence[int], lanes: Sequence[Lane], behind: Sequence[bool] = ()
    ) -> None:
        self.lanes = lanes
        self.behind = behind
        """By link, whether it is the egress of a modular switch; empty: there are none."""
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
                lane.links[hop - 2] if hop > 1 and behind and behind[lane.links[hop - 1]] else -1,
            )
            for lane, rates in zip(lanes, self._passing, strict=True)
            for hop in range(1, len(lane.links))
            if rates[hop] < rates[hop - 1]
        ]
        self.waits_for = frozenset(one.link for one in self._excess) | {
            one.before for one in self._excess if one.beyond >= 0
        }
        """Links for which something waits, or does when they are paused."""

    def _pass(self, capacities_kbps: Sequence[int]) -> None:
        coming: dict[int, int] = {}
        ports: dict[int, dict[int, int]] = {}
        for lane, rates, enters in zip(self.lanes, self._passing, self._entering, strict=True):
            before, port = enters, -1
            for link, rate in zip(lane.links, rates, strict=True):
                coming[link] = coming.get(link, 0) + before
                if self.behind and self.behind[link]:
                    of_port = ports.setdefault(link, {})
                    of_port[port] = of_port.get(port, 0) + before
                before, port = rate, link
        shares = {link: _in_turn(of_port, capacities_kbps[link]) for link, of_port in ports.items()}
        for lane, rates, enters in zip(self.lanes, self._passing, self._entering, strict=True):
            before, port = enters, -1
            for hop, link in enumerate(lane.links):
                after = rates[hop]
                most, comes = capacities_kbps[link], coming[link]
                if link in shares:
                    most, comes = shares[link][port], ports[link][port]
                rates[hop] = before if comes <= most else max(before * most // comes, 1)
                before, port = after, link

    def waiting(self, waiting_bits: Sequence[int]) -> list[Waiting]:
        """What waits where, if transfers have so many bits that can wait."""
        return [
            Waiting(before, link, waiting_bits[transfer] * part // UNIT, beyond)
            for transfer, before, link, part, beyond in self._excess
        ]


def jammed(buffers: Buffers, waiting: Sequence[Waiting]) -> set[int]:
    """The links for which ports are paused where so much waits."""
    full = _full(buffers, waiting)
    behind = [
        Waiting(one.beyond, one.before, one.bits) for one in waiting if one.beyond >= 0 and one.before in full
    ]
    if behind:
        waiting = [*waiting, *behind]
        full |= _full(buffers, behind)
    return {one.link for one in waiting if one.before in full}


def _full(buffers: Buffers, waiting: Sequence[Waiting]) -> set[int]:
    """The ports of which so much waits that they are paused."""
    accounts: dict[int, int] = {}
    used: dict[int, int] = {}
    for before, _, bits, _ in waiting:
        accounts[before] = accounts.get(before, 0) + bits
        buffer = buffers.buffer_of[before]
        used[buffer] = used.get(buffer, 0) + bits
    full: set[int] = set()
    for before, bits in accounts.items():
        buffer = buffers.buffer_of[before]
        free = max(buffers.pools_bits[buffer] - used[buffer], 0)
        if buffer >= 0 and bits > buffers.reserve_bits + free * buffers.alphas_scaled[buffer] // SCALE:
            full.add(before)
    return full


def _in_turn(coming: Mapping[int, int], most: int) -> dict[int, int]:
    """What each port gets of a link that serves them in turn: as much as comes there, or an even share."""
    found: dict[int, int] = {}
    for at, port in enumerate(sorted(coming, key=lambda port: (coming[port], port))):
        found[port] = min(coming[port], most // (len(coming) - at))
        most -= found[port]
    return found


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
