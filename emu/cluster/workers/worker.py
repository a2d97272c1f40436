"""The Ray actor that hosts devices.

An async actor: its loop is asyncio's, with trio as a guest for connections and handshakes; the simulation has
a thread of its own, which drives the sockets of the windows. A call takes about a millisecond, and up to a
slice longer while the simulation runs. The coordinator calls, in this order: `prepare` (build the devices
from the scenario's text, open the sockets), `connect`, `run` (returns when the run is over, for whatever
reason), `collect`, `close`; meanwhile `progress`, `snapshot` and `stop`. To go back it calls `close` and
begins anew with `prepare`; only the metrics page lives on. What it takes and returns is plain: numbers,
texts, tuples. An `EmuError` is returned, not raised, because Ray would wrap it.

`TrioGuest` runs trio inside the actor, whose loop is asyncio's: trio's scheduler takes its turns as callbacks
of the host loop, in the same thread. `call` runs an async function of trio's and gives its result to asyncio;
`spawn` starts one that lives until the guest is closed. Cancelling is trio's: `close` cancels everything that
still runs.

`edition` is equal for processes whose sources of `emu` and `actors` are the same, byte by byte, whether their
packet path is compiled or not. Two editions may answer differently, and the number of the version does not
tell them apart between releases.

What its devices leave behind travels to the coordinator as columns (`emu.cluster.workers.record_columns`).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import outcome
import trio

import actors
import emu
from actors.fabric.model import Topology
from actors.kernel.event import NEVER_PS
from emu.base.cores import usable_cores
from emu.base.errors import EmuError, RuntimeFailure
from emu.cluster.pages.scrape import Scrape
from emu.cluster.pages.state_series import StateReading
from emu.cluster.workers.exchange import Exchange, SocketExchange
from emu.cluster.workers.peers import Address, Peers, RunIdentity, StreamExchange
from emu.cluster.workers.record_columns import RecordColumns, to_columns
from emu.cluster.workers.simulation import Simulation
from emu.devices.drawing import draw
from emu.engine.blueprint import spread
from emu.engine.live.changes import LOOK_S, Changes
from emu.engine.live.open_engine import OpenPart, Outlook, Reports
from emu.engine.outcome import Blame, Made, Progress, Report
from emu.engine.recovery.saving import Saver, SnapshotRequests
from emu.engine.recovery.snapshots import Saved, SnapshotFiles, fingerprint, from_bytes, resume
from emu.engine.sampling import Sampler, Share
from emu.engine.sync.garbage import no_collection
from emu.engine.sync.logical_process import LogicalProcess, records_of
from emu.engine.sync.pacing import Pace
from emu.engine.sync.partition import Partition
from emu.engine.sync.placement import Placement
from emu.engine.sync.sync_points import SyncPoint
from emu.engine.waiting import waits_of
from emu.scenario.load import load_text
from emu.scenario.schema import Scenario

Result = TypeVar("Result")


class TrioGuest:
    """A trio run that shares the thread of the asyncio loop that started it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._nursery: trio.Nursery | None = None
        self.token: trio.lowlevel.TrioToken | None = None
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._loop.call_soon_threadsafe,
            done_callback=self._finished,
            host_uses_signal_set_wakeup_fd=True,
        )

    async def ready(self) -> None:
        """Wait until `call` and `spawn` may be used."""
        await self._ready

    async def call(self, function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
        """Run an async function of trio's; its result, or its exception, comes here."""
        future: asyncio.Future[Result] = self._loop.create_future()

        async def run() -> None:
            result = await outcome.acapture(function, *arguments)
            if future.done():
                return
            if isinstance(result, outcome.Error):
                future.set_exception(result.error)
            else:
                future.set_result(result.unwrap())

        self.spawn(run)
        return await future

    def spawn(self, function: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Start an async function of trio's in the background; it must not raise."""
        assert self.token is not None and self._nursery is not None, "the guest is not ready"
        self.token.run_sync_soon(self._nursery.start_soon, function, *arguments)

    async def close(self) -> None:
        """Cancel what still runs and wait for its end. May be called again."""
        if not self._done.done():
            assert self.token is not None and self._nursery is not None, "the guest is not ready"
            self.token.run_sync_soon(self._nursery.cancel_scope.cancel)
        await self._done

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.token = trio.lowlevel.current_trio_token()
            self._ready.set_result(None)
            await trio.sleep_forever()

    def _finished(self, run: outcome.Outcome[None]) -> None:
        if isinstance(run, outcome.Error) and not self._ready.done():
            self._ready.set_exception(run.error)
        if isinstance(run, outcome.Error) and not isinstance(run.error, trio.Cancelled):
            self._done.set_exception(run.error)
        else:
            self._done.set_result(None)


@cache
def edition() -> str:
    """The edition of this process. Takes some hundredths of a second, once."""
    hashed = hashlib.sha256()
    for package in (actors, emu):
        (place,) = map(Path, package.__path__)
        for path in sorted(place.rglob("*.py")):
            hashed.update(f"{package.__name__}/{path.relative_to(place)}\0".encode())
            hashed.update(hashlib.sha256(path.read_bytes()).digest())
    return hashed.hexdigest()


Order = tuple[str, tuple[Any, ...]]
"""What an open run asks of a worker: `advance`, or a method of `OpenPart`, and its arguments."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SPIN_S: Final = 0.0002


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """What a worker receives: everything else it works out from the scenario."""

    worker: int
    workers: int
    placement: Placement
    scenario: str
    """The effective scenario, as text."""
    run: str
    secret: bytes
    sockets: str
    tcp_host: str
    """The address on which other hosts reach this worker; empty if none need to."""
    metrics: bool
    incarnation: int = 0
    """See `emu.cluster.workers.peers`."""
    moves: tuple[tuple[int, int], ...] = ()
    """Devices that do not live where the placement puts them, and the workers that host them."""
    block: int | None = None
    """NICs in a block (`emu.engine.sync.placement`); None for what suits the fabric."""
    trains: bool = True
    """Whether packets that follow one another go as trains."""
    snapshots: str = ""
    """Where shares of snapshots go and are read; empty where that directory cannot be reached."""
    snapshots_at_ps: tuple[int, ...] = ()
    """When to take one, besides when asked."""
    resume_ps: int = -1
    """The sync point whose snapshot the run goes on from; -1 for the start."""
    end_ps: int = NEVER_PS
    """The end of a run that is repeated, where that is before its scenario's."""
    changes: tuple[tuple[str, int], ...] = ()
    """What was done to a live run so far, and when: see `emu.engine.live.changes`."""
    measured: tuple[Made, ...] = ()
    """What faults that hit the busiest were found to hit so far."""
    pace_ps: int = 0
    """Virtual time a second of wall time at most; 0 for as fast as can be."""
    watch_s: float = 0.0
    """A paced run waits for a coordinator that has not looked for so long."""
    live: bool = False
    """Whether faults may be injected."""
    opens: int = -1
    """The number of the open job, where programs outside post to one."""

    def __repr__(self) -> str:
        return f"WorkerSpec(worker={self.worker}, workers={self.workers}, run={self.run!r})"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor runs."""

    pid: int
    host: str
    """Equal for actors that share Unix sockets."""
    node: str
    ip: str
    """The address on which other hosts reach its node."""
    ray_node: str
    """As Ray calls the node."""
    compiled: bool
    """Whether the packet path is compiled there."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a worker says of itself once it is built."""

    address: Address
    metrics_address: str
    build_s: float


@dataclass(slots=True)
class _Hosted:
    """What a worker has built."""

    spec: WorkerSpec
    scenario: Scenario
    topology: Topology
    partition: Partition
    sampler: Sampler
    changes: Changes
    logical_process: LogicalProcess
    scrape: Scrape
    metrics_address: str
    saver: Saver
    snapshot_requests: SnapshotRequests | None
    part: OpenPart | None = None
    """Part of an open run."""


class Worker:
    """The actor; one of a run."""

    def __init__(self) -> None:
        self._hosted: _Hosted | None = None
        self._guest: TrioGuest | None = None
        self._peers: Peers | None = None
        self._address: Address | None = None
        self._exchange: Exchange | None = None
        self._simulation: Simulation | None = None
        self._pace: Pace | None = None
        self._page: Scrape | None = None
        """The metrics page of the incarnation before."""

    async def where(self) -> Place:
        """Where this actor runs."""
        import ray  # noqa: PLC0415  an actor runs where Ray is

        ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        ident: str = ray.get_runtime_context().get_node_id()
        return Place(os.getpid(), host_identity(), socket.gethostname(), ip, ident, emu.is_compiled())

    async def edition(self) -> tuple[str, str]:
        """Its host's name, and the edition of emu that it runs."""
        return socket.gethostname(), await asyncio.to_thread(edition)

    async def prepare(self, spec: WorkerSpec, snapshot: bytes = b"") -> Prepared | EmuError:
        """Build the devices and open the sockets.

        To go on from a snapshot that this host cannot read, the snapshot comes along, as bytes.
        """
        begun_s = time.perf_counter()
        try:
            page, self._page = self._page, None
            hosted = self._hosted = await asyncio.to_thread(_build, spec, snapshot, page)
            self._guest = TrioGuest()
            await self._guest.ready()
            identity = RunIdentity(spec.run, spec.secret, spec.workers, spec.incarnation)
            self._peers = Peers(identity, spec.worker)
            hosted.scrape.refused = partial(getattr, self._peers, "refused")
            self._address = await self._guest.call(self._peers.listen, host_identity(), spec.tcp_host)
        except EmuError as error:
            return error
        self._guest.spawn(self._peers.serve)
        return Prepared(self._address, hosted.metrics_address, time.perf_counter() - begun_s)

    async def connect(self, addresses: list[Address]) -> EmuError | None:
        """Connect to the peers this worker talks to."""
        assert self._guest is not None and self._peers is not None, "prepare comes first"
        assert self._hosted is not None and self._address is not None, "prepare comes first"
        peers = self._hosted.logical_process.machine.peers
        ways = {peer: addresses[peer].way_from(self._address, self._hosted.spec.sockets) for peer in peers}
        try:
            await self._guest.call(self._peers.connect, ways)
        except EmuError as error:
            return error
        except trio.Cancelled:
            return RuntimeFailure(f"worker {self._hosted.spec.worker} was told to go back while it connected")
        if self._hosted.spec.sockets == "streams":
            assert self._guest.token is not None, "the guest is ready"
            self._exchange = StreamExchange(
                self._peers.streams, self._guest.token, self._guest.spawn, self._peers.seals
            )
        else:
            spin_s = _patience_s(self._hosted.spec)
            self._exchange = SocketExchange(self._peers.take_sockets(), spin_s, self._peers.seals)
        return None

    async def run(self) -> Report:
        """Run until the run is over."""
        hosted = self._hosted
        assert hosted is not None, "prepare comes first"
        between = hosted.scrape.answer
        if hosted.spec.pace_ps and hosted.spec.worker == 0:
            self._pace = Pace(hosted.logical_process.machine, hosted.spec.pace_ps, hosted.spec.watch_s)
        self._simulation = Simulation(
            hosted.logical_process,
            self._exchange,
            between,
            hosted.snapshot_requests,
            self._pace,
            hosted.scenario,
        )
        hosted.scrape.waited_ps = partial(getattr, self._simulation, "waited_ps")
        if hosted.spec.resume_ps < 0:
            hosted.partition.start()
        return await asyncio.to_thread(self._simulation.run)

    async def carry_out(self, orders: list[Order]) -> Any | EmuError:
        """Do what is ordered of an open run, and return the last answer."""
        try:
            return await asyncio.to_thread(self._carry_out, orders)
        except EmuError as error:
            return error

    def _carry_out(self, orders: list[Order]) -> Any:
        assert self._hosted is not None and self._hosted.part is not None, "prepare comes first"
        part = self._hosted.part
        answer: Any = None
        for name, arguments in orders:
            answer = self._advance(part, *arguments) if name == "advance" else getattr(part, name)(*arguments)
        return to_columns(answer) if orders[-1][0] == "records" else answer

    def _advance(self, part: OpenPart, through_ps: int, limit_ps: int) -> tuple[int, Reports, Outlook]:
        """As `Engine.advance`: where the run stands, what came here, and what is pending. Raises
        RuntimeFailure.
        """
        if self._simulation is None:
            scenario = self._hosted.scenario if self._hosted is not None else None
            self._simulation = Simulation(part.process, self._exchange, _nothing, scenario=scenario)
        part.settle(through_ps)
        report = self._simulation.advance(limit_ps)
        if report.fault is not Blame.NONE or not part.process.stands:
            raise RuntimeFailure(report.message or "the open run was ended")
        return part.machine.sync_ps, part.site.take_reports(), part.outlook()

    async def progress(self, heard_ps: int) -> tuple[Progress, list[Share], list[Saved], list[int]]:
        """How far this worker is, its shares of samples after `heard_ps`, of snapshots since the last call,
        and when changes were made.
        """
        assert self._hosted is not None, "prepare comes first"
        if self._pace is not None:
            self._pace.watched()
        # In this order: whoever hears of a snapshot has then heard of every sample before it, and whoever
        # hears of a sample, of every change before that.
        saved = self._hosted.saver.drain()
        shares = self._hosted.sampler.unheard(heard_ps)
        made_ps = list(self._hosted.changes.made_ps)
        refusals = () if self._peers is None else self._peers.drain_refusals()
        lines = tuple(f"worker {self._hosted.spec.worker} refused {one}" for one in refusals)
        progress = self._hosted.scrape.progress()._replace(refusals=lines)
        return progress, shares, saved, made_ps

    async def page(self) -> tuple[int, bytes]:
        """What the metrics page shows, for who cannot reach it, and a virtual time that it is not beyond."""
        assert self._hosted is not None, "prepare comes first"
        return await asyncio.to_thread(self._hosted.scrape.page)

    async def snapshot(self) -> None:
        """Have a snapshot taken as soon as possible; worker 0 only."""
        if self._hosted is not None and self._hosted.snapshot_requests is not None:
            self._hosted.snapshot_requests.soon = True

    async def share(self, sync_ps: int) -> bytes:
        """The share of a snapshot that is kept here in memory; empty if it is not."""
        return b"" if self._hosted is None else self._hosted.saver.kept.get(sync_ps, b"")

    async def stage(self, change: str) -> None:
        """Take a change that will be made at a sync point."""
        assert self._hosted is not None, "prepare comes first"
        self._hosted.changes.stage(change)

    async def request_changes(self, count: int, not_before_ps: int) -> None:
        """Have so many changes made, which every worker was given; worker 0 only."""
        assert self._hosted is not None, "prepare comes first"
        self._hosted.logical_process.machine.request_changes(count, not_before_ps)

    async def made(self, count: int) -> int:
        """When change number `count` was made here, once it is."""
        assert self._hosted is not None, "prepare comes first"
        made_ps = self._hosted.changes.made_ps
        while len(made_ps) < count:  # noqa: ASYNC110  the thread that simulates makes it, and knows no loop
            await asyncio.sleep(LOOK_S)
        return made_ps[count - 1]

    async def request_end(self) -> None:
        """Have the run end, as finished; worker 0 only."""
        if self._hosted is not None:
            self._hosted.logical_process.machine.request_end()

    async def stop(self) -> None:
        """End the simulation at the next slice."""
        if self._simulation is not None:
            self._simulation.stop_asked = True

    async def collect(self) -> tuple[RecordColumns, int]:
        """What the devices leave behind, and the peak resident memory of this process in bytes."""
        assert self._hosted is not None, "prepare comes first"
        await asyncio.to_thread(self._hosted.saver.finish)
        self._hosted.scrape.publish()
        records = to_columns(records_of(self._hosted.partition))
        return records, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    async def waits(self) -> list[tuple[int, int, str, bool]]:
        """What the devices wait for, where a job is unfinished: see `emu.engine.waiting`."""
        assert self._hosted is not None, "prepare comes first"
        found = waits_of(self._hosted.partition.built, self._hosted.topology)
        return [(one.device, one.waits_for, one.why, one.paused) for one in found]

    async def close(self, keep_page: bool = False) -> None:
        """Close, remove and forget everything: the actor is as new. May be called again.

        With `keep_page` the metrics page stays, for the next `prepare` of the same worker.
        """
        await self.stop()
        guest, self._guest = self._guest, None
        if self._exchange is not None:
            self._exchange.close()
        if guest is not None:
            if self._peers is not None:
                await guest.call(self._peers.close)
            await guest.close()
        page, self._page = self._page, None
        if self._hosted is not None:
            page = self._hosted.scrape
            await asyncio.to_thread(self._hosted.saver.close)
        if keep_page:
            self._page = page
        elif page is not None:
            page.close()
        self._hosted = self._peers = self._address = self._exchange = self._simulation = self._pace = None


@no_collection()
def _build(spec: WorkerSpec, snapshot: bytes, page: Scrape | None) -> _Hosted:
    scenario = load_text(spec.scenario, "scenario").scenario
    plan = spread(draw(scenario), spec.workers, spec.placement, spec.moves, spec.block, spec.trains)
    partition, machine = plan.partition(spec.worker), plan.machine(spec.worker, spec.end_ps)
    sampler = Sampler(partition)
    changes = Changes(plan, spec.worker, partition, machine, spec.live, sampler.captures)
    files = SnapshotFiles(Path(spec.snapshots), fingerprint(scenario)) if spec.snapshots else None
    place = None if files is None else partial(files.path_of, worker=spec.worker)
    saver = Saver(fingerprint(scenario), spec.worker, spec.workers, place)
    snapshot_requests = SnapshotRequests(machine, spec.snapshots_at_ps) if spec.worker == 0 else None

    def act(sync: SyncPoint) -> None:
        sampler.act(sync)
        changes.act(sync)
        saver.act(logical_process, sync)
        if snapshot_requests is not None and sync.requested:
            snapshot_requests.passed()

    logical_process = LogicalProcess(partition, machine, act, changes.busiest)
    part: OpenPart | None = None
    if spec.opens >= 0:
        part = OpenPart(plan, partition, machine, changes, spec.opens)
        logical_process = part.process
    # A worker on the coordinator's machine reads the files of a generation; any other one was sent it whole.
    if spec.resume_ps >= 0:
        found = from_bytes(snapshot, fingerprint(scenario)) if files is None else files.read(spec.resume_ps)
        resume([logical_process], found)
        sampler.resume()
    changes.restore(spec.changes, spec.measured, spec.resume_ps)

    def windows() -> int:
        return machine.round

    if page is None:
        page = Scrape(plan.topology, [partition], windows)
    else:
        page.host([partition], windows)
    page.measured = changes.measured
    if spec.metrics:
        page.state = StateReading(plan, (partition,), changes.faults)
    metrics_address = page.start(scenario) if spec.metrics else ""
    return _Hosted(
        spec,
        scenario,
        plan.topology,
        partition,
        sampler,
        changes,
        logical_process,
        page,
        metrics_address,
        saver,
        snapshot_requests,
        part,
    )


def _nothing() -> None:
    """Nobody looks between the slices of an open run."""


def _patience_s(spec: WorkerSpec) -> float:
    """How long a worker looks for its peers' sync messages before it sleeps: where each has a core, as long
    as a window takes; where they share cores, not at all, for then it would keep a peer from running."""
    return SPIN_S if spec.workers <= usable_cores() else 0.0


def host_identity() -> str:
    """Equal for processes that see the same Unix sockets: one boot of one kernel, one view of /tmp."""
    boot = BOOT_ID.read_text("ascii").strip() if BOOT_ID.exists() else socket.gethostname()
    place = Path("/tmp").stat()  # noqa: S108  asked for its identity, not written to
    return f"{boot}/{place.st_dev}/{place.st_ino}"
