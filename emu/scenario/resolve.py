"""Resolution: what a scenario's words mean on its fabric.

`build_topology` builds the fabric; `resolve` says which GPU each rank is, which flows are posted and which
links change state when. Both raise ScenarioError with every problem, named by key; who has the scenario's
`Source` adds file and line.

Ranks of a rack: GPUs of servers in the same rack; where the fabric names no racks, GPUs whose NICs hang on
the same switches.

Links and devices that sections name are looked up on the fabric that was built; what is not there, or is
something else, is a problem of its key.

What a job does is its workload's own affair (`emu.scenario.workloads`): a kind fits itself to its site.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from actors.control.operator import OperatorPlan
from actors.fabric.model import FABRIC, HOST, Role, Topology, TopologyError, prefix_of
from actors.fabric.model import Fault as Flaw
from actors.kernel.event import NEVER_PS
from actors.ncclx.operations import TO_ALL
from actors.ncclx.protocols import PROTOCOLS
from actors.ncclx.script import ScriptPlan
from actors.ncclx.tuner import Rates, Shape, TunerSettings, pick, shape_of
from emu.base.errors import Problem, ScenarioError
from emu.base.records import Location
from emu.base.spelling import shown_location
from emu.scenario.fault_schedule import scripted
from emu.scenario.faults.events import Fault, LinkChange, LinkFault, link_changes
from emu.scenario.operated_jobs import TRAINS, free_hosts, objections, operated
from emu.scenario.schema import Scenario
from emu.scenario.section import Refusal
from emu.scenario.sections.capture import PORTS_ACCEPTED, nics_named, ports_named
from emu.scenario.sections.flow_trace import TRACES_ACCEPTED
from emu.scenario.sections.graph import AUTO
from emu.scenario.sections.ncclx import TunerRowSection
from emu.scenario.sections.overrides import is_pattern
from emu.scenario.sections.switch import StaticRoute
from emu.scenario.workloads.jobs import ALONE, TWO, JobSection
from emu.scenario.workloads.recover import RecoverSection
from emu.scenario.workloads.workload import Clients, Flows, MisfitError, Scripts, Site
from emu.scenario.yaml.values import names
from emu.topology.fabrics import build, swapped, with_domains
from emu.topology.front_end import with_front_end
from emu.topology.server_presets import SERVER_PRESETS, gpu_link_bps, misfits
from emu.workload.flows import Flow
from emu.workload.nccl_tuning import NCCL_ALGORITHMS, Choice, Processors, nccl_choice
from emu.workload.ranks import PlacementError, allocate, place_ranks


def unknown_names(scenario: Scenario, topology: Topology) -> Iterator[Problem]:
    """Links and devices that sections name and the fabric does not have."""
    for at, one in enumerate(scenario.routing.link_weights):
        yield from _flaws(scenario, ("routing", "link_weights", at, "link"), topology.links_named, one.link)
    yield from _wrong_peers(scenario, topology)
    yield from _unmatched(scenario, topology)
    yield from _uncaptured(scenario, topology)
    yield from _untraced(scenario, topology)
    for index, route in enumerate(scenario.switch.static_routes):
        yield from _wrong_route(scenario, topology, index, route)


def _uncaptured(scenario: Scenario, topology: Topology) -> Iterator[Problem]:
    """Names and patterns of captures that stand for no port, or no NIC."""
    for place, one in enumerate(scenario.run.capture):
        here: Location = ("run", "capture", place)
        for at, pattern in enumerate(one.ports):
            if not any(ports_named(topology, (pattern,))):
                spot = (*here, "ports") if len(one.ports) == 1 else (*here, "ports", at)
                yield problem_at(scenario, spot, f"{pattern!r} is no fabric port", PORTS_ACCEPTED)
        for at, pattern in enumerate(one.filter.nics or ()):
            if not nics_named(topology, (pattern,)):
                spot = (
                    (*here, "filter", "nics", at)
                    if len(one.filter.nics or ()) > 1
                    else (*here, "filter", "nics")
                )
                yield from _nobody(scenario, spot, pattern, topology.node_named, "NIC")


def _untraced(scenario: Scenario, topology: Topology) -> Iterator[Problem]:
    """Names and patterns of `run.trace` that stand for no pair of NICs."""
    trace = scenario.run.trace
    patterns = trace.flows or ()
    nics = [topology.nodes[nic].name for nic in topology.nics]
    for at, pattern in enumerate(patterns):
        sources = pattern.partition(":")[0]
        alone = trace.model_copy(update={"flows": (pattern,)})
        if not any(
            alone.follows(source, destination)
            for source in nics
            if names((sources,), source)
            for destination in nics
        ):
            spot = ("run", "trace", "flows") if len(patterns) == 1 else ("run", "trace", "flows", at)
            yield problem_at(scenario, spot, f"{pattern!r} is no NIC, and no pair of NICs", TRACES_ACCEPTED)


def _unmatched(scenario: Scenario, topology: Topology) -> Iterator[Problem]:
    """Overrides for devices that the fabric does not have, and those that together make no section."""
    nodes = topology.nodes
    for place, one in enumerate(scenario.overrides):
        here: Location = ("overrides", place)
        for at, pattern in enumerate(one.devices):
            spot = (*here, "devices") if len(one.devices) == 1 else (*here, "devices", at)
            alone = one.model_copy(update={"devices": (pattern,)})
            if one.link is not None:
                if not any(alone.names_link(link.name) for link in topology.links if link.kind == FABRIC):
                    yield from _nobody(scenario, spot, pattern, topology.links_named, "link")
                continue
            matched = [node for node in nodes if alone.names(node.name)]
            if not matched:
                yield from _nobody(scenario, spot, pattern, topology.node_named, "device")
                continue
            roles = {node.role for node in matched}
            if Role.HOST in roles:
                roles |= {Role.NIC, Role.GPU}
            for section, part in one.parts.items():
                takers = TAKERS[section]
                if section == "switch" and set(part) <= {"pfc"}:
                    takers = (*takers, Role.NIC)
                if roles.isdisjoint(takers):
                    role = matched[0].role.value
                    what = f"{pattern!r} names no {takers[0].value}: {matched[0].name} is a {role}"
                    yield problem_at(scenario, (*here, section), what, f"a {takers[0].value} in `devices`")
    for node in nodes if len(scenario.overrides) > 1 else ():
        try:
            scenario.at(topology, node.number)
        except ScenarioError as error:
            yield from error.problems
            return


TAKERS: Final[Mapping[str, tuple[Role, ...]]] = {
    "switch": (Role.SWITCH,),
    "nic": (Role.NIC,),
    "transport": (Role.NIC,),
    "host": (Role.HOST, Role.NIC, Role.GPU),
    "gpu": (Role.GPU,),
}
"""What has a section."""


def _nobody(
    scenario: Scenario, spot: Location, pattern: str, look_up: Callable[[str], object], what: str
) -> Iterator[Problem]:
    """What is wrong with a name or pattern that fits nothing of the fabric."""
    if is_pattern(pattern):
        yield problem_at(scenario, spot, f"no {what} is like {pattern!r}", f"a {what} of the fabric")
    else:
        yield from _flaws(scenario, spot, look_up, pattern)


def _flaws(
    scenario: Scenario, location: Location, look_up: Callable[[str], object], name: str
) -> Iterator[Problem]:
    """What is wrong with a name, if it cannot be looked up."""
    try:
        look_up(name)
    except TopologyError as error:
        for flaw in error.faults:
            yield of_flaw(scenario, location, flaw)


def _wrong_role(
    scenario: Scenario, topology: Topology, location: Location, name: str, role: Role
) -> Iterator[Problem]:
    """What is wrong with a name that should be a device of this role."""
    unknown = list(_flaws(scenario, location, topology.node_named, name))
    yield from unknown
    if not unknown:
        node = topology.node_named(name)
        if node.role is not role:
            yield problem_at(scenario, location, f"{name} is a {node.role.value}", f"a {role.value}")


def _wrong_peers(scenario: Scenario, topology: Topology) -> Iterator[Problem]:
    """Peers of half of PFC to which no link of the device leads."""
    parts: list[tuple[Location, Mapping[str, tuple[str, ...]]]] = [((), scenario.switch.pfc.model_dump())]
    for place, one in enumerate(scenario.overrides):
        parts.append((("overrides", place), (one.switch or {}).get("pfc") or {}))
    for base, pfc in parts:
        for key in ("silent_to", "ignores"):
            for at, peer in enumerate(pfc.get(key) or ()):
                if not any(names((peer,), name) for name in _neighbours(scenario, topology, base)):
                    location = (*base, "switch", "pfc", key, at)
                    yield problem_at(scenario, location, f"no link leads to {peer!r}", "a neighbour's name")


def _neighbours(scenario: Scenario, topology: Topology, override: Location) -> set[str]:
    """Who is at the other ends of the links of the devices of an override, or of all."""
    own = scenario.overrides[int(override[1])] if override else None
    ours = [one for one in topology.nodes if own is None or own.names(one.name)]
    ends = [end for one in ours for end in topology.ports(one.number) if end.kind == FABRIC]
    return {topology.nodes[end.peer].name for end in ends}


def _no_link(
    scenario: Scenario, topology: Topology, location: Location, one: str, other: str
) -> Iterator[Problem]:
    """What is wrong with two devices that should be joined by a link of the fabric."""
    peer = topology.node_named(other).number
    ends = topology.ports(topology.node_named(one).number)
    if not any(end.kind == FABRIC and end.peer == peer for end in ends):
        yield problem_at(scenario, location, f"{one} has no link to {other}", f"a neighbour of {one}")


def _wrong_route(scenario: Scenario, topology: Topology, index: int, route: StaticRoute) -> Iterator[Problem]:
    """What of a static route the fabric does not have."""
    base: Location = ("switch", "static_routes", index)
    wrong = list(_wrong_role(scenario, topology, (*base, "switch"), route.switch, Role.SWITCH))
    wrong += _wrong_role(scenario, topology, (*base, "destination"), route.destination, Role.NIC)
    wrong += _flaws(scenario, (*base, "via"), topology.node_named, route.via)
    yield from wrong
    if not wrong:
        yield from _no_link(scenario, topology, (*base, "via"), route.switch, route.via)


def problem_at(scenario: Scenario, location: Location, reason: str, accepted: str) -> Problem:
    """A problem of a key, for who has the scenario's lines."""
    return Problem(scenario.name, 0, shown_location(location), reason, accepted)


