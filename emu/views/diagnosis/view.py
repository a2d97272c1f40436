"""What an operator sees of a run.

The fabric and the configuration as they were meant to be, what every device shows at the end and has
counted, when counters first moved, what jobs did, and what a stall's devices wait for. The scenario in here
has no faults: who makes a view takes them out, and the fabric is built without them.

First moves. Of every counter of every device the two samples between which it left its first value: the last
one without and the first one with. That is all that is kept of a run's samples, so it does not grow with
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC, Attachment, Role, Topology
from actors.kernel.counters import NIC_LOCAL_ACK_TIMEOUT_ERR, NIC_OUT_OF_SEQUENCE, PFC_WATCHDOG_STORMS
from actors.kernel.device import Series
from emu.base.foreseen import Foreseen
from emu.base.units import shown_time
from emu.counts.collected import Changed, JobPlan, Rows
from emu.counts.counts import Counts
from emu.counts.device_state import Shown
from emu.results.metrics import CONGESTION_REASONS
from emu.results.summary import Job, Summary
from emu.run_directory.sample_changes import NonzeroDevices
from emu.scenario.schema import Scenario
from emu.summary.jobs import SUCCESS
from emu.views.diagnosis.finding import Finding

Row = Sequence[int]
ALARMED: Final = (
    NIC_OUT_OF_SEQUENCE,
    NIC_LOCAL_ACK_TIMEOUT_ERR,
    PFC_WATCHDOG_STORMS,
)
"""Counters that an operator is called for (deploy/prometheus/alerts.yml), besides headroom overruns and ports
that go down."""

OVERRUN: Final = "headroom_overrun"
LOSSLESS_LOST: Final = (OVERRUN, "receive_overrun")
"""Reasons for which frames of lossless classes are dropped."""
PORTS_DOWN: Final = "ports_down"


class View:
    """One run, as it can be seen from outside."""

    def job_name(self, job: int) -> str:
        """What results call a job: that of the scenario, also where an operator began it again."""
        for plan in self.plans:
            if plan.job == job or (plan.tended is not None and job in plan.tended.incarnations):
                return plan.name
        return "the operator's test"

    def __init__(
        self,
        scenario: Scenario,
        topology: Topology,
        plans: Sequence[JobPlan],
        summary: Summary,
        devices: Iterable[Shown],
        moves: Moves,
        series: Mapping[int, Sequence[Series]],
        counts: Counts | None = None,
        foreseen: Callable[[], Sequence[Foreseen]] = tuple,
    ) -> None:
        """`counts` has what devices counted; None: they say so themselves. `foreseen` are the warnings of
        which counters can tell whether they came true."""
        self.foreseen = foreseen
        assert not scenario.faults, "an operator does not see what is scripted"
        self.scenario = scenario
        self.topology = topology
        self.plans = tuple(plans)
        self.ending = summary.ending
        self.jobs = summary.jobs
        self.operator = summary.operator
        """What the operator of a job did; None where there is none."""
        self.end_ps = summary.virtual_ps
        self.cut = cut_of(scenario, summary.virtual_ps)
        """Where jobs that repeat were cut short; None where they do not."""
        self.credited = scenario.link.flow_control == "credits"
        """Whether links have credits in place of pauses."""
        self.uplinks = summary.fabric.uplinks
        self.groups = [*summary.fabric.uplinks, *summary.fabric.groups]
        self._devices = answering(topology, devices)
        self._counts = counted_by(self._devices.values()) if counts is None else counts
        self._neighbours: dict[int, dict[int, tuple[int, int]]] = {}
        """Devices that were asked, and who is at the other end of each port, as `neighbours` says."""
        self._looked_at: list[int] | None = None
        self._showing: list[int] | None = None
        """Switches and NICs that have tables."""
        self._moves = moves
        self._series = series
        self._moved: dict[tuple[str, int, int, str], Moved] | None = None
        self.found: list[Finding] | None = None
        """What `emu.views.diagnosis.causes.findings` found, kept since it is asked for by three."""
        self._by_roles: dict[tuple[Role, ...], list[int]] = {}

    # ---- devices

    def name(self, number: int) -> str:
        """A device's name."""
        return self.topology.nodes[number].name

    def role(self, number: int) -> Role:
        """What stands at a node."""
        return self.topology.nodes[number].role

    def numbers(self, *roles: Role) -> Iterator[int]:
        """The devices of some roles that counted or show something, or have such a one at a port, in order:
        the others have nothing to say."""
        found = self._by_roles.get(roles)
        if found is None:
            if self._looked_at is None:
                self._looked_at = self._around()
            found = [number for number in self._looked_at if self.role(number) in roles]
            self._by_roles[roles] = found
        return iter(found)

    def _around(self) -> list[int]:
        """The devices that counted or show something, and those next to them."""
        busy = [number for number, one in self._devices.items() if one.tables]
        busy += self._counts.busy
        near = (end.peer for number in busy for end in self.topology.ports(number))
        return sorted({*busy, *near})

    def networked(self) -> Iterator[int]:
        """Switches and NICs."""
        return self.numbers(Role.SWITCH, Role.NIC)

    def striking(self, *tables: str) -> list[int]:
        """The switches and NICs that dropped something or show one of these tables, in order."""
        if self._showing is None:
            self._showing = [number for number in self.networked() if number in self._devices]
            self._showing = [number for number in self._showing if self._devices[number].tables]
        dropping = {number for number, _, _ in self._counts.dropped}
        found = {number for number in self._showing if any(self.rows(number, one) for one in tables)}
        if dropping:
            found |= dropping.intersection(self.networked())
        return sorted(found)

    def counting(self, metric: str) -> list[tuple[int, int]]:
        """The ports whose counter of this metric is not 0, in order."""
        return [place for place in self._counts.ports(metric) if place[1] >= 0]

    def rows(self, number: int, table: str) -> Sequence[Row]:
        """A table of a device; empty if it has nothing to show."""
        one = self._devices.get(number)
        return () if one is None else one.rows(table)

    def counters(self, number: int) -> Mapping[tuple[str, int, int, str], int]:
        """A device's counters that are not zero: metric, port, priority, reason."""
        return self._counts.counters(number)

    @property
    def all_answer(self) -> bool:
        """Whether no host is lost."""
        return not any(one.rows("silent") for one in self._devices.values())

    # ---- ports and links

    def fabric_ports(self, number: int) -> Iterator[tuple[int, Attachment]]:
        """A device's ports on the fabric, as they were meant to be."""
        for port, end in enumerate(self.topology.ports(number)):
            if end.kind == FABRIC:
                yield port, end

    def peer(self, number: int, port: int) -> tuple[int, int]:
        """Who is at the other end of a port, and its port, as the neighbours say."""
        known = self._neighbours.get(number)
        if known is None:
            rows = self.rows(number, "neighbours")
            known = self._neighbours[number] = {own: (peer, peer_port) for own, peer, peer_port in rows}
        if port in known:
            return known[port]
        end = self.topology.ports(number)[port]
        return end.peer, end.peer_port

    def port_name(self, number: int, port: int) -> str:
        """A port by who is at its other end: `rtsw-0>ctsw-3`."""
        return f"{self.name(number)}>{self.name(self.peer(number, port)[0])}"

    def link_name(self, number: int, port: int) -> str:
        """The link behind a port, as faults name it; where cables were swapped, by its ends."""
        peer, peer_port = self.peer(number, port)
        ends = self.topology.ports(number)
        if port < len(ends) and (ends[port].peer, ends[port].peer_port) == (peer, peer_port):
            return self.topology.links[ends[port].link].name
        low, high = sorted((number, peer), key=lambda one: (self.topology.nodes[one].tier, one))
        return f"{self.name(low)}:{self.name(high)}"

    # ---- counters

    def total(self, metric: str, number: int, port: int = -1) -> int:
        """A counter, over priorities and reasons."""
        return self._counts.port(metric, number, port)

    def at_device(self, metric: str, number: int) -> int:
        """A counter of all ports of a device."""
        return sum(self.total(metric, number, port) for port, _ in self.fabric_ports(number))

    def by_priority(self, metric: str, number: int, port: int) -> Mapping[int, int]:
        """A counter of a port by priority; without those that are zero."""
        return self._counts.by_priority(metric, number, port)

    def dropped(self, number: int, port: int, *reasons: str) -> int:
        """Frames that a port dropped for these reasons."""
        return sum(self._counts.dropped.get((number, port, reason), 0) for reason in reasons)

    def dropped_at(self, number: int, *reasons: str) -> int:
        """Frames that a device dropped for these reasons."""
        return sum(
            value
            for (device, _, reason), value in self._counts.dropped.items()
            if device == number and reason in reasons
        )

    @property
    def dropped_anything(self) -> bool:
        """Whether a buffer was full somewhere."""
        return any(self._counts.of_reason.get(reason) for reason in CONGESTION_REASONS)

    @property
    def lost_or_waited(self) -> bool:
        """Whether lossless frames were lost, or the timer of a queue pair expired."""
        lost = any(self._counts.of_reason.get(reason) for reason in LOSSLESS_LOST)
        return lost or bool(self._counts.total(NIC_LOCAL_ACK_TIMEOUT_ERR))

    def dropped_for_want_of_room(self, number: int) -> int:
        """Frames that a device dropped because a buffer was full."""
        return self.dropped_at(number, *CONGESTION_REASONS)

    def moved(self, metric: str, number: int, port: int = -1, reason: str = "") -> Moved | None:
        """Between which samples a counter first moved; None if no sample shows it."""
        if self._moved is None:
            self._moved = self._moves.of_metric(self._series)
        return self._moved.get((metric, number, port, reason))

    def since(self, metric: str, number: int, port: int = -1, reason: str = "") -> int:
        """Since when a counter has moved, at the latest; 0 if no sample shows it."""
        moved = self.moved(metric, number, port, reason)
        return self.end_ps if moved is None else moved.after_ps

    def when(self, metric: str, number: int, port: int = -1, reason: str = "") -> str:
        """The same in words, to be put behind a value; empty if no sample shows it."""
        moved = self.moved(metric, number, port, reason)
        if moved is None:
            return ""
        return f" (first between {shown_time(moved.after_ps)} and {shown_time(moved.by_ps)})"

    def alarmed(self) -> dict[str, int]:
        """What an operator would have been called for, and how often."""
        return alarmed(self._counts, (one.tables for one in self._devices.values()))

    def times(self) -> dict[str, int]:
        """How long jobs took that ended well; of those that repeat, the longest round."""
        return times_of(self.jobs, self.plans, self._operations(), self.cut)

    def usual_times(self) -> dict[str, int]:
        """The same, of those that repeat the median round; the round under way, if that has taken longer than
        every other.
        """
        return times_of(self.jobs, self.plans, self._operations(), self.cut, usual=True)

    def _operations(self) -> Sequence[Row]:
        return self.rows(self.topology.controller, "operations")

    def alarms(self) -> int:
        """How often in all."""
        return sum(self.alarmed().values())


