"""Does `emu slowdown` tell what jobs cost one another?"""

import json
from pathlib import Path

import pytest

from emu import api
from emu.cli.main import main

SCENARIO = """\
name: pair
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 1, spines: 1}
transport: {ack_priority: 6}  # so that no answer waits behind the data of others
jobs:
  - {name: one, ranks: [0, 2], workload: {kind: flows, flows: [{src: 0, dst: 1, size: 4MiB}]}}
  - {name: two, ranks: [1, 3], workload: {kind: flows, flows: [{src: 0, dst: 1, size: 4MiB}]}}
  - {name: far, ranks: [2, 0], workload: {kind: flows, flows: [{src: 0, dst: 1, size: 1KiB}]}}
"""


@pytest.fixture
def pair(tmp_path: Path) -> str:
    path = tmp_path / "pair.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return str(path)


def test_two_jobs_on_one_uplink_take_twice_as_long_and_name_it(
    capsys: pytest.CaptureFixture[str], pair: str
) -> None:
    assert main(["slowdown", pair, "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    value = json.loads(out)
    one, two, far = value["jobs"]
    assert err == ""
    assert [job["ranks"] for job in value["jobs"]] == [2, 2, 2]
    assert 1.8 < one["slowdown"] < 2.1
    assert 1.8 < two["slowdown"] < 2.1
    assert far["slowdown"] < 1.1
    assert [(link["from"], link["to"], link["bytes"]) for link in value["shared_links"]] == [
        ("ctsw-0", "rtsw-1", {"one": 2**22, "two": 2**22}),
        ("rtsw-0", "ctsw-0", {"one": 2**22, "two": 2**22}),
    ]


def test_the_table_names_who_shares_with_whom(capsys: pytest.CaptureFixture[str], pair: str) -> None:
    assert main(["slowdown", pair, "--local", "--quiet"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [lines[1][0], *lines[1][5:]] == ["one", "two", "(2)"]
    assert [lines[3][0], *lines[3][5:]] == ["far", "nobody"]


def test_one_job_costs_nobody_anything(capsys: pytest.CaptureFixture[str], pair: str) -> None:
    off = ("--set", "jobs[0].enabled=false", "--set", "jobs[1].enabled=false")
    assert main(["slowdown", pair, *off]) == 2
    assert "accepted: a scenario with two jobs or more" in capsys.readouterr().err


def test_a_disabled_job_does_nothing_and_leaves_the_others_their_queue_pairs(pair: str) -> None:
    both = api.run(pair, local=True)
    without = api.run(pair, overrides={"jobs[1].enabled": False}, local=True)
    assert without.exit_status == 0
    assert without.summary.jobs["two"].status == "disabled"
    assert without.summary.jobs["two"].start_ps is None
    ends = [run.summary.jobs["one"].end_ps for run in (without, both)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert ends[0] < ends[1]
    plans = [api.prepare(pair, {"jobs[1].enabled": enabled}).jobs for enabled in (True, False)]
    assert plans[0][2] == plans[1][2]


def test_a_scenario_in_which_nothing_runs_is_refused(pair: str) -> None:
    off = {f"jobs[{job}].enabled": False for job in range(3)}
    with pytest.raises(api.ScenarioError, match="no job is enabled"):
        api.prepare(pair, off)


def test_the_report_says_of_a_disabled_job_that_it_is(capsys: pytest.CaptureFixture[str], pair: str) -> None:
    main(["run", pair, "--local", "--set", "jobs[1].enabled=false", "--out", f"{pair}.run"])
    assert "# two: disabled" in capsys.readouterr().out.splitlines()
