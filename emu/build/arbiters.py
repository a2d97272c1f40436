"""The table of queue-pair arbiters.

The one table of arbiters. A new one is a class in a file of its own, a line in `MAKERS` and its knobs in
`emu.scenario.sections.arbiter`; one from outside needs neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from actors.nic.arbiter import Arbiter, WeightedClasses
from emu.scenario.plugins import load_plugin
from emu.scenario.sections.arbiter import ArbiterSection, Weighted

Maker = Callable[[int, ArbiterSection], Arbiter]


def _weighted(largest_frame_bytes: int, knobs: ArbiterSection) -> Arbiter:
    assert isinstance(knobs, Weighted), knobs
    strict = sum(1 << priority for priority in knobs.strict)
    return WeightedClasses(largest_frame_bytes, strict, list(knobs.weights))


MAKERS: Final[dict[str, Maker]] = {"weighted": _weighted}


def arbiter_of(section: ArbiterSection, largest_frame_bytes: int) -> Arbiter | None:
    """An arbiter for one port; None for the port's own round."""
    if section.policy == "round_robin":
        return None
    make: Maker = MAKERS[section.policy] if section.policy in MAKERS else load_plugin(section.policy)
    return make(largest_frame_bytes, section)
