"""The map of the modules: docs/modules.md, made from the first lines of the modules themselves."""

import ast
from collections import defaultdict

from tests.tidy.tracked import PACKAGES, python_files, tree_of

PAGE = "docs/modules.md"
HEAD = """# Map of the modules

Every room and every module, each with the first line of its docstring. `actors` is the emulated world, `emu`
the tool; why they are cut so is in [Defence of design](design.md#the-house). `make golden` writes this page
from the code.
"""


def first_paragraph(name: str) -> str:
    """The first paragraph of a module's docstring, in one line."""
    text = ast.get_docstring(tree_of(name)) or ""
    return " ".join(text.partition("\n\n")[0].split())


def page() -> str:
    """The whole page."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for name in python_files(*PACKAGES):
        rooms[name.rpartition("/")[0]].append(name)
    parts = [HEAD]
    for room, names in sorted(rooms.items()):
        package = f"{room}/__init__.py"
        parts.append(f"## {room}\n\n{first_paragraph(package)}\n")
        rows = [f"| `{name}` | {first_paragraph(name)} |" for name in sorted(names) if name != package]
        if rows:
            parts.append("\n".join(["| module | what it is |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)