def answering(topology: Topology, devices: Iterable[Shown]) -> dict[int, Shown]:
    """What devices show. Whoever is lost answers nobody, nor do the NICs in it: what they would show is
    nobody's to see.
    """
    found = {one.number: one for one in devices}
    for host in topology.hosts:
        if host in found and found[host].rows("silent"):
            for node in topology.server(topology.nodes[host].host):
                found[node] = Shown(node, {}, {"silent": [[1]]} if node == host else {})
    return found


def counted_by(devices: Iterable[Shown]) -> Counts:
    """What devices counted that say so."""
    counts = Counts()
    for one in devices:
        if one.counters:
            series = [Series(*place) for place in one.counters]
            counts.add(one.number, series, list(one.counters.values()))
    return counts


def alarmed(counts: Counts, tables: Iterable[Rows]) -> dict[str, int]:
    """What an operator is called for, and how often: losses of order, timeouts, storms, headroom overruns,
    ports that went down. `counts` and `tables` are those of all devices.
    """
    found: dict[str, int] = {metric: counts.total(metric) for metric in ALARMED}
    found[OVERRUN] = counts.of_reason.get(OVERRUN, 0)
    found[PORTS_DOWN] = sum(len(one.get("downs", ())) for one in tables)
    return found


class Moved(NamedTuple):
    """A counter moved after one sample and by the time of another."""

    after_ps: int
    by_ps: int


