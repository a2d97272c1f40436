"""A snapshot on disk counts once every share of it is there, and no more once a byte of it has changed."""

import hashlib
import os
import shutil
import stat
from pathlib import Path

import msgpack  # type: ignore[import-untyped]  # it ships no types
import pytest

from emu.engine.recovery.snapshots import Snapshot, SnapshotFiles, digest_of, encode_share, write_file
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


WHOLE_SHARE = {
    "scenario": SCENARIO,
    "sync_ps": 70,
    "worker": 1,
    "workers": 2,
    "machine": [70, 1, 2, 3],
    "share": [1],
}
WRONG_SHARES: dict[str, object] = {
    "a number": 7,
    "nothing": None,
    "a list": [1, 2, 3],
    "a key too few": {key: value for key, value in WHOLE_SHARE.items() if key != "machine"},
    "of another scenario": WHOLE_SHARE | {"scenario": "0" * 8},
    "of another time": WHOLE_SHARE | {"sync_ps": 71},
    "of another worker": WHOLE_SHARE | {"worker": 0},
    "of more workers": WHOLE_SHARE | {"workers": 3},
    "a machine of text": WHOLE_SHARE | {"machine": "70"},
    "a machine of texts": WHOLE_SHARE | {"machine": ["70"]},
}


def sealed(packed: bytes) -> bytes:
    """A file whose digest is right, as docs/recovery.md says that it begins."""
    return b"emusnap1" + hashlib.sha256(packed).digest() + packed


@pytest.mark.parametrize("packed", [*map(msgpack.packb, WRONG_SHARES.values()), b"\xc1", b"\x92\x01"])
def test_a_share_with_the_right_digest_and_a_wrong_body_does_not_count(tmp_path: Path, packed: bytes) -> None:
    files = SnapshotFiles(tmp_path / "snapshots", SCENARIO)
    keep(files, 5)
    keep(files, 70)
    wrong = sealed(packed)
    write_file(files.path_of(70, 1), wrong)
    files.count(70, [digest_of(files.path_of(70, 0).read_bytes()), digest_of(wrong)])
    newest = files.newest()
    assert newest is not None
    assert newest.sync_ps == 5
    (line,) = files.broken
    assert line.startswith(f"{files.path_of(70, 1)}: ")


@pytest.mark.parametrize("packed", [b"\xc1", msgpack.packb([1]), msgpack.packb({"digests": 3})])
def test_what_says_that_a_generation_is_whole_and_is_nonsense_does_not_count(
    tmp_path: Path, packed: bytes
) -> None:
    files = SnapshotFiles(tmp_path / "snapshots", SCENARIO)
    keep(files, 5)
    keep(files, 70)
    write_file(files.path_of(70, 1).with_name("whole"), sealed(packed))
    newest = files.newest()
    assert newest is not None
    assert newest.sync_ps == 5
    files.drop_unpinned()
    assert files.times_ps() == []


def test_only_its_owner_may_enter_where_snapshots_are(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        keep(SnapshotFiles(tmp_path / "snapshots", SCENARIO), 5)
    finally:
        os.umask(umask)
    places = [tmp_path / "snapshots", tmp_path / "snapshots" / f"{5:020}"]
    assert [stat.S_IMODE(place.stat().st_mode) for place in places] == [0o700, 0o700]
    modes = {stat.S_IMODE(file.stat().st_mode) for file in places[1].iterdir()}
    assert modes == {0o600}
