"""Who starts the workers, hears from them, and says how the run ended?

The coordinator lives in the process of whoever asked for the run. It places actors, lets them build,
connect and run, and meanwhile only listens: windows, sync points and the end of the run are agreed on by
the workers alone. A run ends in one of four ways: every worker reports the same ending; the user asked for
the end; a worker failed and said why; or an actor is gone. In the last two the others are told to stop,
what they have is collected, and the outcome names the worker that began it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from actors.runtime.crew import crew_of_session
from actors.runtime.exporter import Discovery
from actors.runtime.interruption import Interruption
from actors.runtime.outcome import Ending, Observer, Outcome, Progress, RunOptions, WorkerRecord
from actors.runtime.peers import Address
from actors.runtime.placement import Placement
from actors.runtime.plain_records import from_plain
from actors.runtime.plan import RunPlan, blueprint_of, spread
from actors.runtime.ray_session import ray_session
from actors.runtime.result import UNFINISHED, outcome_of
from actors.runtime.sampling import Merger
from actors.runtime.simulation import Fault, Report
from actors.runtime.waiting import Wait
from actors.runtime.worker import Place, Prepared, Worker, WorkerSpec, host_identity
from actors.runtime.workers_file import write_workers
from emu.errors import EmuError, RuntimeFailure
from emu.measure.collected import DeviceRecord, EngineFacts
from emu.scenario.dump import to_yaml
from emu.scenario.schema import Scenario
from emu.topology.model import Topology

START_S: Final = 300.0
"""How long actors may take to start, to build, and to connect, each."""
GRACE_S: Final = 15.0
"""How long the others may take to end once one has failed."""
LOOK_S: Final = 0.2
ASK_S: Final = 5.0
LONGEST_DETAILS: Final = 1 << 16
"""Of a traceback that is kept in the run directory, its end."""

Answer = TypeVar("Answer")


class WorkerGone(RuntimeFailure):
    """An actor's process is gone."""

    def __init__(self, worker: int, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker = worker
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


def run_on_ray(scenario: Scenario, topology: Topology, options: RunOptions, observer: Observer) -> Outcome:
    """Run on Ray actors. Raises EmuError if the run cannot begin."""
    begin_s = time.perf_counter()
    blueprint = blueprint_of(scenario, topology)
    placement = cast("Placement", options.placement)
    devices = len(topology.nodes) - 1
    workers = options.workers or min(os.cpu_count() or 1, devices)
    plan = spread(blueprint, workers, placement)
    with ExitStack() as opened:
        discovery = Discovery(scenario.name, port=options.discovery_port) if options.metrics else None
        if discovery is not None:
            opened.callback(discovery.close)
        opened.enter_context(ray_session(options.address, plan.workers))
        if options.address is not None and options.workers is None:
            plan = spread(blueprint, min(_cluster_cpus(), devices), placement)
        with Interruption() as interruption:
            run = _RayRun(plan, options, observer, interruption, discovery, begin_s)
            whole = False
            try:
                outcome = run.run()
                whole = outcome.ending is not Ending.FAILED
                return outcome
            finally:
                run.close(keep=whole)


class _RayRun:
    """One run, from the first actor to the last."""

    def __init__(
        self,
        plan: RunPlan,
        options: RunOptions,
        observer: Observer,
        interruption: Interruption,
        discovery: Discovery | None,
        begin_s: float,
    ) -> None:
        self._plan = plan
        self._options = options
        self._observer = observer
        self._interruption = interruption
        self._begin_s = begin_s
        self._merger = Merger(plan.workers, observer)
        self._actors: list[Any] = []
        self._places: list[Place] = []
        self._records: tuple[WorkerRecord, ...] = ()
        self._discovery = discovery
        self._addresses: list[Address] = []
        self._gone: dict[int, str] = {}
        self._refusals: list[str] = []

    def run(self) -> Outcome:
        """Start, run and collect."""
        self._start()
        build_s = time.perf_counter() - self._begin_s
        reports = self._listen()
        records, peak_rss_bytes = self._collect()
        self._look(self._living())
        ending, message = self._judge(reports, records)
        known = [report for report in reports.values() if report is not None]
        facts = EngineFacts(
            workers=self._plan.workers,
            placement=self._options.placement,
            windows=max((report.windows for report in known), default=0),
            wall_s=max((report.wall_s for report in known), default=0.0),
            cpu_s=sum(report.cpu_s for report in known),
            peak_rss_bytes=peak_rss_bytes,
        )
        virtual_ps = max((report.virtual_ps for report in known), default=0)
        waits: list[Wait] = []
        if ending in UNFINISHED:
            asked = [self._actors[worker].waits.remote() for worker in self._living()]
            waits = sorted(Wait(*one) for found in self._ask(asked) for one in found)
        return outcome_of(
            self._plan, ending, virtual_ps, records, facts, self._records, build_s, message, waits
        )

    def close(self, keep: bool) -> None:
        """Close what the run opened, and end its actors, or leave them to the session if `keep`."""
        import ray  # noqa: PLC0415  Ray only where it is needed

        closing = {self._actors[worker].close.remote(): worker for worker in self._living()}
        closed: list[Any] = []
        if closing:
            closed, _ = ray.wait(list(closing), num_returns=len(closing), timeout=ASK_S)
        for worker in sorted(self._gone):
            self._sweep_up_after(worker)
        crew = crew_of_session()
        kept = sorted(closing[ref] for ref in closed) if keep and crew is not None else []
        for worker, actor in enumerate(self._actors):
            if worker not in kept:
                ray.kill(actor)
        if crew is not None:
            crew.give_back([self._actors[worker] for worker in kept])

    def _sweep_up_after(self, worker: int) -> None:
        """Remove the directory of a worker that could not do so itself, if it is on this host."""
        if worker < len(self._addresses) and self._addresses[worker].host == host_identity():
            shutil.rmtree(Path(self._addresses[worker].unix).parent, ignore_errors=True)

    def _start(self) -> None:
        import ray  # noqa: PLC0415  as above

        plan, options = self._plan, self._options
        crew = crew_of_session()
        share = 1.0 if crew is None and _cluster_cpus() >= plan.workers else 0.001
        actor = ray.remote(num_cpus=share, max_restarts=0, scheduling_strategy="SPREAD")(Worker)
        self._actors = [] if crew is None else crew.take(plan.workers)
        self._actors += [actor.remote() for _ in range(plan.workers - len(self._actors))]
        self._places = self._all([one.where.remote() for one in self._actors], "start")
        spans_hosts = len({place.host for place in self._places}) > 1
        text, run, secret = to_yaml(plan.scenario), secrets.token_hex(8), secrets.token_bytes(32)
        prepared = self._all(
            [
                one.prepare.remote(
                    WorkerSpec(
                        worker=worker,
                        workers=plan.workers,
                        placement=cast("Placement", options.placement),
                        scenario=text,
                        run=run,
                        secret=secret,
                        sockets=options.sockets,
                        tcp_host=self._tcp_host(worker, spans_hosts),
                        metrics=options.metrics,
                    )
                )
                for worker, one in enumerate(self._actors)
            ],
            "build",
        )
        addresses = self._addresses = [one.address for one in _without_errors(prepared)]
        _without_errors(self._all([one.connect.remote(addresses) for one in self._actors], "connect"))
        self._announce(_without_errors(prepared))

    def _tcp_host(self, worker: int, spans_hosts: bool) -> str:
        if spans_hosts:
            return self._places[worker].ip
        return "127.0.0.1" if self._options.sockets == "tcp" else ""

    def _announce(self, prepared: Sequence[Prepared]) -> None:
        plan = self._plan
        self._records = tuple(
            WorkerRecord(
                worker=worker,
                pid=place.pid,
                node=place.node,
                data_address=one.address.tcp or one.address.unix,
                metrics_address=one.metrics_address,
                devices=plan.names_of(worker),
            )
            for worker, (place, one) in enumerate(zip(self._places, prepared, strict=True))
        )
        if self._options.directory is not None:
            write_workers(self._options.directory, self._records)
        targets = [(record.worker, record.metrics_address) for record in self._records]
        if self._discovery is not None:
            self._discovery.set_targets(targets)
        self._observer.workers_up(self._records, self._discovery.url if self._discovery else "")

    def _all(self, refs: list[Any], what: str) -> list[Any]:
        """What every actor answers. Raises WorkerGone, RuntimeFailure, or KeyboardInterrupt."""
        import ray  # noqa: PLC0415  as above

        deadline_s = time.monotonic() + START_S
        waiting = list(refs)
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_S)
            if self._interruption.asked:
                raise KeyboardInterrupt
            if time.monotonic() > deadline_s:
                raise RuntimeFailure(
                    f"{len(waiting)} of {len(refs)} workers did not {what} within {START_S:.0f} s"
                )
        answers = []
        for worker, ref in enumerate(refs):
            try:
                answers.append(ray.get(ref))
            except ray.exceptions.RayActorError as error:
                raise WorkerGone(
                    worker, f"worker {worker} died before the run began: {_reason(error)}"
                ) from None
        return answers

    def _listen(self) -> dict[int, Report | None]:
        """Wait for every worker's report; None for one that is gone."""
        import ray  # noqa: PLC0415  as above

        waiting = {one.run.remote(): worker for worker, one in enumerate(self._actors)}
        reports: dict[int, Report | None] = {}
        deadline_s = float("inf")
        while waiting and time.monotonic() < deadline_s:
            done, _ = ray.wait(list(waiting), timeout=self._options.progress_every_s)
            for ref in done:
                worker = waiting.pop(ref)
                reports[worker] = self._report(ref, worker)
            failed = any(report is None or report.fault is not Fault.NONE for report in reports.values())
            if deadline_s == float("inf") and (failed or self._interruption.asked):
                deadline_s = time.monotonic() + GRACE_S
                for worker in waiting.values():
                    self._actors[worker].stop.remote()
            self._look([worker for worker in waiting.values() if worker not in self._gone])
        for worker in waiting.values():
            self._gone.setdefault(worker, f"it did not end within {GRACE_S:.0f} s")
            reports[worker] = None
        return reports

    def _report(self, ref: Any, worker: int) -> Report | None:
        import ray  # noqa: PLC0415  as above

        try:
            return cast("Report", ray.get(ref))
        except ray.exceptions.RayActorError as error:
            self._gone[worker] = _reason(error)
            return None

    def _living(self) -> list[int]:
        return [worker for worker in range(len(self._actors)) if worker not in self._gone]

    def _look(self, workers: list[int]) -> None:
        """Ask workers how far they are and tell the observer; who does not answer in time is skipped."""
        answers = self._ask([self._actors[worker].progress.remote() for worker in workers])
        for _, shares in answers:
            for share in shares:
                self._merger.add(share)
        found = [progress for progress, _ in answers]
        self._refusals += [line for one in found for line in one.refusals]
        if len(found) == self._plan.workers:
            self._observer.progressed(
                Progress(
                    max(one.virtual_ps for one in found),
                    sum(one.delivered_bytes for one in found),
                    tuple(row for one in found for row in one.operations),
                    tuple(self._refusals),
                )
            )
            self._refusals = []

    def _ask(self, refs: list[Any]) -> list[Any]:
        """The answers that come within `ASK_S`."""
        import ray  # noqa: PLC0415  as above

        answers = []
        done: list[Any] = []
        if refs:
            done, _ = ray.wait(refs, num_returns=len(refs), timeout=ASK_S)
        for ref in done:
            try:
                answers.append(ray.get(ref))
            except ray.exceptions.RayActorError:
                continue
        return answers

    def _collect(self) -> tuple[list[DeviceRecord], int]:
        """What the devices of living workers leave behind, in device order; and the workers' peak memory."""
        answers = self._ask([self._actors[worker].collect.remote() for worker in self._living()])
        records = [from_plain(plain) for plains, _ in answers for plain in plains]
        return sorted(records, key=lambda one: one.number), sum(peak for _, peak in answers)

    def _judge(self, reports: dict[int, Report | None], records: list[DeviceRecord]) -> tuple[Ending, str]:
        """How the run ended, and why if it did not finish."""
        for worker, reason in sorted(self._gone.items()):
            return Ending.FAILED, f"{self._named(worker)} died: {reason}"
        known = {worker: report for worker, report in sorted(reports.items()) if report is not None}
        for fault in (Fault.OWN, Fault.PEER):
            for worker, report in known.items():
                if report.fault is fault:
                    return (
                        Ending.FAILED,
                        f"{self._named(worker)}: {report.message}{self._kept(worker, report)}",
                    )
        endings = {report.ending for report in known.values()}
        if len(endings) == 1:
            (ending,) = endings
            if ending is not None and len(records) < len(self._plan.topology.nodes):
                return Ending.FAILED, f"only {len(records)} of the devices could be collected at the end"
            if ending is not None:
                return ending, ""
        return Ending.INTERRUPTED, ""

    def _named(self, worker: int) -> str:
        names = self._plan.names_of(worker)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return f"worker {worker} (pid {self._places[worker].pid}, hosting {shown})"

    def _kept(self, worker: int, report: Report) -> str:
        """Keep a traceback in the run directory; where it is."""
        if not report.details or self._options.directory is None:
            return f"\n{report.details}" if report.details else ""
        path = Path(self._options.directory, f"worker-{worker}.txt")
        path.write_text(report.details[-LONGEST_DETAILS:], encoding="utf-8")
        return f" (details in {path})"


def _without_errors(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, EmuError):
            raise answer
    return answers


def _cluster_cpus() -> int:
    import ray  # noqa: PLC0415  as above

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(int(resources.get("CPU", 1)), 1)


def _reason(error: Exception) -> str:
    """Why Ray thinks an actor is gone, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    chosen = [line for line in lines if line.startswith("The actor died") or "exit detail" in line.lower()]
    line = (chosen or lines or [type(error).__name__])[-1]
    return line.partition(" Some common causes")[0][:300]
