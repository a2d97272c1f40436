"""The script of one GPU: streams of instructions, and the groups it calls.

A stream carries its instructions out one after the other; streams run side by side. An instruction is four
integers:

    COMPUTE   a ps                       the stream is busy that long
    CALL      a group, b place           the collective or transfer `calls[b]` of that group; busy till done;
                                         on stream 0 that time counts to the group's reason
    WAIT      a event, b reason          for the event; time lost on stream 0 counts to the reason
    RECORD    a event                    the event has happened, until the next step

An operation of the job is one run through all streams; of a benchmark (`single`) it is one instruction of the
only stream.

Groups are numbered over the job. Kinds: `collective` (every member calls the same collectives in the same
order), `exchange` (the same, of those that NCCL makes of sends and receives), `line` (the first member sends
to the second). A group has connections of its own, which all its calls share, whatever their algorithms. A
group is called by one stream at a time, so its calls have an order; a stream may call several groups.

Where ranks that are lost are gone without, a job has several memberships (`with_memberships`): for each, who
takes part, in which groups, with which streams. The groups of each have connections of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from actors.ncclx.graph import Algorithm
from actors.ncclx.operations import POINT_TO_POINT

COMPUTE: Final = 0
CALL: Final = 1
WAIT: Final = 2
RECORD: Final = 3

COLLECTIVE: Final = "collective"
EXCHANGE: Final = "exchange"
LINE: Final = "line"
TRANSFER: Final = "send"
"""What both members of a line call."""
UNLABELLED: Final = -1
MOST_LISTED: Final = 1 << 18
"""Calls of a trace, over all ranks, that the results list."""

REASONS: Final = ("tp", "cp", "pp", "dp", "ep")
"""What stream 0 can wait for in a training step; a reason is a place here, or in the plan's own `reasons`."""

RINGED: Final = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
"""Collectives for which NCCL has a ring."""
Instruction = tuple[int, int, int]


class Group(NamedTuple):
    """Ranks of the job that talk to one another."""

    kind: str
    reason: int
    members: tuple[int, ...]
    priority: int = 0
    """Priority of its copies among those of a GPU; higher ones are done first."""
    data_priority: int | None = None
    """Priority of its packets, if not the job's."""
    copy: int = 0
    """Number among several with connections of their own, where a communicator has several operations in
    flight."""
    membership: int = 0
    """Number of the job's membership that it belongs to."""


class GroupCall(NamedTuple):
    """One collective or transfer; bytes of the whole buffer."""

    op: str
    size_bytes: int
    algorithm: str
    root: int = 0
    """By place in the group."""
    label: int = UNLABELLED
    """Under which the results list it."""
    weights: tuple[tuple[int, ...], ...] = ()
    """How much each rank of an all_to_allv has for each, in proportion."""
    dtype: str = "fp32"
    """Type of an element, where payload is real."""
    redop: str = "sum"
    own: Algorithm | None = None
    """The algorithm, where it is not one of the library's."""
    protocol: str = ""
    """Nothing: that of the settings."""
    channels: int = 0
    """How many have a share; 0: all of the communicator's."""


def kind_of(op: str) -> str:
    """The kind of the groups that call a collective."""
    return EXCHANGE if op in POINT_TO_POINT else COLLECTIVE


