"""A program that starts Ray nodes of its own, in a process of its own: the other tests' cluster has one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.runtime.ray_session import ENVIRONMENT
from actors.runtime.short_paths import MARK, private_directory, remove_private
from tests.runtime.patience import until

LONGEST_S = 1200


def found_by(module: str) -> dict[str, Any]:
    """What a program printed last, a line of JSON."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    directory = private_directory(inhabited=True)
    environment |= {**ENVIRONMENT, "RAY_AUTH_MODE": "disabled", MARK: str(directory)}
    try:
        ran = subprocess.run(
            [sys.executable, "-m", module],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            env=environment,
            check=False,
            start_new_session=True,
        )
    finally:
        remove_private(directory)  # with what is left of nodes that were killed
    assert ran.returncode == 0, ran.stderr[-2000:]
    *_, line = ran.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


@contextmanager
def place_of_nodes() -> Iterator[str]:
    """A directory of nodes, with a short name; it goes once the last of what they started writes no more."""
    place = tempfile.mkdtemp(prefix="emu-", dir="/tmp")

    def removed() -> bool:
        shutil.rmtree(place, ignore_errors=True)
        return not Path(place).exists()

    try:
        yield place
    finally:
        until(removed)
