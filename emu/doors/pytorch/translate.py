"""From the records of ranks to an `emu.Program` of all ranks.

One record stands for every rank of its *role*. Where a role's ranks belong to other groups than the
recorded rank, they call the group of theirs that takes the same place: torch makes the groups of a mesh
dimension one after another, and those that follow one another, have one description and share no rank are
one communicator, split.

Times: kernels between two points where a stream meets anything else (an event, a wait, a call) are one
computing period. On stream 0 it is as long as its kernels, or as the host takes to launch them if that is
longer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from emu.base.errors import UsageError
from emu.base.units import counted
from emu.doors.pytorch.kernels import KernelTimes
from emu.doors.pytorch.record import DEFAULT_STREAM, HOST, Call, Kernel, Mark, Record, Wait
from emu.workload.composing import WORLD, Communicator, Event, Program, Stream

BLOCKS: Final = ("all_gather", "reduce_scatter", "all_to_all")
"""Calls whose buffer has a block for each place of the group."""
ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
ELEMENT_BYTES: Final = 4
SHOWN_RANKS: Final = 8
"""Ranks of a group that a message names."""


@dataclass
class Role:
    """A record and the ranks that it stands for; None: all."""

    record: Record
    ranks: list[int] | None = None


@dataclass
class Step:
    """One step of one role, with times."""

    kernels_us: float
    launches: int
    flops: int
    calls: int
    sent_bytes: int
    half_precision: bool
    """Whether most FLOPs are in a type of two bytes."""


@dataclass
class _Partition:
    """Groups of a communicator, by the name that each has in the record."""

    communicator: Communicator
    groups: list[list[int]]
    names: list[str] = field(default_factory=list)

    def group_of(self, rank: int) -> list[int]:
        return next(group for group in self.groups if rank in group)


class Translation:
    """Builds the program; `step` says which recorded step (the last unless told otherwise)."""

    def __init__(
        self, roles: Sequence[Role], times: KernelTimes, *, host_us: float, name: str, steps: int
    ) -> None:
        self._times, self._host_us = times, host_us
        self.world = roles[0].record.world
        self.program = Program(ranks=self.world, name=name, steps=steps)
        self.notes: list[str] = []
        self._partitions = self._communicators(roles)
        self._roles = roles
        for role in roles:
            self._translate(role)

    def disagreement(self) -> str:
        """The first collective that ranks of one group do not call alike; empty if there is none."""
        if len(self._roles) == 1:
            return ""
        role_of = {rank: at for at, role in enumerate(self._roles) for rank in role.ranks or ()}
        made: dict[int, tuple[_Partition, dict[int, list[Call]]]] = {}
        """By id of a partition: it, and by role the collectives of its group."""
        for number, role in enumerate(self._roles):
            for one in list(role.record.steps())[-1]:
                if isinstance(one, Call) and one.op not in ("send", "recv"):
                    partition = self._partitions[one.group]
                    _, calls = made.setdefault(id(partition), (partition, {}))
                    calls.setdefault(number, []).append(one)
        for partition, calls in made.values():
            for group in partition.groups:
                first: dict[int, int] = {}
                for rank in group:
                    first.setdefault(role_of[rank], rank)
                for turn in range(max(len(calls.get(at, ())) for at in first)):
                    (rank, usual), *others = (
                        (rank, _called(calls.get(at, ())[turn:])) for at, rank in first.items()
                    )
                    for other, called in others:
                        if called != usual:
                            return (
                                f"ranks disagree about call {turn + 1} of a step in the group of "
                                f"{_named(group)}: rank {rank} called {usual}, rank {other} {called}"
                            )
        return ""

    # ------------------------------------------------------------------------------- communicators

    def _communicators(self, roles: Sequence[Role]) -> dict[str, _Partition]:
        """Partition of each group that a call names."""
        groups: dict[str, list[int]] = {}
        descriptions: dict[str, str] = {}
        for role in roles:
            for name, ranks in role.record.groups.items():
                groups.setdefault(name, ranks)
            descriptions |= role.record.descriptions
        found: dict[str, _Partition] = {}
        last: tuple[str, _Partition] | None = None
        for name in sorted(
            groups, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name)
        ):
            ranks, described = groups[name], descriptions.get(name, "")
            if len(ranks) == self.world and ranks == list(range(self.world)):
                found[name], last = _Partition(WORLD, [ranks], [name]), None
                continue
            # PyTorch makes a group for each part of a mesh's dimension, one after the other on all ranks:
            # those that follow one another under one description and share no rank are one split.
            if (
                last is not None
                and last[0] == described
                and not any(set(ranks) & set(g) for g in last[1].groups)
            ):
                last[1].groups.append(ranks)
                last[1].names.append(name)
            else:
                last = (
                    described,
                    _Partition(Communicator(f"{described or 'group'}-{name}"), [ranks], [name]),
                )
            found[name] = last[1]
        used = {
            operation.group
            for role in roles
            for operation in role.record.operations
            if isinstance(operation, Call)
        }
        kept: dict[str, _Partition] = {}
        named: dict[str, _Partition] = {}
        taken = 0
        for name in groups:
            partition = found[name]
            if name not in used and not used & set(partition.names):
                continue
            if partition.communicator != WORLD and partition.communicator not in named:
                colours = [-1] * self.world
                for colour, ranks in enumerate(partition.groups):
                    for rank in ranks:
                        colours[rank] = colour
                label = partition.names[0]
                described = descriptions.get(label, "").removeprefix("mesh_")
                plain = (
                    described if described.isidentifier() and described != "undefined" else f"group{label}"
                )
                if any(one.communicator == plain for one in named.values()):
                    taken += 1
                    plain = f"{plain}_{taken}"
                before = partition.communicator
                partition.communicator = self.program.communicator(plain, split=colours)
                named[before] = named[partition.communicator] = partition
            kept[name] = partition
        return kept

    # ---------------------------------------------------------------------------------- operations

    def _translate(self, role: Role) -> None:
        operations = list(role.record.steps())[-1]
        awaited = {one.event for one in operations if isinstance(one, Wait)}
        tracks: dict[int, _Track] = {}
        events: dict[int, tuple[int, Event]] = {}

        def track(number: int) -> _Track:
            if number not in tracks:
                name = "main" if number == DEFAULT_STREAM else f"stream{number}"
                stream = self.program.main if number == DEFAULT_STREAM else self.program.stream(name)
                tracks[number] = _Track(
                    stream, role.ranks, self._host_us if number == DEFAULT_STREAM else 0.0
                )
            return tracks[number]

        batch, together = 0, contextlib.ExitStack()
        for operation in operations:
            if batch and not (isinstance(operation, Call) and operation.batch == batch):
                batch = 0
                together.close()
            if isinstance(operation, Kernel):
                track(operation.stream).add(self._times.us(operation), operation.module)
            elif isinstance(operation, Mark):
                if operation.event in awaited:
                    events[operation.event] = (operation.stream, track(operation.stream).record())
            elif isinstance(operation, Wait):
                waiting = DEFAULT_STREAM if operation.stream == HOST else operation.stream
                begun = events.get(operation.event)  # None: of an earlier step, which is over
                if begun is not None and begun[0] != waiting:
                    track(waiting).wait(begun[1])
            elif isinstance(operation, Call):
                one = track(operation.stream)
                if operation.batch != batch:
                    batch = operation.batch
                    one.flush()
                    together.enter_context(one.stream.group())
                self._call(role, one, operation)
        together.close()
        for one in tracks.values():
            one.flush()

    def _call(self, role: Role, track: _Track, call: Call) -> None:
        partition = self._partitions[call.group]
        group = partition.group_of(role.record.rank)
        places = len(group)
        if places == 1:
            return
        track.flush()
        options: dict[str, Any] = {"ranks": role.ranks}
        if partition.communicator != WORLD:
            options["on"] = partition.communicator
        stream = track.stream
        if call.op in ("send", "recv"):
            self._transfer(role, stream, call, partition, group)
        elif call.op == "barrier":
            stream.barrier(**options)
        elif call.op in ROOTED:
            stream.rooted(call.op, _size(call.bytes, 1), root=group.index(call.peer), **options)
        elif call.op == "all_to_all" and call.counts and len(set(call.counts)) > 1:
            scale = max(call.counts)
            row = [max(1, round(count * 1000 / scale)) for count in call.counts]
            stream.all_to_allv(_size(call.bytes, places), counts=[row], **options)
        else:
            size = _size(call.bytes, places if call.op in BLOCKS else 1)
            getattr(stream, call.op)(size, **options)

    def _transfer(
        self, role: Role, stream: Stream, call: Call, partition: _Partition, group: list[int]
    ) -> None:
        """A send or receive, rank by rank: the peer takes the same place in each rank's own group."""
        place = group.index(call.peer)
        options: dict[str, Any] = {} if partition.communicator == WORLD else {"on": partition.communicator}
        for rank in range(self.world) if role.ranks is None else role.ranks:
            peer = partition.group_of(rank)[place]
            if peer == rank:
                raise UsageError(
                    f"rank {rank} cannot {call.op} as rank {role.record.rank} does: it would be its own peer"
                    "; accepted: --roles with a rank for each of them"
                )
            method = stream.send if call.op == "send" else stream.recv
            method(_size(call.bytes, 1), peer, ranks=[rank], **options)


