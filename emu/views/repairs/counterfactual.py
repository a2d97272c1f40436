"""Counterfactual runs: the same jobs with components as built, or without one of the jobs.

A diagnosis names components that it suspects (`emu.views.diagnosis.healing`) and is told what jobs and alarms
come to where these were as built from the start. What is scripted to go wrong stays in here: an event of a
fault is left out if it strikes a component that is healed, whatever kind of fault it belongs to. So healing
what is sound changes nothing, and a run that is known already is not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC, Role, Topology, TopologyError
from actors.kernel.counters import PORT_TRANSMIT_PAYLOAD_BYTES
from actors.kernel.event import NEVER_PS
from actors.wire.fault import (
    ALPHA,
    COMPUTE,
    COMPUTE_HUNG,
    CREDITS,
    DEAF,
    DELAY,
    DSCP,
    ECN,
    ERRORS,
    GPU_GONE,
    HASH_FIELDS,
    HASH_SEED,
    HEADROOM,
    HOLD,
    HUNG,
    LOST,
    PAIR_ERROR,
    PFC_OFF,
    RATE,
    RECEIVE,
    RESET,
    SLOW,
    STORM,
)
from emu.base.units import format_time
from emu.counts import device_state
from emu.counts.collected import JobPlan
from emu.counts.device_state import Shown, shown_of
from emu.devices.buffer_sizes import is_deep
from emu.devices.drawing import blueprint_of
from emu.engine.outcome import Observer, Outcome, RunOptions
from emu.launch import run_local
from emu.results.summary import Counterfactual
from emu.scenario.dump import to_yaml
from emu.scenario.environment import SpanSection
from emu.scenario.fault_schedule import MeasuredTargets, miscabled, scripted
from emu.scenario.faults.base import members
from emu.scenario.faults.events import Change, Fault
from emu.scenario.load import load_text
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.scenario.sections.nic import TransportSection
from emu.scenario.sections.overrides import OverrideSection
from emu.scenario.set_options import parse_override
from emu.scenario.workloads.jobs import JobSection
from emu.summary.jobs import DISABLED, SUCCESS, UNFINISHED, job_rows
from emu.views.diagnosis.chaos import nudge_ps
from emu.views.diagnosis.finding import BIT_ERRORS, CONTENTION, EVERYTHING, GIVEN, ODD, TIMER_SHORT, Finding
from emu.views.diagnosis.fleet import differences, like_the_fleet, overridden
from emu.views.diagnosis.impact import SlowOperation, kind_of, operations
from emu.views.diagnosis.view import View, alarmed, answering, counted_by, cut_of, times_of

QUIET_S: Final = 3600.0
"""Between reports of progress: nobody listens to these runs."""
LONGER: Final = 4
"""How many times as long as a run that broke off one is emulated in which it may not."""
DRIFTS: Final[Mapping[int, int]] = {
    device_state.HEADROOM: int(HEADROOM),
    device_state.ALPHA: int(ALPHA),
    device_state.ECN: int(ECN),
    device_state.PFC: int(PFC_OFF),
    device_state.DSCP: int(DSCP),
    device_state.HASH_SEED: int(HASH_SEED),
    device_state.HASH_FIELDS: int(HASH_FIELDS),
    device_state.CREDITS: int(CREDITS),
}
"""An item of a device's configuration, and what changes it."""
ANYWHERE: Final = -1
MOST_SHARED: Final = 3
NONE_MEASURED: Final[MeasuredTargets] = MappingProxyType({})


Port = tuple[int, int]
"""A device and its port."""


