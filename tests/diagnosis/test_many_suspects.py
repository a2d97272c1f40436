"""Of many suspects the one that costs time is found, and nobody is accused who happens to stand beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from emu.results.summary import Counterfactual, Summary
from emu.views.diagnosis import causes, slow_gpus
from emu.views.diagnosis.finding import CONTENTION, Finding
from emu.views.diagnosis.healing import Run, accused
from tests.diagnosis.broken_runs import FABRIC, named, run_of

EIGHT = FABRIC | {"hosts_per_rack": 4}
STAR = {"kind": "star", "hosts": 8, "gpus_per_host": 1, "link": "100G"}
STEPS: list[dict[str, Any]] = [{"do": "compute", "time": "100us"}, {"do": "all_reduce", "size": "256KiB"}]
PROGRAM = {"kind": "program", "steps": 4, "operations": STEPS}
ONE_A_SERVER = [{"name": "train", "ranks": [0, 2, 4, 6, 8, 10, 12, 14], "workload": PROGRAM}]
ALL_GPUS = [{"name": "train", "workload": PROGRAM}]


def took_ps(summary: Summary) -> int:
    """How long the job took."""
    job = summary.jobs["train"]
    return (job.end_ps or 0) - (job.start_ps or 0)


def test_of_seven_odd_nics_the_one_with_a_small_mtu_is_named() -> None:
    """Six have a harmless odd TTL, and are listed first."""
    odd = [{"devices": f"nic-{host}-0", "nic": {"ttl": 60 + host}} for host in range(6)]
    small = {"devices": "nic-7-0", "transport": {"mtu": 256}}
    jobs = [{"name": "train", "workload": {"kind": "permutation", "size": "1MiB"}}]
    summary = run_of(topology=STAR, jobs=jobs, overrides=[*odd, small])
    well = run_of(topology=STAR, jobs=jobs, overrides=odd)
    assert took_ps(summary) > 1.25 * took_ps(well)
    (found,) = summary.diagnosis
    assert (found.place, found.back_ps) == ("nic-7-0", took_ps(summary) - took_ps(well))


def test_a_slow_gpu_is_named_before_six_links_that_flapped_without_carrying_anything() -> None:
    idle = [
        {"kind": "link_flap", "target": f"nic-{host}-1:rtsw-{host // 4}", "at": "150us", "flaps": 2}
        | {"down": "1us", "up": "1us"}
        for host in range(6)
    ]
    slow = {"kind": "gpu_slow", "target": "gpu-7-0", "factor": 1.5}
    summary = run_of(*idle, slow, topology=EIGHT, jobs=ONE_A_SERVER)
    well = run_of(*idle, topology=EIGHT, jobs=ONE_A_SERVER)
    assert took_ps(summary) > 1.2 * took_ps(well)
    first = summary.diagnosis[0]
    assert (first.cause, first.place) == ("gpu_slow", "gpu-7-0")
    assert first.back_ps == took_ps(summary) - took_ps(well)
    assert {one.cause for one in summary.diagnosis[1:]} == {"link_flap"}  # ports that went down are alarms
    assert all(one.back_ps == 0 for one in summary.diagnosis[1:])


def test_all_of_eight_slow_cables_are_named_and_not_the_late_one_beside_them() -> None:
    """Repairing any seven gives back nothing: the ring waits for the eighth."""
    slow = [
        {"kind": "degrade", "target": f"nic-{host}-0:rtsw-{host // 4}", "rate": "20G"} for host in range(8)
    ]
    late = {"kind": "delay", "target": "nic-3-1:rtsw-0", "added": "100ns"}
    summary = run_of(*slow, late, topology=EIGHT)
    assert named(summary.diagnosis) == [("degraded_link", one["target"]) for one in slow]
    back_ps = took_ps(summary) - took_ps(run_of(late, topology=EIGHT))
    assert {one.back_ps for one in summary.diagnosis} == {back_ps}
    assert "and 4 more as built" in summary.diagnosis[0].sentence


def test_three_that_hide_one_another_are_named_and_give_back_all_together() -> None:
    slow = [{"kind": "gpu_slow", "target": f"gpu-{host}-0", "factor": 5 - host} for host in (1, 2, 3)]
    summary = run_of(*slow, topology=EIGHT, jobs=ALL_GPUS)
    assert named(summary.diagnosis) == [("gpu_slow", f"gpu-{host}-0") for host in (1, 2, 3)]
    given = sum(one.back_ps or 0 for one in summary.diagnosis)
    assert given == took_ps(summary) - took_ps(run_of(topology=EIGHT, jobs=ALL_GPUS))
    assert not any("left" in line for one in summary.diagnosis for line in one.evidence)


def test_what_is_left_with_everybody_accused_as_built_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cables are seen; a slow GPU beside them is not."""
    families = tuple(one for one in causes.FAMILIES if one is not slow_gpus.found)
    monkeypatch.setattr(causes, "FAMILIES", families)
    links = ("nic-0-0:rtsw-0", "nic-1-0:rtsw-0")
    slow = [{"kind": "degrade", "target": link, "rate": "2G"} for link in links]
    unseen = {"kind": "gpu_slow", "target": "gpu-7-0", "factor": 4}
    summary = run_of(*slow, unseen, topology=EIGHT, jobs=ALL_GPUS)
    assert {one.place for one in summary.diagnosis} == {*links}
    alone_ps, well_ps = (took_ps(run_of(*one, topology=EIGHT, jobs=ALL_GPUS)) for one in ([unseen], []))
    (line,) = [line for line in summary.diagnosis[0].evidence if "something else is left" in line]
    times = f"train would still take {alone_ps / 1e9:.4g}ms, {well_ps / 1e6:.4g}us on the intended fabric"
    assert line.endswith(times)


