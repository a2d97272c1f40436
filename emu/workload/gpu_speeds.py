"""GPUs that are not all alike: `gpu.speed_spread`.

Each GPU computes at a speed of its own, drawn once from a normal distribution around the nominal one, by its
number and the scenario's seed. What computes for longer is the script of its ranks, in packets and at flow
level alike, so a step of many GPUs waits for the slowest of them.

The normal draw is the sum of twelve uniform ones (Irwin and Hall), in whole numbers: a factor is at most six
times the spread from 1.

Not modelled: speeds that change with time or temperature; copies and reductions of the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction
from typing import Final

from actors.kernel.mixing import Stream
from actors.ncclx.script import COMPUTE, Instruction, ScriptPlan

PURPOSE: Final = 0x53504545
_DRAWS: Final = 12
_UNIT: Final = 1 << 20
LEAST: Final = Fraction(1, 10)
"""Of the nominal time."""


def slowdown(seed: int, gpu: int, spread: Fraction) -> Fraction:
    """How many times as long a GPU computes as the nominal one."""
    stream = Stream(seed, gpu, PURPOSE)
    drawn = sum(stream.below(_UNIT) for _ in range(_DRAWS)) - _DRAWS * _UNIT // 2
    return max(1 + spread * Fraction(int(drawn), _UNIT), LEAST)


def at_own_speeds(plan: ScriptPlan, gpus: Sequence[int], seed: int, spread: Fraction) -> ScriptPlan:
    """The plan with what each rank computes at the speed of its GPU."""
    made = copy(plan)
    made.scripts = []
    for script in plan.scripts:
        factor = slowdown(seed, gpus[script.rank], spread)
        own = replace(
            script,
            streams=[_slowed(stream, factor) for stream in script.streams],
            lines=[[_slowed(stream, factor) for stream in lines] for lines in script.lines],
        )
        if own.lines:
            own.streams = own.lines[0]
        made.scripts.append(own)
    return made


def _slowed(stream: Sequence[Instruction], factor: Fraction) -> list[Instruction]:
    return [(kind, int(a * factor), b) if kind == COMPUTE else (kind, a, b) for kind, a, b in stream]
