"""Every sentence of a diagnosis holds: in every scenario of the project with faults, and in drawn runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from emu import api
from emu.results.summary import Summary
from emu.summary.summary_report import closing_lines
from tests.diagnosis.broken_runs import FABRIC, run_of
from tests.diagnosis.claims import claims, untrue
from tests.diagnosis.draws import base_scenario, drawn
from tests.diagnosis.scores import contending
from tests.diagnosis.scoring import span_ps
from tests.scenarios_run.small import PACKETS

LONG = ("fault_tour", "fault_losses", "payload_real")
DRAWN = (500_004, 500_011, 500_023, 500_037, 500_058, 500_071)
CONTENDING = (3, 8, 21)


@cache
def summary_of(name: str) -> Summary:
    """Of a scenario of the project, whole."""
    return api.run(api.load(name, {"expect": []}), local=True).summary


def broken() -> Iterator[Any]:
    """The scenarios of the project with faults."""
    for name in PACKETS:
        scenario = api.load(name).scenario
        if scenario.faults and scenario.fidelity == "packet":
            yield pytest.param(name, marks=[pytest.mark.soak] if name in LONG else [])


BROKEN = list(broken())


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_said_of_a_scenario_of_the_project_is_so(name: str) -> None:
    assert untrue(summary_of(name)) == []


def test_many_claims_are_held() -> None:
    held = sum(len(list(claims(summary_of(one.values[0])))) for one in BROKEN if not one.marks)
    assert held > 2 * 20


@pytest.mark.parametrize("seed", DRAWN)
def test_what_is_said_of_a_drawn_fault_is_so(seed: int) -> None:
    one = drawn(seed, span_ps)
    assert one is not None
    summary = api.run(base_scenario(one.base) | {"faults": [one.fault]}, local=True).summary
    assert untrue(summary) == []


@pytest.mark.parametrize("seed", CONTENDING)
def test_what_is_said_of_jobs_that_meet_is_so(seed: int) -> None:
    assert untrue(api.run(contending(seed), local=True).summary) == []


def one_fault() -> list[str]:
    """Short scenarios of the project with a single fault that is not drawn."""
    names = [str(one.values[0]) for one in BROKEN if not one.marks]
    faults = {name: api.load(name).scenario.faults for name in names}
    return [name for name, some in faults.items() if len(some) == 1 and some[0].kind != "random"]


@pytest.mark.parametrize("name", one_fault())
def test_with_the_only_fault_healed_jobs_take_as_long_as_without_it(name: str) -> None:
    """The claim of a comparison, held against a run of its own."""
    healed = [
        one
        for one in summary_of(name).counterfactuals
        if not one.left_out and not one.nudge_ns and one.healed
    ]
    if not healed or not summary_of(name).diagnosis or summary_of(name).diagnosis[0].back_ps is None:
        return
    first = summary_of(name).diagnosis[0]
    mine = next(one for one in healed if one.healed[0].startswith(f"{first.cause} {first.place}"))
    well = api.run(api.load(name, {"expect": [], "faults": []}), local=True, diagnose=False).summary
    for job, took_ps in mine.jobs.items():
        one = well.jobs[job]
        assert took_ps == (one.end_ps or 0) - (one.start_ps or 0)


def test_two_jobs_over_one_uplink_whose_timer_is_too_short() -> None:
    """Each fails alone as well, so neither is accused of the other's failure: the timer is."""
    jobs: list[dict[str, Any]] = [
        {"name": name, "ranks": ranks, "workload": {"kind": "collective", "op": "all_reduce", **SIZES}}
        for name, ranks in (("ar", [0, 4]), ("load", [2, 6]))
    ]
    one_uplink: dict[str, Any] = {
        "topology": FABRIC | {"spines": 1},
        "transport": {"timeout": 1, "retry_count": 0},
    }
    summary = run_of(jobs=jobs, **one_uplink)
    assert {job.status for job in summary.jobs.values()} == {"retry_exceeded"}
    for job in jobs:
        assert run_of(jobs=[job], **one_uplink).jobs[job["name"]].status == "retry_exceeded"
    assert [one.cause for one in summary.diagnosis] == ["timeout_short"]
    assert "ar and load" in summary.diagnosis[0].sentence
    assert untrue(summary) == []
    assert [line for line in closing_lines(summary) if line.startswith("timers: ")] != []


SIZES = {"sizes": ["1MiB"], "iterations": 8}
