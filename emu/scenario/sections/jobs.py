"""Section `jobs`: which ranks, where, from when, and the workload.

Sizes of collectives count as nccl-tests counts them: bytes of the
whole buffer (all ranks' together for all_gather, reduce_scatter, gather and scatter; of what one rank sends
for all_to_all, of what the rank sends that sends most for all_to_allv).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from actors.ncclx.graph import BARRIER_BYTES
from actors.ncclx.operations import ALGORITHMS, REDUCING, ROOTED, OperationName
from emu.base.spelling import did_you_mean, shown
from emu.scenario.section import OneOf, Refusal, RefusedError, Section
from emu.scenario.sections.flows import (
    FlowList,
    FlowsWorkload,
    FlowTable,
    Incast,
    Permutation,
    Poisson,
)
from emu.scenario.sections.graph import (
    AUTO,
    DEFAULT,
    GRAPH,
    AlgorithmChoice,
    GraphSection,
    able,
    by_default,
)
from emu.scenario.sections.open_job import OpenWorkload
from emu.scenario.sections.program import PEERED, ProgramWorkload
from emu.scenario.sections.serving import ServingWorkload
from emu.scenario.sections.storage import (
    Checkpoint,
    Reads,
    Rebalance,
    Repair,
    StorageWorkload,
)
from emu.scenario.sections.trace import ChakraTrace, SimaiTrace
from emu.scenario.sections.training import TrainingWorkload
from emu.scenario.yaml.values import (
    AutoPositiveTimePs,
    AutoPriority,
    Name,
    PositiveSizeBytes,
    Reading,
    TimePs,
)

Ranks = Literal["all"] | int | tuple[int, ...]
Order = Literal["contiguous", "strided"] | tuple[int, ...]


def _numbers(value: object, accepted: str) -> tuple[int, ...]:
    if not isinstance(value, (tuple, list)):
        hint = did_you_mean(value, ("all", "contiguous", "strided")) if isinstance(value, str) else ""
        raise RefusedError(f"{shown(value)} is not understood{hint}", accepted)
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise RefusedError(f"{shown(item)} in the list is not a number from 0", accepted)
    numbers = tuple(value)
    if len(dict.fromkeys(numbers)) != len(numbers):
        raise RefusedError("a number is listed twice", accepted)
    return numbers


ALONE: Final = "1 is too few to talk to one another"
TWO: Final = "at least 2; one rank does for training, a trace or a program"
RANKS_ACCEPTED: Final = "all, how many (at least 1), or a list of GPUs by number, each once"
ORDER_ACCEPTED: Final = "contiguous, strided, or a list of places, each once"


def _read_ranks(value: object) -> Ranks:
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise RefusedError(f"{value} is no number of ranks", RANKS_ACCEPTED)
        return value
    numbers = _numbers(value, RANKS_ACCEPTED)
    if not numbers:
        raise RefusedError("the list is empty", RANKS_ACCEPTED)
    return numbers


def _read_order(value: object) -> Order:
    if value == "contiguous":
        return "contiguous"
    return "strided" if value == "strided" else _numbers(value, ORDER_ACCEPTED)


def _show(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


_NUMBER_LIST: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}}
RankChoice = Annotated[
    Ranks,
    Reading(
        _read_ranks,
        _show,
        RANKS_ACCEPTED,
        {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}, _NUMBER_LIST]},
        "`all`, number or list",
    ),
]
OrderChoice = Annotated[
    Order,
    Reading(
        _read_order,
        _show,
        ORDER_ACCEPTED,
        {"anyOf": [{"enum": ["contiguous", "strided"]}, _NUMBER_LIST]},
        "`contiguous`, `strided` or list",
    ),
]


class CollectiveWorkload(Section):
    """A benchmark of one collective, as nccl-tests runs it."""

    kind: Literal["collective"] = "collective"
    """A collective benchmark."""
    op: OperationName
    """The operation."""
    algorithm: AlgorithmChoice = AUTO
    """How it is done. `auto`: what the model of `ncclx.tuner` likes best for each size. `default`: ring where
    there is one, else direct. A file: a send/receive graph. `module:Class`: one's own."""
    sizes_bytes: Annotated[tuple[PositiveSizeBytes, ...], Field(min_length=1, max_length=256)]
    """Sizes of the whole buffer, one row of results each; 4 B for a barrier, which moves one element."""
    dtype: Literal["fp32", "bf16", "int32"] = "fp32"
    """Type of an element: what `payload: real` reduces and counts, and what tables say."""
    redop: Literal["sum", "prod", "min", "max"] = "sum"
    """Reduction of all_reduce, reduce_scatter and reduce."""
    root: Annotated[int, Field(ge=0)] = 0
    """Rank that broadcast and scatter start from, and reduce and gather end at."""
    counts: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...] = ()
    """For all_to_allv: what each rank has for each, in proportion, row by row; or one row for all."""
    split: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """A colour for each rank: ranks of one colour are a communicator of their own, in their order, and all do
    the collective at once (ncclCommSplit). Empty: one communicator."""
    graph: GraphSection | None = None
    """The send/receive graph of `algorithm: graph`; `algorithm: FILE` puts it here."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Timed repetitions of each size, one after another."""
    warmup: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Repetitions before those, not reported."""

    def check(self) -> Iterator[Refusal]:
        """Refuse an algorithm that does not know the operation, and what belongs to another operation.

        A size may not be listed twice: its rows could not be told apart.
        """
        if self.algorithm in ALGORITHMS and self.op not in ALGORITHMS[self.algorithm]:
            reason = f"{self.algorithm} has no {self.op}"
            yield Refusal(("algorithm",), reason, ", ".join([AUTO, DEFAULT, *able(self.op)]))
        if self.op == "barrier" and self.sizes_bytes != (BARRIER_BYTES,):
            yield Refusal(("sizes",), "a barrier moves one element", f"[{BARRIER_BYTES}B]")
        if self.redop != "sum" and self.op not in REDUCING:
            yield Refusal(("redop",), f"{self.op} reduces nothing", f"only with {', '.join(REDUCING)}")
        if self.root and self.op not in ROOTED:
            yield Refusal(("root",), f"{self.op} has no root", f"only with {', '.join(ROOTED)}")
        if (self.graph is None) == (self.algorithm == GRAPH):
            reason = "there is no graph" if self.graph is None else f"the algorithm is {self.algorithm}"
            yield Refusal(("graph",), reason, "with `algorithm: graph`, and only then")
        yield from self._check_counts()
        for at, size in enumerate(self.sizes_bytes):
            if size in self.sizes_bytes[:at]:
                accepted = "each size once; `iterations` repeats a size"
                yield Refusal(("sizes", at), "is listed already", accepted)

    def _check_counts(self) -> Iterator[Refusal]:
        if bool(self.counts) != (self.op == "all_to_allv"):
            reason = f"{self.op} has none" if self.counts else "all_to_allv needs them"
            yield Refusal(("counts",), reason, "a list of rows, only with all_to_allv")
        elif self.counts and not any(map(sum, self.counts)):
            yield Refusal(("counts",), "all of them are 0", "at least one above 0")

    def groups(self, ranks: int) -> list[list[int]]:
        """The ranks of each communicator, by colour as they first come."""
        of_colour: dict[int, list[int]] = {}
        for rank, colour in enumerate(self.split or (0,) * ranks):
            of_colour.setdefault(colour, []).append(rank)
        return list(of_colour.values())

    @property
    def known_algorithm(self) -> str:
        """The algorithm's name, `default` resolved; what `auto` picks depends on the size."""
        return by_default(self.op) if self.algorithm == DEFAULT else self.algorithm