@dataclass
class Script:
    """One rank's. `groups` are numbers of the job's groups; calls name groups by their place here."""

    rank: int
    groups: list[int] = field(default_factory=list)
    calls: list[list[GroupCall]] = field(default_factory=list)
    stream_of: list[int] = field(default_factory=list)
    """By group, the stream that calls it unless another is given."""
    streams: list[list[Instruction]] = field(default_factory=lambda: [[]])
    """Stream 0 computes."""
    events: int = 0
    like: int = -1
    """A rank with the same calls and streams, in other groups; -1: nobody is known to have them."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """By membership of the job, where it has several: the places of its groups, first and behind the last, by
    which the calls of its streams count; both -1 where it takes no part."""
    lines: list[list[list[Instruction]]] = field(default_factory=list)
    """The streams by membership, where the job has several."""

    def stream(self) -> int:
        """A new stream."""
        self.streams.append([])
        return len(self.streams) - 1

    def join(self, group: int, stream: int | None = None) -> int:
        """Take part in a group of the job, on a stream of its own unless one is given; returns its place
        here.
        """
        self.groups.append(group)
        self.calls.append([])
        self.stream_of.append(self.stream() if stream is None else stream)
        return len(self.groups) - 1

    def compute(self, duration_ps: int, stream: int = 0) -> None:
        """Compute."""
        if duration_ps > 0:
            self.streams[stream].append((COMPUTE, duration_ps, 0))

    def event(self) -> int:
        """A new event, which nothing records yet."""
        self.events += 1
        return self.events - 1

    def record(self, stream: int = 0, event: int | None = None) -> int:
        """Record an event, a new one unless it is given, when the stream gets there."""
        recorded = self.event() if event is None else event
        self.streams[stream].append((RECORD, recorded, 0))
        return recorded

    def wait(self, event: int, reason: int, stream: int = 0) -> None:
        """Let a stream wait for an event."""
        self.streams[stream].append((WAIT, event, reason))

    def call(
        self, place: int, op: str, size_bytes: int, after: Iterable[int] = (), label: int = UNLABELLED
    ) -> int:
        """Call a group, on its stream, after some events; returns the event of its end."""
        for event in after:
            self.wait(event, 0, self.stream_of[place])
        self.add_call(place, op, size_bytes, label=label)
        return self.record(self.stream_of[place])

    def add_call(self, place: int, op: str, size_bytes: int, root: int = 0, label: int = UNLABELLED) -> None:
        """Call a group, on its stream, by the algorithm that NCCL would take."""
        self.put_call(place, GroupCall(op, size_bytes, "ring" if op in RINGED else "direct", root, label))

    def put_call(self, place: int, call: GroupCall, stream: int | None = None) -> None:
        """Call a group, on its stream unless one is given."""
        self.calls[place].append(call)
        on = self.stream_of[place] if stream is None else stream
        self.streams[on].append((CALL, place, len(self.calls[place]) - 1))


class ScriptPlan:
    """The groups of a job and the script of each rank."""

    def __init__(self) -> None:
        self.reasons: tuple[str, ...] = REASONS
        """What stream 0 can wait for."""
        self.single = False
        """Whether each operation of the job is one instruction of the only stream."""
        self.spared: tuple[int, ...] = ()
        """Ranks without which the others may go on, on the second of `memberships`."""
        self.memberships: list[tuple[int, ...]] = []
        """Memberships of a job that may lose ranks: who can take over from one another. The first ones begin.
        """
        self.groups: list[Group] = []
        self.scripts: list[Script] = []
        self._numbers: dict[Group, int] = {}

    def group(self, group: Group) -> int:
        """The number of a group, which it gets at its first mention."""
        if group not in self._numbers:
            self._numbers[group] = len(self.groups)
            self.groups.append(group)
        return self._numbers[group]

    def parts_of(self, rank: int) -> dict[int, list[tuple[tuple[str, int], ...]]]:
        """By stream of a rank's script, the parts of each period of computing in a step, with their times in
        ps; only streams that have parts.
        """
        del rank
        return {}

    def list_if_few(self) -> None:
        """Leave calls out of the results where there are more than these can hold."""
        if sum(len(calls) for script in self.scripts for calls in script.calls) > MOST_LISTED:
            for script in self.scripts:
                script.calls = [[one._replace(label=UNLABELLED) for one in calls] for calls in script.calls]

    def calls_of(self, number: int) -> list[tuple[int, list[GroupCall]]]:
        """The calls of every member of a group, with its rank; none of a member that never calls it."""
        found: list[tuple[int, list[GroupCall]]] = []
        for rank in self.groups[number].members:
            script = self.scripts[rank]
            place = script.groups.index(number) if number in script.groups else -1
            found.append((rank, script.calls[place] if place >= 0 else []))
        return found

    def disagreements(self) -> Iterator[str]:
        """Calls of the members of a group that do not fit one another, in words: of a user's program."""
        return iter(())

    def transfers(self, membership: int = 0) -> Iterator[tuple[int, GroupCall, int, GroupCall]]:
        """Every send with the receive that takes it: sender, its call, receiver, its call."""
        for number, group in enumerate(self.groups):
            if group.kind == LINE and group.membership == membership:
                (sender, sends), (receiver, receives) = self.calls_of(number)
                for send, receive in zip(sends, receives, strict=False):
                    yield sender, send, receiver, receive


PlanT = TypeVar("PlanT", bound=ScriptPlan)


def with_memberships(plans: Sequence[tuple[PlanT, Mapping[int, int], Sequence[int]]], ranks: int) -> PlanT:
    """The first plan, of a job of so many ranks, from which the others can take over.

    Of each: the plan, the rank of the job that each of its own ranks is, and who takes part.
    """
    first = plans[0][0]
    scripts = [Script(rank, streams=[]) for rank in range(ranks)]
    groups: list[Group] = []
    for number, (plan, who, _) in enumerate(plans):
        start = len(groups)
        for one in plan.groups:
            those = tuple(who[rank] for rank in one.members)
            groups.append(one._replace(members=those, membership=number))
        for own in plan.scripts:
            _take_part(scripts[who[own.rank]], own, start)
        for script in scripts:
            if len(script.spans) == number:
                script.spans.append((-1, -1))
                script.lines.append([])
    for script in scripts:
        most = max(map(len, script.lines))
        script.lines = [[*lines, *([[]] * (most - len(lines)))] for lines in script.lines]
        script.streams = script.lines[0]
    first.memberships = [tuple(members) for _, _, members in plans]
    first.reasons = max((plan.reasons for plan, _, _ in plans), key=len)
    first.groups = groups
    first.scripts = scripts
    return first


def _take_part(script: Script, own: Script, start: int) -> None:
    """Add what a rank does in one more membership, whose groups have numbers from `start` on."""
    place = len(script.groups)
    script.groups += [start + number for number in own.groups]
    script.calls += own.calls
    script.stream_of += own.stream_of
    script.spans.append((place, len(script.groups)))
    script.lines.append(own.streams)
    script.events = max(script.events, own.events)