class Repair(NamedTuple):
    """What is as built: places of devices, and links in routing."""

    spots: frozenset[tuple[int, int, int]]
    """Device, place or ANYWHERE, operation."""
    links: frozenset[int] = frozenset()
    """Links that do not fail."""
    drained: int = ANYWHERE
    """A switch whose routes are not withdrawn while its links are up."""
    heard: frozenset[int] = frozenset()
    """Links that do not fail by losing all while they have a signal."""

    def mended(self, fault: Fault) -> Fault | None:
        """What is left of an occurrence; None if nothing is."""
        changes = tuple(one for one in fault.changes if not self._spares(one))
        drained = fault.unaware >= 0 and fault.unaware == self.drained
        drains = fault.unaware >= 0
        spared = self.links | self.heard.intersection(fault.silent)
        down = tuple(one for one in fault.down if one not in spared)
        avoided = () if drained else fault.avoided
        if not drains:
            avoided = tuple(one for one in avoided if one not in spared)
        if not changes and not down and not avoided:
            return None
        return fault._replace(changes=changes, down=down, avoided=avoided)

    def _spares(self, change: Change) -> bool:
        spots = self.spots
        return (change.device, change.place, change.op) in spots or (
            change.device,
            ANYWHERE,
            change.op,
        ) in spots


def repair_of(topology: Topology, finding: Finding) -> Repair | None:
    """What it takes to heal what is suspected; None where no single component would do."""
    if (
        finding.setting[0]
        or finding == EVERYTHING
        or finding.cause in ("miscabling", ODD, TIMER_SHORT, BIT_ERRORS, GIVEN)
    ):
        return Repair(frozenset())  # cables are part of the fabric, configuration is of the scenario
    make = _REPAIRS.get(finding.cause)
    try:
        return None if make is None else make(topology, finding)
    except TopologyError:
        return None


def _spots(device: int, place: int, *ops: int) -> frozenset[tuple[int, int, int]]:
    return frozenset((device, place, int(op)) for op in ops)


def _cables(topology: Topology, links: Sequence[int], *ops: int) -> Repair:
    """Both ends of links have a signal, and what else is asked for."""
    spots = frozenset[tuple[int, int, int]]()
    for number in links:
        link = topology.links[number]
        for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
            spots |= _spots(node, port, HOLD, *ops)
    return Repair(spots, frozenset(links))


def _cable(topology: Topology, finding: Finding) -> Repair:
    return _cables(topology, topology.links_named(finding.place), RATE, ERRORS, DELAY)


def _frames_of(topology: Topology, finding: Finding, *ops: int) -> Repair:
    """What a link does to frames, at both ends. Whether it has a signal is another finding."""
    links = [topology.links[number] for number in topology.links_named(finding.place)]
    ends = [end for link in links for end in ((link.a, link.a_port), (link.b, link.b_port))]
    return Repair(frozenset().union(*(_spots(node, port, *ops) for node, port in ends)))


def _degraded(topology: Topology, finding: Finding) -> Repair:
    repair = _frames_of(topology, finding, RATE, ERRORS)
    return repair._replace(heard=frozenset(topology.links_named(finding.place)))


def _late(topology: Topology, finding: Finding) -> Repair:
    return _frames_of(topology, finding, DELAY)


def _links_of(topology: Topology, node: int) -> list[int]:
    return [end.link for end in topology.ports(node) if end.kind == FABRIC]


def _device_links(topology: Topology, finding: Finding) -> Repair:
    return _cables(topology, _links_of(topology, topology.node_named(finding.place).number))


def _nic(topology: Topology, finding: Finding) -> Repair:
    nic = topology.node_named(finding.place).number
    links = _cables(topology, _links_of(topology, nic))
    return links._replace(spots=links.spots | _spots(nic, ANYWHERE, RESET, PAIR_ERROR))


def _receiver(topology: Topology, finding: Finding) -> Repair:
    return Repair(_spots(topology.node_named(finding.place).number, ANYWHERE, RECEIVE))


def _queue_pairs(topology: Topology, finding: Finding) -> Repair:
    return Repair(_spots(topology.node_named(finding.place).number, ANYWHERE, PAIR_ERROR))


