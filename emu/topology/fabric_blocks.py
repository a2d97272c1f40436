"""Blocks of a fabric: what hangs together below each tier, and which blocks have the same shape.

A *block* of tier t is what remains connected when all switches above tier t are taken away: a rack under its
leaf, a pod under its spines, at last the fabric. A block holds its own switches of tier t and the blocks of
the tier below; blocks of tier 1 hold servers. A rail-optimised segment is one block, since its servers join
its rails.

Blocks have the same *shape* if they hold as many switches and servers of the same kinds, and blocks of the
same shapes below; outlines and drawings show one of each shape and say how often it is there.

*Planes* are what the switches fall apart into without the servers: two in a dual-plane fabric, one for each
rail where nothing joins the rails, otherwise one for all.

Links that skip a tier or join two switches of one count at the higher of their ends.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.fabric.model import Role, Topology

Shape = tuple[object, ...]

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "ai_zone": ("rack",),
    "llama3": ("rack", "pod"),
    "hpn": ("segment", "pod"),
    "dcn_plus": ("segment", "pod"),
    "megascale": ("block", "pod"),
    "multi_plane": ("rack",),
    "fat_tree": ("rack", "pod"),
    "rail_only": ("segment",),
    "star": ("rack",),
}
"""What blocks of tier 1, 2 are called, by the fabric's kind; `rack` and `block` elsewhere."""


class Block(NamedTuple):
    """What hangs together below the tier above."""

    tier: int
    switches: tuple[int, ...]
    """Switches of this tier, ascending."""
    below: tuple[Block, ...]
    """Blocks of lower tiers, by their first server."""
    hosts: tuple[int, ...]
    """Servers that hang on no lower block, as node numbers of their hosts."""
    shape: Shape


def word(topology: Topology, tier: int) -> str:
    """What a block of this tier is called."""
    words = WORDS.get(topology.kind, ("rack",))
    return words[tier - 1] if tier <= len(words) else "block"


def plane_word(topology: Topology) -> str:
    """What a plane is called."""
    return "rail" if topology.kind == "rail_only" else "plane"


def blocks(topology: Topology) -> tuple[Block, ...]:
    """The blocks of the highest tier: one, unless the fabric is in parts."""
    nodes = topology.nodes
    root = list(range(len(nodes)))
    highest = max((nodes[switch].tier for switch in topology.switches), default=0)
    by_tier: list[list[tuple[int, int]]] = [[] for _ in range(highest + 1)]
    for link in topology.links:
        by_tier[max(nodes[link.a].tier, nodes[link.b].tier, 0)].append((link.a, link.b))
    for a, b in by_tier[0]:
        _join(root, a, b)
    found = [_server(topology, host) for host in topology.hosts]
    for tier in range(1, highest + 1):
        for a, b in by_tier[tier]:
            _join(root, a, b)
        found = _grown(topology, tier, root, found)
    return tuple(found)


def planes(topology: Topology) -> dict[int, int]:
    """The plane of each switch, counted by their first switches."""
    root = list(range(len(topology.nodes)))
    for link in topology.links:
        if topology.nodes[link.a].role is topology.nodes[link.b].role is Role.SWITCH:
            _join(root, link.a, link.b)
    numbers: dict[int, int] = {}
    return {switch: numbers.setdefault(_top(root, switch), len(numbers)) for switch in topology.switches}


def _top(root: list[int], node: int) -> int:
    while root[node] != node:
        root[node] = root[root[node]]
        node = root[node]
    return node


def _join(root: list[int], a: int, b: int) -> None:
    low, high = sorted((_top(root, a), _top(root, b)))
    root[high] = low


def _server(topology: Topology, host: int) -> Block:
    """A server by itself: a block of tier 0."""
    inside = topology.server(topology.nodes[host].host)
    kinds = tuple(topology.nodes[node].model for node in inside)
    return Block(0, (), (), (host,), (0, kinds))


def _grown(topology: Topology, tier: int, root: list[int], lower: list[Block]) -> list[Block]:
    """The blocks of a tier out of those below it. What no switch of the tier joins stays as it is."""
    parts: dict[int, list[Block]] = {}
    for block in lower:
        first = block.hosts[0] if block.hosts else _first(block)
        parts.setdefault(_top(root, first), []).append(block)
    switches: dict[int, list[int]] = {}
    for switch in topology.switches:
        if topology.nodes[switch].tier == tier:
            top = _top(root, switch)
            parts.setdefault(top, [])
            switches.setdefault(top, []).append(switch)
    grown: list[Block] = []
    for top, below in parts.items():
        if top not in switches:
            grown += below
            continue
        hosts = tuple(host for block in below if block.tier == 0 for host in block.hosts)
        inner = tuple(block for block in below if block.tier > 0)
        models = tuple(topology.nodes[switch].model for switch in switches[top])
        shapes: dict[Shape, int] = {}
        for block in below:
            shapes[block.shape] = shapes.get(block.shape, 0) + 1
        shape = (tier, models, tuple(shapes.items()))
        grown.append(Block(tier, tuple(switches[top]), inner, hosts, shape))
    return grown


def _first(block: Block) -> int:
    """Any node of the block."""
    return block.switches[0]