def of_flaw(scenario: Scenario, base: Location, flaw: Flaw) -> Problem:
    """What a fabric was refused for, as a problem of the key below `base`."""
    location = (*base, *flaw.path)
    if flaw.accepted.startswith("did you mean"):
        return problem_at(scenario, location, f"{flaw.reason}; {flaw.accepted}", "")
    return problem_at(scenario, location, flaw.reason, flaw.accepted)


class ResolvedJob(NamedTuple):
    """A job on its fabric."""

    name: str
    gpus: tuple[int, ...]
    """The GPU of each rank, as a node number."""
    racks: tuple[int, ...]
    """The rack of each rank."""
    start_ps: int
    """NEVER_PS if its operations wait to be submitted, or if it does not run."""
    enabled: bool
    """Whether it runs."""
    work: Scripts | Flows | Clients
    """What is to be done."""
    section: int = 0
    """The job of the scenario whose knobs it has."""
    role: str = ""
    """What `emu.scenario.operated_jobs` calls a job that an operator begins, or tends."""

    @property
    def flows(self) -> tuple[Flow, ...]:
        """What it posts; nothing, unless its work is flows."""
        return self.work.flows if isinstance(self.work, Flows) else ()

    @property
    def script(self) -> ScriptPlan | None:
        """What its ranks do; None, unless they do it through the library."""
        return self.work.plan if isinstance(self.work, Scripts) else None


