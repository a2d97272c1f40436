"""Is whoever holds a collective up named within the watchdog, and do flight recorders show it too?"""

import json
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.errors import ScenarioError
from tests.ncclx.toy import US, Toy, collective, scenario

SCENARIOS = Path(__file__).parents[2] / "scenarios"
ENTRY_KEYS = {
    "frames",
    "record_id",
    "pg_id",
    "process_group",
    "collective_seq_id",
    "p2p_seq_id",
    "op_id",
    "profiling_name",
    "time_created_ns",
    "input_sizes",
    "input_dtypes",
    "output_sizes",
    "output_dtypes",
    "state",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
    "retired",
    "timeout_ms",
    "is_p2p",
}


def ran(name: str, out: Path, **changes: Any) -> tuple[api.Result, dict[int, dict[str, Any]]]:
    """A run without expectations, and its flight recorders by rank."""
    overrides = {"expect": [], **changes}
    result = api.run(SCENARIOS / f"{name}.yaml", overrides=overrides, local=True, out=out / "run")
    traces = {}
    for path in (out / "run" / "flight_recorder" / "train").iterdir():
        trace = json.loads(path.read_text())
        assert path.name == f"nccl_trace_rank_{trace['rank']}.json"
        traces[trace["rank"]] = trace
    return result, traces


def behind(traces: dict[int, dict[str, Any]]) -> list[int]:
    """The ranks whose last operation is not the last of all: what an analyser of the dumps finds first."""
    last = {
        rank: max((e["collective_seq_id"] for e in t["entries"]), default=0) for rank, t in traces.items()
    }
    return sorted(rank for rank, at in last.items() if at < max(last.values()))


def test_a_rank_that_never_joins_is_named_within_the_watchdog(tmp_path: Path) -> None:
    result, traces = ran("never_joins", tmp_path)
    job = result.summary.jobs["train"]
    assert result.exit_status == 3
    assert job.status == "timed_out"
    assert job.suspects[0] == "rank 5 never joined all_reduce (operation 0)"
    assert {failure.rank for failure in job.failures} == {0, 1, 2, 3, 4, 6, 7}
    # All began at 0; the watchdog is 2 ms.
    assert {failure.at_ps for failure in job.failures} == {2_000 * US}
    waited = {failure.rank: failure for failure in job.failures}
    assert (waited[6].waits_for, waited[6].peer, waited[6].nic) == ("data", 5, "nic-6-0")
    assert behind(traces) == [5]
    assert set(traces) == set(range(8))


def test_a_mismatched_size_is_named_and_in_the_dumps(tmp_path: Path) -> None:
    result, traces = ran("mismatched_size", tmp_path)
    assert result.exit_status == 3
    assert (
        result.summary.jobs["train"]
        .suspects[0]
        .startswith("rank 2 called all_reduce (operation 0) with 262144 B")
    )
    sizes = {rank: trace["entries"][-1]["input_sizes"] for rank, trace in traces.items()}
    assert sizes.pop(2) == [[65_536]]
    assert list(sizes.values()) == [[[262_144]]] * 7


def test_a_lost_peer_is_named_with_queue_pair_and_port_before_the_watchdog(tmp_path: Path) -> None:
    result, traces = ran("lost_peer", tmp_path)
    job = result.summary.jobs["train"]
    assert result.exit_status == 3
    assert job.status == "retry_exceeded"
    named = {(failure.rank, failure.peer, failure.nic) for failure in job.failures}
    # Rank 2 sends to rank 3, and rank 0 clears rank 3 to send.
    assert (2, 3, "nic-2-0") in named
    assert all(failure.qpn is not None and failure.at_ps < 5_000 * US for failure in job.failures)
    assert {trace["entries"][-1]["state"] for trace in traces.values()} == {"started"}


def test_dumps_have_the_keys_that_pytorch_s_readers_know(tmp_path: Path) -> None:
    _, traces = ran("never_joins", tmp_path, **{"jobs[0].absent": [], "ncclx.watchdog": "15us"})
    for rank, trace in traces.items():
        assert trace["version"] == "2.10"
        assert trace["pg_config"]["0"]["ranks"] == "[0, 1, 2, 3, 4, 5, 6, 7]"
        (entry,) = trace["entries"]
        assert set(entry) == ENTRY_KEYS, rank
        assert entry["profiling_name"] == "nccl:all_reduce"
        assert (entry["state"], entry["retired"]) == ("started", False)
        assert entry["time_discovered_completed_ns"] is None


def test_a_job_that_ends_well_leaves_no_dumps(tmp_path: Path) -> None:
    result = api.run(SCENARIOS / "tiny_all_reduce.yaml", local=True, out=tmp_path / "run")
    assert not (tmp_path / "run" / "flight_recorder").exists()
    assert result.summary.jobs["ring"].failures == []
    assert result.summary.jobs["ring"].suspects == []


def test_a_watchdog_that_nothing_trips_changes_nothing_but_is_told() -> None:
    jobs = [collective("all_gather", "64KiB", iterations=3)]
    free = Toy(scenario(jobs)).run()
    watched = Toy(scenario(jobs, ncclx={"watchdog": "1s"})).run()
    assert watched.controller.operations == free.controller.operations
    given = {"ncclx.watchdog": "1s", "expect": []}
    summary = api.run(SCENARIOS / "tiny_all_reduce.yaml", overrides=given, local=True).summary
    assert [one.reason for one in summary.never_fired if one.feature == "ncclx.watchdog"] == [
        "every operation was over in time"
    ]


def test_each_operation_has_the_whole_of_the_watchdog() -> None:
    jobs = [collective("all_gather", "64KiB", iterations=20)]
    free = Toy(scenario(jobs)).run()
    longest_ps = max(row[3] - row[2] for row in free.controller.operations)
    watchdog = {"watchdog": f"{longest_ps + 5 * US}ps"}
    toy = Toy(scenario(jobs, ncclx=watchdog)).run()
    assert [row[4] for row in toy.controller.operations] == [0] * 20


def test_the_recorder_keeps_the_last_operations_only() -> None:
    jobs = [collective("all_gather", "64KiB", iterations=20)]
    toy = Toy(scenario(jobs, ncclx={"flight_recorder": 3})).run()
    for program in toy.ranks():
        flights = program.recorder.flights
        assert [row[0] for row in flights] == [17, 18, 19]
        assert all(begun < end for _, begun, end in flights)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"jobs[0].absent": [8]}, "jobs[0].absent[0]"),
        ({"jobs[0].mismatch": {"rank": 9, "size": "1KiB"}}, "jobs[0].mismatch.rank"),
    ],
)
def test_a_rank_that_the_job_does_not_have_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        api.run(SCENARIOS / "never_joins.yaml", overrides=changes, local=True)
    assert [problem.key for problem in caught.value.problems] == [key]
