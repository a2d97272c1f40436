"""Impact of what was found: against the fabric as it was meant to be, and against the time before.

An operator knows how long a job takes where nothing is wrong, and what is counted meanwhile. Here that is
worked out by emulating the intended configuration: the same scenario and seed without whatever went wrong
(`emu.views.repairs.run_diagnosis` runs it; this module only compares). A run suffered if

1. a job took `SLOWER_PERMILLE` longer than there, or
2. a counter that an operator is called for (`emu.views.diagnosis.view.ALARMED`, headroom overruns, ports that
   went down) rose to more than there, by `SLOWER_PERMILLE` or more.

Of jobs that repeat the longest round counts, that under way at the end included, and counters rise with
virtual time, so that some rounds there are the measure of many here. Otherwise nothing is said, whatever
shows: a late link that no job felt is no answer to "what went wrong".

The time before. A job repeats the same operation: iterations of a collective, steps of a training job. Those
that ended before a moment are the measure for those that began or went on after it: what these took beyond
the median of their kind is what the job lost, and it is compared with the time the job would have taken,
barriers between operations included. From `SLOWER_PERMILLE` on the job has become slower.

Where nothing ended before, there is nothing to compare with, and `None` is the answer; nor is there where
what ended before was not steady: its slowest took `UNSTEADY_PERMILLE` of its quickest, as while congestion
control settles. Where it is not known when a cause began, the quicker quarter of a job's operations is the
measure.

Groups of equal ports that are loaded less evenly than they were meant to be. A switch spreads flows over
equal ports by a hash, and how evenly is luck; some unevenness is in every run and no answer to anything. So a
group is reported only where the fullest of its members carried `WORSE_PERMILLE` more of the mean than in the
run that this one is compared with: then flows collide here that do not collide there. What moved them (a
drifted hash, a link that is gone) ranks before it.
"""

from collections.abc import Iterator, Mapping
from statistics import median_low
from typing import Final, NamedTuple

from emu.base.units import about_size, about_time
from emu.counts.collected import JobPlan
from emu.results.summary import GroupLoad, Reference
from emu.summary.jobs import DISABLED, SUCCESS
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.view import View

SLOWER_PERMILLE: Final = 50


