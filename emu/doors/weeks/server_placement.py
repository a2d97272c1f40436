"""Which servers of a cluster a job gets: what is free, and the policies that choose.

A job takes whole servers, so that its ranks stay on their rails; one smaller than a server shares one with
others. A policy chooses among the servers that are wholly free:

    contiguous  those with the lowest numbers
    scattered   one from each rack in turn
    random      drawn, as a scheduler that does not know where servers sit
    min_cut     out of the fewest and smallest parts of the fabric (rack, pod) that have room
    rails       out of the fewest groups of servers that share the leaves of their rails (racks, segments)
    zones       within a zone (the largest of several parts: a pod), for which a job waits; else as min_cut

A small job gets the server with the least room that is enough; where none has, the policy chooses a server.

Source of `min_cut`: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM'24), section 5.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from actors.fabric.model import Topology
from actors.kernel.knobs import Knob, Knobs
from actors.kernel.mixing import Stream
from emu.topology.fabric_blocks import blocks, word
from emu.workload.parts import Part, fewest_parts, parts_of


class FreeServers:
    """The servers of a cluster, and what is free of them."""

    def __init__(self, topology: Topology) -> None:
        place = {host: index for index, host in enumerate(topology.hosts)}
        gpus: list[list[int]] = [[] for _ in topology.hosts]
        for index, gpu in enumerate(topology.gpus):
            gpus[place[topology.host_of(gpu)]].append(index)
        self.gpus: list[list[int]] = gpus
        """Free GPUs of each server, as indices into the topology's."""
        self.size: int = max(map(len, gpus))
        """GPUs of a server."""
        self.total_gpus: int = len(topology.gpus)
        self.busy_gpus: int = 0
        leaves: list[Part] = []

        def leaf(host: int) -> Part:
            leaves.append(Part(0, (), [place[host]]))
            return leaves[-1]

        self.parts: list[Part] = [parts_of(block, leaf) for block in blocks(topology)]
        """The largest parts; a part counts servers that are wholly free."""
        self._leaf: dict[int, Part] = {part.units[0]: part for part in leaves}
        self._place: dict[int, int] = {part.units[0]: place for place, part in enumerate(leaves)}
        self._roomy: list[set[int]] = [set() for _ in range(self.size)]
        """Servers that are partly free, by how many GPUs are."""
        self._tiers: dict[str, list[Part]] = {}
        """For each tier with several parts, by what these are called, the part of each server."""
        for tier in range(1, max(part.tier for part in self.parts) + 1):
            of_server = [self._part_at(server, tier) for server in range(len(gpus))]
            if len({id(part) for part in of_server}) > 1:
                self._tiers[word(topology, tier)] = of_server
        tiers = list(reversed(self._tiers.values()))
        numbers = [{id(part): at for at, part in enumerate(dict.fromkeys(one))} for one in tiers]
        self.where: list[tuple[int, ...]] = [
            tuple(of[id(one[server])] for of, one in zip(numbers, tiers, strict=True))
            for server in range(len(gpus))
        ]
        """The part of each server in every tier that has several, by number, the largest first."""
        self.zones: list[tuple[Part, int]] = [
            (part, part.free) for part in dict.fromkeys(next(iter(tiers), ()))
        ]
        """The largest parts of which there are several, and how many servers each has."""
        self._least: dict[str, list[int]] = {
            tier: sorted({id(part): part.free for part in of_server}.values(), reverse=True)
            for tier, of_server in self._tiers.items()
        }

    @property
    def whole(self) -> int:
        """Servers that are wholly free."""
        return sum(part.free for part in self.parts)

    @property
    def stranded_gpus(self) -> int:
        """Free GPUs on servers that others use, where no job of a whole server fits."""
        return sum(free * len(servers) for free, servers in enumerate(self._roomy))

    def racks(self) -> Iterator[Sequence[int]]:
        """The wholly free servers of each part that has no smaller ones but servers."""
        waiting = list(reversed(self.parts))
        while waiting:
            part = waiting.pop()
            if part.tier > 1 and all(one.tier > 0 for one in part.below):
                waiting += reversed(part.below)
            else:
                yield [server for leaf in self._leaves(part) for server in leaf.units]

    def place_of(self, server: int) -> int:
        """Where a server is along the fabric: those of a part follow one another."""
        return self._place[server]

    def is_whole(self, server: int) -> bool:
        """Whether nobody uses a server."""
        return bool(self._leaf[server].units)

    def roomiest_fit(self, gpus: int) -> int | None:
        """The server in use with the least room for so many GPUs; the first of several."""
        for servers in self._roomy[gpus:]:
            if servers:
                return min(servers)
        return None

    def take(self, server: int, gpus: Sequence[int]) -> None:
        """Free GPUs of a server are taken."""
        free = self.gpus[server]
        if len(free) == self.size:
            self._leaf[server].take(server)
        else:
            self._roomy[len(free)].discard(server)
        left = self.gpus[server] = [gpu for gpu in free if gpu not in gpus]
        if left:
            self._roomy[len(left)].add(server)
        self.busy_gpus += len(gpus)

    def give_back(self, server: int, gpus: Sequence[int]) -> None:
        """GPUs of a server are free again."""
        before = self.gpus[server]
        after = self.gpus[server] = sorted([*before, *gpus])
        if before:
            self._roomy[len(before)].discard(server)
        if len(after) == self.size:
            self._leaf[server].give_back(server)
        else:
            self._roomy[len(after)].add(server)
        self.busy_gpus -= len(gpus)

    def spans(self, servers: Sequence[int]) -> dict[str, int]:
        """In how many racks, pods and so on these servers are."""
        return {
            tier: len({id(of_server[server]) for server in servers})
            for tier, of_server in self._tiers.items()
        }

    def least_spans(self, count: int) -> dict[str, int]:
        """In how many racks, pods and so on so many servers must be, were all free."""
        found = {}
        for tier, sizes in self._least.items():
            held = parts = 0
            while held < count:
                held += sizes[parts]
                parts += 1
            found[tier] = parts
        return found

    def _part_at(self, server: int, tier: int) -> Part:
        part = self._leaf[server]
        while part.above is not None and part.above.tier <= tier:
            part = part.above
        return part

    def _leaves(self, part: Part) -> Iterator[Part]:
        if part.below:
            for one in part.below:
                yield from self._leaves(one)
        else:
            yield part


