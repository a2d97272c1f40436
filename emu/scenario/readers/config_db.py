"""Reader of SONiC switch configurations. Key `switch.config_db`.

One file is that of all switches; a mapping gives switches, by patterns of their names, files of their own.
What a file says becomes keys of `switch`, in the tree, before
anything is validated; a key that the scenario writes itself goes before. The effective scenario of a run
directory is complete without the files.

Of several files, pools, profiles of the buffer and of RED, and QoS maps go to their switches. The rest is
one for all switches here, so files that differ in it are refused, unless the scenario has the key itself.
Switches that no pattern names have what the scenario says. Where patterns overlap the first counts.

A file is what `show runningconfiguration all` prints, or /etc/sonic/config_db.json: JSON, tables of entries
of fields, all of them texts. Of its tables those about buffers, PFC, WRED, scheduling and QoS maps are
translated into keys of `switch`.

All ports of a switch have the same: where entries of ports differ in what would be one key here, that is
refused. Profiles differ from port to port by cable length, so of `xoff` (headroom) and `size` (reserve) of
one priority group the largest counts.

Source: SONiC, schema of CONFIG_DB and its YANG models (BUFFER_POOL, BUFFER_PROFILE, BUFFER_PG, BUFFER_QUEUE,
PORT_QOS_MAP, QUEUE, WRED_PROFILE, SCHEDULER, PFC_WD and the four maps).

Not modelled: limits of shared egress pools, rates of schedulers, WRED that drops, PFC_WD's action `alert`;
PFC's priorities, the watchdog, schedulers and limits of lossy queues that differ from switch to switch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from emu.errors import Problem, ScenarioError
from emu.scenario.section import Location, RefusedError
from emu.scenario.yaml.document import Node, Place, decode, from_plain, opened, read_document, shown_location
from emu.scenario.yaml.values import Reading
from emu.spelling import shown

KEY: Final = "config_db"
PORTS_ACCEPTED: Final = "the same on every port"
MAPS: Final = {
    "dscp_to_tc_map": ("DSCP_TO_TC_MAP", "dscp_to_tc", 63),
    "tc_to_queue_map": ("TC_TO_QUEUE_MAP", "tc_to_queue", 7),
    "tc_to_pg_map": ("TC_TO_PRIORITY_GROUP_MAP", "tc_to_priority_group", 7),
    "pfc_to_queue_map": ("MAP_PFC_PRIORITY_TO_QUEUE", "pfc_priority_to_queue", 7),
}
"""By the field of PORT_QOS_MAP: the table, the key of `switch.qos`, and the largest number that is mapped."""

Fields = dict[str, Node]


class _Use(NamedTuple):
    """Who refers to something, at which index: a priority group or queue of a port."""

    port: str
    number: int
    name: str
    place: Place


class Config:
    """The tables of one file, and what was found wrong with them."""

    def __init__(self, root: Node, file: str) -> None:
        self._root = root
        self._file = file
        self.problems: list[Problem] = []

    def settings(self) -> Iterator[tuple[Location, object]]:
        """Every key of `switch` that the file says something about, and its value."""
        if not isinstance(self._root.value, dict):
            self._refuse(self._root.place, "", "is no mapping of tables", "CONFIG_DB as JSON")
            return
        lossless = yield from self._ports()
        yield from self._pool()
        yield from self._groups()
        yield from self._lossy_queues(lossless)
        yield from self._marking()
        yield from self._scheduling()
        yield from self._watchdog()

    def _refuse(self, place: Place, where: str, reason: str, accepted: str) -> None:
        key = f"switch.{KEY}: {where}" if where else f"switch.{KEY}"
        self.problems.append(Problem(place.file or self._file, place.line, key, reason, accepted))

    def _table(self, name: str) -> dict[str, Fields]:
        """The entries of a table; none if it is not there."""
        table = self._root.child(name)
        if table is None:
            return {}
        if not isinstance(table.value, dict):
            self._refuse(table.place, name, "is no mapping of entries", "CONFIG_DB as JSON")
            return {}
        found: dict[str, Fields] = {}
        for key, entry in table.value.items():
            if isinstance(entry.value, dict):
                found[key] = entry.value
            else:
                self._refuse(entry.place, f"{name}|{key}", "is no mapping of fields", "CONFIG_DB as JSON")
        return found

    def _number(self, where: str, node: Node, least: int, most: int) -> int | None:
        """The number that a field holds, most often as a text."""
        text = str(node.value)
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 16 and least <= int(text) <= most:
            return int(text)
        self._refuse(node.place, where, f"{shown(node.value)} is out of range", f"{least} to {most}")
        return None

    def _alike(self, table: str, field: str) -> Node | None:
        """What all ports of a table have in one field; None where none has it, or they differ."""
        first: tuple[str, Node] | None = None
        for port, entry in self._table(table).items():
            node = entry.get(field)
            if node is None or port.lower() == "global":
                continue
            if first is None:
                first = port, node
            elif str(node.value) != str(first[1].value):
                reason = f"{shown(node.value)}, and {shown(first[1].value)} on {first[0]}"
                self._refuse(node.place, f"{table}|{port}|{field}", reason, PORTS_ACCEPTED)
                return None
        return None if first is None else first[1]

    def _ports(self) -> Generator[tuple[Location, object], None, list[int]]:
        """PFC's priorities, and the maps that ports use. Returns the priorities."""
        lossless: list[int] = []
        enabled = self._alike("PORT_QOS_MAP", "pfc_enable")
        if enabled is not None:
            words = [word.strip() for word in str(enabled.value).split(",") if word.strip()]
            numbers = [
                self._number("PORT_QOS_MAP|pfc_enable", Node(word, enabled.place), 0, 7) for word in words
            ]
            lossless = [number for number in numbers if number is not None]
            yield ("pfc", "priorities"), lossless
        for field, (table, key, most) in MAPS.items():
            named = self._alike("PORT_QOS_MAP", field)
            if named is not None:
                chosen = self._table(table).get(_plain(named.value))
                if chosen is None:
                    self._refuse(named.place, f"PORT_QOS_MAP|{field}", f"{table} has no such map", "its name")
                else:
                    rest = {} if key == "pfc_priority_to_queue" else {str(at): 0 for at in range(most + 1)}
                    yield ("qos", key), rest | dict(self._pairs(table, chosen, most))
        return lossless

    def _pairs(self, table: str, entry: Fields, most: int) -> Iterator[tuple[str, int]]:
        for text, node in entry.items():
            mapped = self._number(f"{table}|{text}", Node(text, node.place), 0, most)
            number = self._number(f"{table}|{text}", node, 0, 7)
            if mapped is not None and number is not None:
                yield str(mapped), number

    def _pool(self) -> Iterator[tuple[Location, object]]:
        pools = self._table("BUFFER_POOL")
        ingress = [name for name, entry in pools.items() if _text(entry, "type") == "ingress"]
        name = "ingress_lossless_pool" if "ingress_lossless_pool" in pools else (ingress or [""])[0]
        for field, key in (("size", "pool"), ("xoff", "headroom_pool")):
            node = pools.get(name, {}).get(field)
            if node is not None:
                size = self._number(f"BUFFER_POOL|{name}|{field}", node, 0, 2**46)
                if size:
                    yield ("buffer", key), f"{size}B"

    def _uses(self, table: str, field: str) -> list[_Use]:
        """Who uses what: entries of `Ethernet0|3-4`, or of several ports with commas between."""
        found: list[_Use] = []
        for key, entry in self._table(table).items():
            node = entry.get(field)
            ports, _, span = key.rpartition("|")
            first, _, last = span.partition("-")
            if node is None or _plain(node.value) in ("", "NULL"):
                continue
            if not (first.isdigit() and (last or first).isdigit() and int(last or first) < 100):
                self._refuse(node.place, f"{table}|{key}", "has no number at its end", "Ethernet0|3-4")
                continue
            for index in range(int(first), min(int(last or first), 7) + 1):
                found += [_Use(port, index, _plain(node.value), node.place) for port in ports.split(",")]
        return found

    def _used(self, users: str, field: str, table: str) -> dict[int, dict[str, tuple[Fields, _Use]]]:
        """By index: the entries of `table` that are used there, by name."""
        entries = self._table(table)
        found: dict[int, dict[str, tuple[Fields, _Use]]] = {}
        for use in self._uses(users, field):
            if use.name in entries:
                found.setdefault(use.number, {}).setdefault(use.name, (entries[use.name], use))
            else:
                where = f"{users}|{use.port}|{use.number}"
                self._refuse(use.place, where, f"{table} has no {use.name!r}", "a name that is there")
        return found

    def _agreed(self, users: str, used: dict[str, tuple[Fields, _Use]], fields: tuple[str, ...]) -> Fields:
        """What the used entries have in these fields; where they differ, the first's, and it is refused."""
        (first, one), *others = used.values()
        for other, use in others:
            for field in fields:
                if _text(first, field) != _text(other, field):
                    reason = f"{use.name} and {one.name} (on {one.port}) differ in {field}"
                    self._refuse(use.place, f"{users}|{use.port}|{use.number}", reason, PORTS_ACCEPTED)
        return {field: first[field] for field in fields if field in first}

    def _threshold(self, table: str, found: Fields) -> Iterator[tuple[str, str]]:
        """The shared limit of a profile: `alpha` or `static`, and its value."""
        if "dynamic_th" in found:
            power = self._number(f"{table}|dynamic_th", found["dynamic_th"], -10, 10)
            if power is not None:
                yield "alpha", f"1/{2**-power}" if power < 0 else f"{2**power}/1"
        elif "static_th" in found:
            size = self._number(f"{table}|static_th", found["static_th"], 1, 2**46)
            if size is not None:
                yield "static", f"{size}B"

    def _groups(self) -> Iterator[tuple[Location, object]]:
        profiles: dict[tuple[tuple[str, object], ...], list[int]] = {}
        for group, used in sorted(self._used("BUFFER_PG", "profile", "BUFFER_PROFILE").items()):
            found = self._agreed("BUFFER_PG", used, ("dynamic_th", "static_th", "xon", "xon_offset"))
            made: dict[str, object] = {
                "xoff" if key == "static" else key: value
                for key, value in self._threshold("BUFFER_PROFILE", found)
            }
            for field, key in (("size", "reserve"), ("xoff", "headroom")):
                sizes = [
                    self._number(f"BUFFER_PROFILE|{name}|{field}", entry[field], 0, 2**46)
                    for name, (entry, _) in used.items()
                    if field in entry
                ]
                if sizes and None not in sizes:
                    made[key] = f"{max(size or 0 for size in sizes)}B"
            if "headroom" in made:  # lossless: without an offset XON is the limit itself
                for field in ("xon", "xon_offset"):
                    node = found.get(field)
                    size = 0 if node is None else self._number(f"BUFFER_PROFILE|{field}", node, 0, 2**46)
                    made[field] = f"{size or 0}B"
            profiles.setdefault(tuple(made.items()), []).append(group)
        if profiles:
            yield ("buffer", "profiles"), [{"priorities": of, **dict(made)} for made, of in profiles.items()]

    def _lossy_queues(self, lossless: list[int]) -> Iterator[tuple[Location, object]]:
        together: dict[str, tuple[Fields, _Use]] = {}
        for queue, used in sorted(self._used("BUFFER_QUEUE", "profile", "BUFFER_PROFILE").items()):
            if queue not in lossless:
                together |= used
        if together:
            found = self._agreed("BUFFER_QUEUE", together, ("dynamic_th", "static_th"))
            for key, value in self._threshold("BUFFER_PROFILE", found):
                yield ("buffer", "egress_alpha" if key == "alpha" else "egress_limit"), value

    def _marking(self) -> Iterator[tuple[Location, object]]:
        profiles: dict[tuple[str, str, str], list[int]] = {}
        for queue, used in sorted(self._used("QUEUE", "wred_profile", "WRED_PROFILE").items()):
            entry, _ = next(iter(used.values()))
            mode = _text(entry, "ecn").removeprefix("ecn_")
            colour = "green" if mode == "all" else mode.partition("_")[0]
            if colour in ("", "none"):
                continue
            names = [f"{colour}_{name}" for name in ("min_threshold", "max_threshold", "drop_probability")]
            found = self._agreed("QUEUE", used, ("ecn", *names))
            least, most, share = (
                self._number(f"WRED_PROFILE|{name}", found[name], 0, limit) if name in found else None
                for name, limit in zip(names, (2**46, 2**46, 100), strict=True)
            )
            if least is not None and most is not None:
                chance = f"{share}/100" if share else "1/1048576"  # a share of nothing is no share here
                profiles.setdefault((f"{least}B", f"{most}B", chance), []).append(queue)
        if profiles:
            made = [
                {"priorities": of, "kmin": kmin, "kmax": kmax, "pmax": pmax}
                for (kmin, kmax, pmax), of in profiles.items()
            ]
            yield ("ecn", "enabled"), True
            yield ("ecn", "scaled"), False
            yield ("ecn", "priorities"), sorted(queue for of in profiles.values() for queue in of)
            yield ("ecn", "profiles"), made

    def _scheduling(self) -> Iterator[tuple[Location, object]]:
        weights: dict[int, int] = {}
        for queue, used in self._used("QUEUE", "scheduler", "SCHEDULER").items():
            found = self._agreed("QUEUE", used, ("type", "weight"))
            if _text(found, "type") != "STRICT":
                node = found.get("weight")
                weight = 1 if node is None else self._number("SCHEDULER|weight", node, 1, 256)
                weights[queue] = weight or 1
        if weights:
            yield ("scheduling", "strict"), [queue for queue in range(8) if queue not in weights]
            yield ("scheduling", "weights"), [weights.get(queue, 1) for queue in range(8)]

    def _watchdog(self) -> Iterator[tuple[Location, object]]:
        detection = self._alike("PFC_WD", "detection_time")
        if detection is None:
            return
        yield ("pfc", "watchdog", "enabled"), True
        for key, node in (
            ("detection", detection),
            ("restoration", self._alike("PFC_WD", "restoration_time")),
        ):
            if node is not None:
                time_ms = self._number(f"PFC_WD|{key}_time", node, 1, 10**6)
                if time_ms is not None:
                    yield ("pfc", "watchdog", key), f"{time_ms}ms"
        action = self._alike("PFC_WD", "action")
        if action is None:
            return
        if action.value in ("drop", "forward"):
            yield ("pfc", "watchdog", "action"), action.value
        else:
            self._refuse(
                action.place, "PFC_WD|action", f"{shown(action.value)} is not modelled", "drop or forward"
            )


