"""The devices of an open run, and how they advance: to a time, or to the first at which something was
reported.

Whoever posts may do so at the very time of what was reported to it, so nothing after that time may have been
executed anywhere. With one part the queue stops by itself. Of several, wherever they live, each might be
ahead of the others by the lookahead between them. So they listen to the hosts (`actors.kernel.watch`): nobody
runs beyond the time at which the next host acts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from actors.fabric.model import FABRIC, NVLINK
from actors.kernel.device import Device, Plain
from actors.kernel.event import NEVER_PS
from emu.base.errors import RuntimeFailure
from emu.counts.collected import DeviceRecord
from emu.devices.checks import blaming, own_classes
from emu.devices.lookahead import message_lookahead_ps
from emu.devices.open_site import OpenSite, Post
from emu.engine.blueprint import RunPlan
from emu.engine.in_process import InProcess
from emu.engine.live.changes import Changes
from emu.engine.sync.garbage import Growth
from emu.engine.sync.logical_process import LogicalProcess, records_of
from emu.engine.sync.partition import Partition
from emu.engine.sync.sync_points import SyncPoint
from emu.engine.sync.window import WindowMachine
from emu.engine.waiting import Wait, waits_of

_BUDGET: Final = 1 << 14
"""Events of a slice: so many are a few milliseconds."""

Reports = list[list[int]]
"""What came of posts: number, rank, begun_ps, end_ps, status."""


class Outlook(NamedTuple):
    """What is pending."""

    next_ps: int
    """The time of the next event; NEVER_PS if nothing is pending."""
    work: int
    """How many events are work."""
    promises: int
    """How many of these promise that something goes on."""
    progress: int


def together(outlooks: Sequence[Outlook]) -> Outlook:
    """The outlook of all parts, given each one's."""
    times_ps, works, promises, progresses = zip(*outlooks, strict=True)
    return Outlook(min(times_ps), sum(works), sum(promises), sum(progresses))


class Engine(Protocol):
    """The devices of an open run, in this process or elsewhere."""

    now_ps: int
    """Nothing after it was executed, and everything before it."""
    through_ps: int
    """Everything before this was executed: `now_ps`, or behind it."""

    def start(self) -> None:
        """Let every device push its first events."""

    def next_ps(self) -> int:
        """The time of the next event, or earlier; NEVER_PS if nothing is pending."""

    def outlook(self) -> Outlook:
        """What is pending, as of the last advance."""

    def post(self, post: Post) -> None:
        """Do what is posted for now."""

    def change(self, text: str) -> None:
        """Make a change to the scenario (`emu.scenario.live_changes`), as JSON, at `through_ps`."""

    def advance(self, limit_ps: int) -> Reports:
        """Execute everything before `limit_ps`, or everything up to the first time at which something comes
        of a post; returns what came then."""

    def records(self) -> list[DeviceRecord]:
        """What every device has done so far."""

    def waits(self) -> list[Wait]:
        """Who waits for whom."""

    def save(self) -> list[Plain]:
        """The state of all parts."""

    def restore(self, ledger: Sequence[tuple[int, Post]], states: list[Plain], at: tuple[int, int]) -> None:
        """Take a state, of any parts, in which these posts and changes were made, in place of `start`."""

    def twin(self) -> Engine:
        """Another engine of the same plan, built and not started."""

    def close(self) -> None:
        """End what was started for it."""


def is_change(post: Post) -> bool:
    """Whether an entry of a ledger is a change to the scenario, its text alone."""
    return len(post) == 1


class OpenPart:
    """One part's devices, wherever they live. Of one that is `alone` the queue stops by itself."""

    def __init__(
        self,
        plan: RunPlan,
        partition: Partition,
        machine: WindowMachine,
        changes: Changes,
        job: int,
        *,
        alone: bool = False,
    ) -> None:
        self.partition = partition
        self.machine = machine
        self.changes = changes
        self.site = OpenSite(plan.blueprint, job, partition.devices)
        self.process = LogicalProcess(partition, machine, _nothing)
        self._topology = plan.topology
        self._made = 0
        if alone:
            self.site.stop_at_reports()
        else:
            self.process.watch = partition.kernel.watch([int(host.number) for host in self.site.hosts])
            kinds = (FABRIC, NVLINK)
            machine.hears_after_ps = min(
                message_lookahead_ps(link.rate_bps, link.delay_ps)
                for link in plan.topology.links
                if link.kind not in kinds
            )

    def start(self) -> None:
        """Let every device push its first events."""
        self.partition.start()

    def post(self, post: Post, now_ps: int) -> None:
        """Do what is posted for now."""
        self.site.post(post, now_ps)

    def change(self, text: str, through_ps: int, now_ps: int) -> None:
        """Make a change at `through_ps`."""
        self._made += 1
        self.partition.reach(through_ps)
        self.changes.stage(text)
        sync = SyncPoint(through_ps, sample=False, stall_check=False, requested=True, changes=self._made)
        self.changes.act(sync)
        self.stand(now_ps)

    def settle(self, through_ps: int) -> None:
        """Do what was posted for the present time."""
        while self.partition.run(through_ps, _BUDGET) >= _BUDGET:
            pass

    def stand(self, now_ps: int) -> None:
        """Posts may still come for `now_ps`."""
        for block in self.partition.kernel.blocks:
            block.queue.now_ps = now_ps

    def outlook(self) -> Outlook:
        """What is pending here."""
        return Outlook(
            self.partition.next_time_ps(), *self.partition.outlook(), progress=self.partition.progress()
        )

    def records(self, through_ps: int, now_ps: int) -> list[DeviceRecord]:
        """What every device here has done so far."""
        self.partition.reach(through_ps)
        found = records_of(self.partition)
        self.stand(now_ps)
        return found

    def save(self, through_ps: int, now_ps: int) -> Plain:
        """The state of this part."""
        self.partition.reach(through_ps)
        state: Plain = self.partition.save()
        self.stand(now_ps)
        return state

    def waits(self) -> list[Wait]:
        """What the devices here wait for."""
        return waits_of(self.partition.built, self._topology)

    def restore(
        self, ledger: Sequence[tuple[int, Post]], states: list[Plain], through_ps: int, now_ps: int
    ) -> None:
        """Make what posts needed, and take what is hosted here from the state of all parts."""
        made: list[tuple[str, int]] = []
        for at_ps, post in ledger:
            if is_change(post):
                made.append((post[0], at_ps))
            else:
                self.site.prepare(post, at_ps)
        self.partition.load(states)
        self.machine.load([through_ps, *self.machine.save()[1:]])
        self.process.resume_at(through_ps)
        self._made = len(made)
        self.changes.restore(made, (), through_ps)
        self.stand(now_ps)


