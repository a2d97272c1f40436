"""How far transfers are: they begin, go on at rates that change when others begin or end, and end.

Between two such moments every rate is constant, so time goes from one of them to the next. Rates are worked
out anew when the set of transfers has changed; a set that was there before is looked up.

Times are in ps, rates in kbit/s; what is left of a transfer is kept in billionths of bits, so that a rate
times a time needs no division, and nothing is lost by rounding but the last ps of each transfer.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from actors.flow.filling import PAUSING, UNIT, Filling
from actors.flow.queues import Buffers, Lane, Queues

NANOS: Final = 10**9
"""kbit/s x ps in a bit."""
MOST_KNOWN: Final = 4096
"""Sets of transfers whose rates are kept."""


class Strand(NamedTuple):
    """A share of a transfer's rate on a path of links; see `actors.flow.filling`."""

    share: int
    links: tuple[int, ...]
    kind: int = PAUSING


class Shape(NamedTuple):
    """All of a transfer but its size: whoever has the same shape at the same time has the same rate."""

    strands: tuple[Strand, ...]
    weight: int = UNIT
    most_kbps: int = 0
    """What it could have alone, where links are not what limits it; 0: links do."""
    window_bits: int = 0
    """Most that it has under way; 0: it sends without waiting for anything."""


class _Work:
    """A transfer under way."""

    __slots__ = ("done", "left", "rate", "shape")

    def __init__(self, shape: int, left: int, done: Callable[[], None]) -> None:
        self.shape = shape
        self.left = left
        self.rate = 0
        self.done = done


class Together:
    """Transfers of some shapes at the same time: what they make of queues, and their rates where some jam."""

    def __init__(self, capacities_kbps: list[int], shapes: list[Shape]) -> None:
        self.shapes = shapes
        lanes = [
            Lane(number, shape.weight, strand.share, strand.links, shape.most_kbps)
            for number, shape in enumerate(shapes)
            for strand in shape.strands
            if strand.kind == PAUSING
        ]
        self.queues = Queues(capacities_kbps, lanes)
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
        self._capacities = capacities_kbps
        self._buffers = buffers
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._pushed = 0
        self._works: list[_Work] = []
        self._changed = False
        self._numbers: dict[Shape, int] = {}
        self._shapes: list[Shape] = []
        self._known: dict[tuple[int, ...], Together] = {}

    def at(self, time_ps: int, call: Callable[[], None]) -> None:
        """Call somebody at a time, those of one time in the order in which they asked."""
        heappush(self._queue, (max(time_ps, self.now_ps), self._pushed, call))
        self._pushed += 1

    def begin(self, shape: Shape, size_bits: int, done: Callable[[], None]) -> None:
        """Begin a transfer now, and call `done` when its last bit has left."""
        number = self._numbers.get(shape)
        if number is None:
            number = self._numbers[shape] = len(self._shapes)
            self._shapes.append(shape)
        self._works.append(_Work(number, size_bits * NANOS, done))
        self._changed = True

    def run(self, until_ps: int) -> bool:
        """Go on until nothing is under way and nobody is to be called; False if it is not so by then."""
        while self._queue or self._works:
            if self._changed:
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
                self._changed = True
                for work in over:
                    work.done()
            while self._queue and self._queue[0][0] == next_ps:
                heappop(self._queue)[2]()
        return True

    def _solve(self) -> None:
        self._changed = False
        works = sorted(self._works, key=lambda work: work.shape)
        key = tuple(work.shape for work in works)
        together = self._known.get(key)
        if together is None:
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            together = Together(self._capacities, [self._shapes[number] for number in key])
            self._known[key] = together
        jammed: frozenset[int] = frozenset()
        if self._buffers is not None:
            waiting = [
                min(work.left // NANOS, shape.window_bits or work.left)
                for work, shape in zip(works, together.shapes, strict=True)
            ]
            jammed = frozenset(together.queues.jammed(self._buffers, waiting))
        rates = together.rates.get(jammed)
        if rates is None:
            self.solves += 1
            rates = together.unpaused() if together.free and not jammed else self._rates(together, jammed)
            together.rates[jammed] = rates
        for work, rate in zip(works, rates, strict=True):
            work.rate = rate

    def _rates(self, together: Together, jammed: frozenset[int]) -> list[int]:
        """The rates of transfers, at least 1 kbit/s each."""
        filling = Filling(self._capacities, pauses=bool(jammed))
        for link in range(len(self._capacities)):
            filling.jams[link] = link in jammed
        for shape in together.shapes:
            transfer = filling.transfer(shape.weight)
            for strand in shape.strands:
                filling.strand(transfer, strand.share, list(strand.links), strand.kind)
            if shape.most_kbps:
                filling.limit(transfer, shape.most_kbps)
        return [max(rate, 1) for rate in filling.rates()]