def impacts(
    times: Mapping[str, int], alarms: Mapping[str, int], reference: Reference, end_ps: int = 0
) -> list[str]:
    """What a run suffered, a line each; empty if nothing. `times` are as of `times_of`; `end_ps` is how long
    it ran.
    """
    lines: list[str] = []
    what = "the longest round " if reference.span_ps else ""
    for name, meant_ps in reference.jobs.items():
        took_ps = times.get(name)
        if took_ps is not None and risen(took_ps, meant_ps):
            percent = (took_ps - meant_ps) * 100 // meant_ps
            lines.append(
                f"{name}: {about_time(took_ps)}, {percent}% more than {what}on the intended fabric "
                f"({about_time(meant_ps)})"
            )
    for name, count in alarms.items():
        meant = reference.alarms.get(name, 0)
        if reference.span_ps:
            meant = -(-meant * end_ps // reference.span_ps)
        if risen(count, meant):
            lines.append(f"{name}: {count}, on the intended fabric {meant}")
    return lines


def risen(value: int, meant: int) -> bool:
    """Whether a value is larger than it was meant to be by so much that it counts."""
    return value > meant and value * 1000 >= meant * (1000 + SLOWER_PERMILLE)


UNSTEADY_PERMILLE: Final = 1100


class Done(NamedTuple):
    """One operation that ended."""

    kind: tuple[str, str, int]
    """What, by which algorithm, how large: what repeats has the same."""
    start_ps: int
    end_ps: int
    number: int = -1
    """Its place in the job."""

    @property
    def took_ps(self) -> int:
        """How long it took."""
        return self.end_ps - self.start_ps


def operations(view: View, plan: JobPlan) -> list[Done]:
    """The operations of a job that ended, in order."""
    return [
        Done(kind_of(plan, operation), start_ps, end_ps, operation)
        for number, operation, start_ps, end_ps, _ in view.rows(view.topology.controller, "operations")
        if number == plan.job
    ]


def kind_of(plan: JobPlan, operation: int) -> tuple[str, str, int]:
    """What an operation of a job is: what repeats has the same."""
    if not plan.collectives:
        return ("step", "", 0)
    one = plan.collectives[operation % len(plan.collectives)]
    return (one.op, one.algorithm, one.size_bytes)


def _under_way(view: View, plan: JobPlan, ended: list[Done]) -> Done | None:
    """The operation at which a job that repeats stands, if it has taken longer than any other of its kind."""
    if view.cut is None or not ended:
        return None
    rows = view.rows(view.topology.controller, "operations")
    number = max(row[1] for row in rows if row[0] == plan.job) + 1
    kind = kind_of(plan, number)
    start_ps = view.cut.begun_ps(ended[-1].end_ps)
    took_ps = view.cut.under_way_ps(start_ps)
    longest_ps = max((one.end_ps - one.start_ps for one in ended if one.kind == kind), default=took_ps)
    return Done(kind, start_ps, start_ps + took_ps, number) if took_ps > longest_ps else None


MANY_MEDIANS: Final = 3
"""So many times as long as the median of its kind an operation takes on no fabric that is well."""
FEWEST: Final = 4
"""Operations of a kind of which there has to be a median."""


class SlowOperation(NamedTuple):
    """An operation that took longer than others of its kind in the same job."""

    job: str
    done: Done
    usual_ps: int
    """The median of its kind."""
    quick_ps: int
    """The median of the quicker quarter of its kind."""

    @property
    def label(self) -> str:
        """What it is called where it is compared with itself."""
        return f"operation {self.done.number} of {self.job}"

    @property
    def excess_ps(self) -> int:
        """What it took beyond the quicker quarter of its kind."""
        return self.done.took_ps - self.quick_ps

    @property
    def many_medians(self) -> bool:
        """Whether it took many times the median."""
        return self.done.took_ps >= MANY_MEDIANS * self.usual_ps

    def during(self, finding: Finding) -> bool:
        """Whether what was found was there while it went on, as far as is known."""
        begun = finding.since_ps < self.done.end_ps
        return begun and not 0 <= finding.until_ps <= self.done.start_ps


def slow_operations(view: View) -> list[SlowOperation]:
    """The operations that took `SLOWER_PERMILLE` longer than the quicker quarter of their kind, that which
    took most beyond it first.
    """
    found: list[SlowOperation] = []
    for plan in view.plans:
        done = operations(view, plan) if plan.enabled else []
        if present := _under_way(view, plan, done):
            done.append(present)
        for kind in dict.fromkeys(one.kind for one in done):
            alike = [one for one in done if one.kind == kind]
            if len(alike) < FEWEST:
                continue
            times = sorted(one.took_ps for one in alike)
            usual_ps, quick_ps = median_low(times), median_low(times[: max(len(times) // 4, 1)])
            found += [
                SlowOperation(plan.name, one, usual_ps, quick_ps)
                for one in alike
                if risen(one.took_ps, quick_ps)
            ]
    return sorted(found, key=lambda one: (-one.excess_ps, one.done.start_ps))


def happened_under(view: View, finding: Finding, most_ps: int) -> SlowOperation | None:
    """An operation many medians long under which a finding was there that can have cost `most_ps`, at least
    half of what it took too long; None without one.
    """
    for one in slow_operations(view):
        if one.many_medians and one.during(finding) and 2 * most_ps >= one.excess_ps:
            return one
    return None


def failed_jobs(view: View) -> dict[str, str]:
    """The status of each job that did not end well."""
    return {name: job.status for name, job in view.jobs.items() if job.status not in (SUCCESS, DISABLED)}


def slowdown_permille(view: View, plan: JobPlan, since_ps: int, until_ps: int = -1) -> int | None:
    """By how much a job's time grew after a moment, in thousandths of what it would have been; up to another,
    where that is known: what began later is due to something else.
    """
    before: dict[tuple[str, str, int], list[int]] = {}
    excess_ps = 0
    compared = False
    found = operations(view, plan)
    if present := _under_way(view, plan, found):
        found.append(present)
    if since_ps < 0:
        for done in found:
            before.setdefault(done.kind, []).append(done.end_ps - done.start_ps)
        before = {kind: sorted(times)[: max(len(times) // 4, 1)] for kind, times in before.items()}
    for done in found:
        time_ps = done.end_ps - done.start_ps
        usual = before.get(done.kind)
        if done.end_ps <= since_ps:
            before.setdefault(done.kind, []).append(time_ps)
        elif 0 <= until_ps <= done.start_ps:
            break
        elif usual and _steady(usual):
            compared = True
            excess_ps += time_ps - median_low(usual)
    if not compared:
        return None
    span_ps = found[-1].end_ps - found[0].start_ps
    return excess_ps * 1000 // max(span_ps - excess_ps, 1)


def _steady(usual: list[int]) -> bool:
    """Whether operations took nearly the same time, but for one in four of `FEWEST` or more."""
    times = sorted(usual)
    times = times[: len(times) - len(times) // FEWEST]
    return times[-1] * 1000 <= times[0] * UNSTEADY_PERMILLE


def slower(view: View, since_ps: int, until_ps: int = -1) -> tuple[str, int] | None:
    """The job that suffered most after a moment, up to another, and by how much; None where no job can be
    compared.
    """
    found: tuple[str, int] | None = None
    for plan in view.plans:
        if not plan.enabled:
            continue
        grown = slowdown_permille(view, plan, since_ps, until_ps)
        if grown is not None and (found is None or grown > found[1]):
            found = (plan.name, grown)
    return found


WORSE_PERMILLE: Final = 1250
"""How much more uneven than in the run compared with a group has to be."""


def group_name(row: GroupLoad) -> str:
    """A group by its switch and whom its members lead to."""
    return f"{row.switch} towards {', '.join(row.towards)}"


def loads_of(rows: list[GroupLoad]) -> dict[str, float]:
    """The fullest member over the mean, by group."""
    return {group_name(row): row.max_over_mean for row in rows if row.max_over_mean is not None}


def uneven_groups(view: View, reference: Reference) -> Iterator[Finding]:
    """Groups that are loaded less evenly than in the run compared with, the worst first."""
    for row in view.groups:
        meant = reference.imbalance.get(group_name(row))
        if row.max_over_mean is None or meant is None:
            continue
        if row.max_over_mean * 1000 < meant * WORSE_PERMILLE:
            continue
        fullest = row.towards[row.loads.index(max(row.loads))]
        worse = int(row.max_over_mean * 1000 / meant) - 1000
        loads = [f"{name} {about_size(load)}" for name, load in zip(row.towards, row.loads, strict=True)]
        yield Finding(
            "imbalance",
            row.switch,
            600 + min(worse // 20, 100),
            f"flows collide at {row.switch}: of {row.members} equal ports the one towards {fullest} carried "
            f"{row.max_over_mean:.2f} times the mean, and {meant:.2f} times where all is well",
            (f"{row.switch}: payload sent towards {', '.join(loads)}",),
            -1,
            has_impact=True,
        )
