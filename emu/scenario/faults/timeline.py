"""When does each link go down and come up?

Faults may overlap. The rules, for one link:

- A fault of kind down holds the link from its time on, for its duration if it has one.
- A repair (kind up) ends every hold that began before its time, so the link comes up whatever took it
  down.
- The link is down while anything holds it. Only changes of state are in the timeline: taking down what is
  down changes nothing, nor does repairing what is up.
- At one instant holds end first, then begin: a link repaired and taken down at once is down, without a blink.

A timeline is sorted by time and link, and has at most one change of a link at an instant, as the order of
events requires. Source: our own; real links have no opinion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LinkFault(NamedTuple):
    """One fault, aimed at links by number. `for_ps` is 0 where it lasts until repaired."""

    at_ps: int
    up: bool
    links: tuple[int, ...]
    for_ps: int = 0


class LinkChange(NamedTuple):
    """A link changes state. `fault` is the number of the fault that brought this about."""

    at_ps: int
    link: int
    up: bool
    fault: int


def link_changes(faults: Sequence[LinkFault]) -> tuple[LinkChange, ...]:
    """What the faults, numbered by their place, do to each link; by time, then link."""
    aimed: dict[int, list[int]] = {}
    for number, fault in enumerate(faults):
        for link in fault.links:
            aimed.setdefault(link, []).append(number)
    changes = [
        change for link, numbers in sorted(aimed.items()) for change in _changes_of(link, numbers, faults)
    ]
    return tuple(sorted(changes))


def _changes_of(link: int, numbers: list[int], faults: Sequence[LinkFault]) -> list[LinkChange]:
    """The changes of one link: go through the instants at which something begins or ends."""
    instants = sorted(
        dict.fromkeys(
            time_ps
            for number in numbers
            for time_ps in (faults[number].at_ps, faults[number].at_ps + faults[number].for_ps)
        )
    )
    changes: list[LinkChange] = []
    holds: dict[int, int] = {}
    """Fault -> when its hold ends, -1 for never."""
    for now_ps in instants:
        was_down = bool(holds)
        ended = [number for number, end_ps in holds.items() if end_ps == now_ps]
        repairs = [number for number in numbers if faults[number].up and faults[number].at_ps == now_ps]
        if repairs:
            holds.clear()
        for number in ended:
            holds.pop(number, None)
        begun = [number for number in numbers if not faults[number].up and faults[number].at_ps == now_ps]
        for number in begun:
            holds[number] = now_ps + faults[number].for_ps if faults[number].for_ps else -1
        if bool(holds) != was_down:
            cause = min(begun) if holds else min(repairs or ended)
            changes.append(LinkChange(now_ps, link, not holds, cause))
    return changes
