"""A run that is too large to be compared as a whole is compared around its slowest operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.results.summary import Summary
from emu.summary.summary_report import closing_lines
from emu.views.diagnosis.impact import MANY_MEDIANS
from emu.views.repairs import run_diagnosis as diagnosing
from emu.views.repairs.run_diagnosis import diagnose_directory
from tests.diagnosis.broken_runs import RING, named, scenario

PATIENT = {"timeout": 8, "retry_count": 7}
AGAIN: dict[str, Any] = {
    "run": {"sample_every": "50us", "stall_after": "10ms", "repeat": True, "max_time": "9ms"},
    "jobs": [{"name": "train", "workload": RING | {"iterations": 2}}],
    "transport": PATIENT,
}
ONCE: dict[str, Any] = {
    "jobs": [{"name": "train", "workload": RING | {"iterations": 60}}],
    "transport": PATIENT,
}
LINK = "rtsw-0:ctsw-0"
FLAP = {"kind": "link_flap", "target": LINK, "at": "500us", "down": "60us", "up": "100us", "flaps": 2}
STORM = {"kind": "pause_storm", "target": "nic-2-0/0", "at": "2ms", "for": "1500us"}


def run(
    most: int, *faults: dict[str, Any], out: Path | None = None, **more: Any
) -> tuple[Summary, list[Any]]:
    """A run of which at most so many events may be emulated again, and its operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnosing, "MOST_EVENTS", most)
        result = api.run(scenario(*faults, **more), local=True, out=out)
    rows = [row for record in result.outcome.devices for row in record.results.get("operations", ())]
    return result.summary, rows


@pytest.mark.parametrize("more", [AGAIN, ONCE], ids=["repeated", "once"])
def test_a_storm_is_named_with_what_its_operation_would_take_without_it(
    more: dict[str, Any], tmp_path: Path
) -> None:
    """In half of the events of the run: the operation is as long there, to the picosecond, as in the run."""
    events = run(0, FLAP, STORM, **more)[0].engine.events
    summary, rows = run(events // 2, FLAP, STORM, out=tmp_path / "run", **more)
    took_ps = {row[1]: row[3] - row[2] for row in rows}
    number = max(took_ps, key=lambda one: took_ps[one])
    assert took_ps[number] > 1_500_000_000
    usual_ps = sorted(took_ps.values())[len(took_ps) // 2]
    first = summary.diagnosis[0]
    assert (first.cause, first.place) == ("pause_storm", "nic-2-0>rtsw-1")
    assert f"operation {number} of train would take" in first.sentence
    assert first.back_ps == took_ps[number] - usual_ps
    own = [one for one in summary.counterfactuals if one.around and not one.healed]
    assert own
    assert all(one.jobs[one.around] == took_ps[int(one.around.split()[1])] for one in own)
    assert diagnose_directory(tmp_path / "run")[1] == summary.diagnosis
    assert not any("not compared" in line for line in closing_lines(summary))


def test_where_nothing_may_be_emulated_what_happened_under_the_slow_operation_is_named_first() -> None:
    summary, rows = run(0, FLAP, STORM, **AGAIN)
    assert named(summary.diagnosis)[0] == ("pause_storm", "nic-2-0>rtsw-1")
    took_ps = {row[1]: row[3] - row[2] for row in rows}
    number = max(took_ps, key=lambda one: took_ps[one])
    times = took_ps[number] / sorted(took_ps.values())[(len(took_ps) - 1) // 2]
    assert times > MANY_MEDIANS
    line = f"operation {number} of train took "
    evidence = summary.diagnosis[0].evidence
    assert any(one.startswith(line) and one.endswith(f" {times:.0f} times the median") for one in evidence)
    flap = [one for one in summary.diagnosis if one.cause in ("link_flap", "link_down")]
    assert not any(line in text for one in flap for text in one.evidence)


def test_a_cause_that_is_over_is_not_credited_with_what_came_after_it() -> None:
    """A flap of 20 us that costs an operation nothing like the storm 1.4 ms later."""
    short = FLAP | {"down": "20us", "flaps": 1}
    alone, _ = run(0, short, **AGAIN)
    both, _ = run(0, short, STORM, **AGAIN)

    def credit(summary: Summary) -> list[str]:
        return [
            line
            for one in summary.diagnosis
            if one.place == LINK
            for line in one.evidence
            if "more time since" in line
        ]

    assert credit(both) == credit(alone)