@pytest.mark.parametrize(("harmful", "harmed"), [(0, 63), (5, 6), (62, 63), (31, 32), (17, 16)])
def test_of_many_jobs_the_one_that_costs_another_time_is_found_in_few_runs(harmful: int, harmed: int) -> None:
    """64 jobs: 2 log2(64) halves, and two runs for each time that the guilty half is halved again."""
    jobs = [Finding(CONTENTION, f"job-{at}", 400, "met") for at in range(64)]
    times = {one.place: 1000 for one in jobs} | {f"job-{harmed}": 1500}
    runs: list[int] = []

    def emulate(suspects: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        del nudge_ns
        runs.append(len(suspects))
        out = {one.place for one in suspects}
        quicker = {} if f"job-{harmful}" not in out else {f"job-{harmed}": 1000}
        left = {name: took for name, took in (times | quicker).items() if name not in out}
        return Counterfactual(healed=[], jobs=left, failed={}, alarms={}, left_out=" and ".join(out))

    guilty, _, untried = accused(Run(times, {}, {}), jobs, emulate)
    assert [one.finding.place for one in guilty] == [f"job-{harmful}"]
    assert untried == 0
    assert len(runs) <= 12 + 6 * 2 * 6 + 64  # the last: beside the guilty one each other is tried once


LOSSY: dict[str, Any] = {
    "switch": {"buffer": {"pool": "512KiB"}, "pfc": {"enabled": False}},
    "transport": {"timeout": 6, "retry_count": 7, "congestion_control": {"kind": "dcqcn"}},
    "routing": {"kind": "ecmp"},
}
INCAST = {"kind": "incast", "size": "1MiB"}
LOSSY_JOBS = [
    [
        {"name": "train", "workload": {"kind": "permutation", "size": "2MiB"}},
        {"name": "in", "workload": INCAST | {"fan_in": 6}},
    ],
    [{"name": "train", "workload": INCAST | {"fan_in": 5}}],
]


def lossy_run(seed: int) -> Summary:
    """A run that loses frames and has a cable 1 to 4 ns late."""
    late = {"kind": "delay", "target": "nic-1-0:rtsw-0", "added": f"{1 + seed // 8}ns"}
    return run_of(late, seed=seed, jobs=LOSSY_JOBS[seed % 2], **LOSSY)


@pytest.mark.parametrize("seed", [27, 28])
def test_a_cable_a_few_ns_late_is_not_accused_of_what_a_chaotic_run_does(seed: int) -> None:
    """Repairing it gives back 13 to 24 %, by chance."""
    summary = lossy_run(seed)
    late = ["delayed_link nic-1-0:rtsw-0"]
    first = next(one for one in summary.counterfactuals if one.healed == late and not one.nudge_ns)
    assert first.jobs["train"] < 0.9 * took_ps(summary)
    assert "delayed_link" not in [one.cause for one in summary.diagnosis]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(32))
def test_in_no_lossy_run_is_a_late_cable_accused(seed: int) -> None:
    assert "delayed_link" not in [one.cause for one in lossy_run(seed).diagnosis]


def test_a_slow_cable_is_accused_in_a_lossy_run() -> None:
    slow = {"kind": "degrade", "target": "nic-1-0:rtsw-0", "rate": "20G"}
    ring = {"kind": "collective", "op": "all_to_all", "sizes": ["1MiB"], "iterations": 3}
    summary = run_of(slow, jobs=[{"name": "train", "workload": ring}], **LOSSY)
    assert named(summary.diagnosis) == [("degraded_link", "nic-1-0:rtsw-0")]
    assert any(one.nudge_ns for one in summary.counterfactuals)
