"""Which rows of the results are about what, in the words of `emu.measure`."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

from actors.fabric.model import FABRIC, Topology
from actors.ncclx.protocols import PROTOCOLS
from actors.ncclx.script import LINE, UNLABELLED, Group, GroupCall, ScriptPlan
from emu.base.units import counted
from emu.build.plan import JobWork, Plan
from emu.measure.collected import (
    CallPlan,
    CallShare,
    CollectivePlan,
    FlowPlan,
    GroupPlan,
    JobPlan,
    TendedFacts,
)
from emu.scenario.readers.chakra_plan import ChakraPlan
from emu.scenario.readers.simai import SimaiPlan
from emu.workload.program import RECEIVE, SEND, BenchmarkPlan, ProgramPlan

MOST_SHOWN: Final = 16


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
            training=work.facts,
            serving=work.serving,
            clients=sum(len(one.scripts) for one in work.clients),
            stored_bytes=sum(
                one.up_bytes + one.down_bytes for client in work.clients for one in client.requests
            ),
            staged=any(
                script[0].earliest_ps > 0 and any(request.up_bytes for request in one.requests)
                for one in work.clients
                for script in one.scripts
            ),
            start_ps=work.start_ps,
            calls=_calls(work),
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
    for nic, pairs in plan.pairs.items():
        ports = sum(end.kind == FABRIC for end in topology.ports(nic))
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
    """What is told of a job that an operator tends: its incarnations are one job."""
    operator = plan.operator
    if operator is None or work.job != operator.incarnations[0].train:
        return None
    suite = operator.suites[0] if operator.suites else ()
    others = tuple(one.train for one in operator.incarnations[1:])
    tests = tuple(test.name for test in suite)
    return TendedFacts(work.name, others, tests, operator.stop_ps, operator.sample_ps)


def disagreements(plan: Plan) -> tuple[str, ...]:
    """Calls of programs that do not fit one another, a line for each group of ranks, at most sixteen."""
    found = (
        f"job {work.name}: {line}"
        for work in plan.jobs
        if isinstance(script := _script(work), ProgramPlan)
        for line in script.disagreements()
    )
    return tuple(islice(found, MOST_SHOWN))


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
    plan = _script(work)
    if not isinstance(plan, BenchmarkPlan):
        return ()
    ranks = len(work.members()) or max(len(group.members) for group in plan.groups)
    assert work.wired is not None, work
    schedule = max(work.wired.schedules, key=lambda one: len(one.nodes))
    protocols = {number: name for name, number in PROTOCOLS.items()}
    return tuple(
        CollectivePlan(
            operation=index,
            op=one.op,
            algorithm=one.algorithm,
            size_bytes=one.size_bytes,
            ranks=ranks,
            iteration=one.iteration,
            warmup=one.warmup,
            dtype=plan.dtype,
            redop=plan.redop,
            checked=work.wired.payload_seed is not None,
            protocol=protocols[schedule.protocol(one)],
            channels=one.channels or schedule.channels,
        )
        for index, one in enumerate(plan.operations)
    )


def _calls(work: JobWork) -> tuple[CallPlan, ...]:
    """What the results list of a program, and of a trace."""
    plan = _script(work)
    if isinstance(plan, (SimaiPlan, ChakraPlan)):
        return _traced(plan, len(work.operations))
    if not isinstance(plan, ProgramPlan):
        return ()
    first, *later = [_shares(plan, membership) for membership in range(len(plan.memberships) or 1)]
    return tuple(
        CallPlan(
            label=label,
            op=one.do,
            algorithm=one.algorithm if one.do not in (SEND, RECEIVE) else "",
            communicator=one.communicator,
            size_bytes=one.size_bytes,
            ranks=plan.participants(label),
            callers=first[label].callers,
            step=step,
            ends=first[label].ends,
            later=tuple(shares.get(label, CallShare(0, 0, ())) for shares in later),
        )
        for step in range(len(work.operations))
        for label, one in enumerate(plan.steps)
        if label in first
    )


def _shares(plan: ProgramPlan, membership: int) -> dict[int, CallShare]:
    """Who takes part in a membership, for each call of a program by its label."""
    ranks: dict[int, int] = {}
    callers: Counter[int] = Counter()
    for script in plan.scripts:
        for number, calls in zip(script.groups, script.calls, strict=True):
            if plan.groups[number].membership == membership:
                for call in calls:
                    callers[call.label] += 1
                    ranks[call.label] = max(ranks.get(call.label, 0), len(plan.groups[number].members))
    ends: dict[int, tuple[tuple[int, int], ...]] = {}
    for sender, send, receiver, receive in plan.transfers(membership):
        ends[send.label] = (*ends.get(send.label, ()), (receiver, receive.label))
        ends[receive.label] = (*ends.get(receive.label, ()), (sender, send.label))
    return {label: CallShare(ranks[label], count, ends.get(label, ())) for label, count in callers.items()}


def _traced(plan: ScriptPlan, steps: int) -> tuple[CallPlan, ...]:
    """What the results list of a trace: its calls by label, both ends of a transfer in one row."""
    first: dict[int, tuple[GroupCall, Group]] = {}
    callers: Counter[int] = Counter()
    for script in plan.scripts:
        for number, calls in zip(script.groups, script.calls, strict=True):
            for call in calls:
                first.setdefault(call.label, (call, plan.groups[number]))
                callers[call.label] += 1
    return tuple(
        CallPlan(
            label=label,
            op=call.op,
            algorithm=call.algorithm if group.kind != LINE else "",
            communicator=plan.reasons[group.reason % len(plan.reasons)],
            size_bytes=call.size_bytes,
            ranks=len(group.members),
            callers=callers[label],
            step=step,
        )
        for step in range(steps)
        for label, (call, group) in sorted(first.items(), key=lambda one: one[0])
        if label != UNLABELLED
    )
