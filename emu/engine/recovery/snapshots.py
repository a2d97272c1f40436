"""Snapshots: the state of a run at a sync point, and the files of a run directory that keep it.

Every worker's share is the plain state of its devices, the events pending there, and where its machine's
sync points stand. Nothing is in flight at a sync point, so the shares together are the run. They do not say
how it was spread: any number of workers, in any placement, compiled or not, takes what it hosts from all
shares.

    snapshot  msgpack map: version, scenario (SHA-256 of its effective text), sync_ps, machine, shares

Files, and which of them count:

    snapshots/00000000000412300000/     the virtual time of the sync point, in ps
        worker-0, worker-1, ...         every worker's share
        whole                           written last: it names the digest of every share

Each file is a magic, the SHA-256 of what follows, and a msgpack body. It is written beside its place, synced
to disk and moved there, so it is whole or absent, and whatever byte of it changes afterwards is noticed. A
generation counts once `whole` is there and every share has the digest that `whole` names: until then, and
if one no longer has, the one before it is used. The two newest that count are kept, and those a user asked
for at a time (`pinned`) besides.

The coordinator writes `whole` only after all that was sampled before the sync point is on disk with the
results, so whoever goes on from it continues those files without a gap.

A second copy on another node: `emu.cluster.ray.replica_store`.

Not covered: the loss of the disk. The run directory belongs on storage that outlives the driver's node.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgpack  # type: ignore[import-untyped]  # it ships no types

from actors.kernel.device import Plain
from actors.kernel.event import NEVER_PS
from emu.base.errors import EmuError, RuntimeFailure, UsageError
from emu.base.units import format_time
from emu.engine.sync.logical_process import LogicalProcess
from emu.scenario.dump import canonical_bytes
from emu.scenario.schema import Scenario

VERSION: Final = 8
_KEYS: Final = {"version", "scenario", "sync_ps", "machine", "shares"}


Steps = Iterator[None]
"""What is done a step at a time; it has ended once all is done."""


class Snapshot(NamedTuple):
    """The state of a run at `sync_ps`."""

    scenario: str
    sync_ps: int
    machine: list[int]
    shares: list[Plain]


def fingerprint(scenario: Scenario) -> str:
    """Which scenario a snapshot is of."""
    return hashlib.sha256(canonical_bytes(scenario)).hexdigest()


def take_snapshot(logical_processes: Sequence[LogicalProcess], scenario: str) -> Snapshot:
    """The state of a run whose logical processes all act at one sync point now."""
    machine = logical_processes[0].machine
    shares: list[Plain] = [cast("Plain", one.partition.save()) for one in logical_processes]
    return Snapshot(scenario, machine.sync_ps, machine.save(), shares)


def resume(logical_processes: Sequence[LogicalProcess], snapshot: Snapshot) -> None:
    """Set logical processes, built but not started, to where a snapshot was taken. Raises RuntimeFailure for
    one that is whole and of another form, as another edition may have written it.
    """
    try:
        for logical_process in logical_processes:
            logical_process.partition.load(snapshot.shares)
            logical_process.machine.load(snapshot.machine)
            logical_process.resume_at(snapshot.sync_ps)
    except EmuError:
        raise
    except Exception as error:  # what a device makes of a foreign state is anybody's guess
        raise RuntimeFailure(
            f"the snapshot of {format_time(snapshot.sync_ps)} is not of the form that this edition of emu "
            f"reads ({type(error).__name__}: {error}); accepted: the edition that wrote it, or a new run"
        ) from error


def to_bytes(snapshot: Snapshot) -> bytes:
    """A snapshot as it is kept."""
    packed: bytes = msgpack.packb(
        {
            "version": VERSION,
            "scenario": snapshot.scenario,
            "sync_ps": snapshot.sync_ps,
            "machine": snapshot.machine,
            "shares": snapshot.shares,
        }
    )
    return packed


def from_bytes(packed: bytes, scenario: str) -> Snapshot:
    """The snapshot that was kept, if it is of this scenario. Raises UsageError."""
    try:
        record = msgpack.unpackb(packed)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise UsageError(f"{len(packed)} bytes that are no snapshot") from error
    if not isinstance(record, dict) or set(record) != _KEYS:
        raise UsageError(f"{len(packed)} bytes that are no snapshot")
    if record["version"] != VERSION:
        raise UsageError(f"a snapshot of version {record.get('version')}; this is version {VERSION}")
    if record["scenario"] != scenario:
        raise UsageError("the snapshot is of another scenario")
    return Snapshot(scenario, record["sync_ps"], record["machine"], record["shares"])


WHOLE: Final = "whole"
MAGIC: Final = b"emusnap1"
DIGEST_BYTES: Final = 32
HEAD_BYTES: Final = len(MAGIC) + DIGEST_BYTES
KEPT: Final = 2
"""How many generations that count are kept."""
TIME_DIGITS: Final = 20
_SHARE_KEYS: Final = {"scenario", "sync_ps", "worker", "workers", "machine", "share"}
_WHOLE_KEYS: Final = {"scenario", "sync_ps", "pinned", "digests"}


class BrokenFile(RuntimeFailure):
    """A file of a snapshot is not what was written. The text says which, and what is wrong with it."""


class Saved(NamedTuple):
    """What a worker says of a share it was to write."""

    sync_ps: int
    digest: bytes
    """Digest of the share; empty if it was not written."""
    cost_s: float
    """How long the run stood still for it."""
    error: str = ""
    """Why it was not written."""


def encode_share(snapshot: Snapshot, worker: int, workers: int) -> bytes:
    """The file of one worker's share; `snapshot` has only that share."""
    (share,) = snapshot.shares
    return sealed(
        {
            "scenario": snapshot.scenario,
            "sync_ps": snapshot.sync_ps,
            "worker": worker,
            "workers": workers,
            "machine": snapshot.machine,
            "share": share,
        }
    )


