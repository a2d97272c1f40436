"""A worker's share of a snapshot, taken at a sync point while the run goes on.

At a requested sync point every worker saves its devices and what is pending there, and goes on at once; the
file is written by another thread. What came of it is reported with the next answer to the coordinator, which
counts the generation once every worker has written its share.

*When* is the coordinator's business: it asks worker 0, which requests a sync point at the first possible
time, or at a time that the user named. Worker 0 keeps these snapshot requests, since the window protocol
carries one request at a time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from emu.engine.recovery.snapshot_coordinator import SnapshotCoordinator
from emu.engine.recovery.snapshots import Saved, digest_of, encode_share, take_snapshot, write_file
from emu.engine.sampling import Sampler
from emu.engine.sync.logical_process import LogicalProcess
from emu.engine.sync.sync_points import SyncPoint
from emu.engine.sync.window import WindowMachine

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class SnapshotRequests:
    """The sync points that worker 0 is to request: one as soon as possible, and some at given times."""

    def __init__(self, machine: WindowMachine, at_ps: Sequence[int]) -> None:
        self.soon = False
        """Set by whoever wants one now; from any thread."""
        self._machine = machine
        self._at_ps = deque(sorted(set(at_ps)))
        self._requested_soon = False
        self._requested_ps = -1

    def put(self) -> bool:
        """Request what is wished and due to be requested; call it before a round. Whether it is for now."""
        if self._requested_soon:
            return False
        if self.soon:
            self.soon = False
            self._requested_soon = True
            self._requested_ps = -1
            self._machine.request_sync(0)
            return True
        while self._at_ps and self._at_ps[0] <= self._machine.sync_ps:
            self._at_ps.popleft()
        if self._at_ps and self._at_ps[0] != self._requested_ps:
            self._requested_ps = self._at_ps[0]
            self._machine.request_sync(self._requested_ps)
        return False

    def passed(self) -> None:
        """A requested sync point was passed, this one or another: what is still wished is requested anew."""
        self._requested_soon = False
        self._requested_ps = -1


class Saver:
    """Writes one worker's share of every snapshot.

    `place` says where the share of a sync point goes; None keeps the newest two in memory, for a coordinator
    on another node to fetch.
    """

    def __init__(self, scenario: str, worker: int, workers: int, place: Callable[[int], Path] | None) -> None:
        self.kept: dict[int, bytes] = {}
        """What is kept in memory, by sync point."""
        self._scenario = scenario
        self._worker = worker
        self._workers = workers
        self._place = place
        self._saved: deque[Saved] = deque()
        self._writer: ThreadPoolExecutor | None = None
        """Since the first share: most runs end before one is taken."""

    def act(self, logical_process: LogicalProcess, sync: SyncPoint) -> None:
        """Take the share at a requested sync point."""
        if not sync.requested:
            return
        begun_s = time.perf_counter()
        share = encode_share(take_snapshot([logical_process], self._scenario), self._worker, self._workers)
        cost_s = time.perf_counter() - begun_s
        if self._writer is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

            self._writer = ThreadPoolExecutor(1, thread_name_prefix="snapshot")
        self._writer.submit(self._write, sync.time_ps, share, cost_s)

    def drain(self) -> list[Saved]:
        """What came of the shares since the last call; also from another thread."""
        saved: list[Saved] = []
        while self._saved:
            saved.append(self._saved.popleft())
        return saved

    def finish(self) -> None:
        """Wait until what was taken is written."""
        if self._writer is not None:
            self._writer.submit(int).result()

    def close(self) -> None:
        """Let the file that is being written be written, and write no more. May be called again."""
        if self._writer is not None:
            self._writer.shutdown(wait=True)

    def _write(self, sync_ps: int, share: bytes, cost_s: float) -> None:
        if self._place is None:
            for older in sorted(self.kept)[:-1]:
                del self.kept[older]
            self.kept[sync_ps] = share
        else:
            path = self._place(sync_ps)
            try:
                write_file(path, share)
            except OSError as error:
                self._saved.append(Saved(sync_ps, b"", cost_s, f"{path}: {error.strerror}"))
                return
        self._saved.append(Saved(sync_ps, digest_of(share), cost_s))


class Saving:
    """The savers of all parts of a run in one process, and what asks them."""

    def __init__(self, snapshot_coordinator: SnapshotCoordinator, machines: Sequence[WindowMachine]) -> None:
        self.snapshot_coordinator = snapshot_coordinator
        self.logical_processes: Sequence[LogicalProcess] = ()
        self.snapshot_requests = SnapshotRequests(machines[0], snapshot_coordinator.at_ps)
        workers = len(machines)
        self._savers = [
            Saver(
                snapshot_coordinator.scenario,
                part,
                workers,
                partial(snapshot_coordinator.files.path_of, worker=part),
            )
            for part in range(workers)
        ]

    def act(self, part: int, sampler: Sampler, sync: SyncPoint) -> None:
        """What a part does at a sync point."""
        sampler.act(sync)
        self._savers[part].act(self.logical_processes[part], sync)
        if part == 0 and sync.requested:
            self.snapshot_requests.passed()

    def drain(self) -> list[tuple[int, Saved]]:
        """What was written since the last call, and by which part."""
        return [(part, saved) for part, saver in enumerate(self._savers) for saved in saver.drain()]

    def count(self, written: Sequence[tuple[int, Saved]]) -> None:
        """Count what is whole, once its samples are reported; ask for the next one when it is due."""
        for part, saved in written:
            self.snapshot_coordinator.take(part, saved)
        if self.snapshot_coordinator.due():
            self.snapshot_requests.soon = True

    def finish(self) -> None:
        """Wait until what was taken is written."""
        for saver in self._savers:
            saver.finish()

    def close(self) -> None:
        """Let what is being written be written, and write no more."""
        for saver in self._savers:
            saver.close()
