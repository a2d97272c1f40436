"""How do a scenario's numbers become switches and NICs?

One function per kind of device; each reads the frozen scenario and the topology and nothing else, so that a
device is the same in whatever worker it is built. `outbox_for` says where the peer of a link lives: None in
this partition, else the outbox towards its worker.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from actors.bit_errors import RATE_BITS, BitErrors
from actors.credits import Credits
from actors.host.host import MANAGEMENT_RATE_BPS
from actors.host_link import MANAGEMENT_PORT, MessagePort
from actors.link import PRIORITIES, Outbox, Port, Wire
from actors.nic.nic import Nic
from actors.nic.numbers import hash_seed
from actors.pfc import ALL_CLASSES, Pfc
from actors.port_faults import ERRORS_PURPOSE
from actors.runtime.deep_buffers import is_deep, make_deep
from actors.runtime.graph_routes import GraphRoutes
from actors.switch.buffer import ALPHA_BITS, Buffer, PriorityGroup, headroom_bytes
from actors.switch.classes import Classes
from actors.switch.credit_switch import CreditBuffer, CreditSwitch
from actors.switch.deep import DeepBuffer
from actors.switch.ecn import ONE, Red
from actors.switch.egress import SwitchPort
from actors.switch.hashing import E_ECMP, POLICIES
from actors.switch.policies import give_policy
from actors.switch.scheduling import WeightedPort
from actors.switch.switch import Switch
from actors.switch.watchdog import PauseWatch
from emu.errors import Problem, ScenarioError
from emu.kernel.mixing import Stream
from emu.kernel.queue import EventQueue
from emu.scenario.schema import Scenario
from emu.topology.model import Attachment, Role, Topology
from emu.wire.frame import LARGEST_HEADERS_BYTES, PREAMBLE_GAP_BYTES

ECN_PURPOSE = 1 << 20
"""Of the random streams of queues that mark: this, plus the queue's number."""

OutboxFor = Callable[[int], Outbox | None]


def largest_frame_bytes(scenario: Scenario) -> int:
    """The largest frame on any link, with headers and FCS, without preamble and gap."""
    transport = scenario.transport
    return transport.mtu_bytes + LARGEST_HEADERS_BYTES + transport.congestion_control.telemetry_bytes


def ingress_latency_ps(scenario: Scenario, topology: Topology, node: int) -> int:
    """The fixed latency from a frame's last bit at this device until it is acted on."""
    return scenario.nic.latency_ps if topology.nodes[node].role is Role.NIC else scenario.switch.latency_ps


def pause_response_ps(scenario: Scenario, topology: Topology, node: int, rate_bps: int) -> int:
    """How long this device's port takes to obey a pause; to take in an update of credits, no time."""
    if scenario.credited:
        return 0
    if topology.nodes[node].role is Role.NIC:
        return scenario.nic.response_at(rate_bps)
    return scenario.switch.pfc.response_at(rate_bps)


def wire_of(scenario: Scenario, topology: Topology, end: Attachment, outbox_for: OutboxFor) -> Wire:
    """The wire behind a fabric port."""
    return Wire(
        end.rate_bps,
        end.delay_ps,
        end.peer,
        end.peer_port,
        ingress_latency_ps(scenario, topology, end.peer),
        pause_response_ps(scenario, topology, end.peer, end.rate_bps),
        outbox_for(end.peer),
        cuts_through(scenario, topology, end.peer),
    )


def cuts_through(scenario: Scenario, topology: Topology, node: int) -> bool:
    """Whether a device acts on the head of a frame."""
    switch = topology.nodes[node].role is Role.SWITCH
    return scenario.switch.forwarding == "cut_through" and switch and not is_deep(scenario, topology, node)


def port_headroom_bytes(scenario: Scenario, topology: Topology, switch: int, end: Attachment) -> int:
    """Headroom of one lossless priority group of a switch port: as configured, or by the formula."""
    configured = scenario.switch.buffer.headroom_bytes
    return needed_headroom_bytes(scenario, topology, switch, end) if configured is None else configured


def needed_headroom_bytes(scenario: Scenario, topology: Topology, switch: int, end: Attachment) -> int:
    """The least headroom with which this port loses nothing in a lossless class."""
    response = pause_response_ps(scenario, topology, end.peer, end.rate_bps)
    ingress = ingress_latency_ps(scenario, topology, switch)
    return headroom_bytes(end.rate_bps, end.delay_ps, largest_frame_bytes(scenario), response, ingress)


def headroom_warnings(scenario: Scenario, topology: Topology) -> list[str]:
    """A line if the configured headroom is less than some port needs: it drops, counted, in the run."""
    configured = scenario.switch.buffer.headroom_bytes
    pfc = scenario.switch.pfc
    if configured is None or not pfc.enabled or not pfc.priorities or scenario.credited:
        return []
    worst, worst_bytes, short = "", configured, 0
    for switch in topology.switches:
        for end in topology.ports(switch):
            needed = needed_headroom_bytes(scenario, topology, switch, end)
            short += needed > configured
            if needed > worst_bytes:
                worst = f"{topology.nodes[switch].name} to {topology.nodes[end.peer].name}"
                worst_bytes = needed
    if not short:
        return []
    return [
        (
            f"switch.buffer.headroom: {configured}B is too small for {short} ports of switches"
            f" ({worst} needs {worst_bytes}B): lossless classes may drop; use auto"
        )
    ]


