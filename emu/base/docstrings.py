"""The texts under the fields of a pydantic model.

pydantic can read these texts itself, by parsing the source again for every class: that took a quarter of the
time in which any command started, and only schemas and references show them. Here they are read when one is
asked for, once a module.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The text under each field of a model and of its bases, by attribute."""
    found: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if owner.__module__ in sys.modules and owner not in (object, BaseModel):
            found |= _of_module(owner.__module__).get(owner.__qualname__, {})
    described = {name: field.description or found.get(name) for name, field in model.model_fields.items()}
    return {name: text for name, text in described.items() if text}


def describe_fields(schema: dict[str, Any], models: Iterable[type[BaseModel]]) -> None:
    """Put the texts under the fields of these models into the JSON Schema that pydantic made of them."""
    for model in models:
        definition = schema["$defs"].get(model.__name__, schema)
        for name, text in field_docstrings(model).items():
            field = model.model_fields[name]
            key = field.serialization_alias or field.alias or name
            described = {**definition["properties"][key], "description": text}
            definition["properties"][key] = dict(sorted(described.items()))


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
