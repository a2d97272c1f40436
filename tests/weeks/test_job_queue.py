"""Do jobs wait as queueing theory says, and sit where the scheduler's policy means?"""

from itertools import pairwise
from math import factorial
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.base.errors import RuntimeFailure, ScenarioError
from emu.base.records import MistakesError
from emu.doors.weeks.job_mix import JobMix
from emu.doors.weeks.job_queue import Course, Job, followed, summary_of
from emu.doors.weeks.running_jobs import running_jobs_at
from emu.doors.weeks.server_placement import FreeServers, ServerPlacement
from emu.scenario.load import load_mapping, load_text
from emu.scenario.resolve import build_topology

H = 3_600_000
PODS = {
    "kind": "llama3",
    "pods": 2,
    "racks_per_pod": 2,
    "hosts_per_rack": 2,
    "gpus_per_host": 2,
    "ctsws_per_pod": 2,
    "atsws": 2,
}
EIGHTS = {"kind": "llama3", "pods": 1, "racks_per_pod": 1, "hosts_per_rack": 3, "ctsws_per_pod": 1}
"""Three servers of eight GPUs."""
JOB = {"name": "none", "workload": {"kind": "collective", "op": "barrier", "sizes": ["4B"]}}


def course_of(**keys: Any) -> tuple[JobMix, Course, dict[str, Any]]:
    mix = JobMix.model_validate({"name": "mix", "topology": PODS, **keys})
    bare = {"name": "bare", "topology": mix.topology.model_dump(by_alias=True), "jobs": [JOB]}
    topology = build_topology(load_mapping(bare).scenario)
    course = followed(mix, topology, "mix.yaml")
    return mix, course, dict(summary_of(mix, topology, course))


def listed(*jobs: tuple[int, int, int]) -> tuple[dict[str, Any], ...]:
    """Jobs of (arrival in hours, GPUs, run time in hours)."""
    return tuple(
        {"name": f"job-{at}", "at": f"{begin}h", "gpus": gpus, "lasts": f"{hours}h"}
        for at, (begin, gpus, hours) in enumerate(jobs)
    )


def begins_h(course: Course) -> list[float | None]:
    return [None if job.begins_ms is None else job.begins_ms / H for job in course.jobs]


def test_jobs_of_one_size_wait_as_erlang_c_says() -> None:
    servers, offered = 4, 2  # Erlangs: two an hour, of an hour each
    held = offered**servers / factorial(servers) * servers / (servers - offered)
    waits = held / (sum(offered**k / factorial(k) for k in range(servers)) + held)
    _, course, summary = course_of(
        topology={"kind": "star", "hosts": servers},
        lasts="300d",
        queue="first_come",
        arrivals={"per_hour": 2, "sizes": ({"gpus": 1, "share": 1, "lasts": "1h"},)},
    )
    assert len(course.jobs) > 14_000
    assert summary["utilisation"] == pytest.approx(offered / servers, rel=0.02)
    waited_s = [(job.begins_ms - job.arrives_ms) / 1000 for job in course.jobs if job.begins_ms is not None]
    spans = [fmean(waited_s[at * 700 : at * 700 + 700]) for at in range(20)]
    error_s = stdev(spans) / 20**0.5
    expected_s = 3600 * waits / (servers - offered)
    assert error_s < expected_s / 10
    assert abs(summary["wait"]["mean_s"] - expected_s) < 3 * error_s
    assert sum(one > 0 for one in waited_s) / len(waited_s) == pytest.approx(waits, rel=0.05)
    assert summary["waiting_jobs"] == pytest.approx(2 / 3600 * summary["wait"]["mean_s"], rel=0.02)  # Little


@pytest.mark.parametrize(
    ("queue", "begins"),
    [("first_come", [0, 10, 15, 15]), ("backfill", [0, 10, 2, 15]), ("any_that_fits", [0, 27, 2, 7])],
)
def test_a_smaller_job_goes_ahead_where_the_queue_lets_it(queue: str, begins: list[float]) -> None:
    # of four servers: three for 10 h, all from 1 h on for 5 h, one at 2 h for 5 h, one at 3 h for 20 h
    jobs = listed((0, 3, 10), (1, 4, 5), (2, 1, 5), (3, 1, 20))
    _, course, _ = course_of(topology={"kind": "star", "hosts": 4}, lasts="3d", queue=queue, jobs=jobs)
    assert begins_h(course) == begins


