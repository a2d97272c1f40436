"""Scripts of streams and events from the ranks' Chakra traces.

A node runs when all that it waits for is over and the one before it on its stream is. Streams of a rank: the
GPU's computing (stream 0), the CPU's, one for the collectives of each process group, one for each peer that
it sends to or receives from. On each, nodes keep one order: of those whose predecessors are all placed, the
one with the least id comes next. So a rank computes one thing at a time, as with ASTRA-sim, but in an order
that is settled beforehand, and the collectives of a group come one after the other, as a communicator's do.

Groups. An empty pg_name means all ranks, and so does "0" unless a group is listed under it; other names are
listed by the scenario or by a METADATA_NODE. A group's members must call the same collectives with the same
sizes in the same order; so must sends and receives, tag by tag. What does not fit is named by rank and
message.

Bytes: comm_size of all_gather and gather is what one rank contributes, that of the others is the whole buffer
of a rank. A barrier is an all_reduce of one element. Rooted collectives begin or end at `root_rank`; if there
is none, at the group's first member. comm_priority is that of the copies on the GPU, a communicator with
connections of its own for each. INVALID and METADATA nodes take no time.

Source: ASTRA-sim 2, `Workload.cc`, `HardwareResource.cc` (one computation at a time), `Ring.cc` (sizes).

Not modelled: one receive that waits for a later one of the same peer (refused).
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from actors.kernel.units import PS_PER_S
from actors.ncclx.script import (
    CALL,
    LINE,
    RECORD,
    TRANSFER,
    WAIT,
    Group,
    GroupCall,
    Script,
    ScriptPlan,
    kind_of,
)
from emu.base.errors import EmuError
from emu.scenario.readers.chakra import COLLECTIVE, COMPUTE, RECEIVE, SEND, SKIPPED, Node, Trace

WORLD: Final = "world"
PAIRS: Final = "p2p"
CPU: Final = "cpu"
BARRIER_BYTES: Final = 4
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
MOST_INHERITED: Final = 2**21
"""Dependencies of one rank, those that INVALID and METADATA nodes hand on counted."""


class MisfitError(EmuError):
    """Traces that are no program for so many ranks. `message` counts those of the rank's file; 0 for none."""

    exit_status = 2

    def __init__(self, rank: int, message: int, reason: str, accepted: str) -> None:
        super().__init__(rank, message, reason, accepted)
        self.rank = rank
        self.message = message
        self.reason = reason
        self.accepted = accepted

    def __str__(self) -> str:
        message = f", message {self.message}" if self.message else ""
        return f"rank {self.rank}{message}: {self.reason}"


class _Ordered(NamedTuple):
    """One rank's nodes in the order of its streams, and for each what it waits for, nothing skipped."""

    nodes: list[Node]
    after: dict[int, tuple[int, ...]]


