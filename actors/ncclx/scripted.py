"""How do the groups of a scripted job become connections, and its scripts programs?

Every group has connections of its own, as a communicator of its own has: a ring from each member to the next
on every channel; a line from its first member to its second; a mesh from every member to every other; a graph
from each member to those that its algorithm sends to, on every channel. A rank has a channel for each channel
of a ring or graph, and one for each end of a line or of a mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from actors.host.host import Host
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
from actors.ncclx.flight import unloaded_ps
from actors.ncclx.graph_channel import GraphChannel
from actors.ncclx.line_channel import LineChannel
from actors.ncclx.orders import GroupOrders, Orders
from actors.ncclx.pairs import ConnectionBook, connect_inside, share_domain
from actors.ncclx.posting import POLICIES, ROUND_ROBIN, NicLoads, Receiver, Sender
from actors.ncclx.program import ScriptProgram
from actors.ncclx.recorder import Recorder
from actors.ncclx.ring import OPERATION_CODES, RingCursor
from actors.ncclx.ring_channel import RingChannel
from actors.ncclx.ring_order import ring_order
from actors.ncclx.schedule import Schedule
from actors.ncclx.share import Share
from actors.ncclx.waits import Waits
from emu.scenario.graph import GraphSection
from emu.scenario.ncclx import NcclxSection
from emu.scenario.schema import Scenario
from emu.topology.model import Topology
from emu.workload.gpu_script import GRAPH, LINE, RING, Group, GroupCall, Script, ScriptPlan
from emu.workload.operations import CALLS, Operation

MakeSender = Callable[[Scenario, Topology, Sequence[int], Sequence[int], int, NicLoads | None, int], Sender]
InsideSender = Callable[[int, int, int], Sender]
OrdersOf = Callable[[int, int, int], Orders | None]
"""Of a rank, a place among its groups, and the number of the group's first channel."""


class Side(NamedTuple):
    """One side of a connection: data queue pairs by index at `nic`; control is -1 where there is none.

    With `inside`, the connection is over NVLink, and both NICs are GPUs.
    """

    group: int
    channel: int
    """Of the ring or graph; 0 elsewhere."""
    lane: int
    """Of a graph; 0 elsewhere."""
    sends: bool
    peer: int
    peer_nic: int
    nic: int
    pairs: tuple[int, ...]
    control: int
    inside: bool = False


def connect_groups(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    job: int,
    data_priority: int,
    gpus: Sequence[int],
    plan: ScriptPlan,
) -> list[list[Side]]:
    """The sides of each rank, group by group."""
    ncclx = scenario.ncclx
    admitted = ncclx.admission == "receiver_driven"
    sides: list[list[Side]] = [[] for _ in gpus]
    nodes = [topology.host_of(gpu) for gpu in gpus]
    called = _called(plan)
    for number, group in enumerate(plan.groups):
        data_class = data_priority if group.data_priority is None else group.data_priority
        control_class = scenario.transport.control_priority if ncclx.control == "own_class" else data_class
        for channel, source, destination, lane in _joined(ncclx, group, called[number], nodes):
            ranks = source, destination
            both = gpus[source], gpus[destination]
            if share_domain(topology, *both):
                data, flags = connect_inside(book, *both, admitted)
                for place in (0, 1):
                    peer, other, mine = ranks[1 - place], both[1 - place], both[place]
                    pair, cts = (data[place],), flags[place]
                    side = Side(number, channel, lane, place == 0, peer, other, mine, pair, cts, inside=True)
                    sides[ranks[place]].append(side)
                continue
            ends = [topology.nics_of_gpu(gpu) for gpu in both]
            nics = [of_gpu[channel % len(of_gpu)] for of_gpu in ends]
            made = [book.connect(nics[0], nics[1], data_class, job) for _ in range(ncclx.qps_per_connection)]
            control = (-1, -1)
            if admitted:
                control = book.connect(nics[0], nics[1], control_class, job)
            pairs = tuple(zip(*made, strict=True))
            for place in (0, 1):
                peer, other, mine = ranks[1 - place], nics[1 - place], nics[place]
                side = Side(
                    number, channel, lane, place == 0, peer, other, mine, pairs[place], control[place]
                )
                sides[ranks[place]].append(side)
    return sides


