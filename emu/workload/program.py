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
communicator is one colour of a split for each group, as with ncclCommSplit; `world` is all ranks. Steps
repeat the whole list; the next one begins when all ranks are through.

A communicator does one operation after another, in the order of the list, whatever streams they are on: each
waits for its own stream and for the operation before it on the communicator, as kernels of NCCL do. With
`in_flight` above 1 an operation waits for the one so many places before it, and those that are under way
have connections of their own, as a peer has several virtual connections in NCCLX.

What stands one after the other on a stream and names one `group` begins together when the stream comes to
the first of them, and the stream goes on when all are over. They are one operation of their communicators.
Transfers between the same two ranks keep their order. Of one communicator, collectives are done one after
another, the larger before the smaller, and before its sends and receives, those of an all_to_all too. Here
each has a stream of its own between two events.

A list may be wrong: a rank that calls another size, or calls nothing, hangs as it does with NCCL, and the
watchdog names it.

Source: CUDA C Programming Guide, streams and events (a wait is for the last record before it); NCCL 2.30,
`ncclCommSplit`, `ncclConfig_t.trafficClass`, `src/enqueue.cc` (ncclLaunchPrepare: a launch waits for the
communicator's device stream, ncclLaunchFinish: that one waits for the launch; ncclPrepareTasks: collectives
of a group come out of a sorter by size, descending, and are put on channels before sends and receives);
NCCL's user guide, group calls and point-to-point; torchcomms, CTRAN (NCCL_CTRAN_IB_NUM_VCS_PER_RANK).

Not modelled: rounds of a group with more peers than channels have places (NCCL: eight a channel at a time),
algorithms and channels that NCCL chooses for a group's collectives together, launching costs, computing of
several streams that shares a GPU's SMs, host threads that wait.

A benchmark (`BenchmarkPlan`) is one stream that calls one collective after another. Each operation of the job
is one call, by every member of a group; a job that is split has several groups, each of which does every
operation by itself, at once. One rank may be mistaken, and call another size than the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, takewhile
from math import comb
from typing import Final, NamedTuple

from actors.ncclx.graph import Algorithm
from actors.ncclx.operations import Operation
from actors.ncclx.script import (
    CALL,
    COLLECTIVE,
    LINE,
    TRANSFER,
    UNLABELLED,
    Group,
    GroupCall,
    Script,
    ScriptPlan,
    kind_of,
)
from emu.results.planned_rows import CallPlan, CallShare, CollectivePlan

