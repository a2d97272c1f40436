"""Requests for isolated runs: which calls are run together, which are known, and which are too large.

Calls that begin at one time and share links are run together, with the ranks as late as they come. The
results are kept by what a run depends on. A call that would take more than `MOST_HOPS` packet-hops is run in
part, if all runs have taken many events or it takes more than `MOST_WHOLE_HOPS`, or not at all: then it has a
closed form (`emu.flow.calls`), or is rejected.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from actors.flow.progress import Progress
from emu.flow.isolated import IsolatedRuns, Part, Result

MOST_HOPS: Final = 2_500_000
"""Packet-hops of an isolated run that is never broken off."""
MOST_WHOLE_HOPS: Final = 20_000_000
"""Packet-hops of one that is not, unless all runs together have taken many events: what `auto` takes in
packets. How a long ring begins does not say how it goes on: with links of 10 us, ranks that set out in
lockstep drift apart after some millions of events, and the ring is a fifth faster from then on."""
EVENTS_OF_HOP: Final = 4
"""Events of a packet-hop at most: rings take 3.3."""
LEAST_EVENTS: Final = 4_000_000
"""Events of a run that is broken off: at least, and at most until its rates have settled."""
MOST_EVENTS: Final = 32_000_000
"""Events of a run whose rates have not settled, at most."""
MOST_PAIRS: Final = 8192
"""Queue pairs of one of a call that has one."""
MOST_IN_ALL: Final = 100_000_000
"""Events of all isolated runs of a run, but those that are needed."""
ENOUGH: Final = 8_000_000
"""Events of all isolated runs of a run, before the first of a kind stands for the others of it."""


@dataclass(frozen=True)
class Request:
    """A call that begins, for which an isolated run is wanted."""

    key: Hashable
    """What the run depends on, but for what it shares links with."""
    links: Iterable[int]
    """What it uses: those that use the same are run together."""
    hops: int
    """Packet-hops of its run, about."""
    pairs: int
    """Queue pairs that send in it."""
    needed: bool
    """Whether it has no closed form."""
    parts: Callable[[], Sequence[Part]]
    """Tells what is run, if it is."""
    slices: int
    """Slices of one part, where the run may be broken off; else 0."""
    answer: Callable[[Result | None], None]
    """To be called with the result; None: it is too large."""
    longer: Sequence[Part] = ()
    """A longer part, if the call is run in part."""
    times: Fraction | int = 0
    """How often what the longer part takes more is to be added."""
    kind: Hashable = None
    """What it has in common with others whose run stands for its own once runs have cost enough."""
    sampled: bool = False
    """Whether its parts are a sample of many groups: of these it is enough to see how they begin."""
    stands: bool = False
    """Whether the first of its kind stands for the others from the beginning."""

    @property
    def fits(self) -> bool:
        """Whether it can be run, in part at least."""
        if self.needed:
            return True
        return self.pairs <= MOST_PAIRS and (self.hops <= MOST_HOPS or self.slices > 0)

    def of_parts(self, part: Result, longer: Result) -> Result:
        """The result of the call, by those of two parts of it."""
        if not self.longer:
            return part
        of_ranks = tuple(
            int(a + self.times * (b - a)) for a, b in zip(part.of_ranks, longer.of_ranks, strict=True)
        )
        return Result(int(part.end_ps + self.times * (longer.end_ps - part.end_ps)), of_ranks)


class Requests:
    """The requests of one run of a scenario, answered when all calls of one time have begun."""

    def __init__(self, runs: IsolatedRuns, progress: Progress, epoch: Callable[[], int]) -> None:
        self._runs = runs
        self._progress = progress
        self._epoch = epoch
        """Another number whenever links, routes or GPUs have changed."""
        self._open: list[Request] = []
        self._known: dict[Hashable, list[tuple[Result, Result]]] = {}
        self._first_of_kind: dict[Hashable, list[tuple[Result, Result]]] = {}
        self._events = 0
        self.rejected = 0
        """Calls that were too large to be run."""
        self.broken_off = False
        """Whether a run was broken off."""

    def ask(self, request: Request) -> None:
        """A call begins now; it is answered when all others of this time have begun."""
        if not self._open:
            self._progress.at(self._progress.now_ps, self._answer)
        self._open.append(request)

    def _answer(self) -> None:
        requests, self._open = self._open, []
        found: dict[int, Result] = {}
        for together in _sharing(requests):
            asked = [requests[one] for one in together]
            rings = all(one.slices for one in asked) and sum(one.pairs for one in asked) <= MOST_PAIRS
            if rings or sum(one.hops for one in asked) <= MOST_HOPS:
                self._run(requests, together, found)
                continue
            for one in together:
                if requests[one].fits:
                    self._run(requests, [one], found)
        self.rejected += len(requests) - len(found)
        for at, request in enumerate(requests):
            request.answer(found.get(at))

    def _run(self, requests: Sequence[Request], together: Sequence[int], found: dict[int, Result]) -> None:
        asked = [requests[one] for one in together]
        key = (self._epoch(), *(one.key for one in asked))
        kind = (self._epoch(), *(one.kind for one in asked))
        known = self._known.get(key)
        stands = self._events > ENOUGH or all(one.stands for one in asked)
        if known is None and stands and None not in kind:
            known = self._first_of_kind.get(kind)
        if known is None:
            if self._events > MOST_IN_ALL and not any(one.needed for one in asked):
                return
            parts = [one.parts() for one in asked]
            short = self._results(asked, parts)
            long = short
            if any(one.longer for one in asked):
                long = self._results(
                    asked, [one.longer or own for one, own in zip(asked, parts, strict=True)]
                )
            known = self._known[key] = list(zip(short, long, strict=True))
            self._first_of_kind.setdefault(kind, known)
        for one, both in zip(together, known, strict=True):
            found[one] = requests[one].of_parts(*both)

    def _results(self, asked: Sequence[Request], parts: Sequence[Sequence[Part]]) -> list[Result]:
        """The result of each request: of all its parts."""
        before = self._runs.executed
        hops = sum(one.hops for one in asked)
        sampled = any(one.sampled for one in asked)
        room = self._events + EVENTS_OF_HOP * hops <= MOST_IN_ALL
        whole = hops <= MOST_WHOLE_HOPS and room and not sampled
        large = hops > MOST_HOPS and not whole and all(one.slices for one in asked)
        least = LEAST_EVENTS if large else 0
        most = LEAST_EVENTS if sampled else min(MOST_EVENTS, MOST_IN_ALL - self._events)
        self.broken_off = self.broken_off or large
        results = iter(self._runs.run([part for each in parts for part in each], least, most))
        self._events += self._runs.executed - before
        found: list[Result] = []
        for each in parts:
            own = [next(results) for _ in each]
            found.append(Result(max(one.end_ps for one in own), own[0].of_ranks))
        return found


def _sharing(requests: Sequence[Request]) -> list[list[int]]:
    """Places of requests that share links, directly or by way of others; each set by its first."""
    if len(requests) == 1:
        return [[0]]
    above = list(range(len(requests)))

    def top(one: int) -> int:
        while above[one] != one:
            above[one] = above[above[one]]
            one = above[one]
        return one

    users: dict[int, int] = {}
    for at, request in enumerate(requests):
        for link in request.links:
            a, b = top(users.setdefault(link, at)), top(at)
            above[max(a, b)] = min(a, b)
    found: dict[int, list[int]] = {}
    for at in range(len(requests)):
        found.setdefault(top(at), []).append(at)
    return list(found.values())
