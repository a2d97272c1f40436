"""Does an operator notice what breaks when its rules say, and is the job back when the parts add up?

A management delay is 100 us and 64 B at 10G take 51.2 ns. The operator looks two delays after each beat.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from actors.control.operator import replaced
from emu import api
from emu.base.errors import ScenarioError, UsageError
from emu.base.units import about_time
from emu.counts.collected import Changed
from emu.devices.drawing import blueprint_of
from emu.devices.pricing.estimate import estimate
from emu.engine.blueprint import spread
from emu.engine.live.control_socket import ask
from emu.engine.outcome import Ending
from emu.results.summary import OperatorResult
from emu.run_directory.comparison import load_summary
from emu.run_directory.run_directory import RunDirectory
from emu.stored_run import stored_run
from emu.summary.recoveries import operator_lines
from emu.views.reports.page import operator_row
from tests.diagnosis.live_runs import injected
from tests.engine.patience import PATIENCE_S, until
from tests.engine.spread_runs import SpreadRun
from tests.scenario.plain import plain

MS = 10**9
FLIGHT_PS = 100 * 10**6 + 51_200
LOOK_PS = 200 * 10**6
BEAT = 100 * MS
DEADLINE = 50 * MS
LAUNCH = 300 * MS
SIZE = 128 * 1024
DISK_BPS = 2 * 50_000_000


def given(*faults: dict[str, Any], job: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Two hosts with a job, others to spare, two GPUs each; a step takes 90 ms and little more."""
    operations = ({"do": "compute", "time": "90ms"}, {"do": "all_reduce", "size": "16KiB"})
    program = {"kind": "program", "steps": 7, "operations": operations}
    operator = {
        "job": "train",
        "spare_hosts": 1,
        "heartbeat": {"every": "100ms", "missed": 2, "silent": 3},
        "self_check": {"size": "4KiB", "deadline": "50ms"},
        "launch": "300ms",
        "checkpoint": {"every": 2, "size": "128KiB"},
    }
    return plain(
        {
            "name": "tended",
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 1},
            "frontend": {
                "enabled": True,
                "fsws": 1,
                "storage": {"servers": 2, "disk": "50M"},
            },
            "ncclx": {"channels": 1, "init": {"store": "serial"}},
            "run": {"sample_every": "1s", "max_time": "9s"},
            "operator": operator | more.pop("operator", {}),
            "jobs": ({"name": "train", "ranks": 4, "workload": program, **(job or {})},),
            "faults": faults,
            **more,
        }
    )


def tended(*faults: dict[str, Any], **more: Any) -> OperatorResult:
    """What the operator did; where time went adds up to all there was."""
    summary = api.run(given(*faults, **more), local=True, diagnose=False).summary
    found = summary.operator
    assert found is not None
    assert sum(found.spent.model_dump().values()) == found.end_ps - found.begun_ps
    assert min(found.spent.model_dump().values()) >= 0
    assert found.goodput == pytest.approx(found.spent.kept_ps / (found.end_ps - found.begun_ps), abs=1e-6)
    if found.ending == "done":
        assert summary.jobs["train"].status == "success"
        assert found.steps == 7
    return found


LARGER = {"kind": "ai_zone", "racks": 3, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 1}
GPU_LOST = {"kind": "gpu_lost", "at": "410ms", "target": "gpu-1-0"}


@cache
def after_a_lost_gpu() -> OperatorResult:
    return tended(GPU_LOST)


def test_without_trouble_a_job_that_is_tended_loses_only_checkpoints_and_barriers() -> None:
    found = tended()
    assert (found.ending, found.restarts, found.left_out) == ("done", [], 0)
    assert [one.step for one in found.checkpoints] == [2, 4, 6]
    assert found.spent.kept_ps + found.spent.between_ps == found.end_ps


def test_an_estimate_counts_the_checkpoints_and_no_incarnation_that_need_not_be() -> None:
    prepared = api.prepare(given())
    counted = estimate(prepared.scenario, prepared.topology, prepared.plan).hops
    ran = api.run(given(), local=True, diagnose=False).summary.engine.packet_hops
    assert counted == pytest.approx(ran, rel=0.05)


