"""Rules of run recovery: when to take a snapshot, whether to roll back, how an attempt ended.

A snapshot costs the time for which the run stands still, and what is executed again after a failure costs
the time since the last one. The first is measured; the second is kept in proportion: the distance is
`1 / SHARE` times what the last snapshot cost the slowest worker, and at least `LEAST_S`. Before there is a
last one, building the devices, which takes longer than saving them, stands for it.

A run that fails again and again before it gets farther than it ever was will not get there: after some
failures in a row (`RunOptions.recoveries`) it ends with the reason of the last one.

The outcome rules. Every worker reports how its simulation ended. They agree, or one of them says what went
wrong, or is gone. A failure that lies outside the model (a process that is gone, a connection that broke) is
worth another attempt from the last snapshot. A worker's own fault is not: the same state would bring it about
again.

None of these looks at a clock: time is a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from emu.base.errors import EmuError
from emu.engine.blueprint import RunPlan
from emu.engine.outcome import Blame, Ending, Report
from emu.engine.recovery.snapshots import Saved
from emu.run_directory.run_directory import details_name, write_whole

LONGEST_DETAILS: Final = 1 << 16
"""Longest end of a traceback that is kept in the run directory."""

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
    for fault in (Blame.OWN, Blame.PEER):
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
    return Blame.OWN not in faults and (bool(gone) or Blame.PEER in faults)


def named(plan: RunPlan, pids: Sequence[int], worker: int) -> str:
    """A worker, as a user knows it."""
    names = plan.names_of(worker)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    pid = f"pid {pids[worker]}, " if worker < len(pids) else ""
    return f"worker {worker} ({pid}hosting {shown})"


def kept_details(worker: int, details: str, directory: Path | None) -> str:
    """Keep a traceback in the run directory; where it is. Where it cannot be kept, it is reported itself."""
    if not details:
        return ""
    if directory is not None:
        path = directory / details_name(worker)
        with suppress(EmuError):
            write_whole(path, details[-LONGEST_DETAILS:])
            return f" (details in {path})"
    return f"\n{details}"


SHARE: Final = 0.03
"""The part of wall time that snapshots may take; what is promised is 5 %."""
LEAST_S: Final = 2.0
LATE_S: Final = 60.0
"""A snapshot that was asked for and is not whole after this is given up, and asked for again."""


class SnapshotClock:
    """Says when to ask for a snapshot, and when one is whole.

    `every_s` is the distance that the user wants: None for what the cost allows, 0 for none at all.
    """

    def __init__(self, workers: int, every_s: float | None) -> None:
        self.taken = 0
        self.cost_s = 0.0
        """What all of them cost the slowest worker."""
        self._workers = workers
        self._every_s = every_s
        self._distance_s = 0.0
        self._due_s = 0.0
        self._asked_s = -1.0
        self._shares: dict[int, dict[int, Saved]] = {}

    def begin(self, now_s: float, build_s: float) -> None:
        """The run begins, or went back: what was under way will not be whole."""
        self._asked_s = -1.0
        self._shares.clear()
        if not self.taken:
            self._distance_s = self._after(build_s)
        self._due_s = now_s + self._distance_s

    def due(self, now_s: float) -> bool:
        """Whether to ask for one now; if so, it counts as asked for."""
        if self._every_s == 0:
            return False
        if self._asked_s >= 0 and now_s - self._asked_s < LATE_S:
            return False
        if self._asked_s < 0 and now_s < self._due_s:
            return False
        self._asked_s = now_s
        return True

    def take(self, worker: int, saved: Saved, now_s: float) -> list[Saved]:
        """A worker's share was written, or not. All of a snapshot, in worker order, with the last of them.

        It is whole if none of them has an error.
        """
        shares = self._shares.setdefault(saved.sync_ps, {})
        shares[worker] = saved
        if len(shares) < self._workers:
            return []
        del self._shares[saved.sync_ps]
        self._asked_s = -1.0
        every = [shares[one] for one in range(self._workers)]
        slowest_s = max(one.cost_s for one in every)
        self.cost_s += slowest_s
        self._distance_s = self._after(slowest_s)
        if any(one.error for one in every):
            self._distance_s *= 2
        else:
            self.taken += 1
        self._due_s = now_s + self._distance_s
        return every

    def _after(self, cost_s: float) -> float:
        if self._every_s is not None:
            return self._every_s
        return max(LEAST_S, cost_s / SHARE)


class Patience:
    """Counts failures in a row after which the run was no farther than before; `most` of them are borne."""

    def __init__(self, most: int) -> None:
        self.recoveries = 0
        """How often the run went back."""
        self._most = most
        self._row = 0
        self._best_ps = -1

    def failed(self, reached_ps: int) -> bool:
        """The run broke at about `reached_ps`. Whether to go back once more."""
        if reached_ps > self._best_ps:
            self._best_ps = reached_ps
            self._row = 0
        self._row += 1
        if self._row > self._most:
            return False
        self.recoveries += 1
        return True


def digests_of(shares: Sequence[Saved]) -> list[bytes]:
    """The digests of the shares of a snapshot."""
    return [one.digest for one in shares]
