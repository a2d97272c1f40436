"""A line file that would grow too large ends the run with one clear line; what was written is whole."""

import json
from pathlib import Path

import pytest

from emu.base.errors import RuntimeFailure
from emu.cli.main import main
from emu.run_directory import run_directory
from tests.scenarios_run.small import ROOT

TINY = ROOT / "scenarios/start/tiny_all_reduce.yaml"


@pytest.mark.parametrize(
    ("name", "most_bytes"),
    [("samples.jsonl", 30_000), ("digests.jsonl", 2000)],
)
def test_samples_end_the_run_in_one_line_before_they_fill_the_disk(
    name: str,
    most_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(run_directory.MOST_BYTES, name, most_bytes)
    out = tmp_path / "out"
    words = ["run", str(TINY), "--local", "--quiet", "--set", "run.sample_every=100ns", "--out", str(out)]
    assert main(words) == 4
    (line,) = capsys.readouterr().err.splitlines()
    hint = "(sample more rarely, with run.sample_every); what was written before is whole"
    grown = f"{out / name}: would grow beyond {most_bytes} bytes {hint}"
    assert line == f"emu: {grown}"
    assert 0 < (out / name).stat().st_size <= most_bytes
    assert [json.loads(text) for text in (out / name).read_text().splitlines()]


def test_the_journal_has_room_for_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_directory.RunDirectory.create("one", tmp_path / "one") as directory:
        directory.journal("begin", 0)
        monkeypatch.setitem(run_directory.MOST_BYTES, "journal.jsonl", 10)
        with pytest.raises(RuntimeFailure, match="would grow beyond 10 bytes; what was"):
            directory.journal("link", 5)
        directory.journal("end", 9)
    lines = (tmp_path / "one" / "journal.jsonl").read_text().splitlines()
    assert [json.loads(text)["kind"] for text in lines] == ["begin", "end"]