def shuffled(servers: Sequence[int], stream: Stream, count: int | None = None) -> list[int]:
    """As many of these servers as asked for, or all, drawn without putting back."""
    left = list(servers)
    many = len(left) if count is None else count
    for at in range(many):
        other = at + stream.below(len(left) - at)
        left[at], left[other] = left[other], left[at]
    return left[:many]


class ServerPlacement(ABC):
    """Base of the policies. One for each simulation; it may keep state."""

    knobs: ClassVar[tuple[Knob, ...]] = ()
    waits: ClassVar[bool] = False
    """Whether a job may wait for its place though enough servers are free: `fits` says when."""

    def __init__(self, knobs: Knobs, stream: Stream) -> None:
        """`stream` is for draws of its own."""
        self.knobs_read = knobs
        self.stream = stream

    def fits(self, free: FreeServers, count: int) -> bool:
        """Whether a job of `count` servers begins now; at least so many are wholly free."""
        return True

    @abstractmethod
    def servers(self, free: FreeServers, count: int) -> Sequence[int]:
        """`count` wholly free servers in rank order; at least so many are free. They stay free."""


class Contiguous(ServerPlacement):
    """The lowest numbers."""

    def servers(self, free: FreeServers, count: int) -> Sequence[int]:
        """The first that are free."""
        found: list[int] = []
        for server in range(len(free.gpus)):
            if len(found) == count:
                break
            if free.is_whole(server):
                found.append(server)
        return found


class Scattered(ServerPlacement):
    """One from each rack in turn."""

    def servers(self, free: FreeServers, count: int) -> Sequence[int]:
        """The first of each rack, then the second of each."""
        racks = list(free.racks())
        deepest = max(map(len, racks))
        return [rack[at] for at in range(deepest) for rack in racks if at < len(rack)][:count]


class Drawn(ServerPlacement):
    """Any that are free."""

    def servers(self, free: FreeServers, count: int) -> Sequence[int]:
        """Drawn without putting back, in the order drawn."""
        return shuffled(
            [server for server in range(len(free.gpus)) if free.is_whole(server)], self.stream, count
        )


class MinCut(ServerPlacement):
    """As few and as small parts of the fabric as can be."""

    def servers(self, free: FreeServers, count: int) -> Sequence[int]:
        """Part by part, so that a ring leaves each once."""
        return fewest_parts(free.parts, count)


class Rails(ServerPlacement):
    """As few groups of servers that share the leaves of their rails as can be, near one another."""

    def servers(self, free: FreeServers, count: int) -> Sequence[int]:
        """Group by group: the tightest that holds what is left, else the fullest; near ones first."""
        equal: dict[tuple[int, tuple[int, ...]], list[Sequence[int]]] = {}
        room: Counter[tuple[int, ...]] = Counter()
        for group in filter(None, free.racks()):
            around = free.where[group[0]][:-1]
            equal.setdefault((len(group), around), []).append(group)
            room[around] += len(group)
        found: list[int] = []
        reached: set[tuple[int, ...]] = set()
        """What those found are in: pods, and what is larger."""

        def rank(kind: tuple[int, tuple[int, ...]]) -> tuple[int, int, int, int]:
            size, around = kind
            left = count - len(found)
            away = sum(around[: at + 1] not in reached for at in range(len(around))) if reached else 0
            return max(-size, -left), away, room[around] if size >= left else -room[around], size

        while len(found) < count:
            best = min(equal, key=rank)
            groups = equal[best]
            found += groups.pop(0)[: count - len(found)]
            if not groups:
                del equal[best]
            reached.update(best[1][: at + 1] for at in range(len(best[1])))
        return found


class Zones(MinCut):
    """Within a zone, however long that takes, as a scheduler does that lets no job cross the core if it need
    not. A job that no zone could hold takes the fewest."""

    waits = True

    def fits(self, free: FreeServers, count: int) -> bool:
        """Whether a zone has room for it, or none ever had."""
        return any(zone.free >= count for zone, _ in free.zones) or all(
            size < count for _, size in free.zones
        )
