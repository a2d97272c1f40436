"""What the jobs of a scenario run, and with which connections.

The plan follows from scenario and topology alone and is the same in every worker. It walks the jobs in order.
A benchmark, a training step, a trace and a program are scripts (`actors.ncclx.script`), whose groups are
connected as `actors.ncclx.transport.wiring` says.

For flows it makes as many queue pairs as a flow asks for, which belong to no other flow, and keeps what is
needed to find out when a flow was delivered: the last message of each of its queue pairs at the receiving
NIC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from actors.fabric.model import Topology
from actors.kernel.event import NEVER_PS
from actors.ncclx.operations import JobOutline, Operation
from actors.ncclx.script import UNLABELLED, ScriptPlan
from actors.ncclx.transport.wiring import (
    ConnectionBook,
    NvlinkPlan,
    QpPlan,
    WiredJob,
    connect_groups,
    own_faults,
    schedules_of,
)
from actors.wire.message import POST_READ, POST_SEND, POST_WITH_IMMEDIATE
from emu.build.library import data_priority, settings_of
from emu.errors import Problem, ScenarioError
from emu.measure.collected import TrainingFacts
from emu.measure.summary.steps import facts_of, trace_facts
from emu.scenario.resolve import Resolved, ResolvedJob
from emu.scenario.schema import Scenario
from emu.scenario.section import Section
from emu.scenario.sections.flows import FlowsWorkload
from emu.scenario.sections.program import ProgramWorkload
from emu.scenario.sections.trace import TraceWorkload
from emu.scenario.sections.training import TrainingWorkload
from emu.workload.benchmark import BenchmarkPlan
from emu.workload.program import ProgramPlan
from emu.workload.training import Plan as TrainingPlan

FOR_EVER: Final = 1 << 40
"""Operations of a job that begins again and again: more than any run can do."""

FLAGS: Final[dict[str, int]] = {
    "write": 0,
    "write_with_imm": int(POST_WITH_IMMEDIATE),
    "send": int(POST_SEND),
    "read": int(POST_READ),
}
"""Of a work request, by the verb of a job of flows."""


@dataclass(frozen=True, slots=True)
class FlowWork:
    """One flow: WRITE m of `write_bytes` (the last one what is left) goes to pair m modulo their number."""

    flow: int
    source: int
    """NIC that the bytes leave."""
    destination: int
    """NIC that they come to."""
    nic: int
    """NIC that posts: the source, for a READ the destination."""
    host: int
    """That posts."""
    flags: int
    """Of what is posted."""
    size_bytes: int
    write_bytes: int
    start_ps: int
    """After the job's start."""
    pairs: tuple[tuple[int, int], ...]
    """Index at the source and at the destination."""

    def posting(self) -> tuple[int, ...]:
        """The queue pairs of the NIC that posts."""
        return tuple(pair[self.nic == self.destination] for pair in self.pairs)

    def last_messages(self) -> tuple[tuple[int, int], ...]:
        """(index, message number) at the destination of the last WRITE on each pair that carries any."""
        writes = -(-self.size_bytes // self.write_bytes)
        count = len(self.pairs)
        return tuple(
            (index, (writes - place + count - 1) // count - 1)
            for place, (_, index) in enumerate(self.pairs)
            if place < writes
        )


@dataclass(frozen=True, slots=True)
class JobWork:
    """One job: a script or flows."""

    job: int
    name: str
    start_ps: int
    """NEVER_PS if its operations wait to be submitted, or if it does not run."""
    ranks: int
    operations: tuple[Operation, ...] = ()
    flows: tuple[FlowWork, ...] = ()
    enabled: bool = True
    wired: WiredJob | None = None
    """Its ranks' scripts as the library has wired them; None for flows."""
    facts: TrainingFacts | None = None
    """Of what is told of its steps; a benchmark has none."""

    def hosts(self) -> tuple[int, ...]:
        """The hosts that run a part of it, ascending."""
        nodes = () if self.wired is None else self.wired.nodes
        return tuple(sorted(dict.fromkeys([*nodes, *(flow.host for flow in self.flows)])))


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a scenario asks of its hosts and NICs."""

    pairs: dict[int, tuple[QpPlan, ...]]
    """Of every NIC, by index."""
    jobs: tuple[JobWork, ...]
    inside: dict[int, tuple[NvlinkPlan, ...]] = field(default_factory=dict)
    """Of GPUs that talk over NVLink, their pairs by index."""

    def wired(self) -> list[WiredJob]:
        """The jobs that the library has wired."""
        return [work.wired for work in self.jobs if work.wired is not None]

    def outlines(self, repeat: bool = False) -> list[JobOutline]:
        """What the controller needs to know; with `repeat`, jobs begin again when they are done."""
        return [
            JobOutline(
                job=work.job,
                operations=FOR_EVER if repeat else len(work.operations) or 1,
                period=(len(work.operations) or 1) if repeat else 0,
                hosts=work.hosts(),
                reports=work.ranks if work.operations else len(work.hosts()),
                listed=bool(work.operations),
                submitted=work.enabled and work.start_ps == NEVER_PS,
                enabled=work.enabled,
            )
            for work in self.jobs
        ]


def make_plan(scenario: Scenario, topology: Topology, resolved: Resolved) -> Plan:
    """The plan of a scenario whose ranks and flows are `resolved` on its topology."""
    book = ConnectionBook()
    jobs: list[JobWork] = []
    for number, job in enumerate(resolved.jobs):
        if job.script is not None:
            jobs.append(_scripted(scenario, topology, book, number, job, job.script))
        else:
            assert isinstance(job.workload, FlowsWorkload), job.workload
            jobs.append(_flows(scenario, topology, book, number, job, job.workload))
    per_pair = scenario.transport.udp_source_port == "per_pair"
    pairs = book.numbered(scenario.seed, topology, udp_per_pair=per_pair)
    return Plan(pairs, tuple(jobs), book.inside())


def _scripted(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    number: int,
    job: ResolvedJob,
    script: ScriptPlan,
) -> JobWork:
    nodes = tuple(topology.host_of(gpu) for gpu in job.gpus)
    settings = settings_of(scenario, topology, number)
    schedules = schedules_of(settings, script, nodes)
    for label, operation, fault in own_faults(script, schedules):
        place = "" if label == UNLABELLED else f".operations[{label}]"
        reason = f"{operation.algorithm} is no {operation.op} of {operation.size_bytes} B: {fault}"
        accepted = "an algorithm after which everybody has every contribution once"
        key = f"jobs[{number}].workload{place}.algorithm"
        raise ScenarioError([Problem(scenario.name, 0, key, reason, accepted)])
    sides = connect_groups(settings, topology, book, number, job.gpus, script.groups, schedules)
    real = scenario.payload == "real" and isinstance(script, (BenchmarkPlan, ProgramPlan))
    wired = WiredJob(
        job=number,
        start_ps=job.start_ps,
        settings=settings,
        script=script,
        gpus=job.gpus,
        nodes=nodes,
        schedules=schedules,
        sides=tuple(tuple(one) for one in sides),
        absent=tuple(scenario.jobs[number].absent),
        meetings=scenario.ncclx.init.rounds(len(job.gpus)),
        payload_seed=scenario.seed if real else None,
    )
    return JobWork(
        job=number,
        name=job.name,
        start_ps=job.start_ps,
        ranks=len(job.gpus),
        operations=_operations(job.workload, script),
        enabled=job.enabled,
        wired=wired,
        facts=_facts(job.workload, script),
    )


def _operations(workload: Section, script: ScriptPlan) -> tuple[Operation, ...]:
    """The operations of a job, each of which all ranks begin together."""
    if isinstance(script, BenchmarkPlan):
        return script.operations
    assert isinstance(workload, (TrainingWorkload, TraceWorkload, ProgramWorkload)), workload
    return tuple(Operation("training_step", "", 0, step, warmup=False) for step in range(workload.steps))


def _facts(workload: Section, plan: ScriptPlan) -> TrainingFacts | None:
    if isinstance(plan, BenchmarkPlan):
        return None
    if isinstance(workload, TrainingWorkload):
        assert isinstance(plan, TrainingPlan), plan
        return facts_of(workload.steps, plan.training, workload.shape())
    assert isinstance(workload, (TraceWorkload, ProgramWorkload)), workload
    scale = workload.scale if isinstance(workload, TraceWorkload) else Fraction(1)
    return trace_facts(workload.steps, len(plan.scripts), workload.cut(), scale, plan.reasons)


def _flows(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    number: int,
    job: ResolvedJob,
    workload: FlowsWorkload,
) -> JobWork:
    works: list[FlowWork] = []
    for index, flow in enumerate(job.flows):
        source = topology.nics_of_gpu(job.gpus[flow.src])[0]
        destination = topology.nics_of_gpu(job.gpus[flow.dst])[0]
        priority = data_priority(scenario, number) if flow.priority is None else flow.priority
        pairs = tuple(
            book.connect(source, destination, priority, number, log_deliveries=True)
            for _ in range(workload.qps)
        )
        works.append(
            FlowWork(
                flow=index,
                source=source,
                destination=destination,
                nic=destination if workload.verb == "read" else source,
                host=topology.host_of(destination if workload.verb == "read" else source),
                flags=FLAGS[workload.verb],
                size_bytes=flow.size_bytes,
                write_bytes=workload.message_bytes or -(-flow.size_bytes // workload.qps),
                start_ps=flow.start_ps,
                pairs=pairs,
            )
        )
    return JobWork(number, job.name, job.start_ps, len(job.gpus), flows=tuple(works), enabled=job.enabled)
