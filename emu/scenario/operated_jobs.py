"""The jobs that an operator begins: every incarnation of the job that it tends, checkpoints, self-checks.

An operator decides during the run which hosts a job goes on with. Programs and queue pairs are built before
time begins, so every way in which the job may have to be placed is a job of its own, which waits until the
operator begins it: incarnation 0 is the job as it stands in the scenario, the others have a spare host in the
place of evicted ones, or are the same hosts once more. Each has a job that saves a checkpoint and one that
loads one. The self-check suite is there once for each restart.

Which spare host takes a place is `actors.control.operator.replaced`'s choice, here as in the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.control.operator import Incarnation, OperatorPlan, Test, replaced
from actors.fabric.model import Topology
from actors.kernel.units import serialisation_ps
from emu.scenario.schema import Scenario
from emu.scenario.section import Refusal
from emu.scenario.sections.operator import OperatorSection
from emu.scenario.workloads.jobs import JobSection
from emu.scenario.workloads.workload import Flows, Workload
from emu.topology.server_presets import copy_rates_bps
from emu.workload.flows import Flow

if TYPE_CHECKING:
    from emu.scenario.workloads.flows import FlowList

TRAINS: Final = "trains"
SAVES: Final = "saves"
LOADS: Final = "loads"
TESTS: Final = "tests"

LOOPBACK: Final = "loopback"
NIC_TO_NIC: Final = "nic_to_nic"
INSIDE: Final = "all_to_all"
UNDER_TOR: Final = "all_reduce"

MOST_INCARNATIONS: Final = 64
"""Incarnations of one job: each has programs and queue pairs."""


class OwnedJob(NamedTuple):
    """A job that the operator begins."""

    role: str
    section: JobSection
    flows: Flows | None = None
    """What a test posts; None: what its workload says."""
    requests: int = 0
    """About how many requests to storage it makes."""


class Operated(NamedTuple):
    """What an operator needs on a fabric."""

    jobs: tuple[OwnedJob, ...]
    """Beside the scenario's, in the order of their numbers."""
    plan: OperatorPlan


class _Servers:
    """The servers that an operator may use, and the GPUs of the job on each."""

    def __init__(self, topology: Topology, gpus: Sequence[int], spares: Sequence[int]) -> None:
        self._topology = topology
        nodes = [topology.host_of(gpu) for gpu in gpus]
        self.job = tuple(dict.fromkeys(nodes))
        """Hosts of the job, by place."""
        self.spares = tuple(spares)
        self.seats = [
            (self.job.index(node), topology.nodes[gpu].position)
            for gpu, node in zip(gpus, nodes, strict=True)
        ]
        """Seat of each rank: place of its host, and which GPU there."""
        self._number = {gpu: at for at, gpu in enumerate(topology.gpus)}
        self._at = {(topology.host_of(gpu), topology.nodes[gpu].position): gpu for gpu in topology.gpus}

    def ranks(self, hosts: Sequence[int]) -> tuple[int, ...]:
        """The GPUs, as `jobs[].ranks` counts them, of all ranks with these hosts in their places."""
        return tuple(self._number[self._at[hosts[place], position]] for place, position in self.seats)

    def lacks(self, host: int) -> bool:
        """Whether a host has not the GPUs that every place needs."""
        return any((host, position) not in self._at for _, position in self.seats)

    def checked(self) -> list[tuple[int, int]]:
        """Host and GPU (its node) of all that self-checks are about."""
        positions = sorted({position for _, position in self.seats})
        hosts = [*self.job, *self.spares]
        return [(host, self._at[host, one]) for host in hosts for one in positions if (host, one) in self._at]

    def numbers(self, gpus: Sequence[int]) -> tuple[int, ...]:
        """GPUs as `jobs[].ranks` counts them."""
        return tuple(self._number[gpu] for gpu in gpus)

    def leaf(self, gpu: int) -> int:
        """The switch above a GPU's first NIC."""
        return self._topology.ports(self._topology.nics_of_gpu(gpu)[0])[0].peer


def free_hosts(topology: Topology, taken: Sequence[int]) -> list[int]:
    """Hosts with GPUs, none of which is among those taken."""
    used = {topology.host_of(gpu) for gpu in taken}
    hosts = dict.fromkeys(topology.host_of(gpu) for gpu in topology.gpus)
    return [host for host in hosts if host not in used]


def objections(scenario: Scenario, free: int) -> Iterator[Refusal]:
    """Why an operator cannot do what the scenario says, on its fabric; `free` hosts have no job."""
    operator = scenario.operator
    assert operator is not None
    if operator.spare_hosts > free:
        reason = f"{operator.spare_hosts} spare hosts, and {free} hosts are without a job"
        yield Refusal(("operator", "spare_hosts"), reason, f"0 to {free}")
    if operator.checkpoint is not None and not scenario.frontend.storage.servers:
        reason = "there is no storage to save to"
        yield Refusal(("operator", "checkpoint"), reason, "frontend.storage.servers: 1 or more")


