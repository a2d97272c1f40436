"""How do the collectives of one rank share what there is only once: SMs, and the NICs of its server?"""

from __future__ import annotations

from typing import Any

from actors.ncclx.rank.sm_share import GpuSms, Share
from emu import api
from emu.results.summary import Collective
from emu.scenario.load import load_text
from emu.workload.composing import Program
from tests.scenario.plain import plain

STAR = {"kind": "star", "hosts": 4}
SMS: dict[str, Any] = {"gpu": {"sms": 16}, "ncclx": {"sms_per_channel": 2, "channels": 4}}
"""A collective holds 8 of 16 SMs, and one has to be left: so one at a time."""


def three(priority: int, **sections: Any) -> api.Result:
    """Three all_gathers on a communicator and a stream each, the last with a priority, after computing."""
    parts = sections.pop("parts", 1)
    program = Program(ranks=4)
    program.stream("a").all_gather("256KiB", on=program.communicator("a"))
    program.stream("b").all_gather("256KiB", on=program.communicator("b"))
    program.stream("c").compute("1us")
    program.stream("c").all_gather("256KiB", on=program.communicator("c", priority=priority))
    return api.run(plain(program.scenario(STAR, **sections)), local=True, parts=parts)


def spans(result: api.Result) -> list[tuple[int, int]]:
    """Begin and end of the three."""
    rows: list[Collective] = result.summary.jobs["program"].collectives
    assert [row.communicator for row in rows] == ["a", "b", "c"]
    return [(row.start_ps or 0, row.end_ps or 0) for row in rows]


def counted(result: api.Result, name: str) -> int:
    return sum(
        value
        for device in result.outcome.devices
        for series, value in zip(device.series, device.counters, strict=True)
        if series.metric == name
    )


