"""Double binary tree: two trees, each over half of the data, in which nobody is an inner node twice.

all_reduce goes up and down NCCL's trees: the second is the first mirrored (n even) or shifted by one (n
odd). broadcast goes down, reduce up, with the root outside: the trees span the other ranks, and the root
talks to both of their roots. Data moves in chunks of one step of the channel buffer, halved, for all_reduce,
while there are fewer than 8 chunks per level (down to 128 KiB), 4 (64 KiB), 1 (32 KiB). On the way up a rank
reduces one child's chunk into its own and forwards the other's in the same GPU operation. Each tree has
connections of its own. An all_reduce's trees go through the ranks in the order of the channel's ring, so that
channels leave a server by different NICs.

Source: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
NCCL 2.30, `src/graph/trees.cc`, `src/device/all_reduce.h` (runTreeUpDown), `src/enqueue.cc`.
"""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from actors.ncclx.graph import Algorithm, Call, Extent, Step, StepList, cut, parts

_SMALLER: Final = ((8, 128 << 10), (4, 64 << 10), (1, 32 << 10))


class Node(NamedTuple):
    """A place in a tree; -1 is nobody."""

    parent: int
    children: tuple[int, ...]


def binary_tree(ranks: int, rank: int) -> Node:
    """NCCL's ncclGetBtree: even ranks are inner nodes, odd ones leaves; 0 is the root and has one child."""
    bit = 1
    while bit < ranks and not bit & rank:
        bit <<= 1
    if rank == 0:
        return Node(-1, (bit >> 1,) if ranks > 1 else ())
    parent = (rank ^ bit) | (bit << 1)
    if parent >= ranks:
        parent = rank ^ bit
    children: list[int] = []
    low = bit >> 1
    if low:
        children.append(rank - low)
        while low and rank + low >= ranks:
            low >>= 1
        if low:
            children.append(rank + low)
    return Node(parent, tuple(children))


def double_tree(ranks: int, rank: int, tree: int) -> Node:
    """A rank's place in one of the two trees."""
    if tree == 0:
        return binary_tree(ranks, rank)
    if ranks % 2 == 0:
        node = binary_tree(ranks, ranks - 1 - rank)
        return Node(
            ranks - 1 - node.parent if node.parent >= 0 else -1,
            tuple(ranks - 1 - child for child in node.children),
        )
    node = binary_tree(ranks, (rank - 1) % ranks)
    return Node(
        (node.parent + 1) % ranks if node.parent >= 0 else -1,
        tuple((child + 1) % ranks for child in node.children),
    )


def tree_chunk_bytes(call: Call) -> int:
    """How much a tree forwards at once."""
    chunk = call.step_bytes
    if call.op == "all_reduce":
        depth = (call.ranks - 1).bit_length()
        share = call.cut_bytes // call.channels
        for per_level, least in _SMALLER:
            while share // chunk < depth * per_level and chunk > least:
                chunk //= 2
    return max(chunk, 1)


class DoubleBinaryTree(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_reduce", "broadcast", "reduce", "barrier")

    def steps(self, call: Call, rank: int) -> list[Step]:
        chunk = tree_chunk_bytes(call)
        made = StepList(chunk)
        halves = [cut((half,), chunk) for half in parts(call.whole(), 2)]
        for at in range(max(len(half) for half in halves)):
            for tree, half in enumerate(halves):
                if at < len(half):
                    self._chunk(call, rank, tree, half[at], made)
        return made.steps

    def loop(self, call: Call) -> tuple[int, int]:
        return 2 * call.channels * tree_chunk_bytes(call), 2 * (call.ranks - 1).bit_length()

    def _chunk(self, call: Call, rank: int, tree: int, data: tuple[Extent, ...], made: StepList) -> None:
        n = call.ranks
        if call.op in ("broadcast", "reduce"):
            node = self._rooted(n, rank, call.root, tree)
            if call.op == "broadcast":
                _down(node, data, tree, made)
            else:
                _up(node, data, tree, made)
            return
        ring = call.ring()
        place = double_tree(n, ring.index(rank), tree)
        node = Node(
            ring[place.parent] if place.parent >= 0 else -1, tuple(ring[child] for child in place.children)
        )
        if node.parent >= 0:
            _up(node, data, tree, made)
            made.forward(node.parent, data, node.children, lane=tree)
        else:
            for child in node.children[:-1]:
                made.receive(child, data, reduce=True, lane=tree)
            made.forward(node.children[-1], data, node.children, reduce=True, lane=tree)

    def _rooted(self, ranks: int, rank: int, root: int, tree: int) -> Node:
        """Trees over all but the root, which are hung below it."""
        others = ranks - 1

        def back(place: int) -> int:
            return (place + 1 + root) % ranks

        if rank == root:
            (top,) = (one for one in range(others) if double_tree(others, one, tree).parent < 0)
            return Node(-1, (back(top),))
        node = double_tree(others, (rank - root - 1) % ranks, tree)
        parent = back(node.parent) if node.parent >= 0 else root
        return Node(parent, tuple(back(child) for child in node.children))


def _up(node: Node, data: tuple[Extent, ...], tree: int, made: StepList) -> None:
    onwards = (node.parent,) if node.parent >= 0 else ()
    if not node.children:
        made.send(node.parent, data, lane=tree)
        return
    for child in node.children[:-1]:
        made.receive(child, data, reduce=True, lane=tree)
    made.forward(node.children[-1], data, onwards, reduce=True, lane=tree)


def _down(node: Node, data: tuple[Extent, ...], tree: int, made: StepList) -> None:
    if node.parent < 0:
        for child in node.children:
            made.send(child, data, lane=tree)
    else:
        made.forward(node.parent, data, node.children, lane=tree)