def test_a_lost_gpu_is_noticed_at_the_look_after_the_next_beat() -> None:
    (one,) = after_a_lost_gpu().restarts
    assert (one.rule, one.host) == ("failed", "host-1")
    assert one.noticed_ps == ceil(410 * MS / BEAT) * BEAT + LOOK_PS
    at = about_time(ceil(410 * MS / BEAT) * BEAT + LOOK_PS)
    assert operator_lines(after_a_lost_gpu())[0].startswith(
        f"# train: failed on host-1, noticed at {at}: stop "
    )


def _is_drawn(found: OperatorResult) -> None:
    """The row of the report: its bars add up to where time went, and end where the job goes on."""
    ((_, bars),) = (one.values() for one in operator_row(found, found.end_ps))
    spent = found.spent
    for part, took_ps in (
        ("noticing", spent.noticing_ps),
        ("stop", spent.stopping_ps),
        ("self-check", spent.self_check_ps),
        ("launch", spent.launch_ps),
        ("init", spent.init_ps),
        ("load", spent.load_ps),
    ):
        assert sum(end - begin for begin, end, words, *_ in bars if words.startswith(f"{part} (")) == took_ps
    assert {one.resumed_ps for one in found.restarts} <= {end for _, end, *_ in bars}
    assert [(begin, end) for begin, end, words, *_ in bars if words.startswith("checkpoint")] == [
        (one.begun_ps, one.whole_ps or found.end_ps) for one in found.checkpoints
    ]


def test_a_report_draws_what_an_operator_did() -> None:
    _is_drawn(after_a_lost_gpu())
    assert operator_row(None, 0) == []


def test_parts_of_a_recovery_take_what_their_closed_forms_say() -> None:
    (one,) = after_a_lost_gpu().restarts
    ranks, rounds = 4, 1 + 4
    assert one.took.stop_ps == LOOK_PS
    assert one.took.launch_ps == LAUNCH
    # The last round ends at the store; the answers are on their way when the load begins.
    assert one.took.init_ps == pytest.approx(
        rounds * (2 * FLIGHT_PS + ranks * 250 * 10**6) - FLIGHT_PS, abs=FLIGHT_PS
    )
    assert one.took.load_ps == pytest.approx(ranks * SIZE * 8 * 10**12 / DISK_BPS, rel=0.05)
    failed = [check for check in one.checks if check.test in ("all_to_all", "all_reduce")]
    assert [check.took_ps for check in failed] == [DEADLINE, DEADLINE]
    assert one.took.whole_ps == sum(
        (one.took.stop_ps, one.took.self_check_ps, LAUNCH, one.took.init_ps, one.took.load_ps)
    )


def test_the_suite_finds_the_host_a_spare_one_takes_its_place_and_lost_steps_are_done_again() -> None:
    found = after_a_lost_gpu()
    (one,) = found.restarts
    assert [(check.test, check.failed) for check in one.checks] == [
        ("loopback", 0),
        ("nic_to_nic", 0),
        ("all_to_all", 1),
        ("all_reduce", 0),
    ]
    assert (one.evicted, one.placed) == (["host-1"], ["host-2 for host-1"])
    whole = [each.step for each in found.checkpoints if (each.whole_ps or found.end_ps) < one.noticed_ps]
    done = 4  # of 90 ms and a little, before 410 ms
    assert (one.from_step, one.lost_steps) == (whole[-1], done - whole[-1])
    assert found.spent.redone_ps == pytest.approx((done - whole[-1]) * 90 * MS, rel=0.01)


def test_a_host_that_says_that_its_gpu_is_gone_is_to_blame_for_a_test_of_several() -> None:
    # one GPU each under one switch: nothing but the all_reduce of all four asks for it
    found = tended(
        GPU_LOST, topology={"kind": "star", "hosts": 4}, job={"ranks": 2}, operator={"spare_hosts": 2}
    )
    (one,) = found.restarts
    assert [(check.test, check.failed) for check in one.checks] == [("loopback", 0), ("all_reduce", 1)]
    assert (one.evicted, one.placed) == (["host-1"], ["host-2 for host-1"])


