"""How do the scripts of a job become programs of its ranks?

A rank has a channel for each channel of a ring or graph, and one for each end of a line or of a mesh; whom
they are connected to is in `actors.ncclx.wiring`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from actors.fabric.model import Topology
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
from actors.ncclx.operations import CALLS
from actors.ncclx.orders import GroupOrders, Orders
from actors.ncclx.posting import POLICIES, ROUND_ROBIN, NicLoads, Receiver, Sender
from actors.ncclx.program import ScriptProgram
from actors.ncclx.recorder import Recorder
from actors.ncclx.ring import OPERATION_CODES, RingCursor
from actors.ncclx.ring_channel import RingChannel
from actors.ncclx.script import GRAPH, LINE, RING, Group, GroupCall, Script, ScriptPlan
from actors.ncclx.share import GpuSms, Share
from actors.ncclx.waits import Waits
from actors.ncclx.wiring import Side, group_ring, group_schedule
from emu.scenario.schema import Scenario

MakeSender = Callable[[Scenario, Topology, Sequence[int], Sequence[int], int, NicLoads | None, int], Sender]
InsideSender = Callable[[int, int, int], Sender]
OrdersOf = Callable[[int, int, int], Orders | None]
"""Of a rank, a place among its groups, and the number of the group's first channel."""


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
        loads: NicLoads | None,
        sms: GpuSms | None,
    ) -> None:
        self._sms = sms
        self._loads = loads
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
        if self._sms is None:
            return None
        held = [min(len(own), ncclx.channels) * ncclx.sms_per_channel for own in self._of_group]
        groups = [self._groups[number] for number in self._script.groups]
        priorities = [-1 if group.kind == LINE else group.priority for group in groups]
        return Share(self._sms, held, priorities, streams)

    def _ring(self, place: int, group: Group, calls: Sequence[GroupCall], side: Side, back: Side) -> None:
        ncclx = self._scenario.ncclx
        number = self._number(place)
        ring = group_ring(ncclx, group, side.channel, self._nodes)
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
                self._orders[place],
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
            rails = side.rails or ((side.nic, side.peer_nic),)
            nics = [nic for nic, _ in rails]
            loads = self._loads if side.rails else None
            sender = self._make_sender(
                self._scenario, self._topology, nics, side.pairs, rails[0][1], loads, slots
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
        nics = [nic for nic, _ in side.rails] or [side.nic]
        each = len(side.pairs) // len(nics)
        for at, pair in enumerate(side.pairs):
            self._bound.append((self._port_to(nics[at // each]), pair, place * ROLES + data))
        if side.control >= 0:
            self._bound.append((port, side.control, place * ROLES + control))

    def _port_to(self, node: int) -> int:
        """The host's port to one of its GPUs or NICs."""
        return self._topology.host_end(node).peer_port
