"""Whether a job became slower, and since when.

A job repeats the same operation: iterations of a collective, steps of a training job. Those that ended
before a moment are the measure for those that began or went on after it: what these took beyond the median
of their kind is what the job lost, and it is compared with the time the job would have taken, barriers
between operations included. From `SLOWER_PERMILLE` on the job has become slower.

Where nothing ended before, there is nothing to compare with, and `None` is the answer; nor is there where
what ended before was not steady: its slowest took `UNSTEADY_PERMILLE` of its quickest, as while congestion
control settles. Where it is not known when a cause began, the quicker quarter of a job's operations is the
measure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from emu.diagnosis.view import View
from emu.measure.collected import JobPlan
from emu.measure.summary.jobs import DISABLED, SUCCESS

UNSTEADY_PERMILLE: Final = 1100


class Done(NamedTuple):
    """One operation that ended."""

    kind: tuple[str, str, int]
    """What, by which algorithm, how large: what repeats has the same."""
    start_ps: int
    end_ps: int


def operations(view: View, plan: JobPlan) -> list[Done]:
    """The operations of a job that ended, in order."""
    found = []
    for number, operation, start_ps, end_ps, _ in view.rows(view.topology.controller, "operations"):
        if number == plan.job:
            kind = ("step", "", 0)
            if plan.collectives:
                one = plan.collectives[operation % len(plan.collectives)]
                kind = (one.op, one.algorithm, one.size_bytes)
            found.append(Done(kind, start_ps, end_ps))
    return found


def failed_jobs(view: View) -> list[str]:
    """Jobs that did not end well."""
    return [name for name, job in view.jobs.items() if job.status not in (SUCCESS, DISABLED)]


def median(values: list[int]) -> int:
    """The middle one, the lower of two."""
    return sorted(values)[(len(values) - 1) // 2]


def slowdown_permille(view: View, plan: JobPlan, since_ps: int) -> int | None:
    """By how much a job's time grew after a moment, in thousandths of what it would have been."""
    before: dict[tuple[str, str, int], list[int]] = {}
    excess_ps = 0
    compared = False
    found = operations(view, plan)
    if since_ps < 0:
        for done in found:
            before.setdefault(done.kind, []).append(done.end_ps - done.start_ps)
        before = {kind: sorted(times)[: max(len(times) // 4, 1)] for kind, times in before.items()}
    for done in found:
        time_ps = done.end_ps - done.start_ps
        usual = before.get(done.kind)
        if done.end_ps <= since_ps:
            before.setdefault(done.kind, []).append(time_ps)
        elif usual and max(usual) * 1000 <= min(usual) * UNSTEADY_PERMILLE:
            compared = True
            excess_ps += time_ps - median(usual)
    if not compared:
        return None
    span_ps = found[-1].end_ps - found[0].start_ps
    return excess_ps * 1000 // max(span_ps - excess_ps, 1)


def slower(view: View, since_ps: int) -> tuple[str, int] | None:
    """The job that suffered most after a moment and by how much; None where no job can be compared."""
    found: tuple[str, int] | None = None
    for plan in view.plans:
        if not plan.enabled:
            continue
        grown = slowdown_permille(view, plan, since_ps)
        if grown is not None and (found is None or grown > found[1]):
            found = (plan.name, grown)
    return found
