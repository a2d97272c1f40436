"""Section `jobs`: which ranks, where, from when, and the workload."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

from emu.base.records import Field, Location, RefusedError
from emu.base.spelling import did_you_mean, shown
from emu.scenario.plugins import OneOfOrAdded
from emu.scenario.section import Kinds, Refusal, Section
from emu.scenario.workloads.recover import RecoverSection
from emu.scenario.workloads.workload import Workload
from emu.scenario.yaml.values import (
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


WORKLOADS: Final = OneOfOrAdded(
    "kind",
    Kinds(
        "emu.scenario.workloads",
        {
            "collective": "collective:CollectiveWorkload",
            "permutation": "flows:Permutation",
            "incast": "flows:Incast",
            "poisson": "flows:Poisson",
            "poisson_incasts": "flows:PoissonIncasts",
            "flows": "flows:FlowList",
            "flow_table": "flows:FlowTable",
            "checkpoint": "storage:Checkpoint",
            "reads": "storage:Reads",
            "repair": "storage:Repair",
            "rebalance": "storage:Rebalance",
            "serving": "serving:ServingWorkload",
            "training": "training:TrainingWorkload",
            "simai_trace": "trace:SimaiTrace",
            "chakra_trace": "trace:ChakraTrace",
            "program": "program:ProgramWorkload",
            "open": "open_job:OpenWorkload",
        },
    ),
    "workload",
    Workload,
)


class MismatchSection(Section):
    """One rank that calls every operation with another size than the rest."""

    rank: Annotated[int, Field(ge=0)]
    """Which."""
    size_bytes: PositiveSizeBytes
    """The size that it calls."""


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
    """GPUs for a number of `ranks`: those with the first numbers, shared or not; or, of those that no other
    placed or listed job has, the first, one from each rack in turn, or those in the fewest and smallest
    parts of the fabric."""
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
    """Continuation of a job of `collective`, `program` or `training` after the loss of any ranks."""
    mismatch: MismatchSection | None = None
    """A rank of a `collective` job that calls with another size."""
    workload: Annotated[Workload, WORKLOADS]
    """The workload."""

    def check(self) -> Iterator[Refusal]:
        """Refuse an explicit order that does not fit an explicit number of ranks, a list to place, and ranks
        that are said to fail in what the job does not do.
        """
        if self.mismatch is not None and not self.workload.mistakable:
            accepted = "in a `collective` job; a program may give a rank another size in its list"
            yield Refusal(("mismatch",), "only a benchmark has one size to be mistaken in", accepted)
        if self.absent and self.workload.never_absent:
            yield Refusal(("absent",), self.workload.never_absent, "no `absent`")
        alone = self.ranks == 1 or (isinstance(self.ranks, tuple) and len(self.ranks) == 1)
        if alone and self.workload.talks:
            yield Refusal(("ranks",), ALONE, TWO)
        if self.shrink:
            yield from self._check_loss(("shrink",), self.workload.shrunk(), ("shrink",), self.shrink)
        if self.recover is not None:
            where = ("recover", "spares")
            yield from self._check_loss(("recover",), self.workload.recovered(), where, self.recover.spares)
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
        return self.submitted or self.workload.posted_from_outside

    def _check_loss(
        self,
        key: Location,
        reasons: Iterable[tuple[str, str]],
        listed: Location,
        ranks: tuple[int, ...],
    ) -> Iterator[Refusal]:
        """Why the job cannot go on without ranks that it loses; `ranks` stand at the key `listed`."""
        for reason, accepted in reasons:
            yield Refusal(key, reason, accepted)
        if self.mismatch is not None and self.workload.mistakable:
            yield Refusal(key, "a rank that calls another size would do so again", "without `mismatch`")
        for at, rank in enumerate(ranks):
            if rank in ranks[:at]:
                yield Refusal((*listed, at), f"rank {rank} is listed already", "each rank once")
