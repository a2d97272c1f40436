"""Did it matter? The same jobs on the fabric as it was meant to be are the measure.

An operator knows how long a job takes where nothing is wrong, and what is counted meanwhile. Here that is
worked out by emulating the intended configuration: the same scenario and seed without whatever went wrong
(`emu.diagnosing` runs it; this room only compares). A run suffered if

1. a job took `SLOWER_PERMILLE` longer than there, or
2. a counter that an operator is called for (`emu.diagnosis.view.ALARMED`, headroom overruns, ports that went
   down) rose to more than there, by `SLOWER_PERMILLE` or more.

Otherwise nothing is said, whatever shows: a late link that no job felt is no answer to "what went wrong".
"""

from __future__ import annotations

from collections.abc import Mapping

from emu.diagnosis.pace import SLOWER_PERMILLE
from emu.measure.jobs import SUCCESS
from emu.measure.report import about_time
from emu.measure.summary import Job
from emu.measure.summary_diagnosis import Reference


def time_of(job: Job) -> int | None:
    """How long a job that ended well took; None of another."""
    if job.status != SUCCESS or job.start_ps is None or job.end_ps is None:
        return None
    return job.end_ps - job.start_ps


def harms(jobs: Mapping[str, Job], alarms: Mapping[str, int], reference: Reference) -> list[str]:
    """What a run with these jobs and alarms suffered, a line each; empty if nothing."""
    lines: list[str] = []
    for name, meant_ps in reference.jobs.items():
        took_ps = time_of(jobs[name]) if name in jobs else None
        if took_ps is not None and _risen(took_ps, meant_ps):
            percent = (took_ps - meant_ps) * 100 // meant_ps
            lines.append(
                f"{name}: {about_time(took_ps)}, {percent}% more than on the intended fabric "
                f"({about_time(meant_ps)})"
            )
    for name, count in alarms.items():
        meant = reference.alarms.get(name, 0)
        if _risen(count, meant):
            lines.append(f"{name}: {count}, on the intended fabric {meant}")
    return lines


def _risen(value: int, meant: int) -> bool:
    return value > meant and value * 1000 >= meant * (1000 + SLOWER_PERMILLE)
