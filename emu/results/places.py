"""Paths into the summary of a run: what may stand there, and with what it can be compared.

A path leads from the top of the summary, or from its part `fabric`, to one value. The unit of the value is
the last word of its name: `_ps` and `_s` are times, `_bytes` and `bytes` sizes, `_bps`, `algbw` and `busbw`
rates.
Whether a path can lead to a value at all, and a bound be compared with it, follows from the models of the
summary alone, so a wrong expectation is refused before anything runs.
"""

import re
from fractions import Fraction
from types import UnionType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from actors.kernel.units import PS_PER_S
from emu.base.spelling import did_you_mean, listed, shown_location
from emu.base.units import RATE_BPS, SIZE_BYTES, TIME_PS, parse_rate, parse_size, parse_time
from emu.results.summary import Fabric, Summary
from emu.results.summary_part import Part

Bound = bool | int | float | str
Comparison = Literal["equals", "at_least", "at_most", "between"]
Number = int | Fraction


class Flaw(NamedTuple):
    """What is wrong with an expectation before anything runs, and what would be accepted."""

    reason: str
    accepted: str


class Unmet(NamedTuple):
    """Why a bound cannot be compared, or does not hold."""

    reason: str


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


def place_flaw(steps: tuple[str | int, ...]) -> Flaw | None:
    """Why no run's summary has a single value at this path: by its schema alone. None if some may."""
    found = _leaf(steps)
    return found if isinstance(found, Flaw) else None


def bound_flaw(
    steps: tuple[str | int, ...], comparison: Comparison, bounds: tuple[Bound, ...]
) -> Flaw | None:
    """Why what a path leads to cannot be compared with these bounds, whatever comes out."""
    leaf = _leaf(steps)
    if isinstance(leaf, Flaw):
        return None
    kinds = set(_alternatives(leaf))
    choices = get_args(leaf) if get_origin(leaf) is Literal else ()
    for bound in bounds:
        if choices and comparison == "equals" and bound not in choices:
            hint = did_you_mean(str(bound), choices)
            return Flaw(f"{shown_location(steps)} is never {bound!r}{hint}", listed(choices))
        if kinds <= {int, float} and isinstance(bound, str):
            wanted = in_unit(bound, unit_of(steps))
            if isinstance(wanted, Unmet):
                return Flaw(wanted.reason, _ACCEPTED.get(unit_of(steps), "a number"))
        if kinds == {str} and not choices and not isinstance(bound, str):
            return Flaw(f"the value is a text, and {bound!r} is none", "a text")
    return None


_ACCEPTED: Final = {
    "time": 'a time, like "5us"',
    "time_s": 'a time, like "5us"',
    "size": 'a size, like "4KiB"',
    "rate": 'a rate, like "50Gbps"',
    "bandwidth": 'a rate, like "50GB/s"',
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
    return {field.alias: field.annotation for field in kind.model_fields.values()}


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _present(kind: Any) -> Any:
    """A type without its null."""
    rest = [one for one in _alternatives(kind) if one is not type(None)]
    return rest[0] if len(rest) == 1 else kind


def unit_of(steps: tuple[str | int, ...]) -> str:
    """What kind of quantity a path leads to: time, time_s, size, rate, bandwidth (a rate that is shown as
    nccl-tests shows it), or "" for plain values."""
    name = next((step for step in reversed(steps) if isinstance(step, str)), "")
    if name.endswith("_ps"):
        return "time"
    if name.endswith("_s"):
        return "time_s"
    if name.endswith("_bytes") or name == "bytes":
        return "size"
    if name in ("algbw", "busbw"):
        return "bandwidth"
    return "rate" if name.endswith("_bps") else ""


def exact(value: float) -> Number:
    """A number of the summary without rounding: 0.1 is one tenth."""
    return value if isinstance(value, int) else Fraction(repr(value))


def in_unit(bound: float | str, unit: str) -> Number | Unmet:
    """The bound as a number in the value's own unit."""
    if not isinstance(bound, str):
        return exact(bound)
    measured = quantity(bound)
    if measured is None:
        return Unmet(f"the value is a number, and {bound!r} is a text")
    kind, amount = measured
    if kind == unit or (kind == "rate" and unit == "bandwidth"):
        return amount
    if kind == "time" and unit == "time_s":
        return Fraction(amount, PS_PER_S)
    return Unmet(f"the value is {_kind_shown(unit)}, and {bound} is a {kind}")


def _kind_shown(unit: str) -> str:
    unit = "rate" if unit == "bandwidth" else unit
    return f"a {unit.removesuffix('_s')}" if unit else "a number without a unit"
