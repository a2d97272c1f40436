"""From a scenario to the devices of one partition.

A *blueprint* is what every worker works out for itself from the scenario's text: topology, ranks and flows,
connections, faults. It is pure, so all workers hold the same one and nothing of it is shipped. From it
each worker builds the devices that the assignment gives it, with an outbox towards every worker that a link
of its own leads to.

What breaks is in the blueprint too: every worker works out the events of all faults
(`emu.scenario.faults.events`) and makes those of its own devices pending.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

from actors.control.controller import build_controller
from actors.control.operator import Operator
from actors.control.store import Meeting, Store
from actors.control.traffic_engineering import build_engineer
from actors.fabric.model import FABRIC, NVLINK, Role
from actors.kernel.block import Outbox
from actors.kernel.device import Device
from actors.kernel.event import Event
from actors.kernel.kernel import Kernel
from actors.kernel.queue import LEAST_SLOTS, SLOT_SHIFT, SLOTS, EventQueue
from actors.wire.frame import CREDIT_WIRE_BYTES, PAUSE_WIRE_BYTES
from emu.devices.captures import give_captures
from emu.devices.drawing import Blueprint
from emu.devices.hosts import build_gpu, build_host, build_nvswitch
from emu.devices.link_ends import OutboxFor, link_ends
from emu.devices.lookahead import Crossing, fabric_lookahead_ps, message_lookahead_ps
from emu.devices.nics import build_nic
from emu.devices.recorders import give_recorders
from emu.devices.sleeping import IdleKinds, Sleeping
from emu.devices.switches import build_switch, engineering_knobs
from emu.scenario.faults.convergence import Convergence
from emu.scenario.faults.events import all_events


class Blocks(NamedTuple):
    """The blocks of one worker (`actors.kernel.block`)."""

    block_of: tuple[int, ...]
    """The block of each device, by number; -1 for those of other workers."""
    lookahead_ps: tuple[int, ...]
    """For each block, the least time from an event in it to its effect on another one."""

    @property
    def slots(self) -> int:
        """Slots of a block's wheel: a few windows ahead."""
        least_ps = min(self.lookahead_ps)
        slots = int(LEAST_SLOTS)
        while slots < int(SLOTS) and slots << int(SLOT_SHIFT) < 4 * least_ps:
            slots *= 2
        return slots


def build_kernel(
    blueprint: Blueprint,
    assignment: Sequence[int],
    worker: int,
    blocks: Blocks | None = None,
    trains: bool = True,
) -> tuple[Kernel, list[Outbox | None]]:
    """The kernel of one worker with its devices, in blocks if so asked, and its outbox towards each worker.

    None where no link leads.
    """
    topology = blueprint.topology
    outboxes: list[Outbox | None] = [None] * (max(assignment) + 1)
    many = 1 if blocks is None else len(blocks.lookahead_ps)
    kernel = Kernel(len(topology.nodes), many, int(SLOTS) if blocks is None or many == 1 else blocks.slots)

    def outbox_for(node: int, block: int) -> Outbox | None:
        """Where what a block sends to a device goes: to the inbox of its block, the outbox of its worker, or
        None where it lives in the same block."""
        at = assignment[node]
        if at == worker:
            home = 0 if blocks is None else blocks.block_of[node]
            return None if home == block else kernel.blocks[home].inbox
        outbox = outboxes[at]
        if outbox is None:
            outbox = outboxes[at] = Outbox()
        return outbox

    if blocks is not None:
        for block, lookahead_ps in zip(kernel.blocks, blocks.lookahead_ps, strict=True):
            block.lookahead_ps = lookahead_ps
    near: list[Outbox] = [block.inbox for block in kernel.blocks] if trains else []

    def home_of(number: int) -> int:
        return 0 if blocks is None else blocks.block_of[number]

    def build(number: int) -> Device:
        home = home_of(number)
        queue = kernel.blocks[home].queue
        return _build_device(blueprint, number, queue, partial(outbox_for, block=home))

    def made_ready(device: Device) -> Device:
        """A device that is complete with its captures."""
        return _made_ready(blueprint, device, kernel, home_of(device.number), near)

    sleeping = Sleeping(lambda number: made_ready(build(number)))
    kinds = IdleKinds(blueprint.scenario, topology, blueprint.plan)
    here = [number for number, at in enumerate(assignment) if at == worker]
    kind_of = {number: kinds.of(number) for number in here}
    for number in here:
        kind = kind_of[number]
        if kind is None:
            kernel.add(build(number), home_of(number))
        elif sleeping.sleeps(number, kind):
            kernel.let_sleep(number, home_of(number), sleeping)
        else:
            kernel.add(sleeping.first(number, kind), home_of(number))
    busy = [kernel.device(number) for number, kind in kind_of.items() if kind is None]
    give_captures(blueprint.scenario, topology, busy)
    for device in busy:
        made_ready(device)
    for event in fault_events(blueprint, assignment, worker):
        kernel.push(event)
    return kernel, outboxes


