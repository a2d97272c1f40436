"""In which order a job's ranks go through its servers: the policies, and the traffic that one goes by.

    placed    as the placement lists them
    topology  along the fabric, so that a ring leaves each part of it once
    random    drawn, as by a launcher that does not know where servers sit
    traffic   servers whose ranks send each other most in one part of the fabric: in a pod, there in a rack

A *slot* is a server's worth of ranks: with eight GPUs a server, slot 0 has ranks 0 to 7. What slots send each
other is worked out from the plan of the job's workload, on servers (2,048 at most) that are all as far from
one another, so that it depends on the job alone.

`traffic` cuts the slots into as many as the job has servers in each pod, then those of a pod into racks: a
part grows by the slot that sends most to it, and slots of two parts change places as long as that leaves less
between them. Source of the idea: Kernighan and Lin, An efficient heuristic procedure for partitioning graphs
(1970); Fiduccia and Mattheyses (1982). The least cut is not guaranteed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from itertools import combinations, product
from typing import Any, ClassVar, Final

from actors.kernel.knobs import Knob, Knobs
from actors.kernel.mixing import Stream
from emu.devices.drawing import blueprint_of
from emu.devices.pricing.estimate import messages_of
from emu.doors.weeks.server_placement import FreeServers, shuffled
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology

Traffic = Mapping[int, Mapping[int, int]]
"""By slot, the bytes that go between it and each other slot, in both directions together."""
TRIED: Final = 8
"""Slots of either part of which one may change its place with one of the other."""


def traffic_of(gpus: int, gpus_per_server: int, workload: Mapping[str, Any]) -> Traffic:
    """What the slots of a job of so many GPUs send each other. Raises ScenarioError where it cannot run."""
    servers = -(-gpus // gpus_per_server)
    equal = {"kind": "ai_zone", "racks": servers, "hosts_per_rack": 1, "spines": 1}
    equal["gpus_per_host"] = min(gpus, gpus_per_server)
    job = {"name": "job", "ranks": gpus, "workload": workload}
    scenario = load_mapping({"name": "traffic", "topology": equal, "jobs": [job]}).scenario
    (work,) = blueprint_of(scenario, build_topology(scenario)).plan.jobs
    found: dict[int, dict[int, int]] = {slot: {} for slot in range(servers)}
    assert work.wired is not None, workload
    for sent, count in messages_of(work.wired):
        slots = sent.source // gpus_per_server, sent.destination // gpus_per_server
        if slots[0] != slots[1]:
            moved = count * sum(size * times for size, times in sent.sizes.items())
            for one, other in (slots, slots[::-1]):
                found[one][other] = found[one].get(other, 0) + moved
    return found


class RankOrder(ABC):
    """Base of the policies. One for each simulation; it may keep state."""

    knobs: ClassVar[tuple[Knob, ...]] = ()

    def __init__(self, knobs: Knobs, stream: Stream) -> None:
        """`stream` is for draws of its own."""
        self.knobs_read = knobs
        self.stream = stream

    @abstractmethod
    def order(
        self, free: FreeServers, servers: Sequence[int], traffic: Callable[[], Traffic]
    ) -> Sequence[int]:
        """The servers of a job, that of its first ranks first. `traffic()` works out what its slots send."""


class AsPlaced(RankOrder):
    """As the placement lists them."""

    def order(
        self, free: FreeServers, servers: Sequence[int], traffic: Callable[[], Traffic]
    ) -> Sequence[int]:
        """As they come."""
        return servers


class AlongFabric(RankOrder):
    """Along the fabric."""

    def order(
        self, free: FreeServers, servers: Sequence[int], traffic: Callable[[], Traffic]
    ) -> Sequence[int]:
        """Part by part."""
        return sorted(servers, key=free.place_of)


class DrawnOrder(RankOrder):
    """Any order."""

    def order(
        self, free: FreeServers, servers: Sequence[int], traffic: Callable[[], Traffic]
    ) -> Sequence[int]:
        """Drawn."""
        return shuffled(servers, self.stream)


class ByTraffic(RankOrder):
    """Slots that send each other most near one another."""

    def order(
        self, free: FreeServers, servers: Sequence[int], traffic: Callable[[], Traffic]
    ) -> Sequence[int]:
        """Pod by pod, there rack by rack; along the fabric within a rack."""
        found: dict[int, int] = {}
        if len(servers) > 1:
            placed = sorted(servers, key=free.place_of)
            _settle(range(len(placed)), placed, free.where, 0, traffic(), found)
        return [found[slot] for slot in range(len(found))] or servers


def _settle(
    slots: Sequence[int],
    servers: Sequence[int],
    where: Sequence[Sequence[int]],
    tier: int,
    traffic: Traffic,
    found: dict[int, int],
) -> None:
    """Give each slot one of as many servers, which are in one part of the tier above."""
    if len(servers) == 1 or tier == len(where[servers[0]]):
        found.update(zip(sorted(slots), servers, strict=True))
        return
    parts: dict[int, list[int]] = {}
    for server in servers:
        parts.setdefault(where[server][tier], []).append(server)
    largest_first = sorted(parts.values(), key=len, reverse=True)
    for part, inside in zip(largest_first, cut(slots, list(map(len, largest_first)), traffic), strict=True):
        _settle(inside, part, where, tier + 1, traffic, found)


def cut(slots: Sequence[int], sizes: Sequence[int], traffic: Traffic) -> list[list[int]]:
    """Slots in parts of these sizes, with as little between parts as the heuristic finds."""
    left = dict.fromkeys(sorted(slots))
    parts: list[list[int]] = []
    placed: dict[int, int] = {}
    """By slot, what it sends to those that have a part."""
    for size in sizes:
        inside: dict[int, int] = {}
        part: list[int] = []
        while len(part) < size:
            # at first next to what has a part, or else at an edge: the slot that sends least
            slot = (
                max(left, key=lambda one: (inside.get(one, 0), placed.get(one, 0), -one))
                if part or placed
                else min(left, key=lambda one: (sum(traffic[one].values()), one))
            )
            del left[slot]
            part.append(slot)
            for other, moved in traffic[slot].items():
                inside[other] = inside.get(other, 0) + moved
        for slot in part:
            for other, moved in traffic[slot].items():
                placed[other] = placed.get(other, 0) + moved
        parts.append(part)
    home = {slot: at for at, part in enumerate(parts) for slot in part}
    while any(_changed(parts, home, *pair, traffic) for pair in combinations(range(len(parts)), 2)):
        pass
    return parts


def _changed(parts: list[list[int]], home: dict[int, int], p: int, q: int, traffic: Traffic) -> bool:
    """Let one slot of `p` and one of `q` change places, if that leaves less between the two parts."""

    def gain(slot: int) -> int:
        """What moving it to the other part takes off the cut."""
        mine, other = home[slot], p + q - home[slot]
        return sum(
            moved if home.get(peer) == other else -moved if home.get(peer) == mine else 0
            for peer, moved in traffic[slot].items()
        )

    of_either = [nlargest(TRIED, parts[at], key=gain) for at in (p, q)]
    gained, a, b = max((gain(a) + gain(b) - 2 * traffic[a].get(b, 0), a, b) for a, b in product(*of_either))
    if gained > 0:
        parts[p][parts[p].index(a)], parts[q][parts[q].index(b)] = b, a
        home[a], home[b] = q, p
    return gained > 0
