"""Connections of the ranks of a job, and the queue pairs that carry them.

Every group has connections of its own, as a communicator of its own has: on each channel, from each member to
those that its calls send to, whatever their algorithms (see `actors.ncclx.schedule`). A connection has the
data queue pairs, then the control queue pair on which clear-to-sends travel back; each direction between two
ranks has its own. Channel c of a rank uses the NIC c modulo the number of NICs of its GPU, in collectives and
in transfers alike; with `ring_order: one_rail` a collective leaves by the NIC on the receiver's rail. Ranks
of one server with an NVSwitch talk over NVLink: there a connection has a pair of the GPUs for data and one
for clear-to-sends, and no queue pairs. With `qp_policy: least_loaded` over the NICs of a host, a connection
to another host has data pairs on every NIC, each to the NIC of the same place (the same rail) there.

Ports. The library makes one device of a NIC with several ports (`port_use: merged`): a connection has
`qps_per_connection` queue pairs for each port of the end that has more, queue pair k uses port k modulo the
number of ports at either end, and a slice is cut over the ports. Where each port is a device (`apart`),
channels take the ports in turn, with all their queue pairs. Where the NIC's driver made one device of them
(`bonded`), each NIC deals its queue pairs over its ports (`actors.nic.bond`).

Queue pairs. Connections are noted in the order in which the plan walks the scenario; a queue pair's *index*
is its place at its NIC. Queue pair numbers and UDP source ports are drawn per NIC from the seed once all are
known, so every worker computes those of every NIC, whichever it hosts. With `per_pair` all queue pairs from
one NIC to another share a UDP source port, as they do where a driver derives it from addresses alone; with
`disjoint` ports are searched for which paths share no link (`emu.devices.disjoint_paths`).
Connections over NVLink are noted by the same book, by index at each GPU.

Source: NCCL 2.30.7, `src/transport/net_ib/connect.cc` (queue pairs over the devices of a merged NIC, at least
one on each), `p2p.cc` (a request is cut over the devices), `src/channel.cc` (a peer's connectors serve rings
and trees; those of sends and receives are apart), `src/enqueue.cc` (a transfer is cut over channels).

Not modelled: connections made on demand, several ranks on one NIC that talk to each other through it.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, overload

from actors.fabric.model import Role, Topology
from actors.gpu.nvlink import SHARE
from actors.ncclx.graph import NVLS_MULTICAST, NVLS_REDUCE
from actors.ncclx.operations import Operation
from actors.ncclx.schedule import KnownPlans, Proofs, Schedule, operations_of
from actors.ncclx.script import COLLECTIVE, Group, GroupCall, ScriptPlan
from actors.ncclx.settings import (
    APART,
    MERGED,
    Settings,
    channel_count,
    exchange_channels,
    fabric_ports,
)
from actors.nic.queue_pair.pair_columns import DEALT, STRIPED, PairColumns, QpPlan, connect

SourcePort = Callable[[int, int, int, int, int, int, bool], int]
"""The UDP source port of a queue pair: NIC, index there, its turn, the other NIC, the queue pair number
there, priority, and whether data leaves here."""


class PlannedPairs(Sequence[QpPlan]):
    """The queue pairs of a NIC with their numbers, each made of its columns when it is asked for."""

    __slots__ = ("_addresses", "columns")

    def __init__(self, columns: PairColumns, addresses: dict[int, int]) -> None:
        self.columns = columns
        self._addresses = addresses

    def __len__(self) -> int:
        return len(self.columns)

    @overload
    def __getitem__(self, at: int) -> QpPlan: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[QpPlan]: ...

    def __getitem__(self, at: int | slice) -> QpPlan | Sequence[QpPlan]:
        places = range(len(self.columns))[at]
        if isinstance(places, int):
            return self.columns.plan(places, self._addresses)
        return [self.columns.plan(place, self._addresses) for place in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlannedPairs) and list(self) == list(other)

    def __hash__(self) -> int:
        return len(self)


class NvlinkPlan(NamedTuple):
    """One end of a connection over NVLink: a pair of a GPU, and the pair of the other GPU."""

    peer: int
    peer_index: int
    flags: bool
    """Whether it carries clear-to-sends."""
    block: int = -1
    """The thread block that writes what the GPU sends; -1 if none does."""
    leaving: int = 0
    """The share of the GPU's link that a transfer takes, and of the other GPU's, where the NVSwitch works on
    it (`actors.gpu.nvlink.SHARE`); else 0."""
    arriving: int = 0


class ConnectionBook:
    """Connections in the making."""

    def __init__(self) -> None:
        self._ends: dict[int, PairColumns] = {}
        """By NIC."""
        self._nvlink: dict[int, list[NvlinkPlan]] = {}
        self._blocks: dict[int, dict[Hashable, int]] = {}
        """By GPU, and by what they do."""

    def _of(self, nic: int) -> PairColumns:
        found = self._ends.get(nic)
        if found is None:
            found = self._ends[nic] = PairColumns(nic)
        return found

    def connect_inside(
        self,
        gpu: int,
        peer: int,
        block: Hashable = None,
        *,
        flags: bool = False,
        leaving: int = 0,
        arriving: int = 0,
    ) -> tuple[int, int]:
        """Note a connection over NVLink; returns its index at `gpu` and at `peer`. One thread block of
        `gpu` writes all that has the same `block`.
        """
        assert gpu != peer, f"GPU {gpu} cannot connect to itself"
        ends, peer_ends = self._nvlink.setdefault(gpu, []), self._nvlink.setdefault(peer, [])
        index, peer_index = len(ends), len(peer_ends)
        number = -1
        if block is not None:
            blocks = self._blocks.setdefault(gpu, {})
            number = blocks.setdefault(block, len(blocks))
        ends.append(NvlinkPlan(peer, peer_index, flags, number, leaving, arriving))
        peer_ends.append(NvlinkPlan(gpu, index, flags))
        return index, peer_index

    def inside(self) -> dict[int, tuple[NvlinkPlan, ...]]:
        """The pairs of GPUs by index; only of those that have any."""
        return {gpu: tuple(ends) for gpu, ends in self._nvlink.items()}

    def connect(
        self,
        nic: int,
        peer: int,
        priority: int,
        job: int,
        *,
        log_deliveries: bool = False,
        flags: bool = False,
        port: int = DEALT,
    ) -> tuple[int, int]:
        """Note a connection; returns its index at `nic` and at `peer`, which logs deliveries if asked to.

        `flags`: it carries clear-to-sends. Of a NIC to itself there are two queue pairs as well; its packets
        turn round at the switch.
        """
        (index,), (peer_index,) = self.connect_many(
            nic, peer, priority, job, 1, log_deliveries=log_deliveries, flags=flags, port=port
        )
        return index, peer_index

    def connect_many(
        self,
        nic: int,
        peer: int,
        priority: int,
        job: int,
        count: int,
        *,
        log_deliveries: bool = False,
        flags: bool = False,
        port: int = DEALT,
    ) -> tuple[range, range]:
        """Note so many connections, as `connect` does: a large job has millions. `port` is the port of all at
        both ends, or STRIPED over the ports."""
        ends, peer_ends = self._of(nic), self._of(peer)
        first, peer_first, step = len(ends), len(peer_ends) + (nic == peer), 1 + (nic == peer)
        connect(ends, peer_ends, priority, job, count, log_deliveries, flags, port)
        made = range(first, first + count * step, step), range(peer_first, peer_first + count * step, step)
        self._connected(nic, peer, made)
        return made

    def _connected(self, nic: int, peer: int, made: tuple[range, range]) -> None:
        """Connections were noted. Those of a plan have their numbers from their place alone."""

    def numbered(
        self, seed: int, topology: Topology, source_port: SourcePort | None, *, by_peer: bool = False
    ) -> dict[int, Sequence[QpPlan]]:
        """The queue pairs of every NIC of the fabric by index; a NIC that nobody uses has none.

        Without a `source_port` UDP source ports are drawn, `by_peer` one for all queue pairs to a NIC.
        """
        for ends in self._ends.values():
            ends.draw_numbers(seed)
        plan: dict[int, Sequence[QpPlan]] = dict.fromkeys(topology.nics, ())
        addresses = {nic: topology.address_of(nic) for nic in self._ends}
        for nic, ends in self._ends.items():
            ends.meet(self._ends)
            if source_port is None:
                ends.draw_sources(seed, by_peer)
            else:
                ends.set_sources(_sources(source_port, ends))
            plan[nic] = PlannedPairs(ends, addresses)
        return plan


def _sources(source_port: SourcePort, ends: PairColumns) -> list[int]:
    """The UDP source port of each queue pair of a NIC."""
    nic, found = int(ends.nic), list[int]()
    for index in range(len(ends)):
        end = ends.end(index)
        qpn = int(ends.remote_qpns[index])
        found.append(source_port(nic, index, end.turn, end.remote_nic, qpn, end.priority, end.sends))
    return found


def share_domain(topology: Topology, gpu: int, peer: int) -> bool:
    """Whether two GPUs are in one NVSwitch domain."""
    if topology.nodes[gpu].host != topology.nodes[peer].host:
        return False
    return topology.nvlink_end(gpu) is not None and topology.nvlink_end(peer) is not None


def connect_inside(
    book: ConnectionBook,
    gpu: int,
    peer: int,
    admitted: bool,
    lane: int = 0,
    neighbours: int = 1,
    block: Hashable = None,
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Connect two GPUs over NVLink: pairs for data, and for clear-to-sends if slices wait for them, else -1;
    of each the index at `gpu` and at `peer`. What has the same `block` is written by one thread block.
    """
    once, every = SHARE // neighbours, SHARE * (neighbours + 1) // neighbours
    shares = {NVLS_REDUCE: (every, once), NVLS_MULTICAST: (once, every)}
    leaving, arriving = shares.get(lane, (0, 0))
    data = book.connect_inside(gpu, peer, block, leaving=leaving, arriving=arriving)
    return data, book.connect_inside(gpu, peer, flags=True) if admitted else (-1, -1)


