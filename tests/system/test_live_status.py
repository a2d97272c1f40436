"""What does a live run show to somebody who sits before it? In a terminal of its own, as a person has it."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def seen(out: Path, scenario: str, *options: str) -> str:
    """Everything that was written to the terminal, without its colours."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "emu.cli.main", "up", str(ROOT / "scenarios" / scenario), "--local"]
    with subprocess.Popen(
        [*command, "--out", str(out), *options],
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
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
        assert process.wait(60) == 0, text.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode())


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        ("tiny_all_reduce.yaml", r"ring: [0-9]+ done, all_reduce 256KiB [0-9.]+Gbps"),
        ("training_step.yaml", r"train: step [0-9]+ done, [0-9.]+[mu]s"),
        ("tiny_flap.yaml", r"delivering .*faults [0-9] active of 3"),
    ],
)
def test_the_status_line_says_how_far_each_kind_of_job_is(scenario: str, told: str, tmp_path: Path) -> None:
    text = seen(tmp_path / "run", scenario, "--pace", "2ms/s", "--for", "2ms", "--set", "expect=[]")
    assert re.search(told, text), text
    assert " a second)" in text
