"""What the sentences of a diagnosis claim, held against the runs that they come from.

A sentence says what a run with something healed came to, beside the run itself. Both are in the summary:
times and failures of jobs, counterfactual runs, and the intended fabric. Each claim is looked up there anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from emu.base.units import about_time, distinct_texts
from emu.results.summary import Counterfactual, Diagnosed, Summary

TIME = r"[\d.]+(?:ps|ns|us|ms|s)"
TOOK = re.compile(rf"([\w-]+) would take ({TIME}) in place of ({TIME}): ({TIME}) \((-?[\d.]+)%\) back")
NOT_FAIL = re.compile(r"(?:, |; )([\w-]+(?: and [\w-]+)*) would not fail")
NOT_WITHIN = re.compile(rf"([\w-]+(?: and [\w-]+)*) did not fail within ({TIME})")
AN_END = re.compile(r"([\w-]+(?: and [\w-]+)*) would come to an end")
COUNTED = re.compile(r"(\w+) (\d+) in place of (\d+)")
MEET = re.compile(r"([\w-]+>[\w-]+) \((\d+)% of it ([\w-]+)'s\)")
LONGER = re.compile(
    rf"^([\w-]+): ({TIME}), (\d+)% more than (?:the longest round )?on the intended fabric \(({TIME})\)$"
)
MORE = re.compile(r"^(\w+): (\d+), on the intended fabric (\d+)$")
LEFT = re.compile(rf"something else is left: ([\w-]+) would still take ({TIME}), ({TIME}) on the intended")


def untrue(summary: Summary) -> list[str]:
    """Every claim that is not so, in words."""
    return [line for line, holds in claims(summary) if not holds]


def claims(summary: Summary) -> Iterator[tuple[str, bool]]:
    """Every claim of a diagnosis, and whether it holds."""
    for one in summary.diagnosis:
        yield from _of_healing(summary, one)
        yield from _of_evidence(summary, one)


def _took_ps(summary: Summary, job: str) -> int | None:
    """How long a job of the run itself took, if it ended well."""
    one = summary.jobs[job]
    well = one.status == "success" and one.start_ps is not None and one.end_ps is not None
    return (one.end_ps or 0) - (one.start_ps or 0) if well else None


def _healed_with(summary: Summary, one: Diagnosed) -> list[Counterfactual]:
    """The runs in which what is accused was healed, delays as they are."""
    named = f"{one.cause} {one.place}"
    return [
        run
        for run in summary.counterfactuals
        if not run.nudge_ns and any(f"{key} ".startswith(f"{named} ") for key in run.healed)
    ]


def _befores(summary: Summary, one: Diagnosed, run: Counterfactual) -> Iterator[Counterfactual | None]:
    """What a run is beside: the run itself, or one with the others of it healed."""
    yield None
    for other in summary.counterfactuals:
        if not other.nudge_ns and {*other.healed} < {*run.healed}:
            yield other


def _of_healing(summary: Summary, one: Diagnosed) -> Iterator[tuple[str, bool]]:
    runs = _healed_with(summary, one)
    own = {name for name, job in summary.jobs.items() if job.status not in ("success", "disabled")}
    for job, after, before, back, percent in TOOK.findall(one.sentence):
        yield (
            f"{one.place}: {job} {after} in place of {before}: {back} ({percent}%)",
            any(
                _gives_back(summary, one, run, beside, job, (after, before, back, percent))
                for run in runs
                for beside in _befores(summary, one, run)
            ),
        )
    for names in NOT_FAIL.findall(one.sentence):
        jobs = names.split(" and ")
        holds = any(not {*jobs} & {*run.failed} and not {*jobs} & {*run.under_way} for run in runs)
        yield f"{one.place}: {names} would not fail", holds and own >= {*jobs}
    for names, until in NOT_WITHIN.findall(one.sentence):
        jobs = names.split(" and ")
        holds = any({*jobs} <= {*run.under_way} and about_time(run.until_ps) == until for run in runs)
        yield f"{one.place}: {names} did not fail within {until}", holds and own >= {*jobs}
    for names in AN_END.findall(one.sentence):
        jobs = names.split(" and ")
        holds = all(summary.jobs[job].status == "unfinished" for job in jobs)
        yield f"{one.place}: {names} would end", holds and any({*jobs} <= {*run.jobs} for run in runs)
    for name, after, _ in COUNTED.findall(one.sentence):
        yield f"{one.place}: {name} {after}", any(run.alarms.get(name, 0) == int(after) for run in runs)
    for port, percent, job in MEET.findall(one.sentence):
        holds = job in summary.jobs and any(
            f"{run.shared.get(port, -1):.0%}" == f"{percent}%" for run in runs
        )
        yield f"{one.place}: {port} {percent}%", holds


def _gives_back(
    summary: Summary,
    one: Diagnosed,
    run: Counterfactual,
    beside: Counterfactual | None,
    job: str,
    said: Sequence[str],
) -> bool:
    before_ps = _took_ps(summary, job) if beside is None else beside.jobs.get(job)
    after_ps = run.jobs.get(job)
    if before_ps is None or after_ps is None:
        return False
    after, before = distinct_texts([after_ps, before_ps], about_time)
    back_ps = before_ps - after_ps
    return (after, before, about_time(back_ps), f"{back_ps / before_ps:.1%}", back_ps) == (
        *said[:3],
        f"{said[3]}%",
        one.back_ps,
    )


def _of_evidence(summary: Summary, one: Diagnosed) -> Iterator[tuple[str, bool]]:
    reference = summary.reference
    for line in one.evidence:
        if found := LONGER.match(line):
            job, took, percent, meant = found.groups()
            took_ps, meant_ps = _took_ps(summary, job), None if reference is None else reference.jobs[job]
            holds = took_ps is not None and meant_ps is not None
            if took_ps is not None and meant_ps is not None:
                share = (took_ps - meant_ps) * 100 // meant_ps
                holds = (about_time(took_ps), f"{share}", about_time(meant_ps)) == (took, percent, meant)
            yield line, holds
        if found := MORE.match(line):
            name, _, meant = found.groups()
            yield line, reference is not None and reference.alarms.get(name, 0) == int(meant)
        if found := LEFT.search(line):
            job, still, meant = found.groups()
            whole = [run for run in summary.counterfactuals if run.healed == ["everything everything"]]
            others = [run for run in summary.counterfactuals if not run.nudge_ns]
            holds = [about_time(run.jobs[job]) for run in whole] == [meant]
            yield line, holds and any(about_time(run.jobs.get(job, 0)) == still for run in others)
