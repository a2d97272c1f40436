"""From a scenario's numbers to switches, their ports, routing policies and routes.

One function per kind of device; each reads the frozen scenario and the topology and nothing else, so that a
device is the same in whatever worker it is built. `outbox_for` says where the peer of a link lives: None in
this partition, else the outbox towards its worker.

Routes. `GraphRoutes` are equal-cost groups from the topology without the links that are down, weighted as the
scenario says; an address that hangs on this switch, or goes its own way, branches off its prefix. Static
routes come last and go before all: they know nothing of links that are down.

Routing policies. `ROUTERS` is their table. A new one is a class in a file of its own beside
`actors.switch.routing.policy`, a line there and its knobs in `emu.scenario.sections.routing`; `module:Class`
needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from actors.control.traffic_engineering import EngineeringKnobs
from actors.fabric.model import INDEX_BITS, INDEX_MASK, Topology
from actors.fabric.routes import equal_cost_groups, host_groups, local_ports
from actors.host.host import MANAGEMENT_RATE_BPS
from actors.kernel.mixing import Stream
from actors.kernel.queue import EventQueue
from actors.nic.nic import Nic
from actors.nic.queue_pair.numbers import hash_seed
from actors.optional.deep import DeepBuffer, DeepSwitch
from actors.port.link import MANAGEMENT_PORT, PRIORITIES, MessagePort, Wire
from actors.port.pfc import Pfc
from actors.port.port import Port
from actors.port.scheduling import DeficitRoundRobin, Scheduler
from actors.switch.buffer import Buffer, PolicedBuffer, PriorityGroup
from actors.switch.ecn import ONE, Aqm, EgressQueue, Red
from actors.switch.egress import SwitchPort
from actors.switch.routing.hashing import E_ECMP, FIELDS, FUNCTIONS, POLICIES, FieldHash
from actors.switch.routing.policy import VIA_BRANCH, Group, Routes, SwitchView
from actors.switch.switch import Classes, CreditBuffer, CreditSwitch, Switch
from actors.switch.watchdog import PauseWatch
from actors.wire.frame import PREAMBLE_GAP_BYTES
from emu.devices.asic_headroom import ASICS
from emu.devices.buffer_sizes import (
    asic_of,
    auto_headrooms_bytes,
    fixed_alpha,
    is_deep,
    port_pools_bytes,
    shared_headroom_bytes,
    shared_pool_bytes,
    shares_of,
)
from emu.devices.link_ends import OutboxFor, cuts_through, link_ends
from emu.scenario.plugins import policy_of
from emu.scenario.schema import Scenario
from emu.scenario.sections.routing import HashedSection, RoutingSection
from emu.scenario.sections.switch import (
    AqmSection,
    BufferSection,
    EcnSection,
    PfcSection,
    SchedulingSection,
    StaticRoute,
    SwitchSection,
)

ROUTING_PURPOSE: Final = 5
"""Names the random stream of a switch's routing policy."""


def engineering_knobs(section: RoutingSection) -> EngineeringKnobs:
    """What the controller's engineer receives."""
    return EngineeringKnobs(
        section.interval_ps, section.entries, section.threshold_bps, section.fill, section.hysteresis
    )


def field_hash(knobs: RoutingSection, tier: int, seed: int) -> FieldHash:
    """The hash of a switch of this tier."""
    polynomials = knobs.polynomial or (0,)
    return FieldHash(
        FUNCTIONS[knobs.hash],
        [FIELDS.index(field) for field in knobs.fields],
        polynomials[min(max(tier, 1), len(polynomials)) - 1],
        knobs.bit_offset[min(max(tier, 1), len(knobs.bit_offset)) - 1],
        seed,
    )


def is_written_out(knobs: RoutingSection) -> bool:
    """Whether the switch has this policy inline: `mix` over the fields of ECMP or E-ECMP."""
    return knobs.plainly_hashed


def give_policy(
    switch: Switch,
    knobs: RoutingSection,
    scenario_seed: int,
    tier: int,
    management: MessagePort | None = None,
) -> None:
    """Let a switch, complete with its ports, route by these knobs; before its groups are computed.

    `management` leads to the controller, if the policy is controlled.
    """
    if is_written_out(knobs):
        return
    stream = Stream(scenario_seed, switch.number, ROUTING_PURPOSE)
    view = SwitchView(switch.number, tier, field_hash(knobs, tier, switch.hash_seed), stream)
    view.management = management
    for port in switch.ports:
        view.add_port(port)
    switch.router = policy_of(knobs)(view, knobs)


ECN_PURPOSE = 1 << 20
"""Names the random streams of queues with an AQM: this, plus the queue's number."""