def _plain(value: object) -> str:
    """The name that a reference holds: of `[BUFFER_PROFILE|name]` the name, as older releases write it."""
    return str(value).removeprefix("[").removesuffix("]").rpartition("|")[2]


def _text(fields: Fields, name: str) -> str:
    """What a field holds; empty if it is not there."""
    node = fields.get(name)
    return "" if node is None else str(node.value)


ACCEPTED: Final = 'a file, or files by patterns of switch names, like {"rtsw-*": leaf.json}'
FILES_ACCEPTED: Final = "the same in every file, or the key in the scenario"
POOL_KEYS: Final = ("pool", "headroom_pool")
LISTED: Final[tuple[Location, ...]] = (("buffer", "profiles"), ("ecn", "profiles"))
"""Lists of what some switches have; each entry says which."""
FOLLOWING: Final[tuple[Location, ...]] = (("ecn", "enabled"), ("ecn", "scaled"), ("ecn", "priorities"))
"""Keys that say no more than that there are profiles of RED."""


def _read(value: object) -> str:
    if isinstance(value, str) and len(value) <= 4096:
        return value
    raise RefusedError(f"{shown(value)} names no file", ACCEPTED)


ConfigFiles = Annotated[
    str,
    Reading(
        _read,
        str,
        ACCEPTED,
        {
            "anyOf": [
                {"type": "string", "maxLength": 4096},
                {"type": "object", "additionalProperties": {"type": "string", "maxLength": 4096}},
            ]
        },
        "file, or files by pattern",
    ),
]


