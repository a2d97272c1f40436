"""Changes to a live run: on their way to its workers, and as a worker takes them in at a sync point.

Changes (`emu.scenario.live_changes`) are *staged* with every worker, by number from 0, and made at the first
requested sync point that says so: whoever leads asks worker 0 to announce it once every worker has them. At
a sync point everything before it has been executed and nothing at or after it. The scenario with the change
says which events its faults make; those that are still to come and differ from what is pending are taken
away or pushed. So the run goes on as one whose scenario had the change from the beginning.

So, too, a run that goes back to a snapshot does not make them again at sync points: what was made before is
in the snapshot, and the events of what was made later are pushed at once.

A fault with the target `busiest ...` has its target measured at a sync point, at the time it occurs: by what
each candidate's ports have sent since the last sampling point of the grid (`run.sample_every`) but one. So
one to two such intervals are looked at. Of equals the first in the order of the fabric's numbers is taken,
also where none has sent anything.

Each worker knows its own ports. In the round in which the sync point is passed it says which candidate of its
own is busiest, as one integer that is less the more was sent, and the least of all is taken with the other
minima of the round (`emu.engine.sync.window`). So all workers find the same target without another round,
and the answer depends on counters at virtual times alone. The marks live in the ports and are saved with
them.

A fault that is injected into a live run strikes `STRIKE_AFTER_PS` after it was made, so that its target can
be measured.

On the way. Whoever leads the run looks every few milliseconds: hands the next change to every worker, has
worker 0 request the sync point once all have it, and hears when it was made. In one process that is a call
(`LocalLead`); on Ray each step is a round of calls that nobody waits for in between
(`emu.cluster.workers.ray_lead`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from actors.kernel.event import NEVER_PS, Event
from actors.nic.nic import Nic
from actors.port.port import Port
from actors.port.tap import Capture
from actors.switch.switch import Switch
from emu.devices.captures import give_captures
from emu.devices.devices import fault_events
from emu.devices.drawing import Blueprint
from emu.devices.switches import fabric_ports
from emu.engine.blueprint import RunPlan
from emu.engine.outcome import Made
from emu.engine.steering import Steering
from emu.engine.sync.partition import Partition
from emu.engine.sync.sync_points import SyncPoint
from emu.engine.sync.window import WindowMachine
from emu.scenario.fault_schedule import MeasuredHit, candidates_of, measured_hits, scripted
from emu.scenario.faults.events import Fault
from emu.scenario.faults.targets import Candidate
from emu.scenario.live_changes import Change, changed
from emu.scenario.resolve import resolve

ORDER_BITS: Final = 20
"""For the order of candidates, below what they sent: the least integer over all workers wins."""
MOST_BYTES: Final = (1 << 41) - 1
"""More than this sent in two intervals counts as this."""


class Meter:
    """What the ports of one partition have sent of late."""

    def __init__(self, partition: Partition) -> None:
        self._kernel = partition.kernel

    def mark(self) -> None:
        """A sampling point of the grid is passed."""
        for device in self._kernel.built():
            if isinstance(device, Switch | Nic):
                for port in fabric_ports(device):
                    port.marked_before_bytes = port.marked_bytes
                    port.marked_bytes = port.sent_bytes

    def busiest(self, candidates: Sequence[Candidate]) -> int:
        """The busiest that lives here, for the reduction; NEVER_PS if none does."""
        found = int(NEVER_PS)
        for order, one in enumerate(candidates):
            if self._kernel.hosts(one.node):
                sent = 0
                device = self._kernel.awake(one.node)
                if isinstance(device, Switch | Nic):
                    ports: list[Port] = fabric_ports(device)
                    sent = sum(int(ports[at].sent_bytes - ports[at].marked_before_bytes) for at in one.ports)
                found = min(found, MOST_BYTES - min(sent, MOST_BYTES) << ORDER_BITS | order)
        return found


def chosen(candidates: Sequence[Candidate], busiest: int) -> str:
    """The name of what the reduction found."""
    return candidates[busiest & (1 << ORDER_BITS) - 1].spot.name


def all_of(*acts: Callable[[SyncPoint], None]) -> Callable[[SyncPoint], None]:
    """Do each of these at a sync point, in this order."""

    def act(sync: SyncPoint) -> None:
        for one in acts:
            one(sync)

    return act


class Changes:
    """One worker's changes: staged, and made."""

    def __init__(
        self,
        plan: RunPlan,
        worker: int,
        partition: Partition,
        machine: WindowMachine,
        live: bool,
        captures: list[tuple[int, int, Capture]] | None = None,
    ) -> None:
        self.made_ps: list[int] = []
        """When each was made; those beyond are staged."""
        self.measured: list[Made] = []
        """What the faults that hit the busiest were found to hit."""
        self._machine = machine
        self._meter = Meter(partition)
        self._captures = [] if captures is None else captures
        """Where captures that begin go: the sampler's."""
        self._every_ps = plan.scenario.run.sample_every_ps
        self._hits_at = {one.at_ps: one for one in measured_hits(plan.scenario)}
        self._measures = live or bool(self._hits_at)
        """Whether the target of a fault may be measured."""
        self._plan = plan
        self._worker = worker
        self._partition = partition
        self._blueprint = plan.blueprint
        self._staged: list[Change] = []

    @property
    def staged(self) -> int:
        """How many changes are known here, made or not."""
        return len(self._staged)

    def faults(self) -> tuple[Fault, ...]:
        """Every occurrence of a fault, with the changes that were made."""
        return self._blueprint.resolved.faults

    def stage(self, text: str) -> None:
        """Take a change, as JSON, to be made later."""
        self._staged.append(json.loads(text))

    def restore(self, made: Sequence[tuple[str, int]], measured: Sequence[Made], from_ps: int) -> None:
        """Take all changes made so far, with their times, and the targets that were measured before
        `from_ps`.

        The run begins anew then. Devices are built and, if that is not the start, loaded.
        """
        self.measured += [one for one in measured if one.at_ps <= from_ps]
        self._blueprint = self._with_targets(self._blueprint)
        for text, at_ps in made:
            self.stage(text)
            self._make(json.loads(text), at_ps, from_ps)
            self.made_ps.append(at_ps)

    def act(self, sync: SyncPoint) -> None:
        """Measure targets, mark, and make what is due at a sync point."""
        if sync.busiest < NEVER_PS:
            self._measure_target(sync.time_ps, sync.busiest)
        if self._measures and sync.sample and sync.time_ps % self._every_ps == 0:
            self._meter.mark()
        assert sync.changes <= len(self._staged), (sync.changes, len(self._staged))
        while len(self.made_ps) < sync.changes:
            self._make(self._staged[len(self.made_ps)], sync.time_ps)
            self.made_ps.append(sync.time_ps)

    def busiest(self, at_ps: int) -> int:
        """Which candidate of the fault that occurs then has sent most, of those that live here."""
        return self._meter.busiest(self._candidates(self._hits_at[at_ps]))

    def _candidates(self, one: MeasuredHit) -> list[Candidate]:
        return candidates_of(self._blueprint.scenario, one.entry, self._blueprint.topology)

    def _measure_target(self, now_ps: int, busiest: int) -> None:
        one = self._hits_at[now_ps]
        target = chosen(self._candidates(one), busiest)
        self.measured.append(Made(now_ps, one.entry, one.place, target))
        before = self._blueprint
        self._take_over(before, self._with_targets(before), now_ps)

    def _with_targets(self, blueprint: Blueprint) -> Blueprint:
        measured = {(one.entry, one.place): one.target for one in self.measured}
        faults = scripted(blueprint.scenario, blueprint.topology, measured)
        return blueprint._replace(resolved=blueprint.resolved._replace(faults=faults))

    def _make(self, change: Change, now_ps: int, from_ps: int = -1) -> None:
        """Make a change; if the run began anew behind it, its events are there, or were executed."""
        before = self._blueprint
        scenario = changed(before.scenario, change, now_ps)
        resolved = resolve(scenario, before.topology)
        after = self._with_targets(Blueprint(scenario, before.topology, resolved, before.plan))
        first = len(before.scenario.run.capture)
        self._captures += give_captures(scenario, before.topology, self._partition.devices, first)
        if now_ps > from_ps:
            self._take_over(before, after, now_ps)
        else:
            self._blueprint = after
        self._hits_at = {one.at_ps: one for one in measured_hits(scenario)}
        self._machine.measure_at(at_ps for at_ps in self._hits_at if at_ps > from_ps)

    def _take_over(self, before: Blueprint, after: Blueprint, now_ps: int) -> None:
        """Go on with another blueprint: what is to come of it is pending, and nothing of the one before."""
        self._blueprint = after
        old, new = self._coming(before, now_ps), self._coming(after, now_ps)
        gone = [place for place in old if place not in new]
        kernel = self._partition.kernel
        if gone:
            pending = kernel.pending()
            kernel.clear()
            for event in pending:
                if (int(event.time_ps), int(event.key)) not in gone:
                    kernel.push(event)
        for place, event in new.items():
            if place not in old:
                kernel.push(event)

    def _coming(self, blueprint: Blueprint, now_ps: int) -> dict[tuple[int, int], Event]:
        """The events of a scenario's faults from now on, by time and key."""
        events = fault_events(blueprint, self._plan.assignment, self._worker)
        return {(int(one.time_ps), int(one.key)): one for one in events if one.time_ps >= now_ps}


LOOK_S: Final = 0.02


class LocalLead:
    """Leads the parts of a run in this process."""

    def __init__(self, steering: Steering, machine: WindowMachine, changes: Sequence[Changes]) -> None:
        self._steering = steering
        self._machine = machine
        """The machine of part 0."""
        self._changes = changes
        self._ending = False

    def look(self) -> None:
        """Pass on what was ordered; call it between slices."""
        steering = self._steering
        under_way = steering.under_way
        if under_way:
            if all(len(one.made_ps) >= under_way for one in self._changes):
                steering.made(self._changes[0].made_ps[under_way - 1])
        elif (taken := steering.take()) is not None:
            count, text, not_before_ps = taken
            for one in self._changes:
                one.stage(text)
            self._machine.request_changes(count, not_before_ps)
        if steering.end_asked and not self._ending and not steering.under_way:
            self._ending = True
            self._machine.request_end()
