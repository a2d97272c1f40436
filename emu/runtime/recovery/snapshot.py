"""A snapshot: the state of a run at a sync point, from which another process goes on.

Every worker's share is the plain state of its devices, the events pending there, and where its machine's
sync points stand. Nothing is in flight at a sync point, so the shares together are the run. They do not say
how it was spread: any number of workers, in any placement, compiled or not, takes what it hosts from all
shares.

    snapshot  msgpack map: version, scenario (SHA-256 of its effective text), sync_ps, machine, shares
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import msgpack  # type: ignore[import-untyped]  # it ships no types

from actors.kernel.device import Plain
from emu.errors import EmuError, RuntimeFailure, UsageError
from emu.runtime.sync.logical_process import LogicalProcess
from emu.scenario.dump import canonical_bytes
from emu.scenario.schema import Scenario
from emu.units import format_time

VERSION: Final = 2
_KEYS: Final = {"version", "scenario", "sync_ps", "machine", "shares"}


@dataclass(frozen=True, slots=True)
class Snapshot:
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
