"""The part of `docs/python.md` that is written from the code: columns of frames, fields of objects."""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, get_args

from emu import api
from emu.base.records import Record
from emu.results.summary import Collective, Flow, Summary
from emu.run_directory.recorded import trace_csv
from emu.run_directory.run_directory import collectives_csv, flows_csv, ports_csv
from emu.run_directory.sample_rows import COLUMNS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/python.md"
PROPERTIES = ("property", "cached_property")
MARK = "<!-- The rest is written by `make golden`. -->\n"
ELSEWHERE = {"Scenario": "[scenario.md](scenario.md) has its keys"}
"""Classes that have a page of their own."""
TOO_LONG = 60
"""A longer type is cut: the text says what it is."""


def page() -> str:
    """The whole page with that part written anew."""
    return PAGE.read_text("utf-8").partition(MARK)[0] + MARK + "\n" + "\n".join(_written()) + "\n"


def _written() -> Iterator[str]:
    yield "## Columns of frames"
    yield ""
    yield "`result.frame(NAME)`. Units are in the names; empty is what there is none of."
    yield ""
    yield "| frame | columns |"
    yield "|---|---|"
    topology = api.prepare("tiny_all_reduce").topology
    heads = {
        "flows": flows_csv({}),
        "collectives": collectives_csv({}),
        "ports": ports_csv(topology, ()),
        "samples": ",".join(COLUMNS),
        "trace": trace_csv(topology, ()),
    }
    for name, text in heads.items():
        columns = text.splitlines()[0].split(",")
        yield f"| `{name}` | {', '.join(f'`{one}`' for one in columns)} |"
    yield ""
    yield "`flows` and `collectives` have a row for each [Flow](#flow) and [Collective](#collective), after"
    yield "the name of its job; [metrics.md](metrics.md) says what counters in `ports` and `samples` count."
    yield ""
    yield "## Fields of objects"
    for kind in dict.fromkeys((*_public(), *_parts())):
        yield ""
        yield f"### {kind.__name__}"
        yield ""
        yield _first(inspect.getdoc(kind) or "")
        if kind.__name__ in ELSEWHERE:
            yield f"{ELSEWHERE[kind.__name__]}."
            continue
        rows = list(_rows(kind))
        if rows:
            yield ""
            yield "| name | type | meaning |"
            yield "|---|---|---|"
            yield from rows


def _public() -> Iterator[type]:
    """Classes among the public names, but errors."""
    for name in api.__all__:
        kind = getattr(api, name)
        if isinstance(kind, type) and not issubclass(kind, BaseException):
            yield kind


def _parts() -> list[type]:
    """What a summary consists of."""
    found: dict[type, None] = {}
    waiting: list[Any] = [Summary]
    while waiting:
        kind = waiting.pop(0)
        if isinstance(kind, type) and issubclass(kind, Record):
            if kind not in found:
                found[kind] = None
                waiting += [field.annotation for field in kind.model_fields.values()]
        else:
            waiting += get_args(kind)
    assert {Flow, Collective} <= set(found)
    return list(found)


def _rows(kind: type) -> Iterator[str]:
    hidden = not (is_dataclass(kind) or issubclass(kind, (tuple, Record)))
    for owner in reversed(kind.__mro__):
        if owner is Record:  # what all have stands above the tables
            continue
        for name, shape, text in _of_module(owner.__module__).get(owner.__qualname__, ()):
            if not name.startswith("_") and (shape.startswith("(") or not hidden or text):
                is_call = shape.startswith("(")
                type_ = shape.removeprefix("()").replace("|", "\\|")
                type_ = type_ if len(type_) <= TOO_LONG else f"{type_[: TOO_LONG - 1]}…"
                called = f"{name}()" if is_call else name
                yield f"| `{called}` | {f'`{type_}`' if type_ else ''} | {_first(text)} |"


@cache
def _of_module(module: str) -> dict[str, list[tuple[str, str, str]]]:
    """By class: name, type (after `()` for a method) and text of each attribute and method."""
    if module.partition(".")[0] not in ("emu", "actors"):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: list(_below(one)) for one in tree.body if isinstance(one, ast.ClassDef)}


def _below(owner: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for field, after in zip_longest(owner.body, owner.body[1:]):
        match field:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=shape):
                yield name, ast.unparse(shape), _said(after)
            case ast.FunctionDef(name=name, returns=shape):
                is_property = any(ast.unparse(one) in PROPERTIES for one in field.decorator_list)
                type_ = ast.unparse(shape) if shape is not None else ""
                yield name, type_ if is_property else f"(){type_}", ast.get_docstring(field) or ""


def _said(statement: ast.stmt | None) -> str:
    """The text that stands alone in a statement; empty if it is another."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str(words))):
            return words
    return ""


def _first(text: str) -> str:
    """A text without its line breaks, up to the end of its first sentence; a bar would end a cell."""
    whole = " ".join(inspect.cleandoc(text).split("\n\n")[0].split()).replace("|", "\\|")
    for here, after in pairwise(range(len(whole))):
        if whole[here] in ".;" and whole[after] == " " and whole[:here].count("(") == whole[:here].count(")"):
            return whole[:here].rstrip(".;") if "e.g" not in whole[max(here - 4, 0) : here] else whole
    return whole.rstrip(".")
