"""Resuming a run that broke off, and forking one under other conditions.

    with reopen(Path("runs/long-1")) as again:
        options = RunOptions(resume_ps=again.from_ps)
        result = run_prepared(again.prepared, options, None, again.directory)

`reopen` finds the last snapshot of a run directory that counts, and takes the directory so that results are
written on behind it. `fork` makes another directory, which begins with a snapshot of the first.

A snapshot holds state, and the scenario holds conditions: rates, thresholds, timeouts, faults. So the state
at `at_ps` is loaded into devices that are built from a changed scenario. What may change is what a device
reads from its configuration and never copies into its state, and what changes no table's size:
`CHANGEABLE`. All else is refused by name.

A fork of a live run has every change that was made to it (`emu.stored_run`), as the faults of a scenario.

Faults may change from `at_ps` on. They are events that stand in the queue from the start, so those of the
parent that lie ahead are taken out of the snapshot, and those of the fork are put in.

Where the parent has no snapshot at `at_ps`, it is run there first, from the last one before.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Self

import yaml

from actors.kernel.counters import DEVICE_METRICS
from actors.kernel.device import Plain
from actors.kernel.state import as_int, as_list, save_event
from emu.api import Prepared, prepare
from emu.base.errors import RuntimeFailure, UsageError
from emu.base.short_paths import private_directory, remove_private
from emu.base.units import format_time
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import spread
from emu.engine.outcome import RunOptions
from emu.engine.recovery.snapshots import Snapshot, SnapshotFiles, fingerprint
from emu.launch import run_blueprint
from emu.results.metrics import METRIC_OF
from emu.run_directory.run_directory import SNAPSHOTS, RunDirectory, samples_until, write_whole
from emu.run_directory.samples import SampleReader
from emu.scenario.dump import to_yaml
from emu.scenario.expect import SeriesExpectation
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.scenario.set_options import Override
from emu.stored_run import StoredRun, stored_run

CHANGEABLE: Final = (
    "name",
    "description",
    "expect",
    "faults",
    "run.capture",
    "run.max_time",
    "run.sample_every",
    "run.stall_after",
    "host.proxy_cost",
    "gpu.copy_rate",
    "gpu.copy_latency",
    "nic.corrupt_every",
    "routing.hash",
    "routing.fields",
    "routing.polynomial",
    "routing.bit_offset",
    "routing.seed",
    "switch.buffer.alpha",
    "switch.buffer.xon_offset",
    "switch.ecn.kmin",
    "switch.ecn.kmax",
    "switch.ecn.pmax",
    "transport.retry_count",
    "transport.rnr_retry",
    "transport.rnr_timer",
    "transport.timeout",
    "transport.congestion_control.*",
)
"""The keys that may change; a pattern stands for all that match it."""
FIXED: Final = (
    "transport.congestion_control.kind",
    "transport.congestion_control.cnp_priority",
)
"""The keys that may not, although a pattern matches them."""


def check_changes(parent: Scenario, fork: Scenario) -> list[str]:
    """The keys in which a fork differs from its parent. Raises UsageError if one of them may not."""
    before, after = _flat(yaml.safe_load(to_yaml(parent))), _flat(yaml.safe_load(to_yaml(fork)))
    changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    for key in changed:
        if key in FIXED or not any(fnmatchcase(key, pattern) for pattern in CHANGEABLE):
            accepted = ", ".join(CHANGEABLE)
            raise UsageError(
                f"{key}: cannot change in a fork, since state depends on it; accepted: {accepted}"
            )
    return changed


def forked(snapshot: Snapshot, parent: Scenario, fork: Scenario) -> Snapshot:
    """A snapshot of the parent as one of the fork. Raises UsageError if the fork changes what is past."""
    at_ps = snapshot.sync_ps
    shares = list(snapshot.shares)
    if parent.faults != fork.faults:
        before, after = _pending_at_start(parent), _pending_at_start(fork)
        past = [key for key in {*before, *after} if key[0] < at_ps and before.get(key) != after.get(key)]
        if past:
            raise UsageError(
                f"faults: what happens at {format_time(min(past)[0])} is past: "
                f"the fork begins at {format_time(at_ps)}"
            )
        gone = {key for key in before if key[0] >= at_ps}
        shares = [_without(share, gone) for share in shares]
        stop, now, devices, events = as_list(shares[0])
        ahead: list[Plain] = [after[key] for key in sorted(after) if key[0] >= at_ps]
        shares[0] = [stop, now, devices, [*as_list(events), *ahead]]
    return Snapshot(fingerprint(fork), at_ps, snapshot.machine, shares)


def _pending_at_start(scenario: Scenario) -> dict[tuple[int, int], Plain]:
    """The events that a scenario makes pending before anything begins, by time and key."""
    plan = spread(blueprint_of(scenario, build_topology(scenario)), 1)
    events: list[Plain] = [save_event(event) for event in plan.partition(0).kernel.pending()]
    return {_order(event): event for event in events}


def _without(share: Plain, gone: set[tuple[int, int]]) -> Plain:
    stop, now, devices, events = as_list(share)
    return [stop, now, devices, [event for event in as_list(events) if _order(event) not in gone]]


def _order(event: Plain) -> tuple[int, int]:
    values = as_list(event)
    return as_int(values[1]), as_int(values[2])


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """The leaves of a scenario by key; a list is a leaf."""
    found: dict[str, object] = {}
    for key, one in value.items():
        if isinstance(one, Mapping) and one:
            found |= _flat(one, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = one
    return found


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
    run = _stored(path)
    if run.scenario.run.repeat or run.changes:
        raise UsageError(f"{path}: a live run cannot be resumed; emu replay {path} repeats it")
    prepared = prepare(run.begun)
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

    Raises UsageError if a change is not allowed (see `emu.resume`) or the run ended before.
    """
    run = _stored(path)
    parent = prepare(run.loaded())
    child = prepare(run.loaded(changes))
    changed = check_changes(parent.scenario, child.scenario)
    snapshot = _snapshot_at(path, at_ps, run, parent, options)
    ours = forked(snapshot, parent.scenario, child.scenario)
    if out is not None and out.resolve() == path.resolve():
        raise UsageError(f"{out}: is the run that is forked; give another directory with --out")
    directory = RunDirectory.create(child.scenario.name, out, force=force)
    try:
        directory.earlier = samples_until(path, at_ps)
        _check_kept(path, child.scenario)
        reported = {"run": str(path.resolve()), "at_ps": at_ps, "at": format_time(at_ps), "changed": changed}
        write_whole(directory.path / PARENT, json.dumps(reported, indent=1) + "\n")
        SnapshotFiles(directory.path / SNAPSHOTS, fingerprint(child.scenario)).put(ours)
    except OSError as error:
        directory.close()
        raise RuntimeFailure(f"{directory.path}: {error.strerror}") from error
    except BaseException:  # what the parent recorded cannot be read
        directory.close()
        raise
    return Again(child, directory, at_ps)


