"""Where do directories go that hold Unix sockets?

A Unix socket's path ends at 108 bytes, and Ray appends some 64 of its own. So: the user's temporary
directory if its name is short, else the system's.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from emu.errors import RuntimeFailure

LONGEST: Final = 30
"""What may stand before `/emu-xxxxxxxx` and what Ray appends."""


def private_directory() -> Path:
    """A new directory with a short name that only this user may enter. Raises RuntimeFailure."""
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]  # noqa: S108  mkdtemp makes it private
    for place in places:
        if len(os.fsencode(place)) <= LONGEST and os.access(place, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="emu-", dir=place))
    raise RuntimeFailure(f"none of {', '.join(places)} is writable with a name of at most {LONGEST} bytes")
