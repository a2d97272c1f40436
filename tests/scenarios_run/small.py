"""The project's scenarios, smaller where a whole one would take long, each with the mechanisms it is about.

As a program it runs them in one part and prints a line for each, name and digest:

    python -m tests.scenarios_run.small
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from emu import api

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(path.stem for path in (ROOT / "scenarios").glob("*.yaml"))

SMALLER: Mapping[str, Mapping[str, object]] = {
    "all_gather": {"jobs[0].workload.sizes": ["256KiB", "512KiB"]},
    "incast": {"jobs[0].workload.size": "1MiB"},
    "permutation": {"jobs[0].workload.size": "512KiB"},
    "quickstart": {"jobs[0].workload.sizes": ["512KiB"], "topology.spines": 4},
    "reduce_scatter": {"jobs[0].workload.sizes": ["256KiB", "512KiB"], "topology.spines": 4},
}
WHOLE = bool(os.environ.get("EMU_SOAK"))


def path_of(name: str) -> Path:
    """The file of a scenario."""
    return ROOT / "scenarios" / f"{name}.yaml"


def loaded(name: str) -> api.Loaded:
    """A scenario, made smaller; in a soak as it is."""
    return api.load(path_of(name), {} if WHOLE else SMALLER.get(name))


def digest_of(name: str) -> str:
    """What it answers in one part, here."""
    return api.run(loaded(name), local=True).summary.digest


if __name__ == "__main__":
    for each in SCENARIOS:
        sys.stdout.write(f"{each} {digest_of(each)}\n")
