"""What do the ranks of a job do: a benchmark, a training step, a trace, or a user's program, as a script?"""

from __future__ import annotations

from collections.abc import Sequence

from actors.ncclx.operations import benchmark
from actors.ncclx.script import ScriptPlan
from emu.scenario.sections.algorithm import AUTO
from emu.scenario.sections.jobs import CollectiveWorkload, MismatchSection
from emu.scenario.sections.program import Picks, ProgramWorkload
from emu.scenario.sections.section import Refusal, Section
from emu.scenario.sections.trace import TraceWorkload
from emu.scenario.sections.training import TrainingWorkload
from emu.workload.benchmark import BenchmarkPlan
from emu.workload.training import Plan as TrainingPlan


def planned(
    workload: Section,
    servers: Sequence[int],
    picks: Picks,
    seed: int,
    job: int,
    mismatch: MismatchSection | None,
) -> ScriptPlan | Refusal | None:
    """The scripts of ranks on these servers, or where the job does not fit them; None for a job without
    scripts. `picks` says what `algorithm: auto` is.
    """
    ranks = len(servers)
    if isinstance(workload, CollectiveWorkload):
        return _benchmark(workload, ranks, picks, mismatch)
    if isinstance(workload, ProgramWorkload):
        program = workload.planned(servers, picks)
        if isinstance(program, Refusal):
            return program._replace(location=("workload", *program.location))
        return program
    if isinstance(workload, TraceWorkload):
        trace = workload.planned(ranks)
        return (
            Refusal(("ranks",), trace, "as many ranks as the text is for")
            if isinstance(trace, str)
            else trace
        )
    if isinstance(workload, TrainingWorkload):
        fitted = workload.fitted(ranks)
        if isinstance(fitted, str):
            return Refusal(("workload",), fitted, "dimensions whose product is the number of ranks")
        return TrainingPlan(fitted, seed, job)
    return None


def _benchmark(
    workload: CollectiveWorkload, ranks: int, picks: Picks, mismatch: MismatchSection | None
) -> BenchmarkPlan:
    groups = workload.groups(ranks)
    rows = max(map(len, groups)) if len(workload.counts) == 1 else 1
    operations = benchmark(
        workload.op,
        workload.known_algorithm,
        workload.sizes_bytes,
        workload.iterations,
        workload.warmup,
        workload.root,
        workload.counts * rows,
    )
    if workload.algorithm == AUTO:
        picked = {size: picks(groups, workload.op, size) for size in workload.sizes_bytes}
        operations = tuple(one._replace(algorithm=picked[one.size_bytes]) for one in operations)
    if workload.graph is not None:
        operations = tuple(one._replace(graph=workload.graph) for one in operations)
    mistaken = None if mismatch is None else (mismatch.rank, mismatch.size_bytes)
    return BenchmarkPlan(operations, groups, workload.dtype, workload.redop, mistaken)
