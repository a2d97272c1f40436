"""A snapshot on disk counts once every share of it is there, and no more once a byte of it has changed."""

import shutil
from pathlib import Path

import pytest

from actors.runtime.snapshot import Snapshot
from actors.runtime.snapshot_files import SnapshotFiles, digest_of, encode_share, write_file
from tests.conftest import SOAK

SCENARIO = "f" * 8


def keep(files: SnapshotFiles, sync_ps: int, workers: int = 2, pinned: bool = False) -> None:
    digests = []
    for worker in range(workers):
        one = Snapshot(SCENARIO, sync_ps, [sync_ps, 1, 2, 3], [[worker, "state", b"\x00\xff", None, True]])
        content = encode_share(one, worker, workers)
        write_file(files.path_of(sync_ps, worker), content)
        digests.append(digest_of(content))
    files.count(sync_ps, digests, pinned=pinned)


def test_the_newest_generation_is_read_back_as_it_was_taken(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path / "snapshots", SCENARIO)
    assert files.newest() is None
    keep(files, 5)
    keep(files, 70)
    newest = files.newest()
    assert newest is not None
    assert (newest.sync_ps, newest.machine, len(newest.shares)) == (70, [70, 1, 2, 3], 2)
    assert newest.shares[1] == [1, "state", b"\x00\xff", None, True]
    before = files.newest(not_after_ps=69)
    assert before is not None
    assert before.sync_ps == 5
    assert files.newest(not_after_ps=4) is None


def test_two_generations_are_kept_and_those_that_are_pinned(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path, SCENARIO)
    for time_ps, pinned in ((1, False), (2, True), (3, False), (4, False), (5, False)):
        keep(files, time_ps, pinned=pinned)
    assert files.times_ps() == [5, 4, 2]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_generation_without_all_its_shares_does_not_count(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path, SCENARIO)
    keep(files, 5)
    share = Snapshot(SCENARIO, 9, [9, 1, 2, 3], [[0]])
    write_file(files.path_of(9, 0), encode_share(share, 0, 2))
    newest = files.newest()
    assert newest is not None
    assert newest.sync_ps == 5
    files.drop_uncounted()
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000005"]


def test_every_byte_that_changes_makes_the_older_generation_count(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path, SCENARIO)
    keep(files, 5)
    keep(files, 70)
    turns = range(1, 256) if SOAK else (1, 128)
    for path in sorted((tmp_path / f"{70:020}").iterdir()):
        content = path.read_bytes()
        assert len(content) > 40
        changed = [
            content[:at] + bytes([content[at] ^ turn]) + content[at + 1 :]
            for at in range(len(content))
            for turn in turns
        ]
        for wrong in [*changed, content[:-1], content + b"\x00", b"", content[:40]]:
            path.write_bytes(wrong)
            newest = files.newest()
            assert newest is not None
            assert newest.sync_ps == 5
        path.write_bytes(content)
        again = files.newest()
        assert again is not None
        assert again.sync_ps == 70


def test_shares_of_two_snapshots_are_not_mixed(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path, SCENARIO)
    keep(files, 5)
    keep(files, 70)
    shutil.copy(files.path_of(5, 1), files.path_of(70, 1))
    newest = files.newest()
    assert newest is not None
    assert newest.sync_ps == 5
    assert "another share than the one that was counted" in files.broken[-1]
    assert SnapshotFiles(tmp_path, "another").newest() is None


@pytest.mark.parametrize("worker", [0, 1])
def test_a_share_that_is_gone_makes_the_older_generation_count(tmp_path: Path, worker: int) -> None:
    files = SnapshotFiles(tmp_path, SCENARIO)
    keep(files, 5)
    keep(files, 70)
    files.path_of(70, worker).unlink()
    newest = files.newest()
    assert newest is not None
    assert newest.sync_ps == 5
