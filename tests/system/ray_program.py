"""A program that starts Ray nodes of its own, in a process of its own: the other tests' cluster has one.

`ray.cluster_utils.Cluster` writes the address of its head to Ray's default directory, whatever `temp_dir`
says, and does not make that directory: on a machine where no other Ray ever ran there is no /tmp/ray. So the
program gets a default directory of its own, and a test cannot disturb another Ray of the machine either.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emu.base.short_paths import MARK, private_directory, remove_private
from emu.cluster.ray.session import ENVIRONMENT
from tests.engine.patience import until

LONGEST_S = 360
DYING_S = 10


def found_by(module: str) -> dict[str, Any]:
    """What a program printed last, a line of JSON. One that takes too long is ended with its stacks."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    directory = private_directory(inhabited=True)
    (directory / "ray").mkdir()
    environment |= {**ENVIRONMENT, "RAY_AUTH_MODE": "disabled", MARK: str(directory)}
    environment |= {"RAY_TMPDIR": str(directory), "PYTHONFAULTHANDLER": "1"}
    try:
        with subprocess.Popen(
            [sys.executable, "-m", module],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        ) as program:
            try:
                said, errors = program.communicate(timeout=LONGEST_S)
            except subprocess.TimeoutExpired:
                program.send_signal(signal.SIGABRT)
                said, errors = program.communicate(timeout=DYING_S)
    finally:
        remove_private(directory)  # with what is left of nodes that were killed
    assert program.returncode == 0, errors[-4000:]
    *_, line = said.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def default_address() -> str:
    """The address of the cluster that Ray takes where a program names none: the last that was started."""
    return Path(os.environ["RAY_TMPDIR"], "ray", "ray_current_cluster").read_text("ascii")


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
