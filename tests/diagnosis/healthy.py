"""Runs in which nothing is wrong: other fabrics, jobs and seeds than those that faults are drawn on."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.scenario.plain import plain

FABRICS: tuple[dict[str, Any], ...] = (
    {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 4, "link": "100G"},
    {"kind": "ai_zone", "racks": 4, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2, "link": "400G"},
    {"kind": "fat_tree", "k": 4, "gpus_per_host": 1, "link": "100G"},
    {"kind": "star", "hosts": 6, "gpus_per_host": 1, "link": "200G"},
    {
        "kind": "dcn_plus",
        "pods": 1,
        "aggs_per_pod": 2,
        "links_per_tor_agg": 1,
        "segments_per_pod": 2,
        "hosts_per_segment": 2,
        "gpus_per_host": 2,
    },
)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


def scenario(seed: int) -> dict[str, Any]:
    """A scenario without faults."""
    random = Random(7000 + seed)
    collective: dict[str, Any] = {
        "kind": "collective",
        "op": random.choice(COLLECTIVES),
        "sizes": random.choice([["64KiB", "1MiB"], ["512KiB"], ["2MiB"]]),
        "iterations": random.randint(1, 6),
    }
    flows: dict[str, Any] = random.choice(
        [
            {"kind": "incast", "size": "512KiB", "fan_in": 3},
            {"kind": "permutation", "size": "1MiB"},
        ]
    )
    jobs: list[dict[str, Any]] = [[collective], [flows], [collective, flows]][random.randrange(3)]
    return plain(
        {
            "name": "healthy",
            "seed": seed,
            "topology": random.choice(FABRICS),
            "routing": {"kind": random.choice(["ecmp", "e_ecmp"])},
            "control": {"management_delay": random.choice(["5us", "100us"])},
            "switch": {
                "buffer": {"pool": random.choice(["16MiB", "64MiB"])},
                "ecn": {"enabled": random.random() < 0.5},
            },
            "transport": {"congestion_control": {"kind": random.choice(["none", "dcqcn"])}},
            "jobs": [{"name": f"job-{at}", "workload": one} for at, one in enumerate(jobs)],
        }
    )