WORKLOADS: Final = OneOf(
    "kind",
    {
        "collective": CollectiveWorkload,
        "permutation": Permutation,
        "incast": Incast,
        "poisson": Poisson,
        "flows": FlowList,
        "flow_table": FlowTable,
        "checkpoint": Checkpoint,
        "reads": Reads,
        "repair": Repair,
        "rebalance": Rebalance,
        "serving": ServingWorkload,
        "training": TrainingWorkload,
        "simai_trace": SimaiTrace,
        "chakra_trace": ChakraTrace,
        "program": ProgramWorkload,
        "open": OpenWorkload,
    },
)


class MismatchSection(Section):
    """One rank that calls every operation with another size than the rest."""

    rank: Annotated[int, Field(ge=0)]
    """Which."""
    size_bytes: PositiveSizeBytes
    """What it asks for."""


class RecoverSection(Section):
    """A job that goes on when it loses a rank, or all ranks of a server, to whatever fault. The controller
    finds out who is lost; the others abort their communicators and do the operation or step again with
    others, as under a coordinator of NCCLX's fault-tolerant all_reduce. Of training, replicas go without
    those that lose a rank."""

    wait_ps: AutoPositiveTimePs = None
    """How long the controller waits for reports after the first failure; who has not reported then is lost.
    `auto`: `ncclx.watchdog`, by which all that are left have given up too."""
    spares: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=1024)] = ()
    """Ranks that take no part until others are lost, and then take their places, in this order
    (ncclCommInitRank). Without enough of them the communicator shrinks."""
    rejoin: bool = False
    """Whether ranks whose host comes back join again, once for each of `losses`, when the next operation
    begins."""
    losses: Annotated[int, Field(ge=1, le=4)] = 1
    """How many losses, one after another, it can go on after: for each set of so many there are communicators
    without it from the beginning."""


