"""JSON Schema of records, for editors and for whoever reads results.

It says what `emu.base.records` takes, with the text under each field. Source: JSON Schema 2020-12.
"""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

from emu.base.docstrings import field_docstrings
from emu.base.records import Limits, Record, RecordField, choices_of, parts_of, plain_default

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final[dict[Any, str]] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    NoneType: "null",
}
_LIMITS: Final = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "min_length": "minLength",
    "max_length": "maxLength",
}
_ITEMS: Final = {"min_length": "minItems", "max_length": "maxItems"}


def json_schema_of(root: type[Record]) -> dict[str, Any]:
    """The JSON Schema of a record, with those of the records in it as `$defs`, by class."""
    definitions: dict[str, Any] = {}
    owners: dict[str, type[Record]] = {}

    def described(annotation: Any) -> dict[str, Any]:
        kind, limits, mark = parts_of(annotation)
        if mark is not None:
            return mark.schema(described)
        if isinstance(kind, type) and issubclass(kind, Record):
            name = kind.__name__
            if owners.setdefault(name, kind) is not kind:
                raise TypeError(f"two records have the name {name}")
            if name not in definitions:
                definitions[name] = {}
                definitions[name].update(_record(kind, described))
            return {"$ref": f"#/$defs/{name}"}
        return _plain(kind, limits, described)

    schema = _record(root, described)
    return {"$schema": DIALECT, "$defs": dict(sorted(definitions.items())), **schema}


def _record(record: type[Record], described: Any) -> dict[str, Any]:
    texts = field_docstrings(record)
    fields: dict[str, RecordField] = record.model_fields
    properties = {}
    for name, field in fields.items():
        found = dict(described(_whole(field)))
        if (default := plain_default(record, name)) is not None:
            found["default"] = default
        if name in texts:
            found["description"] = " ".join(texts[name].split())
        properties[field.alias] = dict(sorted(found.items()))
    schema = {
        "additionalProperties": False,
        "description": " ".join((record.__doc__ or "").split()),
        "properties": properties,
        "required": [field.alias for field in fields.values() if field.is_required()],
        "title": record.__name__,
        "type": "object",
    }
    return {key: value for key, value in schema.items() if value != []}


def _whole(field: RecordField) -> Any:
    """The annotation of a field with what `Annotated` adds."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def _plain(kind: Any, limits: Limits, described: Any) -> dict[str, Any]:
    if words := choices_of(kind):
        found: dict[str, Any] = {"const": words[0]} if len(words) == 1 else {"enum": list(words)}
        types = {_PLAIN[type(word)] for word in words}
        found |= {"type": types.pop()} if len(types) == 1 else {}
        return _any([found, {"type": "null"}]) if NoneType in get_args(kind) else found
    if kind in _PLAIN:
        return {"type": _PLAIN[kind], **_bounds(limits, _LIMITS)}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return {"type": "object", "additionalProperties": described(arguments[1]) or True}
    if origin in (list, tuple):
        if origin is tuple and arguments[-1] is not Ellipsis:
            count = len(arguments)
            items = [described(one) for one in arguments]
            return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
        return {"type": "array", "items": described(arguments[0]), **_bounds(limits, _ITEMS)}
    if arguments:
        return _any([described(one) for one in arguments])
    return {}


def _any(kinds: list[dict[str, Any]]) -> dict[str, Any]:
    """One of several, those that are one of several themselves side by side with the others."""
    return {"anyOf": [one for kind in kinds for one in (kind["anyOf"] if [*kind] == ["anyOf"] else [kind])]}


def _bounds(limits: Limits, names: dict[str, str]) -> dict[str, Any]:
    return {word: getattr(limits, name) for name, word in names.items() if getattr(limits, name) is not None}
