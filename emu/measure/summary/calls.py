"""What did each rank call, when, and how far did it come? Read off the tables that hosts report.

A *group* is a communicator of a job, by its number there: of a benchmark the colours of its split, of a
script what its plan lists. A *call* is known by its group and by its number among the rank's calls of that
group, from 0, so the same call of different ranks has the same number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from actors.fabric.model import Topology
from actors.ncclx.operations import CALLS
from emu.measure.collected import DeviceRecord, GroupPlan
from emu.measure.summary.jobs import status_name
from emu.measure.summary.summary import RankFailure

_WAITS = ("nothing", "data", "clear_to_send", "acknowledgement", "error")


class Flight(NamedTuple):
    """One remembered call of one rank, as it announced it."""

    record: int
    """Its number among all calls of the rank."""
    group: int
    number: int
    op: str
    size_bytes: int
    begun_ps: int
    end_ps: int
    """-1 while it runs."""

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.end_ps >= 0


@dataclass
class RankCalls:
    """Of one rank."""

    flights: list[Flight] = field(default_factory=list)
    """Those it remembers, oldest first."""
    begun: dict[int, int] = field(default_factory=dict)
    """By group, how many calls it began."""
    ended: dict[int, int] = field(default_factory=dict)

    def present(self, group: int) -> Flight | None:
        """The call of a group in which it is."""
        return next((one for one in reversed(self.flights) if one.group == group and not one.done), None)

    def waiting(self) -> list[Flight]:
        """All calls in which it is."""
        return [one for one in self.flights if not one.done]


def calls_of(job: int, ranks: int, records: Iterable[DeviceRecord]) -> list[RankCalls]:
    """What the ranks of a job called; nothing where they never joined."""
    found = [RankCalls() for _ in range(ranks)]
    for record in records:
        for number, rank, *row in record.results.get("flights", ()):
            if number == job:
                place, group, call, op, *rest = row
                found[rank].flights.append(Flight(place, group, call, CALLS[op], *rest))
        for number, rank, group, begun, ended in record.results.get("called", ()):
            if number == job:
                found[rank].begun[group] = begun
                found[rank].ended[group] = ended
    return found


def failures_of(
    job: int, groups: Sequence[GroupPlan], records: Iterable[DeviceRecord], topology: Topology
) -> list[RankFailure]:
    """The failures of a job's ranks, earliest first."""
    found = []
    for record in records:
        for number, rank, *row in record.results.get("failures", ()):
            if number != job:
                continue
            group, call, status, why, peer, port, qpn, at_ps = row
            nic = topology.nodes[topology.ports(record.number)[port].peer].name if port >= 0 else None
            found.append(
                RankFailure(
                    rank=rank,
                    communicator=groups[group].name if 0 <= group < len(groups) else "",
                    operation=call,
                    status=status_name(status),
                    waits_for=_WAITS[why],
                    peer=peer if peer >= 0 else None,
                    nic=nic,
                    qpn=qpn if qpn >= 0 else None,
                    at_ps=at_ps,
                )
            )
    return sorted(found, key=lambda one: (one.at_ps, one.rank))
