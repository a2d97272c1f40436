"""Can the library be called without a scenario, and does it do the same then?"""

import pytest

from actors.control.controller import Controller, build_controller
from actors.fabric.model import Role, Topology
from actors.fabric.paths import Delays
from actors.gpu.gpu import Gpu
from actors.host.host import MANAGEMENT_RATE_BPS, Host
from actors.kernel.kernel import Kernel
from actors.kernel.queue import EventQueue
from actors.ncclx.operations import JobOutline
from actors.ncclx.script import CALL, COLLECTIVE, Group, GroupCall, Script, ScriptPlan
from actors.ncclx.scripted import add_ranks
from actors.ncclx.settings import Outstanding, Settings
from actors.ncclx.transport.wiring import ConnectionBook, WiredJob, connect_groups, schedules_of
from actors.port.link import MANAGEMENT_PORT, MessagePort
from actors.wire.message import STATUS_SUCCESS
from emu.devices.plan import copy_costs
from tests.ncclx.toy import US, Toy, ToyNic, collective, scenario

KIB = 1024
SETTINGS = Settings(
    channels=2,
    channels_per_peer=0,
    turned_rings=True,
    crossing_rings=False,
    one_rail=False,
    sms_per_channel=0,
    step_bytes=4 * KIB,
    steps=8,
    chunk_steps=4,
    slice_steps=2,
    p2p_chunk_bytes=0,
    qps_per_connection=3,
    port_use="merged",
    qp_policy="split",
    over_nics=False,
    segment_bytes=512 * KIB,
    segments_per_qp=128,
    outstanding=Outstanding(),
    protocol="simple",
    ll_bytes=32 * KIB,
    ll128_bytes=32 * KIB,
    even_slices=False,
    zero_copy=False,
    admitted=True,
    data_priority=3,
    control_priority=6,
    watchdog_ps=0,
    flight_recorder=16,
    delays=Delays(proxy_ps=0, nic_ps=0, switch_ps=0, cuts_through=False),
)


def script_of(call: GroupCall, ranks: int) -> ScriptPlan:
    """One stream for each rank, on which all call the same."""
    plan = ScriptPlan()
    plan.reasons, plan.single = ("",), True
    group = plan.group(Group(COLLECTIVE, 0, tuple(range(ranks))))
    plan.scripts = [Script(rank, [group], [[call]], [0], [[(CALL, 0, 0)]]) for rank in range(ranks)]
    return plan


def wired(topology: Topology, script: ScriptPlan, book: ConnectionBook) -> WiredJob:
    gpus = topology.gpus
    nodes = tuple(topology.host_of(gpu) for gpu in gpus)
    schedules = schedules_of(SETTINGS, topology, script, gpus)
    sides = connect_groups(SETTINGS, topology, book, 0, gpus, script.groups, schedules)
    return WiredJob(0, 0, SETTINGS, script, gpus, nodes, schedules, tuple(tuple(one) for one in sides))


def operations(toy: Toy, call: GroupCall) -> list[list[int]]:
    """Rows of the operations of a job without a scenario, on devices as those of a toy."""
    topology = toy.topology
    book = ConnectionBook()
    job = wired(topology, script_of(call, len(topology.gpus)), book)
    pairs = book.numbered(7, topology, lambda *_: 49152)
    kernel = Kernel(len(topology.nodes))
    queue: EventQueue = kernel.queue
    delay_ps = toy.scenario.control.management_delay_ps
    for node in topology.nodes:
        number = node.number
        ends = topology.ports(number)
        links = [MessagePort(queue, e.rate_bps, e.delay_ps, e.peer, e.peer_port, 0, None) for e in ends]
        if node.role is Role.HOST:
            management = MessagePort(
                queue, MANAGEMENT_RATE_BPS, delay_ps, topology.controller, MANAGEMENT_PORT, number, None
            )
            host = Host(number, queue, links, management, toy.scenario.host.proxy_cost_ps)
            host.to_gpu = [topology.nodes[end.peer].role is Role.GPU for end in ends]
            add_ranks(job, topology, host, pairs, {})
            kernel.add(host)
        elif node.role is Role.GPU:
            gpu = toy.scenario.gpu
            kernel.add(Gpu(number, queue, links[0], gpu.copy_rate_bps, copy_costs(toy.scenario), False))
        elif node.role is Role.NIC:
            kernel.add(ToyNic(number, queue, links[-1], pairs[number], US))
        elif node.role is Role.CONTROLLER:
            outline = JobOutline(0, 1, topology.hosts, len(topology.gpus), listed=True)
            kernel.add(build_controller(number, topology.hosts, [outline], delay_ps, queue, lambda _: None))
    kernel.start()
    kernel.run(1 << 61, 10**7)
    controller = kernel.device(topology.controller)
    assert isinstance(controller, Controller)
    return controller.operations


@pytest.mark.parametrize(("op", "algorithm"), [("all_reduce", "ring"), ("all_gather", "bruck")])
def test_a_job_of_plain_records_takes_the_time_of_the_same_scenario(op: str, algorithm: str) -> None:
    ncclx = {"channels": 2, "buffsize": "32KiB", "qps_per_connection": 3, "qp_policy": "split"}
    benchmark = collective(op, "100003B", warmup=0, iterations=1)
    benchmark["workload"]["algorithm"] = algorithm
    toy = Toy(scenario([benchmark], hosts=4, ncclx=ncclx)).run()
    found = operations(toy, GroupCall(op, 100_003, algorithm))
    assert found == toy.controller.operations
    assert [row[4] for row in found] == [STATUS_SUCCESS]