class ChakraPlan(ScriptPlan):
    """The groups and scripts of so many ranks; one trace serves all if there is only one.

    Sizes and durations times `scale`; computing that has FLOPs and no duration takes FLOPs /
    `flops_per_s`, or nothing if that is 0. Raises MisfitError.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        ranks: int,
        groups: Mapping[str, Sequence[int]],
        scale: Fraction,
        flops_per_s: int,
    ) -> None:
        super().__init__()
        assert len(traces) in (1, ranks), (len(traces), ranks)
        self._ranks = ranks
        self._scale = scale
        self._flops_per_s = flops_per_s
        self._traces = [traces[rank % len(traces)] for rank in range(ranks)]
        self._named = {name: tuple(members) for name, members in groups.items()}
        for trace in traces:
            for name, listed in trace.groups.items():
                self._named.setdefault(name, listed or tuple(range(ranks)))
        ordered = [self._paired(rank, _ordered(self._traces[rank], rank)) for rank in range(ranks)]
        called = {name: None for one in ordered for node in one.nodes if (name := _name(node))}
        self.reasons = (*called, PAIRS, CPU)
        self._sent = self._sends(ordered)
        self._labels = self._numbered(ordered)
        self.scripts = [self._script(rank, one) for rank, one in enumerate(ordered)]
        self._compare()
        self.list_if_few()

    def _members(self, rank: int, node: Node) -> tuple[int, ...]:
        members = self._named.get(node.group)
        if members is None and node.group in ("", "0"):
            members = tuple(range(self._ranks))
        if members is None:
            reason = f"there is no process group {node.group!r}"
            raise MisfitError(
                rank, node.message, reason, "one that is listed, in the trace or under `groups`"
            )
        if rank not in members or max(members) >= self._ranks or len(dict.fromkeys(members)) < len(members):
            reason = f"process group {node.group!r} is {list(members)[:16]} of {self._ranks} ranks"
            accepted = f"ranks below {self._ranks}, each once, rank {rank} among them"
            raise MisfitError(rank, node.message, reason, accepted)
        return members

    def _paired(self, rank: int, ordered: _Ordered) -> _Ordered:
        """The same with the peer of every send and receive, where only the group says it."""
        nodes: list[Node] = []
        for node in ordered.nodes:
            if node.what in (SEND, RECEIVE) and node.peer < 0:
                others = [other for other in self._members(rank, node) if other != rank]
                if len(others) != 1:
                    group = f"process group {node.group!r} has {len(others) + 1} ranks"
                    reason = f"does not say its peer, and {group}"
                    raise MisfitError(rank, node.message, reason, "a peer, or a process group of two ranks")
                nodes.append(node._replace(peer=others[0]))
            else:
                nodes.append(node)
        return ordered._replace(nodes=nodes)

    def _sends(self, ordered: Sequence[_Ordered]) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """From whom to whom: the tag and size of each send, in the sender's order."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for rank, one in enumerate(ordered):
            for node in one.nodes:
                if node.what in (SEND, RECEIVE) and (node.peer == rank or node.peer >= self._ranks):
                    reason = f"its peer is rank {node.peer} of {self._ranks}"
                    raise MisfitError(rank, node.message, reason, f"another rank below {self._ranks}")
                if node.what == SEND:
                    found.setdefault((rank, node.peer), []).append((node.tag, node.size_bytes))
        return found

    def _numbered(self, ordered: Sequence[_Ordered]) -> dict[tuple[object, ...], int]:
        """A number for each collective and transfer, under which the results list it: by the group, or both
        ranks, and how many it had before."""
        found: dict[tuple[object, ...], int] = {}
        for rank, one in enumerate(ordered):
            counts: Counter[tuple[object, ...]] = Counter()
            for node in one.nodes:
                if node.what in (COLLECTIVE, SEND):
                    key = _key(rank, node)
                    found.setdefault((*key, counts[key]), len(found))
                    counts[key] += 1
        return found

    # ---- one rank

    def _script(self, rank: int, ordered: _Ordered) -> Script:
        script = Script(rank)
        streams: dict[tuple[str, str, int], int] = {("", COMPUTE, 0): 0}
        lines: dict[int, list[Node]] = {0: []}
        stream_of: dict[int, int] = {}
        for node in self._received(rank, ordered.nodes):
            where = (_name(node), CPU if node.cpu else node.what, node.peer)
            if where not in streams and node.what == COMPUTE and not node.cpu:
                where = ("", COMPUTE, 0)
            if where not in streams:
                streams[where] = script.stream()
                lines[streams[where]] = []
            stream_of[node.id] = streams[where]
            lines[streams[where]].append(node)
        # Order on one stream is a dependency by itself; only those across streams need an event.
        by_id = {node.id: node for node in ordered.nodes}
        waited_for = {
            one
            for node in ordered.nodes
            for one in ordered.after[node.id]
            if stream_of[one] != stream_of[node.id]
        }
        events = {node.id: script.event() for node in ordered.nodes if node.id in waited_for}
        places: dict[Group, int] = {}
        counts: Counter[tuple[object, ...]] = Counter()
        for stream, line in lines.items():
            done: set[int] = set()
            before: set[int] = set()
            for node in line:
                for one in ordered.after[node.id]:
                    if stream_of[one] == stream and one not in before:
                        reason = f"waits for node {one}, whose turn comes later with the same peer"
                        accepted = "nodes with one peer that wait in the order of its sends"
                        raise MisfitError(rank, node.message, reason, accepted)
                    if stream_of[one] != stream and one not in done:
                        done.add(one)
                        script.wait(events[one], self._reason(by_id[one]), stream)
                before.add(node.id)
                self._carry_out(script, stream, node, places, counts)
                if node.id in events:
                    script.record(stream, events[node.id])
        self._ends(script, lines)
        return script

    def _received(self, rank: int, nodes: Sequence[Node]) -> list[Node]:
        """The nodes with the receives from each peer in the order in which that peer sends."""
        waiting: dict[int, dict[int, list[Node]]] = {}
        for node in nodes:
            if node.what == RECEIVE:
                waiting.setdefault(node.peer, {}).setdefault(node.tag, []).append(node)
        found = [node for node in nodes if node.what != RECEIVE]
        for peer, by_tag in waiting.items():
            for tag, size in self._sent.get((peer, rank), ()):
                line = by_tag.get(tag)
                if not line:
                    continue
                node = line.pop(0)
                if node.size_bytes != size:
                    reason = f"receives {node.size_bytes} B with tag {tag}, rank {peer} sends {size} B"
                    raise MisfitError(rank, node.message, reason, "a receive of the size that is sent")
                found.append(node)
        left = [node for by_tag in waiting.values() for line in by_tag.values() for node in line]
        if left:
            node = left[0]
            reason = f"receives more with tag {node.tag} than rank {node.peer} sends"
            raise MisfitError(rank, node.message, reason, "a send for each receive")
        return found

    def _ends(self, script: Script, lines: Mapping[int, Sequence[Node]]) -> None:
        """Let the stream that computes wait at its end for all others, so that the time counts as exposed."""
        for stream, line in lines.items():
            if not stream or not script.streams[stream]:
                continue
            kind, last, _ = script.streams[stream][-1]
            event = last if kind == RECORD else script.record(stream)
            if not any((kind, one) == (WAIT, event) for kind, one, _ in script.streams[0]):
                script.wait(event, self._reason(line[-1]))

    def _carry_out(
        self,
        script: Script,
        stream: int,
        node: Node,
        places: dict[Group, int],
        counts: Counter[tuple[object, ...]],
    ) -> None:
        if node.what == COMPUTE:
            duration = Fraction(node.duration_ps)
            if node.operations and self._flops_per_s:
                duration = Fraction(node.operations * PS_PER_S, self._flops_per_s)
            script.compute(int(duration * self._scale), stream)
            return
        rank, reason, root = script.rank, self._reason(node), 0
        key = _key(rank, node)
        label = self._labels[(*key, counts[key])]
        counts[key] += 1  # also of calls that are left out below, or labels would move from rank to rank
        op, size = node.op, max(int(node.size_bytes * self._scale), 1)
        if node.what == SEND:
            op, group = TRANSFER, Group(LINE, reason, (rank, node.peer))
        elif node.what == RECEIVE:
            op, group = TRANSFER, Group(LINE, reason, (node.peer, rank))
        else:
            members = self._members(rank, node)
            if len(members) < 2 or (node.size_bytes == 0 and op != "barrier"):
                return
            if op == "barrier":
                op, size = "all_reduce", BARRIER_BYTES  # what PyTorch's NCCL backend does
            elif op in ("all_gather", "gather"):
                size *= len(members)  # a trace has a rank's part, a call the whole buffer
            if op in ROOTED:
                root = self._root(rank, node, members)
            group = Group(kind_of(op), reason, members, node.priority)
        if group not in places:
            places[group] = script.join(self.group(group), stream)
        script.add_call(places[group], op, size, root, label)

    def _root(self, rank: int, node: Node, members: tuple[int, ...]) -> int:
        """The root's place in the group."""
        if node.root >= 0 and node.root not in members:
            reason = f"root_rank {node.root} is not in its process group"
            raise MisfitError(rank, node.message, reason, "a rank of the process group")
        return members.index(node.root) if node.root >= 0 else 0

    def _reason(self, node: Node) -> int:
        name = _name(node) or (PAIRS if node.what in (SEND, RECEIVE) else CPU)
        return self.reasons.index(name)

    # ---- all ranks

    def _compare(self) -> None:
        """Do the members of every group call the same?"""
        calls: dict[tuple[int, tuple[int, ...]], dict[int, list[GroupCall]]] = {}
        for script in self.scripts:
            for kind, place, number in (one for stream in script.streams for one in stream):
                if kind != CALL:
                    continue
                group = self.groups[script.groups[place]]
                if group.kind != LINE:
                    by_rank = calls.setdefault((group.reason, group.members), {})
                    by_rank.setdefault(script.rank, []).append(script.calls[place][number])
        for (reason_number, members), by_rank in calls.items():
            first = members[0]
            for rank in members:
                mine, others = by_rank.get(rank, []), by_rank.get(first, [])
                if mine != others:
                    ways = enumerate(zip(mine, others, strict=False))
                    at = next((i for i, (a, b) in ways if a != b), min(len(mine), len(others)))
                    call = f"call {at + 1} of {self.reasons[reason_number]}"
                    reason = f"{call} is {_shown(mine, at)}, rank {first}'s {_shown(others, at)}"
                    raise MisfitError(rank, 0, reason, "the same calls by all ranks of a group, in one order")
        for (source, target), line in self._sent.items():
            received = [
                call
                for place, number in enumerate(self.scripts[target].groups)
                if self.groups[number].kind == LINE and self.groups[number].members == (source, target)
                for call in self.scripts[target].calls[place]
            ]
            if len(received) < len(line):
                reason = f"sends rank {target} {len(line)} times, which receives {len(received)} times"
                raise MisfitError(source, 0, reason, "a receive for each send")


