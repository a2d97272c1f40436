"""Of jobs that begin again and again, as in a live run: did a fault matter to any round?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.cli.main import main
from emu.summary.summary_report import closing_lines
from emu.views.repairs import run_diagnosis as diagnosing
from emu.views.repairs.run_diagnosis import diagnose_directory
from tests.diagnosis.broken_runs import INCAST, RING, named, run_of
from tests.diagnosis.live_runs import repeating
from tests.summary.known import known

AGAIN: dict[str, Any] = {
    "run": {"sample_every": "50us", "stall_after": "10ms", "repeat": True, "max_time": "4ms"},
    "jobs": [{"name": "train", "workload": RING | {"iterations": 2}}],
}
SHORT = {"at": "1500us", "for": "200us"}
LINK = "rtsw-0:ctsw-0"
UNEVEN = 16
"""A base of which a healthy round takes 103.9 us, and none of the first four more than 67 us."""


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
    assert summary.reference.span_ps == summary.virtual_ps
    assert named(summary.diagnosis)[:1] == [(cause, place)]
    assert any(
        "more than the longest round on the intended fabric" in one for one in summary.diagnosis[0].evidence
    )


def test_a_round_that_never_ended_took_at_least_from_its_begin_to_the_end_of_the_run() -> None:
    hung_ps, end_ps, delay_ps, round_ps = 1_500_000_000, 4_000_000_000, 5_000_000, 141_782_971
    summary = run_of({"kind": "gpu_hung", "target": "gpu-2-0", "at": "1500us"}, **AGAIN)
    assert (summary.ending, summary.jobs["train"].status) == ("finished", "success")
    (found,) = summary.diagnosis
    assert (found.cause, found.place) == ("gpu_hung", "gpu-2-0")
    least_ps = end_ps - hung_ps - delay_ps - round_ps
    assert least_ps <= (found.back_ps or 0) <= least_ps + round_ps


def test_the_longest_of_many_rounds_is_not_measured_by_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    late = {"kind": "delay", "target": "tor-1-1:agg-0-1", "added": "1ns", "at": "1ms"}
    for most in (diagnosing.MOST_EVENTS, 70_000):
        monkeypatch.setattr(diagnosing, "MOST_EVENTS", most)
        summary = api.run(repeating(UNEVEN) | {"faults": [late]}, local=True).summary
        assert summary.reference is not None
        whole = summary.reference.span_ps == summary.virtual_ps
        assert whole == (most > summary.engine.events)
        assert whole == (summary.uncompared_events is None)
        reported = [cause for cause, _ in named(summary.diagnosis)]
        assert reported == [] if whole else "unexplained_impact" not in reported


def test_rounds_that_all_take_longer_are_reported_however_short_the_run_compared_with(tmp_path: Path) -> None:
    short = AGAIN | {"run": AGAIN["run"] | {"max_time": "1ms"}}
    run_of(out=tmp_path / "good", **short)
    run_of(out=tmp_path / "same", **AGAIN)
    run_of(out=tmp_path / "late", gpu={"copy_latency": "9us"}, **AGAIN)
    good = tmp_path / "good"
    assert diagnose_directory(tmp_path / "same", good)[1] == []
    assert named(diagnose_directory(tmp_path / "late", good)[1]) == [("unexplained_impact", "train")]


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
def test_what_no_round_suffered_from_is_not_reported(fault: dict[str, Any]) -> None:
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
    assert known(summary.fabric.nic_out_of_sequence) > 20
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
    assert main(["report", str(out)]) == 0
    assert "so less certain" in (out / "report.html").read_text("utf-8").partition("<h2")[0]
    assert main(["diagnose", str(out), "--emulate", "--baseline", str(out)]) == 2