class _Box(NamedTuple):
    """Switches and what their file says."""

    pattern: str
    file: str
    settings: Mapping[Location, object]


def put_config_in_place(tree: Node, directory: Path, read_file: Callable[[Path], bytes]) -> list[Problem]:
    """Translate what `switch.config_db` names into keys of `switch`; returns what does not fit."""
    section = tree.child("switch")
    named = None if section is None else section.child(KEY)
    if section is None or named is None or not isinstance(section.value, dict):
        return []
    files = _files(named)
    if not files:
        return []
    place = section.keys.pop(KEY, named.place)
    del section.value[KEY]
    problems: list[Problem] = []
    boxes: list[_Box] = []
    for pattern, file in files.items():
        read, wrong = _settings(directory / file, place, read_file)
        boxes.append(_Box(pattern, file, read))
        problems += wrong
    if isinstance(named.value, dict):
        problems += _part(section, boxes, place)
    else:
        for location, value in boxes[0].settings.items():
            _fill(section, location, value, place)
    return problems


def _files(named: Node) -> dict[str, str]:
    """The files by pattern; nothing where what is written names none, which validation refuses."""
    if isinstance(named.value, str):
        return {"": named.value} if named.value else {}
    if not isinstance(named.value, dict):
        return {}
    files = {pattern: node.value for pattern, node in named.value.items() if isinstance(node.value, str)}
    return files if all(files.values()) and len(files) == len(named.value) else {}


