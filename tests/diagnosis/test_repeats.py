"""Of jobs that begin again and again, as in a live run: did a fault matter to any round?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu import run_diagnosis as diagnosing
from emu.cli.main import main
from emu.measure.summary_report import closing_lines
from emu.run_diagnosis import diagnose_directory
from tests.diagnosis.broken_runs import INCAST, RING, named, run_of

AGAIN: dict[str, Any] = {
    "run": {"sample_every": "50us", "stall_after": "10ms", "repeat": True, "max_time": "4ms"},
    "jobs": [{"name": "train", "workload": RING | {"iterations": 2}}],
}
SHORT = {"at": "1500us", "for": "200us"}
LINK = "rtsw-0:ctsw-0"


@pytest.mark.parametrize(
    ("fault", "cause", "place"),
    [
        ({"kind": "degrade", "target": LINK, "rate": "10G"}, "degraded_link", LINK),
        ({"kind": "delay", "target": "nic-0-0:rtsw-0", "added": "20us"}, "delayed_link", "nic-0-0:rtsw-0"),
        ({"kind": "gpu_slow", "target": "gpu-1-0", "factor": 1000}, "gpu_slow", "gpu-1-0"),
        ({"kind": "slow_receiver", "target": "nic-2-0", "rate": "4G"}, "slow_receiver", "nic-2-0"),
    ],
)
def test_one_round_that_suffered_is_enough(fault: dict[str, Any], cause: str, place: str) -> None:
    summary = run_of(fault | SHORT, **AGAIN)
    assert summary.reference is not None
    assert summary.reference.span_ps is not None
    assert 0 < summary.reference.span_ps < summary.virtual_ps
    assert named(summary.diagnosis)[:1] == [(cause, place)]
    assert any(
        "more than the longest round on the intended fabric" in one for one in summary.diagnosis[0].evidence
    )


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "alpha_drift", "target": "rtsw-0", "alpha": "1/4"},
        {"kind": "delay", "target": LINK, "added": "100ns"},
        {"kind": "gpu_slow", "target": "gpu-1-0", "factor": 2},
        {"kind": "degrade", "target": LINK, "sender": "ctsw-0", "rate": "90G"},
        {"kind": "headroom_drift", "target": "rtsw-1", "headroom": "0B"},
    ],
)
def test_what_no_round_suffered_from_is_not_told(fault: dict[str, Any]) -> None:
    for when in (SHORT, {"at": "0s"}):
        assert named(run_of(fault | when, **AGAIN).diagnosis) == []


def test_a_run_that_was_compared_does_not_say_otherwise() -> None:
    summary = run_of({"kind": "degrade", "target": LINK, "rate": "20G", "at": "150us"})
    assert summary.reference is not None
    assert summary.uncompared_events is None
    assert not any("not compared" in line for line in closing_lines(summary))


def test_what_counts_up_in_every_round_is_no_harm(tmp_path: Path) -> None:
    lossy = {"buffer": {"pool": "512KiB"}, "pfc": {"enabled": False}}
    incast = [{"name": "train", "workload": INCAST}]
    fault = {"kind": "gpu_slow", "target": "gpu-0-0", "factor": 2, "at": "0s"}
    patient = {"timeout": 5, "retry_count": 7}
    summary = run_of(fault, **(AGAIN | {"switch": lossy, "jobs": incast, "transport": patient}))
    assert summary.jobs["train"].status == "success"
    assert summary.fabric.nic_out_of_sequence > 20
    assert named(summary.diagnosis) == []


def test_a_run_that_is_too_large_can_be_compared_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnosing, "MOST_EVENTS", 0)
    fault = {"kind": "degrade", "target": LINK, "rate": "20G", "at": "150us"}
    out = tmp_path / "run"
    summary = run_of(fault, out=out)
    assert summary.reference is None
    assert summary.uncompared_events is not None
    assert any(line.startswith("not compared with the same jobs") for line in closing_lines(summary))
    found = diagnose_directory(out, emulate=True)[1]
    assert named(found) == [("degraded_link", LINK)]
    assert "on the intended fabric" in found[0].evidence[-1]
    assert main(["diagnose", str(out), "--emulate"]) == 0
    said = capsys.readouterr().out
    assert found[0].sentence in said
    assert "not compared" not in said
    assert main(["diagnose", str(out)]) == 0
    assert "`emu diagnose RUN --emulate` does it" in capsys.readouterr().out
    assert main(["diagnose", str(out), "--emulate", "--baseline", str(out)]) == 2
