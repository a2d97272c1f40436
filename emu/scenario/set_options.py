"""`--set a.b[0].c=value`: changes of a scenario from the command line, and the axes of a sweep.

The value is read as YAML, as in the file, and the path by `emu.scenario.expect.path_steps`. Mappings on the
way that are not there yet are made; a list's item must exist. What was set remembers the text that set it, so
that an error names the `--set` and not a line.

The runs of a sweep. `--set key=a,b,c` names an axis: a key of the scenario and its values, in the order
written. Commas within brackets, braces or quotes belong to a value, so that a list or a mapping is one value.
The runs are the product of the axes, the last one turning fastest, and each with as many seeds as asked for:
the scenario's own, and those that follow it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from emu.base.errors import Problem, ScenarioError, UsageError
from emu.base.records import Location, RefusedError
from emu.base.spelling import shown_location
from emu.base.units import counted
from emu.scenario.expect import path_steps
from emu.scenario.yaml.document import Node, Place, from_plain, read_document


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
    """Change the tree. Raises ScenarioError if there is no such place in it.

    What is put there is a copy of the override's value: readers change the tree, and an override is applied
    to the trees of several loads.
    """
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
                node.value[step] = override.value.copy()
            node = node.value[step]
            continue
        if node.value is None:
            node.value = {}
        if not isinstance(node.value, dict):
            kind = "a list" if isinstance(node.value, list) else "a single value"
            accepted = f"{here}[index]" if isinstance(node.value, list) else f"{here}=value"
            raise ScenarioError([Problem(*place, shown_location(steps), f"{here} is {kind}", accepted)])
        if last:
            node.value[step] = override.value.copy()
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


VARIANT: Final = "variant"
"""The axis whose values are names of the scenario's variants."""
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


def labels(values: Sequence[str]) -> dict[str, str]:
    """Short names of an axis' values: of a mapping its `kind`, and what it has beside others of that kind.

    `{kind: hpn, planes: 1}` and `{kind: hpn, planes: 2}` are "hpn planes: 1" and "hpn planes: 2".
    """
    parts = {value: dict(_entries(value)) for value in dict.fromkeys(values)}
    if any(not one for one in parts.values()):
        return {value: value for value in parts}
    found: dict[str, str] = {}
    for value, one in parts.items():
        equal = [it for it in parts.values() if it.get("kind") == one.get("kind")]
        own = [
            f"{key}: {text}" for key, text in one.items() if any(text != other.get(key) for other in equal)
        ]
        found[value] = " ".join(word for word in (one.get("kind", ""), ", ".join(own)) if word) or value
    return found if len(set(found.values())) == len(found) else {value: value for value in parts}


def _entries(value: str) -> list[tuple[str, str]]:
    """Keys and values of a mapping in braces; nothing of what is none."""
    if not (value.startswith("{") and value.endswith("}")):
        return []
    found = [one.partition(":") for one in split_values(value[1:-1])]
    return [(key.strip(), text.strip()) for key, colon, text in found if colon]


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
