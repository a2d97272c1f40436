"""How far transfers are: they begin, go on at rates that change when others begin or end, and end.

Between two such moments every rate is constant, so time goes from one of them to the next.

Only what a change can reach is worked out again. A link couples the transfers on it if it can be full: if
together they could send more than it carries, each as fast as the links of its own path let it alone. Who is
not coupled, directly or by way of others, is in another *part*, and keeps its rates to the bit. Where ports
are paused, what they stop goes further: such a part is worked out with all that it shares any link with.
Parts that were there before are looked up.

Times are in ps, rates in kbit/s; what is left of a transfer is kept in billionths of bits, so that a rate
times a time needs no division, and nothing is lost by rounding but the last ps of each transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from actors.flow.filling import LIGHT, PAUSING, UNIT, Filling
from actors.flow.switch_queues import Buffers, Lane, Queues, Waiting, jammed

NANOS: Final = 10**9
"""kbit/s x ps in a bit."""
MOST_KNOWN: Final = 4096
"""Sets of transfers whose rates are kept."""


class Strand(NamedTuple):
    """A share of a transfer's rate on a path of links; see `actors.flow.filling`."""

    share: int
    links: tuple[int, ...]
    kind: int = PAUSING
    pair: int = -1
    """Whose packets they are, where its path may change."""


class Shape(NamedTuple):
    """All of a transfer but its size: whoever has the same shape at the same time has the same rate."""

    strands: tuple[Strand, ...]
    weight: int = UNIT
    most_kbps: int = 0
    """What it could have alone, where links are not what limits it; 0: links do."""
    window_bits: int = 0
    """Most that it has under way; 0: it sends without waiting for anything."""


class Work:
    """A transfer under way."""

    __slots__ = ("done", "left", "part", "rate", "shape")

    def __init__(self, shape: int, left: int, done: Callable[[], None]) -> None:
        self.shape = shape
        self.left = left
        self.rate = 0
        self.done = done
        self.part: _Part | None = None


class _Part:
    """Transfers that are coupled, by their shapes."""

    __slots__ = ("key", "together", "works")

    def __init__(self, key: tuple[int, ...], works: list[Work], together: Together) -> None:
        self.key = key
        self.works = works
        self.together = together


class Link:
    """Who is on a link, and what they could send at most, in kbit/s."""

    __slots__ = ("most", "works")

    def __init__(self) -> None:
        self.most = 0
        self.works: dict[Work, None] = {}


class Together:
    """Transfers of some shapes at the same time: what they make of queues, and their rates where some jam."""

    def __init__(self, capacities_kbps: list[int], shapes: list[Shape], behind: Sequence[bool] = ()) -> None:
        self.shapes = shapes
        lanes = [
            Lane(number, shape.weight, strand.share, strand.links, shape.most_kbps)
            for number, shape in enumerate(shapes)
            for strand in shape.strands
            if strand.kind == PAUSING
        ]
        self.queues = Queues(capacities_kbps, lanes, behind)
        whole = [0] * len(shapes)
        for lane in lanes:
            whole[lane.transfer] += lane.share
        self.free = all(shape.window_bits == 0 for shape in shapes) and all(one == UNIT for one in whole)
        """Whether nobody waits for anybody: flows, each of one queue pair."""
        self.rates: dict[frozenset[int], list[int]] = {}
        """By the links for which ports are paused."""

    def unpaused(self) -> list[int]:
        """Rates where queues pass on what comes, of which the last part is there with the slowest lane."""
        found = [0] * len(self.shapes)
        for lane, rate in zip(self.queues.lanes, self.queues.rates, strict=True):
            of_lane = rate * UNIT // max(lane.share, 1)
            found[lane.transfer] = min(found[lane.transfer] or of_lane, of_lane)
        return found


