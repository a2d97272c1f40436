"""One run on a cluster of three Ray nodes gives the answer of one process, compiled or not on each."""

import json
import os
import subprocess
import sys

import pytest

import emu


@pytest.mark.ray
def test_three_nodes_give_the_answer_of_one_process_compiled_or_not() -> None:
    """In a process of its own: the other tests' cluster has one node."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.system.three_nodes"],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert (found["ending"], found["agree"], found["nodes"]) == ("finished", True, 3)
    compiled = [how for how, _ in found["workers"]]
    assert compiled == [emu.is_compiled(), emu.is_compiled(), False]
    (pinned,) = (worker for worker, (_, devices) in enumerate(found["workers"]) if "nic-0-0" in devices)
    assert pinned == 2