class Moves:
    """Hears samples in order."""

    def __init__(self) -> None:
        self._first: dict[int, dict[int, Moved]] = {}
        self._nonzero = NonzeroDevices()
        self._last_ps = 0

    def add(self, changed: Changed) -> None:
        """The next sample."""
        moved = Moved(self._last_ps, changed.virtual_ps)
        self._last_ps = changed.virtual_ps
        for number, places in self._nonzero.add(changed.changed).items():
            self._first.setdefault(number, {}).update(dict.fromkeys(places, moved))

    def of_metric(self, series: Mapping[int, Sequence[Series]]) -> dict[tuple[str, int, int, str], Moved]:
        """(metric, device, port, reason) to when the earliest of its counters moved."""
        found: dict[tuple[str, int, int, str], Moved] = {}
        for number, first in self._first.items():
            counted = series.get(number, ())
            for place, moved in first.items():
                if place < len(counted):
                    one = counted[place]
                    key = (one.metric, number, one.port, one.reason)
                    known = found.get(key)
                    if known is None or moved < known:
                        found[key] = moved
        return found


class Cut(NamedTuple):
    """The end of a run whose jobs repeat: it cuts a round short."""

    at_ps: int
    delay_ps: int
    """Delay of the management network: the controller hears so late of an end, and hosts so late of a begin.
    """

    def under_way_ps(self, start_ps: int) -> int:
        """How long what began has taken at least, of whose end nobody has heard; below 0 if nothing tells."""
        return self.at_ps - self.delay_ps - start_ps

    def begun_ps(self, end_ps: int) -> int:
        """When what follows an end began."""
        return end_ps + 2 * self.delay_ps


