"""Is whoever holds a collective up named within the watchdog, and do flight recorders show it too?"""

import ast
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from actors.ncclx.rank.flight_records import Recorder
from emu import api
from emu.base.errors import ScenarioError
from tests.ncclx.toy import US, Toy, collective, scenario
from tests.scenario.plain import plain

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
    result = api.run(name, overrides=overrides, local=True, out=out / "run", diagnose=False)
    traces = {}
    for path in (out / "run" / "flight_recorder" / "train").glob("*.json"):
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


KNOWN_TO_PYTORCH = {
    "all_reduce",
    "_all_gather_base",
    "_reduce_scatter_base",
    "all_to_all",
    "all_reduce_barrier",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send",
    "recv",
    "coalesced",
}
"""Of the names that its reader takes, those that are written here."""


def read_as_pytorch_does(directory: Path) -> dict[int, list[dict[str, Any]]]:
    """What `read_dump` of PyTorch's reader finds in a directory, and its `Op` in each entry, by rank."""
    found = {}
    for path in directory.iterdir():
        rank = int(path.name[len("nccl_trace_rank_") :])
        dump = pickle.loads(path.read_bytes())
        assert dump["version"] == "2.10"
        for entry in dump["entries"]:
            members = sorted(ast.literal_eval(dump["pg_config"][entry["process_group"][0]]["ranks"]))
            library, name = entry["profiling_name"].split(":")
            kind, *pair = name.split(" ")
            assert library == "nccl"
            assert kind in KNOWN_TO_PYTORCH
            assert len(pair) == (kind in ("send", "recv"))
            if pair:
                mine, other = (int(place) for place in re.split("->|<-", pair[0]))
                assert members[mine] == rank
                entry["peer"] = members[other]
        found[rank] = dump["entries"]
    return found


def test_pytorch_s_reader_finds_the_dumps_and_both_ends_of_every_transfer(tmp_path: Path) -> None:
    _, traces = ran("training_hangs", tmp_path)
    read = read_as_pytorch_does(tmp_path / "run" / "flight_recorder" / "train" / "pickle")
    assert {rank: len(entries) for rank, entries in read.items()} == {
        rank: len(trace["entries"]) for rank, trace in traces.items()
    }
    # Tensor parallelism is in pairs, the pipeline's next stage two ranks on.
    peers = {(rank, one["peer"]) for rank, line in read.items() for one in line if "peer" in one}
    assert {(0, 2), (2, 0)} <= peers
    assert {abs(rank - peer) for rank, peer in peers} == {2}


def test_a_sendrecv_is_a_send_and_a_receive_that_are_coalesced(tmp_path: Path) -> None:
    workload = {"kind": "collective", "op": "sendrecv", "sizes": ["64KiB"], "iterations": 2}
    ran("never_joins", tmp_path, **{"jobs[0].workload": workload, "jobs[0].absent": [5]})
    read = read_as_pytorch_does(tmp_path / "run" / "flight_recorder" / "train" / "pickle")
    assert read[5] == []
    assert [(one["profiling_name"], one["p2p_seq_id"], one["record_id"]) for one in read[7]] == [
        ("nccl:send 7->0", 1, 0),
        ("nccl:recv 7<-6", 1, 1),
        ("nccl:coalesced", 1, 2),
    ]


def test_a_job_that_ends_well_leaves_no_dumps(tmp_path: Path) -> None:
    result = api.run("tiny_all_reduce", local=True, out=tmp_path / "run", diagnose=False)
    assert not (tmp_path / "run" / "flight_recorder").exists()
    assert result.summary.jobs["ring"].failures == []
    assert result.summary.jobs["ring"].suspects == []


def test_a_watchdog_that_nothing_trips_changes_nothing_but_is_reported() -> None:
    jobs = [collective("all_gather", "64KiB", iterations=3)]
    free = Toy(scenario(jobs)).run()
    watched = Toy(scenario(jobs, ncclx={"watchdog": "1s"})).run()
    assert watched.controller.operations == free.controller.operations
    given = {"ncclx.watchdog": "1s", "expect": []}
    summary = api.run("tiny_all_reduce", overrides=given, local=True, diagnose=False).summary
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
        flights = program.calling.recorder.flights
        assert [row[2] for row in flights] == [17, 18, 19]
        assert all(row[5] < row[6] for row in flights)


def test_a_rank_that_hangs_in_a_training_step_is_named_within_the_watchdog(tmp_path: Path) -> None:
    result, traces = ran("training_hangs", tmp_path)
    job = result.summary.jobs["train"]
    assert (result.exit_status, job.status) == (3, "timed_out")
    assert job.suspects[0] == "rank 3 never joined all_gather (operation 0 of tp)"
    assert not any("never joined" in line for line in job.suspects[1:])
    # Rank 2 shares its tensor-parallel group with rank 3, and gets no further.
    assert [(f.communicator, f.waits_for, f.peer) for f in job.failures if f.rank == 2] == [("tp", "data", 3)]
    # The watchdog is 2 ms from the begin of a call; the step begins at 0 and ends a management delay later.
    assert all(2_000 * US <= failure.at_ps <= 2_200 * US for failure in job.failures)
    assert traces[3]["entries"] == []
    assert set(traces) == set(range(8))
    entry = traces[2]["entries"][-1]
    assert (entry["process_group"][1], entry["state"]) == ("tp", "started")
    group = entry["process_group"][0]
    assert traces[3]["pg_config"][group]["ranks"] == traces[2]["pg_config"][group]["ranks"] == "[2, 3]"
    assert traces[2]["pg_status"][group]["last_enqueued_collective"] == 1
    assert traces[3]["pg_status"][group]["last_enqueued_collective"] == -1
    sends = [one for one in traces[0]["entries"] if one["is_p2p"]]
    assert [(one["profiling_name"], one["p2p_seq_id"]) for one in sends] == [
        ("nccl:recv 0<-1", 1),
        ("nccl:send 0->1", 1),
        ("nccl:send 0->1", 2),
    ]