class Resolved(NamedTuple):
    """What a scenario means on its fabric."""

    jobs: tuple[ResolvedJob, ...]
    faults: tuple[Fault, ...]
    """Everything that breaks or is mended, by number."""
    operator: OperatorPlan | None = None
    """Who tends a job."""

    @property
    def link_changes(self) -> tuple[LinkChange, ...]:
        """What becomes of links by that, as far as it is scripted; `fault` is the scenario's."""
        holds = [one for one in self.faults if one.down or one.repairs]
        changes = link_changes(
            [
                LinkFault(
                    one.begin_ps,
                    one.repairs,
                    one.avoided if one.repairs else one.down,
                    one.end_ps - one.begin_ps if one.end_ps else 0,
                )
                for one in holds
            ]
        )
        return tuple(change._replace(fault=holds[change.fault].entry) for change in changes)


def build_topology(scenario: Scenario) -> Topology:
    """The fabric of a scenario. Raises ScenarioError if it cannot be built."""
    section = scenario.topology
    host = scenario.host
    try:
        topology = build(
            section.kind,
            **{name: getattr(section, name) for name in type(section).model_fields if name != "kind"},
            host_link_rate_bps=host.link_rate_bps,
            host_link_delay_ps=host.link_delay_ps,
            nic_link_delay_ps=host.delay_to_nic_ps,
        )
        if host.nvlink.enabled:
            topology = with_domains(topology, host.nvlink.rate_bps, host.nvlink.delay_ps)
    except TopologyError as error:
        problems = [of_flaw(scenario, ("topology",), flaw) for flaw in error.faults]
        raise ScenarioError(problems) from error
    if host.node != "none":
        for reason in misfits(SERVER_PRESETS[host.node], topology):
            accepted = f"up to {SERVER_PRESETS[host.node].gpus} GPUs with a NIC each, or none"
            raise ScenarioError([problem_at(scenario, ("host", "node"), f"{host.node}: {reason}", accepted)])
    if scenario.frontend.enabled:
        topology = _beside_front_end(scenario, topology)
    topology = _as_cabled(scenario, _as_overridden(scenario, topology))
    topology.valley_free = scenario.routing.valley_free(tiered=section.kind not in ("graph", "file"))
    return topology


