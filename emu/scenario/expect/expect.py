"""Section `expect`: a place in the summary, a bound, and whether the results hold it.

A place is a path of keys and indices, `jobs.bench.collectives[-1].busbw`; a path that does not begin at the
top of the summary is looked up under `fabric`. A bound is a number, a text, true or false, or a quantity with
its unit. Series over time are in `emu.scenario.expect.series`.

The verdict. A path leads from the top of the summary, or from its part `fabric`, to one value. Quantities are
compared in the unit that the value's name ends in: `_ps` and `_s` are times, `_bytes` and `bytes` sizes,
`_bps`, `algbw` and `busbw` rates; a quantity of another kind is a failed expectation, not a conversion.
Numbers are compared as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

from actors.kernel.units import PS_PER_S
from emu.measure.summary.summary import Expectation as Verdict
from emu.measure.summary.summary import Fabric, Part, Summary
from emu.scenario.section import Refusal, RefusedError, Section
from emu.scenario.yaml.document import shown_location
from emu.scenario.yaml.values import Reading
from emu.spelling import did_you_mean, listed, shown
from emu.units import (
    RATE_BPS,
    SIZE_BYTES,
    TIME_PS,
    counted,
    format_rate,
    format_size,
    format_time,
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


Number = int | Fraction

LARGE_BPS: Final = 10**9
"""From here on four digits of a rate are enough to see by how much it misses."""


class Flaw(NamedTuple):
    """What is wrong with an expectation before anything runs, and what would be accepted."""

    reason: str
    accepted: str


class _Unmet(NamedTuple):
    """Why a bound cannot be compared, or does not hold."""

    reason: str


def evaluate(expectations: Iterable[Expectation], summary: Mapping[str, Any]) -> list[Verdict]:
    """A verdict on each expectation, in order. Nothing raises: a path that leads nowhere has failed."""
    return [_verdict(expectation, summary) for expectation in expectations]


def _verdict(expectation: Expectation, summary: Mapping[str, Any]) -> Verdict:
    steps = path_steps(expectation.value)
    found = _look_up(steps, summary)
    actual = None if isinstance(found, _Unmet) else found
    unmet = found if isinstance(found, _Unmet) else _compare(expectation, _unit(steps), found)
    return Verdict(
        value=expectation.value,
        relation=expectation.comparison,
        expected=shown_bound(expectation),
        actual=actual,
        passed=unmet is None,
        reason=unmet.reason if unmet is not None else "",
    )


def value_at(path: str, summary: Mapping[str, Any]) -> tuple[Bound | None, str]:
    """What a path leads to, or None and why it leads nowhere."""
    found = _look_up(path_steps(path), summary)
    return (None, found.reason) if isinstance(found, _Unmet) else (found, "")


def unit_at(path: str) -> str:
    """What kind of quantity a path leads to: time, time_s, size, rate, or "" for plain values."""
    return _unit(path_steps(path))


def shown_bound(expectation: Expectation) -> Bound:
    """The bound as written; of `between`, both with "and" in the middle."""
    if expectation.between is not None:
        return f"{expectation.between[0]} and {expectation.between[1]}"
    bound: Bound = getattr(expectation, expectation.comparison)
    return bound


def _look_up(steps: tuple[str | int, ...], summary: Mapping[str, Any]) -> Bound | _Unmet:
    fabric = summary.get("fabric")
    here: Any = summary
    if steps[0] not in summary and isinstance(fabric, Mapping) and steps[0] in fabric:
        here = fabric
    for depth, step in enumerate(steps):
        where = shown_location(steps[:depth]) or "the summary"
        if isinstance(step, int):
            if not isinstance(here, (list, tuple)):
                return _Unmet(f"{where} is not a list")
            if not -len(here) <= step < len(here):
                return _Unmet(f"{where} has {counted(len(here), 'item')}, none at [{step}]")
        elif not isinstance(here, Mapping):
            return _Unmet(f"{where} is not a mapping, so there is no {step!r} in it")
        elif step not in here:
            known = [str(key) for key in here]
            hint = did_you_mean(step, known)
            return _Unmet(f"there is no {step!r} in {where}{hint or f'; there is {listed(known)}'}")
        here = here[step]
    if here is None:
        return _Unmet(f"{shown_location(steps)} has no value in this run")
    if not isinstance(here, (bool, int, float, str)):
        return _Unmet(f"{shown_location(steps)} is not a single value")
    return here


def place_flaw(steps: tuple[str | int, ...]) -> Flaw | None:
    """Why no run's summary has a single value at this path: by its schema alone. None if some may."""
    found = _leaf(steps)
    return found if isinstance(found, Flaw) else None


def bound_flaw(expectation: Expectation) -> Flaw | None:
    """Why what the path leads to cannot be compared with this bound, whatever comes out."""
    steps = path_steps(expectation.value)
    leaf = _leaf(steps)
    if isinstance(leaf, Flaw):
        return None
    bounds = expectation.between or (getattr(expectation, expectation.comparison),)
    kinds = set(_alternatives(leaf))
    choices = get_args(leaf) if get_origin(leaf) is Literal else ()
    for bound in bounds:
        if choices and expectation.comparison == "equals" and bound not in choices:
            hint = did_you_mean(str(bound), choices)
            return Flaw(f"{expectation.value} is never {bound!r}{hint}", listed(choices))
        if kinds <= {int, float} and isinstance(bound, str):
            wanted = _in_unit(bound, _unit(steps))
            if isinstance(wanted, _Unmet):
                return Flaw(wanted.reason, _ACCEPTED.get(_unit(steps), "a number"))
        if kinds == {str} and not choices and not isinstance(bound, str):
            return Flaw(f"the value is a text, and {bound!r} is none", "a text")
    return None


