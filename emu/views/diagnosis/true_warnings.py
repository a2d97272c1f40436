"""Settings of which a check warned before the run, and whose trouble counters confirm.

`emu validate` and `emu run` warn of headroom that is too small, of pauses that lapse, of data that no pause
stops (`emu.base.foreseen`). Where frames were dropped for just these reasons on just these devices, the
setting is a cause: it is named with what it lost, and repaired by the value that the warning names. A
scenario that is meant to be so is no excuse: the intended fabric drops the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from actors.kernel.counters import PFC_TRANSMIT_XOFF_FRAMES, PORT_DROPPED_FRAMES
from emu.base.foreseen import Foreseen
from emu.base.units import counted
from emu.views.diagnosis.finding import Finding
from emu.views.diagnosis.view import View

SCORE: Final = 880
MOST_LINES: Final = 4


def found(view: View) -> Iterator[Finding]:
    """A finding for each warning that came true."""
    if not view.dropped_anything and not view.counting(PFC_TRANSMIT_XOFF_FRAMES):
        return
    numbers = {view.name(number): number for number in view.networked()}
    for one in view.foreseen():
        devices = {name: numbers[name] for name in one.devices if name in numbers}
        counts = {name: _counted(view, one, number) for name, number in devices.items()}
        worst = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
        if not worst or any(view.at_device(metric, at) for metric in one.silent for at in devices.values()):
            continue
        total = sum(counts.values())
        what = (
            f"{counted(total, 'frame')} dropped there"
            if one.reasons
            else f"{counted(total, 'pause')} sent there"
        )
        sentence = f"{one.what}: {what}" + (f"; {one.remedy}" if one.remedy else "")
        shown = (
            f"{PORT_DROPPED_FRAMES} {{}} ({', '.join(one.reasons)})"
            if one.reasons
            else one.counters[0] + " {}"
        )
        lines = tuple(f"{name}: {shown.format(counts[name])}" for name in worst[:MOST_LINES])
        yield Finding(
            one.cause,
            worst[0],
            SCORE,
            sentence,
            lines,
            since_ps=-1,
            alarms=bool(one.reasons),
            has_impact=bool(one.reasons),
            setting=one.setting,
        )


def _counted(view: View, one: Foreseen, number: int) -> int:
    """How often it came true at a device."""
    if one.reasons:
        return view.dropped_at(number, *one.reasons)
    return sum(view.at_device(metric, number) for metric in one.counters)
