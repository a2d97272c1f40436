"""Records of a run: its options, its progress, its end and its outcome.

Plain records, so that the command, the public API and the tests read the same things whether the devices
ran in one process or on a cluster. Times are virtual and in ps unless a name says otherwise.

The report of a worker says how its thread ended: with the run, on request, or with a fault, and whose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from actors.kernel.event import NEVER_PS
from emu.counts.collected import CapturedRows, Changed, DeviceRecord, EngineFacts, Layouts

if TYPE_CHECKING:  # what a run that nobody steers has no use for
    from emu.engine.steering import Steering
    from emu.scenario.live_changes import Change
    from emu.scenario.schema import Scenario


class Made(NamedTuple):
    """The target of a fault was measured (`emu.engine.live.changes`)."""

    at_ps: int
    entry: int
    place: int
    """Which of its occurrences."""
    target: str


class Ending(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    """Every job is done."""
    STALLED = "stalled"
    """Nothing moves any more, and a job is unfinished."""
    TIME_LIMIT = "time_limit"
    """The scenario's `max_time` passed with a job unfinished."""
    INTERRUPTED = "interrupted"
    """The user asked for the end."""
    FAILED = "failed"
    """A worker or a socket failed."""


class RunOptions(NamedTuple):
    """How a scenario is to be run; nothing here changes its answer."""

    local: bool = False
    """In this process, without Ray."""
    chooses: bool = False
    """Whether that is open: one process, or workers where they pay (`emu.engine.distributing`)."""
    why: str = ""
    """Why it is one process or workers, for the summary."""
    instead: int = 0
    """How many workers one process was compared with, if it was."""
    parts: int = 1
    """With `local`: how many separately built partitions."""
    block: int | None = None
    """NICs in a block of devices that run while they are in the cache; None for what suits the fabric."""
    trains: bool = True
    """Whether packets that follow one another go as trains (`actors.wire.train`)."""
    delay_seed: int = 1
    """With `local` and several parts: the seed of the delays between them."""
    workers: int | None = None
    """Ray workers; None chooses as many as there are CPUs, or what the placement demands."""
    placement: str = "packed"
    address: str | None = None
    """Address of a Ray cluster; None starts one on this machine for the run."""
    pins: tuple[str, ...] = ()
    """PATTERN=NODE: which devices live on which node of the cluster (`emu.cluster.ray.nodes`)."""
    unprotected: bool = False
    """Whether to use a cluster of other machines though it asks nobody for a token."""
    wheel: Path | None = None
    """The package as the nodes of the cluster are to have it; None if they have it already."""
    directory: Path | None = None
    """The run directory, where workers.json goes as soon as the workers are up."""
    sockets: str = "auto"
    """`auto`: Unix on one host and TCP between hosts; `tcp`: TCP everywhere; `streams`: that, moved by trio's
    streams, the reference for what the simulating thread does itself."""
    metrics: bool = True
    """Whether workers serve Prometheus text on loopback."""
    discovery_port: int = 0
    """The port of the page that lists them; 0 lets the kernel choose."""
    progress_every_s: float = 0.25
    recoveries: int = 5
    """On Ray: how often in a row the run goes back to a snapshot without getting farther than before."""
    liveness_s: float = 60.0
    """On Ray: how long a worker may give no sign of life before it is ended, and another takes its place."""
    snapshot_every_s: float | None = None
    """Wall time between snapshots; None for what their cost allows, 0 for none."""
    snapshot_at_ps: tuple[int, ...] = ()
    """When to take further ones, which are kept."""
    resume_ps: int = -1
    """The sync point of the snapshot in `directory` to go on from; -1 begins at the start."""
    until_ps: int = -1
    """If not negative: take a snapshot then, and end as if interrupted."""
    end_ps: int = NEVER_PS
    """The end of a live run that is done again: where somebody ended it, as finished."""
    pace_ps: int = 0
    """Virtual time a second of wall time, at most; 0 for as fast as can be."""
    steering: Steering | None = None
    """Who steers a live run meanwhile. Such a run is ended as finished."""


class WorkerRecord(NamedTuple):
    """One worker as workers.json tells of it. `devices` are the names of what it hosts, in device order."""

    worker: int
    pid: int
    node: str
    data_address: str
    """Where its peers reach it; empty if it has none."""
    metrics_address: str
    """Where the coordinator's host reads its Prometheus text, under /metrics: HOST:PORT, or HOST:PORT/PATH;
    empty if it serves none."""
    devices: tuple[str, ...]
    ray_node: str = ""
    """The Ray node it lives on; empty without Ray."""
    compiled: bool = False
    """Whether its packet path is compiled; that may differ from node to node, and the answer may not."""


