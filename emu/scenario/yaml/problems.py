"""What is wrong with a file as problems: file, line, key, reason, and what would be accepted.

Records say what is wrong and where (`emu.base.records`). The tree knows file and line; an unknown key comes
with the nearest known one, or with where else there is one of its name.

A shape says which section, or table of kinds, lies at a field, for the reference and for overrides. It reads
the models' annotations, so it is true of whatever the models say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from emu.base.errors import Problem
from emu.base.records import Mistake, MistakesError, Record, RecordField
from emu.base.spelling import closest, did_you_mean, listed, shown_location
from emu.scenario.section import OneOf, PartOf, Section
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


def field_shape(field: RecordField) -> Shape:
    """What a field of a section holds."""
    return shape_of(field.annotation, field.metadata)


def fields(model: type[Section]) -> dict[str, RecordField]:
    """A section's fields by the key that YAML writes."""
    return {field.alias: field for field in model.model_fields.values()}


SURE: Final = 0.85
"""From this nearness on a misspelt key is answered by the near one, without the list."""


def problems_of(error: MistakesError, tree: Node, root: type[Section]) -> list[Problem]:
    """Everything that is wrong, as a user reads it, in the order found."""
    found: list[Problem] = []
    for one in error.mistakes:
        place = tree.find(one.location)
        reason, accepted = one.reason, one.accepted
        if one.unknown_to is not None:
            reason, accepted = _unknown_key(one, one.unknown_to, root)
        found.append(Problem(place.file, place.line, shown_location(one.location), reason, accepted))
    return found


def _unknown_key(mistake: Mistake, owner: type[Record], root: type[Section]) -> tuple[str, str]:
    key = str(mistake.location[-1])
    known = [field.alias for field in owner.model_fields.values()]
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
