"""From a scenario's numbers to NICs: ports, queue pairs, congestion control, arbiters, receive buffers.

One function builds a NIC from the frozen scenario, the topology and the queue pairs that the plan of
connections gives it, and reads nothing else, so that a NIC is the same in whatever worker it is built.

A warning tells before the run where DCQCN would recover slowly: R_AI is an absolute rate, and the paper's 40
Mb/s belongs to 40G. How long a flow takes to recover is asked of the control itself: a flow that was cut to
half of the link, and whose target is no higher, sends at its rate and hears no CNP, until it has nine tenths
of the link.

`GraphReach` says which ports of a NIC lead to a peer, in the graph as routing knows it. A port leads there if
its leaf has a route to the peer's address, or the peer hangs on that leaf. What the search finds for a set of
links is kept and shared (`actors.fabric.routes`), so NICs of one worker ask once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.fabric.model import FABRIC, Node, Role, Topology
from actors.fabric.routes import routes
from actors.kernel.mixing import Stream
from actors.kernel.queue import EventQueue
from actors.nic.arbiter import Arbiter, ArbitratedPort
from actors.nic.bond import Bond, Reach
from actors.nic.congestion.control import CongestionControl
from actors.nic.congestion.dcqcn import Dcqcn
from actors.nic.egress_port import NicPort
from actors.nic.loss_recovery import GoBackN, Recovery
from actors.nic.memory_path import ContextCache, Fetch, ReceiveBuffer, ReceiveGroup
from actors.nic.nic import NO_BOTTLENECK_BPS, CreditNic, Nic
from actors.nic.queue_pair.endpoint import EndpointSettings
from actors.nic.queue_pair.numbers import first_psn
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.nic.queue_pair.queue_pair import QueuePair
from actors.nic.queue_pair.responder import ACCESS_READ, ACCESS_WRITE
from actors.nic.transport import LaneNic, LanePort, Transport
from actors.port.link import PRIORITIES, MessagePort
from actors.wire.frame import ECN_CAPABLE, FIRST_TTL, PREAMBLE_GAP_BYTES
from emu.base.foreseen import SHORT_HEADROOM, Foreseen
from emu.base.units import format_rate, format_time
from emu.devices.buffer_sizes import kept, needed_headroom_bytes
from emu.devices.link_ends import OutboxFor, link_ends
from emu.devices.round_trip import loaded_round_trip_ps, longest_round_trip_ps, settled
from emu.scenario.knobs import PolicySection
from emu.scenario.plugins import policy_of
from emu.scenario.schema import Scenario
from emu.scenario.sections.nic import (
    ArbiterSection,
    CongestionSection,
    NicSection,
    ReceiveSection,
    TransportSection,
)
from emu.scenario.sections.switch import SELECTED
from emu.topology.front_end import STORAGE
from emu.topology.server_presets import gpu_link_bps

TCP_SEGMENTS_AN_ANSWER: Final = 2
"""RFC 5681, section 4.2."""


def control_of(section: CongestionSection, line_bps: int, mtu_bytes: int) -> CongestionControl | None:
    """A control for one queue pair on a port of this rate; None for PFC only."""
    if section.kind == "none":
        return None
    made: CongestionControl = policy_of(section)(line_bps, mtu_bytes, section)
    return made


PAPER_RATIO = 1000
"""The line rate over R_AI in the paper: 40G over 40 Mb/s."""
LONGEST_PS = 10**12


def recovery_ps(section: CongestionSection, line_bps: int, mtu_bytes: int) -> int | None:
    """Time from half of the link to nine tenths of it; None if it is more than a second."""
    control = control_of(section, line_bps, mtu_bytes)
    assert isinstance(control, Dcqcn), section.kind
    control.rate_bps = control.target_bps = line_bps // 2
    control.limited = True
    now = 0
    while control.rate_bps * 10 < line_bps * 9:
        now += section.increase_timer_ps
        if now > LONGEST_PS:
            return None
        control.on_send(int(control.rate_bps) * section.increase_timer_ps // (8 * 10**12), now)
    return now


def recovery_warnings(section: CongestionSection, line_bps: int, mtu_bytes: int) -> list[str]:
    """A line if R_AI is small for the rate of the links: how slowly a flow recovers."""
    if not issubclass(section.policy, Dcqcn) or section.additive_bps * PAPER_RATIO >= line_bps:
        return []
    took_ps = recovery_ps(section, line_bps, mtu_bytes)
    took = "more than a second" if took_ps is None else f"{took_ps // 10**9} ms"
    rates = f"{format_rate(section.additive_bps)} at {format_rate(line_bps)}"
    return [
        (
            f"transport.congestion_control.additive: {rates}: a flow at half of the link has nine tenths"
            f" of it after {took} without a CNP; the paper's ratio is {format_rate(line_bps // PAPER_RATIO)}"
        )
    ]


MOST_DELIVERIES = 1 << 16
"""Messages of flows that a NIC remembers where jobs begin again and again; half are forgotten then."""
EVERY_DELIVERY = (1 << 31) - 1
START_PURPOSE: Final = 6
"""Names the random stream of `nic.jitter`."""
TIMED_PACKETS = 1024
"""In flight, at most, for which a control with echo hears of a round trip: 4 MB, 80 us at 400G."""


def build_nic(
    scenario: Scenario,
    topology: Topology,
    number: int,
    pairs: Sequence[QpPlan],
    queue: EventQueue,
    outbox_for: OutboxFor,
) -> Nic:
    """One NIC with its fabric ports and queue pairs."""
    own = scenario.at(topology, number)
    transport, section = own.transport, own.nic
    ends = topology.ports(number)
    fabric = [end for end in ends if end.kind == FABRIC]
    host_end = ends[-1]  # the host's link comes behind the fabric's
    host = MessagePort(
        queue,
        host_end.rate_bps,
        host_end.delay_ps,
        host_end.peer,
        host_end.peer_port,
        0,
        outbox_for(host_end.peer),
    )
    shared = kept(scenario, topology)
    alike = "endpoint", id(own), fabric[0].rate_bps
    known: tuple[EndpointSettings, PolicySection] | None = shared.get(alike)
    if known is None:
        known = shared[alike] = endpoint_settings(transport, section), recovery_section(transport, alike[2])
    settings = known[0]
    recovery: Recovery = policy_of(known[1])(transport.mtu_bytes, known[1])
    if isinstance(recovery, Transport):
        recovery.set_fabric(len(fabric), fabric[0].rate_bps, longest_round_trip_ps(scenario, topology))
        recovery.give_up_ps = transport.timeout_ps * (transport.retry_count + 1)
        nic: Nic = LaneNic(number, queue, host, settings, recovery)
    else:
        nic = (CreditNic if scenario.credited else Nic)(number, queue, host, settings, recovery)
    far = link_ends(scenario, topology)
    ports: list[NicPort] = []
    for index, end in enumerate(fabric):
        wire = far.wire(end, outbox_for)
        latency_ps, timeout_ps = section.latency_ps, nic.first_timeout_ps
        arbiter = arbiter_of(section.arbiter, scenario.largest_frame_bytes + PREAMBLE_GAP_BYTES)
        if isinstance(recovery, Transport):
            port: NicPort = LanePort(nic, index, wire, latency_ps, recovery, recovery)
        elif arbiter is None:
            port = NicPort(nic, index, wire, latency_ps, timeout_ps, recovery)
        else:
            port = ArbitratedPort(nic, index, wire, latency_ps, timeout_ps, recovery, arbiter)
        if section.ttl != FIRST_TTL or section.dscp != SELECTED:
            port.set_stamp(section.ttl, list(section.dscp))
        if scenario.credited:
            far.credits(port)
        far.give(port, number, end)
        ports.append(port)
    if section.jitter_ps:
        nic.jitter_ps, nic.dice = section.jitter_ps, Stream(scenario.seed, number, START_PURPOSE)
    nic.set_ports(ports)
    if len(ports) > 1 and not isinstance(recovery, Transport):  # which chooses a port for each packet
        nic.bond = Bond(nic, ports, GraphReach(topology, number))
    build = QueuePairs(scenario, topology, number).build
    made = [build(plan) for plan in pairs]
    nic.set_pairs(made)
    if nic.bond is not None:
        nic.bond.set_homes(made, [plan.turn for plan in pairs], spread=section.bond == "per_qp")
    give_control(nic, made, settled(scenario, topology, number), fabric[0].rate_bps, transport.mtu_bytes)
    _give_memory_path(scenario, topology, nic)
    return nic


class QueuePairs:
    """Builds the queue pairs of one NIC."""

    def __init__(self, scenario: Scenario, topology: Topology, number: int) -> None:
        self._scenario = scenario
        self._topology = topology
        self._number = number
        self._transport = scenario.at(topology, number).transport
        self._address = topology.address_of(number)
        self._mtus: dict[int, int] = {}
        self._most_logged = MOST_DELIVERIES if scenario.run.repeat else EVERY_DELIVERY

    def build(self, plan: QpPlan, psns: tuple[int, int] | None = None) -> QueuePair:
        """One of them. Its first PSN and its peer's are drawn by index, unless they are given."""
        transport, seed, peer = self._transport, self._scenario.seed, plan.remote_nic
        if peer not in self._mtus:
            self._mtus[peer] = path_mtu_bytes(self._scenario, self._topology, self._number, peer)
        own, other = psns or (
            first_psn(seed, self._number, plan.index),
            first_psn(seed, peer, plan.remote_index),
        )
        pair = QueuePair(
            plan.index,
            plan.qpn,
            plan.remote_qpn,
            self._address,
            plan.remote_address,
            plan.udp_source,
            plan.priority,
            plan.priority if transport.ack_priority is None else transport.ack_priority,
            self._mtus[peer],
            transport.ack_every,
            own,
            other,
            self._most_logged if plan.log_deliveries else 0,
        )
        pair.max_reads = transport.max_rd_atomic
        pair.receives = transport.receive_queue.depth
        return pair


