"""How the packet path is imported interpreted: fixed fields, methods of each class's own, no conversions.

Python keeps up to thirty fields of an object in a compact form and gives an object with more of them a
dictionary, where each field and each method is looked up by its name. Ports, switches, NICs and queue pairs
have more. So a hot module that is not compiled is imported with `__slots__` added to each class that has an
`__init__`: the fields that this assigns, which is where mypyc finds those of a native class. The sources need
no second list of them, and an interpreted run does 15 to 30 % more packet-hops.

An instruction of Python's remembers the class of the object whose field or method it last looked up, and is
several times slower for another. A method of `Port` meets ports of switches and of NICs in turn. So each
class of such a module gets copies of the methods that it inherits from others, which then meet one class
only: 8 to 13 % more.

`cast(...)` and `i64(...)`, which compile to nothing, are calls. The first is left out, and native integers
are `int` itself.

A field that nobody set in `__init__` is an AttributeError, as compiled. A subclass of somebody's own has a
dictionary for what it adds. The bytecode is kept beside Python's own, under a name that tells what this
module was as it made it: what another edition of it made is not read.
"""

import ast
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final
from zlib import crc32

BYTECODE: Final = ".pyc"
_NATIVE: Final = frozenset(("i64", "i32", "i16", "u8"))
_loaded: Final[set[str]] = set()
"""The modules that were loaded so."""


class FieldsLoader(SourceFileLoader):
    """Loads a module from its source, as the first lines of this one say."""

    def source_to_code(self, data: bytes, path: str, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        """Part of the import protocol."""
        tree = _without_casts(ast.parse(data, path))
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                _fix_fields(node)
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Part of the import protocol."""
        _loaded.add(module.__name__)
        super().exec_module(module)
        for found in list(vars(module).values()):
            if isinstance(found, type) and found.__module__ == module.__name__:
                _own_methods(found)

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


def _own_methods(owner: type) -> None:
    """Give a class copies of the methods that it inherits from classes of modules that were loaded so."""
    nearer = set(vars(owner))
    for base in owner.__mro__[1:]:
        for name, method in vars(base).items():
            copied = base.__module__ in _loaded and isinstance(method, FunctionType)
            if copied and name not in nearer and not name.startswith("__"):
                setattr(owner, name, _copy(method))
        nearer.update(vars(base))


def _copy(method: FunctionType) -> FunctionType:
    """The same method, with instructions of its own."""
    code = method.__code__.replace()
    copied = FunctionType(code, method.__globals__, method.__name__, method.__defaults__, method.__closure__)
    copied.__kwdefaults__ = method.__kwdefaults__
    copied.__annotations__ = method.__annotations__
    copied.__dict__.update(method.__dict__)
    return copied


def _without_casts(tree: ast.Module) -> ast.Module:
    """A module with `int` for native integers, and without the calls of `cast`."""
    found: list[ast.stmt] = []
    casts: set[str] = set()
    for node in tree.body:
        found.append(node)
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                own = name.asname or name.name
                if (node.module, name.name) == ("typing", "cast"):
                    casts.add(own)
                elif node.module == "mypy_extensions" and name.name in _NATIVE:
                    native = ast.Assign([ast.Name(own, ast.Store())], ast.Name("int", ast.Load()))
                    found.append(ast.fix_missing_locations(ast.copy_location(native, node)))
    tree.body = found
    changed: ast.Module = _Casts(casts).visit(tree)
    return changed


class _Casts(ast.NodeTransformer):
    """Puts the value in the place of each call of `cast`."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Part of the base's protocol."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self._names and len(node.args) == 2:
            return node.args[1]
        return node


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
