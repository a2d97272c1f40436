"""The texts under the fields of a record.

Only schemas and references show them. They are read from the source when one is asked for, once a module.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from emu.base.records import Record


def field_docstrings(model: type[Record]) -> dict[str, str]:
    """The text under each field of a model and of its bases, by attribute."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner.__module__ in sys.modules and owner not in (object, Record):
            found |= _of_module(owner.__module__).get(owner.__qualname__, {})
    described = {name: field.description or found.get(name) for name, field in model.model_fields.items()}
    return {name: text for name, text in described.items() if text}


@cache
def _of_module(module: str) -> dict[str, dict[str, str]]:
    """The texts under the attributes of every class of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        statement.name: dict(_below(statement))
        for statement in tree.body
        if isinstance(statement, ast.ClassDef)
    }


def _below(owner: ast.ClassDef) -> Iterable[tuple[str, str]]:
    for field, text in pairwise(owner.body):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                yield name, inspect.cleandoc(words)
