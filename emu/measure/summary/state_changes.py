"""Changes of the series of jobs, collectives and faults over virtual time.

What an operation came to (time and bandwidth of a collective, time and MFU of a step) is known when it ends,
exactly then, and at no other time. How far jobs are and which faults stand is known at every time: these
series change when an operation or a job ends, or a fault begins or is over. A `rate` of them is from one
multiple of `run.sample_every` to the next, as that of a device's counter.

Not known: operations of repeated jobs that are long over (`actors.control.controller` keeps the last rounds;
their count goes on), and how many rounds repeated jobs of flows have done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from actors.kernel.event import NEVER_PS
from actors.wire.message import STATUS_SUCCESS
from emu.measure.collected import CollectivePlan, JobPlan
from emu.measure.metrics import COLLECTIVE, algorithm_name, collective_name, size_range
from emu.measure.summary.jobs import DISABLED, SUCCESS, UNFINISHED, bandwidth_bps, bus_factor
from emu.measure.summary.readings import ALL, Lines, Number, Point, Record, combined, shown_labels
from emu.measure.summary.steps import step_mfu_ppm
from emu.measure.summary.summary import Collective, Job
from emu.scenario.expect import SeriesExpectation
from emu.scenario.faults.events import Fault, spans_of
from emu.scenario.spans import Span

Labels = Mapping[str, str]


class State(NamedTuple):
    """What is known of a run's jobs and faults."""

    jobs: Mapping[str, Job] = MappingProxyType({})
    plans: Sequence[JobPlan] = ()
    operations: Sequence[Sequence[int]] = ()
    """Rows of the controller: job, operation, start_ps, end_ps, status; in the order in which they ended."""
    faults: Sequence[Fault] = ()
    """Every occurrence."""
    repeats: bool = False
    """Whether jobs begin again when they are done."""


class Came(NamedTuple):
    """What an operation came to."""

    end_ps: int
    labels: Labels
    value: Number


class Turn(NamedTuple):
    """A line of a series takes a value."""

    time_ps: int
    labels: Labels
    value: int


def points_of_operations(one: SeriesExpectation, state: State, span: Span) -> tuple[list[str], list[Point]]:
    """The names of the lines of what operations came to, and what is known of them when."""
    names: list[str] = []
    points: list[Point] = []
    latest: dict[int, Number] = {}
    came = _collectives(one, state) if one.metric.labels == COLLECTIVE else _steps(one, state)
    for end_ps, labels, value in sorted(came, key=lambda row: row.end_ps):
        if not _fits(one, labels):
            continue
        name = one.series + shown_labels(labels)
        if name not in names:
            names.append(name)
        line = names.index(name)
        latest[line] = value
        if end_ps <= span.end_ps:
            together = (
                [(ALL, combined(one.combine, list(latest.values())))] if one.combine != "each" else None
            )
            points.append(Point(end_ps, together or [(line, value)], end_ps < span.begin_ps))
    return names, points


