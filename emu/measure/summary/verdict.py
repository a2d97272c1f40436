"""The verdict on each expectation: whether the results hold it, and what no results can hold.

A path leads from the top of the summary, or from its part `fabric`, to one value. Quantities are
compared in the unit that the value's name ends in: `_ps` and `_s` are times, `_bytes` and `bytes` sizes,
`_bps`, `algbw` and `busbw` rates; a quantity of another kind is a failed expectation, not a conversion.
Numbers are compared as they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import UnionType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from actors.kernel.units import PS_PER_S
from emu.measure.summary.summary import Expectation as Verdict
from emu.measure.summary.summary import Fabric, Part, Summary
from emu.scenario.expect import Bound, Comparison, Expectation, path_steps, quantity
from emu.scenario.yaml.document import shown_location
from emu.spelling import did_you_mean, listed, shown
from emu.units import (
    about_rate,
    about_size,
    about_time,
    counted,
    format_rate,
    format_size,
    format_time,
)

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


NOTHING: Final = "-"
"""Shown where a path leads nowhere."""


def unit_at(path: str) -> str:
    """What kind of quantity a path leads to: time, time_s, size, rate, or "" for plain values."""
    return _unit(path_steps(path))


def shown_quantity(path: str, value: Bound | None) -> str:
    """A value for reading, in the unit that its path's last word names."""
    if value is None:
        return NOTHING
    if isinstance(value, (bool, str)):
        return str(value).lower() if isinstance(value, bool) else value
    show = {"time": about_time, "size": about_size, "rate": about_rate}.get(unit_at(path))
    if show is not None and value >= 0:
        return show(round(value))
    return str(value) if isinstance(value, int) else f"{value:.4g}"


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
