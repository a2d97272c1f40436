"""Files on the campaign clock: read as scenarios are, with times of whole milliseconds.

Quantities have their units, and every mistake is reported with file, line and key (`emu.scenario.yaml`).
Times go from milliseconds to days, which the picosecond clock of a scenario has no room for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from emu.base.errors import Problem, ScenarioError
from emu.base.records import MistakesError, RefusedError
from emu.base.spelling import did_you_mean, listed, shown, shown_location
from emu.results.summary import Expectation as Verdict
from emu.scenario.expect import Expectation, path_steps
from emu.scenario.load import in_file_order, read_file
from emu.scenario.section import Section
from emu.scenario.set_options import Override, apply_override
from emu.scenario.yaml.document import Node, decode, read_document
from emu.scenario.yaml.problems import problems_of
from emu.scenario.yaml.values import Reading, or_auto
from emu.summary.verdict import evaluate

UNITS_MS: Final = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
YEAR_MS: Final = 366 * UNITS_MS["d"]
_WRITTEN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|h|d)")
_ACCEPTED: Final = 'a time with its unit (ms, s, min, h, d), like "30min"'


def shown_span(span_ms: int) -> str:
    """Exact, in the largest unit that has no fraction: 90000 is "90s"."""
    unit = next(unit for unit in reversed(UNITS_MS) if span_ms % UNITS_MS[unit] == 0)
    return f"{span_ms // UNITS_MS[unit]}{unit}" if span_ms else "0s"


def _span_between(least_ms: int) -> Reading:
    def read(value: object) -> int:
        zero = isinstance(value, int) and not isinstance(value, bool) and value == 0
        match = _WRITTEN.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= 32 else None
        if match is None and not zero:
            raise RefusedError(f"{shown(value)} is not a time", _ACCEPTED)
        exact = Fraction(match[1]) * UNITS_MS[match[2]] if match is not None else Fraction(0)
        if exact.denominator != 1:
            raise RefusedError(f"{shown(value)} is no whole number of milliseconds", _ACCEPTED)
        if not least_ms <= exact <= YEAR_MS:
            raise RefusedError(
                f"{shown(value)} is out of range", f"{shown_span(least_ms)} to {shown_span(YEAR_MS)}"
            )
        return int(exact)

    schema = {"type": "string", "pattern": f"^{_WRITTEN.pattern}$", "examples": ["30min"]}
    return Reading(read, shown_span, _ACCEPTED, schema, "time")


SPAN: Final = _span_between(0)
Span = Annotated[int, SPAN]
PositiveSpan = Annotated[int, _span_between(1)]
AutoSpan = Annotated[int | None, or_auto(_span_between(1))]

_File = TypeVar("_File", bound=Section)


def read_tree(path: Path, what: str, overrides: Iterable[Override] = ()) -> tuple[Node, str]:
    """The tree of a file with its overrides, not checked yet, and what errors call it.

    `what` the file has: "a campaign". Raises ScenarioError.
    """
    file = str(path)
    tree, problems = read_document(decode(read_file(path), file), file)
    if not isinstance(tree.value, dict):
        problems.append(Problem(file, tree.place.line, "", f"{what} is a mapping", "keys with values"))
    if problems:
        raise ScenarioError(problems)
    for override in overrides:
        apply_override(tree, override)
    return tree, file


def checked(model: type[_File], tree: Node, file: str) -> _File:
    """What a tree says. Raises ScenarioError."""
    try:
        return model.model_validate(tree.plain())
    except MistakesError as error:
        raise ScenarioError(in_file_order(problems_of(error, tree, model), file)) from error


def judged(expect: Iterable[Expectation], summary: Mapping[str, Any], tree: Node) -> list[Verdict]:
    """What a file expects of its summary, judged. ScenarioError for a path that begins with no key of it."""
    problems = []
    for at, one in enumerate(expect):
        first = path_steps(one.value)[0]
        if first not in summary:
            where = ("expect", at, "value")
            reason = f"there is no {first!r} in the summary{did_you_mean(str(first), list(summary))}"
            accepted = listed(list(summary), len(summary))
            problems.append(Problem(*tree.find(where), shown_location(where), reason, accepted))
    if problems:
        raise ScenarioError(problems)
    return evaluate(expect, summary)