class Progress:
    """Transfers on links of these capacities; without `buffers` no port is ever paused."""

    def __init__(self, capacities_kbps: list[int], buffers: Buffers | None = None) -> None:
        self.now_ps = 0
        self.solves = 0
        """How often rates were worked out."""
        self.touched = 0
        """Transfers that all solutions together went through."""
        self._capacities = capacities_kbps
        self._buffers = buffers
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._pushed = 0
        self._works: list[Work] = []
        self._new: list[Work] = []
        self._shaken: dict[_Part, None] = {}
        """Parts of which something has ended, or that are coupled with something new."""
        self._parts: dict[_Part, None] = {}
        self._rated: dict[_Part, frozenset[int]] = {}
        """By part that has its rates, the links for which ports were paused; all that it was paused with."""
        self._links: dict[int, Link] = {}
        self._numbers: dict[Shape, int] = {}
        self._shapes: list[Shape] = []
        self._loads: list[dict[int, int]] = []
        """By shape, what it could put on links."""
        self._known: dict[tuple[int, ...], Together] = {}

    def at(self, time_ps: int, call: Callable[[], None]) -> None:
        """Call somebody at a time, those of one time in the order in which they asked."""
        heappush(self._queue, (max(time_ps, self.now_ps), self._pushed, call))
        self._pushed += 1

    def computing_ps(self, gpu: int, duration_ps: int) -> int:
        """How long a GPU takes from now on for what usually takes so long."""
        del gpu
        return duration_ps

    def begin(self, shape: Shape, size_bits: int, done: Callable[[], None]) -> None:
        """Begin a transfer now, and call `done` when its last bit has left."""
        self.put(shape, size_bits, done)

    def put(self, shape: Shape, size_bits: int, done: Callable[[], None]) -> Work:
        """The same; returns what can be taken away again."""
        work = Work(self._number(shape), size_bits * NANOS, done)
        self._works.append(work)
        self._new.append(work)
        return work

    def take(self, work: Work) -> int:
        """Take a transfer away: what is left of it, in bits."""
        self._works.remove(work)
        if work.part is None:
            self._new.remove(work)
        else:
            self._leave(work)
        return max(work.left // NANOS, 0)

    def reshape(self, work: Work, shape: Shape) -> None:
        """Let a transfer go on by other paths."""
        if work.part is not None:
            self._leave(work)
            work.part = None
            self._new.append(work)
        work.shape = self._number(shape)

    def set_capacity(self, link: int, kbps: int) -> None:
        """A link has another rate from now on."""
        self._capacities[link] = kbps
        self._loads = [self._loads_of(shape) for shape in self._shapes]
        for known in (self._known, self._links, self._parts, self._rated, self._shaken):
            known.clear()
        for work in self._works:
            work.part = None
        self._new = list(self._works)

    def _number(self, shape: Shape) -> int:
        number = self._numbers.get(shape)
        if number is None:
            number = self._numbers[shape] = len(self._shapes)
            self._shapes.append(shape)
            self._loads.append(self._loads_of(shape))
        return number

    def run(self, until_ps: int) -> bool:
        """Go on until nothing is under way and nobody is to be called; False if it is not so by then."""
        while self._queue or self._works:
            if self._new or self._shaken:
                self._solve()
            next_ps = self._queue[0][0] if self._queue else until_ps + 1
            for work in self._works:
                next_ps = min(next_ps, self.now_ps - work.left // -work.rate)
            if next_ps > until_ps:
                return False
            passed_ps = next_ps - self.now_ps
            self.now_ps = next_ps
            ended = False
            for work in self._works:
                work.left -= work.rate * passed_ps
                ended = ended or work.left <= 0
            if ended:
                over = [work for work in self._works if work.left <= 0]
                self._works = [work for work in self._works if work.left > 0]
                for work in over:
                    self._leave(work)
                for work in over:
                    work.done()
            while self._queue and self._queue[0][0] == next_ps:
                heappop(self._queue)[2]()
        return True

    def alone_kbps(self, shape: Shape) -> int:
        """The rate of a transfer while nobody else sends."""
        shares: dict[int, int] = {}
        for share, links, kind, _ in shape.strands:
            for link in links if kind != LIGHT else ():
                shares[link] = shares.get(link, 0) + share
        most = min(self._capacities[link] * UNIT // share for link, share in shares.items())
        return min(most, shape.most_kbps) if shape.most_kbps else most

    # ---- who is coupled with whom

    def _loads_of(self, shape: Shape) -> dict[int, int]:
        """What a shape could put on its links at most, with what rounding may add. Where buffers take up what
        links cannot pass on, only the links before one hold back what comes there.
        """
        most = self.alone_kbps(shape)
        entering: dict[int, int] = {}
        for share, links, kind, _ in shape.strands:
            if kind == PAUSING:
                entering[links[0]] = entering.get(links[0], 0) + share
        spare = shape.weight // UNIT + 2
        found: dict[int, int] = {}
        for share, links, kind, _ in shape.strands:
            comes = most * share // UNIT
            if kind == PAUSING and self._buffers is not None:
                comes = self._capacities[links[0]] * share // entering[links[0]]
                if shape.most_kbps:
                    comes = min(comes, shape.most_kbps * share // UNIT)
            for link in links:
                found[link] = found.get(link, 0) + comes + spare
                comes = min(comes, self._capacities[link])
        return found

    def _couples(self, number: int, link: Link) -> bool:
        """Whether a link can be full."""
        return link.most >= self._capacities[number]

    def _come(self, work: Work) -> None:
        for number, most in self._loads[work.shape].items():
            link = self._links.get(number)
            if link is None:
                link = self._links[number] = Link()
            link.works[work] = None
            link.most += most
            if self._couples(number, link):
                self._shaken.update((one.part, None) for one in link.works if one.part is not None)

    def _leave(self, work: Work) -> None:
        assert work.part is not None
        self._shaken[work.part] = None
        work.part.works.remove(work)
        for number, most in self._loads[work.shape].items():
            link = self._links[number]
            del link.works[work]
            link.most -= most
            if not link.works:
                del self._links[number]

    def _part(self) -> None:
        """Make parts of what is new, and of what was in parts that changed."""
        for work in self._new:
            self._come(work)
        pool = self._new
        self._new = []
        for part in self._shaken:
            pool += part.works
            del self._parts[part]
            self._rated.pop(part, None)
            for work in part.works:
                work.part = None
        self._shaken = {}
        for first in pool:
            if first.part is None:
                part = self._made(self._reached([first], anyhow=False))
                self._parts[part] = None
                for work in part.works:
                    work.part = part

    def _reached(self, found: list[Work], *, anyhow: bool) -> list[Work]:
        """All that these are coupled with, or share any link with."""
        known = dict.fromkeys(found)
        seen: set[int] = set()
        for work in found:
            for number in self._loads[work.shape]:
                if number in seen:
                    continue
                seen.add(number)
                link = self._links[number]
                if anyhow or self._couples(number, link):
                    more = [one for one in link.works if one not in known]
                    known.update(dict.fromkeys(more))
                    found += more
        return found

    def _made(self, works: list[Work]) -> _Part:
        works.sort(key=lambda work: work.shape)
        key = tuple(work.shape for work in works)
        together = self._known.get(key)
        if together is None:
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            behind = () if self._buffers is None else self._buffers.behind
            shapes = [self._shapes[number] for number in key]
            together = self._known[key] = Together(self._capacities, shapes, behind)
        return _Part(key, works, together)

    # ---- rates

    def _solve(self) -> None:
        self._part()
        jammed = self._jammed()
        wider: list[_Part] = []
        within: set[Work] = set()
        for part in self._parts if jammed else ():
            if part.works[0] not in within and jammed.intersection(part.together.queues.waits_for):
                wider.append(self._made(self._reached(list(part.works), anyhow=True)))
                within.update(wider[-1].works)
        for part in self._parts:
            if part.works[0] in within:
                self._rated.pop(part, None)
            elif part not in self._rated:
                self._rated[part] = frozenset()
                self._rate(part, frozenset())
        for part in wider:
            self._rate(part, jammed.intersection(part.together.queues.waits_for))

    def _jammed(self) -> frozenset[int]:
        """The links for which ports are paused."""
        if self._buffers is None:
            return frozenset()
        waiting: list[Waiting] = []
        for part in self._parts:
            queues = part.together.queues
            if queues.waits_for:
                bits = [
                    min(work.left // NANOS, shape.window_bits or work.left)
                    for work, shape in zip(part.works, part.together.shapes, strict=True)
                ]
                waiting += queues.waiting(bits)
        return frozenset(jammed(self._buffers, waiting))

    def _rate(self, part: _Part, jammed: frozenset[int]) -> None:
        together = part.together
        rates = together.rates.get(jammed)
        if rates is None:
            self.solves += 1
            self.touched += len(part.works)
            rates = together.unpaused() if together.free and not jammed else self._rates(together, jammed)
            together.rates[jammed] = rates
        for work, rate in zip(part.works, rates, strict=True):
            work.rate = rate

    def _rates(self, together: Together, jammed: frozenset[int]) -> list[int]:
        """The rates of transfers, at least 1 kbit/s each."""
        links: dict[int, int] = {}
        for shape in together.shapes:
            for strand in shape.strands:
                for link in strand.links:
                    links.setdefault(link, link)
        # in the order of their numbers, which is that of links that are full at one level
        places = {link: place for place, link in enumerate(sorted(links))}
        behind = together.queues.behind
        evens = [bool(behind) and behind[link] for link in places]
        filling = Filling([self._capacities[link] for link in places], pauses=bool(jammed) or any(evens))
        filling.jams = [link in jammed for link in places]
        filling.evens = evens
        for shape in together.shapes:
            transfer = filling.transfer(shape.weight)
            for strand in shape.strands:
                path = [places[link] for link in strand.links]
                filling.strand(transfer, strand.share, path, strand.kind)
            if shape.most_kbps:
                filling.limit(transfer, shape.most_kbps)
        return [max(rate, 1) for rate in filling.rates()]