def build_switch(
    scenario: Scenario, topology: Topology, number: int, queue: EventQueue, outbox_for: OutboxFor
) -> Switch:
    """One switch with its ports, buffer and routing groups."""
    own_scenario = scenario.at(topology, number)
    section = own_scenario.switch
    pfc = section.pfc
    deep = is_deep(scenario, topology, number)
    alpha = fixed_alpha(section.deep_buffer.alpha if deep else section.buffer.alpha)
    shares = shares_of(scenario, topology, number, alpha)
    xon_offset = shares[0].xon_offset_bytes
    lanes: CreditBuffer | None = None
    everywhere = scenario.routing.seed == "equal"
    seed = hash_seed(scenario.seed, -1 if everywhere else number)
    routes = GraphRoutes(topology, scenario.routing, scenario.switch.static_routes)
    policy = POLICIES.get(scenario.routing.kind, E_ECMP)
    if scenario.credited:
        room = len(topology.ports(number)) * PRIORITIES * scenario.link.credits.buffer_bytes
        buffer: Buffer = (lanes := CreditBuffer(room))
        switch: Switch = CreditSwitch(number, queue, buffer, routes, policy, seed)
    elif deep:
        pools = port_pools_bytes(scenario, topology, number)
        parts = DeepBuffer(
            [pool_of(section.buffer, pool, alpha, xon_offset) for pool in pools], alpha, xon_offset
        )
        buffer = parts
        switch = make_deep(own_scenario, number, queue, parts, routes, policy, seed)
    else:
        buffer = pool_of(section.buffer, shared_pool_bytes(scenario, topology, number), alpha, xon_offset)
        buffer.headroom_pool_bytes = shared_headroom_bytes(scenario, topology, number) or 0
        switch = Switch(number, queue, buffer, routes, policy, seed)
    if scenario.classified:
        switch.counts_moved = True
        switch.classes = Classes(
            list(section.qos.dscp_to_tc),
            list(section.qos.tc_to_queue),
            list(section.qos.tc_to_priority_group),
            list(section.qos.pfc_priority_to_queue),
        )
    headrooms = auto_headrooms_bytes(scenario, topology, number, asic_of(scenario, topology, number))
    cuts = cuts_through(scenario, topology, number)
    limits = EgressLimits.of(section.buffer)
    ends = link_ends(scenario, topology)
    stops = pfc.priorities
    for index, end in enumerate(topology.ports(number)):
        port = _switch_port(scenario, topology, section, switch, index, ends.wire(end, outbox_for), limits)
        if lanes is not None:
            lanes.add_port(ends.credits(port))
        ends.give(port, number, end)
        if pfc.watchdog.enabled:
            switch.watches.append(_watch_of(port, pfc, section.buffer.asic))
        tells = port.pfc is not None and not port.pfc.silent
        for priority, share in enumerate(shares):
            # Taken apart: to ask for each field by its name takes a tenth of what a switch takes to be built.
            alpha_fixed, xoff_bytes, xon_bytes, offset_bytes, reserve_bytes, headroom = share
            lossless = lanes is not None or (tells and priority in stops)
            headroom_bytes = 0
            if lossless:
                headroom_bytes = headrooms[index] if headroom is None else headroom
            group = PriorityGroup(priority, lossless, reserve_bytes, headroom_bytes)
            if lanes is None:
                group.set_thresholds(alpha_fixed, xoff_bytes, xon_bytes, offset_bytes)
            group.pfc = port.pfc
            buffer.add(group)
        switch.cuts_through = port.apart = port.cuts = cuts
        switch.add_port(port)
        if isinstance(switch, DeepSwitch) and (scheduler := _scheduler(scenario, section)) is not None:
            switch.granters[index].set_scheduler(scheduler)
    management = _management_of(scenario, topology, number, queue, outbox_for)
    give_policy(switch, scenario.routing, scenario.seed, topology.nodes[number].tier, management)
    switch.compute_groups()
    return switch


def _watch_of(port: SwitchPort, section: PfcSection, asic: str) -> PauseWatch:
    """The watchdog of a port. `watches` is indexed by port: that of one without PFC is never paused and never
    acts."""
    if port.pfc is None:
        return PauseWatch(port, Pfc(port, section.quanta), 1, 1, forward=False)
    dog = section.watchdog
    both_ways = dog.drops == "both" or (dog.drops == "auto" and asic in ASICS)
    forward = dog.action == "forward"
    return PauseWatch(port, port.pfc, dog.detection_ps, dog.restoration_ps, forward, both_ways)