def rails_between(topology: Topology, gpu: int, peer: int) -> list[tuple[int, int]]:
    """NIC i of the GPU's host and NIC i of its peer's, for as many as both have; none within one host."""
    host, other = topology.host_of(gpu), topology.host_of(peer)
    if host == other:
        return []
    mine = [nic for nic in topology.nics if topology.host_of(nic) == host]
    theirs = [nic for nic in topology.nics if topology.host_of(nic) == other]
    return list(zip(mine, theirs, strict=False))


def nics_between(
    settings: Settings, topology: Topology, gpus: tuple[int, int], channel: int, *, collective: bool
) -> tuple[int, int]:
    """The NICs by which a channel's messages leave one GPU's server and enter another's."""
    leaves, enters = (of_gpu[channel % len(of_gpu)] for of_gpu in map(topology.nics_of_gpu, gpus))
    if collective and settings.one_rail:
        mine, theirs = (
            [
                end.peer
                for end in topology.ports(topology.host_of(gpu))
                if topology.nodes[end.peer].role is Role.NIC
            ]
            for gpu in gpus
        )
        leaves = mine[theirs.index(enters) % len(mine)]
    return leaves, enters


def merged_ports(settings: Settings, topology: Topology, nic: int, peer: int) -> int:
    """Over how many ports a slice from one NIC to another is cut."""
    if settings.port_use != MERGED:
        return 1
    return max(fabric_ports(topology, nic), fabric_ports(topology, peer))


