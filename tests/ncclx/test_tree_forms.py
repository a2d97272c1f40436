"""Do the double binary trees take the time of their pipeline, whatever the number of chunks?

With one chunk in each tree there is a closed form (`tests.ncclx.test_closed_forms`). With more the two trees
share the lines, in an order that depends on when each chunk gets where; so the form is a recurrence, over
every packet of every chunk. It is worked out here from configuration alone, with the terms of the closed
forms and these rules:

* A rank's messages leave on one line. Those of several connections take turns, a packet each.
* What comes to a rank comes on one line, packet by packet in the order in which they left the switch.
* A message that is here is copied (its turn at the GPU's memory, then the latency), and goes on: on the way
  up when all children's are here, on the way down to all children at once. The root of an all_reduce turns
  round, that of a broadcast begins, that of a reduce ends.
* Who begins sends chunk after chunk, tree by tree. A connection has so many slots: a message has one from its
  post until the clear-to-send that says that it was copied out is back.

Acknowledgements and clear-to-sends on the lines of data, 0.2 % of it, are not in it.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

import pytest

from tests.ncclx.test_closed_forms import (
    COPY_PS,
    CTS,
    DELAY_PS,
    MTU,
    NIC_PS,
    SLICE,
    SWITCH_PS,
    H,
    line,
    memory,
    packets,
    took_ps,
)

SLOTS: Final = 16
SIZES: Final = (256 << 10, 1 << 20, 4 << 20, 12 << 20)
"""Of 1 to 48 chunks for each tree."""
PARENTS: Final = {
    3: {2: 0, 1: 2},
    4: {2: 0, 1: 2, 3: 2},
    5: {4: 0, 2: 4, 1: 2, 3: 2},
    6: {4: 0, 2: 4, 5: 4, 1: 2, 3: 2},
    7: {4: 0, 2: 4, 6: 4, 1: 2, 3: 2, 5: 6},
    8: {4: 0, 2: 4, 6: 4, 1: 2, 3: 2, 5: 6, 7: 6},
}
"""NCCL's tree over so many ranks: the parent of each but the root."""

Connection = tuple[int, int, int, bool]
"""From, to, tree, and whether it leads up."""


def both_trees(ranks: int) -> list[dict[int, int]]:
    """NCCL's second tree is the first mirrored, or for an odd number shifted by one."""
    tree = PARENTS[ranks]
    if ranks % 2:
        return [tree, {(one + 1) % ranks: (up + 1) % ranks for one, up in tree.items()}]
    return [tree, {ranks - 1 - one: ranks - 1 - up for one, up in tree.items()}]


def rooted_trees(ranks: int) -> list[dict[int, int]]:
    """Over all ranks but 0, which is above both."""
    found = []
    for tree in both_trees(ranks - 1):
        (top,) = set(tree.values()) - set(tree)
        found.append({one + 1: up + 1 for one, up in tree.items()} | {top + 1: 0})
    return found