def _beside_front_end(scenario: Scenario, topology: Topology) -> Topology:
    """The fabric with the front-end network beside it."""
    section, host = scenario.frontend, scenario.host
    try:
        return with_front_end(
            topology,
            hosts_per_rsw=section.hosts_per_rsw,
            fsws=section.fsws,
            oversubscription=section.oversubscription,
            link_bps=section.link_bps,
            nic_delay_ps=section.nic_delay_ps,
            fsw_delay_ps=section.fsw_delay_ps,
            storage_servers=section.storage.servers,
            metadata_servers=section.metadata.servers,
            storage_link_bps=section.storage.link_bps,
            host_link_rate_bps=host.link_rate_bps,
            nic_link_delay_ps=host.delay_to_nic_ps,
        )
    except TopologyError as error:
        raise ScenarioError([of_flaw(scenario, ("frontend",), flaw) for flaw in error.faults]) from error


def _as_overridden(scenario: Scenario, topology: Topology) -> Topology:
    """The fabric with the rates and delays of links that `link` and overrides give them."""
    keys = "host.link_rate", "host.link_delay", "host.nic_link_delay"
    by_host = any(one.has(key) for one in scenario.overrides for key in keys)
    by_link = scenario.link.rate_bps is not None or scenario.link.delay_ps is not None
    by_link = by_link or any(one.link for one in scenario.overrides)
    if not by_host and not by_link:
        return topology
    links = list(topology.links)
    for at, link in enumerate(links):
        rate_bps, delay_ps = link.rate_bps, link.delay_ps
        if link.kind == FABRIC:
            own = scenario.link_at(topology, at)
            rate_bps, delay_ps = own.rate_bps or rate_bps, own.delay_ps or delay_ps
        elif link.kind == HOST:
            inner = link.b if topology.nodes[link.a].role is Role.HOST else link.a
            host = scenario.at(topology, inner).host
            rate_bps = host.link_rate_bps
            at_nic = topology.nodes[inner].role is Role.NIC
            delay_ps = host.delay_to_nic_ps if at_nic else host.link_delay_ps
        links[at] = link._replace(rate_bps=rate_bps, delay_ps=delay_ps)
    return Topology(topology.nodes, links, topology.kind)


def _as_cabled(scenario: Scenario, topology: Topology) -> Topology:
    """The fabric with the cables swapped that faults say were."""
    for index, fault in enumerate(scenario.faults):
        try:
            links = fault.swapped_links(topology)
            if links is not None:
                topology = swapped(topology, *links)
        except TopologyError as error:
            problems = [of_flaw(scenario, ("faults", index, "target"), flaw) for flaw in error.faults]
            raise ScenarioError(problems) from error
    return topology


def resolve(scenario: Scenario, topology: Topology) -> Resolved:
    """Ranks, flows and link changes. Raises ScenarioError with every problem found."""
    problems: list[Problem] = []
    racks = _racks(topology)
    jobs: list[ResolvedJob] = []
    taken = _listed(scenario, len(topology.gpus))
    for index, job in enumerate(scenario.jobs):
        try:
            jobs.append(_job(scenario, index, job, topology, racks, taken))
        except ScenarioError as error:
            problems.extend(error.problems)
    faults: tuple[Fault, ...] = ()
    try:
        faults = scripted(scenario, topology)
    except ScenarioError as error:
        problems.extend(error.problems)
    problems.extend(unknown_names(scenario, topology))
    if problems:
        raise ScenarioError(problems)
    if scenario.operator is None:
        return Resolved(tuple(jobs), faults)
    return Resolved(*_with_operator(scenario, topology, racks, jobs, faults))


