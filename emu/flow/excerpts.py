"""Calls of ranks in step by way of excerpts: some of their groups, or all, that are rehearsed together.

Where queue pairs take whole slices by turns, slices of rings that share a rack meet at every step, and no
closed form says what that costs. So the groups of a class are rehearsed, together with those of classes that
begin at the same time and share links with it. What is too much is cut down: rings to their first members,
closed behind the last of them, and to their first slices, as long as these go once round; of transfers, so
many groups. Rings of one rack meet those of the same racks then as in the whole.

A class whose groups are inside servers has one group for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, NamedTuple

from actors.fabric.model import FABRIC
from actors.fabric.paths import Delays
from actors.ncclx.operations import Operation
from actors.ncclx.schedule import is_ring
from actors.ncclx.script import LINE
from actors.ncclx.transport.wiring import WiredJob
from emu.flow import rehearsals
from emu.flow.calls import Calls, Carried
from emu.flow.edges import Edges, Slices
from emu.flow.rehearsals import EVENTS_OF_PIECE, EVENTS_OF_UNIT, UNITS_BY_TURNS, Stage
from emu.flow.wires import Wires
from emu.scenario.schema import Scenario

WHOLE: Final = 2
"""How many times `MOST_EVENTS` a class may have of which nothing is left out."""
MOST_OF_PART: Final = 600_000
"""Events of one of which something is left out."""
FEWEST_MEMBERS: Final = 4
"""A ring of fewer stands for no longer one."""


class Cut(NamedTuple):
    """What of a class is rehearsed."""

    groups: int
    members: int
    few: int
    """Slices of each connection, in one rehearsal and in a longer one."""
    many: int
    events: int
    """Of pieces, about."""
    share: int
    """How many times `MOST_EVENTS` its units may be."""


class Excerpts:
    """The excerpts of one job's classes of groups."""

    def __init__(self, scenario: Scenario, job: WiredJob, wires: Wires, delays: Delays) -> None:
        self._round_robin = scenario.ncclx.qp_policy == "round_robin"
        self._job = job
        self._wires = wires
        self._calls = Calls(job, Edges(scenario, wires, delays, counted=False), None, delays)

    def by_turns(self, pairs: int) -> bool:
        """Whether so many queue pairs of a connection take whole slices by turns."""
        return self._round_robin and pairs > 1

    def cut(
        self, groups: Sequence[int], operation: Operation, slices: dict[int, tuple[Slices, bool]], pairs: int
    ) -> Cut | None:
        """What of these groups is rehearsed in an operation, of which channels carry such slices over so many
        queue pairs a connection; None: nothing.
        """
        most = max((one.count for one, _ in slices.values()), default=0)
        outside = any(one for _, one in slices.values())
        group = self._job.script.groups[groups[0]]
        edges = len(slices) * (1 if group.kind == LINE else len(group.members))
        ring = is_ring(operation)
        if not most or not (ring or group.kind == LINE):
            return None
        if not outside:
            events = edges * most * EVENTS_OF_PIECE
            fits = events <= rehearsals.MOST_EVENTS
            return Cut(1, len(group.members), most, most, events, 1) if fits else None
        if not self.by_turns(pairs):
            return None
        each = EVENTS_OF_PIECE + EVENTS_OF_UNIT * UNITS_BY_TURNS

        def cut(groups: int, members: int, few: int, many: int, share: int) -> Cut:
            events = groups * edges * members // len(group.members) * many * EVENTS_OF_PIECE
            return Cut(groups, members, few, many, events, share)

        if edges * len(groups) * most * each <= WHOLE * rehearsals.MOST_EVENTS:
            return cut(len(groups), len(group.members), most, most, WHOLE)
        room = min(MOST_OF_PART, rehearsals.MOST_EVENTS) // each
        """For slices of connections."""
        if group.kind == LINE:
            groups_few = room // (edges * most)
            return cut(groups_few, 2, most, most, 1) if groups_few else None
        chunk = max(-(-one.count // max(one.parts, 1)) for one, _ in slices.values())
        for members in range(len(group.members), FEWEST_MEMBERS - 1, -1):
            few = -(-members * chunk // pairs) * pairs
            many = min(2 * few, most)
            if len(slices) * len(groups) * members * many <= room:
                return cut(len(groups), members, min(few, most), many, 1)
        return None

    def racks(self, groups: Sequence[int], cut: Cut) -> set[int]:
        """Where an excerpt meets others: the switches at its NICs. Transfers meet them by rates: they take
        little, and would bring the collectives of all stages together.
        """
        if self._job.script.groups[groups[0]].kind == LINE:
            return set()
        ports, found = self._wires.topology.ports, set[int]()
        for number in groups[: cut.groups]:
            for rank in self._job.script.groups[number].members[: cut.members]:
                nics = {
                    side.nic for side in self._job.sides[rank] if side.group == number and not side.inside
                }
                found.update(end.peer for nic in nics for end in ports(nic) if end.kind == FABRIC)
        return found

    def times(self, cut: Cut, slices: Slices) -> Fraction:
        """How often what the longer part has more is to be added."""
        sizes = slices.sizes
        return Fraction(sum(sizes[cut.few :]), sum(sizes[cut.few : cut.many]) or 1)

    def on_stage(
        self, groups: Sequence[int], operation: Operation, cut: Cut, slices: int, first: int, stage: Stage
    ) -> None:
        """Bring so many slices of each connection to a stage, of which it carried `first` before."""
        closed = cut.members < len(self._job.script.groups[groups[0]].members)
        for at, number in enumerate(groups[: cut.groups]):
            carried: list[Carried] = []
            for ring in self._calls.whole(number, operation):
                known: dict[Slices, Slices] = {}
                for one in ring[: cut.members]:
                    part = known.setdefault(one.slices, one.slices.first(slices))
                    edge = replace(one.edge, first=first)
                    carried.append(one._replace(slices=part, edge=edge))
            self._calls.on_stage(number, operation, carried, stage, joins=at > 0, closed=closed)