def has_pfc(scenario: Scenario, topology: Topology, one: int, other: int) -> bool:
    """Whether the link between two devices has flow control."""
    pfc = scenario.switch.pfc
    if scenario.credited:
        return False
    if not pfc.off:
        return pfc.enabled
    names = (topology.nodes[one].name, topology.nodes[other].name)
    return pfc.enabled and not any(name in pfc.off for name in names)


def give_pfc(scenario: Scenario, topology: Topology, number: int, peer: int, port: Port) -> Pfc:
    """The flow control of a port, whole or half."""
    made = Pfc(port, scenario.switch.pfc.quanta)
    for half in scenario.switch.pfc.one_way:
        if half.device == topology.nodes[number].name and half.peer in (None, topology.nodes[peer].name):
            made.silent = not half.sends
            made.ignored = 0 if half.obeys else ALL_CLASSES
    lossless = scenario.switch.pfc.priorities
    if topology.nodes[number].role is Role.SWITCH:
        stops = scenario.switch.qos.maps_of(topology.nodes[number].name).pfc_priority_to_queue
        lossless = tuple(stops[priority] for priority in lossless)
    made.hold_after_link_up(
        sum(1 << priority for priority in lossless),
        largest_frame_bytes(scenario) + PREAMBLE_GAP_BYTES,
        pause_response_ps(scenario, topology, number, int(port.rate_bps)),
    )
    return made


def port_pools_bytes(scenario: Scenario, topology: Topology, switch: int) -> list[int]:
    """What is left of each port's own buffer in a modular switch. ScenarioError if nothing is, or if it is
    to do what it cannot."""
    section = scenario.switch
    if section.buffer.egress_limit_bytes:
        reason = f"{topology.nodes[switch].name} is modular: its egress queues are short, and have no limit"
        accepted = "0, or switch.deep_buffer.where: none"
        raise ScenarioError([Problem(scenario.name, 0, "switch.buffer.egress_limit", reason, accepted)])
    lossless = len(section.pfc.priorities) if section.pfc.enabled else 0
    pools: list[int] = []
    for end in topology.ports(switch):
        left = section.deep_buffer.port_buffer_bytes - PRIORITIES * section.buffer.reserve_bytes
        pools.append(left - lossless * port_headroom_bytes(scenario, topology, switch, end))
    if min(pools, default=1 << 30) < largest_frame_bytes(scenario):
        reason = f"reserves and headroom of a port of {topology.nodes[switch].name} leave no shared part"
        accepted = "a larger buffer, or less reserve or headroom"
        raise ScenarioError([Problem(scenario.name, 0, "switch.deep_buffer.port_buffer", reason, accepted)])
    return pools


def give_credits(scenario: Scenario, port: Port) -> Credits:
    """Give a port credits for flow control."""
    lanes = Credits(port, *scenario.credit_blocks(largest_frame_bytes(scenario)))
    port.credits = lanes
    port.measuring = True
    return lanes


def shared_pool_bytes(scenario: Scenario, topology: Topology, switch: int) -> int:
    """What is left of a switch's buffer after reserves and headroom; of all ports' own buffers, where
    they share none."""
    if is_deep(scenario, topology, switch):
        return sum(port_pools_bytes(scenario, topology, switch))
    section = scenario.switch
    left = section.buffer.pool_bytes
    lossless = len(section.pfc.priorities) if section.pfc.enabled else 0
    for end in topology.ports(switch):
        left -= PRIORITIES * section.buffer.reserve_bytes
        left -= lossless * port_headroom_bytes(scenario, topology, switch, end)
    if left < largest_frame_bytes(scenario):
        name = topology.nodes[switch].name
        count = len(topology.ports(switch))
        reason = f"reserves and headroom of the {count} ports of {name} leave no shared pool"
        accepted = "a larger pool, or less reserve or headroom"
        raise ScenarioError([Problem(scenario.name, 0, "switch.buffer.pool", reason, accepted)])
    return left


