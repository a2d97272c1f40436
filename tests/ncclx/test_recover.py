"""Does a job go on without ranks that nobody named, with spares instead, and with those that come back?

Four servers at one switch reduce 64 KiB, again and again, with a fifth to spare. The figures are those of
`tests.ncclx.test_shrink`: management messages take 100,051,200 ps, the watchdog gives up after 300 us, and
the controller waits as long for reports.
"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.summary.summary_report import survived_lines
from emu.workload.program import memberships
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of
from tests.ncclx.test_shrink import MANAGED_PS, RESETS_PS, WATCHDOG_PS
from tests.scenario.plain import plain

US = 10**6
FOUND_PS = WATCHDOG_PS + 2 * MANAGED_PS + RESETS_PS


def ran(job: dict[str, Any], faults: list[dict[str, Any]] | None = None, **more: Any) -> api.Result:
    workload = {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["64KiB"]}
    given = {
        "name": "recover",
        "topology": {"kind": "star", "hosts": 5},
        "ncclx": {"watchdog": "300us", **more.pop("ncclx", {})},
        "jobs": [{"name": "train", "ranks": 4, "workload": {**workload, "iterations": 5}, **job}],
        "faults": faults or [],
        "run": {"stall_after": "5ms"},
        **more,
    }
    return api.run(plain(given), local=True, diagnose=False)


def times_ps(result: api.Result) -> list[int]:
    job = result.summary.jobs["train"]
    assert (job.status, result.exit_status) == ("success", 0)
    return [(one.end_ps or 0) - (one.start_ps or 0) for one in job.collectives]


@pytest.fixture(scope="module")
def whole() -> int:
    return times_ps(ran({}))[0]


@pytest.fixture(scope="module")
def fewer() -> int:
    return times_ps(ran({"ranks": [0, 1, 3]}))[0]


def host_lost(number: int, **more: str) -> list[dict[str, Any]]:
    return [{"kind": "host_lost", "at": "213us", "target": f"host-{number}", **more}]


@pytest.mark.parametrize("lost", [0, 2])
def test_a_host_that_does_not_answer_is_found_out_after_the_wait(lost: int, whole: int, fewer: int) -> None:
    found = times_ps(ran({"recover": {}}, host_lost(lost)))
    assert found == [whole, FOUND_PS + WATCHDOG_PS + fewer, fewer, fewer, fewer]
    brief = times_ps(ran({"recover": {"wait": "50us"}}, host_lost(lost)))
    assert brief[1] == FOUND_PS + 50 * US + fewer


def test_a_gpu_that_is_lost_is_reported_and_nobody_is_waited_for(whole: int, fewer: int) -> None:
    faults = [{"kind": "gpu_lost", "at": "213us", "target": "gpu-1-0"}]
    result = ran({"recover": {}}, faults)
    assert times_ps(result) == [whole, FOUND_PS + fewer, fewer, fewer, fewer]
    (line,) = survived_lines(result.summary.jobs)
    assert line.startswith("# train: went on after ranks 0, 2, 3 gave up (the first at ")


def test_a_gpu_that_was_gone_when_its_job_began_is_reported_as_well(fewer: int) -> None:
    faults = [{"kind": "gpu_lost", "at": "213us", "target": "gpu-1-0"}]
    assert times_ps(ran({"recover": {}, "start": "1ms"}, faults)) == [FOUND_PS + fewer, *[fewer] * 4]


def test_a_spare_whose_gpu_is_gone_takes_nobodys_place(whole: int, fewer: int) -> None:
    faults = [
        {"kind": "gpu_lost", "at": f"{at}us", "target": f"gpu-{gpu}-0"} for at, gpu in ((50, 4), (213, 1))
    ]
    found = times_ps(ran({"ranks": 5, "recover": {"spares": [4], "losses": 2}}, faults))
    assert found == [whole, FOUND_PS + fewer, fewer, fewer, fewer]


def test_a_rank_behind_a_dead_link_is_the_one_that_another_failed_to_reach(fewer: int) -> None:
    """Rank 2 cannot tell it that it may send, long before the watchdogs of the others run out."""
    faults = [{"kind": "link_down", "at": "213us", "target": "nic-1-0:tor-0"}]
    transport = {"timeout": 3, "retry_count": 1}
    found = times_ps(ran({"recover": {}}, faults, transport=transport))
    assert found[2:] == [fewer] * 3
    # All report, the last ones when their watchdogs run out.
    assert found[1] == FOUND_PS + fewer


@pytest.mark.parametrize("kind", ["rc", "multipath"])
@pytest.mark.parametrize("at_us", [222, 231, 233, 241])
def test_a_rank_that_is_cut_off_names_itself(at_us: int, kind: str) -> None:
    """Whenever its link goes during the second operation, and whether or not others cannot send to it either,
    it is the lost one."""
    faults = [{"kind": "link_down", "at": f"{at_us}us", "target": "nic-1-0:tor-0"}]
    transport = {"kind": kind, "timeout": 3, "retry_count": 1}
    assert len(times_ps(ran({"recover": {}}, faults, transport=transport))) == 5


def test_a_job_that_loses_nobody_runs_as_one_that_could_not_go_on(whole: int) -> None:
    assert times_ps(ran({"recover": {"rejoin": True}})) == [whole] * 5


def test_a_spare_takes_the_place_of_a_lost_rank(whole: int) -> None:
    recover = {"ranks": 5, "recover": {"spares": [4], "wait": "50us"}}
    assert times_ps(ran(recover, host_lost(2))) == [whole, FOUND_PS + 50 * US + whole, whole, whole, whole]
    assert times_ps(ran(recover)) == [whole] * 5


@pytest.mark.parametrize(("store", "lanes"), [("serial", 1), ("concurrent", 2)])
def test_a_spare_joins_through_the_store_and_all_pay_the_init_again(
    store: str, lanes: int, whole: int
) -> None:
    """Four ranks meet, five times where each of four groups has a barrier; a request takes 80 us."""
    init = {"init": {"store": store, "lanes": lanes, "operation": "40us"}, "watchdog": "3ms"}
    init_ps = 5 * (2 * MANAGED_PS + 4 // lanes * 80 * US)
    recover = {"ranks": 5, "recover": {"spares": [4], "wait": "50us"}}
    at_us = init_ps // US + 213
    faults = [{"kind": "host_lost", "at": f"{at_us}us", "target": "host-2"}]
    found = times_ps(ran(recover, faults, ncclx=init))
    assert [found[0], *found[2:]] == [whole] * 4
    # Queue pairs are reset while ranks meet.
    assert found[1] == 3_000 * US + 50 * US + 2 * MANAGED_PS + init_ps + whole


def test_a_host_that_comes_back_joins_again_when_the_next_operation_begins(whole: int, fewer: int) -> None:
    """Back at 713 us and heard of 100 us later, before the second operation is over. Its four queue pairs for
    the new communicator go through RESET, INIT, RTR and RTS, a nanosecond each.
    """
    faults = host_lost(2, **{"for": "500us"})
    recover = {"recover": {"wait": "50us", "rejoin": True}}
    found = times_ps(ran(recover, faults, routing={"convergence": "10us"}))
    assert found == [whole, FOUND_PS + 50 * US + fewer, whole + 4 * RESETS_PS, whole, whole]


def test_a_second_loss_ends_a_job_that_has_nobody_to_go_on_with() -> None:
    faults = [*host_lost(2), {"kind": "host_lost", "at": "1150us", "target": "host-1"}]
    result = ran({"recover": {"wait": "50us"}}, faults)
    assert result.summary.jobs["train"].status != "success"
    assert result.exit_status == 3


def test_memberships_are_those_without_a_rank_or_without_a_server() -> None:
    assert memberships([0, 0, 1, 1], [], rejoin=True) == [
        (0, 1, 2, 3),
        (1, 2, 3),
        (0, 2, 3),
        (0, 1, 3),
        (0, 1, 2),
        (2, 3),
        (0, 1),
        (0, 1, 2, 3),
    ]
    assert memberships([0, 1, 2, 3], [3], rejoin=False) == [(0, 1, 2), (3, 1, 2), (0, 3, 2), (0, 1, 3)]


def test_a_server_of_two_ranks_is_lost_as_one() -> None:
    topology = {"kind": "ai_zone", "racks": 3, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 1}
    left = times_ps(ran({"ranks": [0, 1, 4, 5]}, topology=topology))[0]
    found = times_ps(ran({"ranks": 6, "recover": {}}, host_lost(1), topology=topology))
    assert found[2:] == [left] * 3


def test_the_answer_depends_neither_on_parts_nor_on_a_snapshot() -> None:
    brief: dict[str, object] = {}
    whole = SpreadRun(plan_of("recover", 1, brief))
    whole.start()
    assert whole.run() in ENDINGS
    for parts, at_ps in ((2, 500 * US), (3, 1_500 * US)):
        first = SpreadRun(plan_of("recover", parts, brief))
        first.snapshot_at(at_ps)
        first.start()
        assert first.run() in ENDINGS
        assert first.snapshot is not None
        second = SpreadRun(plan_of("recover", parts + 1, brief), seed=2)
        second.resume(first.snapshot)
        assert second.run() in ENDINGS
        assert (first.digest(), second.digest()) == (whole.digest(), whole.digest()), at_ps


@pytest.mark.parametrize(
    ("job", "more", "reason"),
    [
        ({"recover": {"spares": [4]}}, {}, "there is no rank 4 among 4"),
        ({"recover": {"spares": [2, 3]}}, {}, "leaves fewer than 3 of 4 ranks to begin"),
        (
            {"recover": {}, "ranks": 2},
            {},
            r"jobs\[0\].recover: too few to lose one of 2; accepted: a job of at least 3",
        ),
        ({"recover": {}, "shrink": [2]}, {}, "`shrink` names who may be lost"),
        (
            {"recover": {}, "workload": {"kind": "permutation", "size": "1KiB"}},
            {},
            "nobody says what is left of permutation without a rank",
        ),
        ({"recover": {}}, {"payload": "real"}, "another result than all have"),
        ({"recover": {}}, {"ncclx": {"watchdog": "auto"}}, "nobody says how long reports may take"),
    ],
)
def test_what_cannot_go_on_is_refused(job: dict[str, Any], more: dict[str, Any], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        ran(job, **more)