class JobSection(Section):
    """One job."""

    name: Name
    """Its name in results: `jobs.NAME`."""
    ranks: RankChoice = "all"
    """The GPUs: all, the first so many, or a list of their numbers (host by host)."""
    order: OrderChoice = "contiguous"
    """Rank order over those GPUs: as numbered; strided, so that neighbours in a ring sit in different
    racks; or the place in `ranks` of rank 0, of rank 1 and so on."""
    placement: Literal["numbered", "contiguous", "scattered", "min_cut"] = "numbered"
    """Which GPUs a number of `ranks` means: those with the first numbers, whoever else has them; or, of
    those that no other placed or listed job has, the first, one from each rack in turn, or those in the
    fewest and smallest parts of the fabric."""
    start_ps: TimePs = 0
    """When the job starts."""
    enabled: bool = True
    """Whether it runs. If not, its queue pairs are there all the same, so that the other jobs have the paths
    that they have beside it (`emu slowdown`)."""
    data_priority: AutoPriority = None
    """Priority of its data packets, which `nic.dscp` turns into a DSCP. `auto`: that of `transport`."""
    submitted: bool = False
    """Whether its operations wait to be submitted, one by one, by a program that steps the run
    (`emu.stepped`)."""
    absent: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=1024)] = ()
    """Ranks that never join its collectives or steps: their processes hang, or were not started. Not of
    flows."""
    shrink: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=1024)] = ()
    """Ranks that a `collective` job can lose. When an operation fails, and all others have ended it or given
    it up, these abort the communicator (ncclCommAbort), and do that operation and the rest among themselves
    (ncclCommShrink)."""
    recover: RecoverSection | None = None
    """How a job of `collective`, `program` or `training` goes on when it loses ranks that nobody named
    beforehand."""
    mismatch: MismatchSection | None = None
    """A rank of a `collective` job that calls with another size."""
    workload: Annotated[Section, WORKLOADS]
    """What it does."""

    def check(self) -> Iterator[Refusal]:
        """Refuse an explicit order that does not fit an explicit number of ranks, a list to place, and ranks
        that are said to fail in what the job does not do.
        """
        if self.mismatch is not None and not isinstance(self.workload, CollectiveWorkload):
            accepted = "in a `collective` job; a program may give a rank another size in its list"
            yield Refusal(("mismatch",), "only a benchmark has one size to be mistaken in", accepted)
        if self.absent and isinstance(self.workload, FlowsWorkload):
            yield Refusal(("absent",), "flows are posted by nobody who could stay away", "no `absent`")
        if self.absent and isinstance(self.workload, StorageWorkload):
            yield Refusal(("absent",), "clients of storage do not wait for one another", "no `absent`")
        alone = self.ranks == 1 or (isinstance(self.ranks, tuple) and len(self.ranks) == 1)
        if alone and self.talks:
            yield Refusal(("ranks",), ALONE, TWO)
        if self.shrink:
            yield from self._check_shrink("shrink", self.shrink)
        if self.recover is not None:
            yield from self._check_recover(self.recover)
            if self.shrink:
                yield Refusal(("recover",), "`shrink` names who may be lost", "one of the two")
        if self.placement != "numbered" and not isinstance(self.ranks, int):
            yield Refusal(("placement",), "a list of GPUs is placed already", "a number as `ranks`")
        if isinstance(self.order, tuple) and self.ranks != "all":
            count = self.ranks if isinstance(self.ranks, int) else len(self.ranks)
            if sorted(self.order) != list(range(count)):
                accepted = f"each of 0 to {count - 1} once"
                yield Refusal(("order",), f"does not order {count} ranks", accepted)

    @property
    def attended(self) -> bool:
        """Whether it does what a program outside asks for, and nothing without one."""
        return self.submitted or isinstance(self.workload, OpenWorkload)

    @property
    def talks(self) -> bool:
        """Whether one rank alone would have nothing to do."""
        return isinstance(self.workload, (CollectiveWorkload, FlowsWorkload))

    def _check_recover(self, recover: RecoverSection) -> Iterator[Refusal]:
        where, workload = ("recover",), self.workload
        if isinstance(workload, CollectiveWorkload):
            yield from self._check_shrink("recover", recover.spares)
            return
        if isinstance(workload, ProgramWorkload):
            for one in workload.operations:
                if one.talks and one.do not in PEERED:
                    yield from _told_by_rank(where, one.do, bool(one.counts), one.algorithm)
        elif not isinstance(workload, TrainingWorkload):
            reason = f"nobody says what is left of {getattr(workload, 'kind', 'it')} without a rank"
            yield Refusal(where, reason, "in a job of `collective`, `program` or `training`")
        yield from _listed_once((*where, "spares"), recover.spares)

    def _check_shrink(self, key: str, ranks: tuple[int, ...]) -> Iterator[Refusal]:
        where, workload = (key,), self.workload
        if not isinstance(workload, CollectiveWorkload):
            accepted = "in a `collective` job, or `recover`"
            yield Refusal(where, "only a benchmark does an operation again without the lost", accepted)
            return
        if workload.split:
            yield Refusal(where, "the job has several communicators", "without `split`")
        yield from _told_by_rank(where, workload.op, bool(workload.counts), workload.algorithm)
        if self.mismatch is not None:
            yield Refusal(where, "a rank that calls another size would do so again", "without `mismatch`")
        yield from _listed_once((key, "spares") if key == "recover" else where, ranks)


def _told_by_rank(where: tuple[str], op: str, counts: bool, algorithm: str) -> Iterator[Refusal]:
    """Why a collective cannot be done without some of its ranks."""
    if op in ROOTED or counts:
        accepted = "of all_reduce, all_gather, reduce_scatter, all_to_all, sendrecv or barrier"
        yield Refusal(where, f"{op} is told rank by rank", accepted)
    known = (AUTO, DEFAULT, "ring", "direct", "double_binary_tree")
    if algorithm not in known:
        reason = f"{algorithm} may need ranks that are left out"
        yield Refusal(where, reason, f"with `algorithm` {', '.join(known)}")


def _listed_once(where: tuple[str, ...], ranks: tuple[int, ...]) -> Iterator[Refusal]:
    for at, rank in enumerate(ranks):
        if rank in ranks[:at]:
            yield Refusal((*where, at), f"rank {rank} is listed already", "each rank once")
