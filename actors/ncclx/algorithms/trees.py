"""Double binary tree: two trees, each over half of the data, in which nobody is an inner node twice.

all_reduce goes up and down NCCL's trees. They are trees of servers, the second the first mirrored (their
number even) or shifted by one (odd); inside a server the data goes along a chain, whose first rank talks to
the other servers. Each channel begins its chains with another rank, so that channels leave a server by
different NICs. broadcast goes down, reduce up, with the root outside: the trees span the other ranks, and the
root talks to both of their roots. Data moves in chunks of one step of the channel buffer, with LL128 halved
while there are few of them. On the way up a rank reduces all but one child's chunk into its own and
forwards the last one's in the same GPU operation. Each tree has connections of its own.

Not as in NCCL: a channel has both trees (NCCL's second half of the channels has the second one), and the
first rank of a chain has both children on other servers (NCCL gives one of them to the second rank, by way of
the same NIC).

Source: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
NCCL 2.30, `src/graph/trees.cc`, `src/graph/connect.cc`, `src/device/all_reduce.h` (runTreeSplit),
`src/enqueue.cc` (calcCollChunking).
"""

from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from actors.ncclx.graph import Algorithm, Call, Extent, Step, StepList, cut, parts
from actors.ncclx.protocols import LL128

_SMALLER: Final = ((64, 128 << 10), (16, 32 << 10))
"""Chunks that LL128 wants for each level and rank of a server, and the size from which it halves no more."""


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


class Chains(NamedTuple):
    """The ranks of each server in the order of a channel's chains."""

    servers: list[list[int]]
    server_of: dict[int, int]

    @property
    def depth(self) -> int:
        """The most edges on the way to the root, as NCCL counts them."""
        return len(self.servers[0]) - 1 + (len(self.servers) - 1).bit_length()


def chains(call: Call) -> Chains:
    """Chains of ranks of one channel. Ranks whose server is not given are alone on theirs."""
    return in_servers(call.nodes or tuple(range(call.ranks)), call.channel if call.turned else 0)


@lru_cache(maxsize=64)
def in_servers(nodes: tuple[int, ...], turn: int = 0) -> Chains:
    """Ranks by server, each server's beginning with its `turn`-th. They are made once for all ranks of a
    group, of which each would take time by their number.
    """
    found: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        found.setdefault(node, []).append(rank)
    servers = [[*ranks[turn % len(ranks) :], *ranks[: turn % len(ranks)]] for ranks in found.values()]
    return Chains(servers, {rank: at for at, ranks in enumerate(servers) for rank in ranks})


def place_in(chain: Chains, rank: int, tree: int) -> Node:
    """A rank's place in one of the trees of an all_reduce."""
    server = chain.server_of[rank]
    ranks = chain.servers[server]
    at = ranks.index(rank)
    after = tuple(ranks[at + 1 : at + 2])
    if at:
        return Node(ranks[at - 1], after)
    node = double_tree(len(chain.servers), server, tree)
    below = tuple(chain.servers[child][0] for child in node.children)
    return Node(chain.servers[node.parent][0] if node.parent >= 0 else -1, (*after, *below))


def tree_chunk_bytes(call: Call) -> int:
    """How much a tree forwards at once."""
    chunk = call.step_bytes
    if call.op == "all_reduce" and call.protocol == LL128:
        servers = len(set(call.nodes)) or call.ranks
        levels = 10 * servers.bit_length() * servers + call.ranks  # 1 + log2 M + L / 10, times 10 M
        share = call.cut_bytes // call.channels
        for wanted, least in _SMALLER:
            while 10 * call.ranks * (share // chunk) < wanted * levels and chunk > least:
                chunk //= 2
    return max(chunk, 1)


class DoubleBinaryTree(Algorithm):
    """See above."""

    collectives: ClassVar = ("all_reduce", "broadcast", "reduce", "barrier")

    def steps(self, call: Call, rank: int) -> list[Step]:
        chunk = tree_chunk_bytes(call)
        made = StepList(chunk)
        nodes = [self._place(call, rank, tree) for tree in (0, 1)]
        halves = [cut((half,), chunk) for half in parts(call.whole(), 2)]
        for at in range(max(len(half) for half in halves)):
            for tree, half in enumerate(halves):
                if at < len(half):
                    _chunk(call.op, nodes[tree], half[at], tree, made)
        return made.steps

    def loop(self, call: Call) -> tuple[int, int]:
        depth = chains(call).depth if call.op == "all_reduce" else (call.ranks - 1).bit_length()
        return 2 * call.channels * tree_chunk_bytes(call), 2 * depth

    def reach(self, call: Call) -> int:
        """Every chunk has its own place."""
        return 0

    def _place(self, call: Call, rank: int, tree: int) -> Node:
        if call.op in ("broadcast", "reduce"):
            return self._rooted(call.ranks, rank, call.root, tree)
        return place_in(chains(call), rank, tree)

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


def _chunk(op: str, node: Node, data: tuple[Extent, ...], tree: int, made: StepList) -> None:
    """Down or up, or up and down."""
    if op == "broadcast":
        _down(node, data, tree, made)
    elif op == "reduce":
        _up(node, data, tree, made)
    elif node.parent >= 0:
        _up(node, data, tree, made)
        made.forward(node.parent, data, node.children, lane=tree)
    else:
        for child in node.children[:-1]:
            made.receive(child, data, reduce=True, lane=tree)
        made.forward(node.children[-1], data, node.children, reduce=True, lane=tree)


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
