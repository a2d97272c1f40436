"""Impact of what was found, measured on the fabric as it was meant to be.

An operator knows how long a job takes where nothing is wrong, and what is counted meanwhile. Here that is
worked out by emulating the intended configuration: the same scenario and seed without whatever went wrong
(`emu.diagnose` runs it; this room only compares). A run suffered if

1. a job took `SLOWER_PERMILLE` longer than there, or
2. a counter that an operator is called for (`emu.diagnosis.view.ALARMED`, headroom overruns, ports that went
   down) rose to more than there, by `SLOWER_PERMILLE` or more.

Of jobs that repeat the longest round counts, and counters rise with virtual time, so that some rounds there
are the measure of many here. Otherwise nothing is said, whatever shows: a late link that no job felt is no
answer to "what went wrong".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from emu.measure.collected import JobPlan
from emu.measure.summary.jobs import SUCCESS
from emu.measure.summary.summary import Job, Reference
from emu.units import about_time

SLOWER_PERMILLE: Final = 50
Row = Sequence[int]
"""Of the controller: job, operation, start_ps, end_ps, status."""


def times_of(
    jobs: Mapping[str, Job], plans: Sequence[JobPlan], operations: Sequence[Row], *, repeats: bool
) -> dict[str, int]:
    """How long each job that ended well took; of one that repeats, its longest whole round."""
    found: dict[str, int] = {}
    for plan in plans:
        job = jobs[plan.name]
        if job.status != SUCCESS or job.start_ps is None or job.end_ps is None:
            continue
        own = [row for row in operations if row[0] == plan.job]
        rounds = _rounds(own, len(plan.collectives) or 1) if repeats else []
        found[plan.name] = max(rounds, default=job.end_ps - job.start_ps)
    return found


def _rounds(rows: Sequence[Row], period: int) -> list[int]:
    """How long each whole round took of which every operation is known."""
    starts = {row[1] // period: row[2] for row in rows if row[1] % period == 0}
    return [
        row[3] - starts[row[1] // period]
        for row in rows
        if row[1] % period == period - 1 and row[1] // period in starts
    ]


def harms(
    times: Mapping[str, int], alarms: Mapping[str, int], reference: Reference, end_ps: int = 0
) -> list[str]:
    """What a run suffered, a line each; empty if nothing. `times` are as of `times_of`; `end_ps` is how long
    it ran.
    """
    lines: list[str] = []
    what = "the longest round " if reference.span_ps else ""
    for name, meant_ps in reference.jobs.items():
        took_ps = times.get(name)
        if took_ps is not None and _risen(took_ps, meant_ps):
            percent = (took_ps - meant_ps) * 100 // meant_ps
            lines.append(
                f"{name}: {about_time(took_ps)}, {percent}% more than {what}on the intended fabric "
                f"({about_time(meant_ps)})"
            )
    for name, count in alarms.items():
        meant = reference.alarms.get(name, 0)
        if reference.span_ps:
            meant = -(-meant * end_ps // reference.span_ps)
        if _risen(count, meant):
            lines.append(f"{name}: {count}, on the intended fabric {meant}")
    return lines


def _risen(value: int, meant: int) -> bool:
    return value > meant and value * 1000 >= meant * (1000 + SLOWER_PERMILLE)
