"""Does `emu campaign` say what came of the weeks, keep what it measured, and refuse what cannot be meant?"""

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from emu.campaign import measured
from emu.campaign.goodput import recomputed
from emu.cli.main import main

CALM = {"name": "calm", "lasts": "10d", "gpus": 64, "step": {"takes": "10s"}}


def written(tmp_path: Path, **keys: Any) -> str:
    path = tmp_path / "campaign.yaml"
    path.write_text(json.dumps({**CALM, **keys}), encoding="utf-8")
    return str(path)


def test_goodput_is_the_one_that_the_table_of_events_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shorter = ["--set", "lasts=10d", "--set", "expect=[]"]
    assert main(["campaign", "llama3", "--seeds", "1", "--out", str(out), *shorter]) == 0
    rows = list(csv.reader((out / "events.csv").read_text("utf-8").splitlines()))[1:]
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert recomputed(rows, 10_000) == pytest.approx(summary["goodput"], rel=0.001)
    assert sum(summary["shares"].values()) == pytest.approx(1, abs=1e-4)
    shown = capsys.readouterr().out
    assert f"goodput {summary['goodput']:.2%}" in shown
    assert max(map(len, shown.splitlines())) <= 80
    drawing = ET.parse(out / "timeline.svg").getroot()
    bars = [one for one in drawing.iter("{http://www.w3.org/2000/svg}rect") if one.get("height") == "11"]
    widths = sum(float(one.get("width", "0")) for one in bars)
    assert widths == pytest.approx(10 * 960, rel=1e-3)


def test_the_same_seed_gives_the_same_weeks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        main(["campaign", "megascale", "--seeds", "2", "--set", "lasts=5d", "--json"])
    once, twice = capsys.readouterr().out.split("\n}\n")[:2]
    assert once == twice


def test_a_sensitivity_says_what_a_third_and_three_times_of_a_knob_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(
        [
            "campaign",
            "llama3",
            "--seeds",
            "1",
            "--set",
            "lasts=20d",
            "--set",
            "expect=[]",
            "--sensitivity",
            "--json",
        ]
    )
    changes = json.loads(capsys.readouterr().out)["sensitivity"]
    assert changes["failures"][0] > 0 > changes["failures"][1]
    assert changes["recovery.self_check"][0] > 0 > changes["recovery.self_check"][1]
    assert max(changes["checkpoint.every"]) < 0  # what Daly's interval is chosen for


def test_times_are_measured_by_runs_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "commit", lambda: "0123456789ab")
    entry = {"key": "step.takes", "scenario": "tiny_all_reduce", "value": "jobs.ring.end_ps", "times": 1000}
    twice = [entry, entry | {"key": "checkpoint.loads"}]
    command = ["campaign", written(tmp_path, measured=twice), "--cache", str(tmp_path / "kept"), "--json"]
    assert main(command) == 0
    first = capsys.readouterr()
    assert first.err == "emu: step.takes: running tiny_all_reduce\n"  # one run for both
    facts, _ = json.loads(first.out)["measured"]
    (kept,) = (tmp_path / "kept").iterdir()
    assert facts["value_ms"] == -(-json.loads(kept.read_text("utf-8"))["value_ps"] // 10**6)
    assert main(command) == 0
    again = capsys.readouterr()
    assert again.err == ""
    assert again.out == first.out


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"step": {}}, "step.takes: is required"),
        ({"spare_hosts": 9}, "spare_hosts: 9 spare hosts for a job of 8; accepted: 0 to 8"),
        ({"lasts": "2y"}, "lasts: '2y' is not a time"),
        ({"checkpoint": {"every": "20s"}}, "checkpoint.every: the next checkpoint would begin before"),
        ({"checkpoint": {"evry": "20s"}}, "checkpoint.evry: unknown key"),
        (
            {"failures": {"causes": [{"name": "rack", "shows": "stop", "per_hour": 1, "hosts": 9}]}},
            "9 hosts fail together, and the job has 8",
        ),
        (
            {"step": {"takes": "1ms"}, "checkpoint": {"every": "2ms", "written_after": 0}, "lasts": "1d"},
            "checkpoint.every: makes too many checkpoints; accepted: at most 1,000,000 in the campaign",
        ),
        (
            {"failures": {"table": "llama3", "times": 10**9}},
            "failures: strike too often; accepted: at most 1,000,000 times in the campaign",
        ),
        ({"expect": [{"value": "godput", "at_least": 0.9}]}, "expect[0].value: there is no 'godput'"),
        (
            {"measured": [{"key": "step.takes", "scenario": "tiny_all_reduce", "value": "drops.congestion"}]},
            "drops.congestion is no time",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    keys: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["campaign", written(tmp_path, **keys)]) == 2
    assert said in capsys.readouterr().err


def test_an_expectation_that_fails_ends_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, expect=[{"value": "goodput", "at_most": 0.5}])
    assert main(["campaign", path, "--seeds", "1"]) == 1
    assert "FAIL goodput at_most 0.5" in capsys.readouterr().out
    assert main(["campaign", "lama3"]) == 2
    assert "did you mean 'llama3'" in capsys.readouterr().err
