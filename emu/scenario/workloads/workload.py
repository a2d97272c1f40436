"""What every kind of workload has to say: whether it fits its place, and what is to be done there.

A kind is one class below `Workload`, in a file of its own, and a line of the table in
`emu.scenario.workloads.jobs`. `fit` gets the `Site` of a job (its ranks on the fabric, and the scenario) and
makes one of three records, which are the same for all kinds:

- `Scripts`: what ranks do, as the collective library carries it out;
- `Flows`: messages that hosts post by themselves;
- `Clients`: requests to storage.

`emu.devices.plan` turns the record into queue pairs and programs of hosts. What else differs from kind to
kind (whether a job can lose ranks, which of the results it has) are methods and constants here, with what
most kinds answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Final, NamedTuple

from actors.fabric.model import Topology
from actors.ncclx.operations import ROOTED, TO_ALL, Operation
from actors.ncclx.script import COLLECTIVE, GroupCall, ScriptPlan
from actors.optional.perftest import TX_DEPTH
from actors.optional.storage_clients import ClientScript, Manners
from emu.base.records import Location
from emu.results.job_facts import NO_FACTS, JobFacts
from emu.results.planned_rows import CallPlan, CollectivePlan
from emu.results.summary import KIND_FIELDS
from emu.scenario.environment import Environment
from emu.scenario.section import Refusal, Section
from emu.scenario.sections.graph import AUTO, DEFAULT
from emu.scenario.workloads.recover import RecoverSection
from emu.workload.flows import Flow
from emu.workload.nccl_tuning import Choice
from emu.workload.program import MOST_PLACES, memberships

Picks = Callable[[Sequence[Sequence[int]], str, int, str], Choice]
"""How an operation, of so many bytes, is done among groups of ranks by an algorithm, or by `auto`."""

OF_KINDS: Final = ("collectives", "flows", *KIND_FIELDS)
"""Parts of `jobs.NAME` in the results that some kinds fill, and others do not have."""


class MisfitError(Exception):
    """A workload that does not fit its job: why, at which keys of the scenario."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__(refusals)
        self.refusals = tuple(refusals)


class Site(NamedTuple):
    """Where a job is."""

    environment: Environment
    """The scenario without jobs."""
    beside: tuple[Workload, ...]
    """The workloads of all jobs of the scenario."""
    topology: Topology
    job: int
    """Place in `jobs`."""
    gpus: tuple[int, ...]
    """The GPU of each rank, as a node number."""
    racks: tuple[int, ...]
    """The rack of each rank."""
    picks: Picks
    every_rank: bool
    """Whether the job has no `ranks` of its own."""
    mistaken: tuple[int, int] | None
    """A rank, and the size that it calls instead of the benchmark's."""
    spared: tuple[int, ...]
    """Ranks without which the others may go on."""
    recover: RecoverSection | None

    @property
    def seed(self) -> int:
        """The scenario's."""
        return self.environment.seed

    @property
    def servers(self) -> list[int]:
        """The host of each rank."""
        return [self.topology.host_of(gpu) for gpu in self.gpus]

    def key(self, *location: str | int) -> Location:
        """A key of the job, as one of the scenario."""
        return ("jobs", self.job, *location)

    def misfit(self, location: Location, reason: str, accepted: str) -> MisfitError:
        """What is wrong with a key of the job."""
        return MisfitError([Refusal(self.key(*location), reason, accepted)])

    def memberships(self, copies: Sequence[int] = ()) -> list[tuple[int, ...]]:
        """Ranks that can take over from one another, as `recover` has it. Raises MisfitError."""
        recover = self.recover
        assert recover is not None, self.job
        found = memberships(self.servers, recover.spares, recover.rejoin, recover.losses, copies)
        if found is None:
            reason = (
                "each set of ranks that may be lost has communicators of its own without it: there would be"
                f" more than {MOST_PLACES} places in them"
            )
            raise self.misfit(("recover",), reason, "fewer ranks or `losses`, or `shrink`")
        return found

    def picks_of(self, members: Sequence[int] | Mapping[int, int]) -> Picks:
        """How the operations of a membership are done, whose ranks are these of the job."""

        def chosen(groups: Sequence[Sequence[int]], op: str, size_bytes: int, algorithm: str) -> Choice:
            placed = [[members[rank] for rank in group] for group in groups]
            return self.picks(placed, op, size_bytes, algorithm)

        return chosen


class Scripts(NamedTuple):
    """What the ranks of a job do, in calls of the collective library and computing."""

    plan: ScriptPlan
    operations: tuple[Operation, ...] = ()
    """Each of which all ranks begin together."""
    facts: JobFacts = NO_FACTS
    """What the results need to know of it."""
    collectives: tuple[CollectivePlan, ...] = ()
    """What the results list of its operations, each in turn; the number of ranks and the rest of what wiring
    decides is filled in by `emu.devices.job_plans`."""
    calls: tuple[CallPlan, ...] = ()
    """What the results list of its steps."""
    reduces: bool = False
    """Whether `payload: real` gives its packets content."""


class Flows(NamedTuple):
    """Messages that hosts post by themselves."""

    flows: tuple[Flow, ...]
    message_bytes: tuple[int, ...]
    """Size of one message of each flow; the last has what is left."""
    verb: str = "write"
    qps: int = 1
    """Queue pairs of a flow."""
    front_end: bool = False
    """Whether they go over the front-end NIC of each host."""
    tx_depth: int = TX_DEPTH
    """Messages that a queue pair has outstanding at most."""
    facts: JobFacts = NO_FACTS
    """What the results need to know of them."""