class _Track:
    """A stream of a role: collects kernels, and puts them on the program's stream as one computing period."""

    def __init__(self, stream: Stream, ranks: list[int] | None, host_us: float) -> None:
        self.stream, self._ranks, self._host_us = stream, ranks, host_us
        self._parts: list[tuple[str, Fraction]] = []
        """Time of kernels of one part of the script after another, in us."""
        self._launches = 0

    def add(self, us: float, part: str) -> None:
        if self._parts and self._parts[-1][0] == part:
            self._parts[-1] = part, self._parts[-1][1] + Fraction(us)
        else:
            self._parts.append((part, Fraction(us)))
        self._launches += 1

    def flush(self) -> None:
        """Put what was collected on the stream."""
        kernels_us = sum((us for _, us in self._parts), Fraction(0))
        ps = round(max(kernels_us, self._launches * Fraction(self._host_us)) * 10**6)
        parts = [(name, f"{max(1, round(us * 10**6))}ps") for name, us in self._parts]
        self._parts, self._launches = [], 0
        if ps:
            named = any(name for name, _ in parts)
            self.stream.compute(f"{ps}ps", ranks=self._ranks, parts=parts if named else ())

    def record(self) -> Event:
        self.flush()
        return self.stream.record(ranks=self._ranks)

    def wait(self, event: Event) -> None:
        self.flush()
        self.stream.wait(event, ranks=self._ranks)


