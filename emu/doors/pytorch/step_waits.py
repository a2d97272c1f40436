"""Which calls of a recorded step computing waits for, how long, and what would hide them.

The step is gone through once more, stream by stream, as the script issued it: kernels take their time on the
GPU, calls the time that they took in the emulated fabric. Where the stream that computes comes to a wait
whose event lies later than its own clock, the difference is *exposed*, and belongs to the last call before
the event. A call on the computing stream itself is exposed whole.

What would hide a call is computing between its begin and its wait: the module that runs as long before the
wait as the call takes is where a gather would have to begin. Gradients cannot be reduced before they are
there, so for them only less at once helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from emu.doors.pytorch.kernels import KernelTimes
from emu.doors.pytorch.record import DEFAULT_STREAM, HOST, Call, Kernel, Mark, Record, Wait

GRADIENTS: Final = ("all_reduce", "reduce_scatter", "reduce")
LEAST_SHARE: Final = 0.001
"""Of a step: calls that are exposed for less are not listed."""


@dataclass
class Waited:
    """A call that computing waited for."""

    op: str
    group: str
    """As the script or torch describes it."""
    bytes: int
    module: str
    """The module that made it, or the one whose gradients filled a bucket."""
    took_us: float
    exposed_us: float
    hidden_by: str
    """What would hide it."""


@dataclass
class _Running:
    """A call between its begin and its wait."""

    call: Call
    begin_us: float
    took_us: float
    exposed_us: float = 0.0
    waited_at_us: float = 0.0


def durations(record: Record, rows: Iterable[Mapping[str, str]]) -> dict[int, float]:
    """How long each call of the last step took, in us, by its number, from the rows of `collectives.csv`.

    Where groups of one communicator make a call at once, the slowest counts.
    """
    seen: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["end_ps"] and row["status"] == "success":
            key = _kind(row["op"]), row["bytes"]
            seen.setdefault(key, []).append((int(row["end_ps"]) - int(row["start_ps"])) / 1e6)
    calls = [one for one in list(record.steps())[-1] if isinstance(one, Call)]
    sizes: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        match = min(
            (key for key in seen if key[0] == _kind(call.op)),
            key=lambda key: abs(int(key[1]) - call.bytes),
            default=None,
        )
        if match is not None:
            sizes.setdefault(match, []).append(call)
    found: dict[int, float] = {}
    for key, alike in sizes.items():
        took = seen[key]
        groups = max(len(took) // len(alike), 1)
        for at, call in enumerate(alike):
            found[call.number] = max(took[at * groups : (at + 1) * groups] or took[-1:])
    return found


def _kind(op: str) -> str:
    return "all_to_all" if op.startswith("all_to_all") else op


def waits(record: Record, times: KernelTimes, took_us: Mapping[int, float]) -> list[Waited]:
    """The calls that computing waits for in the last step, the longest first."""
    clocks: dict[int, float] = {}
    events: dict[int, tuple[float, _Running | None]] = {}
    last: dict[int, _Running] = {}
    computed: list[tuple[float, str]] = []
    """When each kernel of the computing stream begins, and its module."""
    running: list[_Running] = []
    for one in list(record.steps())[-1]:
        if isinstance(one, Kernel):
            begin = clocks.get(one.stream, 0.0)
            if one.stream == DEFAULT_STREAM:
                computed.append((begin, one.module))
            clocks[one.stream] = begin + times.us(one)
        elif isinstance(one, Call):
            begin = clocks.get(one.stream, 0.0)
            now = _Running(one, begin, took_us.get(one.number, 0.0))
            clocks[one.stream] = begin + now.took_us
            last[one.stream] = now
            if one.stream == DEFAULT_STREAM:
                now.exposed_us, now.waited_at_us = now.took_us, begin
            running.append(now)
        elif isinstance(one, Mark):
            events[one.event] = clocks.get(one.stream, 0.0), last.get(one.stream)
        elif isinstance(one, Wait):
            stream = DEFAULT_STREAM if one.stream == HOST else one.stream
            at, of = events.get(one.event, (0.0, None))
            late = at - clocks.get(stream, 0.0)
            if late > 0:
                if stream == DEFAULT_STREAM and of is not None:
                    of.exposed_us += late
                    of.waited_at_us = at - late
                clocks[stream] = at
    whole = max(clocks.values(), default=0.0)
    found = [
        Waited(
            one.call.op,
            record.descriptions.get(one.call.group, one.call.group).removeprefix("mesh_"),
            one.call.bytes,
            one.call.module,
            one.took_us,
            one.exposed_us,
            _remedy(one, computed),
        )
        for one in running
        if one.exposed_us > LEAST_SHARE * whole
    ]
    return sorted(found, key=lambda one: -one.exposed_us)


def _remedy(one: _Running, computed: Sequence[tuple[float, str]]) -> str:
    """What would hide a call."""
    if one.call.op in GRADIENTS:
        if any(one.begin_us <= begin < one.waited_at_us for begin, _ in computed):
            return "more computing after it, or smaller buckets"
        return "a smaller last bucket: no kernel is left to hide it"
    wanted_us = one.waited_at_us - one.took_us
    before = [module for begin, module in computed if begin <= wanted_us and module]
    if wanted_us <= 0 or not before:
        return "nothing: the step has too little computing before it"
    return f"begin it {one.exposed_us:.0f} us earlier, in {before[-1]}"


def totals(found: Sequence[Waited]) -> list[tuple[Waited, int]]:
    """Calls of one kind, group and remedy as one, with their number, the longest exposed first."""
    sums: dict[tuple[str, str, str, int], tuple[Waited, int]] = {}
    for one in found:
        key = one.op, one.group, one.module, one.bytes
        if key in sums:
            before, count = sums[key]
            before.exposed_us += one.exposed_us
            sums[key] = before, count + 1
        else:
            sums[key] = one, 1
    return sorted(sums.values(), key=lambda pair: -pair[0].exposed_us)
