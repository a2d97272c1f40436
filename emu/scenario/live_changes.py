"""Changes to a live run as part of its scenario.

A live run is the run of another scenario, one that nobody knew beforehand: what is injected at virtual time
T is a fault at T, what is cleared at T is a fault that lasted until T, or that did not come again from T on.
So whoever has the changes with their times has a scenario that repeats the run, and every worker can work out
for itself what a change means.

A change is plain data, as it is staged, journalled and replayed: `{"inject": FAULT}` with the keys that a
fault has in YAML, `at` left out, `{"clear": NUMBER}` with the fault's place in the list, or
`{"capture": ENTRY}` with the keys of an entry of `run.capture`, `at` left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from actors.kernel.event import NEVER_PS
from emu.base.errors import Problem, ScenarioError, UsageError
from emu.base.records import MistakesError, RefusedError
from emu.base.units import format_time
from emu.scenario.dump import to_mapping
from emu.scenario.faults.base import RecurringFault
from emu.scenario.faults.kinds import FAULTS, FaultSection
from emu.scenario.faults.targets import is_measured
from emu.scenario.load import load_mapping
from emu.scenario.schema import Scenario
from emu.scenario.sections.capture import CaptureSection

STRIKE_AFTER_PS = 1_000_000
"""How long after it was made a fault strikes that hits what is busiest then (`emu.engine.live.changes`)."""
Change = Mapping[str, Any]
MOST_TIMES = 1000
"""Occurrences of a fault that comes again, for saying when it is over."""


def changed(scenario: Scenario, change: Change, at_ps: int) -> Scenario:
    """The scenario with a change made at `at_ps`. Raises UsageError for what cannot be done then."""
    if "capture" in change:
        return _capturing(scenario, change["capture"], at_ps)
    faults = list(scenario.faults)
    if "inject" in change:
        after_ps = STRIKE_AFTER_PS if is_measured(str(change["inject"].get("target", ""))) else 0
        mapping = dict(change["inject"]) | {"at": f"{at_ps + after_ps}ps"}
        try:
            fault: Any = FAULTS.take(mapping)
        except (RefusedError, MistakesError) as error:
            raise UsageError(f"{mapping} is no fault: {error}") from None
        faults.append(fault)
    else:
        number = int(change["clear"])
        check_clear(scenario, number, at_ps)
        fault = faults[number]
        recurs = len(list(islice(fault.times_ps(NEVER_PS), 2))) > 1
        ended = {"until_ps": at_ps} if recurs else {"for_ps": at_ps - fault.at_ps}
        faults[number] = fault.model_copy(update=ended)
    return scenario.model_copy(update={"faults": tuple(faults)})


def _capturing(scenario: Scenario, entry: Mapping[str, Any], at_ps: int) -> Scenario:
    begun = CaptureSection.model_validate(_as_read(dict(entry) | {"at": f"{at_ps}ps"}))
    run = scenario.run.model_copy(update={"capture": (*scenario.run.capture, begun)})
    return scenario.model_copy(update={"run": run})


def _as_read(value: object) -> object:
    """JSON's lists as tuples, as YAML is read."""
    if isinstance(value, dict):
        return {key: _as_read(below) for key, below in value.items()}
    return tuple(map(_as_read, value)) if isinstance(value, list) else value


def check_capture(scenario: Scenario, entry: Mapping[str, object]) -> None:
    """Refuse what is no capture, in the words in which a scenario's is refused. Raises UsageError.

    Whether its ports exist is for `resolve` to say.
    """
    mapping = to_mapping(scenario)
    run = dict(mapping.get("run", {}))
    place = len(scenario.run.capture)
    run["capture"] = [*run.get("capture", []), dict(entry)]
    try:
        load_mapping(mapping | {"run": run})
    except ScenarioError as error:
        raise UsageError(one_line(error, f"run.capture[{place}]")) from None


def check_clear(scenario: Scenario, number: int, now_ps: int) -> None:
    """Refuse to clear what is not there, or does not last. Raises UsageError."""
    faults = scenario.faults
    if not 0 <= number < len(faults):
        there = f"there are {len(faults)}, from 0" if faults else "there is none"
        raise UsageError(f"there is no fault {number}: {there}")
    fault = faults[number]
    if "for_ps" not in type(fault).model_fields:
        raise UsageError(f"fault {number} ({fault.kind}) does not last, so it cannot be cleared")
    if fault.at_ps >= now_ps:
        raise UsageError(f"fault {number} has not begun: it will at {format_time(fault.at_ps)}")
    until_ps = end_of(fault)
    if until_ps is not None and until_ps <= now_ps:
        raise UsageError(f"fault {number} is over since {format_time(until_ps)}")


def end_of(fault: FaultSection) -> int | None:
    """When a fault ends by itself for the last time; None if it lasts, comes again for long, or has no
    duration."""
    if isinstance(fault, RecurringFault) and fault.until_ps is not None:
        return fault.until_ps
    times = list(islice(fault.times_ps(NEVER_PS), MOST_TIMES))
    return times[-1][1] or None if 0 < len(times) < MOST_TIMES else None


def check_fault(scenario: Scenario, fault: Mapping[str, object]) -> None:
    """Refuse what is no fault, in the words in which a scenario's faults are refused. Raises UsageError.

    Whether its target exists is for `resolve` to say.
    """
    place = len(scenario.faults)
    mapping = to_mapping(scenario)
    mapping["faults"] = [*mapping.get("faults", []), dict(fault) | {"at": "1us"}]
    try:
        load_mapping(mapping)
    except ScenarioError as error:
        raise UsageError(one_line(error, f"faults[{place}]")) from None


def one_line(error: ScenarioError, prefix: str) -> str:
    """What is wrong with the fault or capture at a place, without file and line, which it has not."""
    return "; ".join(_short(problem, prefix) for problem in error.problems)


def _short(problem: Problem, prefix: str) -> str:
    key = problem.key.removeprefix(prefix).removeprefix(".")
    accepted = f" (accepted: {problem.accepted})" if problem.accepted else ""
    return f"{key}: {problem.reason}{accepted}" if key else f"{problem.reason}{accepted}"