def add_queue_pairs(
    scenario: Scenario,
    topology: Topology,
    nic: Nic,
    plans: Sequence[tuple[QpPlan, tuple[int, int]]],
    slots: int,
    now_ps: int,
) -> None:
    """Queue pairs that are made while time goes on, with their first PSNs, in a table of so many slots."""
    number = int(nic.number)
    own = scenario.at(topology, number)
    build = QueuePairs(scenario, topology, number).build
    made = [build(plan, psns) for plan, psns in plans]
    nic.add_pairs(made, slots)
    bond = nic.bond
    if bond is not None:
        turns = [plan.turn for plan, _ in plans]
        bond.set_homes(made, turns, spread=own.nic.bond == "per_qp")
        if bond.away or bond.down:
            bond.converge()
            bond.move([], now_ps)
    section = settled(scenario, topology, number)
    rate_bps = next(end.rate_bps for end in topology.ports(number) if end.kind == FABRIC)
    give_control(nic, made, section, rate_bps, own.transport.mtu_bytes)


def _give_memory_path(scenario: Scenario, topology: Topology, nic: Nic) -> None:
    """What stands between a NIC, complete with ports, and memory: a slow way, disks, a cache of contexts."""
    number, ports = nic.number, nic.ports()
    own = scenario.at(topology, number)
    section = own.nic
    fabric = [end for end in topology.ports(number) if end.kind == FABRIC]
    receive = section.receive
    disks = disk_limits(scenario, topology, number)
    limits = [*memory_limits(own, topology.nodes[number]), *disks]
    if disks:
        receive = receive.model_copy(update={"buffer_bytes": scenario.frontend.storage.cache_bytes})
    cache = section.context_cache
    contexts = ContextCache(cache.entries, cache.miss_penalty_ps) if cache.entries else None

    def make_receive() -> ReceiveBuffer:
        """The receive buffer of this NIC, as the scenario has it."""
        rate_bps = min(limits, default=NO_BOTTLENECK_BPS if contexts else receive.rate_bps)
        classes = [own.switch.pfc.priorities if port.pfc is not None else () for port in ports]
        headrooms = [needed_headroom_bytes(scenario, topology, number, end) for end in fabric]
        made = receive_buffer(nic, receive, classes, headrooms, scenario.largest_frame_bytes, rate_bps)
        made.contexts = contexts
        return made

    nic.make_receive = make_receive
    if limits or contexts:
        nic.set_receive(make_receive())
        nic.counts_receive = True
    sources = [*pcie_limits(own, topology.nodes[number]), *disks]
    if sources or contexts:
        rate_bps = min(sources, default=NO_BOTTLENECK_BPS)
        fetch = Fetch(rate_bps, contexts, gpu_link_bps(own.host.node, topology.nodes[number]))
        for port in ports:
            port.set_fetch(fetch)
        if disks and nic.receive is not None:
            nic.receive.shared = fetch


