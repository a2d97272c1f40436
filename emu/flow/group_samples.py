"""Samples of calls of equal groups: some groups, or all, that are run alone together.

One group of a class runs alone, the one with the longest paths, and stands for the others. Where queue pairs
take whole slices by turns, slices of rings that share a rack meet at every step, and no rate says what that
costs. There all groups of a class run, together with those of classes that begin at the same time and share
racks with it. Where that is too much, rings are cut to their first members,
and broken off when they have gone round; of transfers, so many groups run. Rings of one rack meet those of
the same racks then as in the whole.

A class whose groups are inside servers has one group for all.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC
from actors.ncclx.operations import Operation
from actors.ncclx.schedule import Schedule, is_ring
from actors.ncclx.script import LINE
from actors.ncclx.transport.wiring import WiredJob
from emu.flow.connections import Slices
from emu.flow.isolated import Part
from emu.flow.queue_pair_paths import FlowFabric
from emu.scenario.schema import Scenario

MOST_WHOLE_HOPS: Final = 2_500_000
"""Packet-hops of a class of which nothing is left out."""
MOST_LINES_HOPS: Final = 500_000
"""Packet-hops of transfers of which some stand for all."""
MOST_INSIDE_HOPS: Final = 200_000
"""Slices by links of a group inside a server."""
MOST_SAMPLED_PAIRS: Final = 3072
"""Queue pairs of a sample that is broken off."""
FEWEST_MEMBERS: Final = 4
"""A ring of fewer stands for no longer one."""


class Cut(NamedTuple):
    """What of a class runs alone."""

    groups: tuple[int, ...]
    members: int
    hops: int
    pairs: int
    slices: int
    """Slices of the connections of one group, in the whole operation."""


class Samples:
    """The samples of one job's classes of groups."""

    def __init__(self, scenario: Scenario, job: WiredJob, fabric: FlowFabric) -> None:
        self._round_robin = scenario.ncclx.qp_policy == "round_robin"
        self._job = job
        self._fabric = fabric

    def by_turns(self, pairs: int) -> bool:
        """Whether so many queue pairs of a connection take whole slices by turns."""
        return self._round_robin and pairs > 1

    def cut(
        self,
        groups: Sequence[int],
        longest: int,
        operation: Operation,
        slices: Mapping[int, tuple[Slices, bool]],
        hops: int,
        pairs: int,
        spread: int = 1,
    ) -> Cut | None:
        """What of these groups, of which one has the longest paths, runs alone in an operation, of which
        channels carry such slices over so many queue pairs a connection, each slice over `spread` of them;
        `hops` are the packet-hops of one group. None: nothing.
        """
        most = max((one.count for one, _ in slices.values()), default=0)
        group = self._job.script.groups[groups[0]]
        count = 2 if group.kind == LINE else len(group.members)
        connections = len(slices) * (1 if group.kind == LINE else count)
        if not most or not (is_ring(operation) or group.kind == LINE):
            return None
        if not any(one for _, one in slices.values()):
            fits = hops <= MOST_INSIDE_HOPS
            return Cut((groups[0],), count, hops, connections, most * connections) if fits else None
        if not self.by_turns(pairs // spread):
            groups = (longest,)
        of_group = most * connections

        def cut(groups: Sequence[int], members: int) -> Cut:
            part = len(groups) * hops * members // count
            queue_pairs = len(groups) * connections * pairs * members // count
            return Cut(tuple(groups), members, part, queue_pairs, of_group * members // count)

        if hops * len(groups) <= MOST_WHOLE_HOPS:
            return cut(groups, count)
        if group.kind == LINE:
            few = min(MOST_LINES_HOPS // hops, len(groups))
            return cut(groups[:few], count) if few else None
        for members in range(count, FEWEST_MEMBERS - 1, -1):
            found = cut(groups, members)
            if (
                found.pairs <= MOST_SAMPLED_PAIRS
                and self._schedule(operation, groups[0], members) is not None
            ):
                return found
        return None

    def _schedule(self, operation: Operation, number: int, members: int) -> Schedule | None:
        """The schedule of the first members of a ring, with chunks as large; None if they go another way."""
        group, schedule = self._job.script.groups[number], self._job.schedules[number]
        count = len(group.members)
        if members == count:
            return schedule.with_operations([operation._replace(iteration=0, warmup=False)])
        order = [schedule.ring(channel)[:members] for channel in range(schedule.channels)]
        nodes = [schedule.nodes[place] for place in order[0]]
        size_bytes = operation.size_bytes * members // count
        part = Schedule(
            schedule.settings,
            [operation._replace(iteration=0, warmup=False, size_bytes=size_bytes)],
            nodes,
            schedule.channels,
        )
        if len(set(nodes)) < members:
            return None
        kept = all(
            [order[0][place] for place in part.ring(channel)] == list(order[channel])
            for channel in range(schedule.channels)
        )
        return part if kept else None

    def racks(self, cut: Cut) -> set[int]:
        """Where a sample meets others: the switches at its NICs. Transfers meet them by rates: they take
        little, and would bring the collectives of all stages together.
        """
        if self._job.script.groups[cut.groups[0]].kind == LINE:
            return set()
        ports, found = self._fabric.topology.ports, set[int]()
        for number in cut.groups:
            for rank in self._job.script.groups[number].members[: cut.members]:
                nics = {
                    side.nic for side in self._job.sides[rank] if side.group == number and not side.inside
                }
                found.update(end.peer for nic in nics for end in ports(nic) if end.kind == FABRIC)
        return found

    def parts(self, operation: Operation, cut: Cut, turn: int) -> list[Part]:
        """What is run of a class whose connections begin with this of their queue pairs."""
        found: list[Part] = []
        for number in cut.groups:
            schedule, group = self._schedule(operation, number, cut.members), self._job.script.groups[number]
            assert schedule is not None, number
            members = group.members
            if cut.members < len(members):
                members = tuple(
                    members[place] for place in self._job.schedules[number].ring(0)[: cut.members]
                )
            key = self._job.job, number, cut.members, schedule.operations[0], turn
            found.append(Part(self._job, number, members, schedule, 0, key, turn=turn, slices=cut.slices))
        return found
