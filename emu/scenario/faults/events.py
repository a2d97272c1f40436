"""The events that a fault becomes, and the times at which links change state.

A fault is resolved first: `Fault` says when it begins and ends, what it changes on which devices, and which
links it takes from routing. `events_of` makes of it the events that reach the devices, each at its exact
virtual time: what the scenario scripts before time begins, what somebody injects at a sync point from then
on. They carry all they need, so it does not matter who made them or where, and a snapshot holds them.

Links: both ends lose the signal at the same time. When each switch takes the link out of its groups, and back
in, is `emu.scenario.faults.convergence`'s to say.

`link_changes` is the timeline of links. Faults may overlap. The rules, for one link:

- A fault of kind down holds the link from its time on, for its duration if it has one.
- A repair (kind up) ends every hold that began before its time, so the link comes up whatever took it
  down.
- The link is down while anything holds it. Only changes of state are in the timeline: taking down what is
  down changes nothing, nor does repairing what is up.
- At one instant holds end first, then begin, so a link never flickers up between two faults.

A timeline is sorted by time and link, and has at most one change of a link at an instant, as the order of
events requires. Source: our own; real links have no opinion.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from actors.kernel.event import FAULT, NEVER_PS, Message, pack_key
from actors.wire.fault import BEGIN_FAULT, END_FAULT, REPAIR_FAULT, ROUTE
from emu.scenario.faults.convergence import Convergence

MOST_FAULTS: Final = 1 << 17
"""Occurrences in one run."""
_LATE: Final = 1 << 27
"""In the subject of what ends or is repaired."""
_NUMBER_SHIFT: Final = 10
_ROUTES: Final = 1 << 9
_PORTS: Final = 11
_PORT_MASK: Final = 0x7FF
"""A subject from the lowest bit on: operation or rest of a place (9), route (1), number (17), late (1)."""


class Change(NamedTuple):
    """What a fault changes on one device: see `actors.wire.fault`."""

    op: int
    device: int
    place: int
    values: tuple[int, int, int] = (0, 0, 0)


class Fault(NamedTuple):
    """One occurrence of a fault, with what it hits."""

    number: int
    """Unique in the run; below MOST_FAULTS."""
    entry: int
    """The scenario's fault that it belongs to, by its place; of an injected one, where it would stand."""
    kind: str
    target: str
    """What it hits, by name."""
    begin_ps: int
    end_ps: int
    """0 where it lasts."""
    changes: tuple[Change, ...]
    down: tuple[int, ...] = ()
    """Links that lose their signal."""
    avoided: tuple[int, ...] = ()
    """Links that routing takes out of use; those that lose their signal among them."""
    silent: tuple[int, ...] = ()
    """Links that keep their signal and lose every frame; among `avoided`."""
    unaware: int = -1
    """The switch whose own routing does not change."""
    repairs: bool = False
    """Whether it ends what began before, in place of beginning something."""


class FaultEvent(NamedTuple):
    """What one device is to do, and when."""

    at_ps: int
    device: int
    port: int
    subject: int
    op: int
    fault: int
    phase: int
    place: int
    values: tuple[int, int, int]

    def message(self) -> Message:
        """The event, ready to be pushed where its device lives."""
        message = Message(self.op, self.fault, self.phase, self.place, *self.values)
        message.time_ps = self.at_ps
        message.key = pack_key(self.device, FAULT, self.port, self.subject)
        return message


def events_of(fault: Fault, convergence: Convergence) -> list[FaultEvent]:
    """Every event of a fault, its end included, by device and time."""
    assert 0 <= fault.number < MOST_FAULTS, fault.number
    begun = REPAIR_FAULT if fault.repairs else BEGIN_FAULT
    found: list[FaultEvent] = []
    for change in fault.changes:
        found.append(_event(fault, change, fault.begin_ps, int(begun)))
        if fault.end_ps:
            found.append(_event(fault, change, fault.end_ps, int(END_FAULT)))
    dead = frozenset(fault.avoided)
    for link in fault.avoided:
        noticed = _noticed(fault, link, convergence)
        for at_ps, phase in noticed:
            heard = convergence.heard_ps(link, at_ps, dead, fault.unaware)
            found += [_event(fault, Change(ROUTE, one, link), heard[one], phase) for one in heard]
    return sorted(found, key=lambda one: (one.device, one.at_ps, one.subject, one.port))


def _noticed(fault: Fault, link: int, convergence: Convergence) -> list[tuple[int, int]]:
    """When the ends of a link notice what a fault does to it, and in which phase; nothing if they do not."""
    down_ps = up_ps = 0
    if link in fault.silent:
        if not convergence.silent(link):
            return []
        down_ps = convergence.hold_ps
    elif link in fault.down or fault.repairs:
        down_ps, up_ps = convergence.debounce_ps(link)
    if fault.repairs:
        return [(fault.begin_ps + up_ps, int(REPAIR_FAULT))]
    if not fault.end_ps:
        return [(fault.begin_ps + down_ps, int(BEGIN_FAULT))]
    if fault.end_ps - fault.begin_ps < down_ps:
        return []
    return [(fault.begin_ps + down_ps, int(BEGIN_FAULT)), (fault.end_ps + up_ps, int(END_FAULT))]


def _event(fault: Fault, change: Change, at_ps: int, phase: int) -> FaultEvent:
    port, extra = change.place, change.op
    if change.op == ROUTE:
        port, extra = change.place & _PORT_MASK, _ROUTES | change.place >> _PORTS
    late = 0 if phase == BEGIN_FAULT else _LATE
    subject = late | fault.number << _NUMBER_SHIFT | extra
    return FaultEvent(
        at_ps, change.device, port, subject, change.op, fault.number, phase, change.place, change.values
    )


def all_events(faults: tuple[Fault, ...], convergence: Convergence) -> Iterator[FaultEvent]:
    """The events of all faults of a scenario."""
    for fault in faults:
        yield from events_of(fault, convergence)


def spans_of(faults: Iterable[Fault]) -> list[tuple[int, int]]:
    """From when to when each occurrence stands, NEVER_PS where it lasts, in their order; repairs left out.

    A repair ends what began before it, if it mends all that was changed.
    """
    found: list[tuple[int, int]] = []
    listed = list(faults)
    repairs = [(one.begin_ps, _touched(one)) for one in listed if one.repairs]
    for fault in listed:
        if not fault.repairs:
            mends_ps = [
                at_ps for at_ps, mended in repairs if at_ps > fault.begin_ps and _touched(fault) <= mended
            ]
            found.append((fault.begin_ps, min([fault.end_ps or int(NEVER_PS), *mends_ps])))
    return found


def _touched(fault: Fault) -> frozenset[tuple[int, int, int]]:
    """What a fault changes on devices, and the links that routing takes out of use."""
    changed = {(one.op, one.device, one.place) for one in fault.changes}
    return frozenset(changed | {(int(ROUTE), -1, link) for link in fault.avoided})


class LinkFault(NamedTuple):
    """One fault, on links by number. `for_ps` is 0 where it lasts until repaired."""

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
    hitting: dict[int, list[int]] = {}
    for number, fault in enumerate(faults):
        for link in fault.links:
            hitting.setdefault(link, []).append(number)
    changes = [
        change for link, numbers in sorted(hitting.items()) for change in _changes_of(link, numbers, faults)
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