def path_mtu_bytes(scenario: Scenario, topology: Topology, nic: int, remote_nic: int) -> int:
    """The MTU of a queue pair: the smaller of its two ends', as NCCL settles it when it connects them."""
    here, there = scenario.at(topology, nic), scenario.at(topology, remote_nic)
    return min(here.transport.mtu_bytes, there.transport.mtu_bytes)


def acknowledged_every(scenario: Scenario, topology: Topology, remote_nic: int) -> int:
    """How many packets the far end of a queue pair acknowledges at a time; a TCP every second segment."""
    transport = scenario.at(topology, remote_nic).transport
    return TCP_SEGMENTS_AN_ANSWER if transport.recovery.kind == "tcp" else transport.ack_every


def disk_limits(scenario: Scenario, topology: Topology, nic: int) -> list[int]:
    """The rate, in bit/s, of the disks behind the NIC of a storage server; none elsewhere."""
    host = topology.nodes[topology.host_of(nic)]
    return [scenario.frontend.storage.disk_bps] if host.model == STORAGE else []


def pcie_limits(scenario: Scenario, nic: Node) -> list[int]:
    """The rates, in bit/s, of the PCIe between this NIC and memory; none where it is no limit."""
    host, link_bps = scenario.host, gpu_link_bps(scenario.host.node, nic)
    return [host.pcie.rate_bps] * host.pcie.enabled + [link_bps] * (link_bps > 0)


