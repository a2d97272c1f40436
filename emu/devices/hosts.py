"""From a scenario's numbers to hosts, GPUs and NVSwitches.

One function per kind of device, each reading the frozen scenario, the topology and the plan and nothing
else, so that a device is the same in whatever worker it is built. A host takes its programs in job by job,
and within a job rank by rank.
"""

from __future__ import annotations

from typing import Final

from actors.control.operator import OperatorPlan
from actors.fabric.model import Attachment, Role, Topology
from actors.gpu.gpu import Gpu
from actors.gpu.memory import GpuMemory
from actors.gpu.nvlink import Domain, NvlinkPort, NvSwitch, TransferPair
from actors.host.host import MANAGEMENT_RATE_BPS, Host, ProxyCosts
from actors.kernel.queue import EventQueue
from actors.ncclx.payload import contents_of
from actors.ncclx.rank.sm_share import GpuSms
from actors.ncclx.scripted import add_ranks
from actors.optional.perftest import Flow, FlowProgram
from actors.optional.storage_clients import (
    ClientProgram,
    Copy,
    HostNetwork,
    ServerProgram,
    ServiceQueue,
    StorageClients,
)
from actors.port.link import MANAGEMENT_PORT, MessagePort
from emu.devices.link_ends import OutboxFor
from emu.devices.plan import ClientsWork, JobWork, Plan, copy_costs
from emu.scenario.schema import Scenario
from emu.topology.front_end import METADATA, STORAGE, front_end_nic

ARRIVALS: Final = 1
DEPARTURES: Final = 2
COPIES_FOR_NICS: Final = 3
"""Lanes of the link from GPU to host, beside that of copies (0): what came over NVLink, what has left, and
copies of channels that copy for NICs."""


def build_gpu(
    scenario: Scenario,
    topology: Topology,
    plan: Plan,
    number: int,
    queue: EventQueue,
    outbox_for: OutboxFor,
) -> Gpu:
    """One GPU; its port 0 leads to the host, the other to its NVSwitch if it has one."""
    host = topology.host_end(number)
    link = _message_port(host, queue, outbox_for)
    wired = plan.wired()
    prioritised = any(group.priority for job in wired for group in job.script.groups)
    view = scenario.at(topology, number)
    own = view.gpu
    gpu = Gpu(number, queue, link, own.copy_rate_bps, copy_costs(view), prioritised)
    if gpu.by_block:
        gpu.answers = _message_port(host, queue, outbox_for, COPIES_FOR_NICS)
    if scenario.payload == "real" and not scenario.ncclx.in_line:
        gpu.memory = GpuMemory(contents_of(wired, number))
    end = topology.nvlink_end(number)
    if end is not None:
        gpu.domain = Domain(
            _nvlink_port(scenario, end, queue, outbox_for),
            _message_port(host, queue, outbox_for, ARRIVALS),
            _message_port(host, queue, outbox_for, DEPARTURES),
            [
                TransferPair(
                    _nvlink_place(topology, pair.peer),
                    pair.peer_index,
                    pair.flags,
                    pair.block,
                    pair.leaving,
                    pair.arriving,
                )
                for pair in plan.inside.get(number, ())
            ],
            own.channel_rate_bps if own.channel_rate_bps < end.rate_bps else 0,
        )
    return gpu


def build_nvswitch(
    scenario: Scenario, topology: Topology, number: int, queue: EventQueue, outbox_for: OutboxFor
) -> NvSwitch:
    """The NVSwitch of one server."""
    ends = topology.ports(number)
    return NvSwitch(number, queue, [_nvlink_port(scenario, end, queue, outbox_for) for end in ends])


def _nvlink_port(scenario: Scenario, end: Attachment, queue: EventQueue, outbox_for: OutboxFor) -> NvlinkPort:
    outbox, efficiency = outbox_for(end.peer), scenario.host.nvlink.nvls_share
    return NvlinkPort(queue, end.rate_bps, end.delay_ps, end.peer, end.peer_port, outbox, efficiency)


def _nvlink_place(topology: Topology, gpu: int) -> int:
    """The GPU's port of its NVSwitch."""
    end = topology.nvlink_end(gpu)
    assert end is not None, gpu
    return end.peer_port


