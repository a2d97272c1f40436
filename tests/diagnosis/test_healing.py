"""What healing a suspect gives back, and that nobody is accused whose healing gives back nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.wire.fault import (
    COMPUTE,
    COMPUTE_HUNG,
    DELAY,
    ERRORS,
    GPU_GONE,
    HUNG,
    LOST,
    RATE,
    SLOW,
)
from emu import api
from emu.counts.device_state import ECN, PFC
from emu.results.summary import Counterfactual, Summary
from emu.summary.summary_report import closing_lines
from emu.views.diagnosis.finding import Finding
from emu.views.repairs import run_diagnosis as diagnosing
from emu.views.repairs.counterfactual import Counterfactuals, as_intended, emulated, repair_of
from emu.views.repairs.run_diagnosis import diagnose_directory
from tests.diagnosis.broken_runs import named, run_of, said_of, scenario

LINK = "rtsw-0:ctsw-0"
FLAP = {"kind": "link_flap", "target": LINK, "at": "150us", "down": "30us", "up": "60us", "flaps": 4}
SLIGHTLY = {"kind": "gpu_slow", "target": "gpu-1-0", "factor": 2}
DRAIN = {"kind": "switch_drain", "target": "ctsw-1", "at": "300us", "for": "20us"}
SLOW_LINK = {"kind": "degrade", "target": LINK, "rate": "20G", "at": "150us"}
SLOW_RECEIVER = {"kind": "slow_receiver", "target": "nic-2-0", "rate": "8G", "at": "150us"}


def took_ps(summary: Summary) -> int:
    """How long the job took."""
    job = summary.jobs["train"]
    return (job.end_ps or 0) - (job.start_ps or 0)


@pytest.mark.parametrize("innocent", [SLIGHTLY, DRAIN])
def test_beside_a_cause_what_costs_nothing_is_not_accused(innocent: dict[str, Any]) -> None:
    summary = run_of(FLAP, innocent)
    (found,) = summary.diagnosis
    assert (found.cause, found.place) == ("link_flap", LINK)
    alone = run_of(innocent)
    assert found.back_ps == took_ps(summary) - took_ps(alone) > 0
    assert found.back == pytest.approx((found.back_ps or 0) / took_ps(summary), abs=1e-6)
    assert f"({found.back:.1%}) back" in found.sentence


def test_of_two_that_cost_something_both_are_named_with_what_each_gives_back() -> None:
    summary = run_of(SLOW_LINK, SLOW_RECEIVER)
    assert sorted(named(summary.diagnosis)) == [("degraded_link", LINK), ("slow_receiver", "nic-2-0")]
    given = {one.cause: one.back_ps for one in summary.diagnosis}
    first, second = summary.diagnosis
    assert (first.back_ps or 0) >= 0.05 * took_ps(summary)
    without = {"degraded_link": run_of(SLOW_RECEIVER), "slow_receiver": run_of(SLOW_LINK)}
    assert given[first.cause] == took_ps(summary) - took_ps(without[first.cause])
    assert second.back_ps


def test_each_of_two_that_would_have_stopped_a_job_alone_is_named() -> None:
    lost = [{"kind": "qp_error", "target": f"nic-{host}-0", "at": "150us"} for host in (0, 2)]
    found = run_of(*lost).diagnosis
    assert {("qp_error", "nic-0-0"), ("qp_error", "nic-2-0")} <= {*named(found)}
    assert all("train would not fail" in one.sentence for one in found[:2])


SOUND = [
    ("link_down", "rtsw-1:ctsw-1", -1),
    ("degraded_link", "nic-1-0:rtsw-0", -1),
    ("switch_down", "ctsw-1", -1),
    ("switch_drained", "ctsw-1", -1),
    ("nic_reset", "nic-3-0", -1),
    ("slow_receiver", "nic-2-0", -1),
    ("qp_error", "nic-2-0", -1),
    ("pause_storm", "nic-2-0>rtsw-1", -1),
    ("gpu_slow", "gpu-3-0", -1),
    ("straggler", "host-2", -1),
    ("host_lost", "host-2", -1),
    ("configuration_drift", "rtsw-0", ECN),
    ("configuration_drift", "rtsw-0>ctsw-1", PFC),
    ("miscabling", LINK, -1),
    ("odd_configuration", "nic-2-0", -1),
    ("odd_configuration", LINK, -1),
]


@pytest.mark.parametrize(("cause", "place", "item"), SOUND)
def test_healing_what_is_sound_gives_back_nothing(cause: str, place: str, item: int) -> None:
    prepared = api.prepare(scenario(FLAP, SLIGHTLY))
    events = 10**6
    own = Counterfactual(healed=[], jobs={"train": 1}, failed={}, alarms={})
    runs = Counterfactuals(
        prepared.scenario, prepared.topology, prepared.jobs, own, events, 10 * events, 10**12
    )
    # The run itself is known, and answers without being emulated again.
    found = runs([Finding(cause, place, 0, "", item=item)])
    assert found is not None
    assert (found.jobs, found.healed) == (
        {"train": 1},
        [f"{cause} {place}" + (f" {item}" if item >= 0 else "")],
    )


def test_the_run_that_is_known_is_the_one_that_would_be_emulated() -> None:
    prepared = api.prepare(scenario(FLAP, SLIGHTLY))
    again = emulated(as_intended(prepared.scenario), prepared.topology, faults=prepared.resolved.faults)
    assert again.digest == api.run(scenario(FLAP, SLIGHTLY), local=True).outcome.digest


def test_a_run_that_is_too_large_says_that_nothing_was_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosing, "MOST_EVENTS", 1)
    summary = run_of(FLAP, SLIGHTLY)
    assert summary.diagnosis
    assert all(one.back_ps is None for one in summary.diagnosis)
    assert summary.counterfactuals == ()
    assert any(line.startswith("not compared") for line in closing_lines(summary))


def test_a_run_directory_keeps_what_healing_gave_back(tmp_path: Path) -> None:
    summary = run_of(FLAP, DRAIN, out=tmp_path / "run")
    assert diagnose_directory(tmp_path / "run")[1] == summary.diagnosis
    assert diagnose_directory(tmp_path / "run", emulate=True)[1][0].back_ps == summary.diagnosis[0].back_ps


def test_of_a_job_that_failed_by_drops_alone_the_drops_are_reported() -> None:
    lossy = {"buffer": {"pool": "512KiB"}, "pfc": {"enabled": False}}
    jobs = [{"name": "train", "workload": {"kind": "incast", "size": "4MiB", "fan_in": 5}}]
    summary = run_of(switch=lossy, jobs=jobs)
    assert summary.jobs["train"].status == "retry_exceeded"
    assert named(summary.diagnosis) == [("drops", "rtsw-0")]


@pytest.mark.parametrize("cable", ["delay", "degrade"])
def test_a_cable_with_a_harmless_oddity_is_not_accused_of_its_end_that_went_down(cable: str) -> None:
    added = {"added": "10ns"} if cable == "delay" else {"rate": "99G"}
    odd = {"kind": cable, "target": "nic-2-0:rtsw-1", **added}
    assert named(said_of(odd, {"kind": "nic_down", "target": "nic-2-0", "at": "150us"})) == [
        ("link_down", "nic-2-0:rtsw-1")
    ]


@pytest.mark.parametrize(
    ("cause", "place", "healed"),
    [
        ("gpu_slow", "gpu-2-0", {SLOW, COMPUTE}),
        ("straggler", "host-2", {SLOW, COMPUTE}),
        ("gpu_hung", "gpu-2-0", {HUNG, COMPUTE_HUNG}),
        ("gpu_lost", "gpu-2-0", {LOST, GPU_GONE}),
        ("degraded_link", LINK, {RATE, ERRORS}),
        ("delayed_link", LINK, {DELAY}),
    ],
)
def test_a_repair_is_of_what_the_evidence_shows_and_of_nothing_else_there(
    cause: str, place: str, healed: set[int]
) -> None:
    """So that a slow GPU is not accused of what another fault of its server did."""
    found = repair_of(api.prepare(scenario()).topology, Finding(cause, place, 0, ""))
    assert found is not None
    assert {op for _, _, op in found.spots} == {int(op) for op in healed}
    assert found.links == frozenset()
