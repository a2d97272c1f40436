"""`Program`: a user's program of operations, written in Python.

    program = emu.Program(ranks=4)
    pairs = program.communicator("pairs", split=[0, 0, 1, 1])
    side = program.stream("side")
    program.main.compute("20us")
    side.wait(program.main.record())
    side.all_reduce("1MiB", on=pairs)
    program.main.wait(side.record())
    result = emu.run(program.scenario(topology={"kind": "star", "hosts": 4}), local=True)

What the operations mean is in `emu.workload.program`. What is wrong is reported when the scenario is loaded,
with the key of the operation: operations are counted from 0 in the order of the calls. Quantities are written
as in a scenario ("1MiB", "20us").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NewType, TypedDict, Unpack

from emu.workload.program import COMPUTE, MAIN, RECORD, WAIT
from emu.workload.program import WORLD as _WORLD

Communicator = NewType("Communicator", str)
"""What `Program.communicator` returns."""
Event = NewType("Event", str)
"""What `Stream.record` returns."""
WORLD = Communicator(_WORLD)


class Options(TypedDict, total=False):
    """What may be said of any collective, with the names and values of a scenario."""

    on: Communicator
    """Which communicator; `WORLD` unless given."""
    algorithm: str | Mapping[str, Any]
    """How: a name, `auto`, `module:Class`, or a send/receive graph (`chunks` and `steps`)."""
    dtype: str
    """Type of an element, for `payload: real`."""
    ranks: Sequence[int] | None
    """Which ranks call it; None: all of them."""


class Reducing(Options, total=False):
    """The same of one that reduces."""

    redop: str
    """The reduction."""


class Stream:
    """A stream of every rank's. `ranks` says in each call which ranks do it; None: all of them."""

    def __init__(self, program: Program, name: str) -> None:
        self._program = program
        self.name = name
        self._group: dict[str, str] = {}
        """What is said of calls that begin together."""

    def compute(
        self, time: str, *, parts: Sequence[tuple[str, str]] = (), ranks: Sequence[int] | None = None
    ) -> None:
        """Be busy for a time. `parts` are names and times of what it consists of, for a timeline."""
        named = {"parts": [{"name": name, "time": part} for name, part in parts]} if parts else {}
        self._add("compute", ranks=ranks, time=time, **named)

    def all_reduce(self, size: str, **options: Unpack[Reducing]) -> None:
        """Reduce a buffer of `size`; all have the result."""
        self._add("all_reduce", size=size, **options)

    def all_gather(self, size: str, **options: Unpack[Options]) -> None:
        """Gather everybody's block of a buffer of `size` at all."""
        self._add("all_gather", size=size, **options)

    def reduce_scatter(self, size: str, **options: Unpack[Reducing]) -> None:
        """Reduce a buffer of `size`; each has its block of the result."""
        self._add("reduce_scatter", size=size, **options)

    def all_to_all(self, size: str, **options: Unpack[Options]) -> None:
        """Send each its block of a buffer of `size`."""
        self._add("all_to_all", size=size, **options)

    def all_to_allv(self, size: str, counts: Sequence[Sequence[int]], **options: Unpack[Options]) -> None:
        """Send each its part: `counts` in proportion, a row for each place of the group or one for all. The
        rank that has most has `size`.
        """
        self._add("all_to_allv", size=size, counts=[list(row) for row in counts], **options)

    def rooted(self, op: str, size: str, *, root: int = 0, **options: Unpack[Reducing]) -> None:
        """A `broadcast`, `reduce`, `gather` or `scatter`; the root is a place in the group."""
        self._add(op, size=size, root=root, **options)

    def barrier(self, *, on: Communicator = WORLD, ranks: Sequence[int] | None = None) -> None:
        """Wait until all are here."""
        self._add("barrier", ranks=ranks, on=on)

    def send(self, size: str, peer: int, *, on: Communicator = WORLD, ranks: Sequence[int]) -> None:
        """Send to a rank of the job, which is to receive as much."""
        self._add("send", ranks=ranks, on=on, size=size, peer=peer)

    def recv(self, size: str, peer: int, *, on: Communicator = WORLD, ranks: Sequence[int]) -> None:
        """Receive from a rank of the job."""
        self._add("recv", ranks=ranks, on=on, size=size, peer=peer)

    @contextmanager
    def group(self) -> Iterator[None]:
        """Collectives, sends and receives that begin together (ncclGroupStart, ncclGroupEnd): the stream goes
        on when all are over.
        """
        self._group = {"group": self._program.new_group()}
        try:
            yield
        finally:
            self._group = {}

    def record(self, *, ranks: Sequence[int] | None = None) -> Event:
        """An event that has happened when all that was put on the stream so far is over."""
        event = self._program.new_event()
        self._add("record", ranks=ranks, event=event)
        return event

    def wait(self, event: Event, *, ranks: Sequence[int] | None = None) -> None:
        """Let what is put on the stream from now on wait for an event."""
        self._add("wait", ranks=ranks, event=event)

    def _add(self, do: str, *, ranks: Sequence[int] | None = None, **keys: Any) -> None:
        operation: dict[str, Any] = {"do": do, "stream": self.name, **keys}
        if do not in (COMPUTE, RECORD, WAIT):
            operation |= self._group
        graph = operation.get("algorithm")
        if isinstance(graph, Mapping):
            operation |= {"algorithm": "graph", "graph": dict(graph)}
        if ranks is not None:
            operation["ranks"] = list(ranks)
        self._program.operations.append(operation)


class Program:
    """A program of so many ranks; `steps` times, one after another."""

    def __init__(self, ranks: int, name: str = "program", steps: int = 1) -> None:
        self.ranks = ranks
        self.name = name
        """Name of the job: its results are `summary.jobs[name]`."""
        self.steps = steps
        self.operations: list[dict[str, Any]] = []
        """What the streams were given, with the keys of a scenario."""
        self.main = Stream(self, MAIN)
        """The stream whose computing and waiting the results tell."""
        self._communicators: list[dict[str, Any]] = []
        self._events = 0
        self._groups = 0

    def stream(self, name: str) -> Stream:
        """A stream; the same one for the same name."""
        return Stream(self, name)

    def communicator(
        self,
        name: str,
        split: Sequence[int] = (),
        *,
        priority: int = 0,
        data_priority: int | None = None,
        in_flight: int = 1,
    ) -> Communicator:
        """A communicator for each colour of `split`, which has one for each rank (-1: none).

        `priority` is that of its copies on the GPU, `data_priority` that of its packets; `in_flight` how many
        of its operations may be under way, on several streams.
        """
        listed = {"name": name, "split": list(split), "priority": priority, "in_flight": in_flight}
        if data_priority is not None:
            listed["data_priority"] = data_priority
        self._communicators.append(listed)
        return Communicator(name)

    def new_event(self) -> Event:
        """A name that no event has."""
        self._events += 1
        return Event(f"event{self._events}")

    def new_group(self) -> str:
        """A name that no group of transfers has."""
        self._groups += 1
        return f"group{self._groups}"

    def workload(self) -> dict[str, Any]:
        """The workload of a job, with the keys of a scenario."""
        return {
            "kind": "program",
            "communicators": list(self._communicators),
            "operations": list(self.operations),
            "steps": self.steps,
        }

    def scenario(self, topology: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
        """A scenario with this program as its one job, for `emu.run` or `emu.load`."""
        job = {"name": self.name, "ranks": self.ranks, "workload": self.workload()}
        return {"name": self.name, "topology": dict(topology), "jobs": [job], **sections}
