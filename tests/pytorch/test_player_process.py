"""What a user sees of a script while it is recorded, and what is left when the command is killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from emu.doors.pytorch import player_process
from emu.doors.pytorch.commands import torchrun
from emu.doors.pytorch.kernels import GPUS
from emu.doors.pytorch.torchrun import Recording, ScriptError

PRINTS = """
import argparse, sys
print("loading", flush=True)
parser = argparse.ArgumentParser()
parser.add_argument("--layers")
parser.parse_args()
sys.stderr.write("no data\\n")
def load():
    raise ValueError("nothing in here")
load()
"""


def needs_torch() -> None:
    pytest.importorskip(
        "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
    )


def test_a_scripts_own_output_and_errors_are_seen(tmp_path: Path) -> None:
    needs_torch()
    script = tmp_path / "train.py"
    script.write_text(PRINTS)
    wrong = ["--ranks", "4", str(script), "--bogus"]
    done = CliRunner().invoke(torchrun.command, wrong, standalone_mode=False)
    assert done.stdout == "loading\n"
    assert "train.py: error: unrecognized arguments: --bogus" in done.stderr
    assert "ended with status 2: train.py: error: unrecognized arguments: --bogus" in str(done.exception)
    quiet = CliRunner().invoke(torchrun.command, ["--quiet", *wrong], standalone_mode=False)
    assert quiet.output == ""
    assert str(quiet.exception) == str(done.exception)


def test_an_error_of_the_script_has_its_traceback_from_the_script_on(tmp_path: Path) -> None:
    needs_torch()
    script = tmp_path / "train.py"
    script.write_text(PRINTS)
    lines: list[tuple[str, bool]] = []
    recording = Recording(
        [str(script)], 8, 8, GPUS["h100"], shown=lambda line, is_error: lines.append((line, is_error))
    )
    with pytest.raises(ScriptError, match=r"train\.py:9: rank 0 .*: ValueError: nothing in here$"):
        recording.play(0)
    assert lines[0] == ("loading", False)
    assert ("no data", True) in lines
    errors = [line for line, is_error in lines if is_error]
    assert errors[-1] == "ValueError: nothing in here"
    files = [line for line in errors if line.startswith("  File ")]
    assert len(files) == 2  # of the script alone: no frame of emu or of runpy
    assert all(str(script) in line for line in files)


def test_a_killed_command_leaves_neither_process_nor_folder(tmp_path: Path) -> None:
    needs_torch()
    script, mark, place = tmp_path / "loop.py", tmp_path / "pid", tmp_path / "tmp"
    place.mkdir()
    script.write_text(
        f"import os, pathlib\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\nwhile 1: pass\n"
    )
    words = [sys.executable, "-m", "emu.cli.main", "torchrun", "--ranks", "4", "--dry", str(script)]
    with subprocess.Popen(words, env={**os.environ, "TMPDIR": str(place)}) as command:
        while not mark.exists() or not mark.read_text():
            assert command.poll() is None
            time.sleep(0.05)
        player = int(mark.read_text())
        assert list(place.iterdir())
        command.send_signal(signal.SIGKILL)
    while Path(f"/proc/{player}").exists() or list(place.iterdir()):
        time.sleep(0.05)  # the timeout of tests ends this if it does not come


def test_a_long_recording_reports_how_far_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(player_process, "PROGRESS_S", 0.0)
    (tmp_path / "slow_player.py").write_text(
        "import sys, time\n"
        "from emu.doors.pytorch.player_process import watch_parent\n"
        "watch_parent(int(sys.argv[2]), lambda: (1, 48213), lambda: None)\n"
        "time.sleep(2.5)\n"
    )
    said: list[str] = []
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    process = player_process.PlayerProcess(
        ["slow_player"], environment, lambda *_: None, said.append, "rank 3"
    )
    assert process.wait(60).status == 0
    assert said
    assert said[0].startswith("rank 3: recording for ")
    assert said[0].endswith(": 1 step done, 48,213 operations recorded")


def test_a_player_ends_when_its_parents_end_of_the_line_closes() -> None:
    ours, theirs = socket.socketpair()
    text = (
        "import sys, time\n"
        "from emu.doors.pytorch.player_process import watch_parent\n"
        f"watch_parent({theirs.fileno()}, lambda: (0, 0), lambda: print('removed', flush=True))\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, pass_fds=[theirs.fileno()], text=True
    )
    theirs.close()
    assert ours.recv(64).startswith(b"[0, 0]")
    ours.close()
    out, _ = process.communicate()
    assert (out, process.returncode) == ("removed\n", 1)
