"""From what a run collected to its summary.

One function, `summarise`; what it needs is in `emu.counts.collected`, what it makes in
`emu.results.summary`. Expectations are judged last, on the summary as it will be written, so that
whatever `summary.json` says can be asserted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from actors.fabric.model import Topology
from emu.counts.collected import DeviceRecord, EngineFacts, FaultPlan, JobPlan, Sample
from emu.counts.counts import Counts
from emu.results.summary import Ending, Engine, Fabric, Job, Judged, OperatorResult, ScenarioName, Summary
from emu.results.summary import Expectation as Verdict
from emu.scenario.expect import Expectation, SeriesExpectation
from emu.scenario.fault_schedule import MeasuredTargets, scripted
from emu.scenario.faults.events import Fault
from emu.scenario.schema import Scenario
from emu.scenario.spans import fault_times
from emu.summary.blame import with_failures
from emu.summary.expectations import History, judge_series
from emu.summary.fabric import (
    LinkLosses,
    fabric_of,
    fault_rows,
    idle_nics,
    known_to_flows,
    ran_ps,
    share,
    span_rates,
    with_flows,
)
from emu.summary.jobs import job_rows
from emu.summary.kpis import convergence_of, derived_bytes, job_kpis, loss_times
from emu.summary.recoveries import operator_result, operator_rows
from emu.summary.series import State
from emu.summary.storage_servers import server_loads
from emu.summary.timers import timers_of
from emu.summary.unfired import idle_captures, idle_faults, idle_span, never_fired
from emu.summary.verdict import evaluate

MOST_HIT: Final = 8
"""How much is named of what a fault was found to hit, or drawn."""


def engine_of(records: Iterable[DeviceRecord], facts: EngineFacts) -> Engine:
    """The summary's section `engine`."""
    devices = list(records)
    return Engine(
        workers=facts.workers,
        placement=facts.placement,
        choice=facts.choice,
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
        solves=facts.solves,
        doubts=list(facts.doubts),
        solved_transfers=facts.solved_transfers,
    )


def fault_plans(
    scenario: Scenario, topology: Topology, measured: MeasuredTargets, virtual_ps: int
) -> list[FaultPlan]:
    """The scenario's faults, with what became of each until the run's end: all occurrences together.

    A target that was looked for, and not hit before the run ended, is not named: whether it was still looked
    for depends on where the workers stood when the end was asked for.
    """
    occurred: list[list[Fault]] = [[] for _ in scenario.faults]
    for one in scripted(scenario, topology, measured):
        occurred[one.entry].append(one)
    plans: list[FaultPlan] = []
    for entry, (section, found) in enumerate(zip(scenario.faults, occurred, strict=True)):
        begun = sum(one.begin_ps < virtual_ps for one in found)
        hit = [name for (of, place), name in sorted(measured.items()) if of == entry and place < begun]
        if section.drawn:
            hit = [f"{one.kind} {one.target}" for one in sorted(found, key=lambda one: one.begin_ps)]
        begins_ps = tuple(sorted(one.begin_ps for one in found))
        lasting = any(one.end_ps == 0 for one in found) or not found
        plans.append(
            FaultPlan(
                kind=section.kind,
                target=" ".join(part for part in (section.hits, _listed(hit)) if part),
                at_ps=min((one.begin_ps for one in found), default=section.at_ps),
                until_ps=None if lasting else max(one.end_ps for one in found),
                links=tuple(dict.fromkeys(link for one in found for link in one.down)),
                takes_down=any(one.down for one in found),
                begins_ps=begins_ps if begins_ps or section.drawn else None,
            )
        )
    return plans


