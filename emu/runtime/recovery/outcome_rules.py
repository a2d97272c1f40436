"""How did an attempt to run end, and what of that is worth going back for?

Every worker reports how its simulation ended. They agree, or one of them says what went wrong, or is gone.
A failure that lies outside the model (a process that is gone, a connection that broke) is worth another
attempt from the last snapshot. A worker's own fault is not: the same state would bring it about again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from emu.errors import EmuError
from emu.measure.run_directory.run_directory import details_name, write_whole
from emu.runtime.blueprint import RunPlan
from emu.runtime.outcome import Ending
from emu.runtime.workers.worker_report import Fault, Report

LONGEST_DETAILS: Final = 1 << 16
"""Of a traceback that is kept in the run directory, its end."""

Reports = Mapping[int, Report | None]
"""By worker; None for one that is gone."""


def judge(
    plan: RunPlan,
    pids: Sequence[int],
    gone: Mapping[int, str],
    reports: Reports,
    devices: int,
    directory: Path | None,
) -> tuple[Ending, str]:
    """How the run ended, and why if it did not finish; `devices` is of how many there are records."""
    for worker, reason in sorted(gone.items()):
        return Ending.FAILED, f"{named(plan, pids, worker)} died: {reason}"
    known = {worker: report for worker, report in sorted(reports.items()) if report is not None}
    for fault in (Fault.OWN, Fault.PEER):
        for worker, report in known.items():
            if report.fault is fault:
                kept = kept_details(worker, report.details, directory)
                return Ending.FAILED, f"{named(plan, pids, worker)}: {report.message}{kept}"
    endings = {report.ending for report in known.values()}
    if len(endings) == 1:
        (ending,) = endings
        if ending is not None and devices < len(plan.topology.nodes):
            return Ending.FAILED, f"only {devices} of the devices could be collected at the end"
        if ending is not None:
            return ending, ""
    return Ending.INTERRUPTED, ""


def can_be_repeated(gone: Mapping[int, str], reports: Reports) -> bool:
    """Whether an attempt broke for a reason that need not come again."""
    faults = {report.fault for report in reports.values() if report is not None}
    return Fault.OWN not in faults and (bool(gone) or Fault.PEER in faults)


def named(plan: RunPlan, pids: Sequence[int], worker: int) -> str:
    """A worker, as a user knows it."""
    names = plan.names_of(worker)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    pid = f"pid {pids[worker]}, " if worker < len(pids) else ""
    return f"worker {worker} ({pid}hosting {shown})"


def kept_details(worker: int, details: str, directory: Path | None) -> str:
    """Keep a traceback in the run directory; where it is. Where it cannot be kept, it is told itself."""
    if not details:
        return ""
    if directory is not None:
        path = directory / details_name(worker)
        with suppress(EmuError):
            write_whole(path, details[-LONGEST_DETAILS:])
            return f" (details in {path})"
    return f"\n{details}"