def _shown(calls: Sequence[GroupCall], at: int) -> str:
    if at >= len(calls):
        return "missing"
    root = f" with root {calls[at].root}" if calls[at].root else ""
    return f"{calls[at].op} of {calls[at].size_bytes} B{root}"


def _key(rank: int, node: Node) -> tuple[object, ...]:
    """What the calls of a communicator, or of two ranks, have in common."""
    if node.what == SEND:
        return rank, node.peer
    if node.what == RECEIVE:
        return node.peer, rank
    return _name(node), node.priority


def _name(node: Node) -> str:
    """What waiting for a collective counts to; empty for what is none."""
    if node.what != COLLECTIVE:
        return ""
    return WORLD if node.group in ("", "0") else f"pg_{node.group}"


def _ordered(trace: Trace, rank: int) -> _Ordered:
    """Predecessors first, else by id; nodes that take no time left out."""
    by_id = {node.id: node for node in trace.nodes}
    missing = {node.id: len(node.after) for node in trace.nodes}
    then: dict[int, list[int]] = {node.id: [] for node in trace.nodes}
    for node in trace.nodes:
        for one in node.after:
            then[one].append(node.id)
    ready = [number for number, count in missing.items() if count == 0]
    heapq.heapify(ready)
    nodes: list[Node] = []
    after: dict[int, tuple[int, ...]] = {}
    inherited = 0
    while ready:
        node = by_id[heapq.heappop(ready)]
        waits: dict[int, None] = {}
        for one in node.after:
            for other in after[one] if by_id[one].what == SKIPPED else (one,):
                waits[other] = None
        after[node.id] = tuple(waits)
        inherited += len(waits)
        if inherited > MOST_INHERITED:
            reason = "too many dependencies, those that skipped nodes hand on counted"
            raise MisfitError(rank, node.message, reason, f"at most {MOST_INHERITED} in all")
        if node.what != SKIPPED:
            nodes.append(node)
        for number in then[node.id]:
            missing[number] -= 1
            if missing[number] == 0:
                heapq.heappush(ready, number)
    if len(after) < len(trace.nodes):
        stuck = next(node for node in trace.nodes if node.id not in after)
        reason = f"node {stuck.id} waits for itself, by way of others"
        raise MisfitError(rank, stuck.message, reason, "dependencies without a cycle")
    return _Ordered(nodes, after)
