"""Do programs and training steps go on without ranks that nobody named, and what does a step take then?

Of a program, four servers at one switch compute and reduce 64 KiB in each step. Of training, four servers of
two GPUs have a replica each, sharded over both. The figures are those of `tests.ncclx.test_shrink`:
management messages take 100,051,200 ps, the watchdog gives up after 300 us. Queue pairs are reset beside the
computing that begins a step.
"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from tests.engine.spread_runs import ENDINGS, SpreadRun, plan_of
from tests.ncclx.test_recover import US, host_lost
from tests.ncclx.test_shrink import MANAGED_PS, WATCHDOG_PS
from tests.scenario.plain import plain

FOUND_PS = WATCHDOG_PS + 2 * MANAGED_PS
COMPUTE = {"do": "compute", "time": "20us"}
REDUCE = {"do": "all_reduce", "size": "64KiB", "algorithm": "ring"}
GPU_LOST = {"kind": "gpu_lost", "at": "213us", "target": "gpu-1-0"}
SERVERS = {"kind": "star", "hosts": 4, "gpus_per_host": 2}
VALUES = 4 * 256 * 256 + 3 * 256 * 1024
"""Parameters of the layer: attention and a gated MLP."""
LAYER = {"layers": 1, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "sequence": 512}


def ran(workload: dict[str, Any], faults: list[dict[str, Any]], **more: Any) -> api.Result:
    given = {
        "name": "recover",
        "topology": more.pop("topology", {"kind": "star", "hosts": 5}),
        "ncclx": {"watchdog": "300us"},
        "gpu": {"channel_rate": "2966.4G"},
        "jobs": [{"name": "train", "ranks": 4, "workload": workload, **more.pop("job", {})}],
        "faults": faults,
        "run": {"stall_after": "5ms"},
        **more,
    }
    return api.run(plain(given), local=True, diagnose=False)


def program(
    job: dict[str, Any], *faults: dict[str, Any], operations: list[dict[str, Any]] | None = None, **more: Any
) -> api.Result:
    workload = {"kind": "program", "steps": 4, **more.pop("workload", {})}
    workload["operations"] = operations or [COMPUTE, REDUCE]
    return ran(workload, list(faults), job=job, **more)


def training(job: dict[str, Any], *faults: dict[str, Any], replicas: int = 4, **more: Any) -> api.Result:
    workload = {
        "kind": "training",
        "model": "own",
        "own": LAYER,
        "replicas": replicas,
        "steps": 4,
        "overlap": {"fsdp_prefetch": False},
        **more.pop("workload", {}),
    }
    return ran(workload, list(faults), topology=SERVERS, job={"ranks": 2 * replicas, **job}, **more)


def steps(result: api.Result) -> tuple[list[int], list[int]]:
    """Times and ranks."""
    job = result.summary.jobs["train"]
    assert (job.status, result.exit_status, job.training is None) == ("success", 0, False)
    assert job.training is not None
    return job.training.step_times_ps, job.training.step_ranks


def mean_ps(result: api.Result) -> int:
    training = result.summary.jobs["train"].training
    assert training is not None
    assert training.step_ps is not None
    return training.step_ps


def bench_ps(op: str, size_bytes: int, ranks: list[int]) -> int:
    workload = {"kind": "collective", "op": op, "algorithm": "ring", "sizes": [f"{size_bytes}B"]}
    row = ran(workload, [], topology=SERVERS, job={"ranks": ranks}).summary.jobs["train"].collectives[0]
    return (row.end_ps or 0) - (row.start_ps or 0)


@pytest.fixture(scope="module")
def whole() -> int:
    return mean_ps(program({}))


@pytest.fixture(scope="module")
def fewer() -> int:
    return mean_ps(program({"ranks": [0, 1, 3]}))


# ---- programs


def test_the_step_of_a_program_is_done_again_without_a_host_that_does_not_answer(
    whole: int, fewer: int
) -> None:
    found = program({"recover": {"wait": "50us"}}, *host_lost(2))
    lost_ps = 20 * US + FOUND_PS + 50 * US + fewer
    assert steps(found) == ([whole, lost_ps, fewer, fewer], [4, 3, 3, 3])
    rows = found.summary.jobs["train"].collectives
    assert [(one.ranks, one.status) for one in rows] == [(4, "success")] + [(3, "success")] * 3


def test_a_program_does_not_wait_for_a_rank_that_says_that_its_gpu_is_lost(whole: int, fewer: int) -> None:
    found = steps(program({"recover": {}}, GPU_LOST))[0]
    assert found == [whole, 20 * US + FOUND_PS + fewer, fewer, fewer]


def test_computing_that_a_loss_interrupts_begins_anew() -> None:
    """The second stream computes for 700 us beside the all_reduce that hangs from 20 us on; what is left of
    it when the others begin again means nothing.
    """
    side = {"do": "compute", "time": "700us", "stream": "side"}
    lost = {"kind": "host_lost", "at": "30us", "target": "host-2"}
    found = steps(program({"recover": {"wait": "50us"}}, lost, operations=[COMPUTE, side, REDUCE]))[0]
    assert found == [20 * US + FOUND_PS + 50 * US + 700 * US] + [700 * US] * 3


def test_a_host_that_is_lost_when_nobody_needs_it_any_more_is_missed_at_the_end_of_the_step() -> None:
    """The all_reduce is over at 40 us, so that nobody hangs. The others report after 700 us; the controller
    waits for the fourth as long as a watchdog and its own wait, asks all, and waits two delays and 10 us for
    an answer.
    """
    side = {"do": "compute", "time": "700us", "stream": "side"}
    found = steps(program({"recover": {"wait": "50us"}}, *host_lost(2), operations=[COMPUTE, side, REDUCE]))
    lost_ps = 700 * US + FOUND_PS + 50 * US + 210 * US + 700 * US
    assert found == ([lost_ps] + [700 * US] * 3, [3] * 4)


def test_a_rank_that_works_long_after_the_others_is_asked_and_not_taken_as_lost() -> None:
    """Rank 3 computes for 2 ms after an all_reduce that all have ended, five times as long as anybody
    waits."""
    slow = {"do": "compute", "time": "2ms", "ranks": [3]}
    found = steps(program({"recover": {"wait": "50us"}}, operations=[REDUCE, slow]))
    plain_ps = mean_ps(program({}, operations=[REDUCE, slow]))
    assert found == ([plain_ps] * 4, [4] * 4)


def test_a_rank_that_fails_later_than_the_wait_answers_and_goes_on_with_the_others() -> None:
    """Rank 0 hangs from 20 us on, and ranks 1 and 3, which compute for 250 us meanwhile, from 270 us on.
    Their reports would come when the wait of 220 us after the first is over; their answers come before.
    """
    slow = {"do": "compute", "time": "250us", "ranks": [1, 3]}
    pair = {"communicators": [{"name": "pair", "split": [0, 1, 0, 1]}]}
    operations: list[dict[str, Any]] = [COMPUTE, {**REDUCE, "on": "pair", "ranks": [0, 2]}, slow, REDUCE]
    lost = {"kind": "host_lost", "at": "500us", "target": "host-2"}
    job = {"recover": {"wait": "220us"}}
    found, ranks = steps(program(job, lost, operations=operations, workload=pair))
    left_ps = mean_ps(program({"ranks": [0, 1, 3]}, operations=[COMPUTE, {**slow, "ranks": [1, 2]}, REDUCE]))
    assert ranks == [4, 3, 3, 3]
    assert found[1:] == [20 * US + FOUND_PS + 220 * US + left_ps, left_ps, left_ps]


def test_a_spare_does_what_the_lost_rank_did(whole: int) -> None:
    job = {"ranks": 5, "recover": {"spares": [4], "wait": "50us"}}
    found = program(job, *host_lost(2))
    assert steps(found) == ([whole, 20 * US + FOUND_PS + 50 * US + whole, whole, whole], [4] * 4)


def test_a_host_that_comes_back_takes_part_again_from_the_next_step_on(whole: int, fewer: int) -> None:
    faults = host_lost(2, **{"for": "500us"})
    job = {"recover": {"wait": "50us", "rejoin": True}}
    found = steps(program(job, *faults, routing={"convergence": "10us"}))
    lost_ps = 20 * US + FOUND_PS + 50 * US + fewer
    assert found == ([whole, lost_ps, whole, whole], [4, 3, 4, 4])


def test_pairs_that_lose_a_member_are_done_without_and_transfers_to_it_are_left_out() -> None:
    """Rank 3 is left alone in its pair, and sends nothing to rank 2; the others' transfers go on."""
    pairs = {"communicators": [{"name": "pairs", "split": [0, 0, 1, 1]}]}
    transfers: list[dict[str, Any]] = [
        {"do": do, "size": "16KiB", "peer": peer, "ranks": [rank]}
        for do, rank, peer in (("send", 0, 1), ("recv", 1, 0), ("send", 3, 2), ("recv", 2, 3))
    ]
    operations: list[dict[str, Any]] = [COMPUTE, {**REDUCE, "on": "pairs"}, *transfers, REDUCE]
    found = program({"recover": {"wait": "50us"}}, *host_lost(2), operations=operations, workload=pairs)
    alone: list[dict[str, Any]] = [
        COMPUTE,
        {**REDUCE, "on": "pairs", "ranks": [0, 1]},
        *transfers[:2],
        REDUCE,
    ]
    colours = {"communicators": [{"name": "pairs", "split": [0, 0, -1]}]}
    left_ps = mean_ps(program({"ranks": [0, 1, 3]}, operations=alone, workload=colours))
    assert steps(found)[0][2:] == [left_ps] * 2
    rows = found.summary.jobs["train"].collectives
    assert [(one.ranks, one.status) for one in rows[-6:]] == [
        (2, "success"),
        (2, "success"),
        (2, "success"),
        (0, "unfinished"),
        (0, "unfinished"),
        (3, "success"),
    ]


