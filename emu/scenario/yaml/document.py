"""From a file to a tree of nodes with lines.

YAML 1.2: the events come from PyYAML's parser (in C where PyYAML has it), scalars are read by the core
schema. Refused, each with its line: keys given twice, merge keys, keys that are not scalars, unknown tags,
several documents, aliases that would expand without bound. A scenario is written by people, so the bounds
are generous for them: 16 MiB, a million nodes with all aliases expanded, 32 levels.

Plain scalars mean what the core schema of YAML 1.2 (section 10.3) says, no more. PyYAML's own resolver
follows YAML 1.1, where `10:30` is 630, `on` is true, `1e3` is a string and `0777` octal. Here they are a
string, a string, 1000.0 and 777.

A `Node` is a scalar, a list or a mapping, and remembers where it was written: file and line, or the `--set`
that put it there. The tree is what overrides change, and what errors look their lines up in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from emu.base.errors import Problem, ScenarioError
from emu.base.records import Location

Scalar = str | int | float | bool | None

_NULL: Final = ("", "~", "null", "Null", "NULL")
_TRUE: Final = ("true", "True", "TRUE")
_FALSE: Final = ("false", "False", "FALSE")
_DECIMAL: Final = re.compile(r"[-+]?[0-9]{1,40}")
_BASED: Final = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,4})?")
_NOT_FINITE: Final = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

TAGS: Final = "tag:yaml.org,2002:"


def resolved(text: str) -> Scalar:
    """The value of a plain scalar. Numbers of more than 40 digits stay text, and fail as such later."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _NOT_FINITE.fullmatch(text)
    if special is not None:
        return float("nan") if special[3] else float(f"{special[1]}inf")
    return text


def tagged(tag: str, text: str) -> Scalar:
    """The value of a scalar with an explicit tag. Raises ValueError if the text does not fit, or the tag is
    unknown."""
    if tag in ("!", f"{TAGS}str"):
        return text
    value = resolved(text)
    wanted = tag.removeprefix(TAGS)
    if wanted == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    fits = {
        "null": value is None,
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, float),
    }
    if not fits.get(wanted, False):
        raise ValueError(
            f"{text[:40]!r} is not a {wanted}" if wanted in fits else f"the tag {tag[:40]!r} is unknown"
        )
    return value


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


MAX_FILE_BYTES: Final = 16 * 2**20
MAX_NODES: Final = 500_000
MAX_DEPTH: Final = 32

