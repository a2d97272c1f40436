"""How does a run that broke off go on, and how does one go on under another condition?

    with reopen(Path("runs/long-1")) as again:
        options = RunOptions(resume_ps=again.from_ps)
        result = run_prepared(again.prepared, options, None, again.directory)

`reopen` finds the last snapshot of a run directory that counts, and takes the directory so that results are
written on behind it. `fork` makes another directory, which begins with a snapshot of the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from emu.api import Prepared, prepare
from emu.errors import RuntimeFailure, UsageError
from emu.measure.run_directory.run_directory import SNAPSHOTS, RunDirectory, samples_until, write_whole
from emu.runtime.outcome import RunOptions
from emu.runtime.recovery.fork import check_changes, forked
from emu.runtime.recovery.snapshot import Snapshot, fingerprint
from emu.runtime.recovery.snapshot_files import SnapshotFiles
from emu.runtime.run import run_scenario
from emu.runtime.workers.short_paths import private_directory, remove_private
from emu.scenario.load import load
from emu.scenario.set_options import Override
from emu.units import format_time

ENDED: Final = ("finished", "stalled", "time_limit")
PARENT: Final = "parent.json"


@dataclass(frozen=True, slots=True)
class Again:
    """A run to go on with: from the sync point `from_ps`, or from the start if that is -1."""

    prepared: Prepared
    directory: RunDirectory
    from_ps: int
    broken: Sequence[str] = ()
    """Snapshots that should count and do not, and why."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.directory.close()


def reopen(path: Path) -> Again:
    """Go on with the run in a directory. Raises UsageError if there is none, or if it came to its end."""
    prepared = _prepared(path)
    if prepared.scenario.run.repeat:
        raise UsageError(f"{path}: a live run is not gone on with; emu replay {path} repeats it")
    ending = _ending(path)
    if ending in ENDED:
        raise UsageError(f"{path}: the run came to its end ({ending}); there is nothing to go on with")
    files = SnapshotFiles(path / SNAPSHOTS, fingerprint(prepared.scenario))
    snapshot = files.newest()
    if snapshot is None:
        return Again(
            prepared, RunDirectory.create(prepared.scenario.name, path, force=True), -1, files.broken
        )
    directory = RunDirectory.reopen(path, snapshot.sync_ps)
    return Again(prepared, directory, snapshot.sync_ps, files.broken)


def fork(
    path: Path,
    at_ps: int,
    changes: Iterable[Override],
    out: Path | None,
    options: RunOptions,
    *,
    force: bool = False,
) -> Again:
    """Go on with a run from `at_ps` under another condition, in another directory.

    With `force` that may hold an earlier run, which is replaced.

    Raises UsageError if a change is not allowed (see `emu.runtime.recovery.fork`) or the run ended before.
    """
    parent = _prepared(path)
    child = _prepared(path, changes)
    changed = check_changes(parent.scenario, child.scenario)
    snapshot = _snapshot_at(path, at_ps, parent, options)
    ours = forked(snapshot, parent.scenario, child.scenario)
    if out is not None and out.resolve() == path.resolve():
        raise UsageError(f"{out}: is the run that is forked; give another directory with --out")
    directory = RunDirectory.create(child.scenario.name, out, force=force)
    try:
        directory.earlier = samples_until(path, at_ps)
        told = {"run": str(path.resolve()), "at_ps": at_ps, "at": format_time(at_ps), "changed": changed}
        write_whole(directory.path / PARENT, json.dumps(told, indent=1) + "\n")
        SnapshotFiles(directory.path / SNAPSHOTS, fingerprint(child.scenario)).put(ours)
    except OSError as error:
        directory.close()
        raise RuntimeFailure(f"{directory.path}: {error.strerror}") from error
    return Again(child, directory, at_ps)


def _snapshot_at(path: Path, at_ps: int, parent: Prepared, options: RunOptions) -> Snapshot:
    """The state of a run at a time; if there is no snapshot, from running it there from the one before."""
    scenario = parent.scenario
    files = SnapshotFiles(path / SNAPSHOTS, fingerprint(scenario))
    found = files.newest(at_ps)
    if found is not None and found.sync_ps == at_ps:
        return found
    place = private_directory()
    try:
        there = SnapshotFiles(place / SNAPSHOTS, fingerprint(scenario))
        if found is not None:
            there.put(found)
        until = replace(
            options,
            directory=place,
            snapshot_every_s=0.0,
            snapshot_at_ps=(),
            until_ps=at_ps,
            resume_ps=-1 if found is None else found.sync_ps,
        )
        outcome = run_scenario(scenario, parent.topology, until)
        reached = there.newest(at_ps)
    finally:
        remove_private(place)
    if reached is None or reached.sync_ps != at_ps:
        if outcome.ending.value not in ENDED:
            raise RuntimeFailure(f"the run could not be taken to {format_time(at_ps)}: {outcome.message}")
        ended = format_time(outcome.virtual_ps)
        raise UsageError(f"--at {format_time(at_ps)}: the run came to its end at {ended}")
    return reached


def _prepared(path: Path, changes: Iterable[Override] = ()) -> Prepared:
    file = path / "scenario.yaml"
    if not file.is_file():
        raise UsageError(f"{path}: holds no run; accepted: a directory that `emu run` made")
    return prepare(load(file, list(changes)))


def _ending(path: Path) -> str:
    """How the run in a directory ended, if it says so."""
    try:
        return str(json.loads((path / "summary.json").read_text("utf-8")).get("ending", ""))
    except (OSError, ValueError):
        return ""
