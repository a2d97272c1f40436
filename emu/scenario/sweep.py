"""The runs of a sweep: the product of its axes and seeds.

`--set key=a,b,c` names an axis: a key of the scenario and its values, in the order written. Commas within
brackets, braces or quotes belong to a value, so that a list or a mapping is one value. The runs are the
product of the axes, the last one turning fastest, and each with as many seeds as asked for: the scenario's
own, and those that follow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from emu.errors import UsageError
from emu.scenario.set_options import Override, parse_override

MOST_RUNS: Final = 10_000
_CLOSING: Final = {"[": "]", "{": "}", "'": "'", '"': '"'}


class Axis(NamedTuple):
    """One key, and the values it takes as they were written."""

    key: str
    values: tuple[str, ...]


def parse_axis(text: str) -> Axis:
    """The axis in `key=v1,v2,...`. Raises UsageError or, for what cannot be read, ScenarioError."""
    key, equals, rest = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UsageError(
            f"--set {text}: sets nothing; accepted: key=v1,v2,..., like routing.kind=ecmp,e_ecmp"
        )
    values = tuple(value.strip() for value in split_values(rest))
    if len(values) > 1 and not all(values):
        raise UsageError(f"--set {text}: an empty value between commas; accepted: key=v1,v2,...")
    if len(dict.fromkeys(values)) != len(values):
        raise UsageError(f"--set {text}: a value is given twice; accepted: each once")
    for value in values:
        parse_override(f"{key}={value}")
    return Axis(key, values)


def split_values(text: str) -> list[str]:
    """The parts between the commas that no bracket, brace or quote encloses."""
    parts: list[str] = []
    open_until: list[str] = []
    begin = 0
    for at, letter in enumerate(text):
        if open_until and letter == open_until[-1]:
            open_until.pop()
        elif letter in _CLOSING and not (open_until and open_until[-1] in "'\""):
            # An apostrophe within a word is a letter, as it is for YAML.
            if letter not in "'\"" or not text[begin:at].strip() or open_until:
                open_until.append(_CLOSING[letter])
        elif letter == "," and not open_until:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def check_axes(axes: Sequence[Axis], seeds: int) -> None:
    """Refuse axes that contradict one another, and sweeps without end. Raises UsageError."""
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(f"--set {key}: is given twice; accepted: all values in one, with commas")
    if seeds > 1 and "seed" in keys:
        raise UsageError("--seeds and --set seed=... both choose seeds; accepted: one of them")
    runs = seeds
    for axis in axes:
        runs *= len(axis.values)
    if runs > MOST_RUNS:
        raise UsageError(f"{runs} runs are too many for one sweep; accepted: at most {MOST_RUNS}")


def combinations(axes: Sequence[Axis]) -> Iterator[tuple[str, ...]]:
    """One value of each axis, the last axis turning fastest."""
    return product(*(axis.values for axis in axes))


def overrides_of(axes: Sequence[Axis], values: Sequence[str]) -> list[Override]:
    """What one combination changes."""
    return [parse_override(f"{axis.key}={value}") for axis, value in zip(axes, values, strict=True)]
