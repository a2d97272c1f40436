"""What does a scenario look like before it is checked, with the place that each value came from?

A `Node` is a scalar, a list or a mapping, and remembers where it was written: file and line, or the `--set`
that put it there. The tree is what overrides change, and what errors look their lines up in.
"""

from __future__ import annotations

from typing import NamedTuple

from emu.scenario.sections.section import Location
from emu.scenario.yaml.core_schema import Scalar


class Place(NamedTuple):
    """Where something was written. `line` counts from 1; 0 where there are no lines."""

    file: str
    line: int


class Node:
    """One value and its place. Of a mapping, `keys` holds the place of each key."""

    __slots__ = ("keys", "nodes", "place", "value")

    def __init__(self, value: Scalar | list[Node] | dict[str, Node], place: Place) -> None:
        self.value = value
        self.place = place
        self.keys: dict[str, Place] = {}
        inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
        self.nodes: int = 1 + sum(node.nodes for node in inner)
        """How many nodes hang here, this one included, when it was made."""

    def copy(self) -> Node:
        """A tree of its own with the same values and places."""
        if isinstance(self.value, list):
            return Node([node.copy() for node in self.value], self.place)
        if isinstance(self.value, dict):
            copied = Node({key: node.copy() for key, node in self.value.items()}, self.place)
            copied.keys = dict(self.keys)
            return copied
        return Node(self.value, self.place)

    def plain(self) -> object:
        """The value as Python has it, with tuples for lists."""
        if isinstance(self.value, list):
            return tuple(node.plain() for node in self.value)
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value

    def child(self, step: str | int) -> Node | None:
        """The value under a key or at an index, if there is one."""
        if isinstance(self.value, dict) and isinstance(step, str):
            return self.value.get(step)
        if (
            isinstance(self.value, list)
            and isinstance(step, int)
            and -len(self.value) <= step < len(self.value)
        ):
            return self.value[step]
        return None

    def find(self, location: Location) -> Place:
        """The place of a location; of the deepest part that exists, where it does not."""
        node, place = self, self.place
        for step in location:
            if isinstance(step, str) and step in node.keys:
                place = node.keys[step]
            child = node.child(step)
            if child is None:
                break
            if not isinstance(step, str) or step not in node.keys:
                place = child.place
            node = child
        return place


def from_plain(value: object, place: Place) -> Node:
    """The tree of a Python value of dicts, lists, tuples and scalars. Raises TypeError for anything else."""
    if isinstance(value, dict):
        mapping = {str(key): from_plain(item, place) for key, item in value.items()}
        node = Node(mapping, place)
        node.keys = dict.fromkeys(mapping, place)
        return node
    if isinstance(value, (list, tuple)):
        return Node([from_plain(item, place) for item in value], place)
    if value is None or isinstance(value, (str, int, float, bool)):
        return Node(value, place)
    raise TypeError(f"a scenario holds mappings, lists, texts and numbers, not {type(value).__name__}")


def opened(tree: Node, location: Location, place: Place) -> Node | None:
    """The section at a location below a mapping, made where it is absent; None if something else is there."""
    node = tree
    for step in location:
        assert isinstance(step, str) and isinstance(node.value, dict), location
        if node.value.get(step) is None or node.value[step].value is None:
            node.value[step] = Node({}, place)
            node.keys[step] = place
        node = node.value[step]
        if not isinstance(node.value, dict):
            return None
    return node


def shown_location(location: Location) -> str:
    """`jobs[0].workload.size`, as a user would write it."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