def memory_limits(scenario: Scenario, nic: Node) -> list[int]:
    """The rates, in bit/s, of what stands between this NIC and memory; none where nothing does."""
    limits, receive = pcie_limits(scenario, nic), scenario.nic.receive
    return [*limits, receive.rate_bps] if receive.enabled else limits


def receive_warnings(scenario: Scenario, topology: Topology) -> list[str]:
    """`receive_foreseen` as lines."""
    return [one.line for one in receive_foreseen(scenario, topology)]


def receive_foreseen(scenario: Scenario, topology: Topology) -> list[Foreseen]:
    """A warning if NICs' receive buffers have no room for what may come after XOFF."""
    if scenario.credited:
        return []
    worst, worst_bytes, key, buffer_bytes = "", 0, "", 0
    nics: dict[str, None] = {}
    ends = link_ends(scenario, topology)
    for nic in topology.nics:
        name = topology.nodes[nic].name
        own = scenario.at(topology, nic)
        section = own.nic.receive
        if not memory_limits(own, topology.nodes[nic]) and not own.nic.context_cache.entries:
            continue
        for end in topology.ports(nic):
            if end.kind != FABRIC or not ends.has_pfc(nic, end.peer):
                continue
            needed = needed_headroom_bytes(scenario, topology, nic, end)
            found = thresholds_of(section, needed, scenario.largest_frame_bytes)
            room = section.buffer_bytes - (found[0] if found else 0)
            if found is None or room < needed:
                nics[name] = None
                if needed > worst_bytes:
                    worst, worst_bytes = name, needed
                    key = scenario.key_at(topology, nic, "nic.receive")
                    buffer_bytes = section.buffer_bytes
    if not worst:
        return []
    return [
        Foreseen(
            f"{key}: {buffer_bytes}B leaves no {worst_bytes}B above xoff, which {worst} needs",
            "lossless classes may drop",
            "use a larger buffer, and xoff auto",
            SHORT_HEADROOM,
            tuple(nics),
            ("receive_overrun",),
            (f"{key}.buffer", f"{buffer_bytes + worst_bytes}B"),
        )
    ]


