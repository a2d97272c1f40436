"""Jobs that arrive at a cluster, wait, run and leave, in whole milliseconds.

Where a job is does not change how long it runs. What it would get of the network is a matter of packets:
`emu.doors.weeks.running_jobs` writes the jobs of a moment as a scenario.

Not modelled: preemption, migration, jobs that grow or shrink, failures (`emu campaign` has these).
"""

from __future__ import annotations

import heapq
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from actors.fabric.model import Topology
from actors.kernel.mixing import Stream
from emu.base.errors import Problem, RuntimeFailure, ScenarioError
from emu.doors.weeks.campaign_file import UNITS_MS
from emu.doors.weeks.job_mix import ArrivalsSection, JobMix, Workload
from emu.doors.weeks.job_trace import TracedJobs
from emu.doors.weeks.rank_order import RankOrder, Traffic, traffic_of
from emu.doors.weeks.server_placement import FreeServers, ServerPlacement
from emu.scenario.faults.draws import exponential_gap
from emu.scenario.knobs import PolicySection
from emu.scenario.plugins import HookFailure, policy_of

PURPOSE: Final = 1 << 23
"""Purpose of the random streams: of arrivals, sizes, run times, placement."""


@dataclass(slots=True)
class Job:
    """One job, from its arrival on."""

    name: str
    gpus: int
    arrives_ms: int
    lasts_ms: int
    traffic: Workload
    begins_ms: int | None = None
    place: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """The servers it has, in rank order, and its GPUs on each."""
    spans: dict[str, int] = field(default_factory=dict)
    """In how many racks, pods and so on it is."""
    least: dict[str, int] = field(default_factory=dict)
    """In how many it would have to be in an empty cluster."""

    @property
    def workload(self) -> dict[str, Any]:
        """Its traffic, as a scenario has it."""
        written = self.traffic.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {"kind": self.traffic.kind, **written}

    @property
    def ends_ms(self) -> int | None:
        """When it leaves."""
        return None if self.begins_ms is None else self.begins_ms + self.lasts_ms


class Level(NamedTuple):
    """What the cluster does from a time on."""

    at_ms: int
    busy_gpus: int
    stranded_gpus: int
    waiting_jobs: int
    waiting_gpus: int


class Course(NamedTuple):
    """All jobs that came by the end, in order of arrival, and the levels between."""

    jobs: tuple[Job, ...]
    levels: tuple[Level, ...]


def arrivals_of(mix: JobMix, traced: TracedJobs | None = None) -> list[Job]:
    """Every job, in order of arrival."""
    jobs = [
        Job(one.name, one.gpus, one.at_ms, one.lasts_ms, one.traffic or mix.traffic)
        for one in mix.jobs
        if one.at_ms < mix.lasts_ms
    ]
    if mix.arrivals is not None:
        jobs += _drawn(mix, mix.arrivals)
    if traced is not None:
        jobs += [Job(one.name, one.gpus, one.submitted_ms, one.lasts_ms, mix.traffic) for one in traced.jobs]
    return sorted(jobs, key=lambda job: job.arrives_ms)


def _drawn(mix: JobMix, arrivals: ArrivalsSection) -> Iterator[Job]:
    gaps, sizes, times = (Stream(mix.seed, place, PURPOSE) for place in range(3))
    per_ms = arrivals.per_hour / UNITS_MS["h"]
    at_ms = count = 0
    while True:
        at_ms += exponential_gap(gaps.draw62(), per_ms)
        if at_ms >= mix.lasts_ms:
            return
        share = Fraction(sizes.draw62(), 1 << 62)
        size = arrivals.sizes[-1]
        for one in arrivals.sizes:
            if share < one.share:
                size = one
                break
            share -= one.share
        drawn = times.draw62()
        job_ms = size.lasts_ms
        if arrivals.run_times == "exponential":
            job_ms = exponential_gap(drawn, Fraction(1, job_ms))
        yield Job(f"job-{count}", size.gpus, at_ms, job_ms, size.traffic or mix.traffic)
        count += 1


