"""The project's scenarios, smaller and brief, each with the mechanisms it is about.

Tests that run every scenario in many ways run its first part; whole, each is run once, for what it expects.

As a program it runs them in one part and prints a line for each, name and digest:

    python -m tests.scenarios_run.small
"""

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from emu import api
from emu.base.shipped import scenario_names

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(scenario_names())
BY_FLOW = tuple(
    file.stem
    for file in (ROOT / "scenarios").rglob("*.yaml")
    if "\nfidelity: flow" in file.read_text("utf-8")
)
PACKETS = [name for name in SCENARIOS if not name.startswith(BY_FLOW)]
"""Those that have parts, workers and snapshots; flow level goes through in one process."""

_ALL_GATHER = {
    "jobs[0].workload.sizes": ["1MiB"],
    "jobs[1].workload.sizes": ["1MiB"],
    "ncclx.channels": 2,
}
SMALLER: Mapping[str, Mapping[str, object]] = {
    "all_gather": {"jobs[0].workload.sizes": ["256KiB", "512KiB"]},
    "disjoint_paths": {f"jobs[{job}].workload.sizes": ["512KiB"] for job in range(4)},
    "dual_tor_least_loaded": {"jobs[0].workload.sizes": ["1MiB"]},
    "few_queue_pairs": {"jobs[0].workload.size": "13440B"},
    "incast": {"jobs[0].workload.size": "1MiB"},
    "many_queue_pairs": {"jobs[0].workload.size": "42000B", "jobs[0].workload.fan_in": 20},
    "permutation": {"jobs[0].workload.size": "512KiB"},
    "polarisation": {"jobs[0].workload.sizes": ["1MiB"]},
    "polarisation_cured": {"jobs[0].workload.sizes": ["1MiB"]},
    "policies": {"jobs[0].workload.sizes": ["512KiB"], "jobs[0].workload.iterations": 1},
    "quickstart": {"jobs[0].workload.sizes": ["256KiB"], "topology.spines": 4, "topology.racks": 2},
    "reproduce_all_gather": _ALL_GATHER,
    "reproduce_all_gather_unaware": _ALL_GATHER,
    "reproduce_llama3": {"jobs[0].workload.model": "llama3-8b", "jobs[0].workload.scale": "1/100"},
    "reproduce_metaroce": {"jobs[0].workload.size": "256KiB"},
    "reduce_scatter": {"jobs[0].workload.sizes": ["256KiB", "512KiB"], "topology.spines": 4},
    "reproduce_rails": {"jobs[0].workload.sizes": ["4MiB"]},
    "reproduce_tuning_both": {"jobs[0].workload.sizes": ["256KiB"]},
    "reproduce_tuning_library": {"jobs[0].workload.sizes": ["512KiB"]},
    "storage_many_hosts": {"topology.racks_per_pod": 32},
    "storage_nfs": {"jobs[0].workload.size": "256KB"},
    "telling_loads": {"jobs[0].workload.sizes": ["128KiB"]},
    "telling_loads_all_to_all": {"jobs[0].workload.sizes": ["128KiB"]},
    "telling_loads_dense_training": {"jobs[0].workload.scale": "1/16000"},
    "telling_loads_experts": {"jobs[0].workload.scale": "1/2000"},
    "telling_loads_permutation": {"jobs[0].workload.size": "64KiB"},
    "telling_loads_scattered_rings": {f"jobs[{job}].workload.sizes": ["128KiB"] for job in range(4)},
    "traffic_engineering": {"routing.interval": "100us", "control.management_delay": "20us"},
    "transport_infiniband": {"jobs[0].workload.sizes": ["2MiB"]},
    "transport_roce": {"jobs[0].workload.sizes": ["4MiB"]},
    "transport_tcp": {"jobs[0].workload.sizes": ["4MiB"]},
}
WHOLE = bool(os.environ.get("EMU_SOAK"))
BRIEF_PS = 400_000_000
HITS_THE_BUSIEST = ("busiest_uplink",)
"""What its fault hits depends on when samples are taken."""


def smaller(name: str) -> dict[str, object]:
    """What the tests change in a scenario that is large; nothing in a soak."""
    return {} if WHOLE else dict(SMALLER.get(name, {}))


@cache
def _times_ps(name: str) -> tuple[int, int]:
    """How often a scenario is sampled, and when it ends at the latest."""
    run = api.load(name).scenario.run
    return run.sample_every_ps, run.max_time_ps


def brief(name: str) -> dict[str, object]:
    """The same, few samples, and an end after `BRIEF_PS` of virtual time at the latest."""
    if WHOLE:
        return {}
    sample_every_ps, max_time_ps = _times_ps(name)
    changes = smaller(name)
    if name not in HITS_THE_BUSIEST:
        changes["run.sample_every"] = f"{max(sample_every_ps, BRIEF_PS // 4)}ps"
    if max_time_ps > BRIEF_PS:
        changes["run.max_time"] = f"{BRIEF_PS}ps"
    return changes


@cache
def loaded(name: str) -> api.Loaded:
    """A scenario, made smaller and brief; in a soak as it is."""
    return api.load(name, brief(name))


@cache
def digest_of(name: str) -> str:
    """What it answers in one part, here."""
    return api.run(loaded(name), local=True, diagnose=False).summary.digest


if __name__ == "__main__":
    for each in SCENARIOS:
        sys.stdout.write(f"{each} {digest_of(each)}\n")
