"""How long is the longest way between two NICs?

Packets take ways of fewest switches (`actors.fabric.routing`); of those between any two NICs the dearest
counts, by costs that the caller gives to links and switches. One search from the leaves of a prefix gives it
for all others, level by level: a switch costs what the dearest of its neighbours on the level before does,
and the link to it.

The generated fabrics look alike from everywhere, so of many prefixes `SEARCHES`, evenly spread, are enough;
up to so many the answer is exact for any fabric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from actors.fabric.model import FABRIC, Attachment, Role, Topology

SEARCHES: Final = 32

LinkCost = Callable[[Attachment], int]
SwitchCost = Callable[[int], int]


def longest_way(topology: Topology, link_cost: LinkCost, switch_cost: SwitchCost) -> int:
    """The cost of the dearest way between two NICs; 0 where no two NICs meet."""
    below = [_last_links(topology, prefix, link_cost) for prefix in range(topology.prefixes)]
    longest = max(
        (one + other + switch_cost(at) for links in below for at, (one, other) in links.items() if other),
        default=0,
    )
    ways: dict[int, list[tuple[int, int]]] = {
        switch: [
            (end.peer, link_cost(end))
            for end in topology.ports(switch)
            if end.kind == FABRIC and topology.nodes[end.peer].role is Role.SWITCH
        ]
        for switch in topology.switches
    }
    costs = {switch: switch_cost(switch) for switch in topology.switches}
    for target in range(0, topology.prefixes, -(-topology.prefixes // SEARCHES)):
        found = {switch: last + costs[switch] for switch, (last, _) in below[target].items()}
        level = dict(found)
        while level:
            further: dict[int, int] = {}
            for switch, cost in level.items():
                for peer, link in ways[switch]:
                    if peer not in found:
                        further[peer] = max(further.get(peer, 0), cost + link)
            level = {switch: cost + costs[switch] for switch, cost in further.items()}
            found |= level
        for prefix, links in enumerate(below):
            if prefix != target:
                ends = [found[at] + last for at, (last, _) in links.items() if at in found]
                longest = max([longest, *ends])
    return longest


def _last_links(topology: Topology, prefix: int, link_cost: LinkCost) -> dict[int, tuple[int, int]]:
    """The two dearest links from each switch of a prefix to a NIC, the second 0 where there is one."""
    found: dict[int, tuple[int, int]] = {}
    for nic in topology.prefix_nics(prefix):
        for end in topology.ports(nic):
            if end.kind == FABRIC and topology.nodes[end.peer].role is Role.SWITCH:
                first, second = found.get(end.peer, (0, 0))
                cost = link_cost(end)
                found[end.peer] = (cost, first) if cost > first else (first, max(second, cost))
    return found