def _pauses(topology: Topology, finding: Finding) -> Repair:
    name, _, peer = finding.place.partition(">")
    node = topology.node_named(name).number
    ports = [port for port, end in enumerate(topology.ports(node)) if topology.nodes[end.peer].name == peer]
    spots = frozenset[tuple[int, int, int]]()
    for port in ports:
        spots |= _spots(node, port, STORM, DEAF)
    return Repair(spots)


_OF_A_GPU: Final[Mapping[str, tuple[int, int]]] = {
    "gpu_slow": (int(SLOW), int(COMPUTE)),
    "straggler": (int(SLOW), int(COMPUTE)),
    "gpu_hung": (int(HUNG), int(COMPUTE_HUNG)),
    "gpu_lost": (int(LOST), int(GPU_GONE)),
}
"""A cause, what it does to a GPU itself, and what to its computing, of which its host knows."""


def _gpus(topology: Topology, gpus: Sequence[int], cause: str) -> frozenset[tuple[int, int, int]]:
    itself, computing = _OF_A_GPU[cause]
    spots = frozenset[tuple[int, int, int]]()
    for gpu in gpus:
        end = topology.host_end(gpu)
        spots |= _spots(gpu, ANYWHERE, itself) | _spots(end.peer, end.peer_port, computing)
    return spots


def _gpu(topology: Topology, finding: Finding) -> Repair:
    """A GPU; of a server that has no other, its proxies too, since nothing tells them apart."""
    gpu = topology.node_named(finding.place).number
    host = topology.host_of(gpu)
    spots = _gpus(topology, [gpu], finding.cause)
    if finding.cause == "gpu_slow" and len(members(topology, host, Role.GPU)) == 1:
        spots |= _spots(host, ANYWHERE, SLOW)
    return Repair(spots)


def _server(topology: Topology, finding: Finding) -> Repair:
    host = topology.node_named(finding.place).number
    spots = _gpus(topology, members(topology, host, Role.GPU), finding.cause)
    return Repair(spots | _spots(host, ANYWHERE, SLOW))


def _lost_server(topology: Topology, finding: Finding) -> Repair:
    host = topology.node_named(finding.place).number
    nics = members(topology, host, Role.NIC)
    links = _cables(topology, [link for nic in nics for link in _links_of(topology, nic)])
    spots = links.spots | _spots(host, ANYWHERE, LOST)
    for gpu in members(topology, host, Role.GPU):
        spots |= _spots(gpu, ANYWHERE, LOST)
    for nic in nics:
        spots |= _spots(nic, ANYWHERE, RESET)
    return links._replace(spots=spots)


def _drained(topology: Topology, finding: Finding) -> Repair:
    return Repair(frozenset(), drained=topology.node_named(finding.place).number)


def _configuration(topology: Topology, finding: Finding) -> Repair:
    name, _, peer = finding.place.partition(">")
    node = topology.node_named(name).number
    op = DRIFTS[finding.item]
    if not peer:
        return Repair(_spots(node, ANYWHERE, op))
    ports = [port for port, end in enumerate(topology.ports(node)) if topology.nodes[end.peer].name == peer]
    return Repair(frozenset((node, port, op) for port in ports))


_REPAIRS: Final[Mapping[str, Callable[[Topology, Finding], Repair]]] = {
    "link_down": _cable,
    "link_flap": _cable,
    "degraded_link": _degraded,
    "delayed_link": _late,
    "switch_down": _device_links,
    "nic_down": _device_links,
    "nic_reset": _nic,
    "host_lost": _lost_server,
    "pause_storm": _pauses,
    "pause_loss": _pauses,
    "slow_receiver": _receiver,
    "qp_error": _queue_pairs,
    "gpu_slow": _gpu,
    "gpu_hung": _gpu,
    "gpu_lost": _gpu,
    "straggler": _server,
    "switch_drained": _drained,
    "configuration_drift": _configuration,
}
"""A cause, and what is as built where it is healed."""


