"""A private directory is gone when its owner is, however that ended, and so are its caretaker and what was
started for it; nothing else is."""

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from emu.base.short_paths import private_directory, remove_private, started_for
from tests.engine.patience import PATIENCE_S, alive, until
from tests.scenarios_run.small import ROOT

OWNER = """
import sys, time
from emu.base.short_paths import private_directory
directory = private_directory()
(directory / "socket").touch()
print(directory, flush=True)
time.sleep(3600)
"""

LATE = """
import os, subprocess, sys, time
from pathlib import Path
from emu.base.short_paths import private_directory, started_for
directory = private_directory(inhabited=True)
writing = 'while :; do mkdir -p "$0"; : >"$0/late"; sleep 0.01; done'
with started_for(directory):
    inside = subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM; ({writing}) & {writing}", str(directory)])
outside = subprocess.Popen(["sleep", "3600"], start_new_session=True)
print(directory, inside.pid, outside.pid, flush=True)
time.sleep(3600)
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
    return until(lambda: not directory.exists() and not caretakers(directory))


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


def started(directory: Path) -> list[str]:
    """Who carries the mark of a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and os.fsencode(f"={directory}") in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


def test_what_was_started_for_a_directory_ends_with_its_owner_and_nothing_else_does() -> None:
    place = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    with subprocess.Popen(
        [sys.executable, "-c", LATE],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        name, inside, outside = owner.stdout.readline().split()
        directory = Path(name)
        until(lambda: inside in started(directory) and len(started(directory)) >= 2)
        owner.kill()
    assert gone(directory)
    assert started(directory) == []
    os.kill(int(outside), signal.SIGKILL)
    place.rmdir()


def test_a_directory_is_removed_once_what_was_started_for_it_is_gone() -> None:
    directory = private_directory(inhabited=True)
    with started_for(directory):
        inside = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; sleep 3600; :"], env=None)
    outside = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    remove_private(directory)
    assert not directory.exists()
    assert inside.wait(PATIENCE_S) == -signal.SIGKILL
    assert outside.poll() is None
    outside.kill()
    outside.wait()
    assert gone(directory)


NAMELESS = """
import os, subprocess, sys, time
from emu.base.short_paths import private_directory, started_for
directory = private_directory(inhabited=True)
(directory / "read").touch()
with started_for(directory):
    # As Ray's agents do, which overwrite what the kernel shows of their environment.
    writes = ["env", "-i", "/bin/sh", "-c", 'exec 9>>"$0/log"; sleep 3600', str(directory)]
    inside = subprocess.Popen(writes, start_new_session=True)
reads = ["env", "-i", "/bin/sh", "-c", 'exec 9<"$0/read"; sleep 3600', str(directory)]
outside = subprocess.Popen(reads, start_new_session=True)
while not (directory / "log").exists():
    time.sleep(0.01)
print(directory, inside.pid, outside.pid, flush=True)
time.sleep(3600)
"""


def test_a_process_that_hides_its_environment_is_ended_if_it_writes_there_and_a_reader_is_not() -> None:
    owner = subprocess.Popen([sys.executable, "-c", NAMELESS], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    directory, inside, outside = owner.stdout.readline().split()
    owner.stdout.close()
    try:
        owner.kill()
        owner.wait(PATIENCE_S)
        assert gone(Path(directory))
        assert not alive(int(inside))
        assert alive(int(outside))
    finally:
        os.killpg(int(outside), signal.SIGKILL)
