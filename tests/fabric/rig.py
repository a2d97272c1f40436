"""How does a test wire a whole small fabric by hand?

A `Fabric` is one kernel with the switches and NICs of a scenario, built as every worker does, and a scripted
host at each server, which writes down its completions. The test posts WRITEs straight at the NICs, breaks
links, takes frames out of a wire, and reads results; faults of the scenario strike. NICs are named by rank.
Latencies are zero unless said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from actors.fabric.model import HOST, Topology
from actors.kernel.device import Device, Plain
from actors.kernel.event import (
    ARRIVAL,
    CONFIGURATION,
    LINK_STATE,
    MESSAGE,
    NEVER_PS,
    Event,
    Message,
    key_device,
    pack_key,
)
from actors.kernel.kernel import Kernel
from actors.kernel.queue import EventQueue
from actors.kernel.state import as_int, as_list, load_event, load_frame, save_event
from actors.nic.nic import Nic
from actors.nic.queue_pair.numbers import assign_qpns, assign_udp_source
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.nic.queue_pair.queue_pair import ERROR, QueuePair
from actors.nic.transport import LaneNic
from actors.port.port import Port
from actors.switch.switch import Switch
from actors.wire.frame import Frame
from actors.wire.message import COMPLETION, MODIFIED, POST, POST_READ, POST_WITH_IMMEDIATE
from emu.devices.nics import build_nic
from emu.devices.switches import build_switch
from emu.scenario.fault_schedule import scripted
from emu.scenario.faults.convergence import Convergence
from emu.scenario.faults.events import all_events
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from tests.fabric.invariants import broken, pairs_disagree, queued

Lose = Callable[[Frame], bool]
"""Whether a frame that passes is to be lost."""

SLICE = 50_000


class Connection(NamedTuple):
    """A queue pair at each of two NICs; either end may post."""

    number: int
    src: int
    """Rank of the NIC at one end."""
    dst: int
    pair: int
    """Index of the queue pair at `src`."""
    remote_pair: int
    """Index of the queue pair at `dst`."""

    def reversed(self) -> Connection:
        """The same connection seen from the other end."""
        return Connection(self.number, self.dst, self.src, self.remote_pair, self.pair)


class Completion(NamedTuple):
    """What a host was told, and when."""

    time_ps: int
    port: int
    pair: int
    number: int
    """Of the work request, or the immediate."""
    size_bytes: int
    kind: int
    status: int


class Delivery(NamedTuple):
    """When a message's last byte was there."""

    message: int
    time_ps: int
    size_bytes: int


class ScriptedHost(Device):
    """Writes down the completions it is told."""

    def __init__(self, number: int, queue: EventQueue) -> None:
        super().__init__(number, queue)
        self.completions: list[Completion] = []
        self.modified: list[tuple[int, int, int]] = []

    def on_message(self, message: Message, port: int, subject: int) -> None:
        if message.op == MODIFIED:
            self.modified.append((message.a, message.b, message.e))
            return
        assert message.op == COMPLETION, message.op
        self.completions.append(
            Completion(self.queue.now_ps, port, message.a, message.b, message.c, message.d, message.e)
        )

    def save(self) -> list[Plain]:
        rows: list[Plain] = [list(row) for row in self.completions]
        return [super().save(), rows]

    def load(self, state: list[Plain]) -> None:
        super().load(as_list(state[0]))
        self.completions = [
            Completion(*(as_int(value) for value in as_list(row))) for row in as_list(state[1])
        ]


def kept(frame: Frame) -> Frame:
    """A frame as it is now: where it arrives it may become another one."""
    return load_frame(save_event(frame))