def test_losses_one_after_another_are_gone_on_after(whole: int, fewer: int) -> None:
    last = mean_ps(program({"ranks": [0, 3]}))
    faults = [*host_lost(2), {"kind": "host_lost", "at": "1050us", "target": "host-1"}]
    found = steps(program({"recover": {"wait": "50us", "losses": 2}}, *faults))
    lost_ps = 20 * US + FOUND_PS + 50 * US
    assert found == ([whole, lost_ps + fewer, lost_ps + last, last], [4, 3, 2, 2])


def test_a_host_that_is_lost_and_back_may_be_lost_and_back_again(whole: int, fewer: int) -> None:
    """It is back before the third step begins, at 1.05 ms, and lost again between that and the fourth."""
    times = {"at": "1200us", "for": "500us"}
    faults = [*host_lost(2, **{"for": "500us"}), {"kind": "host_lost", "target": "host-2", **times}]
    job = {"recover": {"wait": "50us", "rejoin": True, "losses": 2}}
    found = program(job, *faults, routing={"convergence": "10us"}, workload={"steps": 6})
    lost_ps = 20 * US + FOUND_PS + 50 * US + fewer
    assert steps(found) == ([whole, lost_ps, whole, lost_ps, whole, whole], [4, 3, 4, 3, 4, 4])


