"""The schedule of a scenario's faults: which occur, when, and where.

Every fault of the scenario becomes occurrences, each with the numbers of its devices and links, and ready to
be made events of (`emu.scenario.faults.events.events_of`). An injected fault goes the same way: `occurrences`
of its section, with numbers that the scenario has not used.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from actors.fabric.model import Fault as Flaw
from actors.fabric.model import Topology, TopologyError
from actors.kernel.mixing import Stream
from emu.base.errors import Problem, ScenarioError
from emu.base.records import Location
from emu.base.spelling import shown_location
from emu.scenario.faults.base import FaultSection, RecurringFault
from emu.scenario.faults.events import MOST_FAULTS, Fault
from emu.scenario.faults.targets import Candidate, Spot, candidates, is_any, is_measured, spots_of
from emu.scenario.schema import Scenario

MOST_OCCURRENCES: Final = MOST_FAULTS // 2
"""Occurrences that a scenario scripts, at most; the other numbers are for what is injected."""
MOST_FAULT_EVENTS: Final = 1 << 22
"""Events at devices that are pending from the start: about 2 GB of memory."""
CHOICE_PURPOSE = 1 << 24
"""Purpose of the random stream of a fault that hits `any` of several: this, plus its place."""


MeasuredTargets = Mapping[tuple[int, int], str]
"""By fault and occurrence, both by place: what was found to be busiest, by name."""


def scripted(
    scenario: Scenario, topology: Topology, measured: MeasuredTargets = MappingProxyType({})
) -> tuple[Fault, ...]:
    """All occurrences of the scenario's faults, by number. Raises ScenarioError with every problem.

    What is to hit the busiest of several changes nothing until `measured` say which that is.
    """
    problems: list[Problem] = []
    found: list[Fault] = []
    first = events = 0
    for entry, section in enumerate(scenario.faults):
        try:
            planned = occurrences(section, entry, first, scenario, topology, measured)
            first += len(planned)
            found += [one for one in planned if happens(section, one.begin_ps)]
            events += sum(_events(one.changes, one.avoided, topology) for one in planned)
            _check_number(scenario, entry, first, events, "")
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(problems)
    problems += _at_once(scenario)
    if problems:
        raise ScenarioError(problems)
    return tuple(found)


def happens(section: FaultSection, begin_ps: int) -> bool:
    """Whether an occurrence that would begin then does."""
    return not isinstance(section, RecurringFault) or section.happens(begin_ps)


def _check_number(scenario: Scenario, entry: int, occurrences: int, events: int, how: str) -> None:
    """ScenarioError for more faults than a run takes: occurrences, or the events that they become."""
    for number, most, what in (
        (occurrences, MOST_OCCURRENCES, "occurrences"),
        (events, MOST_FAULT_EVENTS, "events at devices"),
    ):
        if number > most:
            reason = f"{how}{number:,} {what} with the faults before it, more than a run takes"
            raise ScenarioError([_problem(scenario, ("faults", entry), reason, f"at most {most:,}")])


def _events(changes: Sequence[object], avoided: Sequence[int], topology: Topology) -> int:
    """How many events an occurrence is at most: its changes, and what switches hear of links, twice each."""
    return 2 * (len(changes) + len(avoided) * len(topology.switches))


class MeasuredHit(NamedTuple):
    """An occurrence that hits what is busiest when it begins."""

    at_ps: int
    entry: int
    place: int


def measured_hits(scenario: Scenario) -> list[MeasuredHit]:
    """All of these, by time."""
    return sorted(
        MeasuredHit(begin_ps, entry, place)
        for entry, section in enumerate(scenario.faults)
        if is_measured(section.hits)
        for place, (begin_ps, _) in enumerate(section.times_ps(scenario.run.max_time_ps))
        if happens(section, begin_ps)
    )


def candidates_of(scenario: Scenario, entry: int, topology: Topology) -> list[Candidate]:
    """What a fault that hits the busiest may hit."""
    section = scenario.faults[entry]
    return candidates(section.hits, section.target_kind, topology)


def _at_once(scenario: Scenario) -> Iterator[Problem]:
    for one, other in pairwise(measured_hits(scenario)):
        if one.at_ps == other.at_ps:
            reason = f"hits what is busiest at the same time as fault {one.entry}"
            yield _problem(scenario, ("faults", other.entry, "at"), reason, "a time of its own")
            return


def occurrences(
    section: FaultSection,
    entry: int,
    first: int,
    scenario: Scenario,
    topology: Topology,
    measured: MeasuredTargets = MappingProxyType({}),
) -> list[Fault]:
    """Every occurrence of one fault, numbered from `first`. Raises ScenarioError where it does not fit."""
    if section.drawn:
        return _random(section, entry, first, scenario, topology)
    spots = _spots(section, entry, scenario, topology)
    if section.swapped_links(topology) is not None:
        return []
    problems = [
        _problem(scenario, ("faults", entry, one.key), one.reason, one.accepted)
        for spot in spots
        for one in section.objections(spot, topology, scenario)
    ]
    if problems:
        raise ScenarioError(problems[:8])
    found: list[Fault] = []
    if is_measured(section.hits) and not isinstance(section, RecurringFault):
        reason = f"a {section.kind} does not hit what is measured"
        raise ScenarioError([_problem(scenario, ("faults", entry, "target"), reason, "a name or a pattern")])
    one_each = is_measured(section.hits) or is_any(section.hits)
    times = sum(1 for _ in islice(section.times_ps(scenario.run.max_time_ps), MOST_OCCURRENCES + 1))
    number = times * (1 if one_each else len(spots))
    strikes = [section.strike(spot, topology, scenario) for spot in spots] if times > 1 else []
    weights = [_events(one.changes, one.avoided, topology) for one in strikes]
    events = times * (max(weights, default=0) if one_each else sum(weights))
    how = f"{times:,} times at {'one' if one_each else 'each'} of {len(spots):,} places: "
    _check_number(scenario, entry, first + number, events, how)
    stream = Stream(scenario.seed, topology.controller, CHOICE_PURPOSE + entry)
    for place, (begin_ps, end_ps) in enumerate(section.times_ps(scenario.run.max_time_ps)):
        chosen = spots
        if is_measured(section.hits):
            name = measured.get((entry, place))
            if name is None:
                number = first + len(found)
                found.append(Fault(number, entry, section.kind, section.hits, begin_ps, end_ps, ()))
                continue
            chosen = tuple(spot for spot in spots if spot.name == name)
        if is_any(section.hits):
            chosen = (spots[int(stream.below(len(spots)))],)
        for spot in chosen:
            found.append(
                _fault_at(section, entry, first + len(found), begin_ps, end_ps, spot, scenario, topology)
            )
    return found


def _fault_at(
    section: FaultSection,
    entry: int,
    number: int,
    begin_ps: int,
    end_ps: int,
    spot: Spot,
    scenario: Scenario,
    topology: Topology,
) -> Fault:
    strike = section.strike(spot, topology, scenario)
    return Fault(
        number,
        entry,
        section.kind,
        spot.name,
        begin_ps,
        end_ps,
        tuple(strike.changes),
        strike.down,
        strike.avoided,
        strike.silent,
        strike.unaware,
        section.repairs,
    )


def _spots(section: FaultSection, entry: int, scenario: Scenario, topology: Topology) -> tuple[Spot, ...]:
    try:
        return spots_of(section.hits, section.target_kind, topology)
    except TopologyError as error:
        raise ScenarioError([_flawed(scenario, entry, flaw) for flaw in error.faults]) from error


def _flawed(scenario: Scenario, entry: int, flaw: Flaw) -> Problem:
    location = ("faults", entry, "target")
    if flaw.accepted.startswith("did you mean"):
        return _problem(scenario, location, f"{flaw.reason}; {flaw.accepted}", "")
    return _problem(scenario, location, flaw.reason, flaw.accepted)


def _random(
    section: FaultSection, entry: int, first: int, scenario: Scenario, topology: Topology
) -> list[Fault]:
    from emu.scenario.faults.draws import (  # noqa: PLC0415 - kinds are loaded when they are asked for
        DRAWS_PURPOSE,
        RandomFaults,
        draws,
        target_kind_of,
    )

    assert isinstance(section, RandomFaults), section.kind
    found: list[Fault] = []
    events = 0
    for at, one in enumerate(section.failure_classes()):
        try:
            spots = spots_of(one.target, target_kind_of(one), topology)
        except TopologyError as error:
            location = ("faults", entry, "classes", at, "target")
            flaws = [_problem(scenario, location, flaw.reason, flaw.accepted) for flaw in error.faults]
            raise ScenarioError(flaws) from error
        for place, spot in enumerate(spots):
            # A stream for each spot and class: another class or spot moves none of the draws of the others.
            stream = Stream(scenario.seed, place, DRAWS_PURPOSE + entry * 64 + at)
            per_hour = section.per_hour(one, len(spots), len(topology.gpus))
            for drawn in draws(section, one, per_hour, stream, spot):
                number = first + len(found)
                (begin_ps, end_ps), *_ = drawn.section.times_ps(drawn.at_ps + 1)
                fault = _fault_at(drawn.section, entry, number, begin_ps, end_ps, spot, scenario, topology)
                found.append(fault)
                events += _events(fault.changes, fault.avoided, topology)
                if len(found) > MOST_OCCURRENCES or events > MOST_FAULT_EVENTS:
                    reason = f"draws {len(found):,} faults and goes on, more than a run takes"
                    accepted = "less acceleration, or a shorter `within`"
                    raise ScenarioError([_problem(scenario, ("faults", entry), reason, accepted)])
    return found


def _problem(scenario: Scenario, location: Location, reason: str, accepted: str) -> Problem:
    return Problem(scenario.name, 0, shown_location(location), reason, accepted)


def miscabled(scenario: Scenario) -> bool:
    """Whether cables are swapped."""
    return any(fault.kind == "miscabling" for fault in scenario.faults)