def check_sizes(mix: JobMix, free: FreeServers, file: str, traced: TracedJobs | None = None) -> None:
    """Refuse jobs that the cluster could never place. Raises ScenarioError."""
    sizes = [(f"jobs[{at}]", one.gpus, one.traffic) for at, one in enumerate(mix.jobs)]
    sizes += [("trace", gpus, None) for gpus in sorted({one.gpus for one in traced.jobs} if traced else ())]
    if mix.arrivals is not None:
        drawn = enumerate(mix.arrivals.sizes)
        sizes += [(f"arrivals.sizes[{at}]", one.gpus, one.traffic) for at, one in drawn]
    accepted = f"1 to {free.size}, or a multiple of {free.size}, at most {free.total_gpus}"
    problems = []
    for place, gpus, own in sizes:
        key = f"{place}.gpus"
        misfit = (own or mix.traffic).misfit(gpus)
        if misfit:
            problems.append(Problem(file, 0, f"{place}.traffic" if own else "traffic", *misfit))
        if gpus > free.total_gpus:
            reason = f"{gpus} GPUs in a cluster of {free.total_gpus}"
            problems.append(Problem(file, 0, key, reason, accepted))
        elif gpus > free.size and gpus % free.size:
            reason = f"{gpus} GPUs are no whole servers of {free.size}"
            problems.append(Problem(file, 0, key, reason, accepted))
    if any(len(gpus) != free.size for gpus in free.gpus):
        problems.append(Problem(file, 0, "topology", "servers differ in their GPUs", "equal servers"))
    if problems:
        raise ScenarioError(problems)


def _asked(key: str, policy: type[Any], question: Callable[[], Any]) -> Any:
    """What a policy answers. RuntimeFailure, with key and line, if its class is somebody's own and fails."""
    try:
        return question()
    except HookFailure as error:
        raise RuntimeFailure(f"{key}.kind: {error}") from error
    except (RuntimeFailure, ScenarioError):
        raise
    except (Exception, SystemExit) as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{last.filename}:{last.lineno}"
        name = f"{policy.__module__}:{policy.__qualname__}"
        reported = " ".join(f"{type(error).__name__}: {error}".split())
        raise RuntimeFailure(f"{key}.kind: {name} failed at {where}: {reported}") from error


def _made(key: str, section: PolicySection, stream: Stream) -> Any:
    """The policy that a section chooses."""
    policy = policy_of(section)
    return _asked(key, policy, lambda: policy(section, stream))