MOST_PLACES: Final = 4096
"""Places of ranks in all memberships of a job, each of which has communicators of its own."""
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
    in_flight: int = 1
    """How many of its operations a rank has under way at most."""

    def __post_init__(self) -> None:
        """Know everybody's group."""
        self._of = {rank: group for group in self.groups for rank in group}

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The group of a rank; empty if it is in none."""
        return self._of.get(rank, ())

    def among(self, ranks: Collection[int]) -> Communicator:
        """The same without everybody else."""
        groups = (tuple(rank for rank in group if rank in ranks) for group in self.groups)
        return replace(self, groups=tuple(group for group in groups if group))


class Step(NamedTuple):
    """One operation of the list."""

    do: str
    ranks: tuple[int, ...] | None = None
    """Who does it; None for all."""
    stream: str = MAIN
    communicator: str = WORLD
    algorithm: str = ""
    """Algorithm of a collective, `ring` or the name of another."""
    size_bytes: int = 0
    duration_ps: int = 0
    root: int = 0
    """By place in the group."""
    peer: int = -1
    """By rank of the job."""
    event: str = ""
    counts: tuple[tuple[int, ...], ...] = ()
    """How much each place of the group of an all_to_allv has for each, in proportion; or one row for all."""
    own: Algorithm | None = None
    """The algorithm, where it is not one of the library's."""
    protocol: str = ""
    channels: int = 0
    """As `actors.ncclx.operations.Operation` has them."""
    dtype: str = "fp32"
    redop: str = "sum"
    group: str = ""
    """What it begins with."""
    parts: tuple[tuple[str, int], ...] = ()
    """Names and times of what its computing consists of, for timelines."""

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
        for place, step in enumerate(steps):
            if not step.is_for(rank):
                continue
            if step.do == RECORD:
                recorded[step.event] = place
            elif step.do == WAIT and step.event not in recorded:
                reason = f"nothing before it records {step.event!r} on rank {rank}"
                yield Fault(place, "event", reason, "an event that is recorded above")
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
    """The groups and scripts of a program without faults. `left` are the ranks that take part, if not all:
    they call nobody else, and are the members of `communicators`.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        communicators: Sequence[Communicator],
        ranks: int,
        left: Collection[int] | None = None,
    ) -> None:
        super().__init__()
        self.left = frozenset(range(ranks) if left is None else left)
        self.steps = tuple(steps)
        self.reasons = (*(one.name for one in communicators), EVENTS)
        self.named = {one.name: one for one in communicators}
        streams: dict[str, set[str]] = {one.name: set() for one in communicators}
        for step in steps:
            if step.talks:
                streams[step.communicator].add(step.stream)
        self.spread = frozenset(name for name, on in streams.items() if len(on) > 1)
        """Communicators with operations on several streams."""
        self.scripts = [_Composer(self, rank).script for rank in sorted(self.left)]

    def parts_of(self, rank: int) -> dict[int, list[tuple[tuple[str, int], ...]]]:
        """See `ScriptPlan.parts_of`."""
        computes = _Composer(self, rank).computes
        return {
            stream: parts
            for stream, steps in computes.items()
            if any(parts := [self.steps[label].parts for label in steps])
        }

    def participants(self, label: int) -> int:
        """How many ranks take part in one collective or transfer of the list; the most, if groups differ."""
        step = self.steps[label]
        if step.do in (SEND, RECEIVE):
            return 2
        return max(len(group) for group in self.named[step.communicator].groups)

    def disagreements(self) -> Iterator[str]:
        """Calls of the members of a group that do not fit one another, the first of each group, in words."""
        for number, group in enumerate(self.groups):
            if group.membership > 0:
                break
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

    def listed_calls(self, steps: int) -> tuple[CallPlan, ...]:
        """What the results list, step by step, in the order of the list."""
        first, *later = [self._shares(membership) for membership in range(len(self.memberships) or 1)]
        return tuple(
            CallPlan(
                label=label,
                op=one.do,
                algorithm=one.algorithm if one.do not in (SEND, RECEIVE) else "",
                communicator=one.communicator,
                size_bytes=one.size_bytes,
                ranks=self.participants(label),
                callers=first[label].callers,
                step=step,
                ends=first[label].ends,
                later=tuple(shares.get(label, CallShare(0, 0, ())) for shares in later),
            )
            for step in range(steps)
            for label, one in enumerate(self.steps)
            if label in first
        )

    def _shares(self, membership: int) -> dict[int, CallShare]:
        """Who takes part in a membership, for each call of a program by its label."""
        ranks: dict[int, int] = {}
        callers: Counter[int] = Counter()
        for script in self.scripts:
            for number, calls in zip(script.groups, script.calls, strict=True):
                if self.groups[number].membership == membership:
                    for call in calls:
                        callers[call.label] += 1
                        ranks[call.label] = max(ranks.get(call.label, 0), len(self.groups[number].members))
        ends: dict[int, tuple[tuple[int, int], ...]] = {}
        for sender, send, receiver, receive in self.transfers(membership):
            ends[send.label] = (*ends.get(send.label, ()), (receiver, receive.label))
            ends[receive.label] = (*ends.get(receive.label, ()), (sender, send.label))
        return {
            label: CallShare(ranks[label], count, ends.get(label, ())) for label, count in callers.items()
        }


class _Composer:
    """Puts the operations of one rank on its streams. An *operation of a communicator* is a collective, a
    transfer, or all that begin together; its *end* is a place of a stream, with an event where
    another stream may wait for it.
    """

    def __init__(self, plan: ProgramPlan, rank: int) -> None:
        self.script = Script(rank)
        self._plan = plan
        self._streams: dict[str, int] = {MAIN: 0}
        self._events: dict[str, tuple[int, int]] = {}
        self._reasons: dict[str, int] = {}
        """By stream, what it communicated on last."""
        self._places: dict[Group, int] = {}
        self._lanes: dict[Group, int] = {}
        """By group, the stream of its calls that begin together with others."""
        self._counts: Counter[Group] = Counter()
        """Calls so far, whatever their copy."""
        self._ends: dict[str, list[tuple[int, int]]] = {}
        """By communicator, the ends of its operations."""
        self._last: dict[Group, tuple[int, int]] = {}
        """By group, the end of the operation that called it last."""
        self.computes: dict[int, list[int]] = {}
        """By stream, the operations of the list that compute on it."""
        self._compose()

    def _compose(self) -> None:
        rank, left = self.script.rank, self._plan.left
        mine = [
            (label, one)
            for label, one in enumerate(self._plan.steps)
            if one.is_for(rank) and (one.peer < 0 or one.peer in left)
        ]
        taken: set[int] = set()
        for at, (label, step) in enumerate(mine):
            if label in taken:
                continue
            stream = self._stream(step.stream)
            if step.do == COMPUTE:
                self.script.compute(step.duration_ps, stream)
                self.computes.setdefault(stream, []).append(label)
            elif step.do == RECORD:
                reason = self._reasons.get(step.stream, len(self._plan.reasons) - 1)
                self._events[step.event] = (self.script.record(stream), reason)
            elif step.do == WAIT:
                event, reason = self._events[step.event]
                self.script.wait(event, reason, stream)
            elif step.group:
                rest = (one for one in mine[at:] if one[1].stream == step.stream)
                together = list(takewhile(partial(_begins_with, step.group), rest))
                taken.update(label for label, _ in together)
                self._operate(together, stream)
            else:
                self._operate([(label, step)], stream)

    def _stream(self, name: str) -> int:
        if name not in self._streams:
            self._streams[name] = self.script.stream()
        return self._streams[name]

    def _operate(self, steps: Sequence[tuple[int, Step]], stream: int) -> None:
        """Put an operation of one communicator or several on a stream."""
        script = self.script
        groups = [self._group(step) for _, step in steps]
        self._reasons[steps[0][1].stream] = groups[-1].reason
        calls = [(one, group) for one, group in zip(steps, groups, strict=True) if len(group.members) > 1]
        if not calls:
            return
        names = list(dict.fromkeys(step.communicator for (_, step), _ in calls))
        for event, reason in self._awaited(names, [group for _, group in calls], stream):
            script.wait(event, reason, stream)
        if steps[0][1].group:
            self._begin_together(calls, stream)
        else:
            self._call(*steps[0], groups[0], stream)
        spread = any(name in self._plan.spread for name in names)
        end = stream, script.record(stream) if spread else -1
        for name in names:
            self._ends.setdefault(name, []).append(end)
        for _, group in calls:
            self._last[group] = end

    def _begin_together(self, calls: Sequence[tuple[tuple[int, Step], Group]], stream: int) -> None:
        """Put the calls of a group on streams of their own, which one stream begins and waits for."""
        script = self.script
        begun = script.record(stream)
        used: dict[int, int] = {}
        after: dict[int, list[int]] = {}
        """By reason, a communicator's: the ends of its collectives."""
        collectives = [one for one in calls if one[1].kind == COLLECTIVE]
        collectives.sort(key=lambda one: one[0][1].size_bytes, reverse=True)
        others = [one for one in calls if one[1].kind != COLLECTIVE]
        for one, group in (*collectives, *others):
            if group not in self._lanes:
                self._lanes[group] = script.stream()
            lane = self._lanes[group]
            if lane not in used:
                before = after.get(group.reason, ()) if group.kind != COLLECTIVE else ()
                for event in before or (begun,):
                    script.wait(event, group.reason, lane)
            used[lane] = group.reason
            self._call(*one, group, lane)
            if group.kind == COLLECTIVE and others:
                after.setdefault(group.reason, []).append(script.record(lane))
        for lane, reason in used.items():
            script.wait(script.record(lane), reason, stream)

    def _awaited(
        self, names: Sequence[str], groups: Sequence[Group], stream: int
    ) -> Iterator[tuple[int, int]]:
        """Events that an operation on a stream waits for, since operations before it have other streams."""
        found: dict[tuple[int, int], int] = {}
        for name in names:
            ends, places = self._ends.get(name, []), self._plan.named[name].in_flight
            if len(ends) >= places:
                found[ends[-places]] = self._plan.reasons.index(name)
        for group in groups:
            if group in self._last:
                found.setdefault(self._last[group], group.reason)
        for (other, event), reason in found.items():
            if other != stream and event >= 0:
                yield event, reason

    def _call(self, label: int, step: Step, group: Group, stream: int) -> None:
        if group not in self._places:
            self._places[group] = self.script.join(self._plan.group(group), stream)
        transfer = step.do in (SEND, RECEIVE)
        call = GroupCall(
            op=TRANSFER if transfer else step.do,
            size_bytes=step.size_bytes,
            algorithm="direct" if transfer else step.algorithm,
            protocol=step.protocol,
            channels=step.channels,
            root=step.root,
            label=label,
            weights=step.counts * (len(group.members) if len(step.counts) == 1 else 1),
            dtype=step.dtype,
            redop=step.redop,
            own=step.own,
        )
        self.script.put_call(self._places[group], call, stream)

    def _group(self, step: Step) -> Group:
        communicator, rank = self._plan.named[step.communicator], self.script.rank
        kind, members = kind_of(step.do), communicator.group_of(rank)
        if step.do in (SEND, RECEIVE):
            kind = LINE
            members = (rank, step.peer) if step.do == SEND else (step.peer, rank)
        reason = self._plan.reasons.index(step.communicator)
        group = Group(kind, reason, members, communicator.priority, communicator.data_priority)
        if step.communicator in self._plan.spread:
            # Counted call by call, so that both ends take the same copy however they group their calls.
            self._counts[group] += 1
            group = group._replace(copy=(self._counts[group] - 1) % communicator.in_flight)
        return group


