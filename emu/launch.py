"""The one entry to a run, wherever its devices live.

`run_blueprint` is what `emu run` and the public API call, with the plan that they have made already. It
returns an `Outcome` however the run ended, as long as there is anything to report; it raises an `EmuError`
where the run could not begin.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Sequence
from functools import partial

from actors.fabric.model import Topology
from emu.base.errors import UsageError
from emu.cluster.pages.metrics_page import Discovery
from emu.cluster.pages.scrape import Scrape
from emu.cluster.pages.state_series import StateReading
from emu.counts.collected import EngineFacts
from emu.devices.checks import blaming
from emu.devices.drawing import Blueprint, blueprint_of
from emu.engine.blueprint import spread
from emu.engine.in_process import InProcess
from emu.engine.interruption import Interruption
from emu.engine.live.changes import Changes, LocalLead, all_of
from emu.engine.live.stepping import check_unattended
from emu.engine.outcome import Ending, Observer, Outcome, RunOptions, WorkerRecord
from emu.engine.recovery.saving import Saving
from emu.engine.recovery.snapshot_coordinator import SnapshotCoordinator
from emu.engine.recovery.snapshots import Snapshot, resume
from emu.engine.result import UNFINISHED, outcome_of, write_workers
from emu.engine.sampling import Merger, Sampler
from emu.engine.sync.garbage import no_collection, quiet_collector
from emu.engine.sync.logical_process import LogicalProcess, records_of
from emu.engine.sync.pacing import Pace
from emu.engine.sync.placement import PLACEMENTS
from emu.engine.waiting import waits_of
from emu.scenario.schema import Scenario


def run_scenario(
    scenario: Scenario, topology: Topology, options: RunOptions, observer: Observer | None = None
) -> Outcome:
    """Plan a scenario on its fabric and run it to its end. Raises EmuError if it cannot begin."""
    check_options(options)
    check_unattended(scenario)
    with blaming(scenario), no_collection():
        blueprint = blueprint_of(scenario, topology)
    return run_blueprint(blueprint, options, observer)


def run_blueprint(blueprint: Blueprint, options: RunOptions, observer: Observer | None = None) -> Outcome:
    """Run what was planned to its end. Raises EmuError if it cannot begin."""
    check_options(options)
    check_unattended(blueprint.scenario)
    if options.local:
        with blaming(blueprint.scenario):
            return run_local(blueprint, options, observer or Observer())
    from emu.cluster.workers.coordinator import run_on_ray  # noqa: PLC0415  Ray only where it is needed

    return run_on_ray(blueprint, options, observer or Observer())


def check_options(options: RunOptions) -> None:
    """Refuse what cannot be meant. Raises UsageError."""
    if options.parts < 1:
        raise UsageError(f"--parts {options.parts}: a run has at least one part")
    if options.block is not None and options.block < 1:
        raise UsageError(f"--block {options.block}: a block has at least one NIC")
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers {options.workers}: a run has at least one worker")
    if options.placement not in PLACEMENTS:
        raise UsageError(f"placement {options.placement!r}; accepted: {', '.join(PLACEMENTS)}")
    if options.parts > 1 and not options.local:
        raise UsageError("--parts is for one process; on Ray it is --workers")


@no_collection()
def run_local(blueprint: Blueprint, options: RunOptions, observer: Observer) -> Outcome:
    """Run every part in this process and thread."""
    scenario, begin_s = blueprint.scenario, time.perf_counter()
    plan = spread(blueprint, options.parts, block=options.block, trains=options.trains)
    partitions = [plan.partition(part) for part in range(plan.workers)]
    samplers = [Sampler(partition) for partition in partitions]
    snapshot_coordinator = SnapshotCoordinator(scenario, options, plan.workers, observer)
    machines = [plan.machine(part, options.end_ps) for part in range(plan.workers)]
    saving = Saving(snapshot_coordinator, machines)
    live = options.steering is not None
    changes = [
        Changes(plan, part, partition, machines[part], live, samplers[part].captures)
        for part, partition in enumerate(partitions)
    ]
    pace = Pace(machines[0], options.pace_ps) if options.pace_ps else None
    logical_processes = [
        LogicalProcess(
            partition,
            machines[part],
            all_of(changes[part].act, partial(saving.act, part, samplers[part])),
            changes[part].busiest,
        )
        for part, partition in enumerate(partitions)
    ]
    saving.logical_processes = logical_processes
    scrape = Scrape(blueprint.topology, partitions, lambda: logical_processes[0].machine.round)
    scrape.measured = changes[0].measured
    merger = Merger(plan.workers, observer)
    ending: Ending | None = None
    discovery = Discovery(scenario.name, port=options.discovery_port) if options.metrics else None
    try:
        if options.metrics:
            scrape.state = StateReading(plan, partitions, changes[0].faults)
        metrics = scrape.start(scenario, idle=False) if options.metrics else ""
        if discovery is not None:
            discovery.set_targets([(0, metrics)])
        names = tuple(node.name for node in blueprint.topology.nodes)
        workers = (WorkerRecord(0, os.getpid(), socket.gethostname(), "", metrics, names),)
        if options.directory is not None:
            write_workers(options.directory, workers, scenario.name)
        observer.workers_up(workers, discovery.url if discovery is not None else "")
        with Interruption() as interruption:
            watch = _Watch(options, observer, scrape, samplers, merger, interruption, saving)
            if options.steering is not None:
                watch.lead = LocalLead(options.steering, machines[0], changes)
            if options.resume_ps >= 0:
                _resume(logical_processes, samplers, snapshot_coordinator.files.read(options.resume_ps))
            else:
                for partition in partitions:
                    partition.start()
            build_s = time.perf_counter() - begin_s
            snapshot_coordinator.begin(build_s)
            with quiet_collector():
                begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
                parts = InProcess(
                    logical_processes, options.delay_seed, watch.between, saving.snapshot_requests, pace
                )
                ending = parts.run()
                wall_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
        saving.finish()
        watch.look()
    finally:
        saving.close()
        snapshot_coordinator.end(ending or Ending.INTERRUPTED)
        scrape.close()
        if discovery is not None:
            discovery.close()
    facts = EngineFacts(
        workers=plan.workers,
        placement="local",
        windows=logical_processes[0].machine.round,
        wall_s=wall_s,
        cpu_s=cpu_s,
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        snapshots=snapshot_coordinator.clock.taken,
        snapshots_s=snapshot_coordinator.clock.cost_s,
    )
    records = sorted(
        (record for partition in partitions for record in records_of(partition)), key=lambda one: one.number
    )
    virtual_ps = logical_processes[0].virtual_ps if ending is not None else scrape.virtual_ps()
    devices = [device for partition in partitions for device in partition.built]
    waits = waits_of(devices, blueprint.topology) if ending in UNFINISHED else []
    return outcome_of(
        plan, ending or Ending.INTERRUPTED, virtual_ps, records, facts, workers, build_s, waits=sorted(waits)
    )


def _resume(
    logical_processes: Sequence[LogicalProcess],
    samplers: Sequence[Sampler],
    snapshot: Snapshot,
) -> None:
    """Set everything to where the snapshot was taken."""
    resume(logical_processes, snapshot)
    for sampler in samplers:
        sampler.resume()


class _Watch:
    """What is looked after between the slices of a local run."""

    def __init__(
        self,
        options: RunOptions,
        observer: Observer,
        scrape: Scrape,
        samplers: Sequence[Sampler],
        merger: Merger,
        interruption: Interruption,
        saving: Saving,
    ) -> None:
        self._saving = saving
        self._every_s = options.progress_every_s
        self._observer = observer
        self._scrape = scrape
        self._samplers = samplers
        self._merger = merger
        self._interruption = interruption
        self._steering = options.steering
        self.lead: LocalLead | None = None
        self._due_s = time.perf_counter() + self._every_s

    def between(self) -> bool:
        """Whether to go on."""
        self._scrape.answer()
        if time.perf_counter() >= self._due_s:
            self.look()
        if self.lead is None or self._steering is None:
            return not self._interruption.asked and not self._saving.snapshot_coordinator.until_passed
        self.lead.look()
        return not (self._interruption.asked and self._steering.end_is_overdue())

    def look(self) -> None:
        """Tell the observer how far the run is, and look after its snapshots."""
        written = self._saving.drain()
        for sampler in self._samplers:
            for share in sampler.drain():
                self._merger.add(share)
        self._saving.count(written)
        self._observer.progressed(self._scrape.progress())
        self._due_s = time.perf_counter() + self._every_s
