"""Workload `program`: a list of operations on streams, written by the user.

What they mean, and what is not modelled, is in `emu.workload.program`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal

from actors.ncclx.graph import BARRIER_BYTES
from actors.ncclx.operations import ALGORITHMS, BLOCKWISE, REDUCING, ROOTED, Collective, misfit
from actors.ncclx.script import with_memberships
from emu.base.records import Field
from emu.base.units import counted
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.graph import (
    AUTO,
    DEFAULT,
    GRAPH,
    AlgorithmChoice,
    GraphSection,
    able,
    by_default,
    own_algorithm,
)
from emu.scenario.workloads.workload import (
    Picks,
    Scripts,
    Site,
    Workload,
    needs_every_rank,
    training_steps,
)
from emu.scenario.yaml.values import AutoPriority, Name, PositiveSizeBytes, PositiveTimePs
from emu.workload.nccl_tuning import Choice
from emu.workload.program import MAIN, WORLD, Communicator, ProgramPlan, Step, faults, stand_ins
from emu.workload.step_facts import trace_facts

PEERED: Final = ("send", "recv")
EVENTFUL: Final = ("record", "wait")
MOST_OPERATIONS: Final = 4096
Rank = Annotated[int, Field(ge=0, le=2**20)]


class CommunicatorSection(Section):
    """A communicator: what ranks of one colour share."""

    name: Name
    """Name that operations use. `world`, of all ranks, exists without being listed; list it to give it
    priorities."""
    split: Annotated[tuple[Annotated[int, Field(ge=-1)], ...], Field(max_length=65536)] = ()
    """A colour for each rank: ranks of one colour are a group, in their order (ncclCommSplit); -1: in none.
    Empty: all ranks are one group."""
    priority: Annotated[int, Field(ge=0, le=15)] = 0
    """Priority of its copies on the GPU: those of the highest are done first (CUDA's stream priority)."""
    data_priority: AutoPriority = None
    """Priority of its packets (NCCL's trafficClass). `auto`: that of the job."""
    in_flight: Annotated[int, Field(ge=1, le=16)] = 1
    """Operations of it that can run at once at a rank, on several streams. NCCL runs one after another, in
    the order of the list, whatever their streams; each further one has its own connections
    (NCCL_CTRAN_IB_NUM_VCS_PER_RANK)."""

    def groups(self, ranks: int) -> tuple[tuple[int, ...], ...]:
        """The members of each group, by colour as they first come."""
        found: dict[int, list[int]] = {}
        for rank, colour in enumerate(self.split or (0,) * ranks):
            if colour >= 0:
                found.setdefault(colour, []).append(rank)
        return tuple(map(tuple, found.values()))


class PartSection(Section):
    """One part of the computing of an operation, for timelines."""

    name: Annotated[str, Field(max_length=1024)] = ""
    """Name in the timeline. Dots nest: `layers.0.attention` is a slice within `0` within `layers`. Empty: no
    slice."""
    time_ps: PositiveTimePs
    """Its share of the computing, in proportion to the other parts."""


class OperationSection(Section):
    """One operation of a program."""

    do: Collective | Literal["send", "recv", "compute", "record", "wait"]
    """Operation: a collective, a transfer, computing, or an event recorded or waited for."""
    ranks: Annotated[tuple[Rank, ...], Field(min_length=1, max_length=65536)] | None = None
    """Ranks that take part. Default: all."""
    stream: Name = MAIN
    """The stream that it is put on."""
    on: Name = WORLD
    """Communicator of a collective or transfer."""
    size_bytes: PositiveSizeBytes | None = None
    """Size of the whole buffer of a collective or transfer, as in a benchmark. A barrier has none."""
    algorithm: AlgorithmChoice = AUTO
    """Algorithm of a collective. `auto`: the choice of `ncclx.tuner`. `default`: ring if there is one, else
    direct. A file: a send/receive graph. `module:Class`: one of your own."""
    graph: GraphSection | None = None
    """The send/receive graph of `algorithm: graph`; `algorithm: FILE` puts it here."""
    dtype: Literal["fp32", "bf16", "int32"] = "fp32"
    """Type of an element of a collective, which is what `payload: real` reduces and counts."""
    redop: Literal["sum", "prod", "min", "max"] = "sum"
    """Reduction of all_reduce, reduce_scatter and reduce."""
    counts: Annotated[
        tuple[Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=65536)], ...],
        Field(max_length=65536),
    ] = ()
    """For all_to_allv: weights of the data of each place of the group for each other, row by row; or one row
    for all."""
    root: Rank = 0
    """Place in the group of the root of broadcast, reduce, gather and scatter."""
    peer: Rank | None = None
    """The other rank of the job, of send and recv."""
    group: Name | None = None
    """Group of collectives or transfers: those that stand one after the other on a stream with the same name
    begin together, and the stream goes on when all are over (ncclGroupStart, ncclGroupEnd)."""
    time_ps: PositiveTimePs | None = None
    """Time of the computing."""
    parts: Annotated[tuple[PartSection, ...], Field(max_length=65536)] = ()
    """Parts of the computing, in order, which `emu export perfetto` shows as slices. They change nothing of
    the run."""
    event: Name | None = None
    """Event of record and wait. A wait is for the last record above it."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what is missing, and what belongs to another operation."""
        needs = {
            "time": self.do == "compute",
            "event": self.do in EVENTFUL,
            "peer": self.do in PEERED,
            "size": self.talks and self.do != "barrier",
        }
        given = {"time": self.time_ps, "event": self.event, "peer": self.peer, "size": self.size_bytes}
        for key, needed in needs.items():
            if needed != (given[key] is not None):
                reason = f"{self.do} needs it" if needed else f"{self.do} has none"
                yield Refusal((key,), reason, "as the table of operations says")
        if bool(self.counts) != (self.do == "all_to_allv"):
            reason = f"{self.do} has none" if self.counts else "all_to_allv needs them"
            yield Refusal(("counts",), reason, "with all_to_allv, and only there")
        elif self.counts and not all(sum(row) for row in self.counts):
            yield Refusal(("counts",), "a row has nothing for anybody", "rows with a number above 0")
        if self.parts and self.do != "compute":
            yield Refusal(("parts",), f"{self.do} has none", "only with compute")
        if self.root and self.do not in ROOTED:
            yield Refusal(("root",), f"{self.do} has no root", f"only with {', '.join(ROOTED)}")
        if self.group is not None and not self.talks:
            yield Refusal(("group",), f"{self.do} begins by itself", "only with what communicates")
        if not self.talks and self.on != WORLD:
            yield Refusal(("on",), f"{self.do} needs no communicator", "only with what communicates")
        yield from self._check_collective()

    def _check_collective(self) -> Iterator[Refusal]:
        collective = self.talks and self.do not in PEERED
        own = self.algorithm not in (AUTO, DEFAULT, *ALGORITHMS)
        if self.algorithm in ALGORITHMS and self.do not in ALGORITHMS[self.algorithm]:
            reason = f"{self.algorithm} has no {self.do}"
            yield Refusal(("algorithm",), reason, ", ".join([AUTO, DEFAULT, *able(self.do)]))
        elif own and not collective:
            yield Refusal(("algorithm",), f"{self.do} has none", "only with a collective")
        if (self.graph is None) == (self.algorithm == GRAPH):
            reason = "there is no graph" if self.graph is None else f"the algorithm is {self.algorithm}"
            yield Refusal(("graph",), reason, "with `algorithm: graph`, and only then")
        if self.redop != "sum" and self.do not in REDUCING:
            yield Refusal(("redop",), f"{self.do} reduces nothing", f"only with {', '.join(REDUCING)}")
        if self.dtype != "fp32" and (not collective or self.do == "barrier"):
            yield Refusal(("dtype",), f"{self.do} has no elements", "only with a collective")

    @property
    def talks(self) -> bool:
        """Whether it is a collective or a transfer."""
        return self.do != "compute" and self.do not in EVENTFUL

    def step(self) -> Step:
        """The same without the scenario's spelling."""
        algorithm = by_default(self.do) if self.algorithm == DEFAULT else self.algorithm
        return Step(
            do=self.do,
            ranks=self.ranks,
            stream=self.stream,
            communicator=self.on,
            algorithm=algorithm,
            size_bytes=BARRIER_BYTES if self.do == "barrier" else self.size_bytes or 0,
            duration_ps=self.time_ps or 0,
            root=self.root,
            peer=-1 if self.peer is None else self.peer,
            event=self.event or "",
            counts=self.counts,
            own=own_algorithm(algorithm, self.graph),
            dtype=self.dtype,
            redop=self.redop,
            group=self.group or "",
            parts=tuple((one.name, one.time_ps) for one in self.parts),
        )


