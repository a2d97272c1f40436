"""Series over virtual time: values of counters at samples, and of jobs and faults as they change.

A counter of a device is known at the run's samples: at multiples of `run.sample_every`, at both ends of every
span that an expectation is about, and at the end of the run. A sample at T tells what happened before T.
Where nothing happened a run takes no samples; the values there are those of the last one (but for counters of
time, which go on while a port is paused: they are known at the samples alone).

Over a span a *counter* is what it rose by since the beginning of the span, or since the last sample before
where there is none just then; as a `rate`, what it rose by since the point before, a second. A gauge is what
it is. A peak is a gauge that knows the run from its beginning.

Routing groups. A group is the equal ports of a switch towards some destination, as they are while every link
is up: its label is their numbers, `0-2,5`. A port that is in several groups is a member of each.

Jobs, collectives and faults. What an operation came to (time and bandwidth of a collective, time and MFU of a
step) is known when it ends, exactly then, and at no other time. How far jobs are and which faults stand is
known at every time: these series change when an operation or a job ends, or a fault begins or is over. A
`rate` of them is from one multiple of `run.sample_every` to the next, as that of a device's counter.

Not known: operations of repeated jobs that are long over (`actors.control.controller` keeps the last rounds;
their count goes on), and how many rounds repeated jobs of flows have done.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from types import MappingProxyType
from typing import Final, NamedTuple

from actors.fabric.model import Role, Topology
from actors.fabric.routes import routes
from actors.kernel.counters import Kind, Unit
from actors.kernel.device import Series
from actors.kernel.event import NEVER_PS
from actors.kernel.units import PS_PER_S
from actors.wire.message import STATUS_SUCCESS
from emu.counts.collected import Changed, JobPlan
from emu.results.busbw import bandwidth_bps, bus_factor
from emu.results.metrics import (
    COLLECTIVE,
    MEMBER,
    METRIC_OF,
    algorithm_name,
    collective_name,
    label_text,
    labels_of,
    size_range,
)
from emu.results.planned_rows import CollectivePlan
from emu.results.summary import Collective, Job
from emu.scenario.expect import SeriesExpectation
from emu.scenario.faults.events import Fault, spans_of
from emu.scenario.spans import Span, direction_of, matches
from emu.summary.jobs import DISABLED, SUCCESS, UNFINISHED

Number = int | Fraction
ALL: Final = -1
"""In place of a line's number: what all lines come to together."""
_BITS: Final = 8


class Point(NamedTuple):
    """What is known at one time: values by the number of their line; none if all are as at the last point."""

    time_ps: int
    values: list[tuple[int, Number]]
    before: bool
    """Whether the span has not begun; only what a share is taken of is asked for then."""


class Lines(NamedTuple):
    """The lines of a series that an expectation is about."""

    names: list[str]
    places: dict[int, dict[int, list[int]]]
    """By device and place among its counters: the lines' numbers."""


def lines_of(one: SeriesExpectation, layouts: Mapping[int, Sequence[Series]], topology: Topology) -> Lines:
    """Those that fit, by device."""
    names: list[str] = []
    places: dict[int, dict[int, list[int]]] = {}
    for device, layout in sorted(layouts.items()):
        node = topology.nodes[device]
        for place, series in enumerate(layout):
            if matches(one, series, node, topology):
                for labels in _labels_of(one, device, series, topology):
                    places.setdefault(device, {}).setdefault(place, []).append(len(names))
                    names.append(one.series + labels)
    return Lines(names, places)


def _labels_of(one: SeriesExpectation, device: int, series: Series, topology: Topology) -> Iterator[str]:
    """The labels of a counter's lines: several where its port is in several groups."""
    if one.metric.labels != MEMBER:
        yield labels_of(one.metric, topology.nodes[device].name, series)
    elif topology.nodes[device].role is Role.SWITCH:
        for values, port in members_of(topology, device):
            if port == series.port and one.where.group in (None, values[MEMBER.index("group")]):
                yield shown_labels(dict(zip(MEMBER, values, strict=True)))