def build_switch(
    scenario: Scenario, topology: Topology, number: int, queue: EventQueue, outbox_for: OutboxFor
) -> Switch:
    """One switch with its ports, buffer and routing groups."""
    section = scenario.switch
    pfc = section.pfc
    deep = is_deep(scenario, topology, number)
    share = section.deep_buffer.alpha if deep else section.buffer.alpha
    alpha = Fraction(share) * (1 << ALPHA_BITS)
    xon_offset = section.buffer.xon_offset_bytes
    if xon_offset is None:
        xon_offset = 2 * largest_frame_bytes(scenario)
    lanes: CreditBuffer | None = None
    everywhere = scenario.routing.seed == "equal"
    seed = hash_seed(scenario.seed, -1 if everywhere else number)
    routes = GraphRoutes(topology, scenario.routing, section.static_routes)
    policy = POLICIES.get(scenario.routing.policy, E_ECMP)
    if scenario.credited:
        room = len(topology.ports(number)) * PRIORITIES * scenario.link.credits.buffer_bytes
        buffer: Buffer = (lanes := CreditBuffer(room))
        switch: Switch = CreditSwitch(number, queue, buffer, routes, policy, seed)
    elif deep:
        parts = DeepBuffer(port_pools_bytes(scenario, topology, number), int(alpha), xon_offset)
        buffer = parts
        switch = make_deep(scenario, number, queue, parts, routes, policy, seed)
    else:
        buffer = Buffer(shared_pool_bytes(scenario, topology, number), int(alpha), xon_offset)
        switch = Switch(number, queue, buffer, routes, policy, seed)
    if scenario.classified:
        maps = section.qos.maps_of(topology.nodes[number].name)
        switch.counts_moved = True
        switch.classes = Classes(
            list(maps.dscp_to_tc),
            list(maps.tc_to_queue),
            list(maps.tc_to_priority_group),
            list(maps.pfc_priority_to_queue),
        )
    for index, end in enumerate(topology.ports(number)):
        wire = wire_of(scenario, topology, end, outbox_for)
        port = _switch_port(scenario, switch, index, wire, buffer)
        if lanes is not None:
            lanes.add_port(give_credits(scenario, port))
        flow_control = has_pfc(scenario, topology, number, end.peer)
        if flow_control:
            own = port.pfc = give_pfc(scenario, topology, number, end.peer, port)
            dog = pfc.watchdog
            if pfc.watchdog.enabled:
                switch.watches.append(
                    PauseWatch(port, own, dog.detection_ps, dog.restoration_ps, dog.action == "forward")
                )
        elif pfc.watchdog.enabled:
            switch.watches.append(PauseWatch(port, Pfc(port, pfc.quanta), 1, 1, forward=False))
        tells = port.pfc is not None and not port.pfc.silent
        headroom = port_headroom_bytes(scenario, topology, number, end)
        for priority in range(PRIORITIES):
            lossless = scenario.credited or (tells and priority in pfc.priorities)
            group = PriorityGroup(
                priority, lossless, section.buffer.reserve_bytes, headroom if lossless else 0
            )
            group.pfc = port.pfc
            buffer.add(group)
        give_errors(port, scenario, topology, end)
        switch.cuts_through = port.apart = port.cuts = cuts_through(scenario, topology, number)
        switch.add_port(port)
    management: MessagePort | None = None
    if scenario.routing.controlled:
        delay_ps, to = scenario.control.management_delay_ps, topology.controller
        management = MessagePort(
            queue, MANAGEMENT_RATE_BPS, delay_ps, to, MANAGEMENT_PORT, number, outbox_for(to)
        )
    give_policy(switch, scenario.routing, scenario.seed, topology.nodes[number].tier, management)
    switch.compute_groups()
    return switch


def _switch_port(scenario: Scenario, switch: Switch, index: int, wire: Wire, buffer: Buffer) -> SwitchPort:
    """A port with its scheduler, its egress limit and what it marks."""
    section = scenario.switch
    port = SwitchPort(switch, index, wire, section.latency_ps, buffer)
    if section.scheduling.weighted:
        weighted = WeightedPort(switch, index, wire, section.latency_ps, buffer)
        quantum = largest_frame_bytes(scenario) + PREAMBLE_GAP_BYTES
        strict = sum(1 << priority for priority in section.scheduling.strict)
        weighted.set_weights(strict, [weight * quantum for weight in section.scheduling.weights])
        port = weighted
    port.measuring = scenario.transport.congestion_control.collects
    port.egress_limit_bytes = section.buffer.egress_limit_bytes
    ecn = section.ecn
    if ecn.enabled:
        kmin, kmax = ecn.thresholds_at(wire.rate_bps)
        first = index * PRIORITIES
        for priority in range(PRIORITIES):
            stream = Stream(scenario.seed, switch.number, ECN_PURPOSE + first + priority)
            port.reds.append(Red(kmin, kmax, int(ecn.pmax * ONE), stream))
        port.marking = sum(1 << priority for priority in ecn.priorities)
    return port


def give_errors(port: Port, scenario: Scenario, topology: Topology, end: Attachment) -> None:
    """Let the link behind a port spoil frames, if it has bit errors."""
    if scenario.link.bit_errors and scenario.switch.forwarding == "cut_through":
        port.check_fcs()  # what a switch did not see in time
    for one in scenario.link.bit_errors:
        if end.link in topology.links_named(one.link):
            stream = Stream(scenario.seed, port.owner.number, ERRORS_PURPOSE + port.number)
            port.set_errors(BitErrors(int(one.rate * (1 << RATE_BITS)), stream))


def fabric_ports(device: Switch | Nic) -> list[Port]:
    """The fabric ports of a switch or NIC, in order."""
    return list(device.ports) if isinstance(device, Switch) else list(device.ports())
