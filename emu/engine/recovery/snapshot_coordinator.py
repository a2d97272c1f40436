"""The snapshot coordinator, which requests snapshots and declares which of them count.

One snapshot coordinator a run, where the results are written: it asks when the clock says so, hears from the
workers which shares are written, has them brought to where they are kept, has the results written to disk
that far, and then writes the file that makes the snapshot count. What it cannot write it tells once and goes
on without: the run is worth more than its snapshots, and the last one that counts still does.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from emu.base.short_paths import private_directory, remove_private
from emu.base.units import format_time
from emu.engine.outcome import Ending, Observer, RunOptions
from emu.engine.recovery.rules import SnapshotClock, digests_of
from emu.engine.recovery.snapshots import Saved, Snapshot, SnapshotFiles, Steps, fingerprint
from emu.run_directory.run_directory import SNAPSHOTS
from emu.scenario.schema import Scenario

PAUSE_S: Final = 0.01

Spread = Callable[[int, Sequence[bytes]], Steps]
"""Brings a generation with these digests to where it is kept. Raises OSError if it cannot."""


def _nothing(_sync_ps: int, _digests: Sequence[bytes]) -> Steps:
    """Every share is here already, and one copy is enough."""
    yield from ()


class _UnderWay(NamedTuple):
    """A generation that is being brought to where it is kept."""

    sync_ps: int
    digests: Sequence[bytes]
    steps: Steps
    counts: bool
    """Whether it counts already."""


class SnapshotCoordinator:
    """The snapshots of one run."""

    def __init__(self, scenario: Scenario, options: RunOptions, workers: int, observer: Observer) -> None:
        self.until_passed = False
        """Whether the snapshot after which the run was to end counts."""
        self.spread: Spread = _nothing
        """Called before one counts."""
        self.copy: Spread = _nothing
        """Called with what the run goes back to: the second copy may be lost."""
        self._observer = observer
        self._options = options
        self._own = private_directory() if options.directory is None else None
        self.directory: Path = (self._own or options.directory or Path()) / SNAPSHOTS
        self.scenario = fingerprint(scenario)
        """Which scenario it is of."""
        self.files = SnapshotFiles(self.directory, self.scenario)
        self.clock = SnapshotClock(workers, options.snapshot_every_s)
        self._reported = False
        self._under_way: list[_UnderWay] = []
        """In the order in which they were taken."""

    @property
    def at_ps(self) -> tuple[int, ...]:
        """When the user wants snapshots."""
        until = (self._options.until_ps,) if self._options.until_ps >= 0 else ()
        return tuple(sorted({*self._options.snapshot_at_ps, *until}))

    def begin(self, build_s: float) -> None:
        """The run begins, or begins anew from a snapshot; building its devices took so long."""
        self.clock.begin(time.monotonic(), build_s)

    def found(self) -> Snapshot | None:
        """The snapshot to go back to, if there is one. What was under way does not come to count."""
        self._under_way.clear()
        self.files.drop_uncounted()
        broken = len(self.files.broken)
        snapshot = self.files.newest()
        for line in self.files.broken[broken:]:
            self._observer.noted(f"{line}; an older snapshot is used, if there is one")
        if snapshot is not None:
            digests = self.files.digests(snapshot.sync_ps)
            steps = self.copy(snapshot.sync_ps, digests)
            self._under_way.append(_UnderWay(snapshot.sync_ps, digests, steps, counts=True))
        return snapshot

    def due(self) -> bool:
        """Whether to ask for a snapshot now."""
        return not self._under_way and self.clock.due(time.monotonic())

    def take(self, worker: int, saved: Saved) -> None:
        """A worker has written its share, or could not."""
        shares = self.clock.take(worker, saved, time.monotonic())
        errors = [one.error for one in shares if one.error]
        if errors:
            self._tell(saved.sync_ps, errors[0])
        elif shares:
            digests = digests_of(shares)
            steps = self.spread(saved.sync_ps, digests)
            self._under_way.append(_UnderWay(saved.sync_ps, digests, steps, counts=False))
            self.go_on()

    def go_on(self) -> None:
        """Do what can be done now for the generations that are under way."""
        while self._under_way:
            sync_ps, digests, steps, counts = self._under_way[0]
            try:
                for _ in steps:
                    return
                if not counts:
                    self._count(sync_ps, digests)
            except OSError as error:
                if not counts:  # else the run has it here, and the next one that counts is reported
                    self._tell(sync_ps, f"{self.directory}: {error.strerror}")
            del self._under_way[0]

    def finish(self, within_s: float) -> None:
        """Bring to an end what is under way; what takes longer does not count."""
        deadline_s = time.monotonic() + within_s
        while self._under_way and time.monotonic() < deadline_s:
            self.go_on()
            time.sleep(PAUSE_S)
        for late in self._under_way:
            if not late.counts:
                self._tell(late.sync_ps, f"it took longer than {within_s:.0f} s to copy")
        self._under_way.clear()

    def end(self, ending: Ending) -> None:
        """The run is over: what only served to go on with it is removed."""
        if self._own is not None:
            remove_private(self._own)
        elif ending in (Ending.FINISHED, Ending.STALLED, Ending.TIME_LIMIT):
            self.files.drop_unpinned()

    def _count(self, sync_ps: int, digests: Sequence[bytes]) -> None:
        self._observer.settle()
        self.files.count(sync_ps, digests, pinned=sync_ps in self.at_ps)
        self._reported = False
        if 0 <= self._options.until_ps <= sync_ps:
            self.until_passed = True

    def _tell(self, sync_ps: int, error: str) -> None:
        self.files.drop(sync_ps)
        if not self._reported:
            self._reported = True
            self._observer.noted(f"a snapshot could not be written: {error}; {self._what_counts()}")

    def _what_counts(self) -> str:
        times_ps = self.files.times_ps()
        if not times_ps:
            return "the run goes on without one"
        return f"the run goes on, and the one of {format_time(times_ps[0])} still counts"
