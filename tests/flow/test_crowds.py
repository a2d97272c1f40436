"""Do jobs that meet delay each other at flow level as their packets do?

Expected values are those of packet level for the same scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from emu.api import run
from emu.flow.cross import differences
from emu.measure.summary_report import closing_lines
from emu.results.summary import Summary

SPREAD: Final = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 4, "gpus_per_host": 1, "spines": 1}


def both(source: str | dict[str, Any], **overrides: object) -> tuple[Summary, Summary]:
    """What packet level and flow level make of a scenario."""
    packet, flow = (
        run(source, overrides=overrides | {"fidelity": one, "expect": []}, local=True, diagnose=False).summary
        for one in ("packet", "flow")
    )
    return packet, flow


def worst(packet: Summary, flow: Summary, what: str) -> float:
    """By what part flow level is off at most, in what begins so."""
    found = [one for one in differences(packet, flow) if one.what.startswith(what)]
    assert found
    return max(abs(one.part) for one in found)


@pytest.mark.parametrize("name", ["serving", "admission_gated", "admission_blind", "transport_roce"])
def test_a_scenario_whose_jobs_meet_is_within_the_bounds(name: str) -> None:
    found = differences(*both(name))
    assert len(found) > 1
    assert all(one.holds for one in found), [one for one in found if not one.holds]


def test_bursts_of_two_rings_delay_each_other() -> None:
    packet, flow = both("two_jobs")
    first, second = [one.packet for one in differences(packet, flow) if one.what.startswith("large")]
    assert second > 1.5 * first
    assert worst(packet, flow, "large") < 0.01
    assert worst(packet, flow, "small") < 0.03


READS: Final[Mapping[str, Any]] = {
    "name": "reads",
    "topology": SPREAD,
    "jobs": [
        {
            "name": "ring",
            "ranks": [0, 1, 4, 5],
            "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["2MiB"]},
        },
        {
            "name": "reads",
            "ranks": [2, 3, 6, 7],
            "workload": {
                "kind": "flows",
                "verb": "read",
                "flows": [{"src": one, "dst": (one + 2) % 4, "size": "1MiB"} for one in range(4)],
            },
        },
    ],
}


def test_requests_of_reads_wait_behind_data() -> None:
    packet, flow = both(dict(READS))
    assert worst(packet, flow, "reads") < 0.05
    assert worst(packet, flow, "ring") < 0.03


def test_jobs_that_meet_by_rates_are_said_to_be_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emu.flow.crowds.MOST_UNITS", 0)
    monkeypatch.setattr("emu.flow.floods.MOST_UNITS", 0)
    _, flow = both("two_jobs")
    (doubt,) = flow.engine.doubts
    assert doubt.startswith(
        "large and small; large and background; small and background: these jobs share links"
    )
    assert f"doubtful at flow level: {doubt}" in closing_lines(flow)


def test_pauses_that_a_rehearsal_does_not_know_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emu.flow.crowds.MOST_ALONE", 0)
    packet, flow = both("transport_roce")
    assert worst(packet, flow, "bench") > 0.1
    (doubt,) = flow.engine.doubts
    assert doubt.startswith("so much waits for ")
    assert "rehearsed without pauses" in doubt
