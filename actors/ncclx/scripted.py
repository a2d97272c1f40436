"""How do the groups of a scripted job become connections, and its scripts programs?

Every group has connections of its own, as a communicator of its own has: a ring from each member to the next
on every channel; a line from its first member to its second; a mesh from every member to every other. A rank
has a channel for each channel of a ring, and one for each end of a line or of a mesh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from actors.ncclx.line_channel import LineChannel
from actors.ncclx.pairs import ConnectionBook, connect_inside, share_domain
from actors.ncclx.posting import POLICIES, ROUND_ROBIN, NicLoads, Receiver, Sender
from actors.ncclx.program import ScriptProgram
from actors.ncclx.ring import OPERATION_CODES, RingCursor
from actors.ncclx.ring_channel import RingChannel
from actors.ncclx.waits import Waits
from emu.scenario.schema import Scenario
from emu.topology.model import Topology
from emu.workload.gpu_script import LINE, RING, Group, GroupCall, Script, ScriptPlan

MakeSender = Callable[[Scenario, Topology, Sequence[int], Sequence[int], int, NicLoads | None], Sender]
InsideSender = Callable[[Scenario, int, int], Sender]


class Side(NamedTuple):
    """One side of a connection: data queue pairs by index at `nic`; control is -1 where there is none.

    With `inside`, the connection is over NVLink, and both NICs are GPUs.
    """

    group: int
    channel: int
    """Of the ring; 0 elsewhere."""
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
    groups: Sequence[Group],
) -> list[list[Side]]:
    """The sides of each rank, group by group."""
    ncclx = scenario.ncclx
    admitted = ncclx.admission == "receiver_driven"
    control_priority = scenario.transport.control_priority if ncclx.control == "own_class" else data_priority
    sides: list[list[Side]] = [[] for _ in gpus]
    for number, group in enumerate(groups):
        members = group.members
        for channel in range(ncclx.channels if group.kind == RING else 1):
            for source, destination in _joined(group, members):
                both = gpus[source], gpus[destination]
                if share_domain(topology, *both):
                    data, flags = connect_inside(book, *both, admitted)
                    for place, (rank, peer) in enumerate(((source, destination), (destination, source))):
                        mine, other = both[place], both[1 - place]
                        pair, cts = (data[place],), flags[place]
                        side = Side(number, channel, place == 0, peer, other, mine, pair, cts, inside=True)
                        sides[rank].append(side)
                    continue
                ends = [topology.nics_of_gpu(gpus[rank]) for rank in (source, destination)]
                here, there = (nics[channel % len(nics)] for nics in ends)
                made = [
                    book.connect(here, there, data_priority, job) for _ in range(ncclx.qps_per_connection)
                ]
                control = (-1, -1)
                if admitted:
                    control = book.connect(here, there, control_priority, job)
                pairs = tuple(zip(*made, strict=True))
                for place, rank in enumerate((source, destination)):
                    peer, nic, other = (destination, here, there)
                    if rank == destination:
                        peer, nic, other = (source, there, here)
                    sends = rank == source
                    side = Side(number, channel, sends, peer, other, nic, pairs[place], control[place])
                    sides[rank].append(side)
    return sides


def _joined(group: Group, members: tuple[int, ...]) -> list[tuple[int, int]]:
    if group.kind == LINE:
        return [(members[0], members[1])]
    if group.kind == RING:
        return [(rank, members[(place + 1) % len(members)]) for place, rank in enumerate(members)]
    return [(one, other) for one in members for other in members if one != other]


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
        make_sender: MakeSender,
        inside_sender: InsideSender,
    ) -> None:
        self._make_sender = make_sender
        self._inside_sender = inside_sender
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

    def add(self, job: int, start_ps: int, steps: int, sides: Sequence[Side]) -> None:
        """Add the program with these sides to the host."""
        script = self._script
        for place, number in enumerate(script.groups):
            group, calls = self._groups[number], script.calls[place]
            own = [side for side in sides if side.group == number]
            if group.kind == RING:
                for side in own:
                    if side.sends:
                        (back,) = [one for one in own if not one.sends and one.channel == side.channel]
                        self._ring(place, group, calls, side, back)
            else:
                for side in own:
                    self._line(place, group, calls, side)
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
        )
        self._host.add(program)
        program.settle()
        for port, index, context in self._bound:
            self._host.bind(port, index, int(program.number), context)

    def _ring(self, place: int, group: Group, calls: Sequence[GroupCall], side: Side, back: Side) -> None:
        ncclx = self._scenario.ncclx
        number = self._number(place)
        members = group.members
        cursor = RingCursor(
            len(members),
            members.index(self._rank),
            ncclx.channels,
            side.channel,
            ncclx.chunk_bytes,
            ncclx.slice_bytes,
        )
        operations = [(OPERATION_CODES[call.op], call.size_bytes) for call in calls]
        send, receive = self._send(number, side), self._receive(number, back)
        self._channels.append(RingChannel(number, self._gpu_port, send, receive, cursor, operations))

    def _line(self, place: int, group: Group, calls: Sequence[GroupCall], side: Side) -> None:
        shares = 1 if group.kind == LINE else len(group.members)
        number = self._number(place)
        self._channels.append(
            LineChannel(
                number,
                self._gpu_port,
                self._send(number, side) if side.sends else None,
                None if side.sends else self._receive(number, side),
                self._scenario.ncclx.slice_bytes,
                [max(call.size_bytes // shares, 1) for call in calls],
            )
        )

    def _number(self, place: int) -> int:
        number = len(self._channels)
        self._of_group[place].append(number)
        return number

    def _send(self, number: int, side: Side) -> SendEnd:
        self._bind(side, len(self._sends), int(SEND_DATA), int(SEND_CONTROL))
        if side.inside:
            sender, unloaded = self._inside_sender(self._scenario, self._gpu_port, side.pairs[0]), UNTIMED
        else:
            sender = self._make_sender(
                self._scenario, self._topology, (side.nic,), side.pairs, side.peer_nic, None
            )
            unloaded = unloaded_ps(self._scenario, self._topology, side.peer_nic, side.nic, int(CTS_BYTES))
        end = SendEnd(number, side.peer, 0, self._slots(), sender, side.control, self._waits, unloaded)
        self._sends.append(end)
        return end

    def _receive(self, number: int, side: Side) -> ReceiveEnd:
        self._bind(side, len(self._receives), int(RECEIVE_DATA), int(RECEIVE_CONTROL))
        policy = int(ROUND_ROBIN) if side.inside else POLICIES[self._scenario.ncclx.qp_policy]
        receiver = Receiver(policy, side.pairs)
        port = self._port_to(side.nic)
        end = ReceiveEnd(number, side.peer, 0, port, self._slots(), receiver, side.control)
        self._receives.append(end)
        return end

    def _bind(self, side: Side, place: int, data: int, control: int) -> None:
        port = self._port_to(side.nic)
        self._bound += [(port, pair, place * ROLES + data) for pair in side.pairs]
        if side.control >= 0:
            self._bound.append((port, side.control, place * ROLES + control))

    def _slots(self) -> int:
        return self._scenario.ncclx.steps // self._scenario.ncclx.slice_steps

    def _port_to(self, node: int) -> int:
        """The host's port to one of its GPUs or NICs."""
        return self._topology.host_end(node).peer_port
