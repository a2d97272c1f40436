"""What a run will cost, worked out from its plan without running it: packet-hops, memory, wall time.

Packets are counted as NICs will cut them: each slice of a collective is a message for each of its queue
pairs, a message is packets of an MTU, every `ack_every`-th packet and the last of a message is answered, and
a slice that waits for the receiver costs a clear-to-send with its answer. A packet makes a hop for each link
of a shortest path. What goes over NVLink makes none.

The busiest NIC's bytes at its rate are the least time of the run, and so the least number of samples.

With `run.repeat` a job begins again until `run.max_time`. It is counted as often as it fits if a round takes
two management delays for each operation, and the longest of three: the busiest NIC's bytes at its rate, the
computing of one rank, the ideal time of a flow. Latencies and congestion make a round longer: in
seven scenarios 0.94 to 1.7 of the hops of the run are announced.

Prices are those of docs/scale.md: one worker, compiled, on an idle machine of the class that was measured
there.

A packet of a train costs less; which flows go as trains is found out where somebody asks.

At flow level there are no packets, and nobody knows beforehand how often rates will be worked out: what is
told is the least.

Not counted: what congestion adds (CNPs, retransmissions, pauses), and what an end before the jobs' own takes
away (faults). What a diagnosis runs again counts as one run where faults or several jobs give it a reason.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC, Topology
from actors.fabric.paths import switches_between
from actors.ncclx.algorithms.ring import OPERATION_CODES
from actors.ncclx.operations import Operation
from actors.ncclx.protocols import on_wire
from actors.ncclx.schedule import Schedule, is_ring, operations_of
from actors.ncclx.script import COLLECTIVE, COMPUTE, LINE, ScriptPlan
from actors.ncclx.settings import Settings
from actors.ncclx.transport.channel import SENDS
from actors.ncclx.transport.posting import SPLIT_ALIGN_BYTES
from actors.ncclx.transport.wiring import WiredJob, merged_ports, nics_between, rails_between, share_domain
from actors.optional.storage_clients import answer_bytes, request_bytes
from actors.wire.message import POST_READ
from emu.devices.nics import acknowledged_every, recovery_of
from emu.devices.plan import ClientsWork, FlowWork, JobWork, Plan
from emu.devices.pricing.train_flows import NO_FLOWS, TrainFlows
from emu.devices.sleeping import busy_devices
from emu.scenario.schema import Scenario

HOP_US: Final = ((64, 0.12), (256, 0.15), (512, 0.17), (1024, 0.2), (3072, 0.36))
"""A packet-hop, by hosts."""
TRAIN_US: Final = 0.04
"""One in a train of packets (`emu.devices.pricing.train_flows`)."""
INSIDE_US: Final = 1.5
"""A message over NVLink, with its copies."""
SAMPLE_US: Final = 0.8
"""A device in a sample: reading, comparing, writing."""
START_S: Final = 0.14
"""The process: imports, the scenario, results."""
DEVICE_US: Final = 200
"""Building a device."""
IDLE_US: Final = 60
"""A device that sleeps (`emu.devices.sleeping`): a NIC, GPU or host that no job uses."""
PAIR_US: Final = 25
"""One end of a connection."""
SLOT_US: Final = 0.015
"""A packet that a queue pair may hold out of order."""
START_BYTES: Final = 39 << 20
DEVICE_BYTES: Final = 24 << 10
PAIR_BYTES: Final = 2 << 10
SLOT_BYTES: Final = 24
"""Memory of the process, of a device, of an end of a connection, and of a packet held out of order."""
IDLE_BYTES: Final = 6 << 10
"""Memory of a device that sleeps."""
SAMPLE_BYTES: Final = 256
"""A device in a sample, until somebody has taken it."""
UNTAKEN_BYTES: Final = 2 << 20
"""The most that samples take up."""
SAMPLES: Final = 200
"""That a scenario with a `run.sample_every` of its own has at least: those shipped chose it for that."""
INTERPRETED: Final = 40
"""How many times as long a hop takes interpreted: 28 to 45 times in four bench cases."""
PACE_MS: Final = 1.7
"""What `emu.cli.commands.estimate` times took that machine: 20,000 rounds of a loop of Python."""
LONG_S: Final = 600
"""A run that takes longer is worth a warning."""


class Estimate(NamedTuple):
    """The time of a run on one worker."""

    hops: int
    memory_bytes: int
    wall_s: float
    least: bool = False
    """Whether memory and time are only what it takes at least."""
    flows: int = 0
    in_trains: tuple[int, ...] = ()
    """The numbers of flows that go as trains of packets, of so many flows."""
    packets_s: float = 0.0
    """The part of the time that packets of the run itself take: what workers share."""
    least_ps: int = 0
    """The least virtual time of the run: the busiest NIC's bytes at its rate."""

    def warnings(self) -> list[str]:
        """A line if it takes more than `LONG_S`."""
        if self.wall_s <= LONG_S:
            return []
        return [f"this run takes about {about_wall(self.wall_s)} on one worker: {self.hops:,} packet-hops"]


