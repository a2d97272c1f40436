"""Doors: ways in and out of emu that are found and not listed - commands, readers of files, kinds.

Each folder of `emu/doors` with a `door.py` is a door of emu's own; its `DOOR` is data, and nothing else of
the door is loaded until a command or a reader of it is used. A door can be left out of an installation.

Packages of others add to the same tables by entry points of the group `emu.doors`:

    [project.entry-points."emu.doors"]
    "command.lanes" = "my_package.lanes:command"        a click command: `emu lanes`
    "reader.lanes" = "my_package.lanes:READER"          a `FileReader`, for `emu import`
    "workload.lanes" = "my_package.lanes:Lanes"         a `Workload`: `workload: {kind: lanes}`
    "policy.lanes" = "my_package.lanes:LanePolicy"      a policy of any seam: `kind: lanes`

Their names are read for a name that emu does not have, for `--help`, for completion and for `emu doctor`; a
run that uses none of them reads none. A name that emu or another package has is refused. What does not load
is one line that names the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from emu.base.errors import RuntimeFailure, UsageError

GROUP: Final = "emu.doors"
KINDS: Final = ("command", "policy", "reader", "workload")
OWN: Final = Path(__file__).resolve().parents[1] / "doors"


class Command(NamedTuple):
    """A subcommand of emu."""

    heading: str
    """Under which `emu --help` lists it."""
    said: str
    """What it does, in one line."""
    place: str
    """`module:attribute` of the click command."""


class Part(NamedTuple):
    """What one file gives to a scenario: lines of YAML, by section."""

    topology: str = ""
    jobs: str = ""
    ncclx: str = ""
    host: str = ""
    ranks: int = 0
    """GPUs that its jobs take."""
    per_server: int = 0
    """How many of them a server has, where a file says so."""


class FileReader(NamedTuple):
    """A reader of files that `emu import` is given."""

    what: str
    """Which files, as a part of a sentence: `a trace of ...`."""
    knows: Callable[[Path], bool]
    """Whether a file is one of them."""
    read: Callable[[Sequence[Path]], Part]
    """What these files, together, give. Raises EmuError with file and line."""


class Door(NamedTuple):
    """What one door adds."""

    commands: Mapping[str, Command] = {}
    readers: tuple[str, ...] = ()
    """`module:attribute` of each `FileReader`."""


class Foreign(NamedTuple):
    """What a package of others adds."""

    kind: str
    name: str
    place: str
    package: str
    """The distribution, with its version."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of {self.package} ({self.place})"


@cache
def own_doors() -> dict[str, Door]:
    """The doors of this installation, by the name of their folder, in the order of names."""
    names = sorted(place.parent.name for place in OWN.glob("*/door.py"))
    return {name: import_module(f"emu.doors.{name}.door").DOOR for name in names}


def own_commands() -> dict[str, Command]:
    """The subcommands of emu's own doors."""
    return {name: one for door in own_doors().values() for name, one in door.commands.items()}


def own_readers() -> list[FileReader]:
    """The readers of emu's own doors; loads them."""
    places = [place for door in own_doors().values() for place in door.readers]
    return [reader for reader in map(attribute, places) if isinstance(reader, FileReader)]


@cache
def foreign() -> tuple[Foreign, ...]:
    """What packages of others add, in the order of kinds and names; some may be refused."""
    from importlib.metadata import entry_points  # noqa: PLC0415  most runs need no name of others

    found = []
    for one in entry_points(group=GROUP):
        kind, _, name = one.name.partition(".")
        package = f"{one.dist.name} {one.dist.version}" if one.dist is not None else "an unknown package"
        found.append(Foreign(kind, name, one.value, package))
    return tuple(sorted(found))


def refused(one: Foreign, taken: Sequence[str] = ()) -> str:
    """Why what a package adds is not used; empty if it is. `taken` are names of emu's own."""
    if one.kind not in KINDS or not one.name:
        written = f"{one.kind}.{one.name}" if one.name else one.kind
        return f"{written!r} of {one.package} is no KIND.NAME; kinds: {', '.join(KINDS)}"
    if one.name in taken:
        return f"{one} has a name of emu's own"
    others = [other for other in foreign() if (other.kind, other.name) == (one.kind, one.name)]
    if len(others) > 1:
        packages = " and ".join(sorted({other.package for other in others}))
        return f"{one.kind} {one.name!r} is added by {packages}: uninstall all but one"
    return ""


def named(kind: str, name: str) -> Foreign | None:
    """What a package of others adds under this name, which emu does not have. UsageError if two do."""
    one = next((one for one in foreign() if (one.kind, one.name) == (kind, name)), None)
    if one is not None and (reason := refused(one)):
        raise UsageError(reason)
    return one


def names(kind: str, taken: Sequence[str] = ()) -> dict[str, Foreign]:
    """What packages of others add of a kind, by name, without what is refused."""
    return {one.name: one for one in foreign() if one.kind == kind and not refused(one, taken)}


def loaded(one: Foreign) -> object:
    """The object that a package adds. RuntimeFailure, in one line, if it does not load."""
    try:
        return attribute(one.place)
    except SystemExit as error:
        reason = f"it called sys.exit({error.code!r})"
    except Exception as error:  # noqa: BLE001  whatever code of others raises
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
    raise RuntimeFailure(f"{one} does not load: {reason}")


def attribute(place: str) -> object:
    """What `module:attribute` names. Raises whatever importing it raises, or AttributeError."""
    module, _, name = place.partition(":")
    found: object = getattr(import_module(module), name)
    return found
