"""Equal-cost routes: the ports of a switch that lie on a shortest path to each prefix.

Equal-cost groups by hop count over the switches whose links are up. Servers do not forward, so only links
between two switches count; a NIC hangs below the switches of its prefix. Parallel links are members of
their own. A switch that a prefix hangs on delivers locally and has no group for it.

How. All prefixes are searched at once: a switch keeps, as one integer with a bit per prefix, which prefixes
it reaches within d hops; one sweep over the links takes that from d to d + 1. The sweeps are as many as the
fabric is deep, each a few thousand wide ORs, so 24,576 GPUs on 1,536 leaves take a fraction of a second.
The groups of one switch are then read off its neighbours' levels, on demand: a worker pays for its own
switches only.

A set of links that are down gives another `Routes`. `equal_cost_groups` and `local_ports` keep the most
recent ones per topology. The result depends on the topology and the set of links alone.

Valley-free routes. On a tiered fabric (`Topology.valley_free`) a path goes up the tiers, or sideways, and
then down: no leaf carries what is on its way between two spines. That is what BGP makes of a Clos whose
spines share an AS number: a spine refuses a route that has its own number in its path. So where a spine loses
its link to a leaf it has no route there, although a third leaf would. A switch that has a way down to a
destination takes no other. Without failures these are the shortest paths.

Source of valley-free routes: RFC 7938, sections 4.3 and 5.2.1.

Host routes. A prefix whose NICs hang on several switches (dual-ToR) is announced address by address, as the
leaves of HPN do from what they learn by ARP: a leaf that lost its link to a NIC withdraws that address. So a
NIC that has lost some of its links is a destination of its own, below only the switches it still hangs on;
`host_groups` has the ports towards it. The leaf that lost the link sends to the other leaf where the graph
has a way there (one plane), and has no route where it has none (two planes). NICs of one prefix that kept
the same switches share a destination. A prefix on a single switch is announced as a whole, so what is sent
to a NIC that lost its only link travels to its leaf and is dropped there.

Source of host routes: Alibaba HPN (SIGCOMM'24), non-stacked dual-ToR. Not modelled: weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from actors.fabric.model import FABRIC, INDEX_BITS, Role, Topology

NOTHING_DOWN: Final[frozenset[int]] = frozenset()
Groups = tuple[tuple[int, ...], ...]


class Routes:
    """Shortest paths of one topology with a given set of links down."""

    __slots__ = (
        "_below",
        "_down",
        "_downwards",
        "_groups",
        "_index",
        "_levels",
        "_local",
        "_neighbours",
        "_strays",
        "_topology",
    )

    def __init__(self, topology: Topology, down: frozenset[int] = NOTHING_DOWN) -> None:
        self._topology = topology
        self._down = down
        self._index = {switch: index for index, switch in enumerate(topology.switches)}
        self._neighbours = [self._switch_ports(switch) for switch in topology.switches]
        self._below = [topology.prefix_switches(prefix) for prefix in range(topology.prefixes)]
        self._strays = self._host_routes()
        self._downwards: list[list[int]] = []
        self._levels = self._search_valley_free() if topology.valley_free else self._search()
        self._groups: dict[int, Groups] = {}
        self._local: dict[int, dict[int, int]] = {}

    def held(self) -> tuple[int, int]:
        """How many switches' groups were read off so far, and how many distinct groups they have together."""
        distinct = sum(len(dict.fromkeys(groups)) for groups in self._groups.values())
        return len(self._groups), distinct

    def groups(self, switch: int) -> Groups:
        """For each prefix the ascending egress ports on shortest paths; empty where local or unreachable."""
        return self._all_groups(switch)[: self._topology.prefixes]

    def host_groups(self, switch: int) -> dict[int, tuple[int, ...]]:
        """Ascending egress ports by address, for each NIC that lost some of its links and so left its prefix.

        Empty ports: no route. Addresses that this switch delivers itself are in `local_ports` and not here.
        """
        groups = self._all_groups(switch)
        return {
            address: groups[destination]
            for address, destination in self._strays.items()
            if switch not in self._below[destination]
        }

    def local_ports(self, switch: int) -> dict[int, int]:
        """Address to port for each NIC whose link to this switch is up; of several ports the lowest.

        Worked out once: not for the caller to change.
        """
        found = self._local.get(switch)
        if found is not None:
            return found
        topology = self._topology
        local = self._local[switch] = {}
        for port, attachment in enumerate(topology.ports(switch)):
            peer = topology.nodes[attachment.peer]
            if peer.role is Role.NIC and attachment.link not in self._down:
                local.setdefault(topology.address_of(attachment.peer), port)
        return local

    def towards(self, switch: int, address: int) -> tuple[int | None, tuple[int, ...]]:
        """The port on which a switch delivers to an address, else the ports it would choose from."""
        local = self.local_ports(switch).get(address)
        if local is not None:
            return local, ()
        return None, self._all_groups(switch)[self._strays.get(address, address >> INDEX_BITS)]

    def reached_from(self, switch: int) -> int:
        """The prefixes this switch reaches, itself included, as a bit set."""
        return self._levels[-1][self._index[switch]] & ((1 << self._topology.prefixes) - 1)

    def reaches(self, switch: int, address: int) -> bool:
        """Whether this switch has a route to a NIC's address, or delivers it."""
        destination = self._strays.get(address, address >> INDEX_BITS)
        return bool(self._levels[-1][self._index[switch]] >> destination & 1)

    def all_reachable(self) -> bool:
        """Whether every switch with NICs reaches all prefixes that any of them does."""
        ends = dict.fromkeys(switch for below in self._below for switch in below)
        return len(dict.fromkeys(self.reached_from(switch) for switch in ends)) <= 1

    def distance(self, switch: int, prefix: int) -> int:
        """Hops between switches to the nearest switch of the prefix; -1 where it is unreachable."""
        index = self._index[switch]
        for hops, level in enumerate(self._levels):
            if level[index] >> prefix & 1:
                return hops
        return -1

    def most_switches(self) -> int:
        """Switches on the longest of the shortest paths between two NICs."""
        topology = self._topology
        ends = sorted({s for prefix in range(topology.prefixes) for s in topology.prefix_switches(prefix)})
        places = [self._index[switch] for switch in ends]
        last = self._levels[-1]
        hops = 0
        while any(self._levels[hops][place] != last[place] for place in places):
            hops += 1
        return hops + 1

    def _switch_ports(self, switch: int) -> list[tuple[int, int]]:
        """(port, index of the switch at the other end) for each link that is up."""
        index = self._index
        return [
            (port, index[attachment.peer])
            for port, attachment in enumerate(self._topology.ports(switch))
            if attachment.peer in index and attachment.link not in self._down
        ]

    def _host_routes(self) -> dict[int, int]:
        """The destination of each address that left its prefix; destinations count on from the prefixes."""
        topology, nodes = self._topology, self._topology.nodes
        lost: dict[int, None] = {}
        for number in sorted(self._down):
            link = topology.links[number]
            lost.update((end, None) for end in (link.a, link.b) if nodes[end].role is Role.NIC)
        strays: dict[int, int] = {}
        destinations: dict[tuple[int, tuple[int, ...]], int] = {}
        for nic in lost:
            address = topology.address_of(nic)
            prefix = address >> INDEX_BITS
            around = topology.prefix_switches(prefix)
            kept = [port.peer for port in topology.ports(nic) if port.link not in self._down]
            left = tuple(switch for switch in around if switch in kept)
            if len(around) == 1 or left == around:
                continue
            destination = destinations.get((prefix, left))
            if destination is None:
                destination = destinations[prefix, left] = len(self._below)
                self._below.append(left)
            strays[address] = destination
        return strays

    def _all_groups(self, switch: int) -> Groups:
        """For each destination (prefixes, then host routes) the egress ports of this switch."""
        found = self._groups.get(switch)
        if found is None:
            found = self._groups[switch] = self._read_off(self._index[switch])
        return found

    def _first_level(self) -> list[int]:
        """For each switch the destinations that hang on it."""
        level = [0] * len(self._topology.switches)
        for destination, switches in enumerate(self._below):
            for switch in switches:
                level[self._index[switch]] |= 1 << destination
        return level

    def _search(self) -> list[list[int]]:
        """Level d holds for each switch the destinations within d hops. The last level is complete."""
        level = self._first_level()
        levels = [level]
        peers = [list(dict.fromkeys(peer for _, peer in ports)) for ports in self._neighbours]
        while True:
            wider = list(level)
            for index, others in enumerate(peers):
                bits = level[index]
                for other in others:
                    bits |= level[other]
                wider[index] = bits
            if wider == level:
                return levels
            levels.append(wider)
            level = wider

    def _split(self) -> tuple[list[list[int]], list[list[int]]]:
        """For each switch its neighbours in lower tiers, and the others, by index."""
        nodes, switches = self._topology.nodes, self._topology.switches
        tiers = [nodes[switch].tier for switch in switches]
        peers = [dict.fromkeys(peer for _, peer in ports) for ports in self._neighbours]
        lower = [[peer for peer in own if tiers[peer] < tiers[at]] for at, own in enumerate(peers)]
        upper = [[peer for peer in own if tiers[peer] >= tiers[at]] for at, own in enumerate(peers)]
        return lower, upper

    def _search_valley_free(self) -> list[list[int]]:
        """As `_search`, but up no more once it went down; `_downwards` has what is straight down."""
        lower, upper = self._split()
        level = self._first_level()
        downwards = self._downwards = [level]
        while True:
            wider = [_joined(bits, level, lower[index]) for index, bits in enumerate(level)]
            if wider == level:
                break
            downwards.append(wider)
            level = wider
        level = downwards[0]
        levels = [level]
        while True:
            straight = downwards[min(len(levels), len(downwards)) - 1]
            wider = [
                _joined(bits, straight, lower[index]) | _joined(0, level, upper[index]) & ~below
                for index, (bits, below) in enumerate(zip(level, downwards[-1], strict=True))
            ]
            if wider == level:
                return levels
            levels.append(wider)
            level = wider

    def _read_off(self, index: int) -> Groups:
        """A port is a member for a prefix where its peer is one hop nearer."""
        levels, downwards = self._levels, self._downwards
        nodes = self._topology.nodes
        own_tier = nodes[self._topology.switches[index]].tier
        below = downwards[-1][index] if downwards else 0
        steps = [
            (here & ~before, hops)
            for hops, (before, here) in enumerate(pairwise(level[index] for level in levels))
        ]
        members: dict[int, list[int]] = {}
        for port, peer in self._neighbours[index]:
            prefixes = 0
            straight = bool(downwards) and nodes[self._topology.switches[peer]].tier < own_tier
            for at_distance, hops in steps:
                if straight:
                    prefixes |= at_distance & downwards[min(hops, len(downwards) - 1)][peer]
                else:
                    prefixes |= at_distance & ~below & levels[hops][peer]
            if prefixes:
                members.setdefault(prefixes, []).append(port)
        groups: list[tuple[int, ...]] = [()] * len(self._below)
        for prefixes, ports in _disjoint(members):
            group = tuple(sorted(ports))
            for begin, end in _runs(prefixes):
                groups[begin:end] = [group] * (end - begin)
        return tuple(groups)


