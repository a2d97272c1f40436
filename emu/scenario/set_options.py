"""`--set a.b[0].c=value`: changes of a scenario from the command line.

The value is read as YAML, as in the file. Mappings on the way that are not there yet are made; a list's
item must exist. What was set remembers the text that set it, so that an error names the `--set` and not a
line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from emu.errors import Problem, ScenarioError
from emu.scenario.expect.expect import path_steps
from emu.scenario.section import Location, RefusedError
from emu.scenario.yaml.document import Node, Place, from_plain, read_document, shown_location
from emu.units import counted


class Override(NamedTuple):
    """One assignment, and the option it came from, as errors shall name it."""

    path: Location
    value: Node
    origin: str
    written: Place | None = None
    """Where it stands in a file; None for an option."""

    @property
    def place(self) -> Place:
        """What errors name."""
        return self.written or Place(self.origin, 0)


def parse_override(text: str, origin: str = "") -> Override:
    """The assignment in `text`; an error names `origin`, or `--set` with the text. Raises ScenarioError."""
    origin = origin or f"--set {text}"
    key, equals, value = text.partition("=")
    if not equals:
        raise ScenarioError([Problem(origin, 0, "", "sets nothing", "key=value, like seed=7")])
    path = _path(key.strip(), origin, "key=value, like jobs[0].ranks=8")
    if not value.strip():
        return Override(path, Node(None, Place(origin, 0)), origin)
    return Override(path, _read(value, origin), origin)


def _read(text: str, origin: str) -> Node:
    """A value in YAML. Raises ScenarioError."""
    try:
        node, problems = read_document(text, origin)
    except ScenarioError as error:
        raise ScenarioError(_without_lines(error.problems)) from error
    if problems:
        raise ScenarioError(_without_lines(problems))
    _place_everywhere(node, Place(origin, 0))
    return node


def override_with(key: str, value: object, option: str = "override") -> Override:
    """The assignment of a Python value; a text is read as `--set` reads it. Raises ScenarioError."""
    origin = f"{option} {key}"
    if isinstance(value, str) and value.strip():
        return Override(_path(key, origin, "a key like jobs[0].ranks"), _read(value, origin), origin)
    try:
        return Override(
            _path(key, origin, "a key like jobs[0].ranks"), from_plain(value, Place(origin, 0)), origin
        )
    except TypeError as error:
        raise ScenarioError([Problem(origin, 0, "", str(error))]) from error


def _path(key: str, origin: str, accepted: str) -> Location:
    try:
        return path_steps(key)
    except RefusedError as error:
        raise ScenarioError([Problem(origin, 0, "", error.reason, accepted)]) from error


def apply_override(root: Node, override: Override) -> None:
    """Change the tree. Raises ScenarioError if there is no such place in it."""
    node = root
    steps = override.path
    place = override.place
    for depth, step in enumerate(steps):
        last = depth == len(steps) - 1
        here = shown_location(steps[:depth]) or "the scenario"
        if isinstance(step, int):
            child = node.child(step)
            if not isinstance(node.value, list) or child is None:
                count = len(node.value) if isinstance(node.value, list) else None
                reason = (
                    f"{here} has {counted(count, 'item')}" if count is not None else f"{here} is not a list"
                )
                accepted = f"an index from 0 to {count - 1}" if count else "no index"
                raise ScenarioError([Problem(*place, shown_location(steps), reason, accepted)])
            if last:
                node.value[step] = override.value
            node = node.value[step]
            continue
        if node.value is None:
            node.value = {}
        if not isinstance(node.value, dict):
            kind = "a list" if isinstance(node.value, list) else "a single value"
            accepted = f"{here}[index]" if isinstance(node.value, list) else f"{here}=value"
            raise ScenarioError([Problem(*place, shown_location(steps), f"{here} is {kind}", accepted)])
        if last:
            node.value[step] = override.value
            node.keys[step] = place
        elif step not in node.value:
            node.value[step] = Node({}, place)
            node.keys[step] = place
        node = node.value[step]


def _without_lines(problems: Iterable[Problem]) -> list[Problem]:
    return [problem._replace(line=0) for problem in problems]


def _place_everywhere(node: Node, place: Place) -> None:
    node.place = place
    node.keys = dict.fromkeys(node.keys, place)
    if isinstance(node.value, list):
        for child in node.value:
            _place_everywhere(child, place)
    elif isinstance(node.value, dict):
        for child in node.value.values():
            _place_everywhere(child, place)
