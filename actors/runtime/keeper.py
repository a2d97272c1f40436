"""Who asks for snapshots, and who says that one counts?

One keeper a run, where the results are written: it asks when the clock says so, hears from the workers which
shares are written, has the results written to disk that far, and then writes the file that makes the
snapshot count. What it cannot write it tells once and goes on without: the run is worth more than its
snapshots, and the last one that counts still does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from actors.runtime.outcome import Ending, Observer, RunOptions
from actors.runtime.recovery import SnapshotClock, digests_of
from actors.runtime.short_paths import private_directory, remove_private
from actors.runtime.snapshot import Snapshot, fingerprint
from actors.runtime.snapshot_files import Saved, SnapshotFiles
from emu.measure.run_directory import SNAPSHOTS
from emu.scenario.schema import Scenario
from emu.units import format_time


def _nothing(sync_ps: int, digests: Sequence[bytes]) -> None:
    """Every share is here already, and one copy is enough."""


class Keeper:
    """The snapshots of one run. `spread` is called before one counts, and brings all shares in place."""

    def __init__(self, scenario: Scenario, options: RunOptions, workers: int, observer: Observer) -> None:
        self.until_passed = False
        """Whether the snapshot after which the run was to end counts."""
        self.spread: Callable[[int, Sequence[bytes]], None] = _nothing
        """Raises OSError if it cannot."""
        self.copy: Callable[[int, Sequence[bytes]], None] = _nothing
        """Called with what the run goes back to: the second copy may be lost. Raises OSError."""
        self._observer = observer
        self._options = options
        self._own = private_directory() if options.directory is None else None
        self.directory: Path = (self._own or options.directory or Path()) / SNAPSHOTS
        self.scenario = fingerprint(scenario)
        """Which scenario it is of."""
        self.files = SnapshotFiles(self.directory, self.scenario)
        self.clock = SnapshotClock(workers, options.snapshot_every_s)
        self._told = False

    @property
    def at_ps(self) -> tuple[int, ...]:
        """When the user wants snapshots."""
        until = (self._options.until_ps,) if self._options.until_ps >= 0 else ()
        return tuple(sorted({*self._options.snapshot_at_ps, *until}))

    def begin(self, build_s: float) -> None:
        """The run begins, or begins anew from a snapshot; building its devices took so long."""
        self.clock.begin(time.monotonic(), build_s)

    def found(self) -> Snapshot | None:
        """The snapshot to go back to, if there is one."""
        self.files.drop_uncounted()
        broken = len(self.files.broken)
        snapshot = self.files.newest()
        for line in self.files.broken[broken:]:
            self._observer.noted(f"{line}; an older snapshot is used, if there is one")
        if snapshot is not None:
            with suppress(OSError):  # the run has it here; the next one that counts is told of
                self.copy(snapshot.sync_ps, self.files.digests(snapshot.sync_ps))
        return snapshot

    def due(self) -> bool:
        """Whether to ask for a snapshot now."""
        return self.clock.due(time.monotonic())

    def take(self, worker: int, saved: Saved) -> None:
        """A worker has written its share, or could not."""
        shares = self.clock.take(worker, saved, time.monotonic())
        errors = [one.error for one in shares if one.error]
        if errors:
            self._tell(saved.sync_ps, errors[0])
        elif shares:
            self._count(saved.sync_ps, digests_of(shares))

    def end(self, ending: Ending) -> None:
        """The run is over: what only served to go on with it is removed."""
        if self._own is not None:
            remove_private(self._own)
        elif ending in (Ending.FINISHED, Ending.STALLED, Ending.TIME_LIMIT):
            self.files.drop_unpinned()

    def _count(self, sync_ps: int, digests: list[bytes]) -> None:
        try:
            self.spread(sync_ps, digests)
            self._observer.settle()
            self.files.count(sync_ps, digests, pinned=sync_ps in self.at_ps)
        except OSError as error:
            self._tell(sync_ps, f"{self.directory}: {error.strerror}")
            return
        self._told = False
        if 0 <= self._options.until_ps <= sync_ps:
            self.until_passed = True

    def _tell(self, sync_ps: int, error: str) -> None:
        self.files.drop(sync_ps)
        if not self._told:
            self._told = True
            self._observer.noted(f"a snapshot could not be written: {error}; {self._standing()}")

    def _standing(self) -> str:
        times_ps = self.files.times_ps()
        if not times_ps:
            return "the run goes on without one"
        return f"the run goes on, and the one of {format_time(times_ps[0])} still counts"