def facts_of(record: Record, times: KernelTimes) -> Step:
    """What the last step of a record has."""
    operations = list(record.steps())[-1]
    kernels = [one for one in operations if isinstance(one, Kernel)]
    calls = [one for one in operations if isinstance(one, Call)]
    return Step(
        sum(times.us(one) for one in kernels),
        len(kernels),
        sum(one.flops for one in kernels),
        len(calls),
        sum(one.bytes for one in calls),
        2 * sum(one.flops for one in kernels if one.dtype in ("bfloat16", "float16"))
        > sum(one.flops for one in kernels),
    )


def rows_of(record: Record, times: KernelTimes) -> Iterator[tuple[str, str, str, int, float]]:
    """The last step as rows of stream, operation, detail, bytes and microseconds (of kernels, their sum)."""
    pending: dict[int, tuple[float, int, int, str]] = {}

    def ended(stream: int) -> Iterator[tuple[str, str, str, int, float]]:
        if stream in pending:
            us, count, size, module = pending.pop(stream)
            yield str(stream), counted(count, "kernel"), module, size, us

    for operation in list(record.steps())[-1]:
        if isinstance(operation, Kernel):
            us, count, size, _ = pending.get(operation.stream, (0.0, 0, 0, ""))
            pending[operation.stream] = (
                us + times.us(operation),
                count + 1,
                size + operation.bytes,
                operation.module,
            )
        elif isinstance(operation, Call):
            yield from ended(operation.stream)
            group = record.groups.get(operation.group, [])
            described = record.descriptions.get(operation.group, operation.group)
            yield (
                str(operation.stream),
                operation.op,
                f"{described} of {len(group)}, {operation.dtype}",
                operation.bytes,
                0.0,
            )
        elif isinstance(operation, Mark | Wait) and operation.stream != HOST:
            yield from ended(operation.stream)
    for stream in sorted(pending):
        yield from ended(stream)


def _named(group: Sequence[int]) -> str:
    """The ranks of a group, the first of a large one."""
    shown = ", ".join(map(str, group[:SHOWN_RANKS]))
    return f"ranks {shown}" + (f" and {len(group) - SHOWN_RANKS} more" if len(group) > SHOWN_RANKS else "")


def _called(calls: Sequence[Call]) -> str:
    """The first of these calls, with what its members must have alike; parts of an all_to_all may differ."""
    if not calls:
        return "nothing"
    one = calls[0]
    if one.op in ("barrier", "all_to_all"):
        return one.op
    root = f", root rank {one.peer}" if one.peer >= 0 else ""
    return f"{one.op} of {one.bytes} B of {one.dtype}{root}"


def _size(count: int, blocks: int) -> str:
    """Bytes, padded as torch pads flattened parameters: whole elements of four bytes for each block."""
    unit = ELEMENT_BYTES * blocks
    return f"{max(1, -(-count // unit)) * unit}B"
