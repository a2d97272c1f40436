"""Which rows of the results are about what, in the words of `emu.summary`."""

from __future__ import annotations

from actors.fabric.model import FABRIC, Topology
from actors.ncclx.protocols import PROTOCOLS
from actors.ncclx.script import LINE, ScriptPlan
from emu.base.units import counted
from emu.counts.collected import (
    FlowPlan,
    GroupPlan,
    JobPlan,
    TendedFacts,
)
from emu.devices.plan import JobWork, Plan
from emu.results.planned_rows import CollectivePlan


def job_plans(plan: Plan, topology: Topology) -> tuple[JobPlan, ...]:
    """The plan in the words of the results: which row is about what."""
    return tuple(
        JobPlan(
            job=work.job,
            name=work.name,
            ranks=work.ranks,
            enabled=work.enabled,
            hosts=work.hosts(),
            idle_ports="" if plan.over_ports else _idle_ports(plan, work.job, topology),
            facts=work.facts,
            start_ps=work.start_ps,
            calls=work.calls,
            groups=_groups(work),
            gpus=() if work.wired is None else work.wired.gpus,
            collectives=_collectives(work),
            flows=tuple(
                FlowPlan(
                    flow=flow.flow,
                    source=topology.nodes[flow.source].name,
                    destination=topology.nodes[flow.destination].name,
                    size_bytes=flow.size_bytes,
                    nic=flow.destination,
                    messages=flow.last_messages(),
                    ideal_ps=flow.ideal_ps,
                )
                for flow in work.flows
            ),
            tended=_tended(plan, work),
        )
        for work in plan.jobs
        if not work.owned
    )


def _idle_ports(plan: Plan, job: int, topology: Topology) -> str:
    """In words, which NICs have fewer queue pairs for the data of a job than ports; "" if none."""
    users, narrow = 0, []
    fabric_ports = {nic: sum(end.kind == FABRIC for end in topology.ports(nic)) for nic in plan.pairs}
    if max(fabric_ports.values(), default=1) < 2:
        return ""
    for nic, pairs in plan.pairs.items():
        ports = fabric_ports[nic]
        sending = sum(pair.sends and pair.job == job for pair in pairs)
        users += sending > 0
        if 0 < sending < ports:
            narrow.append((nic, sending, ports))
    if not narrow:
        return ""
    nic, sending, ports = narrow[0]
    pairs_of_it = (
        f"{topology.nodes[nic].name} has {counted(sending, 'queue pair')} for data and {ports} ports"
    )
    return f"{len(narrow)} of {users} NICs send data by some of their ports only: {pairs_of_it}"


def _tended(plan: Plan, work: JobWork) -> TendedFacts | None:
    """What is reported of a job that an operator tends: its incarnations are one job."""
    operator = plan.operator
    if operator is None or work.job != operator.incarnations[0].train:
        return None
    suite = operator.suites[0] if operator.suites else ()
    others = tuple(one.train for one in operator.incarnations[1:])
    tests = tuple(test.name for test in suite)
    return TendedFacts(work.name, others, tests, operator.stop_ps, operator.sample_ps)


def _script(work: JobWork) -> ScriptPlan | None:
    return None if work.wired is None else work.wired.script


def _groups(work: JobWork) -> tuple[GroupPlan, ...]:
    """The groups of a job, by the numbers under which ranks report them."""
    plan = _script(work)
    if plan is None:
        return ()
    names = plan.reasons
    return tuple(
        GroupPlan(names[group.reason % len(names)], group.members, group.kind == LINE)
        for group in plan.groups
    )


def _collectives(work: JobWork) -> tuple[CollectivePlan, ...]:
    """What the results list of a benchmark."""
    if work.wired is None or not work.collectives:
        return ()
    ranks = len(work.members()) or max(len(group.members) for group in work.wired.script.groups)
    schedule = max(work.wired.schedules, key=lambda one: len(one.nodes))
    protocols = {number: name for name, number in PROTOCOLS.items()}
    return tuple(
        listed._replace(
            ranks=ranks,
            checked=work.wired.payload_seed is not None,
            protocol=protocols[schedule.protocol(one)],
            channels=one.channels or schedule.channels,
        )
        for listed, one in zip(work.collectives, work.operations, strict=True)
    )
