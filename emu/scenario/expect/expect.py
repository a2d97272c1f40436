"""Section `expect`: a place in the summary, and a bound.

A place is a path of keys and indices, `jobs.bench.collectives[-1].busbw`; a path that does not begin at the
top of the summary is looked up under `fabric`. A bound is a number, a text, true or false, or a quantity with
its unit. Whether the results hold it is worked out in `emu.measure.summary.verdict`; series over time are in
`emu.scenario.expect.series`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from emu.scenario.section import Refusal, RefusedError, Section
from emu.scenario.yaml.values import Reading
from emu.spelling import shown
from emu.units import (
    RATE_BPS,
    SIZE_BYTES,
    TIME_PS,
    parse_rate,
    parse_size,
    parse_time,
)
from emu.upgrade import renames

Bound = bool | int | float | str
Comparison = Literal["equals", "at_least", "at_most", "between"]
COMPARISONS: Final[tuple[Comparison, ...]] = ("equals", "at_least", "at_most", "between")
BOUND_ACCEPTED: Final = 'a number, a quantity like "50Gbps", a text, true or false'
PATH_ACCEPTED: Final = 'keys with dots between and [index], like "jobs.bench.collectives[-1].busbw"'

_STEP: Final = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_-]*|(?<=\.)[0-9]+)|\[(-?[0-9]{1,9})\]")


def path_steps(path: str) -> tuple[str | int, ...]:
    """The keys and indices of "a.b[-1].c". Raises `RefusedError`."""
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or (at == 0) == path[at : at + 1].startswith((".", "[")):
            break
        steps.append(match[1] if match[2] is None else int(match[2]))
        at = match.end()
    if at < len(path) or not path or len(path) > 256:
        raise RefusedError(f"{path!r} is not a path", PATH_ACCEPTED)
    return tuple(steps)


def quantity(text: str) -> tuple[str, int] | None:
    """What a text with a unit measures (`time`, `size` or `rate`), in ps, bytes or bit/s; None if it is a
    text."""
    match = re.fullmatch(r"\s*[0-9][0-9_.]*\s*([A-Za-z/]+)\s*", text)
    if match is None:
        return None
    unit = match[1]
    if unit in TIME_PS:
        return "time", parse_time(text)
    if unit in SIZE_BYTES:
        return "size", parse_size(text)
    return ("rate", parse_rate(text)) if unit in RATE_BPS else None


def _read_path(value: object) -> str:
    if not isinstance(value, str):
        raise RefusedError(f"{shown(value)} is not a path", PATH_ACCEPTED)
    path_steps(value)
    for old, new in renames.renamed_fields(value):
        reason = f"{shown(value)} is no place in the summary: {renames.advice(old, new)}"
        raise RefusedError(reason, PATH_ACCEPTED)
    return value


def _read_bound(value: object) -> Bound:
    if isinstance(value, str) and len(value) <= 256:
        quantity(value)
        return value
    if isinstance(value, (bool, int)) or (isinstance(value, float) and abs(value) < float("inf")):
        return value
    raise RefusedError(f"{shown(value)} cannot be compared with", BOUND_ACCEPTED)


def _same(value: object) -> object:
    return value


_BOUND: Final = Reading(
    _read_bound, _same, BOUND_ACCEPTED, {"type": ["number", "string", "boolean"]}, "value"
)
SummaryPath = Annotated[
    str,
    Reading(_read_path, _same, PATH_ACCEPTED, {"type": "string", "examples": ["drops.congestion"]}, "path"),
]
BoundValue = Annotated[Bound, _BOUND]


class Bounds(Section):
    """What something is compared with: exactly one of four comparisons."""

    equals: BoundValue | None = None
    """The value is exactly this."""
    at_least: BoundValue | None = None
    """The value is this or more."""
    at_most: BoundValue | None = None
    """The value is this or less."""
    between: tuple[BoundValue, BoundValue] | None = None
    """The value is the first or more, and the second or less."""

    def check(self) -> Iterator[Refusal]:
        """Refuse none or several comparisons, and bounds without an order."""
        given = [name for name in COMPARISONS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "no comparison"
            yield Refusal((), f"has {found}", f"exactly one of {', '.join(COMPARISONS)}")
        for name in given:
            bounds = self.between if name == "between" and self.between else (getattr(self, name),)
            for bound in bounds:
                orderable = not isinstance(bound, bool) and (
                    not isinstance(bound, str) or quantity(bound) is not None
                )
                if name != "equals" and not orderable:
                    yield Refusal((name,), f"{bound!r} has no order", "a number, or a quantity with its unit")

    @property
    def comparison(self) -> Comparison:
        """Which of the four it is."""
        return next(name for name in COMPARISONS if getattr(self, name) is not None)


class _OfSummary(Section):
    """A place in the summary; a class of its own, so that it is written before what it is compared with."""

    value: SummaryPath
    """Where in the summary."""


class Expectation(Bounds, _OfSummary):
    """One thing that must be true; a run ends with exit status 1 if it is not."""