@pytest.mark.parametrize(
    ("jobs", "begins"),
    [
        # six of eight GPUs for 10 h, all others for long: a server is free then, if nobody has its rest
        ([(0, 6, 10), (0, 16, 100), (1, 8, 10), (2, 2, 50), (3, 2, 5)], [0, 0, 10, 20, 3]),
        # four of a server for 10 h and two for long: six are free then, but for who has one of them longer
        ([(0, 4, 10), (0, 2, 100), (0, 16, 100), (1, 6, 10), (2, 1, 50), (3, 2, 5)], [0, 0, 0, 10, 20, 3]),
        # three GPUs find room in the server that is free after 10 h, whoever has the other one's rest
        ([(0, 5, 100), (0, 8, 10), (0, 8, 100), (1, 4, 10), (2, 3, 50)], [0, 0, 0, 10, 2]),
    ],
)
def test_who_shares_a_server_goes_ahead_only_where_that_keeps_nobody_waiting(
    jobs: list[tuple[int, int, int]], begins: list[float]
) -> None:
    _, course, _ = course_of(topology=EIGHTS, lasts="8d", jobs=listed(*jobs))
    assert begins_h(course) == begins


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([1, 2, 3, 5, 8, 16]), st.integers(1, 30)),
        min_size=4,
        max_size=20,
    )
)
def test_under_backfill_nobody_who_comes_later_keeps_the_first_that_waits_any_longer(
    jobs: list[tuple[int, int, int]],
) -> None:
    jobs = sorted(jobs)
    alone = begins_h(course_of(topology=EIGHTS, lasts="300d", jobs=listed(*jobs))[1])
    for at, (arrives, _, _) in enumerate(jobs):
        if alone[at] != arrives:
            before = begins_h(course_of(topology=EIGHTS, lasts="300d", jobs=listed(*jobs[: at + 1]))[1])
            assert alone[at] == before[at]
            return


@given(
    kind=st.sampled_from(["contiguous", "scattered", "random", "min_cut", "rails", "zones"]),
    queue=st.sampled_from(["first_come", "backfill", "any_that_fits"]),
    jobs=st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from([1, 2, 4, 6, 10, 16]), st.integers(1, 9)), min_size=1
    ),
)
def test_no_gpu_has_two_jobs_and_every_job_its_number(
    kind: str, queue: str, jobs: list[tuple[int, int, int]]
) -> None:
    _, course, summary = course_of(lasts="300d", placement={"kind": kind}, queue=queue, jobs=listed(*jobs))
    held: dict[int, list[tuple[int, int]]] = {}
    for job in course.jobs:
        gpus = [gpu for _, some in job.place for gpu in some]
        assert len(gpus) == len(set(gpus)) == job.gpus
        assert job.begins_ms is not None
        assert job.ends_ms is not None
        assert all(job.spans[tier] >= job.least[tier] for tier in job.spans)
        for gpu in gpus:
            held.setdefault(gpu, []).append((job.begins_ms, job.ends_ms))
    for spans in held.values():
        assert all(left[1] <= right[0] for left, right in pairwise(sorted(spans)))
    assert course.levels[-1][1:] == (0, 0, 0, 0)
    assert summary["jobs"]["ended"] == len(jobs)


@pytest.mark.parametrize(
    ("kind", "racks", "pods"),
    [
        ("contiguous", [1, 3, 2], [1, 2, 1]),
        ("scattered", [1, 4, 2], [1, 2, 2]),
        ("min_cut", [1, 2, 1], [1, 1, 1]),
    ],
)
def test_a_policy_spreads_jobs_as_it_means_to(kind: str, racks: list[int], pods: list[int]) -> None:
    # two pods of two racks of two servers of two GPUs: jobs of one server, of four, of two
    jobs = listed((0, 2, 9), (1, 8, 9), (2, 4, 9))
    _, course, summary = course_of(lasts="8h", placement={"kind": kind}, jobs=jobs)
    spans = [job.spans for job in course.jobs]
    assert ([one["rack"] for one in spans], [one["pod"] for one in spans]) == (racks, pods)
    assert [job.least for job in course.jobs] == [{"rack": n, "pod": 1} for n in (1, 2, 1)]
    assert summary["spans"]["pod"]["mean"] == pytest.approx(
        (2 * pods[0] + 8 * pods[1] + 4 * pods[2]) / 14, abs=1e-4
    )


HPN = {
    "kind": "hpn",
    "pods": 2,
    "segments_per_pod": 2,
    "hosts_per_segment": 4,
    "gpus_per_host": 2,
}


@pytest.mark.parametrize(("kind", "segments"), [("min_cut", 2), ("rails", 1)])
def test_rails_take_one_segment_where_min_cut_fills_a_pod_up(kind: str, segments: int) -> None:
    # two pods of two segments of four servers: of one pod three and two are free, and four are asked for
    jobs = listed((0, 2, 9), (0, 6, 1), (0, 4, 9), (2, 8, 9))
    _, course, _ = course_of(topology=HPN, lasts="8h", placement={"kind": kind}, jobs=jobs)
    assert [job.spans["segment"] for job in course.jobs] == [1, 1, 1, segments]
    assert course.jobs[3].spans["pod"] == 1


def test_rails_of_several_segments_stay_in_a_pod() -> None:
    jobs = listed((0, 8, 9), (0, 16, 9))
    _, course, _ = course_of(topology=HPN, lasts="8h", placement={"kind": "rails"}, jobs=jobs)
    assert course.jobs[1].spans == {"segment": 2, "pod": 1}


