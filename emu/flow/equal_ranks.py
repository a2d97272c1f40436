"""Ranks that do the same: of a training step, all that have the same script and equal groups.

Two ranks are equal if they share a script and if, for each group that it names, the other members are equal,
too. The step is then gone through once for all of them (`emu.flow.in_step`). It is the coarsest partition of
that kind, found by splitting until nothing changes.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from actors.ncclx.script import LINE, Group, ScriptPlan


@dataclass(frozen=True)
class EqualRanks:
    """A partition of the ranks of a job, and of its groups."""

    ranks: Sequence[Sequence[int]]
    """By class, its members."""
    of_rank: Sequence[int]
    groups: Sequence[Sequence[int]]
    of_group: Sequence[int]
    callers: Sequence[int]
    """By class of groups: how many classes of ranks come to each call."""


def each_alone(plan: ScriptPlan) -> EqualRanks:
    """No rank is like another."""
    ranks, groups = range(len(plan.scripts)), range(len(plan.groups))
    callers = [len(group.members) for group in plan.groups]
    return EqualRanks([(one,) for one in ranks], ranks, [(one,) for one in groups], groups, callers)


def equal_ranks(plan: ScriptPlan) -> EqualRanks:
    """Who is like whom."""
    of_rank = _numbered([(id(one.streams), *map(id, one.calls)) for one in plan.scripts])
    callers: list[list[tuple[int, int]]] = [[] for _ in plan.groups]
    """By group: its ranks, and which of their groups it is."""
    for rank, script in enumerate(plan.scripts):
        for place, number in enumerate(script.groups):
            callers[number].append((rank, place))
    while True:
        comers = [sorted([(of_rank[rank], place) for rank, place in each]) for each in callers]
        of_group = _numbered(
            [
                (group.kind, group.reason, group.data_priority, _sender(group, of_rank), *each)
                for group, each in zip(plan.groups, comers, strict=True)
            ]
        )
        split = _numbered(
            [
                (of_rank[rank], *(of_group[number] for number in script.groups))
                for rank, script in enumerate(plan.scripts)
            ]
        )
        if max(split) == max(of_rank):
            break
        of_rank = split
    groups = _members(of_group)
    return EqualRanks(
        _members(of_rank), of_rank, groups, of_group, [len(set(comers[number[0]])) for number in groups]
    )


def _sender(group: Group, of_rank: Sequence[int]) -> int:
    return of_rank[group.members[0]] if group.kind == LINE else -1


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    """A number for each different key, from 0 on, in their order."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _members(of: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(max(of) + 1)]
    for one, number in enumerate(of):
        found[number].append(one)
    return found