def control_warnings(scenario: Scenario, topology: Topology) -> list[str]:
    """A line if congestion control recovers slowly at the rate of the fastest NIC, and one if the timer of
    queue pairs is shorter than a round trip may take."""
    transport = scenario.transport
    rates = [end.rate_bps for nic in topology.nics for end in topology.ports(nic) if end.kind == FABRIC]
    slow = recovery_warnings(transport.congestion_control, max(rates), transport.mtu_bytes)
    return [*slow, *_timeout_warnings(scenario, topology), *_pause_warnings(scenario)]


def _pause_warnings(scenario: Scenario) -> list[str]:
    """A line if PFC is on for a transport that was published without it."""
    pfc = scenario.switch.pfc
    if scenario.transport.kind != "multipath" or not pfc.enabled:
        return []
    return ["switch.pfc.enabled: true, and the published design of transport.kind: multipath has PFC off"]


def _timeout_warnings(scenario: Scenario, topology: Topology) -> list[str]:
    timeout_ps = scenario.transport.timeout_ps
    if not timeout_ps or scenario.transport.recovers_drops:
        return []
    loaded_ps = loaded_round_trip_ps(scenario, topology, timeout_ps)
    if timeout_ps >= loaded_ps:
        return []
    written = f"transport.timeout: {scenario.transport.timeout} is {format_time(timeout_ps)}"
    takes = f"a round trip behind a queue at ECN's default Kmin takes {format_time(loaded_ps)}"
    return [f"{written}, and {takes}: timers may expire though nothing is lost"]


def arbiter_of(section: ArbiterSection, largest_frame_bytes: int) -> Arbiter | None:
    """An arbiter for one port; None for the port's own round."""
    if section.kind == "round_robin":
        return None
    made: Arbiter = policy_of(section)(largest_frame_bytes, section)
    return made


REORDERED_PS: Final = 64_000_000
"""How long a queue at the default Kmax holds a packet, at any rate."""


def recovery_of(transport: TransportSection, line_bps: int) -> Recovery:
    """The transport of a NIC whose ports have this rate: a recovery scheme, or one with paths of its own."""
    section = recovery_section(transport, line_bps)
    made: Recovery = policy_of(section)(transport.mtu_bytes, section)
    return made


