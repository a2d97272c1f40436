"""Times of a campaign that runs of scenarios give: of a step, until a loss is noticed, until a job goes on.

Each entry of `measured` is one run in this process. Its result is kept in a file named after all that it
depends on (the effective scenario, the place in the summary, the version and commit of emu), so that the next
campaign reads it; a checkout with changes keeps nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import emu
from emu.api import Result, effective, prepare, run_prepared
from emu.base.errors import Problem, ScenarioError
from emu.base.shipped import commit, scenario_named
from emu.doors.weeks.sections import MeasuredSection
from emu.engine.outcome import RunOptions
from emu.results.places import place_flaw
from emu.run_directory.run_directory import write_whole
from emu.scenario.expect import path_steps
from emu.scenario.load import load
from emu.scenario.set_options import Override, apply_override, parse_override
from emu.scenario.yaml.document import Node, Place, from_plain
from emu.summary.verdict import unit_at, value_at

MS_PS: Final = 10**9
DIRTY: Final = "+dirty"


class Measurement(NamedTuple):
    """One key and the run that gave its value."""

    key: str
    value_ms: int
    scenario: str
    """Its name."""
    digest: str
    """Digest of the run."""
    kept_in: str
    """The file that has the result; empty if it was not kept."""


def put_in_place(
    tree: Node,
    file: str,
    sections: tuple[MeasuredSection, ...],
    cache: Path,
    say: Callable[[str], None],
) -> list[Measurement]:
    """Measure, and put each value where its key is. Raises ScenarioError."""
    found: list[Measurement] = []
    runs: dict[str, Result] = {}
    for at, section in enumerate(sections):
        where = f"measured[{at}]"
        line = tree.find(("measured", at)).line
        one = _measured(section, file, line, where, cache, runs, say)
        place = Place(f"{file} ({where})", line)
        value = from_plain(f"{one.value_ms}ms", place)
        apply_override(tree, Override(path_steps(section.key), value, str(place.file)))
        found.append(one)
    return found


def _measured(
    section: MeasuredSection,
    file: str,
    line: int,
    where: str,
    cache: Path,
    runs: dict[str, Result],
    say: Callable[[str], None],
) -> Measurement:
    """One of them; `runs` has what ran for others, by effective scenario."""
    for key in ("value", "less"):
        path = getattr(section, key)
        if path is None:
            continue
        flaw = place_flaw(path_steps(path))
        if flaw is not None:
            raise ScenarioError([Problem(file, line, f"{where}.{key}", *flaw)])
        if unit_at(path) != "time":
            reason, accepted = f"{path} is no time", "a path whose last word ends in _ps"
            raise ScenarioError([Problem(file, line, f"{where}.{key}", reason, accepted)])
    beside = Path(file).parent / section.scenario
    given, variant = (str(beside), "") if beside.is_file() else scenario_named(section.scenario)
    overrides = [parse_override(text, f"{file}: {where}.set {text}") for text in section.set]
    prepared = prepare(load(given, overrides, section.variant or variant))
    scenario = effective(prepared.scenario)
    state = "\0".join([scenario, section.value, section.less or "", emu.__version__, commit()])
    kept = cache / f"{hashlib.sha256(state.encode()).hexdigest()[:24]}.json"
    keeps = not commit().endswith(DIRTY)
    name = prepared.scenario.name
    if keeps and kept.is_file():
        known = json.loads(kept.read_text("utf-8"))
        measured_ps, digest = int(known["value_ps"]), str(known["digest"])
    else:
        if scenario not in runs:
            say(f"{section.key}: running {name}")
            runs[scenario] = run_prepared(prepared, RunOptions(local=True, metrics=False))
        result = runs[scenario]
        if not result.passed:
            reason = f"the run of {name} did not end well: {result.verdict}"
            raise ScenarioError([Problem(file, line, where, reason, "a scenario that passes")])
        digest = result.summary.digest
        measured_ps = _value(section.value, result.summary.plain(), file, line, where)
        if section.less is not None:
            measured_ps -= _value(section.less, result.summary.plain(), file, line, where)
        if keeps:
            cache.mkdir(parents=True, exist_ok=True)
            facts = {"scenario": name, "value": section.value, "value_ps": measured_ps, "digest": digest}
            write_whole(kept, json.dumps(facts, indent=2) + "\n")
    value_ms = ceil(Fraction(measured_ps) * section.times / MS_PS)
    if value_ms < 0:
        reason = f"{section.value} is before {section.less}"
        raise ScenarioError([Problem(file, line, where, reason, "the later time as value")])
    return Measurement(section.key, value_ms, name, digest, str(kept) if keeps else "")


def _value(path: str, summary: dict[str, object], file: str, line: int, where: str) -> int:
    found, why = value_at(path, summary)
    if not isinstance(found, int):
        reason = f"the run has no {path}: {why}"
        raise ScenarioError([Problem(file, line, where, reason, "a value that this run has")])
    return found