def cut_of(scenario: Scenario, end_ps: int) -> Cut | None:
    """Where a run cut its jobs short that repeat; None where they do not."""
    return Cut(end_ps, scenario.control.management_delay_ps) if scenario.run.repeat else None


def times_of(
    jobs: Mapping[str, Job],
    plans: Sequence[JobPlan],
    operations: Sequence[Row],
    cut: Cut | None = None,
    *,
    usual: bool = False,
) -> dict[str, int]:
    """How long each job that ended well took; of one that repeats, its longest round, or the `usual` one. The
    round that was cut short counts for as long as it took until then, if that is longer than every other.
    """
    found: dict[str, int] = {}
    for plan in plans:
        job = jobs[plan.name]
        if job.status != SUCCESS or job.start_ps is None or job.end_ps is None:
            continue
        if cut is None:
            found[plan.name] = job.end_ps - job.start_ps
            continue
        own = [row for row in operations if row[0] == plan.job]
        rounds = sorted(_rounds(own, len(plan.collectives) or 1)) or [job.end_ps - job.start_ps]
        present_ps = cut.under_way_ps(_present_start_ps(own, len(plan.collectives) or 1, job.end_ps, cut))
        within = rounds[(len(rounds) - 1) // 2] if usual and present_ps <= rounds[-1] else rounds[-1]
        found[plan.name] = max(within, present_ps)
    return found


def _present_start_ps(rows: Sequence[Row], period: int, ended_ps: int, cut: Cut) -> int:
    """When the round under way began, at the latest; `ended_ps` is the end of what is known of jobs without
    operations.
    """
    if not rows:
        return cut.begun_ps(ended_ps)
    number = rows[-1][1] + 1
    starts = [row[2] for row in rows if row[1] == number // period * period]
    return starts[0] if starts else cut.begun_ps(rows[-1][3])


def _rounds(rows: Sequence[Row], period: int) -> list[int]:
    """How long each whole round took of which every operation is known."""
    starts = {row[1] // period: row[2] for row in rows if row[1] % period == 0}
    return [
        row[3] - starts[row[1] // period]
        for row in rows
        if row[1] % period == period - 1 and row[1] // period in starts
    ]
