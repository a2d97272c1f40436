"""Validation errors as problems: file, line, key, reason, and what would be accepted.

Each error becomes a `Problem`: where (file and line from the tree), which key, why, and what would be
accepted. Unknown keys, kinds and choices come with the nearest known word.

A shape says which section, or table of kinds, lies at a location of the schema. Errors ask it what would
have been accepted, the reference what to list. It reads the models' annotations,
so it is true of whatever the models say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from emu.base.errors import Problem
from emu.base.spelling import closest, closest_name, did_you_mean, listed, shown, shown_location
from emu.base.units import counted
from emu.scenario.section import Location, OneOf, PartOf, Section
from emu.scenario.yaml.document import Node
from emu.scenario.yaml.values import Reading


class ListOf(NamedTuple):
    """A list, and what its items are."""

    item: Shape


Shape = type[Section] | OneOf | ListOf | Reading | None
"""What lies at a location; None for plain texts, numbers and choices."""


def shape_of(annotation: Any, metadata: Iterable[Any] = ()) -> Shape:
    """What an annotated type holds."""
    for mark in metadata:
        if isinstance(mark, (OneOf, Reading)):
            return mark
        if isinstance(mark, PartOf):
            return mark.model
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return shape_of(arguments[0], arguments[1:])
    if get_origin(annotation) is tuple:
        return ListOf(shape_of(arguments[0]))
    shapes = [shape_of(argument) for argument in arguments]
    return next((shape for shape in shapes if shape is not None), None)


def field_shape(field: FieldInfo) -> Shape:
    """What a field of a section holds."""
    return shape_of(field.annotation, field.metadata)


def fields(model: type[Section]) -> dict[str, FieldInfo]:
    """A section's fields by the key that YAML writes."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def is_kind(step: str | int) -> bool:
    """Whether a step of a pydantic location is the kind that a `OneOf` chose."""
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")


def without_kinds(location: Location) -> Location:
    """A pydantic location as a location of the scenario."""
    return tuple(step for step in location if not is_kind(step))


def shape_at(root: type[Section], location: Location) -> Shape:
    """What lies at a pydantic location, kinds included; None where the schema has no such place."""
    shape: Shape = root
    for step in location:
        if isinstance(shape, OneOf):
            shape = shape.model(str(step)[1:-1]) if is_kind(step) else None
        elif isinstance(shape, ListOf) and isinstance(step, int):
            shape = shape.item
        elif isinstance(shape, type) and isinstance(step, str) and step in fields(shape):
            shape = field_shape(fields(shape)[step])
        else:
            return None
    return shape


Explained = tuple[str, str]
"""Reason, and what would be accepted."""

_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
    "tuple": "a list",
    "model": "a mapping",
    "dict": "a mapping",
    "model_attributes": "a mapping",
}
_SILENT: Final = ("default_factory_not_called",)
"""Errors that follow from another one that is reported."""
SURE: Final = 0.85
"""From this nearness on a misspelt key is answered by the near one, without the list."""


def problems_of(error: ValidationError, tree: Node, root: type[Section]) -> list[Problem]:
    """Every error of a failed validation, as a user reads it, in the order found."""
    found: list[Problem] = []
    for item in error.errors(include_url=False):
        if item["type"] in _SILENT or _counts_only_what_was_valid(dict(item)):
            continue
        location, (reason, accepted) = _explained(dict(item), root)
        place = tree.find(location)
        found.append(Problem(place.file, place.line, shown_location(location), reason, accepted))
    return found


def _counts_only_what_was_valid(item: dict[str, Any]) -> bool:
    """Whether a list is called too short because its wrong items, reported themselves, were left out."""
    given = item["input"]
    return (
        item["type"] == "too_short"
        and isinstance(given, tuple)
        and len(given) >= int(item["ctx"]["min_length"])
    )


def _explained(item: dict[str, Any], root: type[Section]) -> tuple[Location, Explained]:
    located: Location = tuple(item["loc"])
    kind: str = item["type"]
    context: Mapping[str, Any] = item.get("ctx", {})
    location = without_kinds(located)
    shape = shape_at(root, located)
    if kind == "refused":
        return location, (context["reason"], context["accepted"])
    if kind == "missing":
        return location, ("is required", _accepted(shape) or _accepted_plain(located, root))
    if kind == "extra_forbidden":
        return location, _unknown_key(location, shape_at(root, located[:-1]), root)
    if kind in ("union_tag_invalid", "union_tag_not_found") and isinstance(shape, OneOf):
        return _wrong_kind(location, item["input"], shape)
    if kind == "literal_error":
        return location, _wrong_choice(item["input"], str(context["expected"]))
    accepted = _accepted(shape)
    return location, _wrong_value(kind, item["input"], context, accepted) or (str(item["msg"]), accepted)


