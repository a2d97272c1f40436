"""When a switch forwards otherwise, do bytes of what is on the way count where they go from then on?"""

from __future__ import annotations

from typing import Any

import pytest

from emu import api

SCENARIO: dict[str, Any] = {
    "name": "drained",
    "fidelity": "flow",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 2},
    "routing": {"convergence": "10us"},
    "jobs": [{"name": "c", "workload": {"kind": "collective", "op": "all_to_all", "sizes": ["64MiB"]}}],
}


def loads(faults: list[dict[str, Any]]) -> dict[str, tuple[int, dict[str, int]]]:
    """Payload over the uplinks of each leaf, in all and by spine: data and clear-to-sends."""
    result = api.run({**SCENARIO, "faults": faults}, local=True, diagnose=False)
    uplinks = result.summary.fabric.uplinks
    return {one.switch: (one.data_bytes, dict(zip(one.towards, one.loads, strict=True))) for one in uplinks}


def test_a_drain_moves_payload_to_other_links_and_neither_adds_nor_loses_any() -> None:
    """Of 64 MiB in blocks of 16, two ranks below a leaf send two blocks each to the other leaf, by either
    spine; clear-to-sends add less than a thousandth. A drain at half time leaves the sum, and of the spine
    that is drained only what passed before."""
    whole, drained = loads([]), loads([{"kind": "switch_drain", "at": "500us", "target": "ctsw-0"}])
    for leaf, (total, by_spine) in whole.items():
        assert 4 * 2**24 < total < 1.001 * 4 * 2**24
        assert drained[leaf][0] == pytest.approx(total, rel=1e-6)
        assert drained[leaf][1]["ctsw-0"] < 0.7 * by_spine["ctsw-0"]
