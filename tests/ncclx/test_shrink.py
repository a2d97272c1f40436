"""Does a job go on without a rank that is lost, and what does it cost?

Four servers at one switch reduce 64 KiB, again and again. The lost server dies in the second operation.
Management messages take 100 us and 64 B at 10G, so 100,051,200 ps; the watchdog gives up after 300 us. A rank
has four queue pairs, for data and for clear-to-sends, to either neighbour, and asks its NIC to reset each
with 64 B at 512G: a nanosecond.
"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of
from tests.scenario.plain import plain

WATCHDOG_PS = 300_000_000
MANAGED_PS = 100_051_200
RESETS_PS = 4 * 1000
LOST: dict[str, Any] = {"faults": [{"kind": "host_lost", "at": "213us", "target": "host-2"}]}


def ran(job: dict[str, Any] | None = None, **more: Any) -> api.Result:
    workload = {
        "kind": "collective",
        "op": "all_reduce",
        "algorithm": "ring",
        "sizes": ["64KiB"],
        "iterations": 4,
    }
    given = {
        "name": "shrink",
        "topology": {"kind": "star", "hosts": 4},
        "ncclx": {"watchdog": "300us"},
        "jobs": [{"name": "train", "workload": workload, **({"shrink": [2]} if job is None else job)}],
        "run": {"stall_after": "5ms"},
        **more,
    }
    return api.run(plain(given), local=True, diagnose=False)


def times_ps(result: api.Result) -> list[int]:
    rows = result.summary.jobs["train"].collectives
    return [one.end_ps - one.start_ps for one in rows if one.end_ps is not None and one.start_ps is not None]


def test_the_others_do_the_operation_again_and_go_on() -> None:
    whole, fewer = times_ps(ran({})), times_ps(ran({"ranks": [0, 1, 3]}))
    assert len(set(whole)) == len(set(fewer)) == 1
    shrunk = ran(**LOST)
    found_ps = WATCHDOG_PS + 2 * MANAGED_PS + RESETS_PS
    assert times_ps(shrunk) == [whole[0], found_ps + fewer[0], fewer[0], fewer[0]]
    job = shrunk.summary.jobs["train"]
    assert (job.status, shrunk.exit_status) == ("success", 0)
    assert [(one.rank, one.status) for one in job.failures] == [(rank, "timed_out") for rank in (0, 1, 3)]


def test_a_job_that_loses_nobody_runs_as_if_it_could_not_shrink() -> None:
    assert times_ps(ran()) == times_ps(ran({}))


def test_a_rank_that_never_came_is_given_up_like_one_that_is_lost() -> None:
    fewer = times_ps(ran({"ranks": [0, 1, 3]}))[0]
    found_ps = WATCHDOG_PS + 2 * MANAGED_PS + RESETS_PS
    assert times_ps(ran({"shrink": [2], "absent": [2]})) == [found_ps + fewer, fewer, fewer, fewer]


def test_a_rank_that_comes_back_is_not_waited_for() -> None:
    back: dict[str, Any] = {
        "faults": [{"kind": "host_lost", "at": "213us", "target": "host-2", "for": "600us"}]
    }
    assert times_ps(ran(**back)) == times_ps(ran(**LOST))


def test_the_loss_of_another_rank_ends_the_job() -> None:
    result = ran(faults=[{"kind": "gpu_lost", "at": "213us", "target": "gpu-1-0"}])
    assert result.summary.jobs["train"].status != "success"
    assert result.exit_status == 3


def test_the_answer_depends_neither_on_parts_nor_on_a_snapshot() -> None:
    brief: dict[str, object] = {
        "jobs[0].workload.sizes": ["16KiB"],
        "ncclx.watchdog": "100us",
        "control.management_delay": "10us",
        "faults[0].at": "55us",
    }
    whole = SpreadRun(plan_of("shrink_on_loss", 1, brief))
    whole.start()
    assert whole.run() in ENDINGS
    for parts, at_ps in ((2, 60_000_000), (3, 170_000_000), (2, 185_000_000), (3, 230_000_000)):
        first = SpreadRun(plan_of("shrink_on_loss", parts, brief))
        first.snapshot_at(at_ps)
        first.start()
        assert first.run() in ENDINGS
        assert first.snapshot is not None
        second = SpreadRun(plan_of("shrink_on_loss", parts + 1, brief), seed=2)
        second.resume(first.snapshot)
        assert second.run() in ENDINGS
        assert (first.digest(), second.digest()) == (whole.digest(), whole.digest()), at_ps


@pytest.mark.parametrize(
    ("job", "more", "reason"),
    [
        ({"shrink": [4]}, {}, "there is no rank 4 among 4"),
        ({"shrink": [1, 2, 3]}, {}, "leaves fewer than 2 of 4 ranks"),
        ({"shrink": [1, 1]}, {}, "rank 1 is listed already"),
        ({"shrink": [2]}, {"payload": "real"}, "what is left would have another result than all have"),
        ({"shrink": [2]}, {"ncclx": {"sms_per_channel": 1}}, "a communicator that is aborted keeps its SMs"),
        (
            {"shrink": [2]},
            {"ncclx": {"qp_policy": "least_loaded"}},
            "aborted connections would count for ever",
        ),
        ({"shrink": [2]}, {"transport": {"timeout": 0}, "ncclx": {}}, "nothing ends an operation"),
        (
            {"shrink": [2], "workload": {"kind": "collective", "op": "broadcast", "sizes": ["1KiB"]}},
            {},
            "broadcast is told rank by rank",
        ),
        (
            {"shrink": [2], "workload": {"kind": "permutation", "size": "1KiB"}},
            {},
            "only a benchmark does an operation again without the lost",
        ),
    ],
)
def test_what_cannot_be_done_again_without_a_rank_is_refused(
    job: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ScenarioError, match=reason):
        ran(job, **more)