def build_host(
    scenario: Scenario,
    topology: Topology,
    plan: Plan,
    number: int,
    queue: EventQueue,
    outbox_for: OutboxFor,
    operator: OperatorPlan | None = None,
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
    own = scenario.at(topology, number).host
    host = Host(number, queue, ports, management, own.proxy_cost_ps)
    if own.proxy_poll_ps:
        batched_ps = own.proxy_cost_ps if own.proxy_batched_ps is None else own.proxy_batched_ps
        host.proxy = ProxyCosts(own.proxy_cost_ps, own.proxy_poll_ps, batched_ps)
    host.to_gpu = [topology.nodes[end.peer].role is Role.GPU for end in topology.ports(number)]
    receives = scenario.transport.receive_queue
    host.reposting = receives.depth > 0
    host.repost_ps = receives.repost_ps
    stocks = _stocks(scenario, topology, plan, number)
    for job in plan.jobs:
        if job.wired is not None:
            add_ranks(job.wired, topology, host, plan.pairs, stocks)
        if number in job.flows_of:
            _add_flows(topology, host, job)
        for work in job.clients_of.get(number, ()):
            _add_clients(scenario, topology, host, job, work)
    if topology.nodes[number].model in (STORAGE, METADATA):
        _add_server(scenario, topology, host, plan)
    if operator is not None and number in operator.racks:
        host.beat_ps = operator.beat_ps
        host.sample_ps = operator.sample_ps
        host.tells_health = operator.sample_ps > 0 or operator.straggler_steps > 0
        if number in operator.incarnations[0].hosts:
            host.tended = operator.incarnations[0].train
    return host


def _stocks(scenario: Scenario, topology: Topology, plan: Plan, host: int) -> dict[int, GpuSms]:
    """The SMs of each GPU of a host that has ranks, where channels take them."""
    if scenario.ncclx.sms_per_channel == 0:
        return {}
    places = (place for job in plan.wired() for place in zip(job.gpus, job.nodes, strict=True))
    return {gpu: GpuSms(scenario.at(topology, gpu).gpu.sms) for gpu, node in places if node == host}


def _message_port(end: Attachment, queue: EventQueue, outbox_for: OutboxFor, lane: int = 0) -> MessagePort:
    """One direction of a host link, or one of several lanes of it that keep their orders apart."""
    outbox = outbox_for(end.peer)
    return MessagePort(queue, end.rate_bps, end.delay_ps, end.peer, end.peer_port, lane, outbox)


def _host_port(topology: Topology, node: int) -> int:
    """The host's port to one of its GPUs or NICs."""
    return topology.host_end(node).peer_port


def _add_flows(topology: Topology, host: Host, job: JobWork) -> None:
    program = FlowProgram(job.job, job.start_ps, host.number)
    number = host.add(program)
    for work in job.flows_of[host.number]:
        port = _host_port(topology, work.nic)
        flow = Flow(work.flow, work.start_ps, work.size_bytes, work.write_bytes, work.flags, work.tx_depth)
        contexts = program.add(flow, [(port, index) for index in work.posting()])
        for index, context in zip(work.posting(), contexts, strict=True):
            host.bind(port, index, number, context)


def _add_clients(scenario: Scenario, topology: Topology, host: Host, job: JobWork, work: ClientsWork) -> None:
    assert job.manners is not None, job.name
    port = _host_port(topology, work.nic)
    program = ClientProgram(host, job.job, job.start_ps, host.number, work.first)
    draws = (scenario.seed, host.number + (job.job << 20))
    program.clients = StorageClients(work.scripts, job.manners, HostNetwork(program), draws, work.spares)
    for one in work.copies:
        ports = tuple(_host_port(topology, nic) for nic in topology.nics_of_gpu(one.gpu))
        program.copies_first += (Copy(ports, one.rate_bps, one.takes_ps),)
    number = host.add(program)
    for _, index, _ in work.connections:
        program.pairs.append((port, index))
        host.bind(port, index, number, 0)


def _add_server(scenario: Scenario, topology: Topology, host: Host, plan: Plan) -> None:
    """What answers clients at a server of storage or metadata."""
    nic = front_end_nic(topology, host.number)
    port = _host_port(topology, nic)
    metadata = scenario.frontend.metadata
    program = ServerProgram(ServiceQueue(metadata.operation_ps, metadata.queue))
    number = host.add(program)
    for job in plan.jobs:
        for work in job.clients:
            for server, _, index in work.connections:
                if server == nic:
                    host.bind(port, index, number, program.add(port, index, work.requests))