class _Cluster:
    """The cluster and its queue at one time."""

    def __init__(self, mix: JobMix, free: FreeServers) -> None:
        self.mix = mix
        self.free = free
        streams = (Stream(mix.seed, place, PURPOSE) for place in (3, 4))
        self.placement: ServerPlacement = _made("placement", mix.placement, next(streams))
        self.rank_order: RankOrder = _made("rank_order", mix.rank_order, next(streams))
        self._traffic: dict[tuple[int, str], Traffic] = {}
        self.waiting: list[Job] = []
        self.running: list[tuple[int, int, Job]] = []
        """A heap of (end, number, job)."""
        self._begun = 0

    def begin_all(self, now_ms: int) -> None:
        """Begin every job whose turn it is."""
        while self.waiting and self._fits(self.waiting[0]):
            self._begin(self.waiting.pop(0), now_ms)
        if not self.waiting or self.mix.queue == "first_come":
            return
        keeps_free = self._reserved(now_ms) if self.mix.queue == "backfill" else None
        left = [self.waiting[0]]
        for job in self.waiting[1:]:
            if not self._fits(job) or (keeps_free is not None and not keeps_free.allows(job, now_ms)):
                left.append(job)
                continue
            self._begin(job, now_ms)
            if keeps_free is not None:
                keeps_free.took(job)
        self.waiting = left

    def leave(self, job: Job) -> None:
        """A job gives its GPUs back."""
        for server, gpus in job.place:
            self.free.give_back(server, gpus)

    def level(self, now_ms: int) -> Level:
        """What the cluster does now."""
        waiting_gpus = sum(job.gpus for job in self.waiting)
        busy, stranded = self.free.busy_gpus, self.free.stranded_gpus
        return Level(now_ms, busy, stranded, len(self.waiting), waiting_gpus)

    def _servers(self, job: Job) -> int:
        """Wholly free servers that a job takes."""
        if job.gpus < self.free.size:
            return int(self.free.roomiest_fit(job.gpus) is None)
        return job.gpus // self.free.size

    def _fits(self, job: Job) -> bool:
        count = self._servers(job)
        if count == 0 or count > self.free.whole:
            return count == 0
        placement = self.placement
        return bool(_asked("placement", type(placement), lambda: placement.fits(self.free, count)))

    def _begin(self, job: Job, now_ms: int) -> None:
        count = self._servers(job)
        shared = self.free.roomiest_fit(job.gpus) if count == 0 else None
        servers = [shared] if shared is not None else self._ordered(job, self._chosen(count))
        job.begins_ms = now_ms
        job.spans = self.free.spans(servers)
        job.least = self.free.least_spans(len(servers))
        on_each = min(job.gpus, self.free.size)
        job.place = tuple((server, tuple(self.free.gpus[server][:on_each])) for server in servers)
        self._take(job)
        self._begun += 1
        heapq.heappush(self.running, (now_ms + job.lasts_ms, self._begun, job))

    def _take(self, job: Job) -> None:
        for server, gpus in job.place:
            self.free.take(server, gpus)

    def _ordered(self, job: Job, servers: list[int]) -> list[int]:
        """In the order in which ranks go through them."""

        def traffic() -> Traffic:
            key = job.gpus, repr(job.workload)
            if key not in self._traffic:
                self._traffic[key] = traffic_of(job.gpus, self.free.size, job.workload)
            return self._traffic[key]

        order = self.rank_order
        ordered = list(_asked("rank_order", type(order), lambda: order.order(self.free, servers, traffic)))
        if Counter(ordered) != Counter(servers):
            name = type(order).__qualname__
            raise RuntimeFailure(f"rank order {name} was given {len(servers)} servers and gave others")
        return ordered

    def _chosen(self, count: int) -> list[int]:
        placement = self.placement
        servers = list(_asked("placement", type(placement), lambda: placement.servers(self.free, count)))
        whole = all(
            isinstance(server, int) and 0 <= server < len(self.free.gpus) and self.free.is_whole(server)
            for server in servers
        )
        if len(servers) != count or len(set(servers)) != count or not whole:
            name = type(self.placement).__qualname__
            reason = "servers that are taken or listed twice" if len(servers) == count else f"{len(servers)}"
            raise RuntimeFailure(f"placement {name} was asked for {count} free servers and gave {reason}")
        return servers

    def _reserved(self, now_ms: int) -> _Reservation:
        """When the first of the queue can begin, were nothing else begun, and what is free then."""
        first, gone = self.waiting[0], list[Job]()
        begins_ms = now_ms
        for end_ms, _, job in sorted(self.running):
            if end_ms > begins_ms and self._fits(first):
                break
            self.leave(job)
            gone.append(job)
            begins_ms = end_ms
        room = [len(gpus) for gpus in self.free.gpus]
        # where jobs wait for their place, one that runs beside could take it
        needs = self.free.whole if self.placement.waits else self._servers(first)
        small = first.gpus if first.gpus < self.free.size else 0
        for job in reversed(gone):
            self._take(job)
        return _Reservation(begins_ms, self.free, room, needs, small)


