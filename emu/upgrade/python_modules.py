"""Imports of modules that have moved: where each name is today.

A name is looked for in the modules of this version, so that the answer is true however often something
moves. The table of renames says where modules went as a whole; it decides where several modules have a name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from emu.upgrade import renames
from emu.upgrade.edits import Edit, Note, Upgraded, made

ROOTS: Final = ("emu", "actors")
_DEFINED: Final = re.compile(r"^(?:(?:class|def|async def) (\w+)|([A-Za-z]\w*)(?:: .+?)? = )", re.MULTILINE)
_FIELDS: Final = re.compile(
    rf"(?<=\.fabric\.)({'|'.join(old.removeprefix('fabric.') for old in renames.FIELDS)})(?!\w)"
)
_PACKAGES: Final = Path(__file__).resolve().parents[2]


@cache
def _sources() -> dict[str, str]:
    """Every module of this version and its text."""
    found: dict[str, str] = {}
    for root in ROOTS:
        for path in (_PACKAGES / root).rglob("*.py"):
            parts = path.relative_to(_PACKAGES).with_suffix("").parts
            if not {"_ext", "_shipped"}.intersection(parts):
                found[".".join(parts).removesuffix(".__init__")] = path.read_text("utf-8")
    return found


@cache
def _homes() -> dict[str, list[str]]:
    """Which modules define a name."""
    found: dict[str, list[str]] = {}
    for module, text in _sources().items():
        for name in {defined or given for defined, given in _DEFINED.findall(text)}:
            found.setdefault(name, []).append(module)
    return found


def is_module(name: str) -> bool:
    """Whether there is such a module today."""
    return name in _sources()


def home_of(module: str, name: str) -> str:
    """The module that has today what `module` had as `name`; "" if nobody can tell."""
    if _mentions(module, name):
        return module
    homes = _homes().get(name, [])
    whole = renames.MODULES.get(module, module)
    near = (
        [whole],
        [home for home in homes if home.rpartition(".")[2] == module.rpartition(".")[2]],
        [home for home in homes if home.rpartition(".")[0] == whole.rpartition(".")[0]],
        [home for home in homes if home.split(".")[:2] == whole.split(".")[:2]],
        homes,
    )
    for those in near:
        if len(those) == 1 and those[0] in homes:
            return those[0]
    return whole if not homes and _mentions(whole, name) else ""


def _mentions(module: str, name: str) -> bool:
    """Whether a module has a name, its own or one that it hands on."""
    return re.search(rf"\b{re.escape(name)}\b", _sources().get(module, "")) is not None


def new_class(written: str) -> tuple[str, str]:
    """`module:Class` as it is today, and why it cannot be told ("" if it can)."""
    module, _, name = written.partition(":")
    home = home_of(module, name)
    return (f"{home}:{name}", "") if home else (written, f"{written}: there is no such class today")


def moved_hint(module: str) -> str:
    """Where a module that is missing has gone, as a refusal says it; "" if it is none of ours."""
    new = renames.MODULES.get(module, "")
    if new and is_module(new):
        return f"; {renames.advice(module, new)}"
    return "; emu has moved what was there: try `emu upgrade FILE`" if new else ""


def upgraded_source(text: str) -> Upgraded:
    """A Python file with the imports of today."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        return Upgraded(text, [], [Note(getattr(error, "lineno", 1) or 1, f"not Python: {error}")])
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    edits: list[Edit] = []
    left: list[Note] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            for done in _imported(node, text[start:end], start):
                if isinstance(done, Edit):
                    edits.append(done)
                else:
                    left.append(done)
        elif isinstance(node, ast.ClassDef):
            left += [
                Note(line, "knobs is a list of Knob now: see the page plugins") for line in _sections(node)
            ]
    for found in _FIELDS.finditer(text):
        new = renames.FIELDS[f"fabric.{found[0]}"].removeprefix("fabric.")
        edits.append(Edit(found.start(), found.end(), new, found[0], new))
    return made(text, edits, left)


def _sections(node: ast.ClassDef) -> Iterator[int]:
    """Where a class names a section as its knobs, as plug-ins did."""
    for one in node.body:
        match one:
            case ast.Assign(targets=[ast.Name(id="knobs")], value=ast.Name()):
                yield one.lineno


def _ours(module: str | None) -> bool:
    return module is not None and module.split(".")[0] in ROOTS


def _imported(node: ast.Import | ast.ImportFrom, written: str, start: int) -> Iterator[Edit | Note]:
    if isinstance(node, ast.ImportFrom):
        if not node.level and _ours(node.module):
            yield from _from_import(node, str(node.module), written, start)
        return
    for alias in node.names:
        new = renames.MODULES.get(alias.name, "")
        if not _ours(alias.name) or is_module(alias.name):
            continue
        if new and is_module(new) and alias.asname and written.count(alias.name) == 1:
            at = start + written.index(alias.name)
            yield Edit(at, at + len(alias.name), new, alias.name, new)
        else:
            what = f"is {new} now, here and where it is used" if is_module(new) else "is no module any more"
            yield Note(node.lineno, f"{alias.name} {what}")


def _from_import(node: ast.ImportFrom, module: str, written: str, start: int) -> Iterator[Edit | Note]:
    homes: dict[str, list[str]] = {}
    for alias in node.names:
        whole = f"{module}.{alias.name}"
        shown = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
        if is_module(whole):
            home = module
        elif is_module(moved := renames.MODULES.get(whole, "")):
            home, _, last = moved.rpartition(".")
            shown = (
                last if last == (alias.asname or alias.name) else f"{last} as {alias.asname or alias.name}"
            )
        else:
            home = home_of(module, alias.name)
        if not home:
            yield Note(node.lineno, f"{module} has no {alias.name} any more, and nothing else has it alone")
            return
        homes.setdefault(home, []).append(shown)
    if list(homes) == [module]:
        return
    names = [
        alias.name if alias.asname is None else f"{alias.name} as {alias.asname}" for alias in node.names
    ]
    ((new, shown_names), *others) = homes.items()
    if not others and shown_names == names:
        at = start + written.index(module)
        yield Edit(at, at + len(module), new, module, new)
    elif "#" in written or ";" in written:
        yield Note(node.lineno, f"what {module} had is in {', '.join(homes)} now")
    else:
        indent = "\n" + " " * node.col_offset
        lines = indent.join(f"from {home} import {', '.join(shown)}" for home, shown in homes.items())
        yield Edit(start, start + len(written), lines, module, ", ".join(homes))
