"""How does what a run collected become its summary?

One function, `summarise`; what it needs is in `emu.measure.collected`, what it makes in
`emu.measure.summary`. Expectations are judged last, on the summary as it will be written, so that whatever
`summary.json` says can be asserted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emu.measure.collected import Counts, DeviceRecord, EngineFacts, FaultPlan, JobPlan, Sample
from emu.measure.fabric import LinkLosses, fabric_of, fault_rows
from emu.measure.jobs import job_rows
from emu.measure.summary import Ending, Engine, ScenarioName, Summary
from emu.measure.unfired import never_fired
from emu.scenario.faults import LinkDown, LinkUp
from emu.scenario.schema import Scenario
from emu.scenario.verdict import evaluate
from emu.topology.model import Topology


def engine_of(records: Iterable[DeviceRecord], facts: EngineFacts) -> Engine:
    """The summary's section `engine`."""
    devices = list(records)
    return Engine(
        workers=facts.workers,
        placement=facts.placement,
        events=sum(device.executed for device in devices),
        packet_hops=sum(device.frames_received for device in devices),
        data_packet_hops=sum(device.data_frames_received for device in devices),
        windows=facts.windows,
        wall_s=round(facts.wall_s, 6),
        cpu_s=round(facts.cpu_s, 6),
        peak_rss_bytes=facts.peak_rss_bytes,
        recoveries=facts.recoveries,
        snapshots=facts.snapshots,
        snapshots_s=round(facts.snapshots_s, 6),
    )


def fault_plans(scenario: Scenario, topology: Topology) -> list[FaultPlan]:
    """The scenario's faults, aimed at links by number."""
    plans: list[FaultPlan] = []
    for fault in scenario.faults:
        assert isinstance(fault, (LinkDown, LinkUp)), fault
        for_ps = fault.for_ps if isinstance(fault, LinkDown) else None
        plans.append(
            FaultPlan(
                kind=fault.kind,
                target=fault.target,
                at_ps=fault.at_ps,
                until_ps=None if for_ps is None else fault.at_ps + for_ps,
                links=topology.links_named(fault.target),
                takes_down=isinstance(fault, LinkDown),
            )
        )
    return plans


def summarise(
    scenario: Scenario,
    topology: Topology,
    jobs: Sequence[JobPlan],
    records: Sequence[DeviceRecord],
    facts: EngineFacts,
    *,
    version: str,
    compiled: bool,
    digest: str,
    ending: Ending,
    virtual_ps: int,
    samples: Iterable[Sample] = (),
) -> Summary:
    """The summary of one run. `records` may be of some devices only, if the run failed.

    `samples` are those of sync points; only the ones at the beginning of faults matter here.
    """
    counts = Counts(records)
    fabric = fabric_of(topology, counts, virtual_ps)
    effects = fault_rows(fault_plans(scenario, topology), LinkLosses(topology, records, samples), virtual_ps)
    rows = job_rows(jobs, records)
    summary = Summary(
        version=version,
        compiled=compiled,
        scenario=ScenarioName(name=scenario.name, seed=scenario.seed),
        digest=digest,
        ending=ending,
        virtual_ps=virtual_ps,
        engine=engine_of(records, facts),
        jobs=rows,
        drops=fabric.drops,
        fabric=fabric,
        faults=effects,
        never_fired=never_fired(scenario, fabric, effects, counts, virtual_ps),
        expectations=[],
    )
    return summary.model_copy(update={"expectations": evaluate(scenario.expect, summary.plain())})
