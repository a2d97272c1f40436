"""Changes of configuration that devices report are listed with their time, harmful or not."""

from __future__ import annotations

from typing import Any

from emu.results.summary import Reconfigured
from emu.summary.summary_report import change_lines, closing_lines
from tests.diagnosis.broken_runs import run_of

ECN = {"kind": "ecn_drift", "target": "rtsw-0", "kmin": "2KiB", "kmax": "8KiB", "at": "100us", "for": "100us"}
PFC = {"kind": "pfc_drift", "target": "rtsw-0/0", "at": "150us"}
HEADROOM = {"kind": "headroom_drift", "target": "ctsw-1", "headroom": "8KiB", "at": "120us"}
SPEED = {"kind": "degrade", "target": "rtsw-0:ctsw-0", "rate": "20G", "at": "150us", "for": "50us"}
DSCP = {"kind": "dscp_drift", "target": "ctsw-0", "dscp": 24, "queue": 0, "at": "200us"}
MARKS: dict[str, Any] = {"buffer": {"pool": "2MiB"}, "ecn": {"enabled": True}}


def change(at_us: int, device: str, what: str) -> Reconfigured:
    """One that is listed."""
    return Reconfigured(at_ps=at_us * 10**6, device=device, what=what)


def test_every_change_is_listed_with_its_time_and_its_end() -> None:
    """`rtsw-0` has six ports and each spine two; both ends of a link report its speed."""
    listed = run_of(ECN, PFC, HEADROOM, SPEED, DSCP, switch=MARKS).changes
    assert listed == (
        change(100, "rtsw-0", "ECN thresholds 2KiB to 8KiB on 6 ports"),
        change(120, "ctsw-1", "headroom 8KiB on 2 ports"),
        change(150, "rtsw-0", "speed 20Gbps on rtsw-0>ctsw-0"),
        change(150, "rtsw-0", "PFC off on rtsw-0>nic-0-0"),
        change(150, "ctsw-0", "speed 20Gbps on ctsw-0>rtsw-0"),
        change(200, "rtsw-0", "speed as built again on rtsw-0>ctsw-0"),
        change(200, "rtsw-0", "ECN thresholds as built again on 6 ports"),
        change(200, "ctsw-0", "speed as built again on ctsw-0>rtsw-0"),
        change(200, "ctsw-0", "DSCP map queue 0 for DSCP 24"),
    )


def test_changes_without_harm_are_printed_where_two_jobs_only_meet() -> None:
    jobs = [
        {"name": name, "ranks": ranks, "workload": {"kind": "permutation", "size": "512KiB"}}
        for name, ranks in (("one", [0, 2, 4, 6]), ("two", [1, 3, 5, 7]))
    ]
    summary = run_of(HEADROOM | {"at": "10us"}, jobs=jobs)
    assert "configuration_drift" not in [one.cause for one in summary.diagnosis]
    assert "changed: ctsw-1 at 10us: headroom 8KiB on 2 ports" in closing_lines(summary)
    assert run_of(jobs=jobs).changes == ()


def test_of_many_changes_the_number_of_the_rest_is_printed() -> None:
    many = [change(at, "rtsw-0", "PFC off on rtsw-0>nic-0-0") for at in range(11)]
    assert len(change_lines(many)) == 9
    assert change_lines(many)[-1] == "changed: 3 more in summary.json (changes)"
