"""What do the ranks of a job do that follows a script: a training step, a trace, or a user's program?"""

from __future__ import annotations

from collections.abc import Sequence

from actors.ncclx.script import ScriptPlan
from emu.scenario.sections.program import Picks, ProgramWorkload
from emu.scenario.sections.section import Refusal, Section
from emu.scenario.sections.trace import TraceWorkload
from emu.scenario.sections.training import TrainingWorkload
from emu.workload.training import Plan as TrainingPlan


def planned(
    workload: Section, servers: Sequence[int], picks: Picks, seed: int, job: int
) -> ScriptPlan | Refusal | None:
    """The scripts of ranks on these servers, or where the job does not fit them; None for a job without
    scripts. `picks` says what `algorithm: auto` is.
    """
    ranks = len(servers)
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
