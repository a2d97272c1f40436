"""How does a worker take in what is done to a run while it goes on?

Changes (`emu.scenario.changes`) are *staged* with every worker, by number from 0, and made at the first
requested sync point that says so: whoever leads asks worker 0 to announce it once every worker has them. At
a sync point everything before it has been executed and nothing at or after it. The scenario with the change
says which events its faults make; those that are still to come and differ from what is pending are taken
away or pushed. So the run goes on as one whose scenario had the change from the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from actors.runtime.build import Blueprint, fault_events
from actors.runtime.partition import Partition
from actors.runtime.plan import RunPlan
from actors.runtime.sync import SyncPoint
from emu.faults.events import Fault
from emu.scenario.changes import Change, changed
from emu.scenario.resolve import resolve
from emu.wire.event import Event


def all_of(*acts: Callable[[SyncPoint], None]) -> Callable[[SyncPoint], None]:
    """Do each of these at a sync point, in this order."""

    def act(sync: SyncPoint) -> None:
        for one in acts:
            one(sync)

    return act


class Changes:
    """One worker's changes: staged, and made."""

    def __init__(self, plan: RunPlan, worker: int, partition: Partition) -> None:
        self.made_ps: list[int] = []
        """When each was made; those beyond are staged."""
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

    def act(self, sync: SyncPoint) -> None:
        """Make what is due at a sync point."""
        assert sync.changes <= len(self._staged), (sync.changes, len(self._staged))
        while len(self.made_ps) < sync.changes:
            self._make(self._staged[len(self.made_ps)], sync.time_ps)
            self.made_ps.append(sync.time_ps)

    def _make(self, change: Change, now_ps: int) -> None:
        before = self._blueprint
        scenario = changed(before.scenario, change, now_ps)
        resolved = resolve(scenario, before.topology)
        self._blueprint = Blueprint(scenario, before.topology, resolved, before.plan)
        old, new = self._coming(before, now_ps), self._coming(self._blueprint, now_ps)
        gone = [place for place in old if place not in new]
        queue = self._partition.kernel.queue
        if gone:
            pending = queue.pending()
            queue.clear()
            for event in pending:
                if (int(event.time_ps), int(event.key)) not in gone:
                    queue.push(event)
        for place, event in new.items():
            if place not in old:
                queue.push(event)

    def _coming(self, blueprint: Blueprint, now_ps: int) -> dict[tuple[int, int], Event]:
        """The events of a scenario's faults from now on, by time and key."""
        events = fault_events(blueprint, self._plan.assignment, self._worker)
        return {(int(one.time_ps), int(one.key)): one for one in events if one.time_ps >= now_ps}
