"""Does a program that is run for a private directory end with it, and with whoever runs it?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emu.base.short_paths import private_directory, remove_private, run_for

LIMIT_S = 60.0
CHILD = """
import os, pathlib, subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
place = pathlib.Path(sys.argv[1])
(place / "unfinished").write_text(f"{os.getpid()} {grandchild.pid}")
(place / "unfinished").rename(place / "pids")
while True: pass
"""
PARENT = """
import os, pathlib, sys
from emu.base.short_paths import private_directory, run_for
place = private_directory(inhabited=True)
print(place, flush=True)
run_for(place, [sys.executable, "-c", sys.argv[1], str(place)], os.environ, 600)
"""


def runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until_gone(place: Path, pids: list[int]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while (place.exists() or any(map(runs, pids))) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    left = [pid for pid in pids if runs(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (left, place.exists()) == ([], False)


def test_a_program_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        place = Path(parent.stdout.readline().strip())
        while not (place / "pids").exists():
            assert parent.poll() is None
            time.sleep(0.05)
        pids = [int(word) for word in (place / "pids").read_text().split()]
        assert all(map(runs, pids))
        parent.kill()
    until_gone(place, pids)


def test_a_program_ends_when_its_time_is_up() -> None:
    place = private_directory(inhabited=True)
    with pytest.raises(TimeoutError):
        run_for(place, [sys.executable, "-c", CHILD, str(place)], os.environ, 3)
    remove_private(place)
    assert not place.exists()


def test_what_a_program_prints_and_its_status_come_back() -> None:
    place = private_directory(inhabited=True)
    says = "import sys; print('a'); print('b', file=sys.stderr); sys.exit(7)"
    assert run_for(place, [sys.executable, "-u", "-c", says], os.environ, LIMIT_S) == (7, "a\nb\n")
    remove_private(place)