def digest_of(file: bytes) -> bytes:
    """The digest that a file's head carries."""
    return file[len(MAGIC) : HEAD_BYTES]


def write_file(path: Path, content: bytes) -> None:
    """Write a file so that it is whole or absent, also after the machine lost power. Raises OSError."""
    for parent in (path.parent.parent, path.parent):  # `parents` makes the first with the umask's mode
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    place = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def read_file(path: Path) -> tuple[bytes, Any]:
    """The digest of a file and its body. Raises BrokenFile."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BrokenFile(f"{path}: {error.strerror}") from error
    return opened(content, str(path))


def opened(content: bytes, name: str) -> tuple[bytes, Any]:
    """The digest and the body of a file's content. Raises BrokenFile."""
    body = content[HEAD_BYTES:]
    digest = hashlib.sha256(body).digest()
    if len(content) <= HEAD_BYTES or not content.startswith(MAGIC) or digest_of(content) != digest:
        raise BrokenFile(f"{name}: not as it was written ({len(content)} bytes)")
    try:
        return digest, msgpack.unpackb(body)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise BrokenFile(f"{name}: its digest is right, and what it holds is no msgpack ({error})") from None


class SnapshotFiles:
    """The snapshots of one run, of the scenario with this fingerprint."""

    def __init__(self, directory: Path, scenario: str) -> None:
        self.directory = directory
        self._scenario = scenario
        self.broken: list[str] = []
        """Why generations that should count do not, as found by `newest`."""
        self.mend: Callable[[int, Sequence[bytes]], bool] = _no_copy
        """Writes what has changed since a generation was counted once more, given its digests."""

    def path_of(self, sync_ps: int, worker: int) -> Path:
        """Where a worker's share goes."""
        return self._generation(sync_ps) / f"worker-{worker}"

    def count(self, sync_ps: int, digests: Sequence[bytes], *, pinned: bool = False) -> None:
        """Every worker's share is written: from now on the generation counts. Raises OSError."""
        body = {
            "scenario": self._scenario,
            "sync_ps": sync_ps,
            "pinned": pinned,
            "digests": list(digests),
        }
        write_file(self._generation(sync_ps) / WHOLE, sealed(body))
        self._prune()

    def put(self, snapshot: Snapshot) -> None:
        """Keep a whole snapshot, for good. Raises OSError."""
        digests = []
        for worker, share in enumerate(snapshot.shares):
            one = Snapshot(snapshot.scenario, snapshot.sync_ps, snapshot.machine, [share])
            content = encode_share(one, worker, len(snapshot.shares))
            write_file(self.path_of(snapshot.sync_ps, worker), content)
            digests.append(digest_of(content))
        self.count(snapshot.sync_ps, digests, pinned=True)

    def newest(self, not_after_ps: int = NEVER_PS) -> Snapshot | None:
        """The newest snapshot that counts, and is as it was written; None if there is none."""
        for sync_ps in self._counted():
            if sync_ps > not_after_ps:
                continue
            try:
                return self._mended(sync_ps)
            except BrokenFile as error:
                self.broken.append(str(error))
        return None

    def times_ps(self) -> list[int]:
        """The sync points whose generations say that they count, newest first."""
        return list(self._counted())

    def drop_uncounted(self) -> None:
        """Remove what was begun and does not count."""
        for sync_ps in self._generations():
            if not (self._generation(sync_ps) / WHOLE).exists():
                shutil.rmtree(self._generation(sync_ps), ignore_errors=True)

    def drop(self, sync_ps: int) -> None:
        """Remove what there is of a generation."""
        shutil.rmtree(self._generation(sync_ps), ignore_errors=True)

    def drop_unpinned(self) -> None:
        """Remove all that no user asked for."""
        for sync_ps in self._generations():
            if not _is_pinned(self._generation(sync_ps) / WHOLE):
                shutil.rmtree(self._generation(sync_ps), ignore_errors=True)
        with suppress(OSError):
            self.directory.rmdir()

    def read(self, sync_ps: int) -> Snapshot:
        """The snapshot of a sync point. Raises BrokenFile if it does not count."""
        whole = self._whole(sync_ps)
        shares: list[Plain] = []
        machine: list[int] = []
        for worker, digest in enumerate(whole["digests"]):
            path = self.path_of(sync_ps, worker)
            found, share = read_file(path)
            wanted = {
                "scenario": self._scenario,
                "sync_ps": sync_ps,
                "worker": worker,
                "workers": len(whole["digests"]),
            }
            if found != digest or not _is_share(share, wanted):
                raise BrokenFile(f"{path}: another share than the one that was counted")
            shares.append(share["share"])
            machine = share["machine"]
        return Snapshot(self._scenario, sync_ps, machine, shares)

    def _mended(self, sync_ps: int) -> Snapshot:
        """The snapshot of a sync point, from a second copy if there is one. Raises BrokenFile."""
        try:
            return self.read(sync_ps)
        except BrokenFile:
            if not self.mend(sync_ps, self.digests(sync_ps)):
                raise
        return self.read(sync_ps)

    def _whole(self, sync_ps: int) -> dict[str, Any]:
        """What makes a generation count. Raises BrokenFile if it does not."""
        generation = self._generation(sync_ps)
        _, whole = read_file(generation / WHOLE)
        if not isinstance(whole, dict) or set(whole) != _WHOLE_KEYS or whole["sync_ps"] != sync_ps:
            raise BrokenFile(f"{generation / WHOLE}: not what makes a snapshot whole")
        digests = whole["digests"]
        if not isinstance(digests, list) or not all(isinstance(one, bytes) for one in digests):
            raise BrokenFile(f"{generation / WHOLE}: not what makes a snapshot whole")
        if whole["scenario"] != self._scenario:
            raise BrokenFile(f"{generation}: of another scenario")
        return whole

    def digests(self, sync_ps: int) -> list[bytes]:
        """The digest of every share of a generation that counts. Raises BrokenFile."""
        found: list[bytes] = self._whole(sync_ps)["digests"]
        return found

    def _prune(self) -> None:
        """Keep the newest that count, and those that are pinned."""
        kept = 0
        for sync_ps in self._generations():
            whole = self._generation(sync_ps) / WHOLE
            if whole.exists():
                kept += 1
                if kept <= KEPT or _is_pinned(whole):
                    continue
            elif kept == 0:
                continue
            shutil.rmtree(self._generation(sync_ps), ignore_errors=True)

    def _counted(self) -> Iterator[int]:
        for sync_ps in self._generations():
            if (self._generation(sync_ps) / WHOLE).exists():
                yield sync_ps

    def _generations(self) -> list[int]:
        """Newest first."""
        if not self.directory.is_dir():
            return []
        names = [entry.name for entry in self.directory.iterdir()]
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def _generation(self, sync_ps: int) -> Path:
        return self.directory / f"{sync_ps:0{TIME_DIGITS}}"


def _no_copy(_sync_ps: int, _digests: Sequence[bytes]) -> bool:
    """There is no second copy."""
    return False


def _is_share(share: Any, wanted: dict[str, Any]) -> bool:
    """Whether the body of a file is a worker's share, and the wanted one."""
    if not isinstance(share, dict) or set(share) != _SHARE_KEYS:
        return False
    machine = share["machine"]
    return (
        all(share[key] == value for key, value in wanted.items())
        and isinstance(machine, list)
        and all(type(one) is int for one in machine)
    )


def _is_pinned(whole: Path) -> bool:
    try:
        _, body = read_file(whole)
    except BrokenFile:
        return False
    return isinstance(body, dict) and body.get("pinned") is True


def sealed(body: dict[str, Any]) -> bytes:
    """A file's content: the magic, the digest of the body, the body."""
    packed: bytes = msgpack.packb(body)
    return MAGIC + hashlib.sha256(packed).digest() + packed