class Awaited(NamedTuple):
    """What a run goes on with while it moves no payload, and when."""

    at_ps: int
    kind: str
    """As `actors.kernel.event.KIND_NAMES` has it."""
    device: str


class Progress(NamedTuple):
    """How far a run is: `delivered_bytes` of payload before about `virtual_ps`."""

    virtual_ps: int
    delivered_bytes: int
    operations: tuple[tuple[int, ...], ...] = ()
    """The controller's rows of operations that have ended so far."""
    refusals: tuple[str, ...] = ()
    """Connections to workers that were refused since the last progress: which worker, from where, and why."""
    measured: tuple[Made, ...] = ()
    """What faults that hit the busiest were found to hit, so far."""
    awaits: Awaited | None = None
    """Where no payload was delivered since the last progress: what comes next. Not known of a run on Ray."""
    operator: tuple[tuple[int, ...], ...] = ()
    """The operator's rows so far (`actors.control.operator`)."""


class Observer:
    """Hears of a run while it runs. Every method may be left as it is."""

    def workers_up(self, workers: tuple[WorkerRecord, ...], discovery_url: str) -> None:
        """Every worker is built, connected and serving; `discovery_url` lists their metrics, if not empty."""

    def progressed(self, progress: Progress) -> None:
        """Called every `progress_every_s` or so of wall time."""

    def changed(self, change: Change, fault: int, at_ps: int, scenario: Scenario) -> None:
        """A live run was changed: fault `fault` was injected or cleared. `scenario` is what it is now."""

    def counted(self, layouts: Layouts) -> None:
        """What the devices count; heard of once, before the first sample."""

    def sampled(self, changed: Changed, mixed: Mapping[int, Sequence[int]]) -> None:
        """Every worker passed a sampling point: what changed since the one before of all counters, and in
        `mixed`, of each device whose mixes changed, place and new mix in turn.

        Each sampling point is heard of once, in order, also where the run goes back to a snapshot.
        """

    def captured(self, rows: Sequence[tuple[int, CapturedRows]]) -> None:
        """Captures are over: what each has of a port, with the port's device."""

    def noted(self, line: str) -> None:
        """Something happened to the run that the user should know: it went back, or could not be saved."""

    def settle(self) -> None:
        """A snapshot is about to count: what was heard so far must be on disk. Raises OSError."""


class Outcome(NamedTuple):
    """What is left of a run. After anything but FINISHED, STALLED and TIME_LIMIT it is partial."""

    ending: Ending
    message: str
    """Why, unless FINISHED: a line, and after a stall more of them, which say who waits for whom."""
    virtual_ps: int
    digest: str
    """Empty if partial: where an interrupted run stops is nobody's answer."""
    devices: tuple[DeviceRecord, ...]
    engine: EngineFacts
    workers: tuple[WorkerRecord, ...] = ()
    build_s: float = 0.0
    """Wall time from the call to the first window."""

    @property
    def operations(self) -> tuple[tuple[int, ...], ...]:
        """The controller's rows: job, operation, start, end, status; none where its worker is gone."""
        rows = (row for one in self.devices for row in one.results.get("operations", ()))
        return tuple(tuple(row) for row in rows)

    def uninterrupted(self) -> Outcome:
        """The outcome of a whole run. Raises KeyboardInterrupt if Ctrl-C or SIGTERM ended it."""
        if self.ending is Ending.INTERRUPTED:
            raise KeyboardInterrupt
        return self

    @property
    def exit_status(self) -> int:
        """0 finished, 3 stalled or out of time, 4 failed, 130 interrupted; expectations are the caller's."""
        statuses = {
            Ending.FINISHED: 0,
            Ending.STALLED: 3,
            Ending.TIME_LIMIT: 3,
            Ending.INTERRUPTED: 130,
            Ending.FAILED: 4,
        }
        return statuses[self.ending]


class Blame(StrEnum):
    """Whose fault the end was."""

    NONE = "none"
    OWN = "own"
    PEER = "peer"


class Report(NamedTuple):
    """How the thread ended: with the run (`ending`), because it was asked to (neither), or with a fault."""

    ending: Ending | None
    fault: Blame
    message: str
    details: str
    """A traceback, for what nobody expected."""
    virtual_ps: int
    windows: int
    wall_s: float
    cpu_s: float