def test_a_lost_host_is_noticed_when_it_has_missed_its_beats() -> None:
    (one,) = tended({"kind": "host_lost", "at": "410ms", "target": "host-0"}).restarts
    assert (one.rule, one.host) == ("missed", "host-0")
    assert one.noticed_ps == (410 * MS // BEAT + 2) * BEAT + LOOK_PS
    assert [check.failed for check in one.checks] == [1, 1, 1, 0]
    assert one.evicted == ["host-0"]


def test_a_hang_is_noticed_when_no_nic_was_handed_a_byte_for_so_many_beats() -> None:
    (one,) = tended({"kind": "gpu_hung", "at": "410ms", "target": "gpu-0-1"}).restarts
    assert (one.rule, one.host, one.evicted) == ("silent", "", ["host-0"])
    assert 410 * MS + 2 * BEAT < one.noticed_ps <= 410 * MS + 4 * BEAT + LOOK_PS


def test_loopback_finds_a_nic_without_a_link() -> None:
    (one,) = tended({"kind": "nic_down", "at": "410ms", "target": "nic-1-1"}).restarts
    assert [check.failed for check in one.checks[:2]] == [1, 1]
    assert one.evicted == ["host-1"]


def test_what_was_mended_meanwhile_is_restarted_on_the_same_hosts() -> None:
    (one,) = tended({"kind": "gpu_hung", "at": "410ms", "for": "390ms", "target": "gpu-0-1"}).restarts
    assert (one.evicted, one.placed) == ([], [])
    assert [check.failed for check in one.checks] == [0, 0, 0, 0]


def test_a_failure_during_recovery_begins_it_again() -> None:
    again = {"kind": "host_lost", "at": "700ms", "target": "host-0"}
    found = tended(GPU_LOST, again, operator={"spare_hosts": 2, "restarts": 2})
    first, second = found.restarts
    assert first.resumed_ps is None
    assert (second.rule, second.evicted) == ("missed", ["host-0"])
    assert found.ending == "done"


@pytest.mark.parametrize(
    ("operator", "reason"), [({"spare_hosts": 0}, "no_spare"), ({"restarts": 0}, "no_restart")]
)
def test_where_nothing_is_left_the_operator_gives_up_and_the_job_has_failed(
    operator: dict[str, Any], reason: str
) -> None:
    result = api.run(given(GPU_LOST, operator=operator), local=True, diagnose=False)
    found = result.summary.operator
    assert found is not None
    assert (found.ending, found.reason) == ("gave_up", reason)
    assert result.exit_status == 3


def test_without_checkpoints_a_job_begins_again() -> None:
    (one,) = tended(GPU_LOST, operator={"checkpoint": None}).restarts
    assert (one.from_step, one.lost_steps) == (0, 4)


def test_a_benchmark_and_a_training_step_can_be_tended() -> None:
    step = {
        "kind": "training",
        "model": "llama3-8b",
        "layers": 1,
        "tp": 2,
        "dp": 2,
        "scale": "1/2000",
        "steps": 4,
    }
    for workload in (step, {"kind": "collective", "op": "all_gather", "sizes": ("4KiB",), "iterations": 4}):
        summary = api.run(given(job={"workload": workload}), local=True, diagnose=False).summary
        assert summary.operator is not None
        assert (summary.operator.ending, summary.operator.steps) == ("done", 4)


def test_a_run_with_an_operator_goes_on_alike_from_a_snapshot_and_over_workers() -> None:
    prepared = api.prepare(given(GPU_LOST))
    blueprint = blueprint_of(prepared.scenario, prepared.topology)
    digests = []
    for at_ps in (0, 450 * MS, 560 * MS, 1100 * MS):
        run = SpreadRun(spread(blueprint, 1))
        run.start()
        if at_ps:
            run.snapshot_at(at_ps)
            run.run(lambda run=run: run.snapshot is None)  # type: ignore[misc]
            assert run.snapshot is not None
            again = SpreadRun(spread(blueprint, 3), seed=3)
            again.resume(run.snapshot)
            run = again
        assert run.run() is Ending.FINISHED
        digests.append(run.digest())
    assert len(set(digests)) == 1


def test_a_spare_host_of_the_same_rack_is_taken_first() -> None:
    racks = {1: 0, 2: 1, 7: 0, 8: 1}
    assert replaced((1, 2), (2,), (7, 8), racks) == (1, 8)
    assert replaced((1, 2), (1, 8), (7, 8), racks) == (7, 2)
    assert replaced((1, 2), (1, 2), (7, 8), racks) == (7, 8)
    assert replaced((1, 2), (1, 2, 7), (7, 8), racks) is None


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        (
            {"operator": {"spare_hosts": 3}},
            "operator.spare_hosts",
            "3 spare hosts, and 2 hosts are without a job",
        ),
        ({"operator": {"job": "trian"}}, "operator.job", "there is no job 'trian'"),
        ({"frontend": {"enabled": False}}, "operator.checkpoint", "there is no storage to save to"),
        ({"operator": {"heartbeat": {"every": "900us"}}}, "operator.heartbeat.every", "before the last one"),
        (
            {"operator": {"spare_hosts": 2, "restarts": 8}, "topology": LARGER, "job": {"ranks": 8}},
            "operator.restarts",
            "more than 64 placements",
        ),
        (
            {"operator": {"checkpoint": {"every": 3, "size": "512GiB"}}},
            "operator.checkpoint.size",
            "requests of checkpoints",
        ),
        ({"host": {"memory": "200KiB"}}, "operator.checkpoint.size", "more than its memory"),
        ({"run": {"repeat": True}}, "run.repeat", "ends with its last step"),
        ({"job": {"submitted": True}}, "operator.job", "the operator decides"),
        ({"job": {"recover": {}}}, "operator.job", "train has `recover`"),
        (
            {"operator": {"heartbeat": {"rows": 4, "every": "1s"}, "checkpoint": None}},
            "operator.heartbeat.rows",
            "there are none",
        ),
    ],
)
def test_what_an_operator_cannot_do_is_refused_in_one_line(
    more: dict[str, Any], key: str, reason: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        api.prepare(given(**more))
    (problem,) = refused.value.problems
    assert problem.key == key
    assert reason in problem.reason


def test_a_host_whose_gpu_remaps_rows_goes_after_a_checkpoint_and_nothing_is_done_again() -> None:
    remapped = {"kind": "row_remap", "at": "110ms", "target": "gpu-1-0", "rows": 4}
    rules = {"every": "100ms", "rows": 4}
    found = tended(remapped, {**GPU_LOST, "at": "700ms"}, operator={"heartbeat": rules})
    (one,) = found.restarts
    assert (one.rule, one.host, one.alarm_ps) == ("rows", "host-1", 2 * BEAT + LOOK_PS)
    saved = next(each for each in found.checkpoints if each.begun_ps > one.alarm_ps)
    assert one.noticed_ps == saved.whole_ps
    assert (one.from_step, one.lost_steps, one.checks) == (saved.step, 0, [])
    assert (one.placed, found.spent.redone_ps) == (["host-2 for host-1"], 0)
    reported, stopped = about_time(2 * BEAT + LOOK_PS), about_time(saved.whole_ps or 0)
    assert operator_lines(found)[0].startswith(
        f"# train: rows on host-1, noticed at {reported}, stopped after a checkpoint at {stopped}: stop "
    )
    _is_drawn(found)


def test_fewer_rows_than_the_rule_says_are_no_alarm() -> None:
    remapped = {"kind": "row_remap", "at": "110ms", "target": "gpu-1-0", "rows": 3}
    assert not tended(remapped, operator={"heartbeat": {"every": "100ms", "rows": 4}}).restarts


def test_remapped_rows_that_nobody_looks_at_are_refused() -> None:
    with pytest.raises(ScenarioError, match="nobody looks at remapped rows"):
        api.prepare(given({"kind": "row_remap", "at": "110ms", "target": "gpu-1-0"}))


SLOW: dict[str, Any] = {"kind": "gpu_slow", "at": "10ms", "target": "gpu-1-0", "factor": 1.1}
RULES = {"every": "100ms", "missed": 2, "silent": 3}


def watching(**rules: Any) -> dict[str, Any]:
    """An operator with these rules beside the usual ones."""
    return {"heartbeat": RULES | rules}


def test_a_host_that_computes_a_tenth_longer_for_two_steps_goes_after_a_checkpoint() -> None:
    found = tended(SLOW, operator=watching(straggler={"steps": 2}))
    (one,) = found.restarts
    # Two steps of 99 ms and little more are over before the beat of 200 ms, but for what barriers take.
    assert (one.rule, one.host, one.alarm_ps) == ("straggler", "host-1", 3 * BEAT + LOOK_PS)
    assert (one.lost_steps, one.placed, one.checks) == (0, ["host-2 for host-1"], [])
    slow = [each for each in found.checkpoints if each.begun_ps < one.stopped_ps]
    assert one.from_step == slow[-1].step
    assert found.spent.redone_ps == 0


def test_a_straggler_may_be_reported_and_nothing_is_done() -> None:
    found = tended(SLOW, operator=watching(straggler={"steps": 2, "then": "tell"}))
    assert [(one.rule, one.host, one.at_ps) for one in found.reported] == [
        ("straggler", "host-1", 3 * BEAT + LOOK_PS)
    ]
    assert found.restarts == []


@pytest.mark.parametrize("slower_by", ["1/9", "1/2"])
def test_a_host_that_is_slower_by_less_than_the_rule_says_stays(slower_by: str) -> None:
    found = tended(SLOW, operator=watching(straggler={"steps": 2, "slower_by": slower_by}))
    assert (found.restarts, found.reported) == ([], [])


@pytest.mark.parametrize(("slower_by", "reported"), [("1/25", ["host-3"]), ("2/25", [])])
def test_a_straggler_is_compared_with_the_median_of_its_peers(slower_by: str, reported: list[str]) -> None:
    """Host 3 takes 4.8 % longer than the median of the others, and 10 % longer than the quickest."""
    factors = {1: 1.05, 2: 1.05, 3: 1.1}
    slow = [SLOW | {"target": f"gpu-{host}-0", "factor": factor} for host, factor in factors.items()]
    rule = {"steps": 2, "then": "tell", "slower_by": slower_by}
    more: dict[str, Any] = {"topology": LARGER, "job": {"ranks": 8}}
    assert [one.host for one in tended(*slow, operator=watching(straggler=rule), **more).reported] == reported


def test_no_host_is_a_straggler_where_all_are_alike() -> None:
    assert tended(operator=watching(straggler={"steps": 1, "slower_by": "1/1000"})).restarts == []


def test_samples_see_a_stall_within_a_beat_that_heartbeats_do_not() -> None:
    cut = {"kind": "link_down", "at": "170ms", "for": "20ms", "target": "nic-1-1:rtsw-0"}
    found = tended(cut, operator=watching(samples={"every": "1ms", "stalled": "5ms"}))
    assert found.restarts == []
    (reported,) = found.reported
    assert (reported.rule, reported.host, reported.at_ps) == ("stalled", "host-0", 2 * BEAT + LOOK_PS)
    # The queue pair waits for its timer of 4.096 us x 2^14 and tries again: the link was back by then.
    stalled_ps = {one.host: one.longest_stall_ps for one in found.health}
    assert stalled_ps.pop("host-0") == pytest.approx(4_096_000 * 2**14, abs=2 * MS)
    assert stalled_ps == {"host-1": 0, "host-2": 0}
    # A rank's NICs move 3 x 8 KiB in a step, 2 ranks: all of it within a millisecond.
    assert found.health[1].busiest_bps >= 2 * 8192 * 8 * 1000


def test_a_run_whose_health_is_reported_goes_on_alike_from_a_snapshot_and_over_workers() -> None:
    rules = watching(straggler={"steps": 2}, samples={"every": "1ms", "stalled": "5ms"})
    blueprint = blueprint_of(*((one := api.prepare(given(SLOW, operator=rules))).scenario, one.topology))
    whole = SpreadRun(spread(blueprint, 1))
    whole.start()
    whole.snapshot_at(250 * MS)
    whole.run(lambda: whole.snapshot is None)
    assert whole.snapshot is not None
    again = SpreadRun(spread(blueprint, 3), seed=3)
    again.resume(whole.snapshot)
    assert (whole.run(), again.run()) == (Ending.FINISHED, Ending.FINISHED)
    assert again.digest() == whole.digest()


@pytest.mark.parametrize(
    ("rules", "more", "key", "reason"),
    [
        ({"straggler": {"steps": 2}}, {"checkpoint": None}, "straggler", "there are none"),
        ({"straggler": {"steps": 2}}, {"spare_hosts": 0}, "straggler", "there is none"),
        ({"samples": {"every": "100ms"}}, {}, "samples.every", "samples stand between heartbeats"),
        ({"samples": {"every": "1us"}}, {}, "samples.every", "samples stand between heartbeats"),
        ({"samples": {"stalled": "5ms"}}, {}, "samples.stalled", "seen by samples"),
    ],
)
def test_rules_that_nothing_could_follow_are_refused(
    rules: dict[str, Any], more: dict[str, Any], key: str, reason: str
) -> None:
    with pytest.raises(ScenarioError) as refused:
        api.prepare(given(operator=watching(**rules) | more))
    (problem,) = refused.value.problems
    assert problem.key == f"operator.heartbeat.{key}"
    assert reason in problem.reason


def test_the_diagnosis_knows_that_the_operator_stopped_the_job() -> None:
    remapped = {"kind": "row_remap", "at": "110ms", "target": "gpu-1-0", "rows": 4}
    (reported,) = api.run(given(remapped, operator=watching(rows=4)), local=True).summary.diagnosis
    assert (reported.cause, reported.place) == ("restarted", "train")
    assert "by its rule `rows` for host-1" in reported.sentence
    assert any("host-2 for host-1" in line for line in reported.evidence)


def test_a_run_that_breaks_off_after_a_restart_is_diagnosed() -> None:
    """Ranks of the second incarnation, a job that the scenario has not, wait for their checkpoint then."""
    slow = {"enabled": True, "fsws": 1, "storage": {"servers": 2, "disk": "1M"}}
    lost = {"kind": "gpu_lost", "at": "230ms", "target": "gpu-1-0"}
    made = given(lost, frontend=slow, run={"sample_every": "1s", "max_time": "1300ms"})
    summary = api.run(made, local=True).summary
    assert (summary.ending, summary.diagnosis[0].cause) == ("time_limit", "gpu_lost")


class Ender(api.Observer):
    """Ends a run after its first sample, in the middle of a step."""

    def __init__(self, steering: api.Steering) -> None:
        self._steering = steering

    def sampled(self, sample: Changed, mixes: Mapping[int, Sequence[int]]) -> None:
        del sample, mixes
        self._steering.end()


def test_a_live_run_with_an_operator_that_somebody_ended_replays_to_the_same_digest(tmp_path: Path) -> None:
    prepared = api.prepare(given(run={"sample_every": "130ms", "max_time": "9s"}))
    steering = api.Steering(prepared.scenario, prepared.topology)
    with RunDirectory.create("tended", tmp_path / "run") as opened:
        options = api.RunOptions(metrics=False, local=True, steering=steering, progress_every_s=0.0)
        live = api.run_prepared(prepared, options, Ender(steering), opened)
    found = stored_run(tmp_path / "run")
    assert found.end_ps == live.outcome.virtual_ps < 9000 * MS
    assert live.summary.operator is not None
    assert live.summary.operator.ending == "unfinished"
    again = api.run_prepared(prepared, api.RunOptions(metrics=False, local=True, end_ps=found.end_ps))
    assert (again.outcome.ending, again.outcome.digest) == (live.outcome.ending, found.digest)


def test_rows_that_are_remapped_in_a_running_run_are_noticed(tmp_path: Path) -> None:
    """In a job of many steps, which is ended long before its last: however late somebody injects, it runs."""
    scenario, out = tmp_path / "live.yaml", tmp_path / "run"
    rules = {"heartbeat": {"every": "100ms", "rows": 4}}
    made = given(operator=rules, run={"sample_every": "1s", "max_time": "1000s"})
    made["jobs"][0]["workload"]["steps"] = 1000
    scenario.write_text(api.effective(api.load(made).scenario), "utf-8")
    words = ("up", str(scenario), "--local", "--quiet", "--no-page", "--pace", "1s/s", "--out", str(out))

    def reached(virtual_ps: int) -> bool:
        assert process.poll() is None
        with contextlib.suppress(UsageError, OSError):  # it does not answer yet
            return bool(ask(out, {"do": "list"})["virtual_ps"] >= virtual_ps)
        return False

    with subprocess.Popen([sys.executable, "-m", "emu.cli.main", *words]) as process:
        try:
            until(lambda: reached(BEAT))
            assert injected(out, {"kind": "row_remap", "target": "gpu-1-0", "rows": 4})
            at_ps = ask(out, {"do": "list"})["virtual_ps"]
            until(lambda: reached(at_ps + BEAT + LOOK_PS + DEADLINE + LAUNCH))
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
    summary = load_summary(out)
    assert summary.operator is not None
    (one,) = summary.operator.restarts
    at_ps = summary.faults[0].at_ps
    assert (one.rule, one.host, one.placed) == ("rows", "host-1", ["host-2 for host-1"])
    assert one.alarm_ps == ceil(at_ps / BEAT) * BEAT + LOOK_PS
