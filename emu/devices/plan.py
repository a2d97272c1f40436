"""What the jobs of a scenario run, with which settings of the library and which connections.

The plan follows from scenario and topology alone and is the same in every worker. It walks the jobs in order.
A benchmark, a training step, a trace and a program are scripts (`actors.ncclx.script`), whose groups are
connected as `actors.ncclx.transport.wiring` says.

For flows it makes as many queue pairs as a flow asks for, which belong to no other flow, and keeps what is
needed to find out when a flow was delivered: the last message of each of its queue pairs at the receiving
NIC.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from actors.control.operator import OperatorPlan
from actors.fabric.model import Topology
from actors.fabric.paths import Delays, crossing_ps, posted_ps
from actors.gpu.gpu import CopyCosts
from actors.kernel.event import NEVER_PS
from actors.ncclx.operations import JobOutline, Operation
from actors.ncclx.script import UNLABELLED
from actors.ncclx.settings import BONDED, EXCHANGE_GBPS, Outstanding, Settings
from actors.ncclx.transport.wiring import (
    ConnectionBook,
    NvlinkPlan,
    SourcePort,
    WiredJob,
    connect_groups,
    own_faults,
    schedules_of,
)
from actors.nic.queue_pair.numbers import assign_udp_source
from actors.nic.queue_pair.pair_columns import QpPlan
from actors.optional.storage_clients import ClientScript, Manners, Phase, Request, flattened
from actors.wire.frame import (
    READ_REQUEST,
    READ_RESPONSE_FIRST,
    READ_RESPONSE_LAST,
    READ_RESPONSE_MIDDLE,
    READ_RESPONSE_ONLY,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    SEND_ONLY,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_LAST_IMM,
    WRITE_MIDDLE,
    WRITE_ONLY,
    WRITE_ONLY_IMM,
    pathed_size,
    wire_size,
)
from actors.wire.message import POST_READ, POST_SEND, POST_WITH_IMMEDIATE
from emu.base.errors import Problem, ScenarioError
from emu.devices.buffer_sizes import is_deep
from emu.devices.disjoint_paths import DisjointPaths
from emu.devices.proofs import KeptProofs
from emu.results.job_facts import NO_FACTS, JobFacts
from emu.results.planned_rows import CallPlan, CollectivePlan
from emu.scenario.operated_jobs import SAVES, TESTS, TRAINS
from emu.scenario.resolve import Resolved, ResolvedJob
from emu.scenario.schema import Scenario
from emu.scenario.sections.ncclx import OutstandingSection
from emu.scenario.workloads.workload import Clients, Copying, Flows, Scripts
from emu.topology.front_end import front_end_nic, metadata_hosts, storage_hosts
from emu.workload.gpu_speeds import at_own_speeds


def settings_of(scenario: Scenario, topology: Topology, job: int) -> Settings:
    """What the library goes by in a job."""
    ncclx = scenario.ncclx
    own_class = ncclx.control == "own_class"
    return Settings(
        channels=ncclx.channels or 0,
        channels_per_peer=ncclx.channels_per_peer or 0,
        turned_rings=ncclx.ring_order != "same",
        crossing_rings=ncclx.ring_order in ("crossing", "one_rail"),
        one_rail=ncclx.ring_order == "one_rail",
        sms_per_channel=ncclx.sms_per_channel,
        step_bytes=ncclx.buffsize_bytes // ncclx.steps,
        steps=ncclx.steps,
        chunk_steps=ncclx.chunk_steps,
        slice_steps=ncclx.slice_steps,
        p2p_chunk_bytes=ncclx.p2p_chunk_bytes or 0,
        qps_per_connection=ncclx.qps_per_connection,
        port_use=ncclx.port_use if scenario.transport.is_rc else BONDED,
        qp_policy=ncclx.qp_policy,
        over_nics=ncclx.qp_policy == "least_loaded" and ncclx.least_loaded_over == "host",
        segment_bytes=ncclx.dqplb.segment_bytes,
        segments_per_qp=ncclx.dqplb.most_outstanding,
        outstanding=_outstanding(ncclx.outstanding),
        protocol=ncclx.protocol,
        ll_bytes=ncclx.ll_buffsize_bytes,
        ll128_bytes=ncclx.ll128_buffsize_bytes,
        even_slices=ncclx.slices == "even",
        zero_copy=ncclx.zero_copy,
        admitted=ncclx.admission == "receiver_driven",
        data_priority=data_priority(scenario, job),
        control_priority=scenario.transport.control_priority if own_class else None,
        watchdog_ps=ncclx.watchdog_ps or 0,
        flight_recorder=ncclx.flight_recorder,
        delays=_delays(scenario)._replace(elsewhere=_elsewhere(scenario, topology)),
        launch_ps=ncclx.launch_ps,
        copies_by_nic=any(copy_costs(one).differ_by_nic() for one in scenario.every),
        exchange_gbps=EXCHANGE_GBPS if ncclx.version != "auto" else 0,
        nvls_latency_ps=scenario.host.nvlink.nvls_latency_ps,
        connect_pair_ps=ncclx.connect.pair_ps if ncclx.connect.when == "first_use" else 0,
        connect_exchange_ps=2 * scenario.control.management_delay_ps,
    )


def copy_costs(scenario: Scenario) -> CopyCosts:
    """What copies of GPUs cost beside their bytes in a scenario, or in what overrides make of it for one."""
    gpu, host = scenario.gpu, scenario.host
    return CopyCosts(
        simple_ps=gpu.copy_latency_ps,
        lines_ps=gpu.lines_latency_ps,
        fence_ps=gpu.fence_ps,
        flush_ps=gpu.flush_ps,
        tail_ps=host.tail_delay_ps,
        head_ps=host.head_delay_ps,
        block_rate_bps=gpu.nic_copy_rate_bps or 0,
        staged_bps=0 if host.gpudirect else host.pcie.rate_bps,
    )


def _delays(scenario: Scenario) -> Delays:
    return Delays(
        proxy_ps=scenario.host.proxy_cost_ps,
        nic_ps=scenario.nic.latency_ps,
        switch_ps=scenario.switch.latency_ps,
        cuts_through=scenario.switch.forwarding == "cut_through",
    )


def _elsewhere(scenario: Scenario, topology: Topology) -> dict[int, Delays]:
    """The delays of modular switches, and of devices that have overrides, by number."""
    found = {}
    if scenario.overrides:
        views = {node.number: scenario.at(topology, node.number) for node in topology.nodes}
        found = {number: _delays(view) for number, view in views.items() if view is not scenario}
    for switch in topology.switches:
        if is_deep(scenario, topology, switch):
            own = scenario.at(topology, switch).switch
            crossing_ps = own.latency_ps + 2 * own.deep_buffer.credit_delay_ps
            usual = _delays(scenario.at(topology, switch))
            found[switch] = usual._replace(switch_ps=crossing_ps, cuts_through=False)
    return found


def data_priority(scenario: Scenario, job: int) -> int:
    """The priority of a job's data packets."""
    own = scenario.jobs[job].data_priority
    return scenario.transport.data_priority if own is None else own


