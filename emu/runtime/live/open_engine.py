"""The devices of an open run, and how they advance: to a time, or to the first at which something was told.

Whoever posts may do so at the very time of what it was told, so nothing after that time may have been
executed anywhere. With one part the queue stops by itself. Of several parts each might be ahead of the others
by the lookahead between them. So they advance together from one event of a host to the next: only hosts tell
something, and what makes an event of a host pending is at least a host link's delay before it. All parts
stand at a sync point just before each such time. Then everything at that time is executed; no other device
can hear of it before a link's delay has passed.
"""

from __future__ import annotations

from typing import Final

from actors.fabric.model import FABRIC, NVLINK
from actors.kernel.device import Device, Plain
from actors.kernel.event import NEVER_PS, key_device
from emu.base.errors import RuntimeFailure
from emu.build.lookahead import message_lookahead_ps
from emu.build.open_site import OpenSite, Post
from emu.measure.collected import DeviceRecord
from emu.runtime.blueprint import RunPlan
from emu.runtime.in_process import InProcess
from emu.runtime.live.changes import Changes
from emu.runtime.sync.garbage import Growth
from emu.runtime.sync.logical_process import LogicalProcess, records_of
from emu.runtime.sync.partition import Partition
from emu.runtime.sync.sync_points import SyncPoint

_BUDGET: Final = 1 << 14
"""Events of a slice: so many are a few milliseconds."""