class Side(NamedTuple):
    """One side of a connection: data queue pairs by index at `nic`; control is -1 where there is none.

    With `rails`, data queue pairs are on those instead, NIC by NIC and equally many on each. With `inside`,
    the connection is over NVLink, and both NICs are GPUs.
    """

    group: int
    channel: int
    lane: int
    """Number among several connections between the same two ranks (see `actors.ncclx.graph`)."""
    sends: bool
    peer: int
    peer_nic: int
    nic: int
    pairs: Sequence[int]
    control: int
    inside: bool = False
    rails: tuple[tuple[int, int], ...] = ()
    """NICs here, each with the one that it reaches."""
    ports: int = 1
    """Ports of a merged NIC over which each slice is cut."""


@dataclass(frozen=True, slots=True)
class WiredJob:
    """The scripts of a job, with the schedules and the connections that the library has made for them."""

    job: int
    start_ps: int
    """NEVER_PS if its operations wait to be submitted, or if it does not run."""
    settings: Settings
    script: ScriptPlan = field(compare=False)
    gpus: tuple[int, ...]
    """The GPU of each rank."""
    nodes: tuple[int, ...]
    """The host of each."""
    schedules: tuple[Schedule, ...] = field(compare=False)
    """The schedule of each group of the script."""
    sides: tuple[tuple[Side, ...], ...]
    """Sides of the connections of each rank."""
    absent: tuple[int, ...] = ()
    """Ranks that never come."""
    meetings: int = 0
    """How often every rank comes to the store before the first operation."""
    seed: int = 0
    """The scenario's, which first PSNs are drawn from."""
    payload_seed: int | None = None
    """What its data is drawn from; None where slices are sizes only."""
    halts: bool = False
    """Whether its processes may be ended."""
    known: KnownPlans = field(default_factory=KnownPlans, compare=False)

    def members(self) -> tuple[int, ...]:
        """The ranks that begin, where others can take over; else none."""
        memberships = self.script.memberships
        return memberships[0] if memberships else ()


