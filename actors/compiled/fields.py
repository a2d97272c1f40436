"""Interpreted, the classes of the packet path have fixed fields too, as their compiled ones have.

Python keeps up to thirty fields of an object in a compact form and gives an object with more of them a
dictionary, where each field and each method is looked up by its name. Ports, switches, NICs and queue pairs
have more. So a hot module that is not compiled is imported with `__slots__` added to each class that has an
`__init__`: the fields that this assigns, which is where mypyc finds those of a native class. The sources need
no second list of them, and an interpreted run does 15 to 30 % more packet-hops.

A field that nobody set in `__init__` is an AttributeError, as compiled. A subclass of somebody's own has a
dictionary for what it adds. The bytecode is kept beside Python's own, under a name that tells what this
module was as it made it: what another edition of it made is not read.
"""

import ast
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final
from zlib import crc32

BYTECODE: Final = ".pyc"


class FieldsLoader(SourceFileLoader):
    """Loads a module from its source, and fixes the fields of its classes."""

    def source_to_code(self, data: bytes, path: str, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        """Part of the import protocol."""
        tree = ast.parse(data, path)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                _fix_fields(node)
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code

    def get_data(self, path: str) -> bytes:
        """Part of the import protocol."""
        return super().get_data(_own(path))

    def set_data(self, path: str, data: bytes, *, _mode: int = 0o666) -> None:  # type: ignore[override]
        """Part of the import protocol."""
        super().set_data(_own(path), data, _mode=_mode)


def _own(path: str) -> str:
    """Where bytecode with fixed fields is, from where Python would have its own."""
    if not path.endswith(BYTECODE):
        return path
    return f"{path.removesuffix(BYTECODE)}.fields-{edition(Path(__file__)):08x}{BYTECODE}"


@cache
def edition(source: Path) -> int:
    """What tells a source from what it was before an edit."""
    return crc32(source.read_bytes())


def _fix_fields(node: ast.ClassDef) -> None:
    """Add `__slots__` to a class, unless it has them or no `__init__`."""
    members = _members(node)
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    if "__slots__" in members or not methods:
        return
    fields = {
        one.attr: None
        for one in ast.walk(methods[0])
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
        and one.attr not in members
    }
    names = ast.Tuple([ast.Constant(name) for name in fields], ast.Load())
    slots = ast.Assign([ast.Name("__slots__", ast.Store())], names)
    place = 0 if ast.get_docstring(node, clean=False) is None else 1
    node.body.insert(place, ast.fix_missing_locations(ast.copy_location(slots, node)))


def _members(node: ast.ClassDef) -> set[str]:
    """What a class has of its own: methods, class variables."""
    found: set[str] = set()
    for one in node.body:
        if isinstance(one, ast.FunctionDef):
            found.add(one.name)
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            found.add(one.target.id)
        elif isinstance(one, ast.Assign):
            found.update(target.id for target in one.targets if isinstance(target, ast.Name))
    return found