def _settings(
    path: Path, place: Place, read_file: Callable[[Path], bytes]
) -> tuple[dict[Location, object], list[Problem]]:
    """What a file says, by location in `switch`, and what is wrong with it."""
    try:
        text = decode(read_file(path), str(path))
        root, problems = read_document(text.replace("\t", " "), str(path))  # a tab is no space to YAML
    except ScenarioError as error:
        return {}, [
            Problem(place.file, place.line, f"switch.{KEY}", f"{path}: {problem.reason}", problem.accepted)
            for problem in error.problems
        ]
    config = Config(root, str(path))
    found = dict(config.settings())
    return found, [*problems, *config.problems]


def _fill(section: Node, location: Location, value: object, place: Place) -> None:
    """Write a key of `switch`, unless the scenario has it."""
    node = opened(section, location[:-1], place)
    if node is None:
        return  # a section that is no mapping is refused for that
    last = str(location[-1])
    assert isinstance(node.value, dict), location
    if last not in node.value:
        node.value[last] = from_plain(value, place)
        node.keys[last] = place


def _part(section: Node, boxes: Sequence[_Box], place: Place) -> list[Problem]:
    """Write what several files say: lists of what some switches have, and what all files agree on."""
    problems: list[Problem] = []
    pools: list[object] = []
    maps: list[object] = []
    lists: dict[Location, list[object]] = {location: [] for location in LISTED}
    shared: list[Location] = []
    for box in boxes:
        switches = {"switches": [box.pattern]}
        own = {str(at[-1]): value for at, value in box.settings.items() if at[0] == "buffer" and len(at) == 2}
        pool = {key: own[key] for key in POOL_KEYS if key in own and not _has(section, ("buffer", key))}
        if pool:
            pools.append(switches | pool)
        mapped = {str(at[-1]): value for at, value in box.settings.items() if at[0] == "qos"}
        mapped = {key: value for key, value in mapped.items() if not _has(section, ("qos", key))}
        if mapped:
            maps.append(switches | mapped)
        for location, value in box.settings.items():
            if location in LISTED:
                assert isinstance(value, list), location
                lists[location] += [switches | one for one in value]
            elif location[0] != "qos" and location[-1] not in POOL_KEYS and location not in shared:
                shared.append(location)
    for location in shared:
        if not _has(section, location):
            problems += _agreed(section, boxes, location, place)
    made: dict[Location, list[object]] = {("buffer", "pools"): pools, ("qos", "exceptions"): maps, **lists}
    for location, entries in made.items():
        if entries:
            _fill(section, location, entries, place)
    return problems


def _agreed(section: Node, boxes: Sequence[_Box], location: Location, place: Place) -> list[Problem]:
    """Write a key that is one for all switches; what files differ in is refused."""
    if location in FOLLOWING:
        said = next(box.settings[location] for box in boxes if location in box.settings)
        _fill(section, location, [] if location[-1] == "priorities" else said, place)
        return []
    first = boxes[0]
    for box in boxes[1:]:
        one, other = first.settings.get(location), box.settings.get(location)
        if one != other:
            reason = f"{shown_location(location)} is one for all switches: {first.file} says {_said(one)}"
            reason += f", {box.file} {_said(other)}"
            return [Problem(place.file, place.line, f"switch.{KEY}", reason, FILES_ACCEPTED)]
    _fill(section, location, first.settings[location], place)
    return []


def _has(section: Node, location: Location) -> bool:
    """Whether the scenario itself has a key."""
    node: Node | None = section
    for step in location:
        node = None if node is None else node.child(step)
    return node is not None


def _said(value: object) -> str:
    return "nothing" if value is None else shown(value)
