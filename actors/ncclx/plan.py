"""Who is connected to whom, and what does each host run?

The plan follows from scenario and topology alone and is the same in every worker. It walks the jobs in
order; for a collective, channel by channel and rank by rank, it connects a rank to those it sends to (rank r
to rank r + 1 of a ring; for other algorithms see `actors.ncclx.schedule`): the data queue pairs, then the
control queue pair on which clear-to-sends travel back. Each direction between two ranks has its own. Channel
c of a rank uses the NIC c modulo the number of NICs of its GPU. Ranks of one server with an NVSwitch talk
over NVLink: there a connection has a pair of the GPUs for data and one for clear-to-sends, and no queue
pairs. With `qp_policy: least_loaded` a connection to another host has data pairs on every NIC, each
to the NIC of the same place (the same rail) there.

For flows it makes as many queue pairs as a flow asks for, which belong to no other flow, and keeps what is
needed to find out when a flow was delivered: the last message of each of its queue pairs at the receiving
NIC.

Not modelled: connections made on demand, several ranks on one NIC that talk to each other through it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from actors.fabric.model import Topology
from actors.kernel.event import NEVER_PS
from actors.ncclx.operations import JobOutline, Operation
from actors.ncclx.pairs import ConnectionBook, NvlinkPlan, QpPlan, connect_inside, rails_between, share_domain
from actors.ncclx.schedule import Schedule, no_collective, scheduled
from actors.ncclx.script import ScriptPlan
from actors.ncclx.wiring import Side, connect_groups, own_faults
from actors.wire.message import POST_READ, POST_SEND, POST_WITH_IMMEDIATE
from emu.measure.summary.steps import TrainingFacts, facts_of, trace_facts
from emu.scenario.resolve import Resolved, ResolvedJob
from emu.scenario.schema import Scenario
from emu.scenario.sections.flows import FlowsWorkload
from emu.scenario.sections.jobs import CollectiveWorkload
from emu.scenario.sections.program import ProgramWorkload
from emu.scenario.sections.trace import TraceWorkload
from emu.scenario.sections.training import TrainingWorkload
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
class EndPlan:
    """One end of a connection: queue pairs by index at the channel's NIC; control is -1 where there is none.

    With `nics`, data pairs are on those instead, NIC by NIC and equally many on each. With `inside`, all
    pairs are the GPU's.
    """

    peer: int
    lane: int
    """Of several connections between the same two ranks (see `actors.ncclx.graph`)."""
    pairs: tuple[int, ...]
    control: int
    nics: tuple[int, ...] = ()
    inside: bool = False
    """Whether the peer is in the same NVSwitch domain."""


@dataclass(frozen=True, slots=True)
class ChannelEnds:
    """One channel of one rank: its NIC, and the ends of its connections to and from other ranks."""

    nic: int
    sends: tuple[EndPlan, ...]
    receives: tuple[EndPlan, ...]


@dataclass(frozen=True, slots=True)
class RankWork:
    """One rank of a collective job."""

    rank: int
    gpu: int
    host: int
    channels: tuple[ChannelEnds, ...]


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
    """One job: a collective benchmark (operations, works) or flows."""

    job: int
    name: str
    start_ps: int
    """NEVER_PS if its operations wait to be submitted, or if it does not run."""
    ranks: int
    operations: tuple[Operation, ...] = ()
    works: tuple[RankWork, ...] = ()
    schedule: Schedule | None = field(default=None, compare=False)
    """Of the operations."""
    flows: tuple[FlowWork, ...] = ()
    enabled: bool = True
    training: ScriptPlan | None = None
    facts: TrainingFacts | None = None
    sides: tuple[tuple[Side, ...], ...] = ()
    """Of a training job: the sides of the connections of each rank."""
    real: tuple[str, str, bool] = ("fp32", "sum", False)
    """Type of an element, reduction, and whether payload is real."""

    def hosts(self) -> tuple[int, ...]:
        """The hosts that run a part of it, ascending."""
        parts = [work.host for work in self.works] + [flow.host for flow in self.flows]
        return tuple(sorted(dict.fromkeys(parts)))


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a scenario asks of its hosts and NICs."""

    pairs: dict[int, tuple[QpPlan, ...]]
    """Of every NIC, by index."""
    jobs: tuple[JobWork, ...]
    inside: dict[int, tuple[NvlinkPlan, ...]] = field(default_factory=dict)
    """Of GPUs that talk over NVLink, their pairs by index."""

    def outlines(self, repeat: bool = False) -> list[JobOutline]:
        """What the controller needs to know; with `repeat`, jobs begin again when they are done."""
        return [
            JobOutline(
                job=work.job,
                operations=FOR_EVER if repeat else len(work.operations) or 1,
                period=(len(work.operations) or 1) if repeat else 0,
                hosts=work.hosts(),
                reports=len(work.works) if work.operations else len(work.hosts()),
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
        workload = job.workload
        if isinstance(workload, (TrainingWorkload, TraceWorkload, ProgramWorkload)):
            jobs.append(_training(scenario, topology, book, number, job, workload))
        elif isinstance(workload, CollectiveWorkload):
            jobs.append(_collective(scenario, topology, book, number, job, workload))
        else:
            assert isinstance(workload, FlowsWorkload), workload
            jobs.append(_flows(scenario, topology, book, number, job, workload))
    per_pair = scenario.transport.udp_source_port == "per_pair"
    pairs = book.numbered(scenario.seed, topology, udp_per_pair=per_pair)
    return Plan(pairs, tuple(jobs), book.inside())


def _training(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    number: int,
    job: ResolvedJob,
    workload: TrainingWorkload | TraceWorkload | ProgramWorkload,
) -> JobWork:
    training = job.training
    assert training is not None, job.name
    data = _data_priority(scenario, number)
    nodes = [topology.host_of(gpu) for gpu in job.gpus]
    for label, operation, fault in own_faults(scenario.ncclx, training, nodes):
        key = f"jobs[{number}].workload.operations[{label}]"
        raise no_collective(scenario, key, operation, fault)
    sides = connect_groups(scenario, topology, book, number, data, job.gpus, training)
    return JobWork(
        job=number,
        name=job.name,
        start_ps=job.start_ps,
        ranks=len(job.gpus),
        operations=tuple(
            Operation("training_step", "", 0, step, warmup=False) for step in range(workload.steps)
        ),
        works=tuple(RankWork(rank, gpu, topology.host_of(gpu), ()) for rank, gpu in enumerate(job.gpus)),
        enabled=job.enabled,
        training=training,
        facts=_facts(workload, training),
        sides=tuple(tuple(one) for one in sides),
    )


def _facts(workload: TrainingWorkload | TraceWorkload | ProgramWorkload, plan: ScriptPlan) -> TrainingFacts:
    if isinstance(workload, TrainingWorkload):
        assert isinstance(plan, TrainingPlan), plan
        return facts_of(workload.steps, plan.training, workload.shape())
    scale = workload.scale if isinstance(workload, TraceWorkload) else Fraction(1)
    return trace_facts(workload.steps, len(plan.scripts), workload.cut(), scale, plan.reasons)


def _data_priority(scenario: Scenario, job: int) -> int:
    """Of a job's data packets."""
    own = scenario.jobs[job].data_priority
    return scenario.transport.data_priority if own is None else own


def _collective(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    number: int,
    job: ResolvedJob,
    workload: CollectiveWorkload,
) -> JobWork:
    ncclx = scenario.ncclx
    transport = scenario.transport
    data = _data_priority(scenario, number)
    control = transport.control_priority if ncclx.control == "own_class" else data
    admitted = ncclx.admission == "receiver_driven"
    ranks = len(job.gpus)
    channels: list[list[ChannelEnds]] = [[] for _ in job.gpus]
    schedule = scheduled(scenario, topology, number, job.gpus, workload)
    for channel in range(ncclx.channels):
        nics = []
        for gpu in job.gpus:
            of_gpu = topology.nics_of_gpu(gpu)
            nics.append(of_gpu[channel % len(of_gpu)])
        sends: list[list[EndPlan]] = [[] for _ in job.gpus]
        receives: list[list[EndPlan]] = [[] for _ in job.gpus]
        edges = schedule.edges(channel)
        for rank in range(ranks):
            for peer, lane in edges[rank]:
                if share_domain(topology, job.gpus[rank], job.gpus[peer]):
                    data_ends, flag_ends = connect_inside(book, job.gpus[rank], job.gpus[peer], admitted)
                    for mine, other, ends, at in ((rank, peer, sends, 0), (peer, rank, receives, 1)):
                        pair = (data_ends[at],)
                        ends[mine].append(EndPlan(other, lane, pair, flag_ends[at], inside=True))
                    continue
                rails: list[tuple[int, int]] = []
                if ncclx.qp_policy == "least_loaded":
                    rails = rails_between(topology, job.gpus[rank], job.gpus[peer])
                here, there = nics[rank], nics[peer]
                made = [
                    book.connect(one, other, data, number)
                    for one, other in rails or [(here, there)]
                    for _ in range(ncclx.qps_per_connection)
                ]
                control_here, control_there = (-1, -1)
                if admitted:
                    control_here, control_there = book.connect(here, there, control, number)
                sends[rank].append(
                    EndPlan(
                        peer, lane, tuple(at for at, _ in made), control_here, tuple(one for one, _ in rails)
                    )
                )
                receives[peer].append(
                    EndPlan(
                        rank, lane, tuple(at for _, at in made), control_there, tuple(one for _, one in rails)
                    )
                )
        for rank in range(ranks):
            channels[rank].append(ChannelEnds(nics[rank], tuple(sends[rank]), tuple(receives[rank])))
    return JobWork(
        job=number,
        name=job.name,
        start_ps=job.start_ps,
        ranks=ranks,
        operations=schedule.operations,
        schedule=schedule,
        real=(workload.dtype, workload.redop, scenario.payload == "real"),
        works=tuple(
            RankWork(rank, gpu, topology.host_of(gpu), tuple(channels[rank]))
            for rank, gpu in enumerate(job.gpus)
        ),
        enabled=job.enabled,
    )


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
        priority = _data_priority(scenario, number) if flow.priority is None else flow.priority
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


def planned_payload_bytes(plan: Plan) -> int:
    """Payload that the jobs put on the fabric, clear-to-send not counted: what a progress bar runs to."""
    total = 0
    for work in plan.jobs:
        if not work.enabled:
            continue
        if work.training is not None:
            total += len(work.operations) * work.training.payload_bytes()
        if work.schedule is not None:
            total += work.schedule.payload_bytes()
        total += sum(flow.size_bytes for flow in work.flows)
    return total