def _check_kept(path: Path, scenario: Scenario) -> None:
    """UsageError if the samples of the parent lack what the child expects something of."""
    file = path / "samples.jsonl"
    if not file.exists():
        return
    kept = SampleReader(file).counted.kept
    for one in scenario.expect:
        if not isinstance(one, SeriesExpectation):
            continue
        key = one.counted_as
        if key in METRIC_OF and METRIC_OF[key] in DEVICE_METRICS and key not in kept:
            accepted = "accepted: series that it has, or a fork of a run with run.sample_series: all"
            raise UsageError(f"expect {one.metric.name}: not in the samples of {path}; {accepted}")


def _snapshot_at(path: Path, at_ps: int, run: StoredRun, parent: Prepared, options: RunOptions) -> Snapshot:
    """The state of a run at a time; if there is no snapshot, from running it there from the one before.

    The snapshots of a live run are of the scenario that it began with, and hold the changes made by then.
    """
    scenario = parent.scenario
    found = SnapshotFiles(path / SNAPSHOTS, fingerprint(run.begun.scenario)).newest(at_ps)
    if found is not None:
        found = forked(found, run.until(found.sync_ps + 1), scenario)
    if found is not None and found.sync_ps == at_ps:
        return found
    place = private_directory()
    try:
        there = SnapshotFiles(place / SNAPSHOTS, fingerprint(scenario))
        if found is not None:
            there.put(found)
        until = options._replace(
            directory=place,
            snapshot_every_s=0.0,
            snapshot_at_ps=(),
            until_ps=at_ps,
            resume_ps=-1 if found is None else found.sync_ps,
        )
        outcome = run_blueprint(parent.blueprint, until)
        reached = there.newest(at_ps)
    finally:
        remove_private(place)
    if reached is None or reached.sync_ps != at_ps:
        if outcome.uninterrupted().ending.value not in ENDED:
            raise RuntimeFailure(f"the run could not be taken to {format_time(at_ps)}: {outcome.message}")
        ended = format_time(outcome.virtual_ps)
        raise UsageError(f"--at {format_time(at_ps)}: the run came to its end at {ended}")
    return reached


def _stored(path: Path) -> StoredRun:
    if not (path / "scenario.yaml").is_file():
        raise UsageError(f"{path}: holds no run; accepted: a directory that `emu run` made")
    return stored_run(path)


def _ending(path: Path) -> str:
    """How the run in a directory ended, if it says so."""
    try:
        return str(json.loads((path / "summary.json").read_text("utf-8")).get("ending", ""))
    except (OSError, ValueError):
        return ""