def test_a_mismatch_in_a_program_is_named_from_what_the_ranks_announced(tmp_path: Path) -> None:
    result, traces = ran("program_mismatch", tmp_path)
    assert result.exit_status == 3
    assert result.summary.jobs["train"].suspects[0] == (
        "rank 2 called all_reduce (operation 1 of data) with 262144 B, the 2 others with 1048576 B"
    )
    sizes = {
        rank: [one["input_sizes"] for one in trace["entries"] if one["process_group"][1] == "data"]
        for rank, trace in traces.items()
    }
    assert sizes[0] == [[[65_536]], [[262_144]]]
    assert sizes[2] == [[[65_536]], [[65_536]]]


PROGRAM = {"kind": "program", "communicators": [{"name": "odd", "split": [0, 1, 0, 1]}]}


def suspects(*operations: dict[str, Any], watchdog: str = "1ms") -> list[str]:
    """Of a program of four ranks that hangs."""
    given = plain(
        {
            "name": "hangs",
            "topology": {"kind": "star", "hosts": 4},
            "jobs": [{"name": "train", "workload": {**PROGRAM, "operations": list(operations)}}],
            "ncclx": {"watchdog": watchdog, "buffsize": "64KiB"},
        }
    )
    result = api.run(given, local=True, diagnose=False)
    assert result.exit_status == 3
    return result.summary.jobs["train"].suspects


def test_another_operation_and_a_missing_call_are_named() -> None:
    four = {"do": "all_gather", "size": "1MiB", "ranks": [0, 1, 2]}
    other = {"do": "all_reduce", "size": "1MiB", "ranks": [3]}
    assert suspects(four, other)[0] == (
        "rank 3 called all_reduce (operation 0 of world) with 1048576 B, "
        "the 3 others all_gather with 1048576 B"
    )
    long = {"do": "compute", "time": "50ms", "ranks": [2]}
    assert suspects({"do": "barrier"}, long, {"do": "barrier"})[0] == (
        "rank 2 never joined barrier (operation 1 of world)"
    )
    assert suspects({"do": "recv", "ranks": [1], "peer": 0, "size": "1KiB"})[0] == (
        "rank 0 never joined send (operation 0 of world, rank 0 to rank 1)"
    )


def test_ranks_that_wait_for_one_another_are_named() -> None:
    first = {"do": "all_reduce", "size": "64KiB", "ranks": [0, 1]}
    inner = {"do": "all_reduce", "size": "64KiB", "on": "odd"}
    last = {"do": "all_reduce", "size": "64KiB", "ranks": [2, 3]}
    world, odd = "all_reduce (operation 0 of world)", "all_reduce (operation 0 of odd)"
    found = suspects(first, inner, last)
    assert f"rank 2 is in {odd} while others wait for it in {world}" in found
    assert f"rank 0 is in {world} while others wait for it in {odd}" in found


def test_a_recorder_forgets_what_is_over_and_keeps_the_counts() -> None:
    recorder = Recorder(3, [7, 9])
    recorder.begin(1, 0, 64, 10)
    for at in range(5):
        recorder.begin(0, 1, at, 20 + at)
        recorder.end(0, at, 20 + at)
    assert [row[1:4] for row in recorder.flights] == [[1, 0, 0], [0, 3, 1], [0, 4, 1]]
    assert recorder.called_rows(2, 5) == [[2, 5, 7, 5, 5], [2, 5, 9, 1, 0]]
    again = Recorder(3, [7, 9])
    again.load(recorder.save())
    assert again.save() == recorder.save()


def test_a_watched_program_that_does_not_hang_is_the_same_in_parts() -> None:
    runs = []
    for watchdog, parts in (("100us", 1), ("100us", 3), ("1s", 1)):
        given: dict[str, Any] = {"ncclx.watchdog": watchdog, "expect": []}
        runs.append(api.run("program", overrides=given, local=True, parts=parts, diagnose=False))
    assert runs[0].summary.digest == runs[1].summary.digest
    assert {run.summary.jobs["train"].end_ps for run in runs} == {runs[2].summary.jobs["train"].end_ps}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"jobs[0].absent": [8]}, "jobs[0].absent[0]"),
        ({"jobs[0].mismatch": {"rank": 9, "size": "1KiB"}}, "jobs[0].mismatch.rank"),
    ],
)
def test_a_rank_that_the_job_does_not_have_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        api.run("never_joins", overrides=changes, local=True, diagnose=False)
    assert [problem.key for problem in caught.value.problems] == [key]


@pytest.mark.parametrize(
    ("name", "changes", "problem"),
    [
        ("training_hangs", {"jobs[0].absent": [8]}, "jobs[0].absent[0]: there is no rank 8 among 8"),
        ("program", {"jobs[0].absent": [4]}, "jobs[0].absent[0]: there is no rank 4 among 4"),
        (
            "program",
            {"jobs[0].mismatch": {"rank": 1, "size": "1KiB"}},
            "jobs[0].mismatch: only a benchmark has one size to be mistaken in",
        ),
        ("permutation", {"jobs[0].absent": [0]}, "jobs[0].absent: flows are posted by nobody"),
    ],
)
def test_what_would_go_wrong_in_no_job_of_its_kind_is_refused(
    name: str, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        api.prepare(name, changes)
    assert problem in str(caught.value)
