"""What do a scenario's words mean on its fabric?

`build_topology` builds the fabric; `resolve` says which GPU each rank is, which flows are posted and which
links change state when. Both raise ScenarioError with every problem, named by key; who has the scenario's
`Source` adds file and line.

Ranks of a rack: GPUs of servers in the same rack; where the fabric names no racks, GPUs whose NICs hang on
the same switches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from actors.fabric.model import Topology, TopologyError, prefix_of
from actors.kernel.event import NEVER_PS
from actors.ncclx.collectives import BLOCKWISE, BY_SERVER
from actors.ncclx.script import ScriptPlan
from emu.errors import Problem, ScenarioError
from emu.scenario.faults.events import Fault
from emu.scenario.faults.link_faults import Miscabling
from emu.scenario.faults.schedule import scripted
from emu.scenario.faults.timeline import LinkChange, LinkFault, link_changes
from emu.scenario.named import of_flaw, problem_at, unknown_names
from emu.scenario.schema import Scenario
from emu.scenario.scripts import planned
from emu.scenario.sections.flows import (
    LONGEST_MESSAGE_BYTES,
    FlowList,
    FlowsWorkload,
    Incast,
    Permutation,
    Poisson,
)
from emu.scenario.sections.jobs import CollectiveWorkload, JobSection
from emu.scenario.sections.section import Location, Refusal, Section
from emu.scenario.tuner import pick
from emu.topology.domains import with_domains
from emu.topology.generators.table import build
from emu.topology.swapped_cables import swapped
from emu.workload.flows import Flow, PatternError, check_ranks, incast, permutation, poisson
from emu.workload.ranks import PlacementError, allocate, place_ranks


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
    workload: Section
    """As the scenario has it."""
    flows: tuple[Flow, ...]
    """What a `flows` workload posts; empty for others."""
    script: ScriptPlan | None = None
    """What the ranks do; None for flows."""


class Resolved(NamedTuple):
    """What a scenario means on its fabric."""

    jobs: tuple[ResolvedJob, ...]
    faults: tuple[Fault, ...]
    """Everything that breaks or is mended, by number."""

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
        )
        if host.nvlink.enabled:
            topology = with_domains(topology, host.nvlink.rate_bps, host.nvlink.delay_ps)
    except TopologyError as error:
        problems = [of_flaw(scenario, ("topology",), flaw) for flaw in error.faults]
        raise ScenarioError(problems) from error
    return _as_cabled(scenario, topology)


def _as_cabled(scenario: Scenario, topology: Topology) -> Topology:
    """The fabric with the cables swapped that faults say were."""
    for index, fault in enumerate(scenario.faults):
        if isinstance(fault, Miscabling):
            try:
                topology = swapped(topology, *fault.pair(topology))
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
    return Resolved(tuple(jobs), faults)


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
    rank_racks = tuple(racks[gpu] for gpu in chosen)
    gpus = tuple(topology.gpus[gpu] for gpu in chosen)
    servers = [topology.host_of(gpu) for gpu in gpus]
    flows: tuple[Flow, ...] = ()
    problems = list(_beside(scenario, index, len(servers)))
    if isinstance(job.workload, CollectiveWorkload):
        problems += _split(scenario, index, job.workload, servers)
    if problems:
        raise ScenarioError(problems)
    if isinstance(job.workload, FlowsWorkload):
        rates_bps = [
            topology.ports(topology.nics_of_gpu(topology.gpus[gpu])[0])[0].rate_bps for gpu in chosen
        ]
        flows = tuple(_flows(scenario, index, job.workload, rank_racks, rates_bps))
        longest = max(job.workload.message_of(flow.size_bytes) for flow in flows)
        if longest > LONGEST_MESSAGE_BYTES:
            reason = f"a message of {longest} bytes is longer than a message can be"
            location = ("jobs", index, "workload", "message")
            raise ScenarioError([problem_at(scenario, location, reason, "at most 2GiB")])

    def picks(groups: Sequence[Sequence[int]], op: str, size_bytes: int) -> str:
        placed = [[gpus[rank] for rank in group] for group in groups]
        return pick(scenario.ncclx, scenario.host.pcie, topology, placed, op, size_bytes)

    script = planned(job.workload, servers, picks, scenario.seed, index, job.mismatch)
    if isinstance(script, Refusal):
        refused: Location = ("jobs", index, *script.location)
        raise ScenarioError([problem_at(scenario, refused, script.reason, script.accepted)])
    start_ps = NEVER_PS if job.submitted or not job.enabled else job.start_ps
    return ResolvedJob(job.name, gpus, rank_racks, start_ps, job.enabled, job.workload, flows, script)


def _beside(scenario: Scenario, index: int, ranks: int) -> Iterator[Problem]:
    """Ranks that a job lacks and is told something of."""
    job = scenario.jobs[index]
    named: list[tuple[Location, int]] = [(("absent", at), rank) for at, rank in enumerate(job.absent)]
    if job.mismatch is not None:
        named.append((("mismatch", "rank"), job.mismatch.rank))
    for location, rank in named:
        if rank >= ranks:
            reason = f"there is no rank {rank} among {ranks}"
            yield problem_at(scenario, ("jobs", index, *location), reason, f"0 to {ranks - 1}")


def _split(
    scenario: Scenario, index: int, workload: CollectiveWorkload, servers: Sequence[int]
) -> Iterator[Problem]:
    """What in a collective does not fit its communicators."""
    where = ("jobs", index, "workload", "split")
    if len(workload.split) not in (0, len(servers)):
        reason = f"{len(workload.split)} colours for {len(servers)} ranks"
        yield problem_at(scenario, where, reason, f"{len(servers)} colours, or none")
        return
    groups = workload.groups(len(servers))
    if min(map(len, groups)) < 2:
        yield problem_at(scenario, where, "a colour has one rank", "at least 2 ranks of each colour")
        return
    found = (_collective(scenario, index, workload, [servers[one] for one in group]) for group in groups)
    yield from dict.fromkeys(problem for problems in found for problem in problems)


def _collective(
    scenario: Scenario, index: int, workload: CollectiveWorkload, servers: Sequence[int]
) -> Iterator[Problem]:
    """What in a collective does not fit the number of its ranks, or where they are."""
    where = ("jobs", index, "workload")
    ranks = len(servers)
    counts = [servers.count(server) for server in dict.fromkeys(servers)]
    if workload.algorithm in BY_SERVER and min(counts) != max(counts):
        reason = f"a server has {min(counts)} ranks, another {max(counts)}"
        accepted = "another algorithm, or equally many ranks on each server"
        yield problem_at(scenario, (*where, "algorithm"), reason, accepted)
    if workload.root >= ranks:
        reason = f"there is no rank {workload.root} among {ranks}"
        yield problem_at(scenario, (*where, "root"), reason, f"0 to {ranks - 1}")
    graph = workload.graph
    if graph is not None:
        if len(graph.steps) != ranks:
            reason = f"steps for {len(graph.steps)} ranks, and the job has {ranks}"
            yield problem_at(scenario, (*where, "graph", "steps"), reason, f"{ranks} lists")
        if workload.op in BLOCKWISE and graph.chunks % ranks:
            reason = f"{graph.chunks} chunks are no whole number for each of {ranks} ranks"
            yield problem_at(scenario, (*where, "graph", "chunks"), reason, f"a multiple of {ranks}")
    rows = len(workload.counts)
    if rows not in (0, 1, ranks):
        reason = f"{rows} rows for {ranks} ranks"
        yield problem_at(scenario, (*where, "counts"), reason, f"one row, or {ranks}")
    for at, row in enumerate(workload.counts):
        if len(row) != ranks:
            reason = f"{len(row)} numbers for {ranks} ranks"
            yield problem_at(scenario, (*where, "counts", at), reason, f"{ranks} numbers")


def _flows(
    scenario: Scenario,
    index: int,
    workload: FlowsWorkload,
    racks: tuple[int, ...],
    rates_bps: Sequence[int],
) -> list[Flow]:
    try:
        if isinstance(workload, Poisson):
            scale, load = workload.size_scale, workload.load
            return poisson(rates_bps, workload.sizes, scale, load, workload.flows, scenario.seed, index)
        if isinstance(workload, Permutation):
            return permutation(racks, workload.size_bytes, workload.racks, scenario.seed, index)
        if isinstance(workload, Incast):
            return incast(racks, workload.size_bytes, workload.fan_in, workload.destination, workload.racks)
    except PatternError as error:
        problem = problem_at(scenario, ("jobs", index, "workload", error.key), error.reason, error.accepted)
        raise ScenarioError([problem]) from error
    assert isinstance(workload, FlowList), workload.pattern
    flows = [
        Flow(flow.src, flow.dst, flow.size_bytes, flow.start_ps, flow.priority) for flow in workload.flows
    ]
    wrong = list(_beyond(scenario, index, flows, len(racks)))
    if wrong:
        raise ScenarioError(wrong)
    return flows


def _beyond(scenario: Scenario, index: int, flows: list[Flow], ranks: int) -> Iterator[Problem]:
    for flow, end, rank in check_ranks(flows, ranks):
        location = ("jobs", index, "workload", "flows", flow, end)
        reason = f"there is no rank {rank}: the job has {ranks}"
        yield problem_at(scenario, location, reason, f"a rank from 0 to {ranks - 1}")
