"""Which switches have which box's configuration? Key `switch.config_db`.

One file is that of all switches; a mapping gives switches, by patterns of their names, files of their own.
`emu.scenario.readers.sonic` reads a file. What it says becomes keys of `switch`, in the tree, before anything
is validated; a key that the scenario writes itself goes before. The effective scenario of a run directory is
complete without the files.

Of several files, pools, profiles of the buffer and of RED, and QoS maps go to their switches. The rest is
one for all switches here, so files that differ in it are refused, unless the scenario has the key itself.
Switches that no pattern names have what the scenario says. Where patterns overlap the first counts.

Not modelled: PFC's priorities, the watchdog, schedulers and limits of lossy queues that differ from switch to
switch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from emu.errors import Problem, ScenarioError
from emu.scenario.readers.sonic import KEY, Config
from emu.scenario.sections.section import Location, RefusedError
from emu.scenario.yaml.document import decode, read_document
from emu.scenario.yaml.tree import Node, Place, from_plain, opened, shown_location
from emu.scenario.yaml.values import Reading
from emu.spelling import shown

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