def operated(
    scenario: Scenario, topology: Topology, index: int, gpus: Sequence[int], free: Sequence[int], steps: int
) -> Operated | Refusal:
    """All that the operator of job `index`, which has these GPUs and `steps` operations, may have to begin.
    `free` are the hosts without a job.
    """
    operator, job = scenario.operator, scenario.jobs[index]
    assert operator is not None
    servers = _Servers(topology, gpus, free[: operator.spare_hosts])
    for host in servers.spares:
        if servers.lacks(host):
            reason = f"{topology.nodes[host].name} has not the GPUs that a host of the job needs"
            return Refusal(("operator", "spare_hosts"), reason, "hosts that are alike")
    racks = {host: topology.nodes[host].rack for host in (*servers.job, *servers.spares)}
    placements = _placements(servers, racks, operator.restarts)
    if placements is None:
        reason = f"the job may come to more than {MOST_INCARNATIONS} placements, each of which is built"
        accepted = "fewer restarts, spare_hosts, or hosts of the job"
        return Refusal(("operator", "restarts"), reason, accepted)
    jobs: list[OwnedJob] = []
    incarnations: list[Incarnation] = []
    first = len(scenario.jobs)
    for restart, hosts in placements:
        ranks, name = servers.ranks(hosts), _name(job.name, topology, servers.job, restart, hosts)
        train = index
        if restart:
            train = first + len(jobs)
            jobs.append(OwnedJob(TRAINS, _section(job, name, ranks, job.workload)))
        save = load = -1
        if operator.checkpoint is not None:
            save = first + len(jobs)
            jobs.append(_checkpoint(operator, job, f"{name}-save", ranks, SAVES))
            load = first + len(jobs)
            jobs.append(_checkpoint(operator, job, f"{name}-load", ranks, LOADS))
        incarnations.append(Incarnation(restart, hosts, train, save, load))
    suites = []
    for suite in range(operator.restarts):
        tests = []
        for owned, who, groups in _suite(operator, job, servers, f"{job.name}-check{suite + 1}"):
            tests.append(Test(first + len(jobs), owned.section.name.rpartition("-")[2], who, groups))
            jobs.append(owned)
        suites.append(tuple(tests))
    beat = operator.heartbeat
    size_bytes = 0 if operator.checkpoint is None else operator.checkpoint.size_bytes
    rates_bps = copy_rates_bps(scenario.host.node, scenario.host.link_rate_bps, topology, gpus)
    plan = OperatorPlan(
        beat_ps=beat.every_ps,
        missed=beat.missed,
        silent=beat.silent,
        rows=beat.rows,
        straggler_steps=beat.straggler.steps,
        straggler_permille=int(beat.straggler.slower_by * 1000),
        straggler_evicted=beat.straggler.then == "evict",
        stalled_ps=beat.samples.stalled_ps,
        sample_ps=beat.samples.every_ps,
        save_every=0 if operator.checkpoint is None else operator.checkpoint.every,
        staged_ps=serialisation_ps(size_bytes, min(rates_bps)),
        launch_ps=operator.launch_ps,
        deadline_ps=operator.self_check.deadline_ps,
        check_permille=int(operator.self_check.slower_by * 1000),
        stop_ps=2 * scenario.control.management_delay_ps,
        start_ps=job.start_ps,
        steps=steps,
        restarts=operator.restarts,
        meets=scenario.ncclx.init.store != "none",
        spares=servers.spares,
        racks=racks,
        incarnations=tuple(incarnations),
        suites=tuple(suites),
    )
    return Operated(tuple(jobs), plan)


def _placements(
    servers: _Servers, racks: dict[int, int], restarts: int
) -> list[tuple[int, tuple[int, ...]]] | None:
    """(restart, hosts by place) of all incarnations there can be; None if they are too many."""
    found = [(0, servers.job)]
    states = [(servers.job, frozenset[int]())]
    for restart in range(1, restarts + 1):
        then: dict[tuple[tuple[int, ...], frozenset[int]], None] = {}
        for hosts, evicted in states:
            left = [host for host in (*servers.job, *servers.spares) if host not in evicted]
            most = len([host for host in servers.spares if host not in hosts and host not in evicted])
            for count in range(most + 1):
                for lost in combinations(left, count):
                    gone = evicted | set(lost)
                    after = replaced(hosts, gone, servers.spares, racks)
                    if after is not None:
                        then[after, gone] = None
        states = list(then)
        found += [(restart, hosts) for hosts in dict.fromkeys(hosts for hosts, _ in states)]
        if len(found) > MOST_INCARNATIONS:
            return None
    return found