class Copying(NamedTuple):
    """A part of a checkpoint on its way from a GPU to host memory."""

    gpu: int
    rate_bps: int
    takes_ps: int


class Clients(NamedTuple):
    """Clients of storage."""

    scripts: tuple[tuple[int, ClientScript], ...]
    """Host and requests of each; servers are numbers: storage servers first, then metadata servers."""
    manners: Manners
    chunks: int
    """Chunks of a block, parity counted."""
    copies: tuple[Copying, ...] = ()
    """What they begin with, where servers are of a known build."""
    facts: JobFacts = NO_FACTS
    """What the results need to know of them."""


class Workload(Section):
    """What a job does."""

    kind: str
    """Which workload."""

    parts: ClassVar[tuple[str, ...]] = ("collectives", "training")
    """Which of `OF_KINDS` its results have."""
    calls_library: ClassVar[bool] = True
    """Whether its ranks go through the collective library, in steps that an operator can count."""
    talks: ClassVar[bool] = False
    """Whether one rank alone would have nothing to do."""
    never_absent: ClassVar[str] = ""
    """Why no rank of it can be `absent`; empty where one can."""
    mistakable: ClassVar[bool] = False
    """Whether a rank may call with another size (`mismatch`)."""
    posted_from_outside: ClassVar[bool] = False
    """Whether programs outside say what it does, and nothing happens without them."""
    carries_content: ClassVar[bool] = False
    """Whether `payload: real` changes anything."""

    def fit(self, site: Site) -> Scripts | Flows | Clients:
        """What is to be done there. Raises MisfitError if it does not fit."""
        raise NotImplementedError

    def shrunk(self) -> Iterator[tuple[str, str]]:
        """Why ranks that `shrink` names cannot be lost, and what would do."""
        reason = "only a benchmark does an operation again without the lost"
        yield reason, "in a `collective` job, or `recover`"

    def recovered(self) -> Iterator[tuple[str, str]]:
        """Why ranks that nobody names cannot be lost, and what would do."""
        accepted = "in a job of `collective`, `program` or `training`"
        yield f"nobody says what is left of {self.kind} without a rank", accepted

    def rows(self) -> int | None:
        """How many rows `collectives` of its results has; None where that is not known beforehand."""
        return None

    @property
    def reads(self) -> bool:
        """Whether it posts READs."""
        return False

    @property
    def pairwise(self) -> bool:
        """Whether the library may move some of it by sends and receives between two ranks."""
        return self.calls_library

    @property
    def flows_on_front_end(self) -> bool:
        """Whether its own messages go over the front-end network."""
        return False

    @property
    def prioritised(self) -> bool:
        """Whether some of its communicators have a higher priority than others."""
        return False

    def saved_layout(self) -> tuple[int, int] | None:
        """Chunks of data and parity of the blocks that it saves, if it saves a checkpoint."""
        return None

    def classes(self) -> tuple[int | None, ...]:
        """Priorities of packets that it names itself."""
        return ()

    def slow_ranks(self) -> dict[int, Fraction]:
        """How many times as long computing takes on ranks that are slow by its own words."""
        return {}

    def peers(self, ranks: int) -> list[dict[str, list[int]]]:
        """For each rank, the ranks of its groups by dimension; empty for what has no dimensions."""
        del ranks
        return []


def tuned_calls(plan: ScriptPlan, picks: Picks) -> ScriptPlan:
    """A plan whose collectives are done as the tuner likes."""
    known: dict[tuple[int, GroupCall], GroupCall] = {}

    def tuned(number: int, call: GroupCall) -> GroupCall:
        group = plan.groups[number]
        if group.kind != COLLECTIVE and call.op not in TO_ALL:
            return call
        if (number, call) not in known:
            chosen = picks([group.members], call.op, call.size_bytes, AUTO)
            known[number, call] = call._replace(**chosen._asdict())
        return known[number, call]

    kinds: dict[int, tuple[list[GroupCall], list[GroupCall]]] = {}
    made: dict[tuple[int, tuple[GroupCall, ...]], list[GroupCall]] = {}

    def listed(number: int, calls: list[GroupCall]) -> list[GroupCall]:
        """Ranks that share a list share what is made of it, where the tuner likes the same."""
        kept = kinds.get(id(calls))
        if kept is None:
            kept = kinds[id(calls)] = calls, list(dict.fromkeys(calls))
        chosen = tuple(tuned(number, call) for call in kept[1])
        key = id(calls), chosen
        if key not in made:
            of = dict(zip(kept[1], chosen, strict=True))
            made[key] = [of[call] for call in calls]
        return made[key]

    for script in plan.scripts:
        script.calls = [
            listed(number, calls) for number, calls in zip(script.groups, script.calls, strict=True)
        ]
    return plan


def training_steps(steps: int) -> tuple[Operation, ...]:
    """The operations of a job of steps."""
    return tuple(Operation("training_step", "", 0, step, warmup=False) for step in range(steps))


def needs_every_rank(op: str, counts: bool, algorithm: str) -> Iterator[tuple[str, str]]:
    """Why a collective cannot be done without some of its ranks, and what can."""
    if op in ROOTED or counts:
        accepted = "of all_reduce, all_gather, reduce_scatter, all_to_all, sendrecv or barrier"
        yield f"{op} is told rank by rank", accepted
    known = (AUTO, DEFAULT, "ring", "direct", "double_binary_tree")
    if algorithm not in known:
        yield f"{algorithm} may need ranks that are left out", f"with `algorithm` {', '.join(known)}"