@dataclass(slots=True)
class _Reservation:
    """Room kept for the first in the queue: when it begins at the latest, and what is free then."""

    begins_ms: int
    free: FreeServers
    """The servers as they are now."""
    room: list[int]
    """GPUs of each server that are free then."""
    needs: int
    """Servers that are to be wholly free then."""
    small: int
    """Its GPUs, if it shares a server: any with so much room will do."""

    def allows(self, job: Job, now_ms: int) -> bool:
        """Whether a job that fits may go ahead."""
        if now_ms + job.lasts_ms <= self.begins_ms:
            return True
        size = self.free.size
        shared = self.free.roomiest_fit(job.gpus) if job.gpus < size else None
        whole = self.room.count(size)
        if shared is None:
            left = size - job.gpus if job.gpus < size else 0
            whole -= max(job.gpus // size, 1)
        else:
            left = self.room[shared] - job.gpus
            whole -= self.room[shared] == size
        if not self.small:
            return whole >= self.needs
        others = (room for server, room in enumerate(self.room) if room < size and server != shared)
        return whole > 0 or max(left, *others, 0) >= self.small

    def took(self, job: Job) -> None:
        """A job went ahead: what it takes for longer is not free then."""
        if (job.ends_ms or 0) > self.begins_ms:
            for server, gpus in job.place:
                self.room[server] -= len(gpus)


def followed(
    mix: JobMix,
    topology: Topology,
    file: str,
    until_ms: int | None = None,
    traced: TracedJobs | None = None,
    reached: Callable[[int, int], None] = lambda _now, _end: None,
) -> Course:
    """What happens on the cluster, until `until_ms` or the end. `reached` hears of each time reached,
    and of the end, both in ms. Raises ScenarioError, RuntimeFailure."""
    free = FreeServers(topology)
    check_sizes(mix, free, file, traced)
    cluster = _Cluster(mix, free)
    jobs = arrivals_of(mix, traced)
    end_ms = mix.lasts_ms if until_ms is None else until_ms + 1
    levels = [cluster.level(0)]
    coming = 0
    while True:
        times = [jobs[coming].arrives_ms] if coming < len(jobs) else []
        times += [cluster.running[0][0]] if cluster.running else []
        now_ms = min(times, default=end_ms)
        if now_ms >= end_ms:
            return Course(tuple(jobs[:coming]), tuple(levels))
        while cluster.running and cluster.running[0][0] == now_ms:
            cluster.leave(heapq.heappop(cluster.running)[2])
        while coming < len(jobs) and jobs[coming].arrives_ms == now_ms:
            cluster.waiting.append(jobs[coming])
            coming += 1
        cluster.begin_all(now_ms)
        levels.append(cluster.level(now_ms))
        reached(now_ms, end_ms)


def _means(levels: Sequence[Level], begin_ms: int, end_ms: int) -> dict[str, float]:
    """Means over time of what levels say."""
    totals = dict.fromkeys(Level._fields[1:], 0)
    following = [*(one.at_ms for one in levels[1:]), end_ms]
    for level, until_ms in zip(levels, following, strict=True):
        span_ms = min(until_ms, end_ms) - max(level.at_ms, begin_ms)
        if span_ms > 0:
            for name in totals:
                totals[name] += span_ms * getattr(level, name)
    return {name: total / (end_ms - begin_ms) for name, total in totals.items()}


def _spread(values: Sequence[int]) -> dict[str, float | None]:
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(("mean_s", "p50_s", "p95_s", "max_s"))
    at = [ordered[min(len(ordered) * share // 100, len(ordered) - 1)] for share in (50, 95)]
    mean = sum(ordered) / len(ordered)
    return {"mean_s": mean / 1000, "p50_s": at[0] / 1000, "p95_s": at[1] / 1000, "max_s": ordered[-1] / 1000}


def summary_of(
    mix: JobMix, topology: Topology, course: Course, traced: TracedJobs | None = None
) -> dict[str, Any]:
    """Plain values, from the end of the warm-up on. Spans are means over the GPU time of jobs."""
    begin_ms, end_ms = mix.warm_up_ms, mix.lasts_ms
    counted = [job for job in course.jobs if job.arrives_ms >= begin_ms]
    begun = [job for job in counted if job.begins_ms is not None]
    waited = [job.begins_ms - job.arrives_ms for job in begun if job.begins_ms is not None]
    means = _means(course.levels, begin_ms, end_ms)
    total = len(topology.gpus)
    spans: dict[str, dict[str, float]] = {}
    weight = sum(job.gpus * job.lasts_ms for job in begun)
    for tier in begun[0].spans if begun else ():
        parts = sum(job.gpus * job.lasts_ms * job.spans[tier] for job in begun)
        least = sum(job.gpus * job.lasts_ms * job.least[tier] for job in begun)
        wider = sum(job.gpus * job.lasts_ms for job in begun if job.spans[tier] > job.least[tier])
        spans[tier] = {
            "mean": round(parts / weight, 4),
            "least": round(least / weight, 4),
            "wider_share": round(wider / weight, 4),
        }
    return {
        "name": mix.name,
        "seed": mix.seed,
        "gpus": total,
        "placement": mix.placement.kind,
        "rank_order": mix.rank_order.kind,
        "queue": mix.queue,
        "jobs": {
            "arrived": len(counted),
            "begun": len(begun),
            "ended": sum(job.ends_ms is not None and job.ends_ms < end_ms for job in begun),
            "most_waiting": max(level.waiting_jobs for level in course.levels),
        },
        "wait": _spread(waited),
        "utilisation": round(means["busy_gpus"] / total, 6),
        "stranded": round(means["stranded_gpus"] / total, 6),
        "waiting_jobs": round(means["waiting_jobs"], 4),
        "waiting_gpus": round(means["waiting_gpus"], 2),
        "spans": spans,
        "trace": None if traced is None else _of_trace(traced, begin_ms),
    }


def _of_trace(traced: TracedJobs, begin_ms: int) -> dict[str, Any]:
    """What of a trace came, and how long its jobs waited where it was recorded."""
    waited = [
        one.waited_ms for one in traced.jobs if one.submitted_ms >= begin_ms and one.waited_ms is not None
    ]
    return {
        "recorded": traced.recorded,
        "came": len(traced.jobs),
        "without_gpu_or_length": traced.left_out,
        "too_large": traced.too_large,
        "recorded_wait": _spread(waited),
    }
