"""Programs, rank by rank: a user's operations on streams with events between them, and a benchmark's.

Every rank goes through the same list and carries out what is for it, as one program with branches on the rank
would. An operation is put on a stream; a stream carries its operations out one after the other, and streams
run side by side, so a collective is never waited for unless somebody says so:

    compute                      the stream is busy for a time
    all_reduce, .. on C          the collective among the rank's group of communicator C
    send, recv on C              to or from another rank of that group
    record E                     event E has happened once the stream gets there
    wait E                       the stream goes on when what was last recorded as E, above, has happened

Stream `main` computes; the time that it spends in collectives and waiting is told by communicator. A
communicator is one colour of a split for each group, as with ncclCommSplit; `world` is all ranks. Its
collectives have an order, so all are on one stream of a rank. Steps repeat the whole list; the next one
begins when all ranks are through.

A list may be wrong: a rank that calls another size, or calls nothing, hangs as it does with NCCL, and the
watchdog names it.

Source: CUDA C Programming Guide, streams and events (a wait is for the last record before it); NCCL,
`ncclCommSplit`, `ncclConfig_t.trafficClass`.

Not modelled: launching costs, computing of several streams that shares a GPU's SMs, host threads that wait.

A benchmark (`BenchmarkPlan`) is one stream that calls one collective after another. Each operation of the job
is one call, by every member of a group; a job that is split has several groups, each of which does every
operation by itself, at once. One rank may be mistaken, and call another size than the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from actors.ncclx.graph import Algorithm
from actors.ncclx.operations import Operation
from actors.ncclx.script import (
    CALL,
    LINE,
    TRANSFER,
    UNLABELLED,
    Group,
    GroupCall,
    Script,
    ScriptPlan,
    kind_of,
)

WORLD: Final = "world"
MAIN: Final = "main"
EVENTS: Final = "events"
"""What a wait counts to that is for no collective."""
COMPUTE: Final = "compute"
RECORD: Final = "record"
WAIT: Final = "wait"
SEND: Final = "send"
RECEIVE: Final = "recv"


@dataclass
class Communicator:
    """Groups of ranks that talk to one another; every rank is in one of them, or in none (colour None)."""

    name: str
    groups: tuple[tuple[int, ...], ...]
    priority: int = 0
    data_priority: int | None = None

    def __post_init__(self) -> None:
        """Know everybody's group."""
        self._of = {rank: group for group in self.groups for rank in group}

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The group of a rank; empty if it is in none."""
        return self._of.get(rank, ())


class Step(NamedTuple):
    """One operation of the list."""

    do: str
    ranks: tuple[int, ...] | None = None
    """Who does it; None for all."""
    stream: str = MAIN
    communicator: str = WORLD
    algorithm: str = ""
    """Of a collective, `ring` or the name of another."""
    size_bytes: int = 0
    duration_ps: int = 0
    root: int = 0
    """By place in the group."""
    peer: int = -1
    """By rank of the job."""
    event: str = ""
    counts: tuple[tuple[int, ...], ...] = ()
    """Of all_to_allv: how much each place of the group has for each, in proportion; or one row for all."""
    own: Algorithm | None = None
    """The algorithm, where it is not one of the library's."""
    protocol: str = ""
    channels: int = 0
    """As `actors.ncclx.operations.Operation` has them."""
    dtype: str = "fp32"
    redop: str = "sum"

    def is_for(self, rank: int) -> bool:
        """Whether a rank does it."""
        return self.ranks is None or rank in self.ranks

    @property
    def talks(self) -> bool:
        """Whether it is a collective or a transfer."""
        return self.do not in (COMPUTE, RECORD, WAIT)


class Fault(NamedTuple):
    """Why a list is no program: the place in it, the key, the reason, what would do."""

    place: int
    key: str
    reason: str
    accepted: str