def _joined(
    ncclx: NcclxSection, group: Group, calls: Sequence[GroupCall], nodes: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """(channel, from, to, lane) of every connection of a group."""
    members = group.members
    if group.kind == GRAPH:
        schedule = group_schedule(ncclx, group, calls, nodes)
        for channel in range(ncclx.channels):
            for source, edges in enumerate(schedule.edges(channel)):
                yield from ((channel, members[source], members[peer], lane) for peer, lane in edges)
    elif group.kind == RING:
        for channel in range(ncclx.channels):
            ring = _ring(ncclx, group, channel, nodes)
            for at, place in enumerate(ring):
                yield channel, members[place], members[ring[(at + 1) % len(ring)]], 0
    elif group.kind == LINE:
        yield 0, members[0], members[1], 0
    else:
        yield from ((0, one, other, 0) for one in members for other in members if one != other)


def _ring(ncclx: NcclxSection, group: Group, channel: int, nodes: Sequence[int]) -> tuple[int, ...]:
    """The places of a group's ranks in the order of a channel's ring."""
    if ncclx.ring_order == "same":
        return tuple(range(len(group.members)))
    return ring_order(tuple(nodes[rank] for rank in group.members), ncclx.channels, channel)


def _called(plan: ScriptPlan) -> list[list[GroupCall]]:
    """By group, what its members call, each kind of call once."""
    found: list[dict[GroupCall, None]] = [{} for _ in plan.groups]
    for script in plan.scripts:
        for place, number in enumerate(script.groups):
            found[number].update(dict.fromkeys(script.calls[place]))
    return [list(calls) for calls in found]


def group_schedule(
    ncclx: NcclxSection, group: Group, calls: Sequence[GroupCall], nodes: Sequence[int]
) -> Schedule:
    """What the members of a ring or graph do in some calls, by their places in the group."""
    algorithm = group.algorithm or "ring"
    operations = [
        Operation(call.op, algorithm, call.size_bytes, 0, warmup=False, root=call.root, weights=call.weights)
        for call in calls
    ]
    graph = group.graph if isinstance(group.graph, GraphSection) else None
    return Schedule(ncclx, operations, [nodes[rank] for rank in group.members], graph)


def own_faults(
    ncclx: NcclxSection, plan: ScriptPlan, nodes: Sequence[int]
) -> Iterator[tuple[int, Operation, str]]:
    """Calls, by their label, of which an algorithm of the user's is no correct collective, and why."""
    for group, calls in zip(plan.groups, _called(plan), strict=True):
        if group.kind == GRAPH:
            schedule = group_schedule(ncclx, group, calls, nodes)
            for operation, fault in schedule.faults():
                yield calls[schedule.operations.index(operation)].label, operation, fault


class ScriptBuilder:
    """Builds the program of one rank on its host."""

    def __init__(
        self,
        scenario: Scenario,
        topology: Topology,
        host: Host,
        plan: ScriptPlan,
        rank: int,
        gpu: int,
        nodes: Sequence[int],
        make_sender: MakeSender,
        inside_sender: InsideSender,
        orders_of: OrdersOf,
    ) -> None:
        self._make_sender = make_sender
        self._inside_sender = inside_sender
        self._orders_of = orders_of
        self._orders: list[Orders | None] = []
        self._waits = Waits()
        self._scenario = scenario
        self._topology = topology
        self._host = host
        self._groups = plan.groups
        self._reasons = len(plan.reasons)
        self._script: Script = plan.scripts[rank]
        self._rank = rank
        self._gpu_port = self._port_to(gpu)
        self._channels: list[Channel] = []
        self._sends: list[SendEnd] = []
        self._receives: list[ReceiveEnd] = []
        self._of_group: list[list[int]] = [[] for _ in self._script.groups]
        self._bound: list[tuple[int, int, int]] = []
        self._nodes = list(nodes)

    def add(self, job: int, start_ps: int, steps: int, sides: Sequence[Side]) -> ScriptProgram:
        """Add the program with these sides to the host."""
        script = self._script
        for place, number in enumerate(script.groups):
            group, calls = self._groups[number], script.calls[place]
            self._orders.append(self._orders_of(self._rank, place, len(self._channels)))
            own = [side for side in sides if side.group == number]
            if group.kind == RING:
                for side in own:
                    if side.sends:
                        (back,) = [one for one in own if not one.sends and one.channel == side.channel]
                        self._ring(place, group, calls, side, back)
            elif group.kind == GRAPH:
                for channel in range(self._scenario.ncclx.channels):
                    self._graph(place, group, calls, channel, own)
            else:
                for side in own:
                    self._line(place, group, calls, side)
        for one in self._channels:
            one.zero_copy = self._scenario.ncclx.zero_copy
        program = ScriptProgram(
            job,
            start_ps,
            self._rank,
            self._channels,
            self._sends,
            self._receives,
            self._waits,
            steps,
            self._of_group,
            [list(stream) for stream in script.streams],
            script.events,
            self._reasons,
            [self._groups[number].reason for number in script.groups],
            [[call.label for call in calls] for calls in script.calls],
            [
                [(self._code(number, call), call.size_bytes) for call in calls]
                for number, calls in zip(script.groups, script.calls, strict=True)
            ],
            Recorder(self._scenario.ncclx.flight_recorder, list(script.groups)),
            self._scenario.ncclx.watchdog_ps or 0,
            self._rank in self._scenario.jobs[job].absent,
            self._share(len(script.streams)),
            GroupOrders(job, self._rank, self._orders) if any(self._orders) else None,
        )
        for place, number in enumerate(script.groups):
            orders = self._orders[place]
            for channel in self._of_group[place]:
                self._channels[channel].memory = None if orders is None else orders.memory
                self._channels[channel].priority = self._groups[number].priority
        self._host.add(program)
        program.settle()
        for port, index, context in self._bound:
            self._host.bind(port, index, int(program.number), context)
        return program

    def bound(self) -> list[tuple[int, int]]:
        """The host's port and the index of each of its queue pairs."""
        return [(port, index) for port, index, _ in self._bound]

    def _code(self, number: int, call: GroupCall) -> int:
        """What a call of a group announces itself as."""
        group = self._groups[number]
        if group.kind == LINE:
            return CALLS.index("send" if group.members[0] == self._rank else "recv")
        return CALLS.index(call.op or "all_to_all")

    def _share(self, streams: int) -> Share | None:
        """Of the SMs; None where channels take none. A call holds those of a channel for each of its
        channels, but of no more channels than a ring has.
        """
        ncclx = self._scenario.ncclx
        if ncclx.sms_per_channel == 0:
            return None
        held = [min(len(own), ncclx.channels) * ncclx.sms_per_channel for own in self._of_group]
        return Share(self._scenario.gpu.sms, held, streams)

    def _ring(self, place: int, group: Group, calls: Sequence[GroupCall], side: Side, back: Side) -> None:
        ncclx = self._scenario.ncclx
        number = self._number(place)
        ring = _ring(ncclx, group, side.channel, self._nodes)
        cursor = RingCursor(
            len(ring),
            ring.index(group.members.index(self._rank)),
            ncclx.channels,
            side.channel,
            ncclx.chunk_bytes,
            ncclx.slice_bytes,
            ring,
        )
        operations = [(OPERATION_CODES[call.op], call.size_bytes) for call in calls]
        slots = ncclx.cut(point_to_point=False).slots
        send, receive = self._send(number, side, slots), self._receive(number, back, slots)
        orders = self._orders[place]
        self._channels.append(RingChannel(number, self._gpu_port, send, receive, cursor, operations, orders))

    def _graph(
        self, place: int, group: Group, calls: Sequence[GroupCall], channel: int, own: Sequence[Side]
    ) -> None:
        number = self._number(place)
        outgoing = [side for side in own if side.sends and side.channel == channel]
        incoming = [side for side in own if not side.sends and side.channel == channel]
        members = group.members
        schedule = group_schedule(self._scenario.ncclx, group, calls, self._nodes)
        cut = schedule.cut
        sends = [self._send(number, side, cut.slots, at) for at, side in enumerate(outgoing)]
        receives = [self._receive(number, side, cut.slots, at) for at, side in enumerate(incoming)]
        tasks = partial(
            schedule.tasks,
            channel=channel,
            rank=members.index(self._rank),
            sends=[(members.index(side.peer), side.lane) for side in outgoing],
            receives=[(members.index(side.peer), side.lane) for side in incoming],
        )
        self._channels.append(
            GraphChannel(number, self._gpu_port, sends, receives, cut.slice_bytes, tasks, self._orders[place])
        )

    def _line(self, place: int, group: Group, calls: Sequence[GroupCall], side: Side) -> None:
        shares = 1 if group.kind == LINE else len(group.members)
        number = self._number(place)
        cut = self._scenario.ncclx.cut(point_to_point=True)
        self._channels.append(
            LineChannel(
                number,
                self._gpu_port,
                self._send(number, side, cut.slots) if side.sends else None,
                None if side.sends else self._receive(number, side, cut.slots),
                cut.slice_bytes,
                [max(call.size_bytes // shares, 1) for call in calls],
            )
        )

    def _number(self, place: int) -> int:
        number = len(self._channels)
        self._of_group[place].append(number)
        return number

    def _send(self, number: int, side: Side, slots: int, at: int = 0) -> SendEnd:
        self._bind(side, len(self._sends), int(SEND_DATA), int(SEND_CONTROL))
        if side.inside:
            sender, unloaded = self._inside_sender(self._gpu_port, side.pairs[0], slots), UNTIMED
        else:
            sender = self._make_sender(
                self._scenario, self._topology, (side.nic,), side.pairs, side.peer_nic, None, slots
            )
            unloaded = unloaded_ps(self._scenario, self._topology, side.peer_nic, side.nic, int(CTS_BYTES))
        end = SendEnd(number, side.peer, at, slots, sender, side.control, self._waits, unloaded)
        self._sends.append(end)
        return end

    def _receive(self, number: int, side: Side, slots: int, at: int = 0) -> ReceiveEnd:
        self._bind(side, len(self._receives), int(RECEIVE_DATA), int(RECEIVE_CONTROL))
        policy = int(ROUND_ROBIN) if side.inside else POLICIES[self._scenario.ncclx.qp_policy]
        receiver = Receiver(policy, side.pairs)
        port = self._port_to(side.nic)
        end = ReceiveEnd(number, side.peer, at, port, slots, receiver, side.control)
        self._receives.append(end)
        return end

    def _bind(self, side: Side, place: int, data: int, control: int) -> None:
        port = self._port_to(side.nic)
        self._bound += [(port, pair, place * ROLES + data) for pair in side.pairs]
        if side.control >= 0:
            self._bound.append((port, side.control, place * ROLES + control))

    def _port_to(self, node: int) -> int:
        """The host's port to one of its GPUs or NICs."""
        return self._topology.host_end(node).peer_port
