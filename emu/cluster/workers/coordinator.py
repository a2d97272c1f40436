"""The coordinator, which starts the workers, hears from them, and decides how the run ended.

The coordinator lives in the process of whoever asked for the run. It places actors, lets them build,
connect and run, and meanwhile only listens: windows, sync points and the end of the run are agreed on by
the workers alone. An attempt ends in one of four ways: every worker reports the same ending; the user asked
for the end; a worker failed and said why; or an actor is gone or a connection broke. In the last case the
others stay alive and go back: all build anew, in a new incarnation, load the last snapshot that counts (or
begin at the start, if there is none yet), and go on (`emu.engine.recovery.rules`,
`emu.engine.recovery.snapshots`). Otherwise the others are told to stop, what they have is collected, and the
outcome names the worker that began it.
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

from emu.base.cores import usable_cores
from emu.base.errors import RuntimeFailure
from emu.base.units import format_time
from emu.cluster.pages.metrics_page import Discovery, RemoteMetrics
from emu.cluster.ray.lost_servers import ClusterWatch, WorkerFault, watch_of_cluster
from emu.cluster.ray.nodes import ClusterLost
from emu.cluster.ray.replica_store import SecondCopy, brought
from emu.cluster.ray.session import ray_session
from emu.cluster.workers.idle_workers import worker_pool_of_session
from emu.cluster.workers.peers import FORCING_TCP, SECRET_BYTES, Address
from emu.cluster.workers.ray_lead import RayLead
from emu.cluster.workers.record_columns import merged
from emu.cluster.workers.worker import Place, Prepared, WorkerSpec, host_identity
from emu.cluster.workers.worker_group import (
    ASK_S,
    START,
    START_S,
    WorkerGone,
    WorkerGroup,
    WorkerPlacement,
    cluster_cpus,
    housed,
    without_errors,
)
from emu.counts.collected import DeviceRecord, EngineFacts
from emu.devices.drawing import Blueprint
from emu.engine.blueprint import RunPlan, spread
from emu.engine.interruption import Interruption
from emu.engine.live.changes import LOOK_S as LEAD_S
from emu.engine.outcome import (
    Blame,
    Ending,
    Made,
    Observer,
    Outcome,
    Progress,
    Report,
    RunOptions,
    WorkerRecord,
)
from emu.engine.recovery.rules import Patience, can_be_repeated, judge, kept_details
from emu.engine.recovery.snapshot_coordinator import SnapshotCoordinator
from emu.engine.recovery.snapshots import Snapshot, Steps, to_bytes
from emu.engine.result import UNFINISHED, outcome_of, write_workers
from emu.engine.sampling import Merger
from emu.engine.sync.placement import Placement
from emu.engine.waiting import Wait
from emu.scenario.dump import to_yaml

GRACE_S: Final = 30.0
"""How long the others may take to end once one has failed, and copies of snapshots at the end of a run."""
LOOKS: Final = 4
"""A paced run waits for a coordinator that has not looked for so many of its intervals."""


def run_on_ray(blueprint: Blueprint, options: RunOptions, observer: Observer) -> Outcome:
    """Run on Ray actors. Raises EmuError if the run cannot begin."""
    begin_s = time.perf_counter()
    scenario, placement = blueprint.scenario, cast("Placement", options.placement)
    devices = len(blueprint.topology.nodes) - 1
    workers = options.workers or min(usable_cores(), devices)
    plan = spread(blueprint, workers, placement)
    with ExitStack() as opened:
        discovery = Discovery(scenario.name, port=options.discovery_port) if options.metrics else None
        if discovery is not None:
            opened.callback(discovery.close)
        session = ray_session(options.address, plan.workers, options.unprotected, options.wheel)
        opened.enter_context(session)
        worker_nodes: list[str] = []
        if options.address is not None:
            workers = options.workers or min(cluster_cpus(), devices)
            plan, worker_nodes = housed(blueprint, workers, placement, options.pins)
        with Interruption() as interruption:
            hint = how_to_go_on(options)
            try:
                watch = opened.enter_context(closing(watch_of_cluster(own=_is_own(options))))
                run = _RayRun(plan, worker_nodes, options, observer, interruption, discovery, begin_s, watch)
                ending = Ending.FAILED
                try:
                    outcome = run.run()
                    ending = outcome.ending
                    return outcome
                finally:
                    run.close(ending)
            except ClusterLost as error:
                raise ClusterLost(error.what, hint) from None
            except WorkerFault as error:
                kept = kept_details(error.worker, error.details, options.directory)
                raise RuntimeFailure(f"{error}{kept}") from None


def how_to_go_on(options: RunOptions) -> str:
    """What goes on with a run that broke off, in words; empty where nothing does."""
    if options.directory is None:
        return ""
    path = shlex.quote(str(options.directory))
    if options.steering is not None:
        return f"emu replay {path} repeats what was"
    return f"emu run --resume {path} goes on with the run"


def _is_own(options: RunOptions) -> bool:
    """Whether the cluster was started for this run alone."""
    return options.address is None and worker_pool_of_session() is None


class _RayRun:
    """One run, from the first actor to the last."""

    def __init__(
        self,
        plan: RunPlan,
        worker_nodes: Sequence[str],
        options: RunOptions,
        observer: Observer,
        interruption: Interruption,
        discovery: Discovery | None,
        begin_s: float,
        watch: ClusterWatch,
    ) -> None:
        self._plan = plan
        self._watch = watch
        self._options = options
        self._observer = observer
        self._interruption = interruption
        self._begin_s = begin_s
        self._build_s = 0.0
        self._wall_s = 0.0
        self._merger = Merger(plan.workers, observer)
        self._worker_group = WorkerGroup(
            plan.workers, interruption, WorkerPlacement(worker_nodes, observer.noted, interruption), watch
        )
        self._places: list[Place] = []
        self._records: tuple[WorkerRecord, ...] = ()
        self._discovery = discovery
        self._remote_metrics = RemoteMetrics(discovery, plan.workers)
        self._addresses: list[Address] = []
        self._run = secrets.token_hex(8)
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._snapshot_coordinator = SnapshotCoordinator(plan.scenario, options, plan.workers, observer)
        self._snapshot_coordinator.spread = self._spread
        self._copy = SecondCopy(self._snapshot_coordinator.files)
        self._snapshot_coordinator.copy = self._copy.put
        self._snapshot_coordinator.files.mend = self._copy.mend
        self._patience = Patience(options.recoveries)
        self._incarnation = 0
        self._refusals: list[str] = []
        self._reached_ps = 0
        """How far any attempt got, as far as is known."""
        self._changes: tuple[tuple[str, int], ...] = ()
        """What was done to a live run before this attempt began."""
        self._measured: tuple[Made, ...] = ()
        self._heard_ps: dict[int, int] = {}
        """By worker, the last sampling point whose share has come here in this attempt."""

    def run(self) -> Outcome:
        """Start, run and collect, as often as it takes."""
        snapshot: Snapshot | None = None
        if self._options.resume_ps >= 0:
            snapshot = self._snapshot_coordinator.files.read(self._options.resume_ps)
        while True:
            reports: dict[int, Report | None] = {}
            records: list[DeviceRecord] = []
            peak_rss_bytes = 0
            failure: WorkerGone | None = None
            try:
                self._start(snapshot)
                self._build_s = self._build_s or time.perf_counter() - self._begin_s
                begin_s = time.perf_counter()
                reports = self._listen()
                self._wall_s += time.perf_counter() - begin_s
                records, peak_rss_bytes = self._collect()
                self._look(self._worker_group.living, START_S)
                if not self._worker_group.gone:
                    self._snapshot_coordinator.finish(GRACE_S)
            except WorkerGone as error:
                failure = error
            if not self._goes_back(reports):
                break
            snapshot = self._go_back(reports)
        if failure is not None and not reports:
            raise failure
        return self._outcome(reports, records, peak_rss_bytes)

    def close(self, ending: Ending) -> None:
        """Close what the run opened; end its actors, or leave them to the session after an orderly run.

        Raises nothing: how the run ended is known, and is to be reported. What could not be closed is noted.
        """
        self._watch.close()
        steps: list[tuple[str, Callable[[], None]]] = [
            ("the directories of workers that are gone", self._sweep_up),
            ("the pages of workers on other hosts", self._remote_metrics.close),
            ("the workers", lambda: self._worker_group.close(keep=ending is not Ending.FAILED)),
            ("the second copy of snapshots", self._close_copy),
            ("the snapshots", lambda: self._snapshot_coordinator.end(ending)),
        ]
        for what, close in steps:
            try:
                close()
            except Exception as error:  # noqa: BLE001  whatever it is, the rest is closed too
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                self._observer.noted(f"{what} could not be closed: {reason}")

    def _sweep_up(self) -> None:
        gone = self._worker_group.living if self._watch.lost else []
        for worker in sorted({*self._worker_group.gone, *gone}):
            self._sweep_up_after(worker)

    def _close_copy(self) -> None:
        if not self._watch.lost:
            self._copy.close()

    def _outcome(
        self, reports: dict[int, Report | None], records: list[DeviceRecord], peak_rss_bytes: int
    ) -> Outcome:
        ending, message = self._judge(reports, len(records))
        hint = how_to_go_on(self._options)
        if self._worker_group.gone and hint and self._options.steering is None:
            message = f"{message}; {hint}"
        known = [report for report in reports.values() if report is not None]
        facts = EngineFacts(
            workers=self._plan.workers,
            placement=self._options.placement,
            windows=max((report.windows for report in known), default=0),
            wall_s=self._wall_s,
            cpu_s=sum(report.cpu_s for report in known),
            peak_rss_bytes=peak_rss_bytes,
            recoveries=self._patience.recoveries,
            snapshots=self._snapshot_coordinator.clock.taken,
            snapshots_s=self._snapshot_coordinator.clock.cost_s,
        )
        virtual_ps = max((report.virtual_ps for report in known), default=0)
        waits: list[Wait] = []
        if ending in UNFINISHED:
            answers = self._worker_group.ask(lambda _, actor: actor.waits.remote(), within_s=GRACE_S)
            waits = sorted(Wait(*one) for found in answers.values() for one in found)
        return outcome_of(
            self._plan, ending, virtual_ps, records, facts, self._records, self._build_s, message, waits
        )

    def _judge(self, reports: dict[int, Report | None], devices: int) -> tuple[Ending, str]:
        pids = [place.pid for place in self._places]
        return judge(self._plan, pids, self._worker_group.gone, reports, devices, self._options.directory)

    def _goes_back(self, reports: dict[int, Report | None]) -> bool:
        """Whether the attempt broke, and another one is worth it."""
        if self._interruption.asked or not can_be_repeated(self._worker_group.gone, reports):
            return False
        self._watch.look()
        return self._patience.failed(self._reached_ps)

    def _go_back(self, reports: dict[int, Report | None]) -> Snapshot | None:
        """Have everyone forget the attempt; the snapshot that the next one begins from."""
        _, why = self._judge(reports, 0)
        for worker in sorted(self._worker_group.gone):
            self._sweep_up_after(worker)
        self._worker_group.send_back()
        snapshot = self._snapshot_coordinator.found()
        self._merger.restart()
        if self._options.steering is not None:
            self._changes = self._options.steering.go_back(max(self._reached_ps, *self._heard_ps.values(), 0))
        self._heard_ps.clear()
        self._incarnation += 1
        where = "to the start" if snapshot is None else f"to {format_time(snapshot.sync_ps)}"
        self._observer.noted(f"{why.splitlines()[0]}; the run goes back {where}")
        return snapshot

    def _sweep_up_after(self, worker: int) -> None:
        """Remove the directory of a worker that could not do so itself, if it is on this host."""
        if worker < len(self._addresses) and self._addresses[worker].host == host_identity():
            shutil.rmtree(Path(self._addresses[worker].unix).parent, ignore_errors=True)

    def _start(self, snapshot: Snapshot | None) -> None:
        worker_group = self._worker_group
        worker_group.hire()
        self._places = worker_group.all(lambda _, actor: actor.where.remote(), START)
        if self._options.address is not None:
            worker_group.check_editions()
        shipped = b""
        if snapshot is not None and not all(map(self._is_near, range(len(self._places)))):
            shipped = to_bytes(snapshot)
        # Workers get the effective scenario as text, and build their devices from what they check themselves.
        text = to_yaml(self._plan.scenario)
        spans_hosts = len({place.host for place in self._places}) > 1

        def prepare(worker: int, actor: Any) -> Any:
            spec = WorkerSpec(
                worker=worker,
                workers=self._plan.workers,
                placement=cast("Placement", self._options.placement),
                scenario=text,
                run=self._run,
                secret=self._secret,
                sockets=self._options.sockets,
                tcp_host=self._tcp_host(worker, spans_hosts),
                metrics=self._options.metrics,
                incarnation=self._incarnation,
                moves=self._plan.moves,
                block=self._options.block,
                trains=self._options.trains,
                snapshots=str(self._snapshot_coordinator.directory.absolute())
                if self._is_near(worker)
                else "",
                snapshots_at_ps=self._snapshot_coordinator.at_ps,
                resume_ps=-1 if snapshot is None else snapshot.sync_ps,
                end_ps=self._options.end_ps,
                changes=self._changes,
                measured=self._measured,
                pace_ps=self._options.pace_ps,
                watch_s=self._options.progress_every_s * LOOKS,
                live=self._options.steering is not None,
            )
            return actor.prepare.remote(spec, b"" if self._is_near(worker) else shipped)

        prepared = without_errors(worker_group.all(prepare, "build"))
        addresses = self._addresses = [one.address for one in prepared]
        connected = worker_group.all(
            lambda _, actor: actor.connect.remote(addresses),
            "connect",
            when_gone=lambda _, actor: actor.close.remote(keep_page=True),
        )
        without_errors(connected)
        self._announce(prepared)
        self._snapshot_coordinator.begin(max(one.build_s for one in prepared))

    def _is_near(self, worker: int) -> bool:
        """Whether a worker sees the files of this process."""
        return self._places[worker].host == host_identity()

    def _tcp_host(self, worker: int, spans_hosts: bool) -> str:
        if spans_hosts:
            return self._places[worker].ip
        return "127.0.0.1" if self._options.sockets in FORCING_TCP else ""

    def _announce(self, prepared: Sequence[Prepared]) -> None:
        plan = self._plan
        self._records = tuple(
            WorkerRecord(
                worker=worker,
                pid=place.pid,
                node=place.node,
                data_address=one.address.tcp or one.address.unix,
                metrics_address=one.metrics_address
                if self._is_near(worker)
                else self._remote_metrics.serve(worker, self._worker_group.actors[worker]),
                devices=plan.names_of(worker),
                ray_node=place.ray_node,
                compiled=place.compiled,
            )
            for worker, (place, one) in enumerate(zip(self._places, prepared, strict=True))
        )
        if self._options.directory is not None:
            write_workers(self._options.directory, self._records, self._plan.scenario.name)
        targets = [(record.worker, record.metrics_address) for record in self._records]
        if self._discovery is not None:
            self._discovery.set_targets(targets)
        self._observer.workers_up(self._records, self._discovery.url if self._discovery else "")

    def _listen(self) -> dict[int, Report | None]:
        """Wait for every worker's report; None for one that is gone."""
        actors, gone = self._worker_group.actors, self._worker_group.gone
        waiting = {one.run.remote(): worker for worker, one in enumerate(actors)}
        reports: dict[int, Report | None] = {}
        deadline_s = float("inf")
        steering = self._options.steering
        lead = RayLead(steering, actors) if steering is not None else None
        while waiting and time.monotonic() < deadline_s:
            done = self._wait(list(waiting), lead)
            for ref in done:
                worker = waiting.pop(ref)
                reports[worker] = self._worker_group.answer(worker, ref)
            failed = any(report is None or report.fault is not Blame.NONE for report in reports.values())
            asked = self._interruption.asked or self._snapshot_coordinator.until_passed
            if steering is not None:
                asked = self._interruption.asked and steering.end_is_overdue()
            if deadline_s == float("inf") and (failed or asked):
                deadline_s = time.monotonic() + GRACE_S
                for worker in waiting.values():
                    actors[worker].stop.remote()
            self._watch.check()
            self._look([worker for worker in waiting.values() if worker not in gone])
            self._worker_group.note_silent(waiting.values(), self._options.liveness_s)
            for ref in [ref for ref, worker in waiting.items() if worker in gone]:
                reports[waiting.pop(ref)] = None
        for worker in waiting.values():
            gone.setdefault(worker, f"it did not end within {GRACE_S:.0f} s")
            reports[worker] = None
        return reports

    def _wait(self, refs: list[Any], lead: RayLead | None) -> list[Any]:
        """The refs that are done, after `progress_every_s` at the latest; meanwhile orders are passed on."""
        import ray  # noqa: PLC0415  Ray only where it is needed

        done: list[Any] = []
        deadline_s = time.monotonic() + self._options.progress_every_s
        while not done and time.monotonic() < deadline_s:
            if lead is not None:
                lead.look()
            done, _ = ray.wait(refs, timeout=LEAD_S if lead else self._options.progress_every_s)
        return done

    def _look(self, workers: list[int], within_s: float = ASK_S) -> None:
        """Ask workers how far they are and tell the observer; who does not answer in time is skipped."""
        heard_ps = self._heard_ps
        answers = self._worker_group.ask(
            lambda worker, actor: actor.progress.remote(heard_ps.get(worker, -1)), workers, within_s
        )
        for worker, (_, shares, _, made_ps) in answers.items():
            if self._options.steering is not None:
                self._options.steering.hear(made_ps)
            for share in shares:
                self._merger.add(share)
                heard_ps[worker] = share.time_ps
        for worker, (_, _, saved, _) in answers.items():
            for one in saved:
                self._snapshot_coordinator.take(worker, one)
        self._snapshot_coordinator.go_on()
        found = [progress for progress, *_ in answers.values()]
        self._refusals += [line for one in found for line in one.refusals]
        if len(found) == self._plan.workers:
            virtual_ps = max(one.virtual_ps for one in found)
            if virtual_ps >= self._reached_ps:
                self._reached_ps = virtual_ps
                rows = tuple(row for one in found for row in one.operations)
                delivered_bytes = sum(one.delivered_bytes for one in found)
                self._measured = max((one.measured for one in found), key=len)
                tended = tuple(row for one in found for row in one.operator)
                reported = Progress(
                    virtual_ps,
                    delivered_bytes,
                    rows,
                    tuple(self._refusals),
                    self._measured,
                    operator=tended,
                )
                self._observer.progressed(reported)
                self._refusals = []
            if self._snapshot_coordinator.due():
                self._worker_group.actors[0].snapshot.remote()

    def _spread(self, sync_ps: int, digests: Sequence[bytes]) -> Steps:
        """Bring the shares here that were kept on other hosts, and a copy of all to another node."""
        actors = self._worker_group.actors
        far = [worker for worker in self._worker_group.living if not self._is_near(worker)]
        shares = {worker: actors[worker].share.remote(sync_ps) for worker in far}
        return chain(
            brought(self._snapshot_coordinator.files, sync_ps, shares), self._copy.put(sync_ps, digests)
        )

    def _collect(self) -> tuple[list[DeviceRecord], int]:
        """What the devices of living workers leave behind, in device order; and the workers' peak memory."""
        answers = self._worker_group.ask(lambda _, actor: actor.collect.remote(), within_s=START_S)
        for worker in self._worker_group.living:
            if worker not in answers:
                self._worker_group.gone[worker] = "it could not be collected from"
        return merged(share for share, _ in answers.values()), sum(peak for _, peak in answers.values())