def faults(steps: Sequence[Step], communicators: Sequence[Communicator], ranks: int) -> Iterator[Fault]:
    """What no rank could carry out; at most one for each operation."""
    named = {one.name: one for one in communicators}
    for place, step in enumerate(steps):
        outside = [rank for rank in step.ranks or () if rank >= ranks]
        if outside:
            yield Fault(place, "ranks", f"there is no rank {outside[0]}", f"0 to {ranks - 1}")
        elif step.talks:
            yield from _misfit(place, step, named[step.communicator], ranks)
    for rank in range(ranks):
        recorded: dict[str, int] = {}
        stream_of: dict[str, str] = {}
        for place, step in enumerate(steps):
            if not step.is_for(rank):
                continue
            if step.do == RECORD:
                recorded[step.event] = place
            elif step.do == WAIT and step.event not in recorded:
                reason = f"nothing before it records {step.event!r} on rank {rank}"
                yield Fault(place, "event", reason, "an event that is recorded above")
                return
            elif step.talks and stream_of.setdefault(step.communicator, step.stream) != step.stream:
                first = stream_of[step.communicator]
                reason = f"rank {rank} calls {step.communicator} on stream {first!r} above"
                yield Fault(place, "stream", reason, "one stream for each communicator")
                return


def _misfit(place: int, step: Step, communicator: Communicator, ranks: int) -> Iterator[Fault]:
    for rank in step.ranks if step.ranks is not None else range(ranks):
        group = communicator.group_of(rank)
        if not group:
            reason = f"rank {rank} is in no group of {communicator.name}"
            yield Fault(place, "on", reason, "ranks that have a colour")
            return
        if step.do in (SEND, RECEIVE):
            if step.peer not in group or step.peer == rank:
                reason = f"rank {rank} cannot reach rank {step.peer} on {communicator.name}"
                yield Fault(place, "peer", reason, "another rank of the same group")
                return
        elif step.counts and (
            len(step.counts) not in (1, len(group)) or any(len(row) != len(group) for row in step.counts)
        ):
            reason = f"the rows are not those of a group of {len(group)}"
            accepted = f"one row of {len(group)} numbers, or {len(group)} of them"
            yield Fault(place, "counts", reason, accepted)
            return
        elif step.root >= len(group):
            reason = f"a group of {len(group)} has no root {step.root}"
            yield Fault(place, "root", reason, f"0 to {len(group) - 1}")
            return


class ProgramPlan(ScriptPlan):
    """The groups and scripts of a program without faults."""

    def __init__(self, steps: Sequence[Step], communicators: Sequence[Communicator], ranks: int) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.reasons = (*(one.name for one in communicators), EVENTS)
        self._named = {one.name: one for one in communicators}
        self.scripts = [self._script(rank) for rank in range(ranks)]

    def participants(self, label: int) -> int:
        """How many ranks take part in one collective or transfer of the list; the most, if groups differ."""
        step = self.steps[label]
        if step.do in (SEND, RECEIVE):
            return 2
        return max(len(group) for group in self._named[step.communicator].groups)

    def disagreements(self) -> Iterator[str]:
        """Calls of the members of a group that do not fit one another, the first of each group, in words."""
        for number, group in enumerate(self.groups):
            line = group.kind == LINE
            (first, usual), *others = self.calls_of(number)
            for rank, calls in others:
                unlike = [(a, b) for a, b in zip(usual, calls, strict=False) if _plain(a) != _plain(b)]
                if unlike:
                    one, other = unlike[0]
                    yield _unlike(line, first, one, rank, other)
                elif len(usual) != len(calls):
                    does, answers = ("sends", "receives") if line else ("calls", "calls")
                    name = f" on {self.reasons[group.reason]}"
                    counts = f"{len(usual)} times{name}", f"{len(calls)} times"
                    yield f"rank {first} {does} {counts[0]}, rank {rank} {answers} {counts[1]}"
                else:
                    continue
                break

    def _script(self, rank: int) -> Script:
        script = Script(rank)
        streams: dict[str, int] = {MAIN: 0}
        events: dict[str, tuple[int, int]] = {}
        last: dict[str, int] = {}
        places: dict[Group, int] = {}
        for label, step in enumerate(self.steps):
            if not step.is_for(rank):
                continue
            if step.stream not in streams:
                streams[step.stream] = script.stream()
            stream = streams[step.stream]
            if step.do == COMPUTE:
                script.compute(step.duration_ps, stream)
            elif step.do == RECORD:
                reason = last.get(step.stream, len(self.reasons) - 1)
                events[step.event] = (script.record(stream), reason)
            elif step.do == WAIT:
                event, reason = events[step.event]
                script.wait(event, reason, stream)
            else:
                group = self._group(rank, step)
                last[step.stream] = group.reason
                if len(group.members) > 1:
                    if group not in places:
                        places[group] = script.join(self.group(group), stream)
                    weights = step.counts * (len(group.members) if len(step.counts) == 1 else 1)
                    transfer = step.do in (SEND, RECEIVE)
                    call = GroupCall(
                        op=TRANSFER if transfer else step.do,
                        size_bytes=step.size_bytes,
                        algorithm="direct" if transfer else step.algorithm,
                        protocol=step.protocol,
                        channels=step.channels,
                        root=step.root,
                        label=label,
                        weights=weights,
                        dtype=step.dtype,
                        redop=step.redop,
                        own=step.own,
                    )
                    script.put_call(places[group], call)
        return script

    def _group(self, rank: int, step: Step) -> Group:
        communicator = self._named[step.communicator]
        kind, members = kind_of(step.do), communicator.group_of(rank)
        if step.do in (SEND, RECEIVE):
            kind = LINE
            members = (rank, step.peer) if step.do == SEND else (step.peer, rank)
        reason = self.reasons.index(step.communicator)
        return Group(kind, reason, members, communicator.priority, communicator.data_priority)


