"""Private directories with short paths, for sockets and the like, and their removal by a caretaker process.

A Unix socket's path ends at 108 bytes, and Ray appends some 64 of its own. So: the user's temporary
directory if its name is short, else the system's.

A process that is killed removes nothing. So each directory has a caretaker: a shell that reads a pipe of
which the owner alone has the other end. When the owner is gone, however it went, the read ends, and the
shell removes the directory. It is nobody's child and in a session of its own, so neither a signal to the
owner's group nor Ray, which ends the children of its workers, reaches it.

Where processes are started for a directory (`started_for`), they begin sessions of their own, and they and
all they start carry its name in their environment. The caretaker ends those, and only those, before it
removes the directory: what is left of a Ray that was killed while it started may live on, and write there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from emu.base.errors import RuntimeFailure

LONGEST: Final = 30
"""What may stand before `/emu-xxxxxxxx` and what Ray appends."""
REMOVALS: Final = 30
CARED_S: Final = 20.0
"""How long an owner that ends waits for the caretaker: it takes tenths of a second."""
MARK: Final = "EMU_STARTED_FOR"
"""The environment variable by which a caretaker knows processes; see `started_for`."""
CARETAKER: Final = """\
trap '' INT TERM HUP
exec 3<&0
directory=$1 mark=$2 apart_from=$3
(
    enough=20
    read -r never <&3 && enough=3
    looks=0 none=0 known=' '
    [ -n "$mark" ] || none=20
    while [ "$none" -lt "$enough" ] && [ "$looks" -lt 200 ]; do
        looks=$((looks + 1)) none=$((none + 1))
        for one in $(grep -lsF -- "$mark=$directory" /proc/[0-9]*/environ); do
            one=${one#/proc/}
            pid=${one%%/*}
            known="$known$pid "
            read -r stat <"/proc/$pid/stat" || continue
            set -- ${stat##*) }
            case "$4" in
            0 | "$apart_from") ;;
            *) known="$known$4 " ;;
            esac
        done
        for one in $(find /proc/[0-9]*/fd -lname "$directory/*" -perm -200); do
            one=${one#/proc/}
            read -r stat <"/proc/${one%%/*}/stat" || continue
            set -- ${stat##*) }
            case "$4" in
            0 | "$apart_from") ;;
            *) known="$known$4 " ;;
            esac
        done
        for one in /proc/[0-9]*/stat; do
            read -r stat <"$one" || continue
            pid=${stat%% *}
            set -- ${stat##*) }
            case "$1$known" in
            [ZX]*) ;;
            *" $pid "* | *" $4 "*)
                none=0
                kill -9 "$pid"
                ;;
            esac
        done
        [ "$none" -ge "$enough" ] || sleep 0.05
    done
    rm -rf -- "$directory"
) 2>/dev/null &
"""
"""It looks until it has found nobody three times, or for a second if the owner was killed and so had ended
nothing itself. A process is known by its environment, or by the session of one that was, unless that is
the owner's own or outside the container (0): the kernel shows no environment of one that is just becoming
another program, and one that gave itself a name (Ray's agents do) has overwritten its own. Those are known
by the files in the directory that they write to. One that even SIGKILL does not end, as it waits for a
device, is left after 200 looks."""

_pipes: dict[Path, int] = {}
"""Our end of the pipe to each directory's caretaker."""
_inhabited: set[Path] = set()
"""Directories for which processes may be started."""
_forking: Final = threading.local()
"""`apart` is true for a thread while what it forks is to leave the session."""


def private_directory(*, inhabited: bool = False) -> Path:
    """A new directory with a short name that only this user may enter; `inhabited` if processes will be
    started for it. Raises RuntimeFailure.

    It is removed when this process is gone; `remove_private` removes it before.
    """
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108  mkdtemp makes it private
    for place in places:
        if len(os.fsencode(place)) <= LONGEST and os.access(place, os.W_OK | os.X_OK):
            try:
                directory = Path(tempfile.mkdtemp(prefix="emu-", dir=place))
            except OSError:  # it is full, or read-only
                continue
            _take_care(directory, MARK if inhabited else "")
            if inhabited:
                _inhabited.add(directory)
            return directory
    raise RuntimeFailure(f"none of {', '.join(places)} is writable with a name of at most {LONGEST} bytes")


@contextmanager
def started_for(directory: Path) -> Iterator[None]:
    """What this thread starts meanwhile, and all that is started by that, ends with a private directory.

    It leaves this process's session, and so hears no signal to its group. Where `subprocess` is used, a
    `preexec_fn` must be given for that, or `start_new_session`.
    """
    assert directory in _inhabited, directory
    if not hasattr(_forking, "apart"):
        os.register_at_fork(after_in_child=_leave_session)
    before = os.environ.get(MARK)
    os.environ[MARK] = str(directory)
    _forking.apart = True
    try:
        yield
    finally:
        _forking.apart = False
        if before is None:
            del os.environ[MARK]
        else:
            os.environ[MARK] = before


def _leave_session() -> None:
    if getattr(_forking, "apart", False):
        _forking.apart = False
        os.setsid()


def remove_private(directory: Path) -> None:
    """Remove a directory, what was started for it, and its caretaker. May be called again."""
    pipe = _pipes.pop(directory, -1)
    if directory in _inhabited and pipe >= 0:
        with suppress(OSError):  # the caretaker itself was ended
            os.write(pipe, b"\n")
        deadline_s = time.monotonic() + CARED_S
        while directory.exists() and time.monotonic() < deadline_s:
            time.sleep(0.01)
    for _ in range(REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            break
        time.sleep(0.1)
    _inhabited.discard(directory)
    if pipe >= 0:
        os.close(pipe)


def _take_care(directory: Path, mark: str) -> None:
    import subprocess  # noqa: PLC0415 - only where a private directory is made

    reading, writing = os.pipe()
    try:
        subprocess.run(  # noqa: S603  a fixed text; the directory is its argument
            ["/bin/sh", "-c", CARETAKER, "emu-caretaker", str(directory), mark, str(os.getsid(0))],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name != MARK},
        )
    except OSError:
        os.close(writing)
    else:
        _pipes[directory] = writing
    finally:
        os.close(reading)