def test_a_collective_waits_until_its_sms_are_free() -> None:
    a, b, c = spans(three(0, **SMS))
    assert a[0] == 0
    # A rank begins when its own call before is over; the row is from the first rank's begin.
    assert 0 < b[0] <= a[1]
    assert b[0] < c[0] <= b[1]
    # With SMs for all three they run at once, and share the line; the first two leave computing 9 of 25.
    wide = spans(three(0, gpu={"sms": 25}, ncclx=SMS["ncclx"]))
    assert [begin for begin, _ in wide] == [0, 0, 1_000_000 * 25 // 9 + 1]
    assert a[1] < wide[0][1]


def test_of_those_that_wait_for_sms_the_highest_priority_is_next() -> None:
    first, urgent = three(0, **SMS), three(3, **SMS)
    a, b, c = spans(urgent)
    assert 0 < c[0] <= a[1]
    assert c[0] < b[0] <= c[1]
    assert c[1] < spans(first)[1][1] + (c[1] - c[0]) // 2 < spans(first)[2][1]
    # At each of the four ranks it passed the one that had asked before.
    assert counted(urgent, "host_overtaken_calls") == 4
    assert counted(first, "host_overtaken_calls") == 0
    assert counted(first, "host_sm_wait_ps") > 0
    reported = [one.feature for one in urgent.summary.never_fired]
    assert "jobs[0].workload.communicators" not in reported


def test_nobody_passes_who_waits_and_transfers_wait_for_nobody() -> None:
    gpu = GpuSms(16)
    share = Share(gpu, [8, 10, 2, 2, 12], [0, 0, 0, -1, 7], 1)
    assert share.take(0, 10)
    # 8 and 10 are more than 15; the small one behind it would fit, and has to wait all the same.
    assert not share.take(1, 20)
    assert not share.take(2, 30)
    assert share.take(3, 40)
    assert not share.take(4, 50)
    assert gpu.line == [4, 1, 2]
    assert (gpu.taken, gpu.resident, share.overtaken) == (10, 8, 2)
    again = Share(GpuSms(16), [8, 10, 2, 2, 12], [0, 0, 0, -1, 7], 1)
    again.load(share.save())
    assert again.save() == share.save()
    assert share.give_back(0) == 10
    assert share.settle()
    assert not share.settle()
    assert not share.take(1, 60)
    assert share.take(4, 60)
    assert share.take(1, 60) is False
    share.give_back(4)
    assert share.take(1, 70)
    assert share.take(2, 70)
    assert share.waited_ps == (60 - 50) + (70 - 20) + (70 - 30)
    assert (gpu.taken, gpu.resident, gpu.line) == (14, 12, [])


def test_waiting_for_sms_is_the_same_in_parts() -> None:
    assert three(3, **SMS).summary.digest == three(3, parts=3, **SMS).summary.digest


def transfer_ps(policy: str) -> int:
    """4 MiB from one GPU to one on another server; either server has two NICs."""
    program = Program(ranks=4)
    program.main.send("4MiB", 2, ranks=[0])
    program.main.recv("4MiB", 0, ranks=[2])
    topology = {"kind": "star", "hosts": 2, "gpus_per_host": 2}
    result = api.run(plain(program.scenario(topology, ncclx={"qp_policy": policy})), local=True)
    (row,) = [one for one in result.summary.jobs["program"].collectives if one.op == "recv"]
    assert row.start_ps is not None
    assert row.end_ps is not None
    return row.end_ps - row.start_ps


def test_least_loaded_sends_what_a_program_sends_over_all_nics_of_the_server() -> None:
    # 4 MiB at 400 Gbit/s and 2 % of headers; 7 us for the first slice's copies, clear-to-send and flights.
    line_ps = 4 * 2**20 * 8 * 10**12 // (400 * 10**9) * 102 // 100
    assert line_ps < transfer_ps("round_robin") < line_ps + 10_000_000
    assert line_ps // 2 < transfer_ps("least_loaded") < line_ps // 2 + 10_000_000


TWO_JOBS = """
name: crowd
topology: {kind: star, hosts: 2}
gpu: {sms: 16}
ncclx: {channels: 4, sms_per_channel: 2}
jobs:
  - name: train
    ranks: 2
    workload: {kind: program, operations: [{do: compute, time: 400us}]}
  - name: one
    ranks: 2
    start: 100us
    workload: {kind: collective, op: all_reduce, sizes: [256KiB]}
  - name: other
    ranks: 2
    start: 100us
    workload: {kind: collective, op: all_reduce, sizes: [256KiB]}
"""


def crowd(sms: int = 16, parts: int = 1) -> api.Result:
    """A job that computes and two that exchange, on the same two GPUs."""
    loaded = load_text(TWO_JOBS.replace("sms: 16", f"sms: {sms}"))
    return api.run(loaded, local=True, parts=parts)


def test_jobs_on_one_gpu_share_its_sms() -> None:
    # The first call holds 8 of 16 SMs on both GPUs, the second waits for it and takes as long: meanwhile the
    # third job computes at half its rate.
    result = crowd()
    rows = [result.summary.jobs[name].collectives[0] for name in ("one", "other")]
    one_ps, both_ps = (row.end_ps - 100_000_000 for row in rows if row.end_ps is not None)
    assert both_ps == 2 * one_ps
    assert counted(result, "host_sm_wait_ps") == 2 * one_ps
    training = result.summary.jobs["train"].training
    assert training is not None
    assert training.step_ps == 400_000_000 + both_ps // 2
    assert counted(result, "host_slower_compute_ps") == 2 * (both_ps // 2)


def test_with_sms_for_all_jobs_on_a_gpu_none_waits() -> None:
    result = crowd(sms=25)
    assert counted(result, "host_sm_wait_ps") == 0
    assert counted(result, "host_slower_compute_ps") > 0


def test_jobs_on_one_gpu_are_the_same_in_parts() -> None:
    assert crowd().summary.digest == crowd(parts=2).summary.digest


def test_a_rank_that_fails_gives_its_sms_back() -> None:
    gpu = GpuSms(16)
    one, other = Share(gpu, [8], [0], 0), Share(gpu, [8], [0], 0)
    assert one.take(0, 10)
    assert not other.take(0, 20)
    assert other.settle()
    one.leave()
    assert other.unsettled()
    assert other.take(0, 30)
    assert (gpu.taken, gpu.resident, gpu.line) == (8, 8, [])


def crossed(**ncclx: Any) -> api.Result:
    """Job a calls on GPU 0, 10 us later on GPU 1, job b the other way round; SMs are enough for one call."""

    def calls(late: int) -> list[dict[str, Any]]:
        return [{"do": "compute", "time": "10us", "ranks": [late]}, {"do": "all_reduce", "size": "64KiB"}]

    return api.run(
        {
            "name": "crossed",
            "topology": {"kind": "star", "hosts": 2},
            **SMS,
            "ncclx": {**SMS["ncclx"], **ncclx},
            "run": {"stall_after": "2ms"},
            "jobs": [
                {"name": name, "workload": {"kind": "program", "operations": calls(late)}}
                for name, late in (("a", 1), ("b", 0))
            ],
        },
        local=True,
    )


def test_jobs_that_wait_for_each_others_sms_say_so_where_they_stall() -> None:
    result = crossed()
    assert result.exit_status == 3
    held = "waits for SMs of its GPU, which rank"
    assert [job.suspects for job in result.summary.jobs.values()] == [
        [f"rank 1 {held} 1 of job b holds, in operation 0 of world"],
        [f"rank 0 {held} 0 of job a holds, in operation 0 of world"],
    ]
    lines = result.outcome.message.splitlines()
    assert (
        "host-1 waits: rank 1 of job 0, operation 0: a call waits for SMs that rank 1 of job 1 holds" in lines
    )
    (chain, *_) = [one.sentence for one in result.summary.diagnosis]
    for link in (f"rank 1 {held} 1 of b holds", f"rank 0 {held} 0 of a holds", "and so on in a circle"):
        assert link in chain


def test_a_watchdog_leaves_word_of_the_sms_that_a_call_waited_for() -> None:
    for job, rank, other in (("a", 1, "b"), ("b", 0, "a")):
        (first, *_) = crossed(watchdog="200us").summary.jobs[job].suspects
        assert first == (
            f"rank {rank} waited 180us for SMs of its GPU, which rank {rank} of job {other} held,"
            " in operation 0 of world"
        )


def test_where_there_are_sms_for_both_nobody_waits() -> None:
    assert crossed(channels=3).exit_status == 0