_Loader: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def decode(raw: bytes, file: str, most_bytes: int = MAX_FILE_BYTES) -> str:
    """The text of a file. ScenarioError if it is too large or not UTF-8."""
    if len(raw) > most_bytes:
        raise ScenarioError([Problem(file, 0, "", "the file is too large", f"at most {most_bytes} bytes")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        reason = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise ScenarioError([Problem(file, line, "", reason, "text in UTF-8")]) from error


def read_document(text: str, file: str) -> tuple[Node, list[Problem]]:
    """The tree of the one document in `text`, and the faults that do not keep it from being checked further.

    ScenarioError where there is no tree to go on with.
    """
    reading = _Reading(text, file)
    try:
        root = reading.document()
    except yaml.YAMLError as error:
        raise ScenarioError([*reading.problems, _syntax_problem(error, text, file)]) from error
    except _HopelessError as error:
        raise ScenarioError([*reading.problems, error.args[0]]) from error
    return root, reading.problems


class _HopelessError(Exception):
    """A fault after which no tree is left to check."""


def _syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    what = f"{context}: {reason}" if context else str(reason)
    line = mark.line + 1 if mark is not None else 0
    if mark is not None and "".join(text.splitlines()[mark.line : line]).startswith("\t", mark.column):
        what = "a tab here; YAML is indented with spaces"
    return Problem(file, line, "", f"not YAML: {' '.join(what.split())[:200]}")


class _Reading:
    """One pass over the events of one text."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self._events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
        self._anchors: dict[str, Node] = {}
        self._nodes = 0

    def document(self) -> Node:
        """The first document; a second is a fault."""
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._refuse(event, "", "a second document begins here", "one scenario per file")
                    break
                root = self._node(next(self._events), "", 0)
        if root is None or root.value is None:
            raise _HopelessError(
                Problem(self.file, 0, "", "the file is empty", "a mapping, see `emu schema`")
            )
        return root

    def _place(self, event: Any) -> Place:
        return Place(self.file, event.start_mark.line + 1)

    def _refuse(self, event: Any, key: str, reason: str, accepted: str) -> None:
        self.problems.append(Problem(self.file, event.start_mark.line + 1, key, reason, accepted))

    def _count(self, event: Any, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            reason = f"more than {MAX_NODES} values, with aliases expanded"
            raise _HopelessError(Problem(self.file, event.start_mark.line + 1, "", reason, "less"))

    def _node(self, event: Any, key: str, depth: int) -> Node:
        if depth >= MAX_DEPTH:
            reason = f"nested more than {MAX_DEPTH} deep"
            raise _HopelessError(Problem(self.file, event.start_mark.line + 1, "", reason, "less"))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, key, depth)
        self._count(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            node = Node(self._scalar(event, key), self._place(event))
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event, key, "seq")
            node = Node(self._items(key, depth), self._place(event))
        else:
            self._check_tag(event, key, "map")
            node = self._mapping(event, key, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, key: str, depth: int) -> Node:
        target = self._anchors.get(event.anchor)
        if target is None:
            self._refuse(
                event, key, f"*{event.anchor} stands for nothing yet", f"an alias after its &{event.anchor}"
            )
            return Node(None, self._place(event))
        self._count(event, target.nodes)
        if depth + _height(target) >= MAX_DEPTH:
            reason = f"nested more than {MAX_DEPTH} deep, with aliases expanded"
            raise _HopelessError(Problem(self.file, event.start_mark.line + 1, "", reason, "less"))
        return target.copy()

    def _check_tag(self, event: Any, key: str, kind: str) -> None:
        if event.tag not in (None, "!", f"{TAGS}{kind}"):
            self._refuse(event, key, f"the tag {event.tag[:40]!r} is unknown", "no tag")

    def _scalar(self, event: Any, key: str) -> Scalar:
        text: str = event.value
        if event.tag is None:
            return resolved(text) if event.implicit[0] else text
        try:
            return tagged(event.tag, text)
        except ValueError as error:
            self._refuse(event, key, str(error), "no tag")
            return text

    def _items(self, key: str, depth: int) -> list[Node]:
        items: list[Node] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, f"{key}[{len(items)}]", depth + 1))
        return items

    def _mapping(self, start: Any, path: str, depth: int) -> Node:
        values: dict[str, Node] = {}
        keys: dict[str, Place] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            name = self._key(event, path, depth)
            full = f"{path}.{name}" if path else name
            value = self._node(next(self._events), full, depth + 1)
            if name == "<<":
                self._refuse(
                    event, full, "YAML 1.2 has no merge keys", "the keys themselves, or an alias as a value"
                )
            elif name in values:
                reason = f"given twice, first in line {keys[name].line}"
                self._refuse(event, full, reason, "one of the two")
            else:
                values[name] = value
                keys[name] = self._place(event)
        node = Node(values, self._place(start))
        node.keys = keys
        return node

    def _key(self, event: Any, path: str, depth: int) -> str:
        if isinstance(event, yaml.ScalarEvent):
            self._count(event, 1)
            if event.anchor is not None:
                self._anchors[event.anchor] = Node(event.value, self._place(event))
            return str(event.value)
        node = self._node(event, path, depth + 1)
        if isinstance(node.value, str):
            return node.value
        self._refuse(event, path, "a key is not a text", "a key like `name`")
        return "?"


def _height(node: Node) -> int:
    inner: list[Node] = []
    if isinstance(node.value, list):
        inner = node.value
    elif isinstance(node.value, dict):
        inner = list(node.value.values())
    return 1 + max((_height(child) for child in inner), default=-1)