# ---- training


def test_other_replicas_go_on_without_one_that_loses_its_server() -> None:
    """A step computes, gathers and scatters inside a server, and reduces its shard of the gradients over the
    replicas.

    FLOPs of a layer forward, of 512 tokens: projections 2 x 4 h^2, scores 4 s h, MLP 2 x 3 h f, each a token;
    backward twice that; at 0.6 x 989 TFLOP/s.
    """
    h, f, s = 256, 1024, 512
    before_ps = 3 * s * (8 * h * h + 4 * s * h + 6 * h * f) / (0.6 * 989)
    before_ps += bench_ps("all_gather", 2 * VALUES, [0, 1]) + bench_ps("reduce_scatter", 4 * VALUES, [0, 1])
    reduced_ps = [bench_ps("all_reduce", 2 * VALUES, [0, 2, 4, 6][:replicas]) for replicas in (4, 3)]
    found, ranks = steps(training({"recover": {"wait": "150us"}}, *host_lost(2)))
    step_ps = [before_ps + one for one in reduced_ps]
    lost_ps = before_ps + FOUND_PS + 150 * US + step_ps[1]
    assert ranks == [8, 6, 6, 6]
    assert found == pytest.approx([step_ps[0], lost_ps, step_ps[1], step_ps[1]], abs=20)