class Engine:
    """The devices of an open run in this process, in as many parts as the plan has."""

    def __init__(self, plan: RunPlan, job: int) -> None:
        self.now_ps = 0
        """Nothing after it was executed, and everything before it."""
        self.through_ps = 0
        """Everything before this was executed: `now_ps`, or behind it."""
        self._plan = plan
        self._partitions: list[Partition] = [plan.partition(part) for part in range(plan.workers)]
        self._machines = [plan.machine(part) for part in range(plan.workers)]
        self._changes = [
            Changes(plan, part, partition, self._machines[part], live=False)
            for part, partition in enumerate(self._partitions)
        ]
        self._sites = [OpenSite(plan.blueprint, job, partition.devices) for partition in self._partitions]
        self._made = 0
        self._growth = Growth()
        self._hosts = set(map(int, plan.topology.hosts))
        kinds = (FABRIC, NVLINK)
        self._delay_ps = min(
            message_lookahead_ps(link.rate_bps, link.delay_ps)
            for link in plan.topology.links
            if link.kind not in kinds
        )
        """The least from an event of another device to one of a host."""
        for site in self._sites:
            site.stop_when_told(len(self._sites) == 1)
        self._processes = [
            LogicalProcess(partition, machine, _nothing)
            for partition, machine in zip(self._partitions, self._machines, strict=True)
        ]
        self._together = InProcess(self._processes, 1, lambda: True)

    @property
    def devices(self) -> list[Device]:
        """All of them."""
        return [device for partition in self._partitions for device in partition.devices]

    def start(self) -> None:
        """Let every device push its first events."""
        for partition in self._partitions:
            partition.start()

    def next_ps(self) -> int:
        """The time of the next event; NEVER_PS if nothing is pending."""
        return min(partition.next_time_ps() for partition in self._partitions)

    def outlook(self) -> tuple[int, int, int]:
        """Pending events that are work, how many of these promise that something goes on, and progress."""
        looks = [partition.outlook() for partition in self._partitions]
        progress = sum(partition.progress() for partition in self._partitions)
        return sum(work for work, _ in looks), sum(promises for _, promises in looks), progress

    def post(self, post: Post) -> None:
        """Do what is posted for now."""
        for site in self._sites:
            site.post(post, self.now_ps)

    def prepare(self, post: Post, at_ps: int) -> None:
        """Make what a post needed at its time, and nothing else: the state is loaded afterwards."""
        for site in self._sites:
            site.prepare(post, at_ps)

    def change(self, text: str) -> None:
        """Make a change to the scenario (`emu.scenario.live_changes`), as JSON, at `through_ps`."""
        self._made += 1
        at_ps = self.through_ps
        for partition, changes in zip(self._partitions, self._changes, strict=True):
            partition.reach(at_ps)
            changes.stage(text)
            changes.act(SyncPoint(at_ps, sample=False, stall_check=False, requested=True, changes=self._made))
        self._resume_clock()

    def advance(self, limit_ps: int) -> list[list[int]]:
        """Execute everything before `limit_ps`, or everything up to the first time at which something comes
        of a post; returns what came then: number, rank, begun_ps, end_ps, status."""
        if len(self._partitions) == 1:
            return self._advance_alone(limit_ps)
        return self._advance_together(limit_ps)

    def _advance_alone(self, limit_ps: int) -> list[list[int]]:
        partition, site = self._partitions[0], self._sites[0]
        while partition.run(limit_ps, _BUDGET) >= _BUDGET:
            self._growth.look()
        if partition.stop_ps() < limit_ps:
            told = site.take_told()
            if not told:
                raise RuntimeFailure("the controller ended an open run")
            partition.kernel.stop_at(int(NEVER_PS))
            self.now_ps = told[0][3]
            self.through_ps = self.now_ps + 1
            return told
        partition.kernel.stop_at(int(NEVER_PS))
        self.now_ps = self.through_ps = limit_ps
        return site.take_told()

    def _advance_together(self, limit_ps: int) -> list[list[int]]:
        while True:
            host_ps = min(self._next_of_hosts_ps(partition) for partition in self._partitions)
            if host_ps >= limit_ps and self.through_ps >= limit_ps:
                self.now_ps = limit_ps
                return []
            if host_ps > self.now_ps:
                target_ps = min(limit_ps, host_ps, self.next_ps() + self._delay_ps)
                if target_ps > self.through_ps:
                    self._together.advance(target_ps)
                self.now_ps = target_ps
                self.through_ps = max(self.through_ps, target_ps)
            if self.now_ps >= limit_ps:
                return []
            if host_ps == self.now_ps:
                for partition in self._partitions:
                    while partition.run(self.now_ps + 1, _BUDGET) >= _BUDGET:
                        pass
                self.through_ps = self.now_ps + 1
                told = [row for site in self._sites for row in site.take_told()]
                if told:
                    return told

    def _next_of_hosts_ps(self, partition: Partition) -> int:
        found = int(NEVER_PS)
        for event in partition.kernel.pending():
            if event.time_ps < found and key_device(event.key) in self._hosts:
                found = int(event.time_ps)
        return found

    def records(self) -> list[DeviceRecord]:
        """What every device has done so far."""
        self._stand()
        found = [record for partition in self._partitions for record in records_of(partition)]
        self._resume_clock()
        return found

    def save(self) -> list[Plain]:
        """The state of all parts."""
        self._stand()
        states: list[Plain] = [partition.save() for partition in self._partitions]
        self._resume_clock()
        return states

    def load(self, states: list[Plain], now_ps: int, through_ps: int, changes: list[tuple[str, int]]) -> None:
        """Take the state of an engine that was prepared alike, and in which these changes were made."""
        self.now_ps, self.through_ps = now_ps, through_ps
        for partition, machine, process in zip(
            self._partitions, self._machines, self._processes, strict=True
        ):
            partition.load(states)
            machine.load([through_ps, *machine.save()[1:]])
            process.resume_at(through_ps)
        self._made = len(changes)
        for one in self._changes:
            one.restore(changes, (), through_ps)
        self._resume_clock()

    def _stand(self) -> None:
        """Let what was deferred happen, and take back what was done ahead of time."""
        for partition in self._partitions:
            partition.reach(self.through_ps)

    def _resume_clock(self) -> None:
        """Posts may still come for `now_ps`."""
        for partition in self._partitions:
            for block in partition.kernel.blocks:
                block.queue.now_ps = self.now_ps


def _nothing(sync: SyncPoint) -> None:
    """Nobody acts at these sync points."""
