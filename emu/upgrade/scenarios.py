"""A scenario of an earlier release in today's spelling, comments and layout kept.

Only the keys and values of the table of renames are touched, at the places where YAML's parser found them.
What a run directory of an earlier version holds is read through this too.
"""

from __future__ import annotations

import re
from typing import Final

import yaml

from emu.upgrade import renames
from emu.upgrade.edits import Edit, Note, Upgraded, made
from emu.upgrade.python_modules import new_class
from emu.upgrade.selectors import moved

_OWN_CLASS: Final = re.compile(r"(?:emu|actors)(?:\.[A-Za-z_]\w*)+:[A-Za-z_]\w*")


def root_of(text: str) -> yaml.Node | None:
    """The tree of the one document in a text, with its marks; None if it is not YAML."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    return node if isinstance(node, yaml.Node) else None


def keys_of(node: yaml.Node | None) -> set[str]:
    """The keys of a mapping; none of anything else."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {key.value for key, _ in pairs if isinstance(key, yaml.ScalarNode)}


def upgraded_scenario(text: str) -> Upgraded:
    """The scenario in today's spelling."""
    root = root_of(text)
    if root is None:
        return Upgraded(text, [], [Note(1, "not YAML; `emu validate` says why")])
    reading = _Reading(text)
    reading.walk(root, "")
    lists = moved(text, root)
    return made(text, [*reading.edits, *lists.edits], [*reading.left, *lists.left])


class _Reading:
    """One pass over the tree of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.edits: list[Edit] = []
        self.left: list[Note] = []
        self._seen: set[int] = set()

    def walk(self, node: yaml.Node, at: str) -> None:
        """Look at a node and all below it; one that aliases repeat is looked at where it stands."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self.walk(item, f"{at}[]")
        elif isinstance(node, yaml.MappingNode):
            self._mapping(node, at)
        elif isinstance(node, yaml.ScalarNode) and _OWN_CLASS.fullmatch(node.value):
            new, reason = new_class(node.value)
            if reason:
                self._leave(node, reason)
            elif new != node.value:
                self._replace(node, node.value, new)

    def _mapping(self, node: yaml.MappingNode, at: str) -> None:
        present = keys_of(node)
        self._merge(node, at)
        for place, (key, value) in enumerate(node.value):
            if not isinstance(key, yaml.ScalarNode):
                continue
            new = renames.new_key(at, key.value)
            if new in present:
                self._leave(key, f"{key.value} is {new} now, and {new} is there too: keep one of the two")
            elif new:
                self._replace(key, key.value, new)
            if isinstance(value, yaml.ScalarNode):
                self._value(node, place, at)
            self.walk(value, f"{at}.{key.value}" if at else key.value)

    def _merge(self, mapping: yaml.MappingNode, at: str) -> None:
        """Make one value of two keys, where they are one today."""
        plain = {
            key.value: (place, value)
            for place, (key, value) in enumerate(mapping.value)
            if isinstance(key, yaml.ScalarNode) and isinstance(value, yaml.ScalarNode)
        }
        row = renames.merged(at, {key: value.value for key, (_, value) in plain.items()})
        if row is None:
            return
        if row.new != row.old:
            self._replace(plain[row.key][1], row.old, row.new)
        if row.value:
            self._take_away(mapping, plain[row.beside][0])

    def _value(self, mapping: yaml.MappingNode, place: int, at: str) -> None:
        key, value = mapping.value[place]
        for row in renames.VALUES:
            if (row.at, row.key, row.old) == (at, key.value, value.value):
                if row.new:
                    self._replace(value, row.old, row.new)
                else:
                    self._take_away(mapping, place)
        if (at, key.value) == ("expect[]", "series") and value.value in renames.SERIES:
            self._replace(value, value.value, renames.SERIES[value.value])
        if (at, key.value) == ("expect[]", "value"):
            for old, new in renames.renamed_fields(value.value):
                self._replace(value, old, new)

    def _take_away(self, mapping: yaml.MappingNode, place: int) -> None:
        """Remove a key and its value, with what separates them from the next pair, or from the one before.

        A comment on their line stays.
        """
        key, value = mapping.value[place]
        start, end = key.start_mark.index, value.end_mark.index
        told = f"{key.value}: {value.value}"
        if place + 1 < len(mapping.value):
            between = (end, mapping.value[place + 1][0].start_mark.index)
            end = between[1]
        elif place:
            between = (mapping.value[place - 1][1].end_mark.index, start)
            start = between[0]
        else:
            between = (end, end)
        rest = self.text[value.end_mark.index :].partition("\n")[0]
        if not mapping.flow_style and rest.lstrip(" ").startswith("#"):
            start, end = key.start_mark.index, value.end_mark.index + len(rest) - len(rest.lstrip(" "))
            self.edits.append(Edit(start, end, "", told, ""))
        elif self.text[slice(*between)].strip(", \t\r\n"):
            self._leave(key, f"{told} is gone: take it away")
        else:
            self.edits.append(Edit(start, end, "", told, ""))

    def _replace(self, node: yaml.Node, old: str, new: str) -> None:
        """Put a word in the place of another, its quotes kept."""
        start, end = node.start_mark.index, node.end_mark.index
        raw = self.text[start:end]
        if raw.count(old) == 1:
            at = start + raw.index(old)
            self.edits.append(Edit(at, at + len(old), new, old, new))
        else:
            self._leave(node, f"{old} is {new} now")

    def _leave(self, node: yaml.Node, reason: str) -> None:
        self.left.append(Note(node.start_mark.line + 1, reason))