def shown_labels(labels: Mapping[str, str]) -> str:
    """Labels and their values, braces included; nothing of none."""
    inside = ",".join(f'{name}="{label_text(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


class Follower:
    """Follows the lines of one expectation from sample to sample, and says what is known when."""

    def __init__(self, one: SeriesExpectation, lines: Lines, span: Span, every_ps: int) -> None:
        self._one = one
        self._places = lines.places
        self._span = span
        self._every_ps = every_ps
        self._counts = one.metric.kind is Kind.COUNTER
        self._holds = one.metric.unit is not Unit.PS
        self._wants_past = one.relation == "recovers_to"
        self._values = [one.metric.start] * len(lines.names)
        self._last = [0] * len(lines.names)
        """At the point before, of a rate; at the beginning of the span, of another counter."""
        self._last_ps = 0
        self._in_span = False
        self._moved = False
        """Whether a rate was not 0 at the point before, so that it may be now."""

    def take(self, record: Changed) -> Iterator[Point]:
        """The points that a sample adds, in order."""
        now_ps = record.virtual_ps
        if self._holds:
            grid_ps = (now_ps - 1) // self._every_ps * self._every_ps
            for held_ps in sorted({self._span.begin_ps, self._span.end_ps, grid_ps}):
                if self._last_ps < held_ps < now_ps:
                    yield from self._point(held_ps, {})
        yield from self._point(now_ps, record.changed)

    def _point(self, now_ps: int, changed: Mapping[int, Sequence[int]]) -> Iterator[Point]:
        counts_all = self._counts and not self._one.rate
        if now_ps > self._span.end_ps or (now_ps == self._last_ps and now_ps):
            return
        if counts_all and now_ps > self._span.begin_ps and not self._in_span:
            self._last = list(self._values)
        moved = self._update(changed)
        inside = now_ps > self._span.begin_ps or (now_ps == self._span.begin_ps and not self._counts)
        known = self._in_span and not moved and not self._moved and not self._wants_past
        self._moved = moved and self._one.rate
        if inside or self._wants_past:
            found = [] if known else self._found(now_ps - self._last_ps)
            if found or known:
                yield Point(now_ps, found, not inside)
            self._in_span = self._in_span or inside
        if self._one.rate:
            self._last = list(self._values)
        self._last_ps = now_ps

    def _update(self, changed: Mapping[int, Sequence[int]]) -> bool:
        """Whether a line changed."""
        moved = False
        for device, flat in changed.items():
            places = self._places.get(device)
            if places is not None:
                for place, value in zip(flat[::2], flat[1::2], strict=True):
                    for line in places.get(place, ()):
                        self._values[line] = value
                        moved = True
        return moved

    def _found(self, passed_ps: int) -> list[tuple[int, Number]]:
        values: list[Number]
        if not self._values:
            return []
        if self._one.rate:
            if passed_ps <= 0:
                return []
            values = [
                self._per_second(now - before, passed_ps)
                for now, before in zip(self._values, self._last, strict=True)
            ]
        elif self._counts:
            values = [now - before for now, before in zip(self._values, self._last, strict=True)]
        else:
            values = list(self._values)
        if self._one.combine == "each":
            return list(enumerate(values))
        return [(ALL, combined(self._one.combine, values))]

    def _per_second(self, risen: int, passed_ps: int) -> Number:
        unit = self._one.metric.unit
        if risen == 0:
            return 0
        if unit is Unit.PS:
            return Fraction(risen, passed_ps)
        return Fraction(risen * PS_PER_S * (_BITS if unit is Unit.BYTES else 1), passed_ps)


def combined(how: str, values: Sequence[Number]) -> Number:
    """What several lines come to together."""
    if how == "sum":
        return sum(values)
    if how == "mean":
        return Fraction(sum(values), len(values))
    return max(values) if how == "max" else min(values)


def members_of(topology: Topology, switch: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """The members of a switch's groups of two ports and more: their labels (device, group, port, peer and
    direction), and the port.
    """
    nodes, ports = topology.nodes, topology.ports(switch)
    for group in sorted(dict.fromkeys(routes(topology).groups(switch))):
        if len(group) < 2:
            continue
        for at in group:
            peer = nodes[ports[at].peer]
            direction = direction_of(nodes[switch], peer)
            yield (nodes[switch].name, ranges(group), str(at), peer.name, direction), at


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers in short: [0, 1, 2, 5] is "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


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
    for end_ps, labels, value in came(one.metric.key, state):
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
) -> tuple[Lines, list[Changed]]:
    """The lines of a series that is known at every time, as those of one device, and when they change."""
    names: list[str] = []
    by_time: dict[int, list[int]] = {}
    for turn in turns(one.metric.key, state):
        if not _fits(one, turn.labels):
            continue
        name = one.series + shown_labels(turn.labels)
        if name not in names:
            names.append(name)
        seen_ps = min(-(-turn.time_ps // every_ps) * every_ps, end_ps) if one.rate else turn.time_ps
        if seen_ps <= end_ps:
            by_time.setdefault(seen_ps, []).extend((names.index(name), turn.value))
    records = [Changed(time_ps, {0: flat}) for time_ps, flat in sorted(by_time.items())]
    return Lines(names, {0: {at: [at] for at in range(len(names))}}), [*records, Changed(end_ps, {})]


def _fits(one: SeriesExpectation, labels: Labels) -> bool:
    return all(fnmatchcase(labels[name], wanted) for name, wanted in one.where.given().items())


# ---- what operations came to


def came(key: str, state: State) -> list[Came]:
    """What operations came to in a series, in the order in which they ended: durations in ps, bandwidths in
    bit/s, the MFU as a share."""
    found = _collectives(key, state) if METRIC_OF[key].labels == COLLECTIVE else _steps(key, state)
    return sorted(found, key=lambda row: row.end_ps)


def _collectives(key: str, state: State) -> Iterator[Came]:
    reported = {plan.name for plan in state.plans if plan.collectives}
    plans = {plan.job: plan for plan in state.plans}
    for number, operation, start_ps, end_ps, status in state.operations:
        plan = plans.get(number)
        if plan is not None and plan.collectives and status == STATUS_SUCCESS:
            done = plan.collectives[operation % len(plan.collectives)]
            if not done.warmup:
                yield Came(end_ps, _operation_labels(plan.name, done), _came_to(key, done, end_ps - start_ps))
    rows = [
        (name, row) for name, job in state.jobs.items() if name not in reported for row in job.collectives
    ]
    for name, row in rows:
        if row.end_ps is not None and row.start_ps is not None and row.status == SUCCESS:
            yield Came(
                row.end_ps, _operation_labels(name, row), _came_to(key, row, row.end_ps - row.start_ps)
            )


def _operation_labels(job: str, one: Collective | CollectivePlan) -> Labels:
    """The labels of what a collective came to, as the metrics page has them, but for the servers."""
    return {
        "comm_name": job,
        "nranks": str(one.ranks),
        "collective": collective_name(one.op),
        "message_size": size_range(one.bytes if isinstance(one, Collective) else one.size_bytes),
        "algo_proto": algorithm_name(one.algorithm),
    }


def _came_to(key: str, done: Collective | CollectivePlan, time_ps: int) -> Number:
    if key == "collective_exec_time_ps":
        return time_ps
    bus = key == "collective_bus_bandwidth_bytes_per_second"
    if isinstance(done, Collective):
        return (done.busbw if bus else done.algbw) or 0
    factor = bus_factor(done.op, done.ranks) if bus else Fraction(1)
    return bandwidth_bps(done.size_bytes, time_ps, factor) or 0


def _steps(key: str, state: State) -> Iterator[Came]:
    plans = {plan.job: plan for plan in state.plans}
    for number, _, start_ps, end_ps, status in state.operations:
        plan = plans.get(number)
        if plan is None or plan.collectives or status != STATUS_SUCCESS:
            continue
        if key == "job_step_time_ps":
            yield Came(end_ps, {"job_name": plan.name}, end_ps - start_ps)
        else:
            mfu_ppm = plan.facts.step_mfu_ppm(plan.ranks, end_ps - start_ps)
            if mfu_ppm is not None:
                yield Came(end_ps, {"job_name": plan.name}, Fraction(mfu_ppm, 10**6))


# ---- how jobs and faults stand


def turns(key: str, state: State) -> list[Turn]:
    """When the lines of a series of state take which values, by time."""
    return sorted(_turns(key, state), key=lambda turn: turn.time_ps)


def _turns(key: str, state: State) -> Iterator[Turn]:
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
        labels_of = [_operation_labels(plan.name, one) for one in plan.collectives]
        equal = [[at for at, other in enumerate(labels_of) if other == labels] for labels in labels_of]
        period = len(labels_of)
        for labels in labels_of:
            yield Turn(0, labels, 0)
        for number, operation, _, end_ps, status in state.operations:
            if period and number == plan.job and status == STATUS_SUCCESS:
                place, done = operation % period, operation + 1
                count = sum(done // period + (other < done % period) for other in equal[place])
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