def _name(job: str, topology: Topology, built: Sequence[int], restart: int, hosts: Sequence[int]) -> str:
    """What results call an incarnation."""
    if restart == 0:
        return job
    moved = [
        f"-{topology.nodes[now].name}-for-{topology.nodes[then].name}"
        for then, now in zip(built, hosts, strict=True)
        if then != now
    ]
    return f"{job}-restart{restart}{''.join(moved)}"


def _section(job: JobSection, name: str, ranks: tuple[int, ...], workload: Workload) -> JobSection:
    """A job that waits for the operator."""
    changes = {
        "name": name,
        "ranks": ranks,
        "placement": "numbered",
        "order": "contiguous",
        "submitted": True,
        "absent": (),
        "workload": workload,
    }
    return job.model_copy(update=changes)


def _checkpoint(
    operator: OperatorSection, job: JobSection, name: str, ranks: tuple[int, ...], role: str
) -> OwnedJob:
    """A job that saves or loads a checkpoint."""
    from emu.scenario.workloads.storage import Checkpoint  # noqa: PLC0415 - kinds are loaded when they are asked for

    given = operator.checkpoint
    assert given is not None
    size, block = f"{given.size_bytes}B", f"{given.block_bytes}B"
    direction = "save" if role == SAVES else "load"
    workload = Checkpoint.model_validate({"direction": direction, "size": size, "block": block})
    section = _section(job, name, ranks, workload)
    return OwnedJob(role, section, requests=workload.requests_of(len(ranks)))


def _knobs(size_bytes: int) -> FlowList:
    """How the flows of tests are posted."""
    from emu.scenario.workloads.flows import FlowList  # noqa: PLC0415 - kinds are loaded when they are asked for

    return FlowList.model_validate({"flows": ({"src": 0, "dst": 1, "size": f"{size_bytes}B"},)})


def _suite(
    operator: OperatorSection, job: JobSection, servers: _Servers, name: str
) -> Iterator[tuple[OwnedJob, dict[int, int], tuple[tuple[int, ...], ...]]]:
    """The tests: job, who answers from where, and hosts that are tested together."""
    size_bytes = operator.self_check.size_bytes
    checked = servers.checked()
    ranks = servers.numbers([gpu for _, gpu in checked])
    by_host: dict[int, list[int]] = {}
    for rank, (host, _) in enumerate(checked):
        by_host.setdefault(host, []).append(rank)
    knobs = _knobs(size_bytes) if len(ranks) > 1 else None
    hosts = {host: host for host in by_host}
    if knobs is not None:
        flows = tuple(Flow(rank, rank, size_bytes) for rank in range(len(ranks)))
        yield (
            OwnedJob(TESTS, _section(job, f"{name}-{LOOPBACK}", ranks, knobs), knobs.posted(flows)),
            hosts,
            (),
        )
    several = min(map(len, by_host.values())) > 1
    if several and knobs is not None:
        flows = tuple(
            Flow(rank, own[(at + 1) % len(own)], size_bytes)
            for own in by_host.values()
            for at, rank in enumerate(own)
        )
        yield (
            OwnedJob(TESTS, _section(job, f"{name}-{NIC_TO_NIC}", ranks, knobs), knobs.posted(flows)),
            hosts,
            (),
        )
    if several:
        colours = tuple(host for host, _ in checked)
        yield _collective(job, f"{name}-{INSIDE}", INSIDE, size_bytes, servers, checked, colours)
    leaves = Counter(servers.leaf(gpu) for _, gpu in checked)
    under = [(host, gpu) for host, gpu in checked if leaves[servers.leaf(gpu)] > 1]
    if under:
        colours = tuple(servers.leaf(gpu) for _, gpu in under)
        yield _collective(job, f"{name}-{UNDER_TOR}", UNDER_TOR, size_bytes, servers, under, colours)


def _collective(
    job: JobSection,
    name: str,
    op: str,
    size_bytes: int,
    servers: _Servers,
    checked: Sequence[tuple[int, int]],
    colours: tuple[int, ...],
) -> tuple[OwnedJob, dict[int, int], tuple[tuple[int, ...], ...]]:
    """A collective among ranks of one colour."""
    from emu.scenario.workloads.collective import CollectiveWorkload  # noqa: PLC0415 - kinds are loaded when they are asked for

    facts = {"op": op, "algorithm": "default", "sizes": (f"{size_bytes}B",), "split": colours}
    workload = CollectiveWorkload.model_validate(facts)
    groups: dict[int, list[int]] = {}
    for (host, _), colour in zip(checked, colours, strict=True):
        if host not in groups.setdefault(colour, []):
            groups[colour].append(host)
    section = _section(job, name, servers.numbers([gpu for _, gpu in checked]), workload)
    together = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    return OwnedJob(TESTS, section), {rank: host for rank, (host, _) in enumerate(checked)}, together
