"""A full standard output and places that cannot be written end a command in one line that names them."""

import subprocess
import sys
from pathlib import Path

import pytest

from emu.base.errors import EmuError
from emu.cli.main import main
from tests.scenario.scenarios import ROOT

WRITERS = (
    "validate tiny_all_reduce",
    "list",
    "--help",
)
PLACES = (
    "schedule segments --out {}",
    "schedule segments --at 1h --write {}",
    "campaign llama3 --out {}",
    "topo tiny_all_reduce --svg {}",
    "new tiny_all_reduce {}",
    "import scenarios/workloads/chakra.0.et --output {}",
)


@pytest.mark.parametrize("words", WRITERS)
def test_a_full_standard_output_is_one_line(words: str) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "emu.cli.main", *words.split()],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    last = done.stderr.splitlines()[-1:]
    assert (done.returncode, last) == (
        EmuError.exit_status,
        ["emu: standard output: No space left on device"],
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", PLACES)
def test_a_place_that_cannot_be_written_is_named_in_one_line(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory that no file may be written to, below a file, and a file where there is to be a
    directory, or the other way round."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "file").touch()
    (tmp_path / "directory" / "kept").mkdir(parents=True)
    wrong = tmp_path / ("file" if "--out " in words else "directory")
    places = [Path("/proc/nowhere/x.svg"), tmp_path / "file" / "x.svg"]
    places += [] if words.startswith("new") else [wrong]  # which writes into a directory
    for place in places:
        assert main(words.format(place).split()) in (2, 4)
        lines = capsys.readouterr().err.splitlines()
        assert (len(lines), "Traceback" in lines[-1]) == (1, False), lines
        assert str(place) in lines[0] or str(place.parent) in lines[0], lines
        assert ".part" not in lines[0]