def connect_groups(
    settings: Settings,
    topology: Topology,
    book: ConnectionBook,
    job: int,
    gpus: Sequence[int],
    groups: Sequence[Group],
    schedules: Sequence[Schedule],
) -> list[list[Side]]:
    """The sides of each rank, group by group and channel by channel."""
    sides: list[list[Side]] = [[] for _ in gpus]
    for number, (group, schedule) in enumerate(zip(groups, schedules, strict=True)):
        data_class = settings.data_priority if group.data_priority is None else group.data_priority
        control_class = data_class if settings.control_priority is None else settings.control_priority
        members = group.members
        on_host = Counter(topology.host_of(gpus[one]) for one in members)
        for channel, source, destination, lane in _joined(group, schedule):
            ranks = source, destination
            both = gpus[source], gpus[destination]
            if share_domain(topology, *both):
                neighbours = on_host[topology.host_of(both[0])] - 1
                block = (job, number, channel, -1 if group.kind == COLLECTIVE else destination)
                data, flags = connect_inside(book, *both, settings.admitted, lane, neighbours, block)
                for place in (0, 1):
                    peer, other, mine = ranks[1 - place], both[1 - place], both[place]
                    ends_of = (data[place],), flags[place]
                    side = Side(number, channel, lane, place == 0, peer, other, mine, *ends_of, inside=True)
                    sides[ranks[place]].append(side)
                continue
            nics = nics_between(settings, topology, both, channel, collective=group.kind == COLLECTIVE)
            rails: list[tuple[int, int]] = []
            if settings.over_nics:
                rails = rails_between(topology, *both)
            ports = merged_ports(settings, topology, *nics)
            port = STRIPED if ports > 1 else DEALT
            if settings.port_use == APART:
                port = channel // len(topology.nics_of_gpu(both[0]))
            many = settings.qps_per_connection * ports
            made = [
                book.connect_many(here, there, data_class, job, many, port=port)
                for here, there in rails or [(nics[0], nics[1])]
            ]
            pairs: tuple[Sequence[int], Sequence[int]] = made[0]
            if rails:
                pairs = list(chain(*(one for one, _ in made))), list(chain(*(other for _, other in made)))
            control = (-1, -1)
            if settings.admitted:
                where = DEALT if port == STRIPED else port
                control = book.connect(nics[0], nics[1], control_class, job, flags=True, port=where)
            back = [(there, here) for here, there in rails]
            for place, ways in enumerate((tuple(rails), tuple(back))):
                peer, other, mine = ranks[1 - place], nics[1 - place], nics[place]
                pair, cts = pairs[place], control[place]
                side = Side(
                    number, channel, lane, place == 0, peer, other, mine, pair, cts, rails=ways, ports=ports
                )
                sides[ranks[place]].append(side)
    return sides


