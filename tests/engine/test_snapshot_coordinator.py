"""A snapshot counts once it is where it is kept; meanwhile the run goes on, and is listened to."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from emu.engine.outcome import Observer, RunOptions
from emu.engine.recovery.snapshot_coordinator import SnapshotCoordinator
from emu.engine.recovery.snapshots import Saved, Snapshot, digest_of, encode_share, write_file
from tests.engine.spread_runs import plan_of


class Copying:
    """Takes a number of steps for each generation."""

    def __init__(self, steps: int, error: str = "") -> None:
        self.begun: list[int] = []
        self.steps = steps
        self.error = error

    def __call__(self, sync_ps: int, digests: Sequence[bytes]) -> Iterator[None]:
        self.begun.append(sync_ps)
        for _ in range(self.steps):
            yield
        if self.error:
            raise OSError(0, self.error)


class Notes(Observer):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def noted(self, line: str) -> None:
        self.lines.append(line)


def snapshot_coordinator_at(place: Path, notes: Notes, spread: Copying) -> SnapshotCoordinator:
    scenario = plan_of("incast", 1).scenario
    snapshot_coordinator = SnapshotCoordinator(
        scenario, RunOptions(directory=place, snapshot_every_s=1e-9), 1, notes
    )
    snapshot_coordinator.begin(0.0)
    snapshot_coordinator.spread = spread
    return snapshot_coordinator


def save(snapshot_coordinator: SnapshotCoordinator, sync_ps: int) -> None:
    """A worker's share is on disk, and the snapshot coordinator hears of it."""
    share = encode_share(Snapshot(snapshot_coordinator.scenario, sync_ps, [], [[]]), 0, 1)
    write_file(snapshot_coordinator.files.path_of(sync_ps, 0), share)
    snapshot_coordinator.take(0, Saved(sync_ps, digest_of(share), 0.0))


def test_a_snapshot_counts_only_once_it_is_where_it_is_kept(tmp_path: Path) -> None:
    snapshot_coordinator = snapshot_coordinator_at(tmp_path, Notes(), Copying(3))
    save(snapshot_coordinator, 7)
    for _ in range(2):
        snapshot_coordinator.go_on()
        assert snapshot_coordinator.files.times_ps() == []
    snapshot_coordinator.go_on()
    assert snapshot_coordinator.files.times_ps() == [7]


def test_none_is_asked_for_while_one_is_under_way(tmp_path: Path) -> None:
    snapshot_coordinator = snapshot_coordinator_at(tmp_path, Notes(), Copying(1))
    assert snapshot_coordinator.due()
    save(snapshot_coordinator, 7)
    assert not snapshot_coordinator.due()
    snapshot_coordinator.go_on()
    assert snapshot_coordinator.due()


def test_they_come_to_count_in_the_order_in_which_they_were_taken(tmp_path: Path) -> None:
    copying = Copying(2)
    snapshot_coordinator = snapshot_coordinator_at(tmp_path, Notes(), copying)
    save(snapshot_coordinator, 7)
    save(snapshot_coordinator, 8)
    snapshot_coordinator.go_on()
    snapshot_coordinator.go_on()
    assert (snapshot_coordinator.files.times_ps(), copying.begun) == ([7], [7, 8])
    snapshot_coordinator.finish(60.0)
    assert snapshot_coordinator.files.times_ps() == [8, 7]


def test_what_is_under_way_when_the_run_goes_back_never_counts(tmp_path: Path) -> None:
    snapshot_coordinator = snapshot_coordinator_at(tmp_path, Notes(), Copying(1))
    save(snapshot_coordinator, 7)
    snapshot_coordinator.go_on()
    save(snapshot_coordinator, 8)
    again = Copying(1)
    snapshot_coordinator.copy = again
    snapshot = snapshot_coordinator.found()
    assert snapshot is not None
    assert (snapshot.sync_ps, again.begun) == (7, [])
    snapshot_coordinator.finish(60.0)
    assert (snapshot_coordinator.files.times_ps(), again.begun) == ([7], [7])


@pytest.mark.parametrize("within_s", [0.0, 60.0])
def test_what_cannot_be_copied_is_reported_once_and_does_not_count(tmp_path: Path, within_s: float) -> None:
    notes = Notes()
    snapshot_coordinator = snapshot_coordinator_at(tmp_path, notes, Copying(3, "no room there"))
    save(snapshot_coordinator, 7)
    save(snapshot_coordinator, 8)
    snapshot_coordinator.finish(within_s)
    why = f"{tmp_path / 'snapshots'}: no room there" if within_s else "it took longer than 0 s to copy"
    assert notes.lines == [f"a snapshot could not be written: {why}; the run goes on without one"]
    assert snapshot_coordinator.files.times_ps() == []
    assert not list(snapshot_coordinator.files.directory.iterdir())


def test_a_copy_that_fails_of_what_counts_already_is_left_alone(tmp_path: Path) -> None:
    notes = Notes()
    snapshot_coordinator = snapshot_coordinator_at(tmp_path, notes, Copying(0))
    save(snapshot_coordinator, 7)
    snapshot_coordinator.copy = Copying(1, "no room there")
    assert snapshot_coordinator.found() is not None
    snapshot_coordinator.finish(60.0)
    assert (snapshot_coordinator.files.times_ps(), notes.lines) == ([7], [])
