"""How do a scenario's numbers become hosts, GPUs and NVSwitches?

One function per kind of device, each reading the frozen scenario, the topology and the plan and nothing
else, so that a device is the same in whatever worker it is built. A host takes its programs in job by job,
and within a job rank by rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from actors.fabric.model import Attachment, Role, Topology
from actors.gpu.gpu import Gpu
from actors.gpu.memory import GpuMemory, RankMemory
from actors.gpu.nvlink import Domain, NvlinkPort, NvSwitch, TransferPair
from actors.host.host import MANAGEMENT_RATE_BPS, Host
from actors.host.perftest import Flow, FlowProgram
from actors.host.tables import Attendance
from actors.kernel.queue import EventQueue
from actors.ncclx.channel import Channel
from actors.ncclx.ends import (
    CTS_BYTES,
    RECEIVE_CONTROL,
    RECEIVE_DATA,
    ROLES,
    SEND_CONTROL,
    SEND_DATA,
    UNTIMED,
    ReceiveEnd,
    SendEnd,
)
from actors.ncclx.flight import switches_between, unloaded_ps
from actors.ncclx.graph_channel import GraphChannel
from actors.ncclx.operations import CALLS, Operation
from actors.ncclx.orders import Orders
from actors.ncclx.plan import EndPlan, JobWork, Plan, RankWork
from actors.ncclx.posting import POLICIES, ROUND_ROBIN, NicLoads, Receiver, Sender
from actors.ncclx.program_payload import group_orders, program_contents
from actors.ncclx.rank import RankProgram
from actors.ncclx.recorder import Recorder
from actors.ncclx.ring import OPERATION_CODES
from actors.ncclx.ring_channel import RingChannel
from actors.ncclx.schedule import is_ring
from actors.ncclx.scripted import ScriptBuilder
from actors.ncclx.share import GpuSms, Share
from actors.ncclx.verifying import contents_of, rank_contents
from actors.ncclx.waits import Waits
from actors.port.host_link import MANAGEMENT_PORT, MessagePort
from actors.port.link import Outbox
from emu.scenario.schema import Scenario

OutboxFor = Callable[[int], Outbox | None]

ARRIVALS: Final = 1
DEPARTURES: Final = 2
"""Lanes of the link from GPU to host, beside that of copies (0): what came over NVLink, and what has left."""


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
    prioritised = any(
        group.priority for job in plan.jobs if job.training is not None for group in job.training.groups
    )
    gpu = Gpu(number, queue, link, scenario.gpu.copy_rate_bps, scenario.gpu.copy_latency_ps, prioritised)
    if scenario.payload == "real" and not scenario.ncclx.zero_copy:
        contents = contents_of(scenario, plan, number)
        gpu.memory = GpuMemory([*contents, *program_contents(scenario, plan, number)])
    end = topology.nvlink_end(number)
    if end is not None:
        gpu.domain = Domain(
            _nvlink_port(end, queue, outbox_for),
            _message_port(host, queue, outbox_for, ARRIVALS),
            _message_port(host, queue, outbox_for, DEPARTURES),
            [
                TransferPair(_nvlink_place(topology, pair.peer), pair.index, pair.flags)
                for pair in plan.inside.get(number, ())
            ],
        )
    return gpu


def build_nvswitch(topology: Topology, number: int, queue: EventQueue, outbox_for: OutboxFor) -> NvSwitch:
    """The NVSwitch of one server."""
    return NvSwitch(number, queue, [_nvlink_port(end, queue, outbox_for) for end in topology.ports(number)])


def _nvlink_port(end: Attachment, queue: EventQueue, outbox_for: OutboxFor) -> NvlinkPort:
    return NvlinkPort(queue, end.rate_bps, end.delay_ps, end.peer, end.peer_port, outbox_for(end.peer))


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
    host.to_gpu = [topology.nodes[end.peer].role is Role.GPU for end in topology.ports(number)]
    receives = scenario.transport.receive_queue
    host.reposting = receives.depth > 0
    host.repost_ps = receives.repost_ps
    stocks = _stocks(scenario, plan, number)
    for job in plan.jobs:
        if job.training is not None:
            rails = max((len(side.rails) for one in job.works for side in job.sides[one.rank]), default=0)
            shared = NicLoads(rails) if rails else None
            for work in job.works:
                if work.host == number:
                    nodes = [one.host for one in job.works]
                    builder = ScriptBuilder(
                        scenario,
                        topology,
                        host,
                        job.training,
                        work.rank,
                        work.gpu,
                        nodes,
                        make_sender,
                        inside_sender,
                        partial(group_orders, scenario, job),
                        shared,
                        stocks.get(work.gpu),
                    )
                    sides = job.sides[work.rank]
                    program = builder.add(job.job, job.start_ps, len(job.operations), sides)
                    if work.gpu in stocks:
                        stocks[work.gpu].programs.append(int(program.number))
                    _number_pairs(topology, plan, number, program, builder.bound())
                    _meet(scenario, host, job, work.rank)
            continue
        here = [work for work in job.works if work.host == number]
        most = max((len(end.nics) for work in here for end in work.channels[0].sends), default=0)
        loads = NicLoads(most) if most else None
        for work in here:
            stock = stocks.get(work.gpu)
            _add_rank(scenario, topology, plan, host, job, work, loads, stock)
            if stock is not None:
                stock.programs.append(len(host.programs) - 1)
            _meet(scenario, host, job, work.rank)
        if any(flow.host == number for flow in job.flows):
            _add_flows(topology, host, job)
    return host


def _stocks(scenario: Scenario, plan: Plan, host: int) -> dict[int, GpuSms]:
    """The SMs of each GPU of a host that has ranks, where channels take them."""
    if scenario.ncclx.sms_per_channel == 0:
        return {}
    works = [work for job in plan.jobs for work in job.works if work.host == host]
    return {work.gpu: GpuSms(scenario.gpu.sms) for work in works}


def _meet(scenario: Scenario, host: Host, job: JobWork, rank: int) -> None:
    """Have the rank that was added last meet the others at the store, if that takes time."""
    rounds = scenario.ncclx.init.rounds(len(job.works))
    if rounds:
        absent, patience_ps = rank in scenario.jobs[job.job].absent, scenario.ncclx.watchdog_ps or 0
        host.meetings[len(host.programs) - 1] = Attendance(rank, rounds, absent, patience_ps)


def _message_port(end: Attachment, queue: EventQueue, outbox_for: OutboxFor, lane: int = 0) -> MessagePort:
    """One direction of a host link, or one of several lanes of it that keep their orders apart."""
    outbox = outbox_for(end.peer)
    return MessagePort(queue, end.rate_bps, end.delay_ps, end.peer, end.peer_port, lane, outbox)


def _host_port(topology: Topology, node: int) -> int:
    """The host's port to one of its GPUs or NICs."""
    return topology.host_end(node).peer_port