def pool_of(section: BufferSection, pool_bytes: int, alpha_fixed: int, xon_offset_bytes: int) -> Buffer:
    """A shared pool, with thresholds of its groups' own or by an admission policy."""
    policy = section.admission
    if policy.kind == "thresholds":
        return Buffer(pool_bytes, alpha_fixed, xon_offset_bytes)
    pool = PolicedBuffer(pool_bytes, alpha_fixed, xon_offset_bytes)
    pool.admission = policy_of(policy)(pool, policy)
    return pool


def _management_of(
    scenario: Scenario, topology: Topology, number: int, queue: EventQueue, outbox_for: OutboxFor
) -> MessagePort | None:
    """The way from a switch to the controller, where routing has one."""
    if not scenario.routing.controlled:
        return None
    delay_ps, to = scenario.control.management_delay_ps, topology.controller
    return MessagePort(queue, MANAGEMENT_RATE_BPS, delay_ps, to, MANAGEMENT_PORT, number, outbox_for(to))


class EgressLimits(NamedTuple):
    """Limits of egress queues, of lossy and of lossless ones."""

    limits_bytes: list[int]
    alphas_fixed: list[int]

    @classmethod
    def of(cls, section: BufferSection) -> EgressLimits:
        """Those of a switch."""
        return cls(
            [section.egress_limit_bytes, section.lossless_egress_limit_bytes],
            [fixed_alpha(section.egress_alpha), fixed_alpha(section.lossless_egress_alpha)],
        )


def _switch_port(
    scenario: Scenario,
    topology: Topology,
    section: SwitchSection,
    switch: Switch,
    index: int,
    wire: Wire,
    limits: EgressLimits,
) -> SwitchPort:
    """A port with its scheduler, its egress limits and what it marks; `section` is its switch's."""
    port = SwitchPort(switch, index, wire, section.latency_ps, switch.memory)
    scheduler = _scheduler(scenario, section)
    if scheduler is not None:
        port.set_scheduler(scheduler)
    port.measuring = scenario.transport.congestion_control.collects
    port.set_limits(limits.limits_bytes, limits.alphas_fixed)
    ecn = section.ecn
    if ecn.enabled:
        name, first = topology.nodes[switch.number].name, ECN_PURPOSE + index * PRIORITIES
        for priority, profile in enumerate(ecn.profiles_of()):
            stream = Stream(scenario.seed, switch.number, first + priority)
            egress = EgressQueue(name, index, priority, wire.rate_bps, stream)
            port.add_aqm(aqm_of(ecn, egress), managed=profile is not None)
    return port


def aqm_of(section: AqmSection, queue: EgressQueue) -> Aqm:
    """The AQM of one egress queue. RED's thresholds are those of the queue's profile, at the port's rate."""
    if isinstance(section, EcnSection):
        profile = section.profiles_of()[queue.priority] or section
        return Red(queue, *section.thresholds_at(queue.rate_bps, profile), int(profile.pmax * ONE))
    made: Aqm = policy_of(section)(queue, section)
    return made


def _scheduler(scenario: Scenario, section: SwitchSection) -> Scheduler | None:
    return scheduler_of(section.scheduling, scenario.largest_frame_bytes)


def scheduler_of(section: SchedulingSection, largest_frame_bytes: int) -> Scheduler | None:
    """A scheduler for one egress; None where all classes are strict."""
    if section.policy is DeficitRoundRobin and len(section.strict) == PRIORITIES:
        return None
    made: Scheduler = policy_of(section)(largest_frame_bytes + PREAMBLE_GAP_BYTES, section)
    return made


def fabric_ports(device: Switch | Nic) -> list[Port]:
    """The fabric ports of a switch or NIC, in order."""
    return list(device.ports) if isinstance(device, Switch) else list(device.ports())