def lines_of_state(
    one: SeriesExpectation, state: State, every_ps: int, end_ps: int
) -> tuple[Lines, list[Record]]:
    """The lines of a series that is known at every time, as those of one device, and when they change."""
    names: list[str] = []
    by_time: dict[int, list[int]] = {}
    for turn in sorted(_turns(one, state), key=lambda turn: turn.time_ps):
        if not _fits(one, turn.labels):
            continue
        name = one.series + shown_labels(turn.labels)
        if name not in names:
            names.append(name)
        seen_ps = min(-(-turn.time_ps // every_ps) * every_ps, end_ps) if one.rate else turn.time_ps
        if seen_ps <= end_ps:
            by_time.setdefault(seen_ps, []).extend((names.index(name), turn.value))
    records = [Record(time_ps, {0: flat}) for time_ps, flat in sorted(by_time.items())]
    return Lines(names, {0: {at: [at] for at in range(len(names))}}), [*records, Record(end_ps, {})]


def _fits(one: SeriesExpectation, labels: Labels) -> bool:
    return all(fnmatchcase(labels[name], wanted) for name, wanted in one.where.given().items())


# ---- what operations came to


def _collectives(one: SeriesExpectation, state: State) -> Iterator[Came]:
    told = {plan.name for plan in state.plans if plan.collectives}
    plans = {plan.job: plan for plan in state.plans}
    for number, operation, start_ps, end_ps, status in state.operations:
        plan = plans.get(number)
        if plan is not None and plan.collectives and status == STATUS_SUCCESS:
            done = plan.collectives[operation % len(plan.collectives)]
            if not done.warmup:
                yield Came(end_ps, _labels_of(plan.name, done), _came_to(one, done, end_ps - start_ps))
    rows = [(name, row) for name, job in state.jobs.items() if name not in told for row in job.collectives]
    for name, row in rows:
        if row.end_ps is not None and row.start_ps is not None and row.status == SUCCESS:
            yield Came(row.end_ps, _labels_of(name, row), _came_to(one, row, row.end_ps - row.start_ps))


def _labels_of(job: str, one: Collective | CollectivePlan) -> Labels:
    """The labels of what a collective came to, as the metrics page has them, but for the servers."""
    return {
        "comm_name": job,
        "nranks": str(one.ranks),
        "collective": collective_name(one.op),
        "message_size": size_range(one.bytes if isinstance(one, Collective) else one.size_bytes),
        "algo_proto": algorithm_name(one.algorithm),
    }


def _came_to(one: SeriesExpectation, done: Collective | CollectivePlan, time_ps: int) -> Number:
    if one.metric.key == "collective_exec_time_ps":
        return time_ps
    bus = one.metric.key == "collective_bus_bandwidth_bytes_per_second"
    if isinstance(done, Collective):
        return (done.busbw if bus else done.algbw) or 0
    factor = bus_factor(done.op, done.ranks) if bus else Fraction(1)
    return bandwidth_bps(done.size_bytes, time_ps, factor) or 0


def _steps(one: SeriesExpectation, state: State) -> Iterator[Came]:
    plans = {plan.job: plan for plan in state.plans}
    for number, _, start_ps, end_ps, status in state.operations:
        plan = plans.get(number)
        if plan is None or plan.collectives or status != STATUS_SUCCESS:
            continue
        if one.metric.key == "job_step_time_ps":
            yield Came(end_ps, {"job_name": plan.name}, end_ps - start_ps)
        else:
            mfu_ppm = step_mfu_ppm(plan.training, plan.ranks, end_ps - start_ps)
            if mfu_ppm is not None:
                yield Came(end_ps, {"job_name": plan.name}, Fraction(mfu_ppm, 10**6))


# ---- how jobs and faults stand


def _turns(one: SeriesExpectation, state: State) -> Iterator[Turn]:
    key = one.metric.key
    if key in ("faults", "faults_active"):
        yield from _turns_of_faults(state.faults, key == "faults_active")
    elif key == "collectives":
        yield from _turns_of_collectives(state)
    else:
        for plan in state.plans:
            labels = {"job_name": plan.name}
            if key == "job_operations":
                yield Turn(0, labels, 0)
                yield from _turns_of_operations(state, plan)
            else:
                running = key == "job_running"
                yield Turn(0, labels, int(running and plan.enabled))
                ended_ps = _ended_ps(state, plan)
                if ended_ps is not None:
                    failed = state.jobs[plan.name].status != SUCCESS
                    yield Turn(ended_ps, labels, 0 if running else int(failed))


def _turns_of_operations(state: State, plan: JobPlan) -> Iterator[Turn]:
    labels = {"job_name": plan.name}
    if plan.flows and not state.repeats:
        ended_ps = _ended_ps(state, plan)
        if ended_ps is not None:
            yield Turn(ended_ps, labels, 1)
    for number, operation, _, end_ps, _ in state.operations:
        if number == plan.job:
            yield Turn(end_ps, labels, operation + 1)


def _ended_ps(state: State, plan: JobPlan) -> int | None:
    """When a job ended; None if it did not."""
    job = state.jobs[plan.name]
    if job.status in (UNFINISHED, DISABLED) or (job.status == SUCCESS and state.repeats):
        return None
    failed_ps = [end_ps for number, _, _, end_ps, status in state.operations if number == plan.job and status]
    if failed_ps:
        return failed_ps[0]
    return job.end_ps if job.end_ps is not None else max((one.at_ps for one in job.failures), default=None)


def _turns_of_collectives(state: State) -> Iterator[Turn]:
    for plan in state.plans:
        labels_of = [_labels_of(plan.name, one) for one in plan.collectives]
        alike = [[at for at, other in enumerate(labels_of) if other == labels] for labels in labels_of]
        period = len(labels_of)
        for labels in labels_of:
            yield Turn(0, labels, 0)
        for number, operation, _, end_ps, status in state.operations:
            if period and number == plan.job and status == STATUS_SUCCESS:
                place, done = operation % period, operation + 1
                count = sum(done // period + (other < done % period) for other in alike[place])
                yield Turn(end_ps, labels_of[place], count)


def _turns_of_faults(faults: Iterable[Fault], active: bool) -> Iterator[Turn]:
    spans = spans_of(faults)
    steps: dict[int, int] = {}
    for begin_ps, end_ps in spans:
        steps[begin_ps] = steps.get(begin_ps, 0) + 1
        if active and end_ps < NEVER_PS:
            steps[end_ps] = steps.get(end_ps, 0) - 1
    count = 0
    yield Turn(0, {}, 0)
    for time_ps, step in sorted(steps.items()):
        count += step
        yield Turn(time_ps, {}, count)