class Tap(Device):
    """Sits in one direction of a link and loses the frames it is told to; the others keep their time."""

    SHARE_PS = 500
    """The part of the link's delay behind the tap."""

    def __init__(self, number: int, queue: EventQueue, port: Port, lose: Lose) -> None:
        super().__init__(number, queue)
        self.lose = lose
        self.lost = 0
        self.sender = port.owner.number
        self.sender_port = port.number
        self.seen: list[tuple[int, int, int]] = []
        """Opcode, PSN and queue pair of each frame."""
        self.onwards = port.peer_key
        port.flight_ps -= self.SHARE_PS
        port.peer_key = pack_key(number, ARRIVAL, 0, 0)

    def on_frame(self, frame: Frame, port: int) -> None:
        self.mix_arrival(port, frame)
        self.seen.append((frame.opcode, frame.psn, frame.qpn))
        if self.lose(frame):
            self.lost += 1
            return
        frame.time_ps = self.queue.now_ps + self.SHARE_PS
        frame.key = self.onwards
        self.queue.push(frame)


class Fabric:
    """The switches and NICs of a scenario, joined and ready to run."""

    TAPS = 4

    def __init__(
        self,
        scenario: Scenario,
        connections: Sequence[tuple[int, int]] = (),
        priorities: Sequence[int] = (),
        udp_sources: Sequence[int] = (),
    ) -> None:
        self.scenario = scenario
        self.topology: Topology = build_topology(scenario)
        self.kernel = Kernel(len(self.topology.nodes) + self.TAPS)
        self.queue: EventQueue = self.kernel.queue
        self.taps: list[Tap] = []
        self.posted = 0
        self.posted_bytes = 0
        self.reads = False
        self.connections: list[Connection] = []
        plans = self._plan(connections, priorities, udp_sources)
        self.hosts = [ScriptedHost(host, self.queue) for host in self.topology.hosts]
        self.switches: list[Switch] = [
            build_switch(scenario, self.topology, switch, self.queue, lambda _: None)
            for switch in self.topology.switches
        ]
        self.nics: list[Nic] = [
            build_nic(scenario, self.topology, nic, plans[rank], self.queue, lambda _: None)
            for rank, nic in enumerate(self.topology.nics)
        ]
        for device in (*self.hosts, *self.switches, *self.nics):
            self.kernel.add(device)
        faults = scripted(scenario, self.topology)
        for fault in all_events(faults, Convergence(scenario, self.topology)):
            self.queue.push(fault.message())
        self._first_psns = {nic.number: sum(pair.high_psn for pair in nic.pairs) for nic in self.nics}
        self.kernel.start()

    def couple(self) -> None:
        """Let NICs try to make trains with every packet."""
        for device in (*self.switches, *self.nics):
            device.let_defer()
            device.let_couple([])
        for nic in self.nics:
            for port in nic.ports():
                for queue in port.queues:
                    queue.most_skip = 0

    def _plan(
        self, connections: Sequence[tuple[int, int]], priorities: Sequence[int], udp_sources: Sequence[int]
    ) -> list[list[QpPlan]]:
        topology, seed = self.topology, self.scenario.seed
        counts = [0] * len(topology.nics)
        for src, dst in connections:
            counts[src] += 1
            counts[dst] += 1
        qpns = [assign_qpns(seed, nic, max(1, counts[rank])) for rank, nic in enumerate(topology.nics)]
        plans: list[list[QpPlan]] = [[] for _ in topology.nics]
        for number, (src, dst) in enumerate(connections):
            one, other = len(plans[src]), len(plans[dst]) + (src == dst)
            self.connections.append(Connection(number, src, dst, one, other))
            priority = priorities[number] if priorities else self.scenario.transport.data_priority
            udp_source = assign_udp_source(seed, topology.nics[src], number)
            if udp_sources:
                udp_source = udp_sources[number]
            for here, index, there, remote, sends in (
                (src, one, dst, other, True),
                (dst, other, src, one, False),
            ):
                nic = topology.nics[there]
                plans[here].append(
                    QpPlan(
                        topology.nics[here],
                        index,
                        qpns[here][index],
                        nic,
                        remote,
                        qpns[there][remote],
                        topology.address_of(nic),
                        udp_source,
                        priority,
                        log_deliveries=True,
                        job=0,
                        turn=sum(plan.sends == sends for plan in plans[here]),
                        sends=sends,
                    )
                )
        return plans

    def devices(self) -> list[Device]:
        """Every device that is part of the model, by number."""
        taps = {tap.number for tap in self.taps}
        return [device for device in self.kernel.hosted() if device.number not in taps]

    def pair(self, connection: Connection) -> QueuePair:
        """The queue pair at the connection's `src`."""
        return self.nics[connection.src].pairs[connection.pair]

    def set_first_psn(self, connection: Connection | int, psn: int) -> None:
        """Let the connection's `src` begin with this PSN; before anything is posted."""
        if isinstance(connection, int):
            connection = self.connections[connection]
        pair = self.pair(connection)
        assert pair.end_psn == pair.una_psn, pair.end_psn
        self._first_psns[self.topology.nics[connection.src]] += psn - pair.una_psn
        pair.una_psn = pair.next_psn = pair.high_psn = pair.end_psn = psn
        self.pair(connection.reversed()).expected_psn = psn

    def post(
        self,
        at_ps: int,
        connection: Connection | int,
        size_bytes: int,
        number: int | None = None,
        immediate: int | None = None,
        flags: int = 0,
    ) -> int:
        """Let a POST arrive at the NIC of the connection's `src`; returns the number of the work request."""
        if isinstance(connection, int):
            connection = self.connections[connection]
        request = self.posted if number is None else number
        flags |= 0 if immediate is None else POST_WITH_IMMEDIATE
        message = Message(POST, connection.pair, request, size_bytes, flags, immediate or 0, 0)
        nic = self.topology.nics[connection.src]
        host_port = next(port for port, end in enumerate(self.topology.ports(nic)) if end.kind == HOST)
        message.time_ps = at_ps
        message.key = pack_key(nic, MESSAGE, host_port, self.posted)
        self.queue.push(message)
        self.posted += 1
        self.posted_bytes += size_bytes
        self.reads |= bool(flags & POST_READ)
        return request

    def tap(self, node: str, port: int, lose: Lose = lambda _: False) -> Tap:
        """Watch what a port of a device sends, and lose the frames for which `lose` is true."""
        number = self.topology.node_named(node).number
        tap = Tap(len(self.topology.nodes) + len(self.taps), self.queue, self.port(number, port), lose)
        self.kernel.add(tap)
        self.taps.append(tap)
        return tap

    def port(self, number: int, port: int) -> Port:
        """A fabric port by the device's number and its own."""
        device = self.kernel.device(number)
        if isinstance(device, Switch):
            return device.ports[port]
        assert isinstance(device, Nic), device
        return device.ports()[port]

    def switch(self, name: str) -> Switch:
        """A switch by name."""
        device = self.kernel.device(self.topology.node_named(name).number)
        assert isinstance(device, Switch), name
        return device

    def set_state(self, number: int, at_ps: int, up: bool) -> None:
        """Set a link at both ends at one instant; no switch learns of it."""
        link = self.topology.links[number]
        for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
            self.queue.push(Event(at_ps, pack_key(node, LINK_STATE, port, int(up))))

    def set_link(self, name: str, at_ps: int, up: bool, converge: bool = True) -> None:
        """Set a link at both ends at one instant; switches, and NICs with several ports, learn it later."""
        (number,) = self.topology.links_named(name)
        self.set_state(number, at_ps, up)
        if converge:
            learned_ps = at_ps + self.scenario.routing.convergence_ps
            for device in (*self.topology.switches, *self.topology.bonded_nics):
                self.queue.push(Event(learned_ps, pack_key(device, CONFIGURATION, 0, 2 * number + up)))

    def run(self, until_ps: int = NEVER_PS) -> int:
        """Execute every event before `until_ps`; returns how many."""
        total = done = self.kernel.run(until_ps, SLICE)
        while done == SLICE:
            done = self.kernel.run(until_ps, SLICE)
            total += done
        return total

    def run_events(self, count: int) -> int:
        """Execute at most `count` events; returns how many there were."""
        return self.kernel.run(NEVER_PS, count)

    def deliveries(self, connection: Connection | int) -> list[Delivery]:
        """What arrived whole at the connection's `dst`, in order."""
        if isinstance(connection, int):
            connection = self.connections[connection]
        return [
            Delivery(message, time_ps, size_bytes)
            for index, message, time_ps, size_bytes in self.nics[connection.dst].deliveries
            if index == connection.remote_pair
        ]

    def completions(self, connection: Connection | int) -> list[Completion]:
        """What the host of the connection's `src` was told about it."""
        if isinstance(connection, int):
            connection = self.connections[connection]
        end = self.topology.ports(self.topology.nics[connection.src])[-1]
        host = self.kernel.device(end.peer)
        assert isinstance(host, ScriptedHost), host
        return [c for c in host.completions if c.port == end.peer_port and c.pair == connection.pair]

    def total(self, metric: str, reason: str = "") -> int:
        """A counter summed over all devices, ports and priorities."""
        return sum(
            value
            for device in self.devices()
            for series, value in zip(device.series(), device.counters(), strict=True)
            if series.metric == metric and series.reason == reason
        )

    def congestion_drops(self) -> int:
        """Frames that a full buffer cost."""
        return sum(
            self.total("port_dropped_frames", reason) for reason in ("no_shared_room", "headroom_overrun")
        )

    def broken(self, *, at_rest: bool = False, lossless: bool = False) -> list[str]:
        """One line for each rule of `tests.fabric.invariants` that is broken now."""
        pending = self.queue.pending()
        at_devices = [key_device(event.key) for event in pending]
        taken_out = {
            (tap.sender, tap.sender_port): tap.lost + at_devices.count(tap.number) for tap in self.taps
        }
        rules = {"at_rest": at_rest, "lossless": lossless}
        found = broken(self.topology, self.devices(), pending, taken_out=taken_out, **rules)
        for connection in self.connections:
            one, other = self.pair(connection), self.pair(connection.reversed())
            if ERROR not in (one.state, other.state):
                found += pairs_disagree(one, other, at_rest=at_rest)
        for nic in self.nics:
            data = sum(pair.high_psn for pair in nic.pairs) - self._first_psns[nic.number]
            data += sum(port.retransmitted for port in nic.ports())
            data += nic.transport.probes if isinstance(nic, LaneNic) else 0
            waiting = sum(len(queued(port)) for port in nic.ports())
            answers = nic.transmit_acks + nic.transmit_naks + nic.np_cnp_sent - waiting
            lost = data + answers - sum(port.sent_frames for port in nic.ports())
            if not self.reads and not 0 <= lost <= sum(port.lost_link_down for port in nic.ports()):
                found.append(f"nic {nic.number}: {data} packets, {answers} answers, {lost} lost")
        return found

    def digest(self) -> list[list[int]]:
        """Everything that the run's digest covers, by device."""
        return [
            [device.number, *device.all_mixes(), device.executed, *device.counters(), *device.end_states()]
            for device in self.devices()
        ]

    def save(self) -> list[Plain]:
        """The state of the whole fabric, and every pending event."""
        devices: list[Plain] = [device.save() for device in self.devices()]
        events: list[Plain] = [save_event(event) for event in self.queue.pending()]
        return [self.queue.now_ps, devices, events]

    def load(self, state: Plain) -> None:
        """Go on from what `save` of an equally built fabric returned."""
        now_ps, devices, events = as_list(state)
        self.queue.now_ps = as_int(now_ps)
        self.queue.clear()
        for device, saved in zip(self.devices(), as_list(devices), strict=True):
            device.load(as_list(saved))
        for event in as_list(events):
            self.queue.push(load_event(event))