@mypyc_attr(allow_interpreted_subclasses=True)
class GraphRoutes(Routes):
    """Groups read off the topology, each distinct one shared by the prefixes that have it."""

    def __init__(
        self, topology: Topology, routing: RoutingSection, static: Sequence[StaticRoute] = ()
    ) -> None:
        self._topology = topology
        self._static: list[tuple[int, int, int]] = []
        """Switch, address and port of every static route."""
        for one in static:
            node = topology.node_named(one.switch).number
            via = topology.node_named(one.via).number
            port = next(at for at, end in enumerate(topology.ports(node)) if end.peer == via)
            address = topology.address_of(topology.node_named(one.destination).number)
            self._static.append((node, address, port))
        self._buckets = routing.resilient_buckets if isinstance(routing, HashedSection) else 0
        self._by_capacity = routing.weights == "capacity"
        self._weight: dict[int, int] = {
            link: one.weight for one in routing.link_weights for link in topology.links_named(one.link)
        }

    def _weighted(self, switch: int, ports: Sequence[int]) -> list[int]:
        """Each port once for each unit of its weight, in lowest terms."""
        if (not self._by_capacity and not self._weight) or len(ports) < 2:
            return list(ports)
        ends = [self._topology.ports(switch)[port] for port in ports]
        units = [self._weight.get(end.link, 1) * (end.rate_bps if self._by_capacity else 1) for end in ends]
        common = gcd(*units)
        return [
            port for port, unit in zip(ports, units, strict=True) for _ in range(min(unit // common, 1024))
        ]

    def _members(self, switch: int, ports: tuple[int, ...], built: tuple[int, ...]) -> list[int]:
        """The member table of a group, which has the ports `built` while every link is up.

        Resilient: each bucket has the member that it has when all are up, if that is here, else another.
        """
        members = self._weighted(switch, ports)
        if not self._buckets or len(ports) == 0 or len(built) < 2:
            return members
        usual = self._weighted(switch, built)
        moved = 0
        table: list[int] = []
        for bucket in range(max(self._buckets, len(usual))):
            port = usual[bucket % len(usual)]
            if port not in ports:
                port = members[moved % len(members)]
                moved += 1
            table.append(port)
        return table

    def _install_static(self, switch: int, result: list[Group]) -> None:
        """Static routes go before what the graph says; they know nothing of links that are down."""
        for switch_at, address, port in self._static:
            if switch_at == switch:
                prefix = address >> INDEX_BITS
                whole = result[prefix]
                if not whole.by_address:
                    count = len(self._topology.prefix_nics(prefix))
                    result[prefix] = Group([VIA_BRANCH] * count, by_address=True, branches=[whole])
                result[prefix].branch_off(address & INDEX_MASK, [port])

    def groups(self, switch: int, down: list[int]) -> list[Group]:
        out_of_use = frozenset(down)
        shared: dict[tuple[tuple[int, ...], tuple[int, ...]], Group] = {}
        current = equal_cost_groups(self._topology, switch, out_of_use)
        built = equal_cost_groups(self._topology, switch) if self._buckets else current
        # Prefixes that are reached alike have the same tuple of ports, mostly one after the other, so a group
        # is looked up by which tuple it is: to hash its ports for every prefix takes ten times as long.
        made: dict[tuple[int, int], Group] = {}
        result: list[Group] = []
        last: tuple[int, ...] | None = None
        usual: tuple[int, ...] | None = None
        group: Group | None = None
        for at, ports in enumerate(current):
            when_up = built[at]
            if ports is not last or when_up is not usual or group is None:
                last, usual = ports, when_up
                which = id(ports), id(when_up)
                group = made.get(which)
                if group is None:
                    both = ports, when_up
                    group = shared.get(both)
                    if group is None:
                        group = shared[both] = Group(self._members(switch, ports, when_up), by_address=False)
                    made[which] = group
            result.append(group)
        by_address: dict[int, dict[int, int]] = {}
        for address, port in local_ports(self._topology, switch, out_of_use).items():
            by_address.setdefault(address >> INDEX_BITS, {})[address & INDEX_MASK] = port
        for prefix in self._topology.prefixes_at(switch):
            result[prefix] = _delivering(by_address.get(prefix, {}))
        for address, ports in host_groups(self._topology, switch, out_of_use).items():
            prefix = address >> INDEX_BITS
            if not result[prefix].by_address:
                count = len(self._topology.prefix_nics(prefix))
                whole = result[prefix]
                result[prefix] = Group([VIA_BRANCH] * count, by_address=True, branches=[whole])
            result[prefix].branch_off(address & INDEX_MASK, self._members(switch, ports, built[prefix]))
        self._install_static(switch, result)
        return result


def _delivering(local: dict[int, int]) -> Group:
    """The group of a prefix that hangs on this switch: a port for each address, by its index."""
    count = max(local, default=-1) + 1
    return Group([local.get(index, -1) for index in range(count)], by_address=True)


def make_deep(
    scenario: Scenario,
    number: int,
    queue: EventQueue,
    buffer: DeepBuffer,
    routes: Routes,
    policy: int,
    seed: int,
) -> DeepSwitch:
    """A modular switch, without its ports."""
    section = scenario.switch.deep_buffer
    return DeepSwitch(
        number,
        queue,
        buffer,
        routes,
        policy,
        seed,
        section.credit_delay_ps,
        section.initial_credit_bytes,
        section.credit_growth,
        section.most_credit_bytes,
        section.credit_quantum_bytes,
    )
