"""A scenario of an earlier release in today's spelling, comments and layout kept.

Only the keys and values of the table of renames are touched, at the places where YAML's parser found them.
What a run directory of an earlier version holds is read through this too.

Sections of an earlier release had lists of devices with something else than the rest: they become entries of
`overrides`. A list is taken out of its section, and what it said is written at the end of the file, with the
comments that stood among it. Where the first entry that named a device counted, entries are written in
reverse, since of overrides the last counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import yaml

from emu.upgrade import renames
from emu.upgrade.edits import Edit, Note, Upgraded, made
from emu.upgrade.python_modules import new_class

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


_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_UNQUOTED: Final = re.compile(r"[\w.+/-][\w.+/* -]*")
_ALONE: Final = re.compile(r"\[[^,]*\]")
_WILD: Final = re.compile(r"[*?\[].*", re.DOTALL)
MAPS: Final[tuple[str, ...]] = ("dscp_to_tc", "tc_to_queue", "tc_to_priority_group", "pfc_priority_to_queue")
POOLS: Final = {"pool": "64MB", "headroom_pool": "auto"}
"""What a pool had that left something out."""


class Moved(NamedTuple):
    """What becomes of the lists of a text."""

    edits: list[Edit]
    left: list[Note]


def moved(text: str, root: yaml.Node) -> Moved:
    """The edits that take the lists of a scenario away and write overrides in their place."""
    if not isinstance(root, yaml.MappingNode):
        return Moved([], [])
    reading = _DeviceLists(text, root)
    reading.read()
    return Moved(reading.edits(), reading.left)


class _DeviceLists:
    """One scenario and what is taken out of it."""

    def __init__(self, text: str, root: yaml.MappingNode) -> None:
        self.text = text
        self.root = root
        self.left: list[Note] = []
        self._gone: dict[int, tuple[yaml.MappingNode, set[int]]] = {}
        self._entries: list[str] = []
        self._lists: list[str] = []
        self._put: list[Edit] = []
        self._comments: list[str] = []

    def read(self) -> None:
        """Look at every list there may be."""
        self._config_files()
        for path in ("nic.receive", "host.pcie"):
            self._limited(path)
        self._exceptions()
        self._pools()
        for path in ("switch.buffer", "switch.ecn"):
            self._profiles(path)
        self._pfc_off()
        self._pfc_halves()
        self._modular()
        self._bit_errors()
        self._variants()

    def edits(self) -> list[Edit]:
        """What is taken away, and what is written at the end."""
        entries = self._entries
        blocked = entries and (self.root.flow_style or _at(self.root, "overrides") is not None)
        if blocked:
            line = self.root.start_mark.line + 1
            self.left += [Note(line, f"write in overrides: {entry}") for entry in entries]
            return []
        found: list[Edit] = []
        comments = [one.strip() for one in self._comments]
        for start, end, old in self._spans():
            comments += [one.strip() for one in _COMMENT.findall(self.text[start:end])]
            found.append(Edit(start, end, "", old, "overrides" if entries else ""))
        if entries:
            lines = [*(f"  {one}" for one in comments), *(f"  - {entry}" for entry in entries)]
            before = "" if self.text.endswith("\n") else "\n"
            written = "\n".join([f"{before}overrides:", *lines, ""])
            end = len(self.text)
            found.append(Edit(end, end, written, "the end", f"overrides of {', '.join(self._lists)}"))
        return [*found, *self._put]

    def _override(self, devices: str, path: str, value: str, old: str) -> None:
        if _ALONE.fullmatch(devices):
            devices = devices[1:-1]
        for key in reversed(path.split(".")):
            value = f"{{{key}: {value}}}"
        self._entries.append(f"{{devices: {devices}, {value[1:-1]}}}")
        if old not in self._lists:
            self._lists.append(old)

    def _take(self, path: str) -> None:
        """Take a key away, if it is there."""
        at, _, key = path.rpartition(".")
        mapping = _at(self.root, at)
        if isinstance(mapping, yaml.MappingNode):
            self._drop(mapping, key)

    def _items(self, path: str) -> list[yaml.Node]:
        """Take a list away; its items."""
        node = _at(self.root, path)
        if not isinstance(node, yaml.SequenceNode):
            return []
        self._take(path)
        return list(node.value)

    def _limited(self, path: str) -> None:
        nics = _at(self.root, f"{path}.nics")
        if nics is None:
            return
        items = self._items(f"{path}.nics")
        if items and _scalar(_at(self.root, f"{path}.enabled")) in ("true", "True", "TRUE"):
            self._take(f"{path}.enabled")
            self._override(self._flow(nics), f"{path}.enabled", "true", f"{path}.nics")

    def _exceptions(self) -> None:
        entries = self._items("switch.qos.exceptions")
        used = [name for name in MAPS if _at(self.root, f"switch.qos.{name}") is not None]
        used += [name for entry in entries for name in MAPS if _at(entry, name) is not None]
        for entry in reversed(entries):
            maps = {name: self._of(entry, name, "{}") for name in MAPS if name in used}
            self._override(self._of(entry, "switches"), "switch.qos", _mapping(maps), "switch.qos.exceptions")

    def _pools(self) -> None:
        entries = self._items("switch.buffer.pools")
        used = [name for name in POOLS if _at(self.root, f"switch.buffer.{name}") is not None]
        used += [name for entry in entries for name in POOLS if _at(entry, name) is not None]
        for entry in reversed(entries):
            sizes = {name: self._of(entry, name, usual) for name, usual in POOLS.items() if name in used}
            self._override(
                self._of(entry, "switches"), "switch.buffer", _mapping(sizes), "switch.buffer.pools"
            )

    def _profiles(self, path: str) -> None:
        """Profiles of some switches: all that count there, in their order, for each set of switches."""
        node = _at(self.root, f"{path}.profiles")
        if not isinstance(node, yaml.SequenceNode):
            return
        sets: dict[str, list[str]] = {}
        for entry in node.value:
            switches = _at(entry, "switches")
            if isinstance(switches, yaml.SequenceNode) and switches.value:
                sets[self._of(entry, "switches")] = [_scalar(one) for one in switches.value]
            elif switches is not None:
                self._drop(entry, "switches")
        if not sets:
            return
        if any(_may_overlap(one, other) for one, other in combinations(sets.values(), 2)):
            reason = f"{path}.profiles name switches more than once: write them in overrides"
            self.left.append(Note(node.start_mark.line + 1, reason))
            return
        shown = [(self._of(entry, "switches"), self._without(entry, "switches")) for entry in node.value]
        everywhere = [entry for switches, entry in shown if switches not in sets]
        if everywhere:
            kept = f"[{', '.join(everywhere)}]"
            start, end = node.start_mark.index, _end(node)
            self._put.append(Edit(start, end, kept, f"{path}.profiles", kept))
            self._comments += _COMMENT.findall(self.text[start:end])
        else:
            self._take(f"{path}.profiles")
        for devices in sets:
            here = [entry for of, entry in shown if of == devices or of not in sets]
            self._override(devices, f"{path}.profiles", f"[{', '.join(here)}]", f"{path}.profiles")

    def _pfc_off(self) -> None:
        devices = _at(self.root, "switch.pfc.off")
        if devices is not None and self._items("switch.pfc.off"):
            self._override(self._flow(devices), "switch.pfc.enabled", "false", "switch.pfc.off")

    def _pfc_halves(self) -> None:
        """Halves of PFC, by device: the peers that it does not tell, and those that it does not obey."""
        node = _at(self.root, "switch.pfc.one_way")
        halves: dict[str, dict[str, list[str]]] = {}
        for half in node.value if isinstance(node, yaml.SequenceNode) else ():
            key = "ignores" if _scalar(_at(half, "obeys")) in ("false", "False", "FALSE") else "silent_to"
            of_device = halves.setdefault(self._of(half, "device"), {})
            of_device.setdefault(key, []).append(self._of(half, "peer", '"*"'))
        peers = [[*one.get("ignores", ()), *one.get("silent_to", ())] for one in halves.values()]
        if any('"*"' in one and len(one) > 1 for one in peers):
            reason = "switch.pfc.one_way names ports more than once: write them in overrides"
            self.left.append(Note(node.start_mark.line + 1 if node else 1, reason))
            return
        self._items("switch.pfc.one_way")
        for device, keys in halves.items():
            for key, those in keys.items():
                self._override(device, f"switch.pfc.{key}", f"[{', '.join(those)}]", "switch.pfc.one_way")

    def _modular(self) -> None:
        switches = _at(self.root, "switch.deep_buffer.switches")
        if switches is None:
            return
        if self._items("switch.deep_buffer.switches"):
            path = "switch.deep_buffer.where"
            self._override(self._flow(switches), path, "all", "switch.deep_buffer.switches")
            where = _at(self.root, path)
            if where is not None:
                start, end = where.start_mark.index, where.end_mark.index
                self._put.append(Edit(start, end, "none", "where: listed", "where: none, and overrides"))

    def _bit_errors(self) -> None:
        for entry in self._items("link.bit_errors"):
            devices, rate = self._of(entry, "link"), self._of(entry, "rate")
            self._override(devices, "link.bit_error_rate", rate, "link.bit_errors")

    def _config_files(self) -> None:
        files = _at(self.root, "switch.config_db")
        if not isinstance(files, yaml.MappingNode) or not files.value:
            return
        (pattern, first), *others = files.value
        start, end = files.start_mark.index, _end(files)
        text = self._flow(first)
        self._put.append(Edit(start, end, text, "switch.config_db by patterns", text))
        for name, file in reversed(others):
            value = self._flow(file)
            self._override(self._flow(name), "switch.config_db", value, "switch.config_db")
        reason = f"switches that no pattern named have the configuration of {pattern.value} now"
        self.left.append(Note(files.start_mark.line + 1, reason))

    def _variants(self) -> None:
        """What a variant says of a list is left to a person."""
        variants = _at(self.root, "variants")
        if not isinstance(variants, yaml.MappingNode):
            return
        for _, changes in variants.value:
            for key, value in changes.value if isinstance(changes, yaml.MappingNode) else ():
                for old in _paths(key.value, value):
                    if new := renames.moved_key(old):
                        self.left.append(Note(key.start_mark.line + 1, f"{old} is {new} now"))

    def _drop(self, mapping: yaml.Node, key: str) -> None:
        """Take a key of an item away."""
        assert isinstance(mapping, yaml.MappingNode), key
        for place, (name, _) in enumerate(mapping.value):
            if name.value == key:
                self._gone.setdefault(id(mapping), (mapping, set()))[1].add(place)

    def _of(self, mapping: yaml.Node, key: str, usual: str = "") -> str:
        """A value of an item, as a flow writes it."""
        node = _at(mapping, key)
        return usual if node is None else self._flow(node)

    def _without(self, mapping: yaml.Node, key: str) -> str:
        """A mapping without one of its keys, as a flow writes it."""
        assert isinstance(mapping, yaml.MappingNode), key
        kept = {self._flow(name): self._flow(value) for name, value in mapping.value if name.value != key}
        return _mapping(kept)

    def _flow(self, node: yaml.Node) -> str:
        if isinstance(node, yaml.SequenceNode):
            return f"[{', '.join(map(self._flow, node.value))}]"
        if isinstance(node, yaml.MappingNode):
            return _mapping({self._flow(key): self._flow(value) for key, value in node.value})
        assert isinstance(node, yaml.ScalarNode), node
        text = str(node.value)
        plain = node.style is None and _UNQUOTED.fullmatch(text)
        return text if plain else json.dumps(text, ensure_ascii=False)

    def _spans(self) -> Iterator[tuple[int, int, str]]:
        """From where to where text is taken away, and what it was."""
        self._empty_parents(self.root)
        for mapping, places in self._gone.values():
            pairs = mapping.value
            if mapping.flow_style:
                yield from self._flow_spans(pairs, sorted(places))
            else:
                for place in sorted(places):
                    key, value = pairs[place]
                    start = self.text.rfind("\n", 0, key.start_mark.index) + 1
                    newline = self.text.find("\n", _end(value))
                    end = len(self.text) if newline < 0 else newline + 1
                    if self.text[start : key.start_mark.index].strip():
                        start, end = key.start_mark.index, _end(value)
                    yield start, end, str(key.value)

    def _flow_spans(
        self, pairs: Sequence[tuple[yaml.Node, yaml.Node]], places: Sequence[int]
    ) -> Iterator[tuple[int, int, str]]:
        for first in places:
            if first - 1 in places:
                continue
            last = first
            while last + 1 in places:
                last += 1
            old = ", ".join(str(pairs[place][0].value) for place in range(first, last + 1))
            if last + 1 < len(pairs):
                yield pairs[first][0].start_mark.index, pairs[last + 1][0].start_mark.index, old
            elif first:
                yield _end(pairs[first - 1][1]), _end(pairs[last][1]), old
            else:
                yield pairs[first][0].start_mark.index, _end(pairs[last][1]), old

    def _empty_parents(self, mapping: yaml.MappingNode) -> None:
        """A section of which nothing is left goes too."""
        for place, (_, value) in enumerate(mapping.value):
            if isinstance(value, yaml.MappingNode):
                self._empty_parents(value)
                _, gone = self._gone.get(id(value), (value, set()))
                if value.value and len(gone) == len(value.value):
                    del self._gone[id(value)]
                    self._gone.setdefault(id(mapping), (mapping, set()))[1].add(place)


def _at(node: yaml.Node | None, path: str) -> yaml.Node | None:
    """The value at a path of keys, if there is one."""
    for key in path.split("."):
        if not isinstance(node, yaml.MappingNode):
            return None
        node = next((value for name, value in node.value if name.value == key), None)
    return node


def _paths(path: str, node: yaml.Node) -> Iterator[str]:
    """The path of a value and those of all mappings' keys below it."""
    yield path
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _paths(f"{path}.{key.value}", value)


def _scalar(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _mapping(pairs: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in pairs.items()) + "}"


def _end(node: yaml.Node) -> int:
    """Where the text of a node ends: of a block that of its last value, without what stands behind it."""
    if not isinstance(node, yaml.CollectionNode) or not node.value or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)


def _may_overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a device may fit a name or pattern of both, by what stands before their first wild card."""
    for a in one:
        for b in other:
            begins, starts = _WILD.sub("", a), _WILD.sub("", b)
            plain = begins == a and starts == b
            if a == b or (not plain and (begins.startswith(starts) or starts.startswith(begins))):
                return True
    return False
