"""From the scripts of a job to the programs of its ranks.

A rank has for each of its groups, on each channel, the ends of its connections
(`actors.ncclx.transport.wiring`) and a walker: of rings, of graphs, or one of each that work with the same
ends, as the group's calls need.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.fabric.paths import Unloaded, switches_between
from actors.host.host import Attendance, Host
from actors.ncclx.algorithms.ring import OPERATION_CODES, RingChannel
from actors.ncclx.gpu_orders import GroupOrders, Orders
from actors.ncclx.operations import Announcement, Operation
from actors.ncclx.payload import group_orders
from actors.ncclx.rank.call_watchdog import Watchdog
from actors.ncclx.rank.calling import Calling
from actors.ncclx.rank.computing import Computing
from actors.ncclx.rank.connecting import Connecting
from actors.ncclx.rank.ends import Ends
from actors.ncclx.rank.flight_records import Recorder
from actors.ncclx.rank.group_calls import GroupCalls
from actors.ncclx.rank.rank_program import ScriptProgram
from actors.ncclx.rank.sm_share import GpuSms, Share
from actors.ncclx.rank.streams import Streams
from actors.ncclx.rank.timer_subjects import Timers
from actors.ncclx.schedule import Schedule, is_ring, operations_of
from actors.ncclx.script import COLLECTIVE, LINE, GroupCall
from actors.ncclx.transport.channel import Channel, GraphChannel
from actors.ncclx.transport.clear_to_send import (
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
from actors.ncclx.transport.posting import POLICIES, ROUND_ROBIN, NicLoads, Receiver, Sender
from actors.ncclx.transport.wiring import Side, WiredJob
from actors.nic.queue_pair.numbers import first_psn
from actors.nic.queue_pair.pair_columns import QpPlan


def add_ranks(
    job: WiredJob,
    topology: Topology,
    host: Host,
    queue_pairs: Mapping[int, Sequence[QpPlan]],
    sms: Mapping[int, GpuSms],
) -> None:
    """Add the ranks of a job that are on a host. `queue_pairs` are those of every NIC by index, `sms` those
    of each GPU of which channels take some.
    """
    here = [rank for rank, node in enumerate(job.nodes) if node == host.number]
    rails = max((len(side.rails) for rank in here for side in job.sides[rank]), default=0)
    loads = NicLoads(rails) if rails else None
    unloaded = Unloaded(job.settings.delays, topology, int(CTS_BYTES))
    for rank in here:
        gpu = job.gpus[rank]
        builder = RankBuilder(job, topology, host, rank, loads, sms.get(gpu), unloaded)
        program = builder.add()
        if gpu in sms:
            sms[gpu].programs.append(int(program.number))
        for port, index in builder.bound():
            nic = topology.ports(host.number)[port].peer
            if nic in queue_pairs:  # those of a GPU have no numbers
                program.members.pairs[port] = queue_pairs[nic]
                if program.members.spans:
                    pair = queue_pairs[nic][index]
                    own = first_psn(job.seed, nic, index)
                    expected = first_psn(job.seed, pair.remote_nic, pair.remote_index)
                    program.members.psns[port << 20 | index] = own, expected
        if job.meetings:
            patience_ps = job.settings.watchdog_ps
            meeting = Attendance(rank, job.meetings, rank in job.absent, patience_ps)
            if program.members.first < 0:
                meeting.left = 0  # a spare one comes when it is needed
            host.meetings[len(host.programs) - 1] = meeting


class _ChannelEnds(NamedTuple):
    """The ends of one channel of a group, and the sides that they are made of."""

    outgoing: list[Side]
    sends: list[SendEnd]
    incoming: list[Side]
    receives: list[ReceiveEnd]


class RankBuilder:
    """Builds the program of one rank on its host. `loads` and `unloaded` are shared by the job's ranks there,
    `sms` by all ranks on the GPU.
    """

    def __init__(
        self,
        job: WiredJob,
        topology: Topology,
        host: Host,
        rank: int,
        loads: NicLoads | None,
        sms: GpuSms | None,
        unloaded: Unloaded,
    ) -> None:
        self._sms = sms
        self._unloaded = unloaded
        """Unloaded flight times of clear-to-sends."""
        self._ports: dict[int, int] = {}
        """The host's port to each of its GPUs and NICs."""
        self._loads = loads
        self._ends = Ends()
        self._job = job
        self._settings = job.settings
        self._topology = topology
        self._host = host
        self._plan = job.script
        self._script = job.script.scripts[rank]
        self._rank = rank
        self._gpu_port = self._port_to(job.gpus[rank])
        self._of_group: list[list[int]] = [[] for _ in self._script.groups]
        self._rings: list[int] = []
        self._ringed: list[list[bool]] = []
        self._bound: list[tuple[int, int, int]] = []
        self._program: ScriptProgram | None = None

    def add(self) -> ScriptProgram:
        """Add the program to the host."""
        job, script, plan = self._job, self._script, self._plan
        sides = job.sides[self._rank]
        orders: list[Orders | None] = []
        spare: list[list[tuple[int, int]]] = []
        bound = 0
        for place, number in enumerate(script.groups):
            orders.append(self._group(place, [side for side in sides if side.group == number]))
            if plan.memberships:
                made = self._bound[bound:]
                spare.append([(port, index) for port, index, _ in made if port != self._gpu_port])
                bound = len(self._bound)
        settings = self._settings
        groups = [self._calls(place) for place in range(len(script.groups))]
        waits = settings.connect_pair_ps > 0 or settings.launch_ps > 0
        waits = waits or any(late_ps > 0 for group in groups for late_ps in group.late_ps)
        timers = Timers(len(script.streams), len(script.groups), waits)
        streams = Streams(
            [list(stream) for stream in script.streams], script.events, len(plan.reasons), plan.single
        )
        share = self._share(len(script.streams))
        calling = Calling(
            groups,
            self._ends,
            Connecting(timers, settings.connect_pair_ps, settings.connect_exchange_ps, settings.launch_ps),
            share,
            Watchdog(timers, settings.watchdog_ps),
            Recorder(settings.flight_recorder, list(script.groups)),
            GroupOrders(job.job, self._rank, orders) if any(orders) else None,
        )
        computing = Computing(streams, timers, self._gpu_port, share)
        absent = self._rank in job.absent
        program = ScriptProgram(job.job, job.start_ps, self._rank, absent, computing, calling)
        if job.halts:
            spare = [[(port, index) for port, index, _ in self._bound if port != self._gpu_port]]
        members = program.members
        members.spare = spare
        if script.spans:
            members.spans = list(script.spans)
            members.scripts = [[list(stream) for stream in lines] for lines in script.lines]
            members.first, members.last = script.spans[0]
            members.blames = not plan.spared
        self._host.add(program)
        self._program = program
        program.settle()
        for port, index, context in self._bound:
            self._host.bind(port, index, int(program.number), context)
        return program

    def _calls(self, place: int) -> GroupCalls:
        """What the rank keeps of a group's calls."""
        number, calls = self._script.groups[place], self._script.calls[place]
        return GroupCalls(
            self._of_group[place],
            self._rings[place],
            self._ringed[place],
            self._plan.groups[number].reason,
            [call.label for call in calls],
            [(self._code(number, call), call.size_bytes) for call in calls],
            [self._settings.late_ps(call.algorithm) for call in calls],
        )

    def grow(self, job: WiredJob) -> None:
        """Let the program, which goes on, take part in the last group of its script; its connections are
        those of `job`."""
        program = self._program
        assert program is not None, self._rank
        self._job = job
        place, number = len(self._of_group), self._script.groups[-1]
        self._of_group.append([])
        bound = len(self._bound)
        orders = self._group(place, [side for side in job.sides[self._rank] if side.group == number])
        if orders is not None:
            known = program.calling.orders
            if known is None:
                known = program.calling.orders = GroupOrders(job.job, self._rank, [None] * place)
            assert isinstance(known, GroupOrders), known
            known.groups.append(orders)
        if program.share is not None:
            held = job.schedules[number].channels * job.settings.sms_per_channel
            program.share.join(held, job.script.groups[number].priority)
        program.join(number, self._calls(place))
        for port, index, context in self._bound[bound:]:
            self._host.bind(port, index, int(program.number), context)

    def add_call(self, place: int, call: GroupCall, schedule: Schedule) -> None:
        """One more call of a group that grows, the last of the schedule's operations."""
        program = self._program
        assert program is not None, self._rank
        operation = schedule.operations[-1]
        calls = program.calling.groups[place]
        calls.announced.append((self._code(self._script.groups[place], call), call.size_bytes))
        calls.labels.append(call.label)
        calls.late_ps.append(self._settings.late_ps(call.algorithm))
        calls.ringed.append(is_ring(operation))
        walker = self._ends.channels[self._of_group[place][0]]
        if isinstance(walker, RingChannel):
            walker.operations.append(_walked(schedule, operation))
        else:
            assert isinstance(walker, GraphChannel), walker
            walker.protocols.append(schedule.protocol(operation))

    def number(self) -> int:
        """The program's, on its host."""
        assert self._program is not None, self._rank
        return int(self._program.number)

    def bound(self) -> list[tuple[int, int]]:
        """The host's port and the index of each of its queue pairs."""
        return [(port, index) for port, index, _ in self._bound]

    def _code(self, number: int, call: GroupCall) -> int:
        """What a call of a group announces itself as."""
        group = self._plan.groups[number]
        if group.kind == LINE:
            return Announcement("send" if group.members[0] == self._rank else "recv").packed()
        return Announcement(call.op, call.dtype, call.redop, call.root).packed()

    def _share(self, streams: int) -> Share | None:
        """Share of the SMs, of which a call holds those of its channels; None where channels take none."""
        settings = self._settings
        if self._sms is None:
            return None
        schedules = self._job.schedules
        held = [schedules[one].channels * settings.sms_per_channel for one in self._script.groups]
        groups = [self._plan.groups[number] for number in self._script.groups]
        priorities = [-1 if group.kind == LINE else group.priority for group in groups]
        return Share(self._sms, held, priorities, streams)

    def orders_of(self, place: int, first_channel: int) -> Orders | None:
        """What tells the GPU what to do with slices of a group; None where they are sizes only."""
        return group_orders(self._job, self._rank, place, first_channel)

    def _group(self, place: int, own: Sequence[Side]) -> Orders | None:
        """Make the channels of a group from its sides; returns what tells the GPU what to do with slices."""
        settings = self._settings
        number = self._script.groups[place]
        group = self._plan.groups[number]
        schedule = self._job.schedules[number].with_operations(operations_of(self._script.calls[place]))
        at = group.members.index(self._rank)
        first = len(self._ends.channels)
        orders = self.orders_of(place, first)
        ends = [self._channel_ends(first, schedule, channel, own) for channel in range(schedule.channels)]
        ringed = [is_ring(one) for one in schedule.operations]
        channels: list[Channel] = []
        cuts = [(cut.slice_bytes, cut.slots, cut.chunk_bytes) for cut in schedule.cuts]
        if any(ringed):
            calls = [_walked(schedule, one) for one in schedule.operations]
            for channel, here in enumerate(ends):
                before, after = schedule.neighbours(at, channel)
                send = here.sends[_to(here.outgoing, group.members[after])]
                receive = here.receives[_to(here.incoming, group.members[before])]
                cursor = schedule.cursor(at, channel)
                walker = first + len(channels)
                channels.append(
                    RingChannel(walker, self._gpu_port, send, receive, cursor, calls, cuts, orders)
                )
        self._rings.append(len(channels))
        self._ringed.append(ringed)
        if not all(ringed):
            protocols = [schedule.protocol(one) for one in schedule.operations]
            for channel, here in enumerate(ends):
                tasks = self._job.known.of(
                    schedule,
                    channel,
                    at,
                    [(group.members.index(side.peer), side.lane) for side in here.outgoing],
                    [(group.members.index(side.peer), side.lane) for side in here.incoming],
                )
                walker = first + len(channels)
                channels.append(
                    GraphChannel(
                        walker, self._gpu_port, here.sends, here.receives, protocols, cuts, tasks, orders
                    )
                )
        for one in channels:
            one.zero_copy = settings.zero_copy
            one.by_nic = settings.copies_by_nic and one.has_nics()
            one.by_peer = group.kind != COLLECTIVE
            one.in_line = settings.in_line
            one.memory = None if orders is None else orders.memory
            one.priority = group.priority
        self._of_group[place] = list(range(first, first + len(channels)))
        self._ends.add_channels(channels, place)
        return orders

    def _channel_ends(
        self, first: int, schedule: Schedule, channel: int, own: Sequence[Side]
    ) -> _ChannelEnds:
        """The ends of a channel; until somebody begins to work with them, they are its first walker's."""
        number, slots = first + channel, schedule.slots()
        outgoing = [side for side in own if side.sends and side.channel == channel]
        incoming = [side for side in own if not side.sends and side.channel == channel]
        return _ChannelEnds(
            outgoing,
            [self._send(number, side, slots, at) for at, side in enumerate(outgoing)],
            incoming,
            [self._receive(number, side, slots, at) for at, side in enumerate(incoming)],
        )

    def _send(self, number: int, side: Side, slots: int, at: int) -> SendEnd:
        self._bind(side, len(self._ends.sends), int(SEND_DATA), int(SEND_CONTROL))
        if side.inside:
            # Over NVLink: whole slices on one pair, without limits.
            sender = Sender(int(ROUND_ROBIN), [self._gpu_port], list(side.pairs), slots, None, 0, 0, 0)
            sender.inside = True
            unloaded = UNTIMED
        else:
            sender = self._sender(side, slots)
            unloaded = self._unloaded.ps(side.peer_nic, side.nic)
        end = SendEnd(number, side.peer, at, slots, sender, side.control, self._ends.waits, unloaded)
        end.unmade = self._unmade(side)
        self._ends.add_send(end)
        return end

    def _sender(self, side: Side, slots: int) -> Sender:
        """The end that writes of a connection between NICs."""
        settings = self._settings
        rails = side.rails or ((side.nic, side.peer_nic),)
        limit = settings.outstanding
        between = switches_between(self._topology, *rails[0]) if limit.differs() else 0
        return Sender(
            POLICIES[settings.qp_policy],
            [self._port_to(nic) for nic, _ in rails],
            list(side.pairs),
            slots,
            self._loads if side.rails else None,
            settings.segment_bytes,
            settings.segments_per_qp,
            limit.at_distance(between),
            side.ports,
        )

    def _receive(self, number: int, side: Side, slots: int, at: int) -> ReceiveEnd:
        self._bind(side, len(self._ends.receives), int(RECEIVE_DATA), int(RECEIVE_CONTROL))
        policy = int(ROUND_ROBIN) if side.inside else POLICIES[self._settings.qp_policy]
        receiver = Receiver(policy, side.pairs, side.ports)
        port = self._port_to(side.nic)
        end = ReceiveEnd(number, side.peer, at, port, slots, receiver, side.control)
        end.inside = side.inside
        end.unmade = self._unmade(side)
        self._ends.add_receive(end)
        return end

    def _unmade(self, side: Side) -> int:
        """Queue pairs of a side that are made at its first use."""
        if side.inside or not self._settings.connect_pair_ps:
            return 0
        return len(side.pairs) + (1 if side.control >= 0 else 0)

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
        found = self._ports.get(node)
        if found is None:
            found = self._ports[node] = self._topology.host_end(node).peer_port
        return found


def _walked(schedule: Schedule, operation: Operation) -> tuple[int, int, int, int]:
    """What a ring's walker is told of an operation: its code, bytes, channels and protocol."""
    code = OPERATION_CODES.get(operation.op, -1)
    channels = operation.channels or schedule.channels
    return code, operation.size_bytes, channels, schedule.protocol(operation)


def _to(sides: Sequence[Side], peer: int) -> int:
    """The place of the side of a ring to or from a peer."""
    return next(at for at, side in enumerate(sides) if side.peer == peer and side.lane == 0)
