"""The verdict on each expectation: whether the results hold it.

A path leads from the top of the summary, or from its part `fabric`, to one value. Quantities are
compared in the unit that the value's name ends in: `_ps` and `_s` are times, `_bytes` and `bytes` sizes,
`_bps`, `algbw` and `busbw` rates; a quantity of another kind is a failed expectation, not a conversion.
Numbers are compared as they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from emu.base.spelling import did_you_mean, listed, shown, shown_location
from emu.base.units import (
    about_bandwidth,
    about_rate,
    about_size,
    about_time,
    counted,
    format_rate,
    format_size,
    format_time,
)
from emu.results.places import Bound, Comparison, Unmet, exact, in_unit, quantity, unit_of
from emu.results.summary import Expectation as Verdict
from emu.results.summary import Judged
from emu.scenario.expect import Expectation, path_steps

LARGE_BPS: Final = 10**9
"""From here on four digits of a rate are enough to see by how much it misses."""


def of_diagnosis(paths: Iterable[str]) -> bool:
    """Whether one of these paths leads to what a diagnosis makes, which may take runs of its own."""
    return any(path_steps(path)[0] in Judged._fields for path in paths)


def evaluate(expectations: Iterable[Expectation], summary: Mapping[str, Any]) -> list[Verdict]:
    """A verdict on each expectation, in order. Nothing raises: a path that leads nowhere has failed."""
    return [_verdict(expectation, summary) for expectation in expectations]


def _verdict(expectation: Expectation, summary: Mapping[str, Any]) -> Verdict:
    steps = path_steps(expectation.value)
    found = _look_up(steps, summary)
    actual = None if isinstance(found, Unmet) else found
    unmet = found if isinstance(found, Unmet) else _compare(expectation, unit_of(steps), found)
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
    return (None, found.reason) if isinstance(found, Unmet) else (found, "")


NOTHING: Final = "-"
"""Shown where a path leads nowhere."""


def unit_at(path: str) -> str:
    """What kind of quantity a path leads to, as `unit_of` says."""
    return unit_of(path_steps(path))


def shown_quantity(path: str, value: Bound | None) -> str:
    """A value for reading, in the unit that its path's last word names."""
    if value is None:
        return NOTHING
    if isinstance(value, (bool, str)):
        return str(value).lower() if isinstance(value, bool) else value
    show = {"time": about_time, "size": about_size, "rate": about_rate, "bandwidth": about_bandwidth}.get(
        unit_at(path)
    )
    if show is not None and value >= 0:
        return show(round(value))
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def shown_bound(expectation: Expectation) -> Bound:
    """The bound as written, that of a bandwidth in GB/s; of `between`, both with "and" in the middle."""
    unit = unit_at(expectation.value)
    if expectation.between is not None:
        return " and ".join(str(_bound_shown(bound, unit)) for bound in expectation.between)
    return _bound_shown(getattr(expectation, expectation.comparison), unit)


def _bound_shown(bound: Bound, unit: str) -> Bound:
    measured = quantity(bound) if unit == "bandwidth" and isinstance(bound, str) else None
    return bound if measured is None or measured[0] != "rate" else about_bandwidth(measured[1])


def _look_up(steps: tuple[str | int, ...], summary: Mapping[str, Any]) -> Bound | Unmet:
    fabric = summary.get("fabric")
    here: Any = summary
    if steps[0] not in summary and isinstance(fabric, Mapping) and steps[0] in fabric:
        here = fabric
    for depth, step in enumerate(steps):
        where = shown_location(steps[:depth]) or "the summary"
        if isinstance(step, int):
            if not isinstance(here, (list, tuple)):
                return Unmet(f"{where} is not a list")
            if not -len(here) <= step < len(here):
                return Unmet(f"{where} has {counted(len(here), 'item')}, none at [{step}]")
        elif not isinstance(here, Mapping):
            return Unmet(f"{where} is not a mapping, so there is no {step!r} in it")
        elif step not in here:
            known = [str(key) for key in here]
            hint = did_you_mean(step, known)
            return Unmet(f"there is no {step!r} in {where}{hint or f'; there is {listed(known)}'}")
        here = here[step]
    if here is None:
        return Unmet(f"{shown_location(steps)} has no value in this run")
    if not isinstance(here, (bool, int, float, str)):
        return Unmet(f"{shown_location(steps)} is not a single value")
    return here


def _compare(expectation: Expectation, unit: str, actual: Bound) -> Unmet | None:
    comparison = expectation.comparison
    if expectation.between is not None:
        low = _compare_one("at_least", expectation.between[0], unit, actual)
        return low or _compare_one("at_most", expectation.between[1], unit, actual)
    return _compare_one(comparison, getattr(expectation, comparison), unit, actual)


def _compare_one(comparison: Comparison, bound: Bound, unit: str, actual: Bound) -> Unmet | None:
    words = {"equals": "is not", "at_least": "is less than", "at_most": "is more than", "between": ""}
    unmet = Unmet(f"{_shown(actual, unit)} {words[comparison]} {_bound_shown(bound, unit)}")
    if isinstance(actual, (bool, str)):
        if comparison != "equals":
            return Unmet(f"{shown(actual)} has no order, so it cannot be {comparison} {bound}")
        return None if type(bound) is type(actual) and bound == actual else unmet
    if isinstance(bound, bool):
        return unmet
    wanted = in_unit(bound, unit)
    if isinstance(wanted, Unmet):
        return wanted
    value = exact(actual)
    holds = {"equals": value == wanted, "at_least": value >= wanted, "at_most": value <= wanted}
    return None if holds[comparison] else unmet


def _shown(value: Bound, unit: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        if unit == "bandwidth":
            return about_bandwidth(value)
        if unit == "rate" and value >= LARGE_BPS:
            return f"{value / LARGE_BPS:.4g}Gbps"
        formats = {"time": format_time, "size": format_size, "rate": format_rate}
        if unit in formats:
            return formats[unit](value)
    return shown(value)