@pytest.mark.parametrize(("kind", "begins", "pods"), [("min_cut", 1, 2), ("zones", 5, 1)])
def test_with_zones_a_job_waits_for_a_pod_that_holds_it(kind: str, begins: int, pods: int) -> None:
    # two pods of four servers: jobs of three until 5 h and 9 h leave one free in each, a job of two comes
    jobs = listed((0, 6, 5), (0, 6, 9), (1, 4, 2))
    _, course, _ = course_of(lasts="1d", placement={"kind": kind}, jobs=jobs)
    assert (begins_h(course)[2], course.jobs[2].spans["pod"]) == (begins, pods)


def test_with_zones_who_waits_for_a_pod_is_not_held_up_and_no_pod_holds_the_largest() -> None:
    # two servers are free at 5 h: a server until 8 h could be one of them, a server until 5 h cannot
    jobs = listed((0, 6, 5), (0, 6, 9), (1, 4, 2), (2, 2, 6), (2, 2, 3), (3, 12, 1))
    _, course, _ = course_of(lasts="2d", placement={"kind": "zones"}, jobs=jobs)
    assert begins_h(course) == [0, 0, 5, 5, 2, 9]
    assert course.jobs[5].spans["pod"] == 2


def test_small_jobs_share_the_fullest_server_with_room() -> None:
    star = {"kind": "star", "hosts": 3, "gpus_per_host": 4}
    jobs = listed((0, 3, 9), (1, 2, 9), (2, 1, 9), (3, 2, 9))
    _, course, summary = course_of(topology=star, lasts="4h", warm_up="3h", jobs=jobs)
    assert [job.place[0][0] for job in course.jobs] == [0, 1, 0, 1]
    assert summary["stranded"] == 0


def placed(kind: str) -> list[Job]:
    mix, course, _ = course_of(
        lasts="8h",
        placement={"kind": kind},
        traffic={"op": "all_gather", "sizes": ("1MiB",)},
        jobs=listed((0, 8, 8), (0, 8, 8)),
    )
    text = running_jobs_at(mix, course.jobs, H)
    loaded = load_text(text, "running.yaml").scenario
    assert [job.name for job in loaded.jobs] == ["job-0", "job-1"]
    listed_ranks = [job.ranks for job in loaded.jobs if isinstance(job.ranks, tuple)]
    assert sorted(gpu for ranks in listed_ranks for gpu in ranks) == list(range(16))
    return list(course.jobs)


@pytest.mark.parametrize("kind", ["min_cut", "scattered"])
def test_a_moment_is_a_scenario_with_every_job_where_it_is(kind: str) -> None:
    assert [job.spans["pod"] for job in placed(kind)] == [1 if kind == "min_cut" else 2] * 2


class LastOnes(ServerPlacement):
    """The highest numbers."""

    def servers(self, free: FreeServers, count: int) -> list[int]:
        """From the end."""
        return [server for server in reversed(range(len(free.gpus))) if free.is_whole(server)][:count]


class Open(ServerPlacement):
    """Forgets its method."""


class Short(ServerPlacement):
    """Its method takes too little."""

    def servers(self, free: FreeServers) -> list[int]:  # type: ignore[override]
        """Never asked."""
        return []


class Broken(ServerPlacement):
    """Fails."""

    def servers(self, free: FreeServers, count: int) -> list[int]:
        """What is no key."""
        raise KeyError(count)


class AlwaysTheFirst(ServerPlacement):
    """Server 0, whoever has it."""

    def servers(self, free: FreeServers, count: int) -> list[int]:
        """What is wrong from the second job on."""
        return [0] * count


def test_a_policy_of_ones_own_is_a_class_in_a_file() -> None:
    _, course, _ = course_of(lasts="8h", placement={"kind": f"{__name__}:LastOnes"}, jobs=listed((0, 4, 1)))
    assert [server for server, _ in course.jobs[0].place] == [7, 6]
    with pytest.raises(RuntimeFailure, match="AlwaysTheFirst was asked for 1 free servers and gave servers"):
        course_of(
            lasts="8h",
            placement={"kind": f"{__name__}:AlwaysTheFirst"},
            jobs=listed((0, 2, 5), (1, 2, 5)),
        )


@pytest.mark.parametrize(
    ("name", "reason"),
    [("Open", "does not say what its `servers` does"), ("Short", "its `servers` takes other arguments")],
)
def test_a_policy_without_its_method_is_refused(name: str, reason: str) -> None:
    with pytest.raises(MistakesError, match=reason):
        course_of(lasts="8h", placement={"kind": f"{__name__}:{name}"}, jobs=listed((0, 4, 1)))


def test_a_policy_that_fails_is_named_with_its_line() -> None:
    with pytest.raises(RuntimeFailure, match=r"Broken failed at .*test_job_queue.py:\d+: KeyError: 1"):
        course_of(lasts="8h", placement={"kind": f"{__name__}:Broken"}, jobs=listed((0, 2, 1)))


@pytest.mark.parametrize(
    ("gpus", "reason"), [(18, "18 GPUs in a cluster of 16"), (3, "are no whole servers of 2")]
)
def test_a_job_that_never_fits_is_refused(gpus: int, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        course_of(lasts="8h", jobs=listed((0, gpus, 1)))