LEAST: Final = Estimate(0, START_BYTES, START_S, least=True)
"""The estimate of a run by rates, of which nothing is counted."""


def about_wall(wall_s: float) -> str:
    """A time of the clock on the wall: 0.8 s, 42 s, 17 min, 5.2 h."""
    if wall_s < 10:
        return f"{wall_s:.1f} s"
    if wall_s < 120:
        return f"{wall_s:.0f} s"
    return f"{wall_s / 60:.0f} min" if wall_s < 7200 else f"{wall_s / 3600:.1f} h"


class Messages(NamedTuple):
    """What goes from one rank to another in an operation: message sizes and how often each."""

    source: int
    destination: int
    channel: int
    sizes: Counter[int]
    collective: bool = True
    """Whether it is no transfer."""


def estimate(
    scenario: Scenario,
    topology: Topology,
    plan: Plan,
    *,
    compiled: bool = True,
    trains: TrainFlows = NO_FLOWS,
) -> Estimate:
    """What the jobs of a scenario will cost one worker, compiled or not; `trains`: where it is known which
    flows go as trains."""
    if scenario.fidelity == "flow":
        return LEAST
    counted = _Count(scenario, topology)
    for _ in _counting(counted, plan):
        pass
    again = 1 + _runs_again(scenario, plan)
    busy = busy_devices(scenario, topology, plan)
    devices = len(busy.union(topology.switches))
    idle = len(topology.nodes) - devices
    pairs = sum(len(of_nic) for of_nic in plan.pairs.values())
    slots = _slots(scenario, topology, plan)
    sampled = devices * counted.samples()
    slower = 1 if compiled else INTERPRETED
    hop_us = _hop_us(len(topology.hosts))
    in_trains = sum(counted.flow_hops(flow) for flow in trains.in_trains)
    packets_us = (counted.hops - in_trains) * hop_us + in_trains * TRAIN_US + counted.inside * INSIDE_US
    building_us = devices * DEVICE_US + idle * IDLE_US + pairs * PAIR_US + slots * SLOT_US
    return Estimate(
        counted.hops,
        START_BYTES
        + devices * DEVICE_BYTES
        + idle * IDLE_BYTES
        + again * (pairs * PAIR_BYTES + slots * SLOT_BYTES)
        + min(sampled * SAMPLE_BYTES, UNTAKEN_BYTES),
        START_S + (again * (packets_us * slower + building_us) + sampled * SAMPLE_US) / 1e6,
        flows=trains.flows,
        in_trains=tuple(flow.flow for flow in trains.in_trains),
        packets_s=packets_us * slower / 1e6,
        least_ps=counted.least_ps(),
    )


def packet_hops(scenario: Scenario, topology: Topology, plan: Plan, most: int) -> int:
    """Packets of all jobs by the links that they cross, counted no further than to more than `most`."""
    counted = _Count(scenario, topology)
    for _ in _counting(counted, plan):
        if counted.hops > most:
            break
    return counted.hops


def call_hops(
    scenario: Scenario, topology: Topology, job: WiredJob, number: int, operation: Operation
) -> int:
    """The packet-hops of one operation of a group of a job."""
    counted = _Count(scenario, topology)
    members = job.script.groups[number].members
    for one in _sent(job.schedules[number], operation):
        counted.exchange(
            job, one._replace(source=members[one.source], destination=members[one.destination]), 1
        )
    return counted.hops


def planned_bytes(
    scenario: Scenario, topology: Topology, plan: Plan, most: int
) -> dict[tuple[int, int], int] | None:
    """How many bytes of data each NIC sends each other one; None where that is more than `most` exchanges."""
    counted = _Count(scenario, topology)
    for number, _ in enumerate(_counting(counted, plan)):
        if number == most:
            return None
    return counted.between


