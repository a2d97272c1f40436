"""Which section, or table of kinds, lies at a location of the schema?

Errors ask it what would have been accepted, the reference what to list. It reads the models' annotations,
so it is true of whatever the models say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic.fields import FieldInfo

from emu.scenario.sections.section import Location, OneOf, Section
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
            shape = shape.choice(str(step)[1:-1]) if is_kind(step) else None
        elif isinstance(shape, ListOf) and isinstance(step, int):
            shape = shape.item
        elif isinstance(shape, type) and isinstance(step, str) and step in fields(shape):
            shape = field_shape(fields(shape)[step])
        else:
            return None
    return shape