def _with_operator(
    scenario: Scenario,
    topology: Topology,
    racks: list[int],
    jobs: list[ResolvedJob],
    faults: tuple[Fault, ...],
) -> tuple[tuple[ResolvedJob, ...], tuple[Fault, ...], OperatorPlan]:
    """The jobs, and those that an operator may begin. Raises ScenarioError."""
    from emu.scenario.workloads.storage import MOST_REQUESTS, memory_refusal  # noqa: PLC0415 - kinds are loaded when they are asked for

    assert scenario.operator is not None
    index = [job.name for job in jobs].index(scenario.operator.job)
    tended = jobs[index]
    free = free_hosts(topology, [gpu for job in jobs for gpu in job.gpus])
    refusals = list(objections(scenario, len(free)))
    if refusals:
        raise ScenarioError([problem_at(scenario, *one) for one in refusals])
    if scenario.operator.checkpoint is not None:
        size_bytes = scenario.operator.checkpoint.size_bytes
        servers = [topology.host_of(gpu) for gpu in tended.gpus]
        refusal = memory_refusal(scenario, topology, servers, size_bytes)
        if refusal is not None:
            raise ScenarioError([problem_at(scenario, ("operator", "checkpoint", "size"), *refusal)])
    assert isinstance(tended.work, Scripts), "the schema lets an operator tend nothing else"
    made = operated(scenario, topology, index, tended.gpus, free, len(tended.work.operations))
    if isinstance(made, Refusal):
        raise ScenarioError([problem_at(scenario, *made)])
    requests = sum(one.requests for one in made.jobs)
    if requests > MOST_REQUESTS:
        reason = f"about {requests} requests of checkpoints, those of every placement counted"
        accepted = f"at most {MOST_REQUESTS}: larger blocks, smaller parts, fewer restarts or spares"
        raise ScenarioError([problem_at(scenario, ("operator", "checkpoint", "size"), reason, accepted)])
    jobs[index] = tended._replace(role=TRAINS)
    for one in made.jobs:
        if one.flows is None:
            job = _job(scenario, index, one.section, topology, racks, [])
        else:
            assert isinstance(one.section.ranks, tuple)
            gpus = tuple(topology.gpus[gpu] for gpu in one.section.ranks)
            places = tuple(racks[gpu] for gpu in one.section.ranks)
            job = ResolvedJob(one.section.name, gpus, places, NEVER_PS, tended.enabled, one.flows)
        jobs.append(job._replace(section=index, role=one.role))
    return tuple(jobs), faults, made.plan


def _racks(topology: Topology) -> list[int]:
    """A rack for each GPU, in rank order; below zero where it stands for a set of switches."""
    racks = []
    for gpu in topology.gpus:
        rack = topology.nodes[gpu].rack
        racks.append(rack if rack >= 0 else -1 - prefix_of(topology.address_of(topology.nics_of_gpu(gpu)[0])))
    return racks


def _listed(scenario: Scenario, gpus: int) -> list[bool]:
    """Which GPUs jobs list."""
    taken = [False] * gpus
    for job in scenario.jobs:
        for gpu in job.ranks if isinstance(job.ranks, tuple) else ():
            if gpu < gpus:
                taken[gpu] = True
    return taken


