"""The second copy of a snapshot is checked, bounded, and only there once it is whole."""

import hashlib

import pytest

from emu.cluster.ray.replica_store import CHUNK_BYTES, ReplicaStore
from emu.engine.recovery.snapshots import MAGIC, BrokenFile


def file_of(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


def filled(replica_store: ReplicaStore, sync_ps: int, *files: bytes) -> None:
    replica_store.begin(sync_ps, len(files))
    for worker, file in enumerate(files):
        for at in range(0, len(file), CHUNK_BYTES):
            replica_store.put(sync_ps, worker, file[at : at + CHUNK_BYTES])


def test_what_was_put_in_chunks_is_got_in_chunks_with_its_digests() -> None:
    replica_store = ReplicaStore()
    # A file's body is msgpack: a text of so many bytes, and nil.
    large = file_of(b"\xc6" + (CHUNK_BYTES + 5).to_bytes(4, "big") + b"x" * (CHUNK_BYTES + 5))
    small = file_of(b"\xc0")
    filled(replica_store, 7, large, small)
    assert replica_store.seal(7) == [large[8:40], small[8:40]]
    first = replica_store.get(7, 0, 0)
    assert len(first) == CHUNK_BYTES
    assert first + replica_store.get(7, 0, CHUNK_BYTES) == large
    assert replica_store.get(7, 0, len(large)) == b""
    assert replica_store.get(7, 1, 0) == small


def test_only_what_is_whole_is_given_out() -> None:
    replica_store = ReplicaStore()
    filled(replica_store, 7, file_of(b"\xc0"))
    assert replica_store.get(7, 0, 0) == b""
    assert replica_store.get(8, 0, 0) == b""


@pytest.mark.parametrize("at", range(41))
def test_a_byte_that_changed_on_the_way_is_noticed(at: int) -> None:
    file = bytearray(file_of(b"\xc0"))
    file[at] ^= 1
    replica_store = ReplicaStore()
    filled(replica_store, 7, bytes(file))
    with pytest.raises(BrokenFile, match="file 0: not as it was written"):
        replica_store.seal(7)


def test_two_generations_are_kept_and_what_never_became_whole_is_not() -> None:
    replica_store = ReplicaStore()
    for sync_ps in (1, 2, 3):
        filled(replica_store, sync_ps, file_of(b"\xc0"))
        replica_store.seal(sync_ps)
    filled(replica_store, 4, file_of(b"\xc0"))
    filled(replica_store, 5, file_of(b"\xc2"))
    replica_store.seal(5)
    assert [bool(replica_store.get(sync_ps, 0, 0)) for sync_ps in range(1, 6)] == [
        False,
        False,
        True,
        False,
        True,
    ]


def test_a_generation_that_is_sent_once_more_is_begun_anew() -> None:
    replica_store = ReplicaStore()
    for _ in range(2):
        filled(replica_store, 7, file_of(b"\xc0"))
        assert replica_store.seal(7) == [file_of(b"\xc0")[8:40]]
    assert replica_store.get(7, 0, 0) == file_of(b"\xc0")


def test_more_than_is_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    replica_store = ReplicaStore()
    replica_store.begin(7, 2)
    with pytest.raises(ValueError, match="bytes at once"):
        replica_store.put(7, 0, bytes(CHUNK_BYTES + 1))
    monkeypatch.setattr("emu.cluster.ray.replica_store.MOST_BYTES", 100)
    replica_store.put(7, 0, bytes(60))
    replica_store.put(7, 1, bytes(40))
    with pytest.raises(ValueError, match="100 in all"):
        replica_store.put(7, 1, b"x")
