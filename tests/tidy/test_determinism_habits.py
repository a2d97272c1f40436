"""Does the model keep to what repeats bit for bit? Read from the source, before any run could show it."""

import ast

from tests.tidy.tracked import python_files, tree_of

MODEL = (
    "actors/kernel",
    "actors/wire",
    "emu/topology",
    *(f"actors/{r}" for r in ("port", "fabric", "switch", "nic", "host", "gpu")),
)
MODEL_FILES = [*python_files(*MODEL, "actors/ncclx", "actors/control")]
PLACE_NAMES = {"hash", "id", "input", "open", "print"}
"""Builtins whose answer depends on the process, or that reach outside the model."""
CLOCKS_AND_DICE = {
    "asyncio",
    "datetime",
    "os",
    "random",
    "secrets",
    "socket",
    "threading",
    "time",
    "trio",
    "uuid",
}


def model_files() -> list[str]:
    """The rooms that decide what happens when: everything below the runtime."""
    return sorted(set(MODEL_FILES))


def places(name: str, *nodes: ast.AST) -> list[str]:
    """`file:line` of syntax nodes."""
    return [f"{name}:{getattr(node, 'lineno', 0)}" for node in nodes]


def is_set(node: ast.expr) -> bool:
    """Whether an expression is plainly a set: iterating it follows string hashes."""
    called = node.func if isinstance(node, ast.Call) else None
    by_name = isinstance(called, ast.Name) and called.id in ("set", "frozenset")
    return by_name or isinstance(node, ast.Set | ast.SetComp)


def test_model_does_not_iterate_sets() -> None:
    found = []
    for name in model_files():
        for node in ast.walk(tree_of(name)):
            iterated = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
            found += places(name, *(expression for expression in iterated if is_set(expression)))
    assert found == []


def test_model_asks_no_clock_no_dice_and_no_object_identity() -> None:
    found = []
    for name in model_files():
        for node in ast.walk(tree_of(name)):
            match node:
                case ast.Call(func=ast.Name(id=called)) if called in PLACE_NAMES:
                    found += places(name, node)
                case ast.Import(names=aliases) if CLOCKS_AND_DICE & {a.name.split(".")[0] for a in aliases}:
                    found += places(name, node)
                case ast.ImportFrom(module=str(module)) if module.split(".")[0] in CLOCKS_AND_DICE:
                    found += places(name, node)
                case _:
                    pass
    assert found == []


def test_model_computes_in_integers() -> None:
    found = []
    for name in model_files():
        for node in ast.walk(tree_of(name)):
            is_division = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
            is_float = isinstance(node, ast.Constant) and isinstance(node.value, float)
            if is_division or is_float:
                found += places(name, node)
    assert found == []


def test_only_one_function_counts_cores() -> None:
    """`os.cpu_count` knows no cpuset and no quota. The build counts for itself: `actors` imports no `emu`."""
    counters = {"cpu_count", "process_cpu_count", "sched_getaffinity"}
    may = {"emu/base/cores.py", "actors/compiled/build.py", "tests/base/test_cores.py"}
    found = [
        f"{name}:{node.lineno}"
        for name in python_files()
        if name not in may
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Attribute) and node.attr in counters
    ]
    assert found == []
