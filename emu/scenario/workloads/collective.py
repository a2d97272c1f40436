"""Workload `collective`: a benchmark of one collective, as nccl-tests runs it.

Sizes count as nccl-tests counts them: bytes of the whole buffer (all ranks' together for all_gather,
reduce_scatter, gather and scatter; of what one rank sends for all_to_all, of what the rank sends that sends
most for all_to_allv).
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from actors.ncclx.graph import BARRIER_BYTES
from actors.ncclx.operations import (
    ALGORITHMS,
    BLOCKWISE,
    POINT_TO_POINT,
    REDUCING,
    ROOTED,
    OperationName,
    benchmark,
    misfit,
)
from actors.ncclx.script import with_memberships
from emu.base.records import Field, Location
from emu.scenario.section import Refusal
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
from emu.scenario.workloads.workload import MisfitError, Picks, Scripts, Site, Workload, needs_every_rank
from emu.scenario.yaml.values import PositiveSizeBytes
from emu.workload.program import BenchmarkPlan


class CollectiveWorkload(Workload):
    """A benchmark of one collective, as nccl-tests runs it."""

    parts: ClassVar[tuple[str, ...]] = ("collectives",)
    talks: ClassVar[bool] = True
    mistakable: ClassVar[bool] = True
    carries_content: ClassVar[bool] = True

    kind: Literal["collective"] = "collective"
    """A collective benchmark."""
    op: OperationName
    """The operation."""
    algorithm: AlgorithmChoice = AUTO
    """Algorithm. `auto`: the choice of `ncclx.tuner` for each size. `default`: ring if there is one, else
    direct. A file: a send/receive graph. `module:Class`: one of your own."""
    sizes_bytes: Annotated[tuple[PositiveSizeBytes, ...], Field(min_length=1, max_length=256)]
    """Sizes of the whole buffer, one row of results each; 4 B for a barrier, which moves one element."""
    dtype: Literal["fp32", "bf16", "int32"] = "fp32"
    """Type of an element: what `payload: real` reduces and counts, and what tables say."""
    redop: Literal["sum", "prod", "min", "max"] = "sum"
    """Reduction of all_reduce, reduce_scatter and reduce."""
    root: Annotated[int, Field(ge=0)] = 0
    """Rank that broadcast and scatter start from, and reduce and gather end at."""
    counts: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...] = ()
    """For all_to_allv: weights of each rank's data for each other, row by row; or one row for all."""
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

        A size may not be listed twice: its rows could not be distinguished.
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

    def shrunk(self) -> Iterator[tuple[str, str]]:
        """Only some collectives go on without ranks, and one communicator."""
        if self.split:
            yield "the job has several communicators", "without `split`"
        yield from needs_every_rank(self.op, bool(self.counts), self.algorithm)

    def recovered(self) -> Iterator[tuple[str, str]]:
        """As `shrink`."""
        return self.shrunk()

    def rows(self) -> int | None:
        """One for each repetition of each size."""
        return len(self.sizes_bytes) * self.iterations

    @property
    def pairwise(self) -> bool:
        """What is between two ranks by its nature is no collective of sends and receives."""
        return self.op in POINT_TO_POINT

    def misfit(self, ranks: int) -> tuple[str, str] | None:
        """Why so many ranks cannot have it, and what they can have."""
        if self.split and len(self.split) != ranks:
            return (
                f"{len(self.split)} colours for {ranks} GPUs",
                "`split` with a colour for each GPU of a job",
            )
        return None

    def fit(self, site: Site) -> Scripts:
        """The calls of each rank; of a job that may lose ranks, of each membership."""
        ranks = len(site.gpus)
        refusals = list(self._refusals(site))
        if refusals:
            raise MisfitError(refusals)
        if site.recover is not None:
            left = site.memberships()
        elif site.spared:
            left = [tuple(range(ranks)), tuple(rank for rank in range(ranks) if rank not in site.spared)]
        else:
            plan = self._plan(self.groups(ranks), site.picks, site.mistaken)
            return Scripts(plan, plan.operations, collectives=plan.listed_operations(), reduces=True)
        made: list[tuple[BenchmarkPlan, dict[int, int], tuple[int, ...]]] = []
        for members in left:
            group = [range(len(members))]
            part = self._plan(group, site.picks_of(members), None, site.spared, bool(made))
            made.append((part, dict(enumerate(members)), members))
        plan = with_memberships(made, ranks)
        return Scripts(plan, plan.operations, collectives=plan.listed_operations(), reduces=True)

    def _plan(
        self,
        groups: Sequence[Sequence[int]],
        picks: Picks,
        mistaken: tuple[int, int] | None,
        spared: Sequence[int] = (),
        later: bool = False,
    ) -> BenchmarkPlan:
        """The calls of ranks in these groups; `later` take over from others."""
        rows = max(map(len, groups)) if len(self.counts) == 1 else 1
        operations = benchmark(
            self.op,
            self.known_algorithm,
            self.sizes_bytes,
            self.iterations,
            self.warmup,
            self.root,
            self.counts * rows,
        )
        own = own_algorithm(self.algorithm, self.graph)
        if own is not None:
            operations = tuple(one._replace(own=own) for one in operations)
        else:
            algorithm = self.known_algorithm
            picked = {size: picks(groups, self.op, size, algorithm) for size in self.sizes_bytes}
            operations = tuple(one._replace(**picked[one.size_bytes]._asdict()) for one in operations)
        return BenchmarkPlan(operations, groups, self.dtype, self.redop, mistaken, spared, later)

    def _refusals(self, site: Site) -> Iterator[Refusal]:
        """What does not fit its communicators."""
        where, servers = site.key("workload", "split"), site.servers
        if len(self.split) not in (0, len(servers)):
            reason = f"{len(self.split)} colours for {len(servers)} ranks"
            yield Refusal(where, reason, f"{len(servers)} colours, or none")
            return
        groups = self.groups(len(servers))
        if min(map(len, groups)) < 2:
            yield Refusal(where, "a colour has one rank", "at least 2 ranks of each colour")
            return
        found = (self._refusals_of(site, [servers[one] for one in group]) for group in groups)
        yield from dict.fromkeys(refusal for refusals in found for refusal in refusals)

    def _refusals_of(self, site: Site, servers: Sequence[int]) -> Iterator[Refusal]:
        """What does not fit the number of ranks of a communicator, or where they are."""
        where: Location = site.key("workload")
        ranks = len(servers)
        unfit = misfit(self.algorithm, servers)
        if unfit is not None:
            yield Refusal((*where, "algorithm"), *unfit)
        if self.algorithm.startswith("nvls") and not site.environment.host.nvlink.enabled:
            reason = f"{self.algorithm} reduces in an NVSwitch, and there is none"
            yield Refusal((*where, "algorithm"), reason, "another algorithm, or `host.nvlink.enabled`")
        if self.root >= ranks:
            yield Refusal(
                (*where, "root"), f"there is no rank {self.root} among {ranks}", f"0 to {ranks - 1}"
            )
        graph = self.graph
        if graph is not None:
            if len(graph.steps) != ranks:
                reason = f"steps for {len(graph.steps)} ranks, and the job has {ranks}"
                yield Refusal((*where, "graph", "steps"), reason, f"{ranks} lists")
            if self.op in BLOCKWISE and graph.chunks % ranks:
                reason = f"{graph.chunks} chunks are no whole number for each of {ranks} ranks"
                yield Refusal((*where, "graph", "chunks"), reason, f"a multiple of {ranks}")
        rows = len(self.counts)
        if rows not in (0, 1, ranks):
            yield Refusal((*where, "counts"), f"{rows} rows for {ranks} ranks", f"one row, or {ranks}")
        for at, row in enumerate(self.counts):
            if len(row) != ranks:
                reason = f"{len(row)} numbers for {ranks} ranks"
                yield Refusal((*where, "counts", at), reason, f"{ranks} numbers")
