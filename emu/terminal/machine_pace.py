"""How fast this machine is beside the one whose times are in the tree, and what a run costs here by that."""

from __future__ import annotations

import time
from functools import cache
from typing import Final

from emu.devices.pricing.estimate import LONG_S, PACE_MS
from emu.preparing import Prepared

MOST_PACE: Final = 100
"""No machine takes so many times as long as the one where `PACE_MS` was measured."""


@cache
def pace() -> float:
    """The time that is spent here on what took `PACE_MS`, by that: the best of five rounds."""
    return min(_round_ms() for _ in range(5)) / PACE_MS


def _round_ms() -> float:
    begun_s = time.process_time()
    known: dict[int, tuple[int, int]] = {}
    for number in range(20_000):
        key = number * 7919 % 5003
        value = known.get(key)
        known[key] = (key, number) if value is None else (value[0], number)
    return (time.process_time() - begun_s) * 1000


def costs(prepared: Prepared) -> list[str]:
    """What is worth knowing of a run at packet level before it begins. At flow level it is not counted: that
    would often take longer than the run.
    """
    if prepared.scenario.fidelity == "flow":
        return []
    found = prepared.cost
    assert found is not None, "what runs in packets has a cost"
    if found.wall_s * MOST_PACE <= LONG_S:  # which is nearly every run, and to measure takes 15 ms
        return []
    return found._replace(wall_s=found.wall_s * pace()).warnings()