def _begins_with(name: str, one: tuple[int, Step]) -> bool:
    """Whether an operation is of the group of that name."""
    return one[1].group == name


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


def memberships(
    servers: Sequence[int], spares: Sequence[int], rejoin: bool, losses: int = 1, units: Sequence[int] = ()
) -> list[tuple[int, ...]] | None:
    """Ranks on these servers that can take over from one another: first all but the spares; then, for each
    rank and each server that may be lost, and for each set of so many `losses`, those that are left, with
    spares in the places of the lost if there are enough; last all again, if lost ranks may join again. The
    larger come first. Since each serves once, there are as many of each as losses where lost ranks join
    again.

    Ranks of one of `units`, by its number, go without one another. None where there would be too many.
    """
    whole = tuple(rank for rank in range(len(servers)) if rank not in spares)
    unit = dict(zip(whole, units or whole, strict=True))
    by_server: dict[int, list[int]] = {}
    for rank in whole:
        by_server.setdefault(servers[rank], []).append(rank)
    singles: list[tuple[int, ...]] = [(rank,) for rank in (*whole, *spares)]
    singles += [tuple(ranks) for ranks in by_server.values() if len(ranks) > 1]
    if not spares:  # whoever of a unit is lost
        equal: dict[frozenset[int], tuple[int, ...]] = {}
        for ranks in singles:
            equal.setdefault(frozenset(unit[rank] for rank in ranks), ranks)
        singles = list(equal.values())
    if sum(comb(len(singles), count) for count in range(1, losses + 1)) > MOST_PLACES:
        return None
    found: dict[tuple[int, ...], None] = {}
    for count in range(1, losses + 1):
        for several in combinations(singles, count):
            lost = sorted({rank for ranks in several for rank in ranks})
            gone = [rank for rank in lost if rank in unit]
            free = [rank for rank in spares if rank not in lost]
            instead = dict(zip(gone, free, strict=False)) if len(gone) <= len(free) else {}
            without = {unit[rank] for rank in gone if rank not in instead}
            left = tuple(instead.get(rank, rank) for rank in whole if unit[rank] not in without)
            if len(left) > 1 and left != whole:
                found[left] = None
    rounds = losses if rejoin else 1
    every = [whole, *(left for left in sorted(found, key=len, reverse=True) for _ in range(rounds))]
    every += [whole] * losses if rejoin else []
    return every if sum(map(len, every)) <= MOST_PLACES else None