def _job(
    scenario: Scenario,
    index: int,
    job: JobSection,
    topology: Topology,
    racks: list[int],
    taken: list[bool],
) -> ResolvedJob:
    """A job on its fabric; GPUs that it is given are `taken` from then on."""
    try:
        ranks = job.ranks
        if job.placement != "numbered":
            assert isinstance(ranks, int), ranks
            ranks = allocate(topology, racks, taken, ranks, job.placement)
            for gpu in ranks:
                taken[gpu] = True
        chosen = place_ranks(racks, ranks, job.order)
    except PlacementError as error:
        problem = problem_at(scenario, ("jobs", index, error.key), error.reason, error.accepted)
        raise ScenarioError([problem]) from error
    gpus = tuple(topology.gpus[gpu] for gpu in chosen)
    problems = list(_beside(scenario, index, len(gpus)))
    if problems:
        raise ScenarioError(problems)

    def picks(groups: Sequence[Sequence[int]], op: str, size_bytes: int, algorithm: str) -> Choice:
        placed = [[gpus[rank] for rank in group] for group in groups]
        return tuned(scenario, index, topology, placed, op, size_bytes, algorithm)

    site = Site(
        environment=scenario,
        beside=tuple(one.workload for one in scenario.jobs),
        topology=topology,
        job=index,
        gpus=gpus,
        racks=tuple(racks[gpu] for gpu in chosen),
        picks=picks,
        every_rank=scenario.jobs[index].ranks == "all",
        mistaken=None if job.mismatch is None else (job.mismatch.rank, job.mismatch.size_bytes),
        spared=job.shrink,
        recover=job.recover,
    )
    try:
        work = job.workload.fit(site)
    except MisfitError as error:
        raise ScenarioError([problem_at(scenario, *one) for one in error.refusals]) from error
    start_ps = NEVER_PS if job.attended or not job.enabled else job.start_ps
    return ResolvedJob(job.name, gpus, site.racks, start_ps, job.enabled, work, index)


def tuned(
    scenario: Scenario,
    job: int,
    topology: Topology,
    groups: Sequence[Sequence[int]],
    op: str,
    size_bytes: int,
    algorithm: str,
) -> Choice:
    """How a collective is done among groups of GPUs: by which algorithm with `auto`, protocol and channels.

    A NIC's rate is that of its port, or of the slowest PCIe where that is less; NVLink's that of the fabric;
    unless the tuner is given others.
    """
    ncclx, tuner = scenario.ncclx, scenario.ncclx.tuner
    by_table = tuner.model == "nccl"
    whole = not scenario.jobs[job].recover and not scenario.jobs[job].shrink
    if algorithm == AUTO and by_table and ncclx.pxn and whole and op in TO_ALL:
        counts = [Counter(topology.host_of(gpu) for gpu in gpus).values() for gpus in groups]
        linked = all(topology.nvlink_end(gpu) is not None for gpus in groups for gpu in gpus)
        if linked and all(len(one) > 1 and min(one) == max(one) > 1 for one in counts):
            return Choice("pxn")
    if algorithm != AUTO and not (by_table and algorithm in NCCL_ALGORITHMS):
        return Choice(algorithm)
    turned = ncclx.ring_order != "same"
    shapes = [shape_of(topology, gpus, ncclx.channels or 0, turned=turned) for gpus in groups]
    nics = [nic for gpus in groups for gpu in gpus for nic in topology.nics_of_gpu(gpu)]
    nic_bps = tuner.nic_rate_bps or topology.ports(nics[0])[0].rate_bps
    for nic in nics if tuner.nic_rate_bps is None else ():
        host = scenario.at(topology, nic).host
        if host.pcie.enabled:
            nic_bps = min(nic_bps, host.pcie.rate_bps)
        nic_bps = min(nic_bps, gpu_link_bps(host.node, topology.nodes[nic]) or nic_bps)
    end = topology.nvlink_end(groups[0][0])
    rates = Rates(nic_bps, tuner.nvlink_rate_bps or (nic_bps if end is None else end.rate_bps))
    known = TunerSettings(tuner.base_ps, tuner.hop_ps, tuner.hop_inside_ps, tuner.among)
    if by_table:
        largest = max(shapes, key=lambda shape: shape.ranks)
        if min(shape.inside for shape in shapes) == 1:
            largest = largest._replace(inside=1)
        among = tuner.among if algorithm == AUTO else (algorithm,)
        protocols = tuple(PROTOCOLS) if ncclx.protocol == "auto" else (ncclx.protocol,)
        processors = Processors(tuner.gpu, tuner.cpu)
        ruled = _by_rows(
            tuner.rows, op, largest, size_bytes, rates, end is not None, among, protocols, processors
        )
        if ruled is not None:
            return ruled
        for names in (among, NCCL_ALGORITHMS) if algorithm == AUTO else (among,):  # NCCL falls back, too
            chosen = nccl_choice(
                op, largest, size_bytes, rates, end is not None, names, protocols, processors
            )
            if chosen is not None:
                return chosen
    return Choice(pick(known, shapes, op, size_bytes, rates) if algorithm == AUTO else algorithm)


