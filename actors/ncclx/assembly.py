"""How do a scenario's numbers become hosts and GPUs?

One function per kind of device, each reading the frozen scenario, the topology and the plan and nothing
else, so that a device is the same in whatever worker it is built. A host takes its programs in job by job,
and within a job rank by rank.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.gpu.gpu import Gpu
from actors.host.flows import Flow, FlowProgram
from actors.host.host import MANAGEMENT_RATE_BPS, Host
from actors.host_link import MANAGEMENT_PORT, MessagePort
from actors.link import Outbox
from actors.ncclx.channel import (
    RECEIVE_CONTROL,
    RECEIVE_DATA,
    ROLES,
    SEND_CONTROL,
    SEND_DATA,
    Channel,
    NicLoads,
)
from actors.ncclx.plan import ChannelEnds, JobWork, Plan, RankWork
from actors.ncclx.rank import RankProgram
from actors.ncclx.ring import OPERATION_CODES, RingCursor
from emu.kernel.queue import EventQueue
from emu.scenario.schema import Scenario
from emu.topology.model import Attachment, Topology

OutboxFor = Callable[[int], Outbox | None]


def build_gpu(
    scenario: Scenario, topology: Topology, number: int, queue: EventQueue, outbox_for: OutboxFor
) -> Gpu:
    """One GPU; its port 0 leads to the host."""
    link = _message_port(topology.ports(number)[0], queue, outbox_for)
    return Gpu(number, queue, link, scenario.gpu.copy_rate_bps, scenario.gpu.copy_latency_ps)


def build_host(
    scenario: Scenario,
    topology: Topology,
    plan: Plan,
    number: int,
    queue: EventQueue,
    outbox_for: OutboxFor,
) -> Host:
    """One host with the programs of all jobs that have a part there."""
    management = MessagePort(
        queue,
        MANAGEMENT_RATE_BPS,
        scenario.control.management_delay_ps,
        topology.controller,
        MANAGEMENT_PORT,
        number,
        outbox_for(topology.controller),
    )
    ports = [_message_port(end, queue, outbox_for) for end in topology.ports(number)]
    host = Host(number, queue, ports, management, scenario.host.proxy_cost_ps)
    receives = scenario.transport.receive_queue
    host.reposting = receives.depth > 0
    host.repost_ps = receives.repost_ps
    for job in plan.jobs:
        most = max((len(work.channels[0].send_nics) for work in job.works if work.host == number), default=0)
        loads = NicLoads(most) if most else None
        for work in job.works:
            if work.host == number:
                _add_rank(scenario, topology, host, job, work, loads)
        if any(flow.host == number for flow in job.flows):
            _add_flows(topology, host, job)
    return host


def _message_port(end: Attachment, queue: EventQueue, outbox_for: OutboxFor) -> MessagePort:
    return MessagePort(queue, end.rate_bps, end.delay_ps, end.peer, end.peer_port, 0, outbox_for(end.peer))


def _host_port(topology: Topology, node: int) -> int:
    """The host's port to one of its GPUs or NICs, whose last port is the host link."""
    return topology.ports(node)[-1].peer_port


def _add_rank(
    scenario: Scenario, topology: Topology, host: Host, job: JobWork, work: RankWork, loads: NicLoads | None
) -> None:
    gpu_port = _host_port(topology, work.gpu)
    channels = [
        _channel(scenario, topology, job, work, number, gpu_port, loads)
        for number in range(len(work.channels))
    ]
    operations = [(OPERATION_CODES[one.op], one.size_bytes) for one in job.operations]
    program = host.add(RankProgram(job.job, job.start_ps, work.rank, channels, operations))
    for number, ends in enumerate(work.channels):
        for nic, index, role in _roles(ends):
            host.bind(_host_port(topology, nic), index, program, number * ROLES + role)


def _roles(ends: ChannelEnds) -> list[tuple[int, int, int]]:
    """(NIC, queue pair, what it is to the channel)."""
    roles: list[tuple[int, int, int]] = []
    for pairs, nics, role in (
        (ends.send_pairs, ends.send_nics, int(SEND_DATA)),
        (ends.receive_pairs, ends.receive_nics, int(RECEIVE_DATA)),
    ):
        each = len(pairs) // max(len(nics), 1)
        roles += [(nics[at // each] if nics else ends.nic, index, role) for at, index in enumerate(pairs)]
    if ends.send_control >= 0:
        roles.append((ends.nic, ends.send_control, int(SEND_CONTROL)))
        roles.append((ends.nic, ends.receive_control, int(RECEIVE_CONTROL)))
    return roles


def _channel(
    scenario: Scenario,
    topology: Topology,
    job: JobWork,
    work: RankWork,
    number: int,
    gpu_port: int,
    loads: NicLoads | None,
) -> Channel:
    ncclx = scenario.ncclx
    ends = work.channels[number]

    def cursor() -> RingCursor:
        return RingCursor(
            job.ranks, work.rank, len(work.channels), number, ncclx.chunk_bytes, ncclx.slice_bytes
        )

    return Channel(
        number,
        gpu_port,
        _host_port(topology, ends.nic),
        ncclx.steps // ncclx.slice_steps,
        list(ends.send_pairs),
        ends.send_control,
        list(ends.receive_pairs),
        ends.receive_control,
        ncclx.qp_policy == "split",
        cursor(),
        cursor(),
        [_host_port(topology, nic) for nic in ends.send_nics],
        loads if ends.send_nics else None,
    )


def _add_flows(topology: Topology, host: Host, job: JobWork) -> None:
    program = FlowProgram(job.job, job.start_ps, host.number)
    number = host.add(program)
    for work in job.flows:
        if work.host == host.number:
            port = _host_port(topology, work.nic)
            flow = Flow(work.flow, work.start_ps, work.size_bytes, work.write_bytes, work.flags)
            contexts = program.add(flow, [(port, index) for index in work.posting()])
            for index, context in zip(work.posting(), contexts, strict=True):
                host.bind(port, index, number, context)