def _counting(counted: _Count, plan: Plan) -> Iterator[None]:
    """Count what the jobs of a plan do, bit by bit."""
    for work in plan.jobs:
        before = counted.so_far()
        for _ in range(_times(plan, work) if work.enabled else 0):
            for flow in work.flows:
                counted.flow(flow)
                yield
            for clients in work.clients:
                counted.requests(clients)
                yield
            if work.wired is not None:
                steps = 1 if work.wired.script.single else len(work.operations)
                yield from counted.library(work.wired, steps)
        counted.repeated(work, before)


def _runs_again(scenario: Scenario, plan: Plan) -> int:
    """How often the diagnosis of a run emulates it anew, where there is something to leave out."""
    return int(bool(scenario.faults) or sum(work.enabled for work in plan.jobs) > 1)


def _slots(scenario: Scenario, topology: Topology, plan: Plan) -> int:
    """Packets that all queue pairs together have room for, beyond the one that each expects."""
    known: dict[tuple[int, int], int] = {}
    total = 0
    for nic, pairs in plan.pairs.items():
        transport = scenario.at(topology, nic).transport
        rate_bps = max(end.rate_bps for end in topology.ports(nic) if end.kind == FABRIC)
        kind = id(transport), rate_bps  # thousands of NICs are alike
        if kind not in known:
            held = int(recovery_of(transport, rate_bps).hold_packets)
            known[kind] = 1 << (held - 1).bit_length() if held else 0
        total += len(pairs) * known[kind]
    return total


def _times(plan: Plan, work: JobWork) -> int:
    """How often a job is done whole. Of what an operator begins, its checkpoints where nothing fails."""
    operator = plan.operator
    if not work.owned or operator is None:
        return 1
    saves = operator.save_every and (operator.steps - 1) // operator.save_every
    return saves if work.job == operator.incarnations[0].save else 0


def _hop_us(hosts: int) -> float:
    """Between the sizes that were measured, on a line; beyond them as at the ends."""
    sizes = [size for size, _ in HOP_US]
    at = bisect(sizes, hosts)
    if at in (0, len(HOP_US)):
        return HOP_US[min(at, len(HOP_US) - 1)][1]
    (low, cheap), (high, dear) = HOP_US[at - 1], HOP_US[at]
    return cheap + (dear - cheap) * (hosts - low) / (high - low)