def stand_ins(whole: Sequence[int], members: Sequence[int]) -> dict[int, int]:
    """Ranks of a membership by those of the first one, of which each is left or has a spare in its place."""
    return dict(zip(whole if len(whole) == len(members) else members, members, strict=True))


class BenchmarkPlan(ScriptPlan):
    """The groups and scripts of a benchmark. `mistaken` are a rank and the size that it calls; `spared` are
    ranks without which the others may go on; `later` are groups that take over from others.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        groups: Sequence[Sequence[int]],
        dtype: str = "fp32",
        redop: str = "sum",
        mistaken: tuple[int, int] | None = None,
        spared: Sequence[int] = (),
        later: bool = False,
    ) -> None:
        super().__init__()
        self.reasons = ("", "shrunk") if later else ("",)
        self.spared = tuple(spared)
        self.single = True
        self.operations = tuple(operations)
        self.dtype = dtype
        self.redop = redop
        calls = self._calls(operations)
        stream = [(CALL, 0, place) for place in range(len(calls))]
        by_rank: dict[int, Script] = {}
        for members in groups:
            number = self.group(Group(kind_of(operations[0].op), int(later), tuple(members)))
            for rank in members:
                # Ranks share their lists: a large job has many ranks and one list of calls.
                by_rank[rank] = Script(rank, [number], [calls], [0], [stream])
        self.scripts = [by_rank[rank] for rank in sorted(by_rank)]
        if mistaken is not None:
            rank, size_bytes = mistaken
            self.scripts[rank].calls = [[call._replace(size_bytes=size_bytes) for call in calls]]

    def listed_operations(self) -> tuple[CollectivePlan, ...]:
        """What the results list; ranks, protocol and channels are filled in when the ranks are wired."""
        return tuple(
            CollectivePlan(
                operation=number,
                op=one.op,
                algorithm=one.algorithm,
                size_bytes=one.size_bytes,
                ranks=0,
                iteration=one.iteration,
                warmup=one.warmup,
                dtype=self.dtype,
                redop=self.redop,
            )
            for number, one in enumerate(self.operations)
        )

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