_RECENT = "routes"
"""In `Topology.derived`: routes by the links that are down. They know the fabric, so they live with it."""
_LEAST_KEPT = 4
_MOST_KEPT = 256
_KEPT_LINKS = 1 << 20
"""Sets are kept until their fabrics have so many links together: a switch that goes down takes its links one
by one, and every switch asks for each of these sets in turn."""


def routes(topology: Topology, down: frozenset[int] = NOTHING_DOWN) -> Routes:
    """The routes of a topology with these links down, shared between callers. The last few sets are kept."""
    kept: dict[tuple[int, ...], Routes] = topology.derived.setdefault(_RECENT, {})
    # Links below the hosts carry no route: a host link that is down must not cost a search.
    relevant = frozenset(link for link in down if topology.links[link].kind == FABRIC)
    key = (int(topology.valley_free), *sorted(relevant))
    found = kept.pop(key, None)
    if found is None:
        found = Routes(topology, relevant)
        most = min(max(_KEPT_LINKS // (len(topology.links) + 1), _LEAST_KEPT), _MOST_KEPT)
        if len(kept) >= most:
            del kept[next(iter(kept))]
    kept[key] = found
    return found


def equal_cost_groups(topology: Topology, switch: int, down: frozenset[int] = NOTHING_DOWN) -> Groups:
    """For each prefix, the ascending egress ports on shortest paths over links that are not `down`.

    Empty for a prefix that is unreachable, or directly attached (see `local_ports`).
    """
    return routes(topology, down).groups(switch)


def local_ports(topology: Topology, switch: int, down: frozenset[int] = NOTHING_DOWN) -> dict[int, int]:
    """Address to egress port for each NIC directly attached to the switch by a link that is not `down`."""
    return routes(topology, down).local_ports(switch)


def host_groups(
    topology: Topology, switch: int, down: frozenset[int] = NOTHING_DOWN
) -> dict[int, tuple[int, ...]]:
    """Egress ports by address for the NICs that lost one of several links, and do not follow their prefix."""
    return routes(topology, down).host_groups(switch)


def _joined(bits: int, level: list[int], peers: list[int]) -> int:
    """These destinations, and those that a level has for any of these switches."""
    for peer in peers:
        bits |= level[peer]
    return bits


def _disjoint(members: dict[int, list[int]]) -> list[tuple[int, list[int]]]:
    """Disjoint prefix sets and the ports serving each: an overlap of two sets has the ports of both."""
    parts: list[tuple[int, list[int]]] = []
    covered = 0
    for prefixes, ports in members.items():
        rest = prefixes & ~covered
        if rest != prefixes:
            split: list[tuple[int, list[int]]] = []
            for part, already in parts:
                both = part & prefixes
                if both:
                    split.append((both, already + ports))
                    if part != both:
                        split.append((part & ~both, already))
                else:
                    split.append((part, already))
            parts = split
        if rest:
            parts.append((rest, ports))
        covered |= prefixes
    return parts


def _runs(value: int) -> Iterator[tuple[int, int]]:
    """Where ones follow one another, ascending: the first position, and the one after the last."""
    digits = bin(value)[:1:-1]
    begin = digits.find("1")
    while begin >= 0:
        end = digits.find("0", begin)
        end = len(digits) if end < 0 else end
        yield begin, end
        begin = digits.find("1", end)
