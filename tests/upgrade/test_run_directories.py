"""Is a run directory of the last release read, or refused with the version that reads it?

`golden/run-0.1.0` was written by emu 0.1.0: three hosts on a star, an incast, a link that is down for 3 us.
"""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from emu.cli.commands.replay import recorded
from emu.cli.main import cli
from emu.errors import UsageError
from emu.measure.metric_names import METRIC_OF
from emu.measure.run_directory.samples import SampleReader
from emu.run_diagnosis import diagnose_directory

RUN = Path(__file__).parent / "golden/run-0.1.0"


def emu(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)), standalone_mode=False)


def test_its_samples_have_the_names_of_today() -> None:
    series = [one for device in SampleReader(RUN / "samples.jsonl").series.values() for one in device]
    assert {one.metric for one in series} <= set(METRIC_OF)
    assert "port_transmit_bytes" in {one.metric for one in series}


def test_its_scenario_is_read_in_the_spelling_of_today() -> None:
    scenario = recorded(RUN).scenario
    assert scenario.expect[0].where.job_name == "train"  # type: ignore[union-attr]


def test_it_is_diagnosed_as_its_own_version_did() -> None:
    summary, found = diagnose_directory(RUN)
    assert [one.model_dump() for one in found] == [one.model_dump() for one in summary.diagnosis]
    assert "nic-0-0:tor-0 was down from 2us to 5us; 22 frames were lost" in found[0].sentence


def test_it_is_exported_under_the_names_of_today(tmp_path: Path) -> None:
    assert emu("export", "openmetrics", RUN, "--out", tmp_path / "om").return_value == 0
    text = (tmp_path / "om").read_text()
    assert 'emu_port_transmit_bytes_total{device="nic-0-0",port="0"}' in text


def test_it_is_compared_with_runs_of_its_own_version() -> None:
    same = emu("compare", RUN, RUN)
    assert (same.return_value, same.output.splitlines()[0]) == (
        0,
        "same answer: digest 4d2e04de43def126ac634c9618eca701c1188460fc3feae3607887cdabb1a78e",
    )


def test_against_a_run_of_today_its_numbers_are_shown_and_its_digest_is_refused(tmp_path: Path) -> None:
    today = tmp_path / "today"
    shutil.copytree(RUN, today)
    header = '{"digest_kind":2,"devices":[[0,"host-0"]]}\n'
    (today / "digests.jsonl").write_text(header)
    summary = (today / "summary.json").read_text()
    (today / "summary.json").write_text(summary.replace("4d2e04de", "00000000"))
    done = emu("compare", RUN, today)
    assert isinstance(done.exception, UsageError)
    assert "is that of emu 0.1.0, another kind" in str(done.exception)
    assert done.output.splitlines()[0] == "digests of two kinds, which are not compared"
    assert "packet-hops" in done.output


def test_its_replay_is_refused_with_the_version_that_replays_it() -> None:
    with pytest.raises(UsageError, match=r"emu 0\.1\.0 replays it"):
        raise emu("replay", RUN).exception or AssertionError