def _add_rank(
    scenario: Scenario,
    topology: Topology,
    plan: Plan,
    host: Host,
    job: JobWork,
    work: RankWork,
    loads: NicLoads | None,
    stock: GpuSms | None,
) -> None:
    ncclx = scenario.ncclx
    gpu_port = _host_port(topology, work.gpu)
    waits = Waits()
    assert job.schedule is not None, job.name
    cut = job.schedule.cut
    slots = cut.slots
    group = job.schedule.members[work.rank]
    graphed = [not is_ring(one) for one in job.operations]
    called = _called(scenario, job, work.rank)
    schedule = job.schedule.with_operations(called)
    operations = [(OPERATION_CODES.get(one.op, -1), one.size_bytes) for one in called]
    orders: Orders | None = None
    if scenario.payload == "real":
        orders = Orders(job.job, work.rank, partial(schedule.steps, rank=work.rank))
        if ncclx.zero_copy:
            orders.memory = RankMemory(rank_contents(scenario, job, work.rank))
    rings: list[Channel] = []
    graphs: list[Channel] = []
    sends: list[SendEnd] = []
    receives: list[ReceiveEnd] = []
    bound: list[tuple[int, int, int]] = []
    for number, ends in enumerate(work.channels):
        nic_port = _host_port(topology, ends.nic)
        for place, end in enumerate(ends.sends):
            home = work.gpu if end.inside else ends.nic
            bound += _bindings(topology, home, end, len(sends), int(SEND_DATA), int(SEND_CONTROL))
            if end.inside:
                sender, unloaded = inside_sender(gpu_port, end.pairs[0], slots), UNTIMED
            else:
                nics = end.nics or (ends.nic,)
                peer = plan.pairs[nics[0]][end.pairs[0]].remote_nic
                unloaded = unloaded_ps(scenario, topology, peer, nics[0], int(CTS_BYTES))
                shared = loads if end.nics else None
                sender = make_sender(scenario, topology, nics, end.pairs, peer, shared, slots)
            sends.append(SendEnd(number, end.peer, place, slots, sender, end.control, waits, unloaded))
        for place, end in enumerate(ends.receives):
            policy = int(ROUND_ROBIN) if end.inside else POLICIES[ncclx.qp_policy]
            receiver = Receiver(policy, end.pairs)
            home = work.gpu if end.inside else ends.nic
            bound += _bindings(topology, home, end, len(receives), int(RECEIVE_DATA), int(RECEIVE_CONTROL))
            port = gpu_port if end.inside else nic_port
            receives.append(ReceiveEnd(number, end.peer, place, port, slots, receiver, end.control))
        outgoing = sends[len(sends) - len(ends.sends) :]
        incoming = receives[len(receives) - len(ends.receives) :]
        if not all(graphed):
            cursor = job.schedule.cursor(work.rank, number)
            before, after = job.schedule.neighbours(work.rank, number)
            (send,) = (one for one, end in zip(outgoing, ends.sends, strict=True) if _is(end, after))
            (receive,) = (one for one, end in zip(incoming, ends.receives, strict=True) if _is(end, before))
            rings.append(RingChannel(number, gpu_port, send, receive, cursor, operations, orders))
        if any(graphed):
            tasks = partial(
                schedule.tasks,
                channel=number,
                rank=work.rank,
                sends=[(end.peer, end.lane) for end in ends.sends],
                receives=[(end.peer, end.lane) for end in ends.receives],
            )
            graphs.append(GraphChannel(number, gpu_port, outgoing, incoming, cut.slice_bytes, tasks, orders))
    for one in rings + graphs:
        one.zero_copy = ncclx.zero_copy
        one.memory = None if orders is None else orders.memory
    section = scenario.jobs[job.job]
    recorder = Recorder(ncclx.flight_recorder, [job.schedule.groups.index(group)])
    watchdog, absent = ncclx.watchdog_ps or 0, work.rank in section.absent
    program = RankProgram(
        job.job,
        job.start_ps,
        work.rank,
        rings,
        graphs,
        graphed,
        sends,
        receives,
        waits,
        recorder,
        [(CALLS.index(one.op), one.size_bytes) for one in called],
        watchdog,
        absent,
        orders,
        None if stock is None else Share(stock, [len(work.channels) * ncclx.sms_per_channel], [0], 0),
    )
    host.add(program)
    program.settle()
    for port, index, context in bound:
        host.bind(port, index, int(program.number), context)
    _number_pairs(topology, plan, work.host, program, [(port, index) for port, index, _ in bound])


