"""Does a build server see which expectations failed?"""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from emu.cli.main import main

SCENARIO = """
name: two
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 1, gpus_per_host: 1, spines: 1}
jobs: [{name: a, workload: {kind: flows, flows: [{src: 0, dst: 1, size: 4KiB}]}}]
expect:
  - {value: jobs.a.status, equals: success}
  - {value: jobs.a.status, equals: "<no & luck>"}
"""


@pytest.mark.parametrize("command", [["run"], ["up", "--for", "1ms", "--pace", "max"]], ids=["run", "up"])
def test_each_expectation_is_a_case_and_so_is_the_ending(command: list[str], tmp_path: Path) -> None:
    scenario, report = tmp_path / "two.yaml", tmp_path / "report.xml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    out = ["--out", str(tmp_path / "run"), "--junit", str(report)]
    assert main([command[0], str(scenario), *command[1:], "--local", "--quiet", *out]) == 1
    suite = ET.fromstring(report.read_text(encoding="utf-8"))[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("two", "3", "1")
    found = [(case.get("name"), case.find("failure") is None) for case in suite]
    assert found == [
        ("jobs.a.status equals success", True),
        ("jobs.a.status equals <no & luck>", False),
        ("ending", True),
    ]