def _joined(group: Group, schedule: Schedule) -> Iterator[tuple[int, int, int, int]]:
    """(channel, from, to, lane) of every connection of a group."""
    members = group.members
    for channel in range(schedule.channels):
        for source, edges in enumerate(schedule.edges(channel)):
            yield from ((channel, members[source], members[peer], lane) for peer, lane in edges)


def schedules_of(
    settings: Settings, topology: Topology, plan: ScriptPlan, gpus: Sequence[int]
) -> tuple[Schedule, ...]:
    """The schedule of each group, of all that its members call; `gpus` are those of the ranks."""
    kinds, of_group = _called(plan)
    operations = [operations_of(calls) for calls in kinds]
    return tuple(
        _schedule(settings, topology, group, operations[kind], [gpus[rank] for rank in group.members])
        for group, kind in zip(plan.groups, of_group, strict=True)
    )


def _schedule(
    settings: Settings, topology: Topology, group: Group, operations: Sequence[Operation], gpus: Sequence[int]
) -> Schedule:
    channels = channels_of(settings, topology, group.kind, gpus)
    return Schedule(settings, operations, [topology.host_of(gpu) for gpu in gpus], channels)


def channels_of(settings: Settings, topology: Topology, kind: str, gpus: Sequence[int]) -> int:
    """How many channels a group of this kind has among GPUs."""
    channels = channel_count(topology, gpus, settings.channels, port_use=settings.port_use)
    if kind == COLLECTIVE:
        return channels
    return exchange_channels(topology, gpus, channels, settings.channels_per_peer, settings.exchange_gbps)


def _called(plan: ScriptPlan) -> tuple[list[Sequence[GroupCall]], list[int]]:
    """What members of groups call, and of which of these kinds each group is.

    Of a benchmark that is their list, else each kind of call once. Groups of ranks that are like one another
    are of one kind.
    """
    lists: list[list[list[GroupCall]]] = [[] for _ in plan.groups]
    keys: list[list[tuple[int, int]]] = [[] for _ in plan.groups]
    for script in plan.scripts:
        like = script.rank if script.like < 0 else script.like
        for place, (number, calls) in enumerate(zip(script.groups, script.calls, strict=True)):
            if not lists[number] or lists[number][-1] is not calls:
                lists[number].append(calls)
                keys[number].append((like, place))
    found: list[Sequence[GroupCall]] = []
    of_group: list[int] = []
    known: dict[tuple[tuple[int, int], ...], list[tuple[list[list[GroupCall]], int]]] = {}
    for key, called in zip(map(tuple, keys), lists, strict=True):
        same = known.setdefault(key, [])
        for others, kind in same:
            if all(mine is other for mine, other in zip(called, others, strict=True)):
                of_group.append(kind)
                break
        else:
            same.append((called, len(found)))
            of_group.append(len(found))
            shared = plan.single and len(called) == 1
            found.append(
                called[0] if shared else list(dict.fromkeys(one for calls in called for one in calls))
            )
    return found, of_group


def own_faults(
    plan: ScriptPlan, schedules: Sequence[Schedule], proofs: Proofs
) -> Iterator[tuple[int, Operation, str]]:
    """Calls, by their label, of which an algorithm of the user's is no correct collective, and why."""
    kinds, of_group = _called(plan)
    for schedule, kind in zip(schedules, of_group, strict=True):
        for operation, fault in schedule.faults(proofs):
            yield kinds[kind][schedule.operations.index(operation)].label, operation, fault
