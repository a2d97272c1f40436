"""What does a live run show to somebody who sits before it? In a terminal of its own, as a person has it."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def seen(out: Path, scenario: str, *options: str, columns: int = 200) -> str:
    """Everything that was written to a terminal so wide, without its colours."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "emu.cli.main", "up", scenario, "--local"]
    with subprocess.Popen(
        [*command, "--out", str(out), *options],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": str(columns)},
    ) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # The last of those who write has gone.
                break
            text += more
        os.close(ours)
        assert process.wait() == 0, text.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode())


@pytest.mark.parametrize(
    ("scenario", "reported"),
    [
        ("tiny_all_reduce", r"ring: [0-9]+ done, all_reduce 256KiB [0-9.]+GB/s"),
        ("training_step", r"train: step [0-9]+ done, [0-9.]+[mu]s"),
        ("tiny_flap", r"delivering .*faults [0-9] active of 3"),
    ],
)
def test_the_status_line_says_how_far_each_kind_of_job_is(
    scenario: str, reported: str, tmp_path: Path
) -> None:
    text = seen(tmp_path / "run", scenario, "--pace", "2ms/s", "--for", "2ms", "--set", "expect=[]")
    assert re.search(reported, text), text
    assert " a second)" in text


def test_the_status_line_goes_on_below_where_the_terminal_is_narrow(tmp_path: Path) -> None:
    text = seen(
        tmp_path / "run",
        "tiny_flap",
        *("--pace", "2ms/s", "--for", "2ms", "--set", "expect=[]"),
        columns=60,
    )
    status = [line for line in re.split(r"[\r\n]+", text.partition("results in")[0]) if " a second)" in line]
    assert status
    assert max(map(len, status)) <= 60
    assert re.search(r"faults\s+[0-9]\s+active\s+of\s+3", text), text


def test_what_a_fault_on_the_busiest_hits_is_reported_as_it_strikes(tmp_path: Path) -> None:
    text = seen(tmp_path / "run", "busiest_uplink", "--pace", "max", "--for", "2ms", "--set", "expect=[]")
    assert re.search(r"fault 0 hits [a-z]+-[0-9]+[:>][a-z]+-[0-9]+ at ", text), text