def _accepted(shape: Shape) -> str:
    if isinstance(shape, Reading):
        return shape.accepted
    if isinstance(shape, OneOf):
        return shape.accepted
    if isinstance(shape, ListOf):
        return "a list"
    return f"a mapping with {listed(fields(shape))}" if isinstance(shape, type) else ""


def _accepted_plain(location: Location, root: type[Section]) -> str:
    """What a field without a reading or section of its own takes, by its annotation."""
    owner = shape_at(root, location[:-1])
    if not isinstance(owner, type):
        return ""
    annotation = fields(owner)[str(location[-1])].annotation
    if get_origin(annotation) is Literal:
        return listed(map(str, get_args(annotation)))
    for plain, name in ((int, "int"), (bool, "bool"), (str, "string"), (tuple, "tuple")):
        if (get_origin(annotation) or annotation) is plain:
            return _TYPES[name]
    return ""


def _unknown_key(location: Location, shape: Shape, root: type[Section]) -> Explained:
    key = str(location[-1])
    known = list(fields(shape)) if isinstance(shape, type) else []
    near = did_you_mean(key, known)
    if not near and (places := places_of(key, root)):
        near = f"; there is {listed(places, 3)}"
    return f"unknown key{near}", "" if closest(key, known, SURE) else listed(known, 12 if near else 24)


def places_of(key: str, root: type[Section]) -> list[str]:
    """Where sections inside sections have a key, the outermost first."""
    found: list[str] = []
    level: list[tuple[str, type[Section]]] = [("", root)]
    while level:
        inside: list[tuple[str, type[Section]]] = []
        for path, model in level:
            for name, field in fields(model).items():
                if name == key:
                    found.append(path + name)
                shape = field_shape(field)
                if isinstance(shape, type):
                    inside.append((f"{path}{name}.", shape))
        level = inside
    return found


def _wrong_kind(location: Location, value: object, choice: OneOf) -> tuple[Location, Explained]:
    kinds = listed(choice.table, 24)
    if not isinstance(value, dict):
        return location, (f"{shown(value)} is not a mapping", choice.accepted)
    location = (*location, choice.key)
    if value.get(choice.key) is None:
        return location, ("is required", kinds)
    wrong = str(value[choice.key])
    near = closest_name(wrong, choice.table)
    hint = f"; did you mean {near!r}?" if near else ""
    return location, (f"there is no {choice.key} {shown(wrong)}{hint}", kinds)


def _wrong_choice(value: object, expected: str) -> Explained:
    choices = expected.replace(" or ", ", ").replace("'", "").split(", ")
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    return f"{shown(value)} is not one of the choices{hint}", listed(choices)


def _wrong_value(kind: str, value: object, context: Mapping[str, Any], accepted: str) -> Explained | None:
    if kind.endswith("_type") and kind.removesuffix("_type") in _TYPES:
        wanted = _TYPES[kind.removesuffix("_type")]
        return f"{shown(value)} is not {wanted}", accepted or wanted
    bounds = {"greater_than_equal": ("ge", "least"), "less_than_equal": ("le", "most")}
    if kind in bounds:
        bound, word = bounds[kind]
        return f"{shown(value)} is out of range", f"at {word} {context[bound]}"
    if kind == "less_than":
        return f"{shown(value)} is out of range", f"less than {context['lt']}"
    if kind in ("too_short", "too_long"):
        least = kind == "too_short"
        bound = context["min_length"] if least else context["max_length"]
        count = context["actual_length"]
        return (
            f"has {counted(count, 'item')}" if count else "is empty",
            f"at {'least' if least else 'most'} {bound}",
        )
    if kind in ("string_too_short", "string_too_long"):
        word, key = ("least", "min_length") if kind == "string_too_short" else ("most", "max_length")
        return "has the wrong length", f"at {word} {context[key]} characters"
    return None
