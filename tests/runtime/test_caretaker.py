"""A private directory is gone when its owner is, however the owner ended, and so is its caretaker."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from actors.runtime.short_paths import private_directory, remove_private
from tests.scenarios_run.small import ROOT

OWNER = """
import sys, time
from actors.runtime.short_paths import private_directory
directory = private_directory()
(directory / "socket").touch()
print(directory, flush=True)
time.sleep(60)
"""


def caretakers(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"emu-caretaker" in words and os.fsencode(directory) in words:
                found.append(int(entry.name))
    return found


def gone(directory: Path) -> bool:
    deadline_s = time.monotonic() + 20
    while (directory.exists() or caretakers(directory)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return not directory.exists() and not caretakers(directory)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_directory_of_a_process_that_was_ended_is_removed(number: signal.Signals) -> None:
    place = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        directory = Path(owner.stdout.readline().strip())
        assert directory.parent == place
        assert directory.stat().st_mode & 0o777 == 0o700
        assert len(caretakers(directory)) == 1
        os.killpg(owner.pid, number)
    assert gone(directory)
    place.rmdir()


def test_directory_that_its_owner_removes_leaves_no_caretaker() -> None:
    directories = [private_directory() for _ in range(2)]
    assert [len(caretakers(directory)) for directory in directories] == [1, 1]
    for directory in directories:
        remove_private(directory)
        remove_private(directory)
    assert all(gone(directory) for directory in directories)