def _plain(call: GroupCall) -> GroupCall:
    """A call without its place in the list."""
    return call._replace(label=UNLABELLED)


def _unlike(line: bool, first: int, one: GroupCall, rank: int, other: GroupCall) -> str:
    """Two calls that should fit one another."""
    places = f"in operations[{one.label}]", f"in operations[{other.label}]"
    if line:
        sent, received = f"{one.size_bytes} B {places[0]}", f"{other.size_bytes} B {places[1]}"
        return f"rank {first} sends {sent}, rank {rank} receives {received}"
    return (
        f"rank {first} calls {_shown(one, other)} {places[0]}, rank {rank} {_shown(other, one)} {places[1]}"
    )


def _shown(call: GroupCall, other: GroupCall) -> str:
    """A call, and in what it differs from another."""
    said = f"{call.op} of {call.size_bytes} B"
    for name in ("root", "dtype", "redop", "algorithm"):
        if getattr(call, name) != getattr(other, name):
            said += f" with {name} {getattr(call, name)}"
    return said


class BenchmarkPlan(ScriptPlan):
    """The groups and scripts of a benchmark. `mistaken` are a rank and the size that it calls; `spared` are
    ranks without which the others may go on, with `shrunk` for its operations.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        groups: Sequence[Sequence[int]],
        dtype: str = "fp32",
        redop: str = "sum",
        mistaken: tuple[int, int] | None = None,
        spared: Sequence[int] = (),
        shrunk: Sequence[Operation] = (),
    ) -> None:
        super().__init__()
        self.reasons = ("", "shrunk") if spared else ("",)
        self.spared = tuple(spared)
        self.single = True
        self.operations = tuple(operations)
        self.dtype = dtype
        self.redop = redop
        calls = self._calls(operations)
        stream = [(CALL, 0, place) for place in range(len(calls))]
        by_rank: dict[int, Script] = {}
        for members in groups:
            number = self.group(Group(kind_of(operations[0].op), 0, tuple(members)))
            for rank in members:
                # Ranks share their lists: a large job has many ranks and one list of calls.
                by_rank[rank] = Script(rank, [number], [calls], [0], [stream])
        self.scripts = [by_rank[rank] for rank in sorted(by_rank)]
        if spared:
            left = tuple(rank for rank in by_rank if rank not in spared)
            number, fewer = self.group(Group(kind_of(operations[0].op), 1, left)), self._calls(shrunk)
            for rank in left:
                both = [*self.scripts[rank].groups, number]
                self.scripts[rank] = Script(rank, both, [calls, fewer], [0, 0], [stream])
        if mistaken is not None:
            rank, size_bytes = mistaken
            self.scripts[rank].calls = [[call._replace(size_bytes=size_bytes) for call in calls]]

    def _calls(self, operations: Sequence[Operation]) -> list[GroupCall]:
        return [
            GroupCall(
                one.op,
                one.size_bytes,
                one.algorithm,
                one.root,
                weights=one.weights,
                dtype=self.dtype,
                redop=self.redop,
                own=one.own,
                protocol=one.protocol,
                channels=one.channels,
            )
            for one in operations
        ]
