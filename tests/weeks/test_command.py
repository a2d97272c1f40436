"""Does `emu campaign` say what came of the weeks, keep what it measured, and refuse what cannot be meant?"""

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from emu.cli.main import main
from emu.doors.weeks import measured

RACK = {"name": "rack", "shows": "stop", "per_hour": 1, "of": "job"}
LOG = """# kept by the operators of two halls
time,host,cause,repaired
2025-03-30 08:00:00,node-7,Power Supply,2025-03-30 20:00:00
2025-03-31 08:00:00+00:00,node-7,GPU,
2025-04-01T06:30:00,node-2,GPU,2025-04-01T07:30:00
2025-04-01 09:00,,switch,
"""
CALM = {"name": "calm", "lasts": "10d", "gpus": 64, "step": {"takes": "10s"}}


def written(tmp_path: Path, **keys: Any) -> str:
    path = tmp_path / "campaign.yaml"
    path.write_text(json.dumps({**CALM, **keys}), encoding="utf-8")
    return str(path)


def recomputed(rows: list[list[str]], step_ms: int) -> float:
    """Goodput from the rows of events.csv alone: the steps done at the end, over the time.

    Steps are added up row by row: what a row did counts unless a later row begins with fewer.
    """
    done = 0
    begin_ms = end_ms = 0
    for at, row in enumerate(rows):
        if at == 0:
            begin_ms = int(row[0])
        end_ms = int(row[1])
        done += int(row[5]) - int(row[4]) + min(int(row[4]) - done, 0)
    return done * step_ms / (end_ms - begin_ms)


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
    calm = f"emu: warning: {tmp_path}/campaign.yaml: failures: nothing interrupts this job; accepted: "
    calm += "failures.table, failures.log or failures.causes\n"
    assert first.err == f"emu: step.takes: running tiny_all_reduce\n{calm}"  # one run for both
    facts, _ = json.loads(first.out)["measured"]
    (kept,) = (tmp_path / "kept").iterdir()
    assert facts["value_ms"] == -(-json.loads(kept.read_text("utf-8"))["value_ps"] // 10**6)
    assert main(command) == 0
    again = capsys.readouterr()
    assert again.err == calm
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
            {"failures": {"causes": [{**RACK, "hosts": 9}]}},
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
        ({"failures": {"causes": [RACK | {"of": None}]}}, "causes[0].of: is required with per_hour"),
        ({"failures": {"causes": [{"name": "x", "shows": "stop"}]}}, "causes[0].per_hour: is required"),
        (
            {"failures": {"times": 3}},
            "failures.times: multiplies the rates of a table or a log, and there is",
        ),
        ({"failures": {"log_hosts": 3}}, "failures.log_hosts: is about a log, and there is none"),
        ({"failures": {"log": "none.csv"}}, "failures.log: "),
        (
            {"failures": {"log": "log.csv", "log_hosts": 1}},
            "failures.log_hosts: the log names 2 hosts; accepted: at",
        ),
        (
            {"failures": {"log": "log.csv", "log_lasts": "1d"}},
            "the log has later failures; accepted: at least 2.05d",
        ),
        (
            {"failures": {"log": "log.csv", "causes": [{"name": "gpus", "shows": "slow"}]}},
            "has no per_hour, and the log has no cause 'gpus'; did you mean 'gpu'?",
        ),
        (
            {"failures": {"log": "log.csv", "causes": [{**RACK, "name": "gpu"}]}},
            "failures.log: 'gpu' is a cause of the log and one with a rate",
        ),
        (
            {"gpus": 8, "failures": {"log": "log.csv", "log_use": "replayed"}},
            "names 2 hosts, and the job has 1",
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
    (tmp_path / "log.csv").write_text(LOG, "utf-8")
    assert main(["campaign", written(tmp_path, **keys)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "log.csv:1: is empty; accepted: a first line with the columns time, host, cause"),
        ("time,host,cause\n", "log.csv:1: has no failure; accepted: a CSV with the columns"),
        ("time,host\n", "log.csv:1: the column cause is missing; accepted: time, host, cause"),
        ("time,hosts,cause\n", "log.csv:1: there is no column 'hosts'; did you mean 'host'?"),
        ("time,host,cause\nsoon,a,b\n", "log.csv:2: 'soon' is not a time; accepted: a date like"),
        ("time,host,cause\n3h,a,b\n2025-01-01,a,b\n", "log.csv:2: mixes dates and times from the beginning"),
        ("time,host,cause,repaired\n3h,a,b,2h\n", "log.csv:2: is repaired before it failed"),
        ("time,host,cause\n3h,a\n", "log.csv:2: 2 cells in 3 columns"),
        ("time,host,cause\n3h,a,--\n", "log.csv:2: names no cause"),
        ("[{}]", "log.csv:1: event 0 names no node"),
        ('[{"node_id": "a", "event_time": 1, "event_type": "fault_start"}]', "event 0 has no class of fault"),
        ("[1, 2", "log.csv:1: is no JSON"),
    ],
)
def test_a_log_that_cannot_be_read_is_refused_with_its_line(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text(text, "utf-8")
    assert main(["campaign", written(tmp_path, failures={"log": "log.csv"})]) == 2
    assert said in capsys.readouterr().err


def test_a_replayed_log_names_its_hosts_in_the_table_of_events(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(LOG, "utf-8")
    thermal = [{"name": "gpu", "shows": "slow", "slower_by": "1/2", "noticed_after": "1h"}]
    failures = {"log": "log.csv", "log_use": "replayed", "causes": thermal}
    out = tmp_path / "out"
    assert main(["campaign", written(tmp_path, failures=failures), "--seeds", "1", "--out", str(out)]) == 0
    rows = list(csv.DictReader((out / "events.csv").read_text("utf-8").splitlines()))
    slowed = [(row["begin_ms"], row["end_ms"], row["host"]) for row in rows if row["phase"] == "slowed"]
    hour = 3_600_000
    assert slowed == [
        (str(24 * hour), str(25 * hour), "node-7"),
        (str(46 * hour + hour // 2), str(47 * hour + hour // 2), "node-2"),
    ]
    assert [row["host"] for row in rows if row["phase"] == "noticing"] == ["node-7", ""]
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["causes"] == {"power_supply": 1, "gpu": 2, "switch": 1}
    assert summary["hosts"] == {"struck": 2, "struck_again": 1}
    assert summary["gpu_hours"]["all"] == 10 * 24 * 64
    assert summary["mtbf_s"] == 10 * 86_400 / 4


def test_unplanned_and_planned_stops_have_means_of_their_own_and_auto_obeys_its_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    causes = [{**RACK, "per_hour": "1/2"}, {**RACK, "name": "upgrade", "shows": "planned", "per_hour": "1/3"}]
    path = written(tmp_path, failures={"causes": causes}, checkpoint={"stalls": "1ms"})
    assert main(["campaign", path, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    planned = summary["interruptions"] - summary["unexpected"]
    assert summary["mtbf_s"] == pytest.approx(864_000 / summary["unexpected"], rel=1e-4)
    assert summary["planned_every_s"] == pytest.approx(864_000 / planned, rel=1e-4)
    assert summary["interrupted_every_s"] == pytest.approx(864_000 / summary["interruptions"], rel=1e-4)
    # Daly's interval is 3.8 s; written_after is 33 s, a step 10 s
    assert summary["checkpoint"]["every_s"] == 40


def test_an_expectation_that_fails_ends_with_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, expect=[{"value": "goodput", "at_most": 0.5}])
    assert main(["campaign", path, "--seeds", "1"]) == 1
    assert "FAIL goodput at_most 0.5" in capsys.readouterr().out
    assert main(["campaign", "lama3"]) == 2
    assert "did you mean 'llama3'" in capsys.readouterr().err
