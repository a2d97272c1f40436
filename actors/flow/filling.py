"""Max-min rates of coupled transfers on shared links, with what pauses of lossless Ethernet do to them.

A *transfer* has one rate. It is carried by *strands*, each of which takes a share of the rate along a path of
directed links: a flow has one, a ring one for every queue pair of its connections. A transfer has a weight:
how many queue pairs take turns for it at a NIC's port.

Filling. All rates rise together, each in proportion to its weight, until a link is full. Transfers on a full
link keep their rates, the others go on rising. The outcome is the weighted max-min share.

Pauses. Lossless Ethernet does not share a full link by transfers. Where a link is full, the switch before it
pauses the ports from which frames for it come, and each of these gets the same share. A port that is paused
has stopped for everybody: what stands behind the paused head waits too, whatever its destination, and the
port's own link is then as good as full, so that the pause goes on to the ports before it. So when a link is
full, all transfers on the links that feed it stop rising with it, back to the NICs; and weights are corrected
until all ports that feed a full link, and have more to send, have the same rate there. That is a fixed point,
which is looked for in rounds: filling, correcting, filling again.

Rates are integers in kbit/s, shares and weights are in units of 2^-20. Links are taken in the order of the
levels at which they are full, and of their numbers among equals, so the result depends on nothing else.

Source of max-min filling: Bertsekas and Gallager, "Data Networks", section 6.5.2.

Not modelled: buffers, which delay a pause and so keep short bursts from spreading.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import i64

from actors.kernel.vectors import vec

UNIT: Final = 1 << 20
"""A share of the whole rate; a weight of one queue pair."""
PAUSING: Final = 0
"""A full link stops the transfer, and the ports that feed the link."""
QUIET: Final = 1
"""A full link stops the transfer alone: NVLink, and limits of its own."""
LIGHT: Final = 2
"""It takes its part of links, and full ones stop nobody for it: acknowledgements, which wait in queues."""
MOST_ROUNDS: Final = 12
"""Fillings of one search: corrections that have not settled by then swing between two states."""
_PAUSING: Final[i64] = 0
_LIGHT: Final[i64] = 2
_UNIT_BITS: Final[i64] = 20
_ONE: Final[i64] = 1 << 20
_NEAR: Final[i64] = 1 << 13
"""Corrections below this (0.8 %) end the search."""
_LEAST_WEIGHT: Final[i64] = 1 << 10
_MOST_WEIGHT: Final[i64] = 1 << 28
"""Corrected weights stay between 1/1024 and 256: one that fell to 0 could never rise again."""
_UNSET: Final[i64] = -1
_IDLE: Final[i64] = 0
_ASKING: Final[i64] = 1
_GREEDY: Final[i64] = 2


class Filling:
    """Transfers on links with these capacities, in kbit/s. With `pauses` links are lossless Ethernet."""

    def __init__(self, capacities_kbps: list[int], *, pauses: bool) -> None:
        self.capacities: list[int] = list(capacities_kbps)
        self.pauses: bool = pauses
        self.weights: list[int] = []
        """Weights of transfers."""
        self.owners: list[int] = []
        """Transfers to which strands belong."""
        self.shares: list[int] = []
        self.kinds: list[int] = []
        self.places: list[int] = [0]
        """Where the hops of each strand begin; and the end of the last one's."""
        self.hops: list[int] = []
        """Links, strand by strand, from the source on."""
        self.jams: list[bool] = [pauses] * len(capacities_kbps)
        """By link: whether ports are paused for it when it is full."""
        self.evens: list[bool] = [False] * len(capacities_kbps)
        """By link: whether it is the egress of a modular switch. It serves the ports that feed it in turn
        though none is paused, and when it is stopped itself, they are only where it jams, too."""
        self.rounds: int = 0
        """Fillings of the last `rates`."""

    def transfer(self, weight: int = UNIT) -> int:
        """Another transfer; returns its number."""
        self.weights.append(weight)
        return len(self.weights) - 1

    def strand(self, transfer: int, share: int, path: list[int], kind: int = PAUSING) -> None:
        """Let a transfer take a share of its rate along a path; what full links do to it is its kind."""
        self.owners.append(transfer)
        self.shares.append(share)
        self.kinds.append(kind)
        self.hops += path
        self.places.append(len(self.hops))

    def limit(self, transfer: int, most_kbps: int) -> None:
        """Let a transfer never be faster than this."""
        self.capacities.append(most_kbps)
        self.jams.append(False)
        self.evens.append(False)
        self.strand(transfer, UNIT, [len(self.capacities) - 1], QUIET)

    def rates(self) -> list[int]:
        """The rate of each transfer, in kbit/s; every transfer must have a strand with hops."""
        search = _Search(self)
        self.rounds = 1
        search.fill()
        while self.pauses and self.rounds < MOST_ROUNDS and search.correct():
            search.fill()
            self.rounds += 1
        return [int(rate) for rate in search.rates]