class ProgramWorkload(Workload):
    """A program of operations on streams, with events and communicators."""

    carries_content: ClassVar[bool] = True

    kind: Literal["program"] = "program"
    """A program."""
    communicators: Annotated[tuple[CommunicatorSection, ...], Field(max_length=64)] = ()
    """Communicators beside `world`."""
    operations: Annotated[tuple[OperationSection, ...], Field(min_length=1, max_length=MOST_OPERATIONS)]
    """Operations that every rank executes."""
    steps: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often, one after another."""

    def check(self) -> Iterator[Refusal]:
        """Refuse communicators listed twice, and operations on unknown ones."""
        names = [one.name for one in self.communicators]
        for at, name in enumerate(names):
            if name in names[:at]:
                yield Refusal(("communicators", at, "name"), f"{name!r} is listed already", "another name")
        known = [WORLD, *(name for name in names if name != WORLD)]
        for at, operation in enumerate(self.operations):
            if operation.on not in known:
                reason = f"there is no communicator {operation.on!r}"
                yield Refusal(("operations", at, "on"), reason, ", ".join(known))

    def recovered(self) -> Iterator[tuple[str, str]]:
        """Each collective has to go on without ranks."""
        for one in self.operations:
            if one.talks and one.do not in PEERED:
                yield from needs_every_rank(one.do, bool(one.counts), one.algorithm)

    @property
    def prioritised(self) -> bool:
        """As communicators say."""
        return any(one.priority for one in self.communicators)

    def classes(self) -> tuple[int | None, ...]:
        """The traffic class of each communicator."""
        return tuple(one.data_priority for one in self.communicators)

    def fit(self, site: Site) -> Scripts:
        """What each rank goes through. Each membership of a job that goes on without lost ranks does what is
        left of it, and a spare what the rank did whose place it has.
        """
        if site.recover is None:
            plan = self._plan(site, site.picks)
        else:
            known = site.memberships()
            made = []
            for members in known:
                instead = stand_ins(known[0], members)
                made.append((self._plan(site, site.picks_of(instead), instead), instead, members))
            plan = with_memberships(made, len(site.gpus))
        facts = trace_facts(self.steps, len(plan.scripts), self.cut(), Fraction(1), plan.reasons)
        facts = replace(facts, members=tuple(plan.memberships))
        calls = plan.listed_calls(self.steps)
        return Scripts(plan, training_steps(self.steps), facts, calls=calls, reduces=True)

    def _plan(self, site: Site, picks: Picks, left: Collection[int] | None = None) -> ProgramPlan:
        """What the ranks do, or, if some are lost, those that are `left`: nobody calls the others. Raises
        MisfitError.
        """
        servers = site.servers
        ranks = len(servers)
        for at, one in enumerate(self.communicators):
            if len(one.split) not in (0, ranks):
                reason = f"{len(one.split)} colours for {ranks} ranks"
                where = ("workload", "communicators", at, "split")
                raise site.misfit(where, reason, f"{ranks} colours, or none")
        sections = self.communicators
        if not any(one.name == WORLD for one in sections):
            sections = (CommunicatorSection(name=WORLD), *sections)
        communicators = [
            Communicator(one.name, one.groups(ranks), one.priority, one.data_priority, one.in_flight)
            for one in sections
        ]
        steps = [one.step() for one in self.operations]
        for fault in faults(steps, communicators, ranks):
            where = ("workload", "operations", fault.place, fault.key)
            raise site.misfit(where, fault.reason, fault.accepted)
        if left is not None:
            communicators = [one.among(left) for one in communicators]
        groups = {one.name: [group for group in one.groups if len(group) > 1] for one in communicators}
        picked: dict[tuple[str, str, int, str], Choice] = {}
        for at, step in enumerate(steps):
            found = groups[step.communicator]
            if step.talks and step.do not in PEERED and step.own is None:
                call = (step.communicator, step.do, step.size_bytes, step.algorithm)
                if call not in picked:
                    picked[call] = picks(found, *call[1:]) if found else Choice(by_default(step.do))
                steps[at] = step._replace(**picked[call]._asdict())
            for group in found:
                refusal = self._misfit(at, steps[at], [servers[rank] for rank in group])
                if refusal is not None:
                    raise site.misfit(("workload", *refusal.location), refusal.reason, refusal.accepted)
        return ProgramPlan(steps, communicators, ranks, left)

    def _misfit(self, at: int, step: Step, servers: Sequence[int]) -> Refusal | None:
        """Why an operation's algorithm does not fit a group, if it does not."""
        where = ("operations", at)
        graph = self.operations[at].graph
        unfit = misfit(step.algorithm, servers)
        if unfit is not None:
            return Refusal((*where, "algorithm"), *unfit)
        if graph is None:
            return None
        if len(graph.steps) != len(servers):
            reason = f"steps for {len(graph.steps)} ranks, and a group has {len(servers)}"
            return Refusal((*where, "graph", "steps"), reason, f"{len(servers)} lists")
        if step.do in BLOCKWISE and graph.chunks % len(servers):
            reason = f"{graph.chunks} chunks are no whole number for each of {len(servers)} ranks"
            return Refusal((*where, "graph", "chunks"), reason, f"a multiple of {len(servers)}")
        return None

    def cut(self) -> str:
        """What it consists of."""
        names = ", ".join(one.name for one in self.communicators)
        what = f"program of {counted(len(self.operations), 'operation')}"
        return what + (f", communicators {names}" if names else "")
