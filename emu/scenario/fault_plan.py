"""Which faults occur in a run, when, and where? The timeline of a scenario.

Every fault of the scenario becomes occurrences, each aimed at devices and links by number and ready to be
made events of (`emu.faults.events.events_of`). An injected fault goes the same way: `occurrences` of its
section, with numbers that the scenario has not used.
"""

from __future__ import annotations

from emu.errors import Problem, ScenarioError
from emu.faults.events import MOST_FAULTS, Fault
from emu.faults.targets import Spot, is_any, spots_of
from emu.kernel.mixing import Stream
from emu.scenario.fault_base import FaultSection
from emu.scenario.fault_draws import DRAWS_PURPOSE, RandomFaults, aim_of, draws
from emu.scenario.fault_links import Miscabling
from emu.scenario.schema import Scenario
from emu.scenario.section import Location
from emu.scenario.tree import shown_location
from emu.topology.model import Fault as Flaw
from emu.topology.model import Topology, TopologyError

CHOICE_PURPOSE = 1 << 24
"""Of the random stream of a fault that hits `any` of several: this, plus its place."""


def scripted(scenario: Scenario, topology: Topology) -> tuple[Fault, ...]:
    """All occurrences of the scenario's faults, by number. Raises ScenarioError with every problem."""
    problems: list[Problem] = []
    found: list[Fault] = []
    for entry, section in enumerate(scenario.faults):
        try:
            found += occurrences(section, entry, len(found), scenario, topology)
        except ScenarioError as error:
            problems += error.problems
        if len(found) > MOST_FAULTS // 2:
            problems.append(_problem(scenario, ("faults", entry), "occurs too often", "fewer faults"))
            break
    if problems:
        raise ScenarioError(problems)
    return tuple(found)


def occurrences(
    section: FaultSection, entry: int, first: int, scenario: Scenario, topology: Topology
) -> list[Fault]:
    """Every occurrence of one fault, numbered from `first`. Raises ScenarioError where it does not fit."""
    if isinstance(section, RandomFaults):
        return _random(section, entry, first, scenario, topology)
    spots = _spots(section, entry, scenario, topology)
    if isinstance(section, Miscabling):
        return []
    problems = [
        _problem(scenario, ("faults", entry, one.key), one.reason, one.accepted)
        for spot in spots
        for one in section.objections(spot, topology, scenario)
    ]
    if problems:
        raise ScenarioError(problems[:8])
    found: list[Fault] = []
    stream = Stream(scenario.seed, topology.controller, CHOICE_PURPOSE + entry)
    for begin_ps, end_ps in section.times_ps(scenario.run.max_time_ps):
        chosen = spots
        if is_any(section.hits):
            chosen = (spots[int(stream.below(len(spots)))],)
        for spot in chosen:
            found.append(
                _aimed(section, entry, first + len(found), begin_ps, end_ps, spot, scenario, topology)
            )
    return found


def _aimed(
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
        strike.unaware,
        section.repairs,
    )


def _spots(section: FaultSection, entry: int, scenario: Scenario, topology: Topology) -> tuple[Spot, ...]:
    try:
        return spots_of(section.hits, section.aim, topology)
    except TopologyError as error:
        raise ScenarioError([_flawed(scenario, entry, flaw) for flaw in error.faults]) from error


def _flawed(scenario: Scenario, entry: int, flaw: Flaw) -> Problem:
    location = ("faults", entry, "target")
    if flaw.accepted.startswith("did you mean"):
        return _problem(scenario, location, f"{flaw.reason}; {flaw.accepted}", "")
    return _problem(scenario, location, flaw.reason, flaw.accepted)


def _random(
    section: RandomFaults, entry: int, first: int, scenario: Scenario, topology: Topology
) -> list[Fault]:
    found: list[Fault] = []
    for at, one in enumerate(section.failure_classes()):
        try:
            spots = spots_of(one.target, aim_of(one), topology)
        except TopologyError as error:
            location = ("faults", entry, "classes", at, "target")
            flaws = [_problem(scenario, location, flaw.reason, flaw.accepted) for flaw in error.faults]
            raise ScenarioError(flaws) from error
        for place, spot in enumerate(spots):
            stream = Stream(scenario.seed, place, DRAWS_PURPOSE + entry * 64 + at)
            for drawn in draws(section, one, stream, spot):
                number = first + len(found)
                (begin_ps, end_ps), *_ = drawn.section.times_ps(drawn.at_ps + 1)
                fault = _aimed(drawn.section, entry, number, begin_ps, end_ps, spot, scenario, topology)
                found.append(fault)
                if len(found) > MOST_FAULTS // 2:
                    reason = "draws too many faults"
                    accepted = "less acceleration, or a shorter `within`"
                    raise ScenarioError([_problem(scenario, ("faults", entry), reason, accepted)])
    return found


def _problem(scenario: Scenario, location: Location, reason: str, accepted: str) -> Problem:
    return Problem(scenario.name, 0, shown_location(location), reason, accepted)
