"""Does init take what its closed form says, and is who never comes named?

A message on the management network takes 100 us and 64 B at 10G, 51.2 ns. A request is two operations.
"""

import math
from typing import Any

import pytest

from actors.control.store import Meeting, Store
from emu.api import run
from tests.scenario.plain import plain

US = 10**6
FLIGHT_PS = 100 * US + 51_200


def given(ranks: int, init: dict[str, Any], **more: Any) -> dict[str, Any]:
    workload = {"kind": "collective", "op": "all_reduce", "sizes": ("4KiB",), "iterations": 2}
    return plain(
        {
            "name": "init",
            "topology": {"kind": "star", "hosts": ranks},
            "ncclx": {"init": init, **more.pop("ncclx", {})},
            "run": {"sample_every": "10ms"},
            "jobs": ({"name": "bench", "workload": workload, **more.pop("job", {})},),
            **more,
        }
    )


def init_ps(ranks: int, **init: Any) -> int:
    result = run(given(ranks, init), local=True)
    assert result.summary.jobs["bench"].status == "success"
    found = result.summary.jobs["bench"].init
    assert found is not None
    assert found.time_ps is not None
    return found.time_ps


@pytest.mark.parametrize("ranks", [2, 5, 16])
@pytest.mark.parametrize(("store", "lanes"), [("serial", 1), ("concurrent", 3), ("concurrent", 8)])
@pytest.mark.parametrize("barriers", ["quadratic", "linear"])
def test_init_takes_its_rounds_times_flights_and_requests(
    ranks: int, store: str, lanes: int, barriers: str
) -> None:
    rounds = 1 + (ranks if barriers == "quadratic" else 1)
    form = rounds * (2 * FLIGHT_PS + math.ceil(ranks / lanes) * 2 * 40 * US)
    assert init_ps(ranks, store=store, lanes=lanes, barriers=barriers, operation="40us") == form


@pytest.mark.soak
@pytest.mark.parametrize(
    ("store", "barriers", "rounds", "lanes"),
    [("serial", "quadratic", 2049, 1), ("concurrent", "quadratic", 2049, 3), ("concurrent", "linear", 2, 3)],
)
def test_2048_ranks_take_it_when_they_are_run(store: str, barriers: str, rounds: int, lanes: int) -> None:
    scenario = given(2, {"store": store, "barriers": barriers})
    scenario["topology"] = {
        "kind": "ai_zone",
        "racks": 32,
        "hosts_per_rack": 8,
        "gpus_per_host": 8,
        "spines": 4,
    }
    scenario["run"] = {"sample_every": "400s", "max_time": "2000s"}
    exchange = {"kind": "collective", "op": "sendrecv", "sizes": ("4KiB",)}
    scenario["jobs"] = ({"name": "bench", "workload": exchange},)
    found = run(scenario, local=True).summary.jobs["bench"].init
    assert found is not None
    assert found.time_ps == rounds * (2 * FLIGHT_PS + math.ceil(2048 / lanes) * 250 * US)


def test_without_a_store_the_first_operation_begins_at_once() -> None:
    result = run(given(2, {}), local=True)
    assert result.summary.jobs["bench"].init is None
    assert result.summary.jobs["bench"].collectives[0].start_ps == 0


def test_init_is_done_once_and_moves_operations_but_does_not_change_them() -> None:
    plain = run(given(4, {}), local=True).summary.jobs["bench"]
    later = run(given(4, {"store": "serial"}), local=True).summary.jobs["bench"]
    assert later.init is not None
    assert later.init.end_ps is not None
    for one, other in zip(plain.collectives, later.collectives, strict=True):
        assert other.start_ps == (one.start_ps or 0) + later.init.end_ps
        assert other.algbw == one.algbw


def test_two_jobs_share_the_store() -> None:
    scenario = given(4, {"store": "serial", "barriers": "linear", "operation": "100us"})
    workload = scenario["jobs"][0]["workload"]
    scenario["jobs"] = [
        {"name": "one", "ranks": [0, 1], "workload": workload},
        {"name": "other", "ranks": [2, 3], "workload": workload},
    ]
    jobs = run(scenario, local=True).summary.jobs
    # A request takes 200 us. The first job's second round comes while the other's first is served, until
    # 800 us after the first request came, and the other's second while that is.
    times = [job.init.time_ps for job in jobs.values() if job.init is not None]
    assert times == [2 * FLIGHT_PS + 1200 * US, 2 * FLIGHT_PS + 1600 * US]


def test_a_rank_that_never_comes_is_named_when_the_run_stalls() -> None:
    result = run(given(4, {"store": "serial"}, job={"absent": [2]}), local=True)
    assert result.exit_status == 3
    assert "rank 2 did not come to round 1 of its init" in result.outcome.message


def test_a_rank_that_never_comes_is_named_when_the_watchdog_ends_the_job() -> None:
    scenario = given(4, {"store": "serial"}, job={"absent": [2]}, ncclx={"watchdog": "5ms"})
    result = run(scenario, local=True)
    job = result.summary.jobs["bench"]
    assert result.exit_status == 3
    assert job.status == "timed_out"
    assert job.suspects == ["rank 2 never came to the store (round 1 of 5 of the init)"]


def test_training_meets_at_the_store_too() -> None:
    training = {
        "kind": "training", "model": "llama3-8b", "layers": 1, "sequence": 128, "scale": "1/512",
        "tp": 2, "cp": 1, "pp": 1, "dp": 1, "micro_batches": 1,
    }  # fmt: skip
    scenario = given(2, {"store": "serial"}, job={"workload": training})
    job = run(scenario, local=True).summary.jobs["bench"]
    assert job.status == "success"
    assert job.init is not None
    assert job.init.time_ps == 3 * (2 * FLIGHT_PS + 2 * 250 * US)


def test_a_store_serves_as_many_as_it_has_lanes_in_the_order_in_which_they_came() -> None:
    store = Store(2, 10, [Meeting(0, 2, 1), Meeting(1, 1, 1)])
    assert [store.ask(0, 1, 5), store.ask(1, 0, 6), store.ask(0, 0, 7)] == [0, 1, -1]
    met = store.served(1)
    assert met is not None
    assert (met.job, met.round, store.serving) == (1, 1, [0, 0])
    assert store.served(0) is None
    assert store.rows() == [[0, 5, -1, 0, 1], [1, 6, -1, 1, 1, 0]]


def test_only_ranks_that_there_are_may_ask() -> None:
    store = Store(1, 10, [Meeting(0, 2, 1)])
    assert store.admits(0, 1)
    assert not store.admits(0, 2)
    assert not store.admits(0, -1)
    assert not store.admits(1, 0)
