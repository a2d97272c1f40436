"""Does every scenario of the project show what it says, and always the same?"""

import os
import subprocess
import sys

import pytest

import emu
from emu import api
from tests.scenarios_run.small import ROOT, SCENARIOS, digest_of

pytestmark = pytest.mark.long

SAMPLED_FOR_A_FAULT = ("busiest_uplink",)
"""Its fault hits what sent most between samples, so they are as far apart as that is to be looked at."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_expectation_of_a_scenario_holds(name: str) -> None:
    loaded = api.load(name)
    result = api.run(loaded, local=True)
    verdicts = result.summary.expectations
    assert verdicts, "a scenario says what it expects"
    assert [f"{one.value}: {one.reason}" for one in verdicts if not one.passed] == []
    assert result.exit_status == 0
    if name not in SAMPLED_FOR_A_FAULT:
        every_ps = loaded.scenario.run.sample_every_ps
        assert result.summary.virtual_ps // every_ps >= 200, "run.sample_every gives a picture in 200 points"


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    """Every scenario's answer in this interpreter."""
    return {name: digest_of(name) for name in SCENARIOS}


@pytest.mark.parametrize(
    "changed",
    [  # this interpreter's own hash seed is drawn, and it runs compiled where that is possible
        pytest.param({"PYTHONHASHSEED": "1", "EMU_INTERPRETED": "1"}, id="interpreted, hash seed 1"),
        pytest.param(
            {"PYTHONHASHSEED": "0", "EMU_INTERPRETED": ""}, id="compiled, hash seed 0", marks=pytest.mark.soak
        ),
    ],
)
def test_answers_are_the_same_in_every_interpreter(changed: dict[str, str], digests: dict[str, str]) -> None:
    if changed["EMU_INTERPRETED"] and not emu.is_compiled():
        pytest.skip("nothing is compiled here, so this interpreter is the interpreted one")
    done = subprocess.run(
        [sys.executable, "-m", "tests.scenarios_run.small"],
        cwd=ROOT,
        env=os.environ | changed,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert dict(line.split() for line in done.stdout.splitlines()) == digests
