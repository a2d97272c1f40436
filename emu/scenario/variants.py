"""Variants: several runs in one file.

`variants:` maps names to what each changes, as `--set` would: paths to values. A variant is a run of its
own, `NAME_VARIANT` unless it sets `name`; the file as it stands is one more. What is left of a scenario once
a variant was chosen, or none, has no variants.
"""

from __future__ import annotations

import re
from typing import Final

from emu.errors import Problem, ScenarioError
from emu.scenario.expect import path_steps
from emu.scenario.section import RefusedError
from emu.scenario.set_options import Override, apply_override
from emu.scenario.yaml.document import Node
from emu.spelling import did_you_mean, listed

KEY: Final = "variants"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
MEANING: Final = "Runs of their own: name to what each changes, as with `--set`: paths to values."
PATHS_ACCEPTED: Final = 'paths with their values, like {"ncclx.channels": 2}'


def json_schema() -> dict[str, object]:
    """What an editor knows of `variants`."""
    changes = {"type": "object", "minProperties": 1}
    names = {"pattern": f"^{NAME.pattern}$"}
    return {
        "description": MEANING,
        "type": "object",
        "propertyNames": names,
        "additionalProperties": changes,
    }


def choose(tree: Node, variant: str, file: str) -> tuple[tuple[str, ...], list[Problem]]:
    """Apply a variant, if one is named, and take all out of the tree: their names, and what is wrong."""
    assert isinstance(tree.value, dict), tree.value
    place = tree.keys.get(KEY)
    node = tree.value.pop(KEY, None)
    tree.keys.pop(KEY, None)
    line = place.line if place is not None else 0
    if node is None or node.value is None:
        return (), [_unknown(variant, (), file, line)] if variant else []
    if not isinstance(node.value, dict):
        return (), [Problem(file, line, KEY, "is not a mapping", "names, each with what it changes")]
    problems: list[Problem] = []
    for name, changes in node.value.items():
        overrides, wrong = _overrides(name, changes, node, file)
        problems += wrong
        if name == variant and not wrong:
            _rename(tree, name)
            for override in overrides:
                try:
                    apply_override(tree, override)
                except ScenarioError as error:
                    problems += error.problems
    if variant and variant not in node.value:
        problems.append(_unknown(variant, tuple(node.value), file, line))
    return tuple(node.value), problems


def _unknown(variant: str, names: tuple[str, ...], file: str, line: int) -> Problem:
    reason = f"there is no variant {variant!r}{did_you_mean(variant, names)}"
    return Problem(file, line, KEY, reason, listed(names) or "no --variant: the scenario has none")


def _rename(tree: Node, variant: str) -> None:
    """Give the run of a variant its name; what it sets itself comes after."""
    assert isinstance(tree.value, dict), tree.value
    name = tree.value.get("name")
    if name is not None and isinstance(name.value, str):
        tree.value["name"] = Node(f"{name.value}_{variant}", name.place)


def _overrides(name: str, changes: Node, variants: Node, file: str) -> tuple[list[Override], list[Problem]]:
    """What a variant sets, and what is wrong with how it says so."""
    line = variants.keys[name].line
    here = f"{KEY}.{name}"
    if not NAME.fullmatch(name):
        return [], [Problem(file, line, KEY, f"{name!r} is not a name", "letters, digits, - and _")]
    if not isinstance(changes.value, dict) or not changes.value:
        return [], [Problem(file, line, here, "changes nothing", PATHS_ACCEPTED)]
    overrides, problems = [], []
    for path, value in changes.value.items():
        place = changes.keys[path]
        try:
            steps = path_steps(path)
        except RefusedError as error:
            problems.append(Problem(file, place.line, here, error.reason, PATHS_ACCEPTED))
        else:
            overrides.append(Override(steps, value, here, place))
    return overrides, problems