def begins_of(keys: vec[i64], count: i64) -> vec[i64]:
    """For each of so many keys, where its places begin in `grouped`, and where those of the last end."""
    begins: vec[i64] = vec[i64]([0] * (int(count) + 1))
    place: i64 = 0
    while place < len(keys):
        begins[keys[place] + 1] += 1
        place += 1
    key: i64 = 0
    while key < count:
        begins[key + 1] += begins[key]
        key += 1
    return begins


def grouped(keys: vec[i64], begins: vec[i64]) -> vec[i64]:
    """All places, those of a key together and in order (a counting sort)."""
    free: list[int] = [int(begin) for begin in begins]
    places: vec[i64] = vec[i64]([0] * len(keys))
    place: i64 = 0
    while place < len(keys):
        key: i64 = keys[place]
        places[free[key]] = place
        free[key] += 1
        place += 1
    return places


class _Search:
    """The state of one search for rates."""

    def __init__(self, filling: Filling) -> None:
        self.capacities: vec[i64] = vec[i64](filling.capacities)
        self.jams: list[bool] = filling.jams
        self.evens: list[bool] = filling.evens
        self.transfers: i64 = len(filling.weights)
        self.links: i64 = len(filling.capacities)
        self.weights: vec[i64] = vec[i64](filling.weights)
        self.owners: vec[i64] = vec[i64](filling.owners)
        self.shares: vec[i64] = vec[i64](filling.shares)
        self.kinds: vec[i64] = vec[i64](filling.kinds)
        self.places: vec[i64] = vec[i64](filling.places)
        self.hops: vec[i64] = vec[i64](filling.hops)
        hops: i64 = len(self.hops)
        self.strands: vec[i64] = vec[i64]([0] * int(hops))
        """By hop."""
        strand: i64 = 0
        while strand < len(self.owners):
            hop: i64 = self.places[strand]
            while hop < self.places[strand + 1]:
                self.strands[hop] = strand
                hop += 1
            strand += 1
        self.first: vec[i64] = begins_of(self.hops, self.links)
        """By link: where its hops begin in `members`."""
        self.members: vec[i64] = grouped(self.hops, self.first)
        self.firsts: vec[i64] = begins_of(self.owners, self.transfers)
        """By transfer: where its strands begin in `ordered`."""
        self.ordered: vec[i64] = grouped(self.owners, self.firsts)
        self.rates: vec[i64] = vec[i64]([-1] * int(self.transfers))
        self.left: vec[i64] = vec[i64]([0] * int(self.links))
        self.load: vec[i64] = vec[i64]([0] * int(self.links))
        self.closures: vec[i64] = vec[i64]([-1] * int(self.transfers))
        """By transfer: in which closure it stopped rising."""
        self.closure_of: vec[i64] = vec[i64]([-1] * int(self.links))
        """By link, the last closure that it was in."""
        self.jammed: list[list[int]] = []
        """By closure: the full link, and those which it jams."""
        self.port_rates: vec[i64] = vec[i64]([0] * int(self.links))
        self.port_marks: vec[i64] = vec[i64]([-1] * int(self.links))
        self.factors: vec[i64] = vec[i64]([0] * len(self.owners))
        """By strand."""

    def _level(self, link: i64) -> i64:
        """The level at which a link is full."""
        left: i64 = self.left[link]
        return (left << _UNIT_BITS) // self.load[link] if left > 0 else 0

    def fill(self) -> None:
        """Rates by the present weights."""
        link: i64 = 0
        while link < self.links:
            self.left[link] = self.capacities[link]
            self.load[link] = 0
            self.closure_of[link] = _UNSET
            link += 1
        hop: i64 = 0
        while hop < len(self.hops):
            strand: i64 = self.strands[hop]
            self.load[self.hops[hop]] += (
                self.weights[self.owners[strand]] * self.shares[strand]
            ) >> _UNIT_BITS
            hop += 1
        transfer: i64 = 0
        while transfer < self.transfers:
            self.rates[transfer] = _UNSET
            self.closures[transfer] = _UNSET
            transfer += 1
        self.jammed = []
        queue: list[tuple[int, int]] = []
        link = 0
        while link < self.links:
            if self.load[link] > 0:
                queue.append((int(self._level(link)), int(link)))
            link += 1
        heapify(queue)
        while queue:
            level, at = heappop(queue)
            full: i64 = at
            if self.load[full] <= 0:
                continue
            now: i64 = self._level(full)
            if now > level:
                heappush(queue, (int(now), at))
                continue
            self._stop(full, level)

    def _stop(self, full: i64, level: i64) -> None:
        """A link is full at this level: stop what is on it, and what it jams."""
        number: i64 = len(self.jammed)
        jam: list[int] = [int(full)]
        jams: bool = self.jams[full]
        self.closure_of[full] = number
        at: i64 = 0
        while at < len(jam):
            link: i64 = jam[at]
            at += 1
            goes_on: bool = jams and (self.jams[link] or not self.evens[link])
            place: i64 = self.first[link]
            while place < self.first[link + 1]:
                hop: i64 = self.members[place]
                place += 1
                strand: i64 = self.strands[hop]
                transfer: i64 = self.owners[strand]
                if self.kinds[strand] == _LIGHT:
                    continue
                if self.rates[transfer] < 0:
                    self._keep(transfer, level, number)
                if self.closures[transfer] != number:
                    continue
                if goes_on and self.kinds[strand] == _PAUSING and hop > self.places[strand]:
                    before: i64 = self.hops[hop - 1]
                    if self.closure_of[before] != number:
                        self.closure_of[before] = number
                        jam.append(int(before))
        self.load[full] = 0  # what is light goes on
        self.jammed.append(jam if jams or self.evens[full] else [])

    def _keep(self, transfer: i64, level: i64, closure: i64) -> None:
        """A transfer rises no more."""
        weight: i64 = self.weights[transfer]
        rate: i64 = (weight * level) >> _UNIT_BITS
        self.rates[transfer] = rate
        self.closures[transfer] = closure
        at: i64 = self.firsts[transfer]
        while at < self.firsts[transfer + 1]:
            strand: i64 = self.ordered[at]
            at += 1
            share: i64 = self.shares[strand]
            taken: i64 = (rate * share) >> _UNIT_BITS
            load: i64 = (weight * share) >> _UNIT_BITS
            hop: i64 = self.places[strand]
            while hop < self.places[strand + 1]:
                link: i64 = self.hops[hop]
                self.left[link] -= taken
                self.load[link] -= load
                hop += 1

    # ---- what pauses correct

    def correct(self) -> bool:
        """Let ports that feed a full link have the same rate there; whether that changes anything."""
        strand: i64 = 0
        while strand < len(self.factors):
            self.factors[strand] = _ONE
            strand += 1
        for number, jam in enumerate(self.jammed):
            for link in jam:
                self._even(number, link)
        changed: bool = False
        transfer: i64 = 0
        while transfer < self.transfers:
            if self._weigh(transfer):
                changed = True
            transfer += 1
        return changed

    def _weigh(self, transfer: i64) -> bool:
        """Correct a transfer's weight by the strand that lets it have least."""
        least: i64 = -1
        at: i64 = self.firsts[transfer]
        while at < self.firsts[transfer + 1]:
            factor: i64 = self.factors[self.ordered[at]]
            if self.kinds[self.ordered[at]] == _PAUSING and (least < 0 or factor < least):
                least = factor
            at += 1
        if least < 0 or (least > _ONE - _NEAR and least < _ONE + _NEAR):
            return False
        weight: i64 = (self.weights[transfer] * least) >> _UNIT_BITS
        if weight < _LEAST_WEIGHT:
            weight = _LEAST_WEIGHT
        if weight > _MOST_WEIGHT:
            weight = _MOST_WEIGHT
        changed: bool = weight != self.weights[transfer]
        self.weights[transfer] = weight
        return changed

    def _even(self, closure: i64, link: i64) -> None:
        """Note by which factors the ports that feed a jammed link, and have more to send, become equal.

        A port has more to send if something on it stopped rising here, or if it has more than its part.
        """
        ports: list[int] = []
        asking: list[int] = []
        place: i64 = self.first[link]
        while place < self.first[link + 1]:
            hop: i64 = self.members[place]
            place += 1
            strand: i64 = self.strands[hop]
            if self.kinds[strand] != _PAUSING or hop == self.places[strand]:
                continue
            transfer: i64 = self.owners[strand]
            port: i64 = self.hops[hop - 1]
            if self.port_marks[port] == _UNSET:
                self.port_marks[port] = _IDLE
                self.port_rates[port] = 0
                ports.append(int(port))
            if self.port_marks[port] == _IDLE and self.closures[transfer] == closure:
                self.port_marks[port] = _ASKING
                asking.append(int(port))
            self.port_rates[port] += (self.rates[transfer] * self.shares[strand]) >> _UNIT_BITS
        if len(ports) > 1 and asking:
            self._share_out(closure, ports, asking)
        for one in ports:
            self.port_marks[one] = _UNSET

    def _share_out(self, closure: i64, ports: list[int], asking: list[int]) -> None:
        """Give each of the ports that ask, and those that have more than these would get, the same."""
        total: i64 = 0
        for one in asking:
            total += self.port_rates[one]
        each: i64 = total // len(asking)
        grows: bool = True
        while grows:
            grows = False
            for one in ports:
                if self.port_marks[one] == _IDLE and self.port_rates[one] > each:
                    self.port_marks[one] = _GREEDY
                    asking.append(one)
                    total += self.port_rates[one]
                    grows = True
            each = total // len(asking)
        if each <= 0:
            return
        for one in asking:
            had: i64 = self.port_rates[one]
            if had <= 0:
                continue
            factor: i64 = (each << _UNIT_BITS) // had
            greedy: bool = self.port_marks[one] == _GREEDY
            place: i64 = self.first[one]
            while place < self.first[one + 1]:
                strand: i64 = self.strands[self.members[place]]
                place += 1
                if self.kinds[strand] == _PAUSING and (
                    greedy or self.closures[self.owners[strand]] == closure
                ):
                    after: i64 = (self.factors[strand] * factor) >> _UNIT_BITS
                    self.factors[strand] = after