def recovery_section(transport: TransportSection, line_bps: int) -> PolicySection:
    """The section that such a transport is made from."""
    if not transport.is_rc:
        return transport.own
    section, mtu_bytes = transport.recovery, transport.mtu_bytes
    if issubclass(section.policy, GoBackN) and section.window_bytes is None:
        window_bytes = max(line_bps * REORDERED_PS // (8 * 10**12), 2 * section.reorder * mtu_bytes)
        section = section.model_copy(update={"window_bytes": max(window_bytes, mtu_bytes)})
    return section


def first_timeout_ps(transport: TransportSection) -> int:
    """How long a queue pair waits for an acknowledgement the first time; 0 for ever."""
    adaptive = transport.adaptive_retransmission
    return adaptive.least_ps if adaptive.enabled and transport.timeout_ps else transport.timeout_ps


ACCESS: Final = {
    "none": 0,
    "write": int(ACCESS_WRITE),
    "read": int(ACCESS_READ),
    "read_write": int(ACCESS_WRITE | ACCESS_READ),
}


def endpoint_settings(transport: TransportSection, nic: NicSection) -> EndpointSettings:
    """What a NIC's transport is built from."""
    return EndpointSettings(
        0 if transport.recovers_drops else transport.timeout_ps,
        0 if transport.recovers_drops else first_timeout_ps(transport),
        transport.retry_count,
        transport.rnr_retry,
        transport.rnr_timer,
        ACCESS[transport.remote_access],
        transport.receive_queue.depth > 0,
        nic.corrupt_every,
    )


def give_control(
    nic: Nic, pairs: Sequence[QueuePair], section: CongestionSection, line_bps: int, mtu_bytes: int
) -> None:
    """Give queue pairs of a NIC, complete with ports, what paces them."""
    if section.kind == "none":
        return
    nic.controlled = True
    nic.cnp_interval_ps = section.cnp_interval_ps
    nic.cnp_delay_ps = section.cnp_delay_ps
    nic.cnp_priority = section.cnp_priority
    if section.collects:
        nic.telemetry_bytes = section.telemetry_bytes
        nic.repeating = True
    for pair in pairs:
        control = control_of(section, line_bps, mtu_bytes)
        assert control is not None, section.kind
        pair.control = control
        if control.ecn_capable:
            pair.ecn = ECN_CAPABLE
        if control.wants_echo:
            control.time_each(TIMED_PACKETS)
            nic.echoes = nic.repeating = True
        window = control.window_packets
        if window > 0 and pair.una_psn + window < pair.limit_psn:
            pair.limit_psn = pair.una_psn + window


def thresholds_of(
    section: ReceiveSection, headroom_bytes: int, largest_frame_bytes: int
) -> tuple[int, int] | None:
    """XOFF and XON of a receive buffer; None if `auto` finds no room above the headroom of its port."""
    xoff = section.xoff_bytes
    if xoff is None:
        xoff = section.buffer_bytes - headroom_bytes
        if xoff < largest_frame_bytes:
            return None
    xon = section.xon_bytes
    if xon is None:
        xon = max(xoff - 2 * largest_frame_bytes, 0)
    return xoff, xon


def receive_buffer(
    nic: Nic,
    section: ReceiveSection,
    lossless: Sequence[Sequence[int]],
    headrooms_bytes: Sequence[int],
    largest_frame_bytes: int,
    rate_bps: int,
) -> ReceiveBuffer:
    """A slow way to memory for a NIC that is complete with ports. `lossless` has each port's classes."""
    receive = ReceiveBuffer(nic, nic.ports(), rate_bps)
    for classes, headroom in zip(lossless, headrooms_bytes, strict=True):
        thresholds = thresholds_of(section, headroom, largest_frame_bytes)
        xoff, xon = thresholds or (0, 0)
        for priority in range(PRIORITIES):
            receive.add(ReceiveGroup(section.buffer_bytes, xoff, xon, priority in classes))
    return receive


class GraphReach(Reach):
    """Routes of a NIC's leaves, read off the topology."""

    def __init__(self, topology: Topology, nic: int) -> None:
        self._topology = topology
        self._ends = [end for end in topology.ports(nic) if end.kind == FABRIC]

    def ports_to(self, addresses: list[int], down: list[int]) -> list[int]:
        found = routes(self._topology, frozenset(down))
        return [
            sum(1 << port for port, end in enumerate(self._ends) if found.reaches(end.peer, address))
            for address in addresses
        ]

    def nics_at(self, links: list[int]) -> list[int]:
        topology = self._topology
        ends = dict.fromkeys(
            end for link in links for end in (topology.links[link].a, topology.links[link].b)
        )
        return [topology.address_of(end) for end in ends if topology.nodes[end].role is Role.NIC]

    def own_links(self) -> list[int]:
        return [end.link for end in self._ends]