def _made_ready(
    blueprint: Blueprint, device: Device, kernel: Kernel, block: int, near: list[Outbox]
) -> Device:
    """A device that is complete with its captures; `near` are the inboxes to which trains may go, if any."""
    give_recorders(blueprint.scenario, blueprint.topology, (device,))
    kernel.let_defer(device, block)
    if near:
        device.let_couple(near)
    return device


def crossings(blueprint: Blueprint, assignment: Sequence[int]) -> list[Crossing]:
    """Both directions of what joins two workers: links and the management network, with their lookahead."""
    scenario, topology, _, _ = blueprint
    found: list[Crossing] = []
    ends = link_ends(scenario, topology)
    control_bytes = int(CREDIT_WIRE_BYTES if scenario.credited else PAUSE_WIRE_BYTES)
    lookahead_ps = cache(fabric_lookahead_ps)  # thousands of links are alike
    for link in topology.links:
        if assignment[link.a] == assignment[link.b]:
            continue
        for sender, receiver in ((link.a, link.b), (link.b, link.a)):
            if link.kind == FABRIC:
                far = ends.far(receiver, link.rate_bps)
                least_ps = lookahead_ps(link.rate_bps, link.delay_ps, *far, control_bytes)
            elif link.kind == NVLINK:
                least_ps = link.delay_ps  # the NVSwitch has sent the first bytes on when the last come
            else:
                least_ps = message_lookahead_ps(link.rate_bps, link.delay_ps)
            found.append(Crossing(assignment[sender], assignment[receiver], least_ps))
    centre = assignment[topology.controller]
    # The management delay alone, without serialisation: the controller ends a run one such delay ahead.
    delay_ps = scenario.control.management_delay_ps
    managed = [*topology.hosts, *(topology.switches if scenario.routing.controlled else ())]
    for at in sorted(dict.fromkeys(assignment[device] for device in managed)):
        if at != centre:
            found += [Crossing(at, centre, delay_ps), Crossing(centre, at, delay_ps)]
    return found


def _build_device(blueprint: Blueprint, number: int, queue: EventQueue, outbox_for: OutboxFor) -> Device:
    scenario, topology, _, plan = blueprint
    role = topology.nodes[number].role
    if role is Role.SWITCH:
        return build_switch(scenario, topology, number, queue, outbox_for)
    if role is Role.NIC:
        return build_nic(scenario, topology, number, plan.pairs.get(number, ()), queue, outbox_for)
    if role is Role.HOST:
        return build_host(scenario, topology, plan, number, queue, outbox_for, blueprint.resolved.operator)
    if role is Role.GPU:
        return build_gpu(scenario, topology, plan, number, queue, outbox_for)
    if role is Role.NVSWITCH:
        return build_nvswitch(scenario, topology, number, queue, outbox_for)
    assert role is Role.CONTROLLER, role
    delay_ps = scenario.control.management_delay_ps
    controller = build_controller(
        number, topology.hosts, plan.outlines(scenario.run.repeat), delay_ps, queue, outbox_for
    )
    if scenario.routing.kind == "traffic_engineering":
        knobs = engineering_knobs(scenario.routing)
        controller.engineer = build_engineer(topology, knobs, delay_ps, queue, outbox_for)
    init = scenario.ncclx.init
    if init.store != "none":
        met = []
        for one in plan.wired():
            if one.meetings:
                among = one.members() or tuple(range(len(one.gpus)))  # spare ranks come when they are needed
                meeting = Meeting(one.job, len(one.gpus), init.rounds(len(among)))
                meeting.ranks, meeting.among = len(among), list(among)
                met.append(meeting)
        controller.store = Store(init.lanes if init.store == "concurrent" else 1, init.operation_ps, met)
    if blueprint.resolved.operator is not None:
        controller.employ(Operator(blueprint.resolved.operator, delay_ps))
    return controller


def fault_events(blueprint: Blueprint, assignment: Sequence[int], worker: int) -> list[Event]:
    """What the scenario's faults do to the devices that live here.

    They follow from the scenario alone, so that a fault that is injected into a run under way makes the
    events that it would have made had it been there from the beginning.
    """
    scenario, topology, resolved, _ = blueprint
    events = all_events(resolved.faults, Convergence(scenario, topology))
    return [event.message() for event in events if assignment[event.device] == worker]