class Pipeline:
    """Chunks in two trees. `ends_ps` is when the last copy is known to be done."""

    def __init__(self, op: str, ranks: int, chunk: int, chunks: int) -> None:
        self.up = both_trees(ranks) if op == "all_reduce" else rooted_trees(ranks)
        self.down: list[dict[int, list[int]]] = [{} for _ in self.up]
        for children, tree in zip(self.down, self.up, strict=True):
            for one, parent in tree.items():
                children.setdefault(parent, []).append(one)
        self.rises, self.falls = op != "broadcast", op != "reduce"
        self.chunk, self.chunks = chunk, chunks
        count = packets(chunk)
        self.packet_ps = [line(min(MTU, chunk - at * MTU) + 82) for at in range(count)]
        self.events: list[tuple[float, int, str, tuple[object, ...]]] = []
        self.pushed = 0
        self.begun: dict[Connection, int] = {}
        self.under_way: dict[Connection, int] = {}
        self.held: dict[Connection, int] = {}
        self.messages: dict[Connection, deque[int]] = {}
        self.turns: list[deque[Connection]] = [deque() for _ in range(ranks)]
        self.sending = [False] * ranks
        self.line_in_ps = [0.0] * ranks
        self.memory_ps = [0.0] * ranks
        self.here: dict[tuple[int, int], list[deque[Connection]]] = {}
        self.ends_ps = 0.0

    def run(self) -> float:
        begins = [
            (rank, tree, up)
            for rank in range(len(self.turns))
            for tree, parents in enumerate(self.up)
            for up in (True, False)
            if (self.rises and up and rank in parents and rank not in self.down[tree])
            or (not self.rises and not up and rank not in parents and rank in self.down[tree])
        ]
        for _ in range(min(self.chunks, SLOTS)):
            for rank, tree, up in begins:
                for connection in self.onwards(rank, tree, up):
                    self.begun[connection] = self.begun.get(connection, 0) + 1
                    self.push(max(self.copied(rank, H), CTS), "filled", connection)
        while self.events:
            now, _, what, args = heapq.heappop(self.events)
            getattr(self, what)(now, *args)
        return self.ends_ps

    def push(self, time_ps: float, what: str, *args: object) -> None:
        self.pushed += 1
        heapq.heappush(self.events, (time_ps, self.pushed, what, args))

    def onwards(self, rank: int, tree: int, up: bool) -> list[Connection]:
        """Where what a rank has goes."""
        if up and rank in self.up[tree]:
            return [(rank, self.up[tree][rank], tree, True)]
        if self.falls:
            return [(rank, child, tree, False) for child in self.down[tree].get(rank, ())]
        return []

    def copied(self, rank: int, asked_ps: float) -> float:
        """When the host knows that a copy is done that it asked the GPU for."""
        self.memory_ps[rank] = max(self.memory_ps[rank], asked_ps) + memory(self.chunk)
        return self.memory_ps[rank] + COPY_PS + H

    def filled(self, now: float, connection: Connection) -> None:
        if self.under_way.get(connection, 0) == SLOTS:
            self.held[connection] = self.held.get(connection, 0) + 1
            return
        self.under_way[connection] = self.under_way.get(connection, 0) + 1
        self.push(now + H, "posted", connection)

    def posted(self, now: float, connection: Connection) -> None:
        waiting = self.messages.setdefault(connection, deque())
        waiting.append(0)
        if len(waiting) == 1:
            self.turns[connection[0]].append(connection)
        if not self.sending[connection[0]]:
            self.send(now, connection[0])

    def send(self, now: float, rank: int) -> None:
        """The line out is free: a packet of the connection whose turn it is."""
        self.sending[rank] = bool(self.turns[rank])
        if not self.turns[rank]:
            return
        connection = self.turns[rank].popleft()
        waiting = self.messages[connection]
        at = waiting[0]
        waiting[0] += 1
        if waiting[0] == len(self.packet_ps):
            waiting.popleft()
        if waiting:
            self.turns[rank].append(connection)
        out = now + self.packet_ps[at]
        self.push(out, "send", rank)
        self.push(out + DELAY_PS + SWITCH_PS, "passed", connection, at)

    def passed(self, now: float, connection: Connection, at: int) -> None:
        """A packet is at the switch's port."""
        rank = connection[1]
        self.line_in_ps[rank] = max(self.line_in_ps[rank], now) + self.packet_ps[at]
        if at == len(self.packet_ps) - 1:
            self.push(self.line_in_ps[rank] + DELAY_PS + NIC_PS + H, "came", connection)

    def came(self, now: float, connection: Connection) -> None:
        """The host hears of a message."""
        _, rank, tree, up = connection
        if not up:
            self.go_on(now, connection)
            return
        children = self.down[tree][rank]
        lines = self.here.setdefault((tree, rank), [deque() for _ in children])
        lines[children.index(connection[0])].append(connection)
        if all(lines):
            *others, last = (one.popleft() for one in lines)
            for other in others:
                self.push(self.copied(rank, now + H) + CTS, "cleared", other)
            self.go_on(now, last)

    def go_on(self, now: float, connection: Connection) -> None:
        """Copy a message out, and on."""
        _, rank, tree, up = connection
        done = self.copied(rank, now + H)
        self.ends_ps = max(self.ends_ps, done)
        self.push(done + CTS, "cleared", connection)
        for onward in self.onwards(rank, tree, up):
            self.push(done, "filled", onward)

    def cleared(self, now: float, connection: Connection) -> None:
        """A slot is free again; who begins has copied the next chunk by then."""
        self.under_way[connection] -= 1
        begun = self.begun.get(connection, self.chunks)
        if begun < self.chunks:
            self.begun[connection] = begun + 1
            self.filled(now, connection)
        elif self.held.get(connection, 0):
            self.held[connection] -= 1
            self.filled(now, connection)


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "reduce"])
@pytest.mark.parametrize("ranks", [4, 5, 6, 7, 8])
def test_trees_take_the_time_of_their_pipeline(op: str, ranks: int) -> None:
    wrong = []
    for size in SIZES:
        chunk = min(SLICE, size // 2)  # one step of the channel buffer
        chunks = size // 2 // chunk
        took = took_ps(op, "double_binary_tree", ranks, size)
        form = Pipeline(op, ranks, chunk, chunks).run()
        if abs(took - form) > 0.02 * form:
            wrong.append((size, chunks, took, round(form), round(took / form, 4)))
    assert wrong == []