class Changed(NamedTuple):
    """What is otherwise in a scenario that scripts no faults."""

    left_out: tuple[str, ...] = ()
    """Jobs that do not run."""
    odd: tuple[str, ...] = ()
    """Devices and links that are configured as their peers are."""
    patient: bool = False
    """Whether queue pairs wait as long as NCCL's do."""
    clean: bool = False
    """Whether links spoil nothing."""
    even: tuple[str, ...] = ()
    """Jobs none of whose ranks is slower than the others."""
    nudge_ns: int = 0
    """By how much a NIC is slower at most (`emu.views.diagnosis.chaos`)."""
    settings: tuple[tuple[str, str], ...] = ()
    """Keys of the scenario that have another value."""

    def of(self, scenario: Scenario, fabric: Topology) -> Scenario:
        """The scenario with that."""
        if self.settings:
            options = [parse_override(f"{key}={value}") for key, value in self.settings]
            scenario = load_text(to_yaml(scenario), overrides=options).scenario
        for name in self.odd:
            scenario = like_the_fleet(scenario, fabric, name)
        transport, link = scenario.transport, scenario.link
        if self.patient:
            transport = transport.model_copy(
                update={"timeout": max(TransportSection().timeout, transport.timeout)}
            )
        if self.clean:
            link = link.model_copy(update={"bit_error_rate": type(link)().bit_error_rate})
        overrides = (*scenario.overrides, *self._slower_nics(scenario, fabric))
        parts = {"transport": transport, "link": link, "overrides": overrides, "jobs": self._jobs(scenario)}
        return without(scenario.model_copy(update=parts), self.left_out)

    def _slower_nics(self, scenario: Scenario, fabric: Topology) -> Iterator[OverrideSection]:
        """What makes NICs slower, those of one latency together."""
        latencies: dict[int, list[str]] = {}
        for nic in fabric.nics if self.nudge_ns else ():
            latency_ps = scenario.at(fabric, nic).nic.latency_ps + nudge_ps(nic, self.nudge_ns)
            latencies.setdefault(latency_ps, []).append(fabric.nodes[nic].name)
        for latency_ps, names in latencies.items():
            yield OverrideSection(devices=tuple(names), nic={"latency": format_time(latency_ps)})

    def _jobs(self, scenario: Scenario) -> tuple[JobSection, ...]:
        """Jobs, those that are to be even without stragglers."""
        return tuple(
            one.model_copy(update={"workload": one.workload.model_copy(update={"stragglers": ()})})
            if one.name in self.even
            else one
            for one in scenario.jobs
        )


AS_IT_IS: Final = Changed()


