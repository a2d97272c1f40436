"""Data in a lossy class: NICs send it as lossless, and switches treat it as lossy.

Evidence is the configuration (the DSCP that NICs write, and what each switch makes of it) together with what
was dropped there: lossy classes drop where a lossless one would pause. Without a drop nothing is reported.
A scenario that is meant to be so is no excuse: the intended fabric drops the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.kernel.counters import PORT_DROPPED_FRAMES
from emu.base.units import counted
from emu.diagnosis.finding import LOSSY, Finding
from emu.diagnosis.view import View
from emu.scenario.traffic_classes import lossy_data

SCORE: Final = 880
DROPPED: Final = ("no_shared_room", "egress_limit", "aqm")
"""Reasons for which lossy frames alone are dropped."""


def found(view: View) -> Iterator[Finding]:
    """A finding for each kind of data that is lossy on switches that dropped frames for want of room."""
    numbers = {view.name(number): number for number in view.networked()}
    for one in lossy_data(view.scenario, view.topology):
        drops = {name: view.dropped_at(numbers[name], *DROPPED) for name in one.switches if name in numbers}
        worst = sorted((name for name in drops if drops[name]), key=lambda name: -drops[name])
        if not worst:
            continue
        dropped = sum(drops.values())
        sentence = f"{one.sentence()}: {counted(dropped, 'frame')} dropped there; {one.way_out()}"
        lines = [f"{name}: {PORT_DROPPED_FRAMES} {drops[name]} ({', '.join(DROPPED)})" for name in worst]
        yield Finding(
            LOSSY, worst[0], SCORE, sentence, tuple(lines), since_ps=-1, alarms=True, has_impact=True
        )
