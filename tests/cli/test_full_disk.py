"""A full standard output and places that cannot be written end a command in one line that names them."""

import subprocess
import sys
from pathlib import Path

import pytest

from emu.base.errors import EmuError
from tests.scenario.scenarios import ROOT

WRITERS = (
    "validate tiny_all_reduce",
    "list",
    "--help",
)
NOWHERE = "/proc/nowhere"
PLACES = (
    f"schedule pods --out {NOWHERE}",
    f"topo tiny_all_reduce --svg {NOWHERE}/x.svg",
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
def test_a_place_that_cannot_be_written_is_named_in_one_line(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "emu.cli.main", *words.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (2, 4), done.stderr
    assert "Traceback" not in done.stderr
    assert NOWHERE in done.stderr.splitlines()[-1]