def _by_rows(
    rows: Sequence[TunerRowSection],
    op: str,
    shape: Shape,
    size_bytes: int,
    rates: Rates,
    nvls: bool,
    among: Sequence[str],
    protocols: Sequence[str],
    processors: Processors,
) -> Choice | None:
    """What the first row says that the call matches and that can be done, as NCCL's example plug-in
    chooses."""
    for row in rows:
        if row.op != op or not row.at_least_bytes <= size_bytes <= row.at_most_bytes:
            continue
        if row.servers not in (None, shape.servers) or row.ranks not in (None, shape.ranks):
            continue
        names = among if row.algorithm is None else tuple(one for one in among if one == row.algorithm)
        own = protocols if row.protocol is None else tuple(one for one in protocols if one == row.protocol)
        chosen = nccl_choice(op, shape, size_bytes, rates, nvls, names, own, processors)
        if chosen is None:
            continue  # as a combination that NCCL's own table marks as impossible
        return chosen if row.channels is None else chosen._replace(channels=min(row.channels, shape.channels))
    return None


def _beside(scenario: Scenario, index: int, ranks: int) -> Iterator[Problem]:
    """Ranks that a job lacks, and something is said of."""
    job = scenario.jobs[index]
    named: list[tuple[Location, int]] = [(("absent", at), rank) for at, rank in enumerate(job.absent)]
    if ranks < 2 and job.workload.talks:
        yield problem_at(scenario, ("jobs", index, "ranks"), ALONE, TWO)
    named += [(("shrink", at), rank) for at, rank in enumerate(job.shrink)]
    spares = () if job.recover is None else job.recover.spares
    named += [(("recover", "spares", at), rank) for at, rank in enumerate(spares)]
    if job.mismatch is not None:
        named.append((("mismatch", "rank"), job.mismatch.rank))
    for location, rank in named:
        if rank >= ranks:
            reason = f"there is no rank {rank} among {ranks}"
            yield problem_at(scenario, ("jobs", index, *location), reason, f"0 to {ranks - 1}")
    if job.shrink:
        if ranks - len(set(job.shrink)) < 2:
            reason = f"leaves fewer than 2 of {ranks} ranks"
            yield problem_at(scenario, ("jobs", index, "shrink"), reason, "at least 2 ranks beside those")
        yield from _shrinking(scenario, index, "shrink")
    if job.recover is not None:
        yield from _recovering(scenario, index, ranks, job.recover)


def _recovering(scenario: Scenario, index: int, ranks: int, recover: RecoverSection) -> Iterator[Problem]:
    """Why a job cannot go on without ranks that nobody names beforehand."""
    where = ("jobs", index, "recover")
    yield from _shrinking(scenario, index, "recover")
    if ranks < 3:
        yield problem_at(scenario, where, f"too few to lose one of {ranks}", "a job of at least 3 ranks")
    elif ranks - len(set(recover.spares)) < 3:
        reason = f"leaves fewer than 3 of {ranks} ranks to begin"
        yield problem_at(scenario, (*where, "spares"), reason, "at least 3 ranks beside the spares")
    if recover.wait_ps is None and scenario.ncclx.watchdog_ps is None:
        accepted = "`wait`, or `ncclx.watchdog`"
        yield problem_at(scenario, (*where, "wait"), "nobody says how long reports may take", accepted)


def _shrinking(scenario: Scenario, index: int, key: str) -> Iterator[Problem]:
    """Why a job cannot go on without some of its ranks."""
    ncclx = scenario.ncclx
    where = ("jobs", index, key)
    if scenario.payload == "real":
        accepted = "with `payload: sizes`"
        yield problem_at(scenario, where, "what is left would have another result than all have", accepted)
    if ncclx.sms_per_channel:
        accepted = "with `ncclx.sms_per_channel: 0`"
        yield problem_at(scenario, where, "a communicator that is aborted keeps its SMs", accepted)
    if ncclx.qp_policy == "least_loaded":
        accepted = "with another `ncclx.qp_policy`"
        yield problem_at(scenario, where, "bytes of aborted connections would count for ever", accepted)
    if ncclx.watchdog_ps is None and scenario.transport.timeout == 0:
        accepted = "`ncclx.watchdog`, or a `transport.timeout`"
        yield problem_at(scenario, where, "nothing ends an operation that a lost rank stops", accepted)