class Counterfactuals:
    """The runs that a diagnosis may ask for, within a number of events."""

    def __init__(
        self,
        scenario: Scenario,
        topology: Topology,
        plans: Sequence[JobPlan],
        own: Counterfactual,
        events: int,
        most_events: int,
        end_ps: int,
        measured: MeasuredTargets = NONE_MEASURED,
        loads: Mapping[Port, int] = MappingProxyType({}),
        ran_ps: int = int(NEVER_PS),
    ) -> None:
        """`topology` is the fabric as it was run until `ran_ps`, `own` what that came to, and `loads` what
        its ports sent; each other is taken to have `events`, and ends at `end_ps` if not before.
        """
        self._loads = loads
        self._ran_ps = ran_ps
        self._intended = as_intended(scenario)
        self._scenario = scenario
        self._topology = topology
        self._fabric = build_topology(self._intended) if miscabled(scenario) else topology
        """As it was meant to be."""
        self._plans = tuple(plans)
        self._slowed = {one.name for one in scenario.jobs if getattr(one.workload, "stragglers", ())}
        """Jobs with ranks that the scenario makes slower."""
        self._targets = measured
        self.left = most_events
        """How many events are left."""
        self.end_ps = end_ps
        self.events = events
        self._faults: dict[bool, tuple[Fault, ...]] = {}
        self._known = {self._key(self._all(cabling=False), cabling=False): own}
        self.exhausted = False
        """Whether something was not run because it would have taken too many events."""
        self.kept: list[Counterfactual] = []
        """What was answered, the same once."""

    @property
    def _least_end_ps(self) -> int:
        """From when on a job that is not done was cut short."""
        return self.end_ps

    @property
    def affordable(self) -> bool:
        """Whether there is room for a run."""
        return self.events <= self.left

    def __call__(self, suspects: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        """The run with what is suspected as built, or left out, and NICs slower by so much; None where that
        is no component, or would take too long.
        """
        whole = any(one == EVERYTHING for one in suspects)
        cabling = whole or any(one.cause == "miscabling" for one in suspects)
        fabric = self._fabric if cabling else self._topology
        left_out = tuple(sorted(one.place for one in suspects if one.cause == CONTENTION))
        repairs = [repair_of(fabric, one) for one in suspects if one.cause != CONTENTION]
        mended = [one for one in repairs if one is not None]
        if len(mended) < len(repairs):
            return None
        faults = () if whole else self._all(cabling=cabling)
        for repair in mended:
            faults = tuple(left for one in faults if (left := repair.mended(one)) is not None)
        differ = differences(self._intended, fabric)
        odd = tuple(
            sorted(
                (one.place for one in suspects if one.cause == ODD and one.place in differ),
                key=lambda name: (not overridden(self._intended, name), name),  # of two peers, its own first
            )
        )
        causes = {one.cause for one in suspects}
        slow = {self._topology.node_named(one.place).number for one in suspects if one.cause == GIVEN}
        even = tuple(plan.name for plan in self._plans if slow & {*plan.gpus} and plan.name in self._slowed)
        settings = tuple(sorted({one.setting for one in suspects if one.setting[0]}))
        changed = Changed(
            left_out, odd, TIMER_SHORT in causes, BIT_ERRORS in causes, even, nudge_ns, settings
        )
        found = self._emulated(faults, changed, cabling=cabling)
        if found is None:
            self.exhausted = True
            return None
        found = found.model_copy(update={"healed": [one.key for one in suspects], "nudge_ns": nudge_ns})
        if found not in self.kept:
            self.kept.append(found)
        return found

    def _all(self, *, cabling: bool) -> tuple[Fault, ...]:
        """Every occurrence that the run saw, on the fabric as it was cabled or as it was meant to be. What
        was to come after its end did not happen, also where a healed run gets that far.
        """
        found = self._faults.get(cabling)
        if found is None:
            fabric = self._fabric if cabling else self._topology
            every = scripted(self._scenario, fabric, self._targets)
            found = self._faults[cabling] = tuple(one for one in every if one.begin_ps <= self._ran_ps)
        return found

    def _key(self, faults: tuple[Fault, ...], changed: Changed = AS_IT_IS, *, cabling: bool) -> object:
        """What tells runs apart: swapped cables, the scenario, and what happens to whom when."""
        left = tuple(one._replace(number=0, entry=0, kind="", target="") for one in faults)
        return (miscabled(self._scenario) and not cabling, changed, left)

    def _emulated(
        self, faults: tuple[Fault, ...], changed: Changed, *, cabling: bool
    ) -> Counterfactual | None:
        key = self._key(faults, changed, cabling=cabling)
        if key not in self._known:
            if not self.affordable:
                return None
            fabric = self._fabric if cabling else self._topology
            scenario = changed.of(self._intended, fabric)
            if changed.odd:
                swapped = () if cabling else self._scenario.faults
                fabric = build_topology(scenario.model_copy(update={"faults": swapped}))
                faults = _felt(faults, scenario, fabric)
            outcome = self._run(scenario, fabric, faults)
            self._known[key] = self._measured(outcome, changed.left_out)
        return self._known[key]

    def _run(
        self, scenario: Scenario, fabric: Topology, faults: tuple[Fault, ...], end_ps: int | None = None
    ) -> Outcome:
        """Emulate to the end, or until `end_ps`; what it took is no more left."""
        outcome = emulated(scenario, fabric, self.end_ps if end_ps is None else end_ps, faults)
        self.left -= sum(record.executed for record in outcome.devices)
        return outcome

    def remember(self, outcome: Outcome) -> None:
        """The run in which everything was as intended, which was emulated already."""
        self._known[self._key((), cabling=True)] = self._measured(outcome)

    def _measured(self, outcome: Outcome, left_out: tuple[str, ...] = ()) -> Counterfactual:
        jobs = job_rows(self._plans, outcome.devices)
        operations = [row for record in outcome.devices for row in record.results.get("operations", ())]
        shown = answering(self._topology, map(shown_of, outcome.devices))
        times = times_of(jobs, self._plans, operations, cut_of(self._intended, outcome.virtual_ps))
        well = [SUCCESS, DISABLED]
        if outcome.virtual_ps >= self._least_end_ps:  # what was cut short here has not failed
            well.append(UNFINISHED)
        return Counterfactual(
            healed=[],
            jobs={name: took_ps for name, took_ps in times.items() if name not in left_out},
            failed={
                name: job.status for name, job in jobs.items() if job.status not in well or name in left_out
            },
            under_way=[name for name, job in jobs.items() if job.status == UNFINISHED],
            until_ps=outcome.virtual_ps,
            alarms=alarmed(counted_by(shown.values()), (one.tables for one in shown.values())),
            left_out=" and ".join(left_out),
            shared=self._shared(loads_of_ports(self._topology, shown)) if left_out else {},
        )

    def _shared(self, others: Mapping[Port, int]) -> dict[str, float]:
        """The ports with most to send that a job shared with `others`, and its share of the payload there."""
        nodes = self._topology.nodes
        found: list[tuple[float, str, float]] = []
        for (node, port), load in self._loads.items():
            left = others.get((node, port), 0)
            if 0 < left < load:
                end = self._topology.ports(node)[port]
                name = f"{nodes[node].name}>{nodes[end.peer].name}"
                found.append((-load / end.rate_bps, name, round(1 - left / load, 6)))
        return {name: share for _, name, share in sorted(found)[:MOST_SHARED]}


class Stretch(NamedTuple):
    """A part of a run around a slow operation, and when it is where the jobs begin anew."""

    job: str
    plan: JobPlan
    label: str
    kind: tuple[str, str, int]
    shift_ps: int
    """What was at this time is at 0."""
    length_ps: int
    over: tuple[str, ...] = ()
    """Jobs that had ended before it."""
    permille: int = 1000
    """Which part of the events of the whole run it has, as far as the operations of its job tell."""
    number: int = 0
    """The operation where the jobs begin anew."""
    usual_end_ps: int = 0
    """When that is over if it takes no longer than usual."""

    def of(self, scenario: Scenario) -> Scenario:
        """The scenario with jobs as they are when it begins."""
        jobs = tuple(
            one.model_copy(update={"enabled": one.enabled and one.name not in self.over} | self._start(one))
            for one in scenario.jobs
        )
        return scenario.model_copy(update={"jobs": jobs})

    def _start(self, one: JobSection) -> dict[str, int]:
        own = one.name == self.job
        return {} if own or not one.start_ps else {"start_ps": max(one.start_ps - self.shift_ps, 0)}

    def moved(self, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
        """What happens in it and what still lasts when it begins, in the same order."""
        found: list[Fault] = []
        for fault in faults:
            begin_ps, end_ps = fault.begin_ps - self.shift_ps, fault.end_ps - self.shift_ps
            if begin_ps < self.length_ps and (fault.end_ps == 0 or end_ps > 0):
                late_ps = len(found) if begin_ps < 0 else begin_ps  # one after the other
                last_ps = 0 if fault.end_ps == 0 else max(end_ps, late_ps + 1)
                found.append(fault._replace(begin_ps=late_ps, end_ps=last_ps))
        return tuple(found)

    def took_ps(self, rows: Sequence[Sequence[int]], end_ps: int, delay_ps: int) -> int:
        """The longest operation of the kind, that under way at the end included."""
        own = [row for row in rows if row[0] == self.plan.job]
        times = [row[3] - row[2] for row in own if kind_of(self.plan, row[1]) == self.kind]
        present = own[-1][1] + 1 if own else 0
        if kind_of(self.plan, present) == self.kind:
            begun_ps = own[-1][3] + 2 * delay_ps if own else delay_ps
            times.append(end_ps - delay_ps - begun_ps)
        return max(times, default=0)


class Stretched(Counterfactuals):
    """The runs of a stretch around a slow operation: the jobs begin anew, as in the round before it, with
    what happened in the stretch and what still lasted then.

    Jobs begin with empty queues and queue pairs that have sent nothing, so the stretch with everything that
    happened is emulated too, and only compared where the operation is slow there as well.
    """

    def __init__(
        self,
        scenario: Scenario,
        topology: Topology,
        plans: Sequence[JobPlan],
        stretch: Stretch,
        events: int,
        most_events: int,
        measured: MeasuredTargets = NONE_MEASURED,
        loads: Mapping[Port, int] = MappingProxyType({}),
        ran_ps: int = int(NEVER_PS),
    ) -> None:
        """`events` is what one run of it is taken to have."""
        none = Counterfactual(healed=[], jobs={}, failed={}, alarms={})
        scenario = stretch.of(scenario)
        super().__init__(
            scenario, topology, plans, none, events, most_events, stretch.length_ps, measured, loads, ran_ps
        )
        self._stretch = stretch
        self._known.clear()
        self._faults.clear()

    @property
    def _least_end_ps(self) -> int:
        return min(self._stretch.usual_end_ps, self.end_ps)

    def _all(self, *, cabling: bool) -> tuple[Fault, ...]:
        stretch: Stretch | None = getattr(self, "_stretch", None)
        known = cabling in self._faults
        found = super()._all(cabling=cabling)
        if stretch is not None and not known:
            found = self._faults[cabling] = stretch.moved(found)
        return found

    def _run(
        self, scenario: Scenario, fabric: Topology, faults: tuple[Fault, ...], end_ps: int | None = None
    ) -> Outcome:
        """Emulate until the operation is over where it takes no longer than usual; else to the end."""
        stretch = self._stretch
        outcome = super()._run(scenario, fabric, faults, min(stretch.usual_end_ps, self.end_ps))
        rows = [row for record in outcome.devices for row in record.results.get("operations", ())]
        if any(row[0] == stretch.plan.job and row[1] >= stretch.number for row in rows):
            return outcome
        return super()._run(scenario, fabric, faults, end_ps) if self.affordable else outcome

    def _measured(self, outcome: Outcome, left_out: tuple[str, ...] = ()) -> Counterfactual:
        found = super()._measured(outcome, left_out)
        stretch = self._stretch
        rows = [row for record in outcome.devices for row in record.results.get("operations", ())]
        took_ps = stretch.took_ps(
            sorted(map(list, rows)), outcome.virtual_ps, self._intended.control.management_delay_ps
        )
        times = {} if stretch.job in found.failed else {stretch.label: took_ps}
        return found.model_copy(update={"jobs": times, "around": stretch.label})


def stretch_around(view: View, slow: SlowOperation) -> Stretch | None:
    """The part of a run around a slow operation: from the round before it where jobs repeat, or from the
    operation before it; None where nothing tells when that began.
    """
    plan = next(one for one in view.plans if one.name == slow.job)
    starts = {one.number: one.start_ps for one in operations(view, plan)} | {
        slow.done.number: slow.done.start_ps
    }
    period = len(plan.collectives) or 1
    number = slow.done.number
    first = max(number // period - 1, 0) * period if view.scenario.run.repeat else max(number - 1, 0)
    kinds = [kind_of(plan, at) for at in range(first, number + 1)]
    again = next(at for at in range(first + 1) if [kind_of(plan, at + k) for k in range(len(kinds))] == kinds)
    # A first operation that is forgotten began when the job did.
    delay_ps = view.scenario.control.management_delay_ps
    section = next(one for one in view.scenario.jobs if one.name == slow.job)
    begun_ps = starts.get(again, section.start_ps + delay_ps if again == 0 else None)
    if first not in starts or begun_ps is None:
        return None
    shift_ps = max(starts[first] - begun_ps, 0)
    length_ps = slow.done.end_ps - shift_ps + 2 * slow.usual_ps + 4 * delay_ps
    over = tuple(
        name
        for name, job in view.jobs.items()
        if job.end_ps is not None and job.end_ps <= shift_ps and not view.scenario.run.repeat
    )
    count = number - first + 1
    permille = 1000 * (2 * count + 2) // (max(starts) + 1)
    if len(view.plans) > len(over) + 1:  # others go on meanwhile
        permille = max(permille, 1000 * length_ps // max(view.end_ps, 1))
    usual_end_ps = begun_ps + 2 * count * (slow.usual_ps + 2 * delay_ps)
    where = again + number - first
    return Stretch(
        slow.job,
        plan,
        slow.label,
        slow.done.kind,
        shift_ps,
        length_ps,
        over,
        permille,
        where,
        usual_end_ps,
    )


def _felt(faults: tuple[Fault, ...], scenario: Scenario, fabric: Topology) -> tuple[Fault, ...]:
    """The faults without credits of switches that have none once they are as their peers are."""
    struck = {change.device for fault in faults for change in fault.changes if change.op == CREDITS}
    without_credits = [node for node in struck if not is_deep(scenario, fabric, node)]
    repair = Repair(frozenset((node, ANYWHERE, int(CREDITS)) for node in without_credits))
    return tuple(left for one in faults if (left := repair.mended(one)) is not None)


def loads_of_ports(topology: Topology, shown: Mapping[int, Shown]) -> dict[Port, int]:
    """Payload that every fabric port sent, those with none left out."""
    return {
        (node, port): value
        for node, one in shown.items()
        for (metric, port, *_), value in one.counters.items()
        if metric == PORT_TRANSMIT_PAYLOAD_BYTES and topology.ports(node)[port].kind == FABRIC
    }


def without(scenario: Scenario, left_out: Sequence[str]) -> Scenario:
    """The scenario with jobs that do not run; their queue pairs stay, so that the others' paths do."""
    jobs = tuple(
        one.model_copy(update={"enabled": False}) if one.name in left_out else one for one in scenario.jobs
    )
    return scenario.model_copy(update={"jobs": jobs}) if left_out else scenario


def emulated(
    intended: Scenario, topology: Topology, end_ps: int = int(NEVER_PS), faults: tuple[Fault, ...] = ()
) -> Outcome:
    """The jobs of a scenario that scripts no faults, on a fabric with these, to the end or until `end_ps`.

    Raises KeyboardInterrupt: a run that was broken off compares with nothing.
    """
    options = RunOptions(
        local=True, metrics=False, progress_every_s=QUIET_S, snapshot_every_s=0.0, end_ps=end_ps
    )
    blueprint = blueprint_of(intended, topology)
    blueprint = blueprint._replace(resolved=blueprint.resolved._replace(faults=faults))
    return run_local(blueprint, options, Observer()).uninterrupted()


def as_intended(scenario: Scenario) -> Scenario:
    """The scenario without what is scripted to go wrong, and what is expected of that."""
    limits = scenario.run.model_copy(update={"capture": (), "span": SpanSection()})
    return scenario.model_copy(update={"faults": (), "expect": (), "run": limits})
