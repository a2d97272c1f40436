"""Where do directories go that hold sockets and the like, and who removes them if their owner cannot?

A Unix socket's path ends at 108 bytes, and Ray appends some 64 of its own. So: the user's temporary
directory if its name is short, else the system's.

A process that is killed removes nothing. So each directory has a caretaker: a shell that reads a pipe of
which the owner alone has the other end. When the owner is gone, however it went, the read ends, and the
shell removes the directory. It is nobody's child and in a session of its own, so neither a signal to the
owner's group nor Ray, which ends the children of its workers, reaches it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from emu.errors import RuntimeFailure

LONGEST: Final = 30
"""What may stand before `/emu-xxxxxxxx` and what Ray appends."""
REMOVALS: Final = 30
CARETAKER: Final = """\
trap '' INT TERM HUP
exec 3<&0
users() { find /proc/[0-9]*/fd -lname "$1/*" 2>/dev/null; }
(
    read -r never <&3
    [ -e "$1" ] || exit 0
    tries=0
    while [ "$tries" -lt 15 ] && [ -n "$(users "$1")" ]; do
        tries=$((tries + 1))
        sleep 0.2
    done
    for user in $(users "$1"); do
        user=${user#/proc/}
        kill -9 "${user%%/*}" 2>/dev/null
    done
    rm -rf -- "$1"
) &
"""
"""Ray's own processes find out by themselves that the driver is gone, with the help of files there: so it
waits until nobody has a file open there, and after three seconds ends whoever still has."""

_pipes: dict[Path, int] = {}
"""Our end of the pipe to each directory's caretaker."""


def private_directory() -> Path:
    """A new directory with a short name that only this user may enter. Raises RuntimeFailure.

    It is removed when this process is gone; `remove_private` removes it before.
    """
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108  mkdtemp makes it private
    for place in places:
        if len(os.fsencode(place)) <= LONGEST and os.access(place, os.W_OK | os.X_OK):
            directory = Path(tempfile.mkdtemp(prefix="emu-", dir=place))
            _take_care(directory)
            return directory
    raise RuntimeFailure(f"none of {', '.join(places)} is writable with a name of at most {LONGEST} bytes")


def remove_private(directory: Path) -> None:
    """Remove a directory, to which processes that are just ending may still write, and its caretaker.

    May be called again.
    """
    for _ in range(REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            break
        time.sleep(0.1)
    pipe = _pipes.pop(directory, -1)
    if pipe >= 0:
        os.close(pipe)


def _take_care(directory: Path) -> None:
    reading, writing = os.pipe()
    try:
        subprocess.run(  # noqa: S603  a fixed text; the directory is its argument
            ["/bin/sh", "-c", CARETAKER, "emu-caretaker", str(directory)],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
            cwd="/",
        )
    except OSError:
        os.close(writing)
    else:
        _pipes[directory] = writing
    finally:
        os.close(reading)