def test_a_replica_whose_gpu_is_lost_drops_out_whole_and_comes_back_whole() -> None:
    """The other GPU of its server hangs in their own reduce_scatter, and is not lost: it waits for the step
    in which the server is there again. The second report of a server leaves 51.2 ns after the first.
    """
    whole, fewer = (steps(training({"recover": {}}, replicas=one))[0][0] for one in (4, 3))
    lost_ps = whole - bench_ps("all_reduce", 2 * VALUES, [0, 2, 4, 6]) + FOUND_PS + 51_200 + fewer
    found, ranks = steps(training({"recover": {}}, GPU_LOST))
    assert (found, ranks) == ([whole, lost_ps, fewer, fewer], [8, 6, 6, 6])
    back = host_lost(2, **{"for": "500us"})
    job = {"recover": {"wait": "150us", "rejoin": True}}
    found, ranks = steps(training(job, *back, routing={"convergence": "10us"}))
    assert (found[0], found[2:], ranks) == (whole, [whole, whole], [8, 6, 8, 8])


def test_a_spare_keeps_a_replica_whole() -> None:
    job = {"ranks": 8, "recover": {"spares": [6, 7], "wait": "150us"}}
    found, ranks = steps(training({**job}, *host_lost(2), replicas=3))
    assert ranks == [6] * 4
    assert found[0] == found[2] == found[3]


def test_ddp_ranks_are_replicas_of_one_and_a_job_without_copies_is_refused() -> None:
    job = {"ranks": [0, 2, 4, 6], "recover": {"wait": "150us"}}
    found, ranks = steps(training(job, *host_lost(2), replicas=1, workload={"data": "ddp"}))
    assert ranks == [4, 3, 3, 3]
    assert found[2:] == [mean_ps(training({"ranks": [0, 2, 6]}, replicas=1, workload={"data": "ddp"}))] * 2
    with pytest.raises(ScenarioError, match="no other rank has the parameters"):
        training({"ranks": 8, "recover": {}}, replicas=1)


def test_the_answer_depends_neither_on_parts_nor_on_a_snapshot() -> None:
    brief: dict[str, object] = {}
    whole = SpreadRun(plan_of("replica_lost", 1, brief))
    whole.start()
    assert whole.run() in ENDINGS
    for parts, at_ps in ((2, 500 * US), (3, 1_100 * US)):
        first = SpreadRun(plan_of("replica_lost", parts, brief))
        first.snapshot_at(at_ps)
        first.start()
        assert first.run() in ENDINGS
        assert first.snapshot is not None
        second = SpreadRun(plan_of("replica_lost", parts + 1, brief), seed=2)
        second.resume(first.snapshot)
        assert second.run() in ENDINGS
        assert (first.digest(), second.digest()) == (whole.digest(), whole.digest()), at_ps


@pytest.mark.parametrize(
    ("job", "more", "reason"),
    [
        ({"recover": {}}, {"operations": [{"do": "broadcast", "size": "1KiB"}]}, "told rank by rank"),
        ({"recover": {}}, {"operations": [{**REDUCE, "algorithm": "hierarchical"}]}, "may need ranks"),
        ({"recover": {"spares": [2, 3]}}, {}, "leaves fewer than 3 of 4 ranks to begin"),
        ({"recover": {"spares": [3, 3]}}, {}, "rank 3 is listed already"),
        ({"recover": {}}, {"payload": "real"}, "another result than all have"),
    ],
)
def test_a_program_that_cannot_go_on_is_refused(
    job: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ScenarioError, match=reason):
        program(job, **more)


def test_more_losses_than_communicators_can_be_made_for_are_refused() -> None:
    topology = {"kind": "star", "hosts": 40}
    with pytest.raises(ScenarioError, match="more than 4096 places"):
        program({"ranks": 40, "recover": {"losses": 2}}, topology=topology)