class _Cut(NamedTuple):
    """How a message becomes packets."""

    mtu_bytes: int
    ack_every: int

    def packets(self, size_bytes: int) -> int:
        return max(1, -(-size_bytes // self.mtu_bytes))

    def answers(self, packets: int) -> int:
        return -(-packets // self.ack_every)


class _SoFar(NamedTuple):
    """Packet-hops, messages over NVLink, and bytes by NIC and direction."""

    hops: int
    inside: int
    loads: Counter[tuple[int, bool]]


def _computing_ps(work: JobWork) -> int:
    """The longest that a rank of a job computes in all its steps."""
    if work.wired is None:
        return 0
    script = work.wired.script
    steps = 1 if script.single else len(work.operations)
    streams = (stream for one in script.scripts for stream in one.streams)
    return steps * max((sum(one[1] for one in stream if one[0] == COMPUTE) for stream in streams), default=0)


class _Count:
    """Hops so far."""

    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        self.hops = 0
        self.inside = 0
        """Messages over NVLink."""
        self.between: dict[tuple[int, int], int] = {}
        """Bytes from one NIC to another."""
        self._loads: Counter[tuple[int, bool]] = Counter()
        """Bytes that a NIC sends, and that it receives."""
        self._scenario = scenario
        self._topology = topology
        self._links: dict[tuple[int, int], int] = {}

    def samples(self) -> int:
        """The fewest that the run can have, or `SAMPLES` if somebody chose their distance."""
        run = self._scenario.run
        least = SAMPLES if "sample_every_ps" in run.model_fields_set else 1
        return min(max(self.least_ps() // run.sample_every_ps, least), run.max_time_ps // run.sample_every_ps)

    def least_ps(self) -> int:
        """How long the busiest NIC sends or receives."""
        return max((self._sending_ps(nic, size) for (nic, _), size in self._loads.items()), default=0)

    def _sending_ps(self, nic: int, size_bytes: int) -> int:
        ends = self._topology.ports(nic)
        return size_bytes * 8 * 10**12 // sum(end.rate_bps for end in ends if end.kind == FABRIC)

    def _carried(self, source: int, destination: int, size_bytes: int) -> None:
        self.between[source, destination] = self.between.get((source, destination), 0) + size_bytes
        self._loads[source, True] += size_bytes
        self._loads[destination, False] += size_bytes

    def so_far(self) -> _SoFar:
        """What is counted by now."""
        return _SoFar(self.hops, self.inside, self._loads.copy())

    def repeated(self, work: JobWork, before: _SoFar) -> None:
        """Count what a job added as often as it does it until the end, where jobs begin again."""
        run = self._scenario.run
        if not run.repeat:
            return
        added = self._loads - before.loads
        sending_ps = (self._sending_ps(nic, size) for (nic, _), size in added.items())
        flows_ps = (flow.start_ps + flow.ideal_ps for flow in work.flows)
        round_ps = max(max(sending_ps, default=0), max(flows_ps, default=0), _computing_ps(work))
        if round_ps == 0:
            return
        barriers = max(len(work.operations), 1)
        round_ps += barriers * 2 * self._scenario.control.management_delay_ps
        more_ps = max(run.max_time_ps - round_ps, 0)
        self.hops += (self.hops - before.hops) * more_ps // round_ps
        self.inside += (self.inside - before.inside) * more_ps // round_ps
        for end, size in added.items():
            self._loads[end] += size * more_ps // round_ps

    def flow(self, flow: FlowWork) -> None:
        """Its messages and their acknowledgements; a READ's requests and their responses."""
        self._carried(flow.source, flow.destination, flow.size_bytes)
        self.hops += self.flow_hops(flow)

    def flow_hops(self, flow: FlowWork) -> int:
        """Packet-hops of a flow, with those of what answers it."""
        cut = self._cut(flow.source, flow.destination)
        whole, rest = divmod(flow.size_bytes, flow.write_bytes)
        sent = 0
        for size, count in ((flow.write_bytes, whole), (rest, int(rest > 0))):
            packets = cut.packets(size)
            sent += count * (packets + (1 if flow.flags & POST_READ else cut.answers(packets)))
        return self._between(flow.source, flow.destination) * sent

    def requests(self, clients: ClientsWork) -> None:
        """Packet-hops of clients of storage, with their answers, and the acknowledgements of both."""
        for request in clients.requests:
            server = clients.connections[request.server][0]
            links = self._between(clients.nic, server)
            for size, ends in (
                (request_bytes(request), (clients.nic, server)),
                (answer_bytes(request), (server, clients.nic)),
            ):
                cut = self._cut(*ends)
                packets = cut.packets(size)
                self._carried(*ends, size)
                self.hops += links * (packets + cut.answers(packets))

    def library(self, job: WiredJob, steps: int) -> Iterator[None]:
        """Every call of a job's groups, in each of its steps."""
        for sent, count in messages_of(job):
            self.exchange(job, sent, steps * count)
            yield

    def exchange(self, job: WiredJob, sent: Messages, times: int) -> None:
        """What goes from one rank to another in an operation, so many times."""
        gpus = job.gpus[sent.source], job.gpus[sent.destination]
        if share_domain(self._topology, *gpus):
            self.inside += times * sent.sizes.total()
            return
        ends = nics_between(job.settings, self._topology, gpus, sent.channel, collective=sent.collective)
        source, destination = ends
        cut = self._cut(source, destination)
        ports = merged_ports(job.settings, self._topology, source, destination)
        packets = 0
        for size, count in sent.sizes.items():
            for piece, pieces in _pieces(job.settings, size, ports):
                data = cut.packets(piece)
                packets += count * pieces * (data + cut.answers(data))
        control = 2 * sent.sizes.total() if job.settings.admitted else 0
        rails = [(source, destination)]
        if job.settings.over_nics:
            rails = rails_between(self._topology, *gpus)
        links = sum(self._between(*rail) for rail in rails)
        moved = sum(size * count for size, count in sent.sizes.items()) // len(rails)
        for rail in rails:
            self._carried(*rail, times * moved)
        self.hops += times * (packets * links // len(rails) + control * self._between(source, destination))

    def _cut(self, source: int, destination: int) -> _Cut:
        """How messages between two NICs are cut, by the sections that hold there."""
        ends = [self._scenario.at(self._topology, nic).transport for nic in (source, destination)]
        every = acknowledged_every(self._scenario, self._topology, destination)
        return _Cut(min(one.mtu_bytes for one in ends), every)

    def _between(self, source: int, destination: int) -> int:
        """Links of a shortest path."""
        key = source, destination
        if key not in self._links:
            self._links[key] = switches_between(self._topology, source, destination) + 1
        return self._links[key]


def messages_of(job: WiredJob) -> Iterator[tuple[Messages, int]]:
    """What the ranks of a job send each other in one go through their scripts, and how often."""
    for number, (group, schedule) in enumerate(zip(job.script.groups, job.schedules, strict=True)):
        if group.membership > 0:
            break  # the rest stands by for a loss
        for operation, count in calls(job.script, number).items():
            for one in _sent(schedule, operation):
                source, destination = group.members[one.source], group.members[one.destination]
                collective = group.kind == COLLECTIVE
                yield one._replace(source=source, destination=destination, collective=collective), count


def calls(script: ScriptPlan, number: int) -> Counter[Operation]:
    """What the members of a group call together, and how often."""
    each = [called for _, called in script.calls_of(number)]
    if script.groups[number].kind == LINE:
        return Counter(operations_of(each[0]))
    most = max(len(called) for called in each)
    return Counter(operations_of(next(called for called in each if len(called) == most)))


def _sent(schedule: Schedule, operation: Operation) -> Iterator[Messages]:
    """Who sends which slices to whom."""
    if not is_ring(operation):
        yield from _looped(schedule, operation)
        return
    protocol = schedule.protocol(operation)
    cut = schedule.cuts[protocol]
    channels = operation.channels or schedule.channels
    for channel in range(channels):
        cursor = schedule.cursor(0, channel)
        cursor.use(channels, cut.chunk_bytes, cut.slice_bytes)
        cursor.begin(OPERATION_CODES[operation.op], operation.size_bytes)
        sizes: Counter[int] = Counter()
        while not cursor.done:
            if cursor.flags & SENDS:
                sizes[on_wire(protocol, cursor.size_bytes)] += 1
            cursor.advance()
        for rank in range(len(schedule.nodes)):
            yield Messages(rank, schedule.neighbours(rank, channel)[1], channel, sizes)


def _looped(schedule: Schedule, operation: Operation) -> Iterator[Messages]:
    """What `_walked` finds, and for all loops but the first what a loop more makes more."""
    loop_bytes, _ = schedule.loop(operation)
    loops = operation.size_bytes // loop_bytes - 1 if loop_bytes else 0
    if loops < 2:
        yield from _walked(schedule, operation, schedule.operations.index(operation))
        return
    size_bytes = operation.size_bytes - loops * loop_bytes
    short, long = (
        {sent[:3]: sent for sent in _walked(schedule.part(operation, size), operation, 0)}
        for size in (size_bytes, size_bytes + loop_bytes)
    )
    for ends, sent in long.items():
        first = short[ends].sizes if ends in short else Counter[int]()
        sizes = {size: count + (loops - 1) * (count - first[size]) for size, count in sent.sizes.items()}
        yield sent._replace(sizes=Counter(sizes))


def _walked(schedule: Schedule, operation: Operation, number: int) -> Iterator[Messages]:
    """What the steps of an operation by a graph send, the `number`-th of its schedule."""
    protocol = schedule.protocol(operation)
    slice_bytes = schedule.cuts[protocol].slice_bytes
    for channel in range(operation.channels or schedule.channels):
        for rank in range(len(schedule.nodes)):
            to: dict[int, Counter[int]] = {}
            for step in schedule.steps(number, channel, rank):
                whole, rest = divmod(step.size_bytes, slice_bytes)
                for peer in step.sends:
                    sizes = to.setdefault(peer, Counter())
                    if whole:
                        sizes[on_wire(protocol, slice_bytes)] += whole
                    if rest or not whole:
                        sizes[on_wire(protocol, rest)] += 1
            for peer, sizes in to.items():
                yield Messages(rank, peer, channel, sizes)


def _pieces(settings: Settings, size: int, ports: int) -> Iterator[tuple[int, int]]:
    """A slice as messages over NICs with so many merged ports: their size, and how many."""
    among = ports if settings.qp_policy == "round_robin" else 1
    if settings.qp_policy == "split":
        among = settings.qps_per_connection * ports
    if settings.qp_policy == "dqplb":
        whole, rest = divmod(size, settings.segment_bytes)
        yield settings.segment_bytes, whole
        yield rest, int(rest > 0 or not whole)
    elif among > 1:
        share = -(-size // among)
        piece = max(-(-share // SPLIT_ALIGN_BYTES) * SPLIT_ALIGN_BYTES, SPLIT_ALIGN_BYTES)
        whole, rest = divmod(size, piece)
        yield piece, whole
        yield rest, int(rest > 0)
        yield 0, among - whole - int(rest > 0)
    else:
        yield size, 1