def _listed(hit: Iterable[str]) -> str:
    """What was hit, each once, in brackets; the first of many."""
    names = list(dict.fromkeys(hit))
    more = f" and {len(names) - MOST_HIT} more" if len(names) > MOST_HIT else ""
    return f"({', '.join(names[:MOST_HIT])}{more})" if names else ""


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
    history: History = lambda: (),
    measured: MeasuredTargets = MappingProxyType({}),
    flow_counts: Mapping[tuple[int, int], int] | None = None,
    alone_ps: Mapping[str, int] = MappingProxyType({}),
    diagnose: Callable[[Summary, Counts], Judged] | None = None,
) -> Summary:
    """The summary of one run. `records` may be of some devices only, if the run failed.

    `samples` are those of sync points; only the ones at the beginning of faults and at both ends of
    `run.span` matter here. `history` are all of them; it is asked for only if an expectation is about a
    series, or if `run.kpis` are. `measured` has the targets of faults on the busiest, `flow_counts` flows by
    switch and port, `alone_ps` what jobs take by themselves. `diagnose` reports the causes and what the run
    was compared with, given the summary without that and what was counted.
    """
    counts, kept = Counts(records), list(samples)
    planned = fault_plans(scenario, topology, measured, virtual_ps)
    effects = fault_rows(planned, LinkLosses(topology, records, kept), virtual_ps)
    if "loss_time" in scenario.run.kpis:
        times_ps = loss_times(topology, planned, records, history(), virtual_ps)
        effects = [
            one.model_copy(update={"loss_time_ps": time_ps})
            for one, time_ps in zip(effects, times_ps, strict=True)
        ]
    rows = with_failures(topology, jobs, job_rows(jobs, records), records)
    flows = scenario.fidelity == "flow"
    ran = ran_ps(rows.values(), virtual_ps, repeat=scenario.run.repeat)
    fabric = fabric_of(topology, counts, ran, by_rates=flows)
    if scenario.frontend.storage.servers:
        loads = server_loads(topology, scenario.frontend, fabric)
        fabric = fabric.model_copy(update={"servers": loads})
    logs = [(record.number, record.shown.get("log", ())) for record in records]
    fabric = fabric.model_copy(update={"timers": timers_of(topology, logs, counts)})
    if (span := scenario.run.span).for_ps:
        rates = span_rates(topology, records, kept, (span.at_ps, span.until_ps), virtual_ps)
        fabric = fabric.model_copy(update={"span": rates})
    for plan in jobs:
        if plan.enabled and records:
            idle = idle_nics(topology, plan.gpus, fabric.links)
            unused_nics = {"idle_nics": idle, "idle_ports": plan.idle_ports}
            rows[plan.name] = rows[plan.name].model_copy(update=unused_nics)
    for plan in jobs:
        rows[plan.name] = _with_kpis(plan, rows[plan.name], topology, alone_ps.get(plan.name))
    fabric = fabric.model_copy(update=_fabric_kpis(topology, jobs, fabric, records, flow_counts))
    if "convergence" in scenario.run.kpis:
        found = convergence_of(topology, jobs, rows, records, history())
        fabric = fabric.model_copy(update={"convergence": found})
    if flows:
        fabric = known_to_flows(fabric)
        effects = [one.model_copy(update={"frames_lost": None}) for one in effects]
    names = [node.name for node in topology.nodes]
    flipped = any(record.results.get("flips") for record in records)
    timed_out = any(one.status == "timed_out" for job in rows.values() for one in job.failures)
    summary = Summary(
        version=version,
        compiled=compiled,
        fidelity="flow" if flows else "packet",
        scenario=ScenarioName(name=scenario.name, seed=scenario.seed),
        digest=digest,
        ending=ending,
        virtual_ps=virtual_ps,
        engine=engine_of(records, facts),
        jobs=rows,
        drops=fabric.drops,
        fabric=fabric,
        faults=effects,
        operator=_tended(topology, jobs, records, virtual_ps),
        never_fired=[]
        if flows
        else [
            *never_fired(scenario, fabric, counts, virtual_ps, timed_out=timed_out),
            *idle_captures(scenario, records),
            *idle_span(scenario, fabric, virtual_ps),
            *idle_faults(effects, fabric, counts, records, names, virtual_ps, flipped=flipped),
        ],
        expectations=[],
    )
    if diagnose is not None:
        summary = summary.model_copy(update=diagnose(summary, counts)._asdict())
    plain = summary.plain() if scenario.expect else {}
    values = iter(evaluate((one for one in scenario.expect if isinstance(one, Expectation)), plain))
    series = iter(_judged_series(scenario, topology, jobs, records, summary, history, measured))
    verdicts = [next(series if isinstance(one, SeriesExpectation) else values) for one in scenario.expect]
    return summary.model_copy(update={"expectations": verdicts})


def _with_kpis(plan: JobPlan, job: Job, topology: Topology, alone_ps: int | None) -> Job:
    """The job with its figures for acceptance; `alone_ps` is what it takes by itself."""
    found = job_kpis(plan, job, topology)
    if found is not None and alone_ps and job.start_ps is not None and job.end_ps is not None:
        factor = round((job.end_ps - job.start_ps) / alone_ps, 6)
        found = found.model_copy(update={"interference": factor})
    return job.model_copy(update={"kpis": found})


def _fabric_kpis(
    topology: Topology,
    jobs: Sequence[JobPlan],
    fabric: Fabric,
    records: Sequence[DeviceRecord],
    flow_counts: Mapping[tuple[int, int], int] | None,
) -> dict[str, object]:
    """Figures of the fabric for acceptance: bytes, order, and flows by uplink."""
    nics = set(topology.nics)
    received = sum(record.data_frames_received for record in records if record.number in nics)
    found: dict[str, object] = {
        "derived_bytes": derived_bytes(jobs),
        "out_of_order": share(fabric.nic_out_of_sequence or 0, received),
    }
    if flow_counts is not None:
        rows = [with_flows(topology, row, flow_counts) for row in fabric.uplinks]
        most = [row.flows_max_over_mean for row in rows if row.flows_max_over_mean is not None]
        found |= {"uplinks": rows, "worst_flows_max_over_mean": max(most, default=None)}
    return found


def _tended(
    topology: Topology, jobs: Sequence[JobPlan], records: Sequence[DeviceRecord], virtual_ps: int
) -> OperatorResult | None:
    """The job that an operator tends."""
    rows = operator_rows(records)
    for plan in jobs:
        facts = plan.tended
        if facts is None or not rows:
            continue
        operations = [
            row for one in records for row in one.results.get("operations", ()) if row[0] == plan.job
        ]
        names = {host: topology.nodes[host].name for host in topology.hosts}
        health = [row for record in records for row in record.results.get("health", ())]
        return operator_result(facts, rows, operations, names, virtual_ps, health)
    return None


def _judged_series(
    scenario: Scenario,
    topology: Topology,
    plans: Sequence[JobPlan],
    records: Sequence[DeviceRecord],
    summary: Summary,
    history: History,
    measured: MeasuredTargets,
) -> list[Verdict]:
    """What came of the expectations on series, in order."""
    asked = [one for one in scenario.expect if isinstance(one, SeriesExpectation)]
    if not asked:
        return []
    faults = scripted(scenario, topology, measured)
    operations = [row for record in records for row in record.results.get("operations", ())]
    return judge_series(
        asked,
        history,
        records,
        topology,
        State(summary.jobs, plans, operations, faults, scenario.run.repeat),
        fault_times(scenario, faults),
        summary.virtual_ps,
        scenario.run.sample_every_ps,
    )
