"""A program that starts Ray nodes of its own, in a process of its own: the other tests' cluster has one."""

import json
import os
import subprocess
import sys
from typing import Any


def found_by(module: str) -> dict[str, Any]:
    """What a program printed last, a line of JSON."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    ran = subprocess.run(
        [sys.executable, "-m", module],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    (line,) = ran.stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found