def _outstanding(section: OutstandingSection) -> Outstanding:
    given = section.rack_bytes, section.zone_bytes, section.pod_bytes
    return Outstanding(*((section.connection_bytes if own is None else own) or 0 for own in given))


FOR_EVER: Final = 1 << 40
"""Operations of a job that begins again and again: more than any run can do."""

FLAGS: Final[dict[str, int]] = {
    "write": 0,
    "write_with_imm": int(POST_WITH_IMMEDIATE),
    "send": int(POST_SEND),
    "read": int(POST_READ),
}
"""Flags of a work request, by the verb of a job of flows."""
_OPCODES: Final[dict[str, tuple[int, int, int, int]]] = {
    "write": (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY),
    "write_with_imm": (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST_IMM, WRITE_ONLY_IMM),
    "send": (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY),
    "read": (READ_RESPONSE_FIRST, READ_RESPONSE_MIDDLE, READ_RESPONSE_LAST, READ_RESPONSE_ONLY),
}
"""Opcodes of the first, a middle, the last and the only packet of a message that carries data."""


class FlowWork(NamedTuple):
    """One flow: WRITE m of `write_bytes` (the last one what is left) goes to pair m modulo their number."""

    flow: int
    source: int
    """NIC that the bytes leave."""
    destination: int
    """NIC that they come to."""
    nic: int
    """NIC that posts: the source, for a READ the destination."""
    host: int
    """That posts."""
    flags: int
    """Flags of what is posted."""
    size_bytes: int
    write_bytes: int
    tx_depth: int
    """Messages that a queue pair has outstanding at most."""
    start_ps: int
    """After the job's start."""
    pairs: tuple[tuple[int, int], ...]
    """Index at the source and at the destination."""
    ideal_ps: int = 0
    """From its post until its last byte is there, alone in the fabric at the rate of the slowest link."""

    def posting(self) -> tuple[int, ...]:
        """The queue pairs of the NIC that posts."""
        return tuple(pair[self.nic != self.source] for pair in self.pairs)

    def last_messages(self) -> tuple[tuple[int, int], ...]:
        """(index, message number) at the destination of the last WRITE on each pair that carries any."""
        writes = -(-self.size_bytes // self.write_bytes)
        count = len(self.pairs)
        return tuple(
            (index, (writes - place + count - 1) // count - 1)
            for place, (_, index) in enumerate(self.pairs)
            if place < writes
        )


class ClientsWork(NamedTuple):
    """The clients of storage that a job has on one host."""

    host: int
    nic: int
    first: int
    """Number of its first client in the job."""
    scripts: tuple[ClientScript, ...]
    """The script of each client; the servers of requests are places in `connections`."""
    requests: list[Request]
    """The requests of all clients, by number."""
    connections: tuple[tuple[int, int, int], ...]
    """The server's NIC, and the queue pair's index here and there."""
    copies: tuple[Copying, ...] = ()
    """What they begin with, where servers are of a known build."""
    spares: tuple[int, ...] = ()
    """By client, the place in `connections` of a server that it can write to if another is gone, or -1."""


@dataclass(frozen=True)
class JobWork:
    """One job: a script, flows, or clients of storage."""

    job: int
    name: str
    start_ps: int
    """NEVER_PS if its operations wait to be submitted, or if it does not run."""
    ranks: int
    operations: tuple[Operation, ...] = ()
    flows: tuple[FlowWork, ...] = ()
    clients: tuple[ClientsWork, ...] = ()
    """By host."""
    manners: Manners | None = None
    """How clients behave."""
    enabled: bool = True
    wired: WiredJob | None = None
    """Its ranks' scripts as the library has wired them; None for flows and clients."""
    collectives: tuple[CollectivePlan, ...] = ()
    """What the results list of its operations, each in turn."""
    calls: tuple[CallPlan, ...] = ()
    """What the results list of its steps."""
    facts: JobFacts = NO_FACTS
    """What the results need to know of its kind."""
    owned: bool = False
    """Whether an operator begins it, and the scenario does not have it."""
    again: bool = False
    """Whether its one operation may be begun again and again: a checkpoint that an operator saves."""
    quorum_ps: int = 0
    """How long it waits for reports after a failure, where it goes on without whom it loses."""
    watchdog_ps: int = 0
    """After what time its ranks give a call up; 0 for never."""
    rejoins: bool = False
    """Whether ranks that come back join again."""

    def memberships(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that can take over from one another; the first ones begin."""
        return () if self.wired is None else tuple(self.wired.script.memberships)

    def members(self) -> tuple[int, ...]:
        """The ranks that begin, where others can take over; else none."""
        return () if self.wired is None else self.wired.members()

    @cached_property
    def clients_of(self) -> Mapping[int, Sequence[ClientsWork]]:
        """By host that has clients."""
        found: dict[int, list[ClientsWork]] = {}
        for work in self.clients:
            found.setdefault(work.host, []).append(work)
        return found

    @cached_property
    def flows_of(self) -> Mapping[int, Sequence[FlowWork]]:
        """By host that begins flows."""
        found: dict[int, list[FlowWork]] = {}
        for flow in self.flows:
            found.setdefault(flow.host, []).append(flow)
        return found

    def hosts(self) -> tuple[int, ...]:
        """The hosts that run a part of it, ascending."""
        nodes = () if self.wired is None else self.wired.nodes
        hosts = [*nodes, *(flow.host for flow in self.flows), *(one.host for one in self.clients)]
        return tuple(sorted(dict.fromkeys(hosts)))


NO_INSIDE: Final[Mapping[int, tuple[NvlinkPlan, ...]]] = MappingProxyType({})


class Plan(NamedTuple):
    """Everything a scenario asks of its hosts and NICs."""

    pairs: Mapping[int, Sequence[QpPlan]]
    """The queue pairs of every NIC, by index."""
    jobs: tuple[JobWork, ...]
    inside: Mapping[int, tuple[NvlinkPlan, ...]] = NO_INSIDE
    """The NVLink pairs of GPUs, by index."""
    operator: OperatorPlan | None = None
    """Who tends a job."""
    over_ports: bool = False
    """Whether each queue pair sends by all ports of its NIC."""

    def wired(self) -> list[WiredJob]:
        """The jobs that the library has wired."""
        return [work.wired for work in self.jobs if work.wired is not None]

    def outlines(self, repeat: bool = False) -> list[JobOutline]:
        """What the controller needs to know; with `repeat`, jobs begin again when they are done."""
        return [
            JobOutline(
                job=work.job,
                operations=FOR_EVER if repeat or work.again else len(work.operations) or 1,
                period=(len(work.operations) or 1) if repeat or work.again else 0,
                hosts=work.hosts(),
                reports=work.ranks if work.operations else len(work.hosts()),
                listed=bool(work.operations),
                submitted=work.enabled and work.start_ps == NEVER_PS,
                enabled=work.enabled,
                spared=() if work.wired is None else work.wired.script.spared,
                memberships=work.memberships() if work.quorum_ps else (),
                quorum_ps=work.quorum_ps,
                patience_ps=work.quorum_ps + work.watchdog_ps,
                rejoins=work.rejoins,
            )
            for work in self.jobs
        ]


def make_plan(scenario: Scenario, topology: Topology, resolved: Resolved) -> Plan:
    """The plan of a scenario whose ranks and flows are `resolved` on its topology."""
    book = ConnectionBook()
    jobs: list[JobWork] = []
    for number, job in enumerate(resolved.jobs):
        work = job.work
        if isinstance(work, Scripts):
            jobs.append(_scripted(scenario, topology, book, number, job, work))
        elif isinstance(work, Clients):
            jobs.append(_storage(scenario, topology, book, number, job, work))
        else:
            jobs.append(_flows(scenario, topology, book, number, job, work))
    kind = scenario.transport.udp_source_port
    searched = source_port_of(scenario, topology) if kind == "disjoint" else None
    pairs = book.numbered(scenario.seed, topology, searched, by_peer=kind == "per_pair")
    listed = len(scenario.jobs)
    works = tuple(replace(work, owned=work.job >= listed) for work in jobs)
    over_ports = not scenario.transport.is_rc
    return Plan(pairs, works, book.inside(), resolved.operator, over_ports)


def source_port_of(scenario: Scenario, topology: Topology) -> SourcePort:
    """How queue pairs come to their UDP source ports."""
    kind, seed = scenario.transport.udp_source_port, scenario.seed
    if kind == "disjoint":
        return DisjointPaths(scenario, topology).source_port
    by_peer = kind == "per_pair"
    return lambda nic, index, _, peer, *__: assign_udp_source(seed, nic, peer if by_peer else index)


def _scripted(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    number: int,
    job: ResolvedJob,
    work: Scripts,
) -> JobWork:
    script = work.plan
    if scenario.gpu.speed_spread:
        script = at_own_speeds(script, job.gpus, scenario.seed, scenario.gpu.speed_spread)
    nodes = tuple(topology.host_of(gpu) for gpu in job.gpus)
    settings = settings_of(scenario, topology, job.section)
    schedules = schedules_of(settings, topology, script, job.gpus)
    # A user's own algorithm is proved before anything is wired: a wrong one would hang, or sum wrongly.
    for label, operation, fault in own_faults(script, schedules, KeptProofs()):
        place = "" if label == UNLABELLED else f".operations[{label}]"
        reason = f"{operation.algorithm} is no {operation.op} of {operation.size_bytes} B: {fault}"
        accepted = "an algorithm after which everybody has every contribution once"
        key = f"jobs[{number}].workload{place}.algorithm"
        raise ScenarioError([Problem(scenario.name, 0, key, reason, accepted)])
    recover = scenario.jobs[job.section].recover if job.role == "" else None
    sides = connect_groups(settings, topology, book, number, job.gpus, script.groups, schedules)
    wired = WiredJob(
        job=number,
        start_ps=job.start_ps,
        settings=settings,
        script=script,
        gpus=job.gpus,
        nodes=nodes,
        schedules=schedules,
        sides=tuple(tuple(one) for one in sides),
        # Self-checks and checkpoints of an operator run in processes of their own, which are all there; and
        # self-checks need no store, since the operator itself launches them.
        absent=tuple(scenario.jobs[job.section].absent) if job.role in ("", TRAINS) else (),
        meetings=0
        if job.role == TESTS
        else scenario.ncclx.init.rounds(len(job.gpus) - len(recover.spares if recover else ())),
        seed=scenario.seed,
        payload_seed=scenario.seed if work.reduces and scenario.payload == "real" else None,
        halts=job.role != "",
    )
    return JobWork(
        job=number,
        name=job.name,
        start_ps=job.start_ps,
        ranks=len(job.gpus),
        operations=work.operations,
        enabled=job.enabled,
        wired=wired,
        collectives=work.collectives,
        calls=work.calls,
        facts=work.facts,
        quorum_ps=0 if recover is None else recover.wait_ps or scenario.ncclx.watchdog_ps or 0,
        watchdog_ps=scenario.ncclx.watchdog_ps or 0,
        rejoins=recover is not None and recover.rejoin,
    )


class IdealTimes:
    """How long flows take that are alone in the fabric: what slowdown is measured by."""

    def __init__(self, scenario: Scenario, topology: Topology, verb: str) -> None:
        self._topology = topology
        self._delays = _delays(scenario)._replace(elsewhere=_elsewhere(scenario, topology))
        self._mtu_bytes = scenario.transport.mtu_bytes
        self._paths = not scenario.transport.is_rc
        self._size = pathed_size if self._paths else wire_size
        self._verb = verb
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._wire_bytes = cache(self._on_wire)
        """Thousands of flows are of one size."""

    def of(self, source: int, destination: int, size_bytes: int, write_bytes: int) -> int:
        """From the post until the last byte is there."""
        key = source, destination, size_bytes, write_bytes
        if key not in self._known:
            poster = destination if self._verb == "read" else source
            whole = posted_ps(self._delays, self._topology, poster)
            if self._verb == "read":
                asking = int(wire_size(int(READ_REQUEST), 0))
                whole += crossing_ps(self._delays, self._topology, destination, source, asking, asking)
            wire_bytes, largest_bytes = self._wire_bytes(size_bytes, write_bytes)
            if self._paths:  # each port carries its part
                ports = [len(self._topology.ports(end)) - 1 for end in (source, destination)]
                wire_bytes = max(-(-wire_bytes // min(ports)), largest_bytes)
            whole += crossing_ps(self._delays, self._topology, source, destination, wire_bytes, largest_bytes)
            self._known[key] = whole
        return self._known[key]

    def _on_wire(self, size_bytes: int, write_bytes: int) -> tuple[int, int]:
        """Bytes of all packets, and of the largest."""
        messages, rest = divmod(size_bytes, write_bytes)
        total, largest = 0, 0
        for message, count in ((write_bytes, messages), (rest, int(rest > 0 or not messages))):
            if count:
                one, most = self._message(message)
                total += count * one
                largest = max(largest, most)
        return total, largest

    def _message(self, size_bytes: int) -> tuple[int, int]:
        """What the packets of a message take on a wire, and the largest of them."""
        first, middle, last, only = _OPCODES[self._verb]
        count = max(-(-size_bytes // self._mtu_bytes), 1)
        rest = size_bytes - (count - 1) * self._mtu_bytes
        if count == 1:
            alone = int(self._size(only, rest))
            return alone, alone
        begin, end = int(self._size(first, self._mtu_bytes)), int(self._size(last, rest))
        return begin + (count - 2) * int(self._size(middle, self._mtu_bytes)) + end, max(begin, end)


def _flows(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    number: int,
    job: ResolvedJob,
    work: Flows,
) -> JobWork:
    works: list[FlowWork] = []
    ideal = IdealTimes(scenario, topology, work.verb)
    if work.front_end:
        ends = [front_end_nic(topology, topology.host_of(gpu)) for gpu in job.gpus]
    else:
        ends = [topology.nics_of_gpu(gpu)[0] for gpu in job.gpus]
    for index, (flow, write_bytes) in enumerate(zip(work.flows, work.message_bytes, strict=True)):
        source, destination = ends[flow.src], ends[flow.dst]
        priority = data_priority(scenario, job.section) if flow.priority is None else flow.priority
        pairs = tuple(
            book.connect(source, destination, priority, number, log_deliveries=True) for _ in range(work.qps)
        )
        nic = destination if work.verb == "read" else source  # a READ is posted by who wants the bytes
        works.append(
            FlowWork(
                flow=index,
                source=source,
                destination=destination,
                nic=nic,
                host=topology.host_of(nic),
                flags=FLAGS[work.verb],
                size_bytes=flow.size_bytes,
                write_bytes=write_bytes,
                tx_depth=work.tx_depth,
                start_ps=flow.start_ps,
                pairs=pairs,
                ideal_ps=ideal.of(source, destination, flow.size_bytes, write_bytes),
            )
        )
    return JobWork(
        job=number,
        name=job.name,
        start_ps=job.start_ps,
        ranks=len(job.gpus),
        flows=tuple(works),
        enabled=job.enabled,
        facts=work.facts,
    )


def _storage(
    scenario: Scenario,
    topology: Topology,
    book: ConnectionBook,
    number: int,
    job: ResolvedJob,
    work: Clients,
) -> JobWork:
    """The clients of a job and their connections: one of each client to each server that it asks."""
    priority = data_priority(scenario, job.section)
    servers = [front_end_nic(topology, one) for one in (*storage_hosts(topology), *metadata_hosts(topology))]
    by_host: dict[int, list[ClientScript]] = {}
    for host, script in work.scripts:
        if script:
            by_host.setdefault(host, []).append(script)
    works: list[ClientsWork] = []
    first = 0
    for host, scripts in by_host.items():
        nic = front_end_nic(topology, host)
        connections: list[tuple[int, int, int]] = []
        placed: list[ClientScript] = []
        spares: list[int] = []
        for script in scripts:
            places: dict[int, int] = {}
            its = flattened((script,))
            spare = _spare(its, scenario.frontend.storage.servers, work.chunks)
            for one in [request.server for request in its] + [spare] * (spare >= 0):
                if one not in places:
                    places[one] = len(connections)
                    connections.append((servers[one], *book.connect(nic, servers[one], priority, number)))
            placed.append(_placed(script, places))
            spares.append(places.get(spare, -1))
        done = tuple(placed)
        copies = tuple(one for one in work.copies if topology.host_of(one.gpu) == host)
        works.append(
            ClientsWork(host, nic, first, done, flattened(done), tuple(connections), copies, tuple(spares))
        )
        first += len(scripts)
    return JobWork(
        job=number,
        name=job.name,
        start_ps=job.start_ps,
        ranks=len(job.gpus),
        clients=tuple(works),
        manners=work.manners,
        facts=work.facts,
        enabled=job.enabled,
        again=job.role == SAVES,
    )


def _spare(asked: Sequence[Request], servers: int, chunks: int) -> int:
    """The storage server that a client is connected to beside those it writes to, if these are no more than a
    block has chunks; -1 for none.
    """
    written = {one.server for one in asked if one.up_bytes}
    if not written or len(written) > chunks:
        return -1
    last = max(written)
    others = [(last + more) % servers for more in range(1, servers)]
    return next((one for one in others if one not in written), -1)


def _placed(script: ClientScript, places: dict[int, int]) -> ClientScript:
    """A script whose requests name places instead of servers."""
    return tuple(
        Phase(
            tuple(
                tuple(tuple(one._replace(server=places[one.server]) for one in group) for group in chain)
                for chain in phase.chains
            ),
            phase.earliest_ps,
        )
        for phase in script
    )
