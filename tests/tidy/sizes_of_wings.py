"""The sizes of the wings: statements and lines of each, for docs/design.md, made by `make golden`."""

import ast
from typing import Final

from tests.tidy.tracked import PACKAGES, python_files, text_of, tree_of

PAGE: Final = "docs/design.md"
MARK: Final = "<!-- wings: made by `make golden` -->\n"
WINGS: Final = {
    "actors/compiled/": "`actors/compiled`",
    "actors/optional/": "`actors/optional`",
    "actors/": "`actors/`",
    "emu/cluster/": "`emu/cluster`",
    "emu/views/": "`emu/views`",
    "emu/doors/": "`emu/doors`",
    "emu/flow/": "`emu/flow`",
    "emu/cli/": "`emu/cli`",
    "emu/": "core",
}
"""Beginning of a path -> wing; the first that fits counts."""


def sizes() -> dict[str, tuple[int, int, int]]:
    """Modules, statements and lines of each wing. A docstring is no statement."""
    found = dict.fromkeys(WINGS.values(), (0, 0, 0))
    for name in python_files(*PACKAGES):
        wing = next(wing for path, wing in WINGS.items() if name.startswith(path))
        modules, statements, lines = found[wing]
        nodes = (node for node in ast.walk(tree_of(name)) if isinstance(node, ast.stmt))
        counted = sum(
            not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in nodes
        )
        found[wing] = modules + 1, statements + counted, lines + len(text_of(name).splitlines())
    return found


def table() -> str:
    """The table of the page."""
    rows = ["| wing | modules | statements | lines |", "|---|---|---|---|"]
    found = sizes()
    for wing, (modules, statements, lines) in found.items():
        rows.append(f"| {wing} | {modules} | {statements:,} | {lines:,} |")
    modules, statements, lines = (sum(size[at] for size in found.values()) for at in range(3))
    rows.append(f"| all | {modules} | {statements:,} | {lines:,} |")
    return "\n".join(rows) + "\n"


def page(text: str) -> str:
    """The page with the table behind its mark made anew."""
    before, mark, rest = text.partition(MARK)
    assert mark, f"{PAGE} has no mark {MARK!r}"
    rest = rest.lstrip("\n")
    if rest.startswith("| wing | modules |"):
        rest = rest.partition("\n\n")[2]
    return f"{before}{mark}\n{table()}\n{rest}"
