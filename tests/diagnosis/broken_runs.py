"""Runs of a repeated collective with one fault, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu import api
from emu.results.summary import Diagnosed, Summary
from tests.scenario.plain import plain

FABRIC: dict[str, Any] = {
    "kind": "ai_zone",
    "racks": 2,
    "hosts_per_rack": 2,
    "gpus_per_host": 2,
    "spines": 2,
    "link": "100G",
}
RING: dict[str, Any] = {"kind": "collective", "op": "all_reduce", "sizes": ["256KiB"], "iterations": 8}
INCAST: dict[str, Any] = {
    "kind": "incast",
    "size": "1MiB",
    "fan_in": 5,
    "destination": 0,
}


def scenario(*faults: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A scenario with these faults: two racks, two spines, a ring."""
    return plain(
        {
            "name": "broken",
            "seed": 5,
            "topology": FABRIC,
            "routing": {"kind": "e_ecmp", "convergence": "20us"},
            "control": {"management_delay": "5us"},
            "transport": {"timeout": 4, "retry_count": 3},
            "switch": {"buffer": {"pool": "2MiB"}},
            "run": {"sample_every": "50us", "stall_after": "10ms"},
            "jobs": [{"name": "train", "workload": RING}],
            "faults": list(faults),
        }
        | more
    )


def run_of(*faults: dict[str, Any], out: Path | None = None, **more: Any) -> Summary:
    """A run with these faults."""
    return api.run(scenario(*faults, **more), local=True, out=out).summary


def said_of(*faults: dict[str, Any], out: Path | None = None, **more: Any) -> list[Diagnosed]:
    """What is said of it."""
    return run_of(*faults, out=out, **more).diagnosis


def named(found: list[Diagnosed]) -> list[tuple[str, str]]:
    """Causes and places, the likeliest first."""
    return [(one.cause, one.place) for one in found]