class LocalEngine:
    """The devices of an open run in this process, in as many parts as the plan has."""

    def __init__(self, plan: RunPlan, job: int) -> None:
        self.now_ps = 0
        self.through_ps = 0
        self._plan = plan
        self._job = job
        self._parts: list[OpenPart] = []
        for number in range(plan.workers):
            partition, machine = plan.partition(number), plan.machine(number)
            changes = Changes(plan, number, partition, machine, live=False)
            self._parts.append(OpenPart(plan, partition, machine, changes, job, alone=plan.workers == 1))
        self._scenario = plan.scenario
        self._own = bool(own_classes(plan.scenario))
        """Whether a class of the user's own may fail."""
        self._growth = Growth()
        self._together = InProcess([part.process for part in self._parts], 1, lambda: True)

    @property
    def devices(self) -> list[Device]:
        """All of them."""
        return [device for part in self._parts for device in part.partition.devices]

    def start(self) -> None:
        """See `Engine`."""
        for part in self._parts:
            part.start()

    def next_ps(self) -> int:
        """See `Engine`."""
        return min(part.partition.next_time_ps() for part in self._parts)

    def outlook(self) -> Outlook:
        """See `Engine`."""
        return together([part.outlook() for part in self._parts])

    def post(self, post: Post) -> None:
        """See `Engine`."""
        for part in self._parts:
            part.post(post, self.now_ps)

    def change(self, text: str) -> None:
        """See `Engine`."""
        for part in self._parts:
            part.change(text, self.through_ps, self.now_ps)

    def advance(self, limit_ps: int) -> Reports:
        """See `Engine`."""
        if not self._own:
            return self._advance(limit_ps)
        with blaming(self._scenario):
            return self._advance(limit_ps)

    def _advance(self, limit_ps: int) -> Reports:
        if len(self._parts) == 1:
            return self._advance_alone(limit_ps)
        for part in self._parts:
            part.settle(self.through_ps)
        if self._together.advance(limit_ps) is not None:
            raise RuntimeFailure("the controller ended an open run")
        reported = [row for part in self._parts for row in part.site.take_reports()]
        self.through_ps = self._parts[0].machine.sync_ps
        self.now_ps = self.through_ps - 1 if reported else self.through_ps
        for part in self._parts:
            part.stand(self.now_ps)
        return reported

    def _advance_alone(self, limit_ps: int) -> Reports:
        partition, site = self._parts[0].partition, self._parts[0].site
        while partition.run(limit_ps, _BUDGET) >= _BUDGET:
            self._growth.look()
        reported: Reports = []
        if partition.stop_ps() < limit_ps:
            reported = site.take_reports()
            if not reported:
                raise RuntimeFailure("the controller ended an open run")
            self.now_ps = reported[0][3]
            self.through_ps = self.now_ps + 1
        else:
            self.now_ps = self.through_ps = limit_ps
            reported = site.take_reports()
        partition.kernel.stop_at(int(NEVER_PS))
        return reported

    def records(self) -> list[DeviceRecord]:
        """See `Engine`."""
        return [record for part in self._parts for record in part.records(self.through_ps, self.now_ps)]

    def waits(self) -> list[Wait]:
        """See `Engine`."""
        return [wait for part in self._parts for wait in part.waits()]

    def save(self) -> list[Plain]:
        """See `Engine`."""
        return [part.save(self.through_ps, self.now_ps) for part in self._parts]

    def restore(self, ledger: Sequence[tuple[int, Post]], states: list[Plain], at: tuple[int, int]) -> None:
        """See `Engine`."""
        self.now_ps, self.through_ps = at
        for part in self._parts:
            part.restore(ledger, states, self.through_ps, self.now_ps)

    def twin(self) -> LocalEngine:
        """See `Engine`."""
        return LocalEngine(self._plan, self._job)

    def close(self) -> None:
        """Nothing was."""


def _nothing(sync: SyncPoint) -> None:
    """Nobody acts at these sync points."""
