"""The base of all parts of `summary.json`, and of what a kind of workload adds to the results of its job."""

from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, ClassVar, NamedTuple, get_args, get_origin

from emu.base.records import MISSING, Record, RecordField, reader_of


class Part(Record):
    """Base of the parts: frozen, nothing unknown.

    Who makes one has counted what is in it. So the values are taken as they are, by attribute; only whole
    numbers become numbers where those are meant, which JSON writes in another way.
    """

    _making: ClassVar["_Making"]

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        making = vars(cls).get("_making") or _making_of(cls)
        held = self.__dict__
        held.update(making.usual)
        for name, make in making.made:
            held[name] = make()
        held.update(values)
        if held.keys() != making.names.keys():
            wrong = [name for name in {**held, **making.names} if (name in held) != (name in making.names)]
            raise TypeError(f"{cls.__name__} is made of other values: {', '.join(wrong)}")
        for name, read in making.numbers:
            value = held[name]
            if value is not None and type(value) is not float:
                held[name] = read(value)


class _Making(NamedTuple):
    """How a part is made, worked out once a class."""

    names: dict[str, RecordField]
    usual: dict[str, Any]
    """Defaults."""
    made: list[tuple[str, Callable[[], Any]]]
    """Defaults that each has for itself."""
    numbers: list[tuple[str, Callable[[Any], Any]]]
    """Fields with numbers, and what reads them."""


def _making_of(part: type[Part]) -> _Making:
    fields: dict[str, RecordField] = part.model_fields
    found = part._making = _Making(
        fields,
        {name: one.default for name, one in fields.items() if one.default is not MISSING},
        [(name, one.default_factory) for name, one in fields.items() if one.default_factory is not None],
        [(name, reader_of(one.annotation)) for name, one in fields.items() if _has_number(one.annotation)],
    )
    return found


def _has_number(annotation: Any) -> bool:
    kinds = [one for one in get_args(annotation) if one is not NoneType]
    if get_origin(annotation) is dict:
        return _has_number(kinds[1])
    return annotation is float or (len(kinds) == 1 and _has_number(kinds[0]))


class KindResult(Part):
    """What a kind of workload adds to the results of its job: a field of `emu.results.summary.Job`."""

    def lines(self, job: str) -> list[str]:
        """The result of a job of this name as lines of the report."""
        raise NotImplementedError


def every_part(base: type[Part] = Part) -> Iterator[type[Part]]:
    """All parts that are declared below a base."""
    for one in base.__subclasses__():
        yield one
        yield from every_part(one)