_ACCEPTED: Final = {
    "time": 'a time, like "5us"',
    "time_s": 'a time, like "5us"',
    "size": 'a size, like "4KiB"',
    "rate": 'a rate, like "50Gbps"',
}


def _leaf(steps: tuple[str | int, ...]) -> Any:
    """The type of the value at a path, as the summary's models have it, or the flaw of the path."""
    here: Any = Summary
    if steps[0] not in _fields(Summary) and steps[0] in _fields(Fabric):
        here = Fabric
    for depth, step in enumerate(steps):
        where = shown_location(steps[:depth]) or "the summary"
        below = _fields(here)
        if isinstance(step, int):
            if get_origin(here) is not list:
                return Flaw(f"{where} is not a list", "a key" if below else "nothing after it")
            here = get_args(here)[0]
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        elif step in below:
            here = below[step]
        elif below:
            known = [*below, *_fields(Fabric)] if depth == 0 else list(below)
            return Flaw(f"there is no {step!r} in {where}{did_you_mean(step, known)}", listed(below, 24))
        else:
            is_list = get_origin(here) is list
            accepted = f"an index, like {where}[0]" if is_list else "nothing after it"
            return Flaw(f"{where} is not a mapping, so there is no {step!r} in it", accepted)
        here = _present(here)
    if _fields(here) or get_origin(here) in (list, dict):
        accepted = f"with a key after it: {listed(_fields(here), 24)}" if _fields(here) else "an item of it"
        return Flaw(f"{shown_location(steps)} is not a single value", accepted)
    return here


def _fields(kind: Any) -> dict[str, Any]:
    """The keys of a part of the summary with their types; none for anything else."""
    if not (isinstance(kind, type) and issubclass(kind, Part)):
        return {}
    return {field.serialization_alias or name: field.annotation for name, field in kind.model_fields.items()}


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _present(kind: Any) -> Any:
    """A type without its null."""
    rest = [one for one in _alternatives(kind) if one is not type(None)]
    return rest[0] if len(rest) == 1 else kind


def _unit(steps: tuple[str | int, ...]) -> str:
    """What kind of quantity a path leads to: time, time_s, size, rate, or "" for plain values."""
    name = next((step for step in reversed(steps) if isinstance(step, str)), "")
    if name.endswith("_ps"):
        return "time"
    if name.endswith("_s"):
        return "time_s"
    if name.endswith("_bytes") or name == "bytes":
        return "size"
    return "rate" if name.endswith("_bps") or name in ("algbw", "busbw") else ""


def _compare(expectation: Expectation, unit: str, actual: Bound) -> _Unmet | None:
    comparison = expectation.comparison
    if expectation.between is not None:
        low = _compare_one("at_least", expectation.between[0], unit, actual)
        return low or _compare_one("at_most", expectation.between[1], unit, actual)
    return _compare_one(comparison, getattr(expectation, comparison), unit, actual)


def _compare_one(comparison: Comparison, bound: Bound, unit: str, actual: Bound) -> _Unmet | None:
    words = {"equals": "is not", "at_least": "is less than", "at_most": "is more than", "between": ""}
    unmet = _Unmet(f"{_shown(actual, unit)} {words[comparison]} {bound}")
    if isinstance(actual, (bool, str)):
        if comparison != "equals":
            return _Unmet(f"{shown(actual)} has no order, so it cannot be {comparison} {bound}")
        return None if type(bound) is type(actual) and bound == actual else unmet
    if isinstance(bound, bool):
        return unmet
    wanted = _in_unit(bound, unit)
    if isinstance(wanted, _Unmet):
        return wanted
    value = _exact(actual)
    holds = {"equals": value == wanted, "at_least": value >= wanted, "at_most": value <= wanted}
    return None if holds[comparison] else unmet


def _exact(value: float) -> Number:
    return value if isinstance(value, int) else Fraction(repr(value))


def _in_unit(bound: float | str, unit: str) -> Number | _Unmet:
    """The bound as a number in the value's own unit."""
    if not isinstance(bound, str):
        return _exact(bound)
    measured = quantity(bound)
    if measured is None:
        return _Unmet(f"the value is a number, and {bound!r} is a text")
    kind, amount = measured
    if kind == unit:
        return amount
    if kind == "time" and unit == "time_s":
        return Fraction(amount, PS_PER_S)
    return _Unmet(f"the value is {_kind_shown(unit)}, and {bound} is a {kind}")


def _kind_shown(unit: str) -> str:
    return f"a {unit.removesuffix('_s')}" if unit else "a number without a unit"


def _shown(value: Bound, unit: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        if unit == "rate" and value >= LARGE_BPS:
            return f"{value / LARGE_BPS:.4g}Gbps"
        formats = {"time": format_time, "size": format_size, "rate": format_rate}
        if unit in formats:
            return formats[unit](value)
    return shown(value)