def _number_pairs(
    topology: Topology, plan: Plan, host: int, program: RankProgram, bound: Sequence[tuple[int, int]]
) -> None:
    """Tell a program the numbers of its queue pairs; those of a GPU have none."""
    for port, index in bound:
        nic = topology.ports(host)[port].peer
        if nic in plan.pairs:
            program.qpns[port << 20 | index] = plan.pairs[nic][index].qpn


def _called(scenario: Scenario, job: JobWork, rank: int) -> tuple[Operation, ...]:
    """The operations as this rank calls them: one that is mistaken calls another size."""
    mismatch = scenario.jobs[job.job].mismatch
    if mismatch is None or mismatch.rank != rank:
        return job.operations
    return tuple(one._replace(size_bytes=mismatch.size_bytes) for one in job.operations)


def make_sender(
    scenario: Scenario,
    topology: Topology,
    nics: Sequence[int],
    pairs: Sequence[int],
    peer: int,
    loads: NicLoads | None,
    slots: int,
) -> Sender:
    """The end that writes of a connection from these NICs, the first of which is connected to `peer`.

    `loads` is None where slices do not choose among NICs.
    """
    ncclx = scenario.ncclx
    return Sender(
        POLICIES[ncclx.qp_policy],
        [_host_port(topology, nic) for nic in nics],
        list(pairs),
        slots,
        loads,
        ncclx.dqplb.segment_bytes,
        ncclx.dqplb.most_outstanding,
        ncclx.outstanding.at_distance(switches_between(topology, nics[0], peer)),
    )


def inside_sender(gpu_port: int, pair: int, slots: int) -> Sender:
    """The end that writes of a connection over NVLink: whole slices on one pair, without limits."""
    return Sender(int(ROUND_ROBIN), [gpu_port], [pair], slots, None, 0, 0, 0)


def _is(end: EndPlan, peer: int) -> bool:
    """Whether an end is that of the ring to or from a peer."""
    return end.peer == peer and end.lane == 0


def _bindings(
    topology: Topology, nic: int, end: EndPlan, place: int, data: int, control: int
) -> list[tuple[int, int, int]]:
    """(host's port, queue pair, context) of an end's queue pairs; `place` is the end's among the rank's."""
    each = len(end.pairs) // max(len(end.nics), 1)
    nics = [end.nics[at // each] if end.nics else nic for at in range(len(end.pairs))]
    bound = [
        (_host_port(topology, one), index, place * ROLES + data)
        for one, index in zip(nics, end.pairs, strict=True)
    ]
    if end.control >= 0:
        bound.append((_host_port(topology, nic), end.control, place * ROLES + control))
    return bound


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
