"""Records: frozen objects whose class says which keys they have, what each takes, and what it is by default.

    class Retry(Record):
        count: Annotated[int, Field(ge=0, le=7)] = 7
        \"\"\"How often it tries again.\"\"\"

`Retry.model_validate({"count": 3})` reads it from plain values, as YAML and JSON have them, and reports all
that is wrong with them at once, each at its place. `model_dump` gives the plain values back.

A field takes what its annotation says: whole numbers, numbers, texts, truth values, `Literal`, lists and
tuples, dictionaries by text, other records, and None beside any of them. Nothing is converted silently, but
that a whole number is a number. What a type alone does not tell is a `Mark` in `Annotated`.

A class is read when its first object is: most records of most commands are never made, and to declare one
costs no more than a class. The methods have the names that pydantic made common.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from emu.base.json_text import json_text
from emu.base.spelling import closest, listed, shown, shown_location
from emu.base.units import counted

Location = tuple[str | int, ...]
"""Where a value sits in what was read: keys and indices, as YAML writes them."""
MISSING: Final[Any] = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""The default of a field that has none."""


class RefusedError(ValueError):
    """A value that cannot be read. `reason` says why, `accepted` what would have been read."""

    def __init__(self, reason: str, accepted: str = "") -> None:
        super().__init__(reason, accepted)
        self.reason = reason
        self.accepted = accepted


class Mistake(NamedTuple):
    """One thing that is wrong with what was read: where, why, and what would be accepted."""

    location: Location
    reason: str
    accepted: str = ""
    unknown_to: "type[Record] | None" = None
    """The record that does not know a key; others may."""

    def below(self, *location: str | int) -> "Mistake":
        """The same, in a record that is at a place itself."""
        return self._replace(location=(*location, *self.location))


class MistakesError(ValueError):
    """What was read is wrong: every mistake, in the order of the fields."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__(self.mistakes)

    def __str__(self) -> str:
        return "; ".join(
            f"{shown_location(one.location)}: {one.reason}" if one.location else one.reason
            for one in self.mistakes
        )


class Limits(NamedTuple):
    """Bounds of a number, and of the length of a text or list."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None


NO_LIMITS: Final = Limits()


class Declared(NamedTuple):
    """What `Field` says of a field, besides its type."""

    default: Any = MISSING
    default_factory: Callable[[], Any] | None = None
    default_from: Callable[[dict[str, Any]], Any] | None = None
    key: str = ""
    description: str = ""


def Field(  # noqa: N802 - as dataclasses and pydantic have it, beside variables called `field`
    *,
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    default_from: Callable[[dict[str, Any]], Any] | None = None,
    key: str = "",
    description: str = "",
    **limits: Any,
) -> Any:
    """Limits of a value, in `Annotated`: `ge`, `gt`, `le`, `lt`, `min_length`, `max_length`. Elsewhere what a
    field is by default.

    `default_factory` makes a default of its own for each record, `default_from` one of the fields before it,
    by attribute. `key` is its key, where that is no name of Python's.
    """
    if limits:
        return Limits(**limits)
    return Declared(default, default_factory, default_from, key, description)


class Mark:
    """What stands in `Annotated` where a type alone does not tell how a value is read and given back."""

    accepted: str
    """What it takes, in words."""

    def take(self, value: object) -> object:
        """The value that was written. Raises RefusedError or MistakesError."""
        raise NotImplementedError

    def give(self, value: Any) -> object:
        """The plain value, as it would be written."""
        return value

    def schema(self, described: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """As JSON Schema. `described` writes that of a type."""
        raise NotImplementedError


class RecordField(NamedTuple):
    """A field of a record."""

    alias: str
    """Its key."""
    annotation: Any
    """Its type, without what `Annotated` adds."""
    metadata: tuple[Any, ...]
    """What `Annotated` adds: `Limits` and a `Mark`."""
    default: Any
    default_factory: Callable[[], Any] | None
    default_from: Callable[[dict[str, Any]], Any] | None
    description: str

    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING and self.default_factory is None and self.default_from is None

    def usual(self, held: dict[str, Any]) -> Any:
        """Its default beside the fields before it, by attribute; MISSING if there is none."""
        if self.default_factory is not None:
            return self.default_factory()
        return self.default if self.default_from is None else self.default_from(held)


class _Fields:
    """Fields of a class by attribute, read when they are first asked for."""

    def __get__(self, record: object, owner: "type[Record]") -> dict[str, RecordField]:
        found: dict[str, RecordField] | None = vars(owner).get("_record_fields")
        if found is None:
            found = {
                name: _field(owner.spelling_of(name), *one) for name, one in owner._record_declared.items()
            }
            owner._record_fields = found
        return found


def _field(key: str, annotation: Any, default: Any, owner: type) -> RecordField:
    if isinstance(annotation, str):
        scope = vars(sys.modules[owner.__module__])
        annotation = eval(annotation, scope, dict(vars(owner)))  # noqa: S307 - of our own source
    marks: tuple[Any, ...] = ()
    if get_origin(annotation) is Annotated:
        annotation, *some = get_args(annotation)
        marks = tuple(some)
    said = default if isinstance(default, Declared) else Declared(default)
    return RecordField(
        said.key or key,
        annotation,
        marks,
        said.default,
        said.default_factory,
        said.default_from,
        said.description,
    )


def _is_field(name: str, annotation: Any) -> bool:
    if name.startswith("_"):
        return False
    if isinstance(annotation, str):
        return not annotation.startswith("ClassVar")
    return annotation is not ClassVar and get_origin(annotation) is not ClassVar


class _Plan(NamedTuple):
    """How a class is read and given, worked out once."""

    readers: tuple[tuple[str, str, Callable[[Any], Any], RecordField], ...]
    """Key, attribute, reader, field."""
    keys: frozenset[str]
    shows: Mapping[str, Callable[[Any], Any]]
    """By attribute, how values are given back in which there is a mark."""
    written: tuple[tuple[str, str], ...]
    """Attribute, and its key as JSON begins a line with it."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Record:
    """Base of all records."""

    _record_declared: ClassVar[dict[str, tuple[Any, Any, type]]] = {}
    _record_fields: ClassVar[dict[str, RecordField]]
    model_fields: ClassVar[Any] = _Fields()
    """Fields by attribute: a dictionary of `RecordField`."""
    nulls_are_absent: ClassVar[bool] = False
    """Whether a known key with nothing after it is as if it were not there."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        declared: dict[str, tuple[Any, Any, type]] = {}
        for base in reversed(cls.__mro__[1:]):
            declared |= vars(base).get("_record_declared", {})
        for name, annotation in cls.__annotations__.items():
            if _is_field(name, annotation):
                declared[name] = (annotation, vars(cls).get(name, MISSING), cls)
                if name in vars(cls):
                    delattr(cls, name)
        cls._record_declared = declared

    def __init__(self, **keys: Any) -> None:
        """The record that has these keys. Raises MistakesError."""
        _read(self, keys)

    @property
    def model_fields_set(self) -> set[str]:
        """The attributes that were written."""
        found: set[str] = self.__dict__["model_fields_set"]
        return found

    @staticmethod
    def spelling_of(name: str) -> str:
        """The key of an attribute."""
        return name

    @classmethod
    def model_validate(cls, value: object) -> Self:
        """The record that a mapping describes, or the value itself if it is one. Raises MistakesError."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise MistakesError([Mistake((), f"{shown(value)} is not a mapping", accepted_by(cls))])
        record = cls.__new__(cls)
        _read(record, value)
        return record

    @classmethod
    def prepared(cls, keys: dict[str, Any]) -> dict[str, Any]:
        """What is read in the place of what was written."""
        return keys

    def check(self) -> Iterator[Mistake | tuple[Location, str, str]]:
        """Yield what is wrong between fields that are each right by themselves."""
        yield from ()

    def mistakes(self) -> Iterator[Mistake]:
        """What `check` has found."""
        for one in self.check():
            yield Mistake(*one)

    @classmethod
    def model_construct(cls, **values: Any) -> Self:
        """A record of values that are known to be right, by attribute or key; defaults for the others."""
        record = cls.__new__(cls)
        held = record.__dict__
        for name, field in cls.model_fields.items():
            if name in values:
                held[name] = values[name]
            elif field.alias in values:
                held[name] = values[field.alias]
            elif not field.is_required():
                held[name] = field.usual(held)
        held["model_fields_set"] = set(values)
        return record

    @classmethod
    def defaults(cls) -> Self:
        """The record of which nothing is written, with none of its checks, which all defaults pass."""
        return cls.model_construct()

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """The same but for some attributes, which are taken as they are."""
        cls = type(self)
        copied = cls.__new__(cls)
        held, before = copied.__dict__, self.__dict__
        for name in cls._record_declared:
            if name in before:
                held[name] = before[name]
        held["model_fields_set"] = {*before.get("model_fields_set", ()), *(update or ())}
        held.update(update or {})
        return copied

    def model_dump(
        self,
        *,
        mode: Literal["python", "json"] = "python",
        by_alias: bool = False,
        exclude_unset: bool = False,
        exclude_none: bool = False,
    ) -> dict[str, Any]:
        """Its plain values, by attribute or by key. For JSON tuples become lists."""
        return _given(self, _How(mode == "json", by_alias, exclude_unset, exclude_none))

    def json_text(self) -> str:
        """As JSON, indented by two spaces, in the order of the fields; characters as they are."""
        return json_text(self, _heads_of) + "\n"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        ours, theirs = self.__dict__, other.__dict__
        return all(ours[name] == theirs[name] for name in type(self)._record_declared)

    def __hash__(self) -> int:
        return hash((type(self), *(self.__dict__[name] for name in type(self)._record_declared)))

    def __repr__(self) -> str:
        values = (
            f"{name}={self.__dict__[name]!r}" for name in type(self)._record_declared if name in self.__dict__
        )
        return f"{type(self).__name__}({', '.join(values)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: records are frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be deleted: records are frozen")


def _plan_of(cls: "type[Record]") -> _Plan:
    found: _Plan | None = vars(cls).get("_record_plan")
    if found is None:
        fields: dict[str, RecordField] = cls.model_fields
        shows = {name: shower_of(one.annotation, one.metadata) for name, one in fields.items()}
        found = _Plan(
            tuple(
                (one.alias, name, reader_of(one.annotation, one.metadata), one)
                for name, one in fields.items()
            ),
            frozenset(one.alias for one in fields.values()),
            {name: show for name, show in shows.items() if show is not None},
            tuple((name, f"{json_text(one.alias, _heads_of)}: ") for name, one in fields.items()),
        )
        cls._record_plan = found  # type: ignore[attr-defined]  # of this class, and not inherited
    return found


def _read(record: Record, written: dict[str, Any]) -> None:
    """Give a record the values that were written. Raises MistakesError."""
    cls = type(record)
    plan = _plan_of(cls)
    given = cls.prepared(written)
    held = record.__dict__
    mistakes: list[Mistake] = []
    set_: set[str] = set()
    absent = cls.nulls_are_absent
    for key, name, read, field in plan.readers:
        value = given.get(key, MISSING)
        if value is MISSING or (value is None and absent):
            if field.default is not MISSING:
                held[name] = field.default
            elif field.is_required():
                mistakes.append(Mistake((key,), "is required", accepted_by(field.annotation, field.metadata)))
            elif not mistakes:
                held[name] = field.usual(held)
            continue
        set_.add(name)
        try:
            held[name] = read(value)
        except RefusedError as error:
            mistakes.append(Mistake((key,), error.reason, error.accepted))
        except MistakesError as error:
            mistakes += [wrong.below(key) for wrong in error.mistakes]
    mistakes += [Mistake((key,), "unknown key", "", cls) for key in given if key not in plan.keys]
    if not mistakes:
        held["model_fields_set"] = set_
        mistakes = list(record.mistakes())
    if mistakes:
        raise MistakesError(mistakes)


_PLAIN: Final = frozenset({int, str, bool, float, NoneType})


class _How(NamedTuple):
    """How records are given."""

    lists: bool
    by_alias: bool
    exclude_unset: bool
    exclude_none: bool


def _given(record: Record, how: _How) -> dict[str, Any]:
    plan = _plan_of(type(record))
    shows = plan.shows
    held = record.__dict__
    found = {}
    for key, name, _, _ in plan.readers:
        if how.exclude_unset and name not in held["model_fields_set"]:
            continue
        value = held[name]
        if name in shows:
            value = shows[name](value)
        if type(value) not in _PLAIN:
            value = _plain(value, how)
        if value is not None or not how.exclude_none:
            found[key if how.by_alias else name] = value
    return found


def _plain(value: Any, how: _How) -> Any:
    if isinstance(value, Record):
        return _given(value, how)
    if isinstance(value, (tuple, list)):
        items = [one if type(one) in _PLAIN else _plain(one, how) for one in value]
        return items if how.lists or isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {
            key: _plain(one, how) for key, one in value.items() if one is not None or not how.exclude_none
        }
    return value


def plain_default(record: type[Record], name: str) -> Any:
    """The default of a field as JSON has it; None where it has none, or makes it."""
    plan, default = _plan_of(record), record.model_fields[name].default
    if default is MISSING:
        return None
    shown_as = plan.shows[name](default) if name in plan.shows else default
    return _plain(shown_as, _How(lists=True, by_alias=True, exclude_unset=False, exclude_none=False))


def _heads_of(cls: type[Record]) -> tuple[tuple[str, str], ...]:
    return _plan_of(cls).written


# What is accepted, and how it is read.

_WORDS: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
_ALTERNATIVES: Final = (Union, UnionType)
Reader = Callable[[Any], Any]


def parts_of(annotation: Any, marks: Iterable[Any] = ()) -> tuple[Any, Limits, Mark | None]:
    """A type without `Annotated`, its limits, and its mark."""
    every = [*marks]
    while get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        every = [*inner, *every]
    limits = next((one for one in reversed(every) if isinstance(one, Limits)), NO_LIMITS)
    mark = next((one for one in reversed(every) if isinstance(one, Mark)), None)
    return annotation, limits, mark


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """The words of a `Literal`, or of several side by side; none of another type."""
    kind = parts_of(annotation)[0]
    if get_origin(kind) is Literal:
        return get_args(kind)
    if get_origin(kind) in _ALTERNATIVES:
        every = [choices_of(one) for one in get_args(kind) if one is not NoneType]
        return tuple(word for words in every for word in words) if all(every) else ()
    return ()


def accepted_by(annotation: Any, marks: Iterable[Any] = ()) -> str:
    """What a field takes, in words."""
    kind, _, mark = parts_of(annotation, marks)
    if mark is not None:
        return mark.accepted
    if choices := choices_of(kind):
        return listed(map(str, choices))
    if get_origin(kind) in _ALTERNATIVES:
        return next(accepted_by(one) for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) in (tuple, list):
        return "a list"
    if isinstance(kind, type) and issubclass(kind, Record):
        return f"a mapping with {listed(one.alias for one in kind.model_fields.values())}"
    if get_origin(kind) is dict:
        return "a mapping"
    return _WORDS.get(kind, "")


def reader_of(annotation: Any, marks: Iterable[Any] = ()) -> Reader:
    """A function from what was written to the value, or to RefusedError and MistakesError."""
    kind, limits, mark = parts_of(annotation, marks)
    if mark is not None:
        return mark.take if limits is NO_LIMITS else _within(mark.take, limits)
    if choices := choices_of(kind):
        read = _one_of(choices)
        return _or_none(read) if NoneType in get_args(kind) else read
    origin = get_origin(kind)
    if origin in _ALTERNATIVES:
        others = [one for one in get_args(kind) if one is not NoneType]
        read = reader_of(others[0]) if len(others) == 1 else _scalar(others)
        return _or_none(read) if NoneType in get_args(kind) else read
    if origin in (tuple, list):
        return _several(origin, get_args(kind), limits)
    if origin is dict:
        return _mapping(get_args(kind)[1])
    if kind is Any or kind is object:
        return _same
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.model_validate
    if kind in _WORDS:
        return _within(_TYPES[kind], limits) if limits is not NO_LIMITS else _TYPES[kind]
    raise TypeError(f"a field cannot be {kind!r}")


def _same(value: Any) -> Any:
    return value


def _whole(value: Any) -> Any:
    if type(value) is int or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise RefusedError(f"{shown(value)} is not a whole number", _WORDS[int])


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RefusedError(f"{shown(value)} is not a number", _WORDS[float])
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if number - number != 0:
        raise RefusedError(f"{shown(value)} is not a finite number", _WORDS[float])
    return number


def _truth(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    raise RefusedError(f"{shown(value)} is not true or false", _WORDS[bool])


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise RefusedError(f"{shown(value)} is not a text", _WORDS[str])
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RefusedError(f"{shown(value)} has half a character", "characters of Unicode") from None
    return value


_TYPES: Final[Mapping[Any, Reader]] = {int: _whole, float: _number, bool: _truth, str: _text}


def _within(read: Reader, limits: Limits) -> Reader:
    ge, gt, le, lt, shortest, longest = limits

    def checked(written: Any) -> Any:
        value = read(written)
        if isinstance(value, (str, tuple, list)):
            if (shortest is not None and len(value) < shortest) or (
                longest is not None and len(value) > longest
            ):
                raise _of_length(value, shortest, longest)
            return value
        if ge is not None and value < ge:
            accepted = f"at least {ge}"
        elif gt is not None and value <= gt:
            accepted = f"above {gt}"
        elif le is not None and value > le:
            accepted = f"at most {le}"
        elif lt is not None and value >= lt:
            accepted = f"less than {lt}"
        else:
            return value
        raise RefusedError(f"{shown(written)} is out of range", accepted)

    return checked


def _of_length(value: Any, shortest: int | None, longest: int | None) -> RefusedError:
    least = shortest is not None and len(value) < shortest
    bound = f"at {'least' if least else 'most'} {shortest if least else longest}"
    if isinstance(value, str):
        return RefusedError("has the wrong length", f"{bound} characters")
    return RefusedError(f"has {counted(len(value), 'item')}" if value else "is empty", bound)


def _one_of(choices: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        for choice in choices:
            if value == choice and type(value) is type(choice):
                return value
        near = closest(value, map(str, choices)) if isinstance(value, str) else ""
        hint = f"; did you mean {near!r}?" if near else ""
        raise RefusedError(f"{shown(value)} is not one of the choices{hint}", listed(map(str, choices)))

    return read


def _or_none(read: Reader) -> Reader:
    def checked(value: Any) -> Any:
        return None if value is None else read(value)

    return checked


def _scalar(kinds: list[Any]) -> Reader:
    """One of several plain types, the value as it is."""
    if not all(kind in _WORDS for kind in kinds):
        raise TypeError(f"a field cannot be one of {kinds!r}")

    def read(value: Any) -> Any:
        if type(value) in kinds:
            return value
        accepted = ", ".join(_WORDS[kind] for kind in kinds)
        raise RefusedError(f"{shown(value)} is none of them", accepted)

    return read


def _several(origin: type, kinds: tuple[Any, ...], limits: Limits) -> Reader:
    """The reader of a list, or of a tuple of one kind or of so many."""
    fixed = origin is tuple and kinds[-1] is not Ellipsis
    readers = [reader_of(kind) for kind in kinds if kind is not Ellipsis]
    first = readers[0]
    shortest, longest = (None, len(readers)) if fixed else (limits.min_length, limits.max_length)

    def read(written: Any) -> Any:
        if not isinstance(written, (tuple, list)):
            raise RefusedError(f"{shown(written)} is not a list", "a list")
        count = len(written)
        if (shortest is not None and count < shortest) or (longest is not None and count > longest):
            raise _of_length(written, shortest, longest)
        mistakes: list[Mistake] = []
        values = []
        for at, one in enumerate(written):
            try:
                values.append(readers[at](one) if fixed else first(one))
            except RefusedError as error:
                mistakes.append(Mistake((at,), error.reason, error.accepted))
            except MistakesError as error:
                mistakes += [wrong.below(at) for wrong in error.mistakes]
        if fixed:
            mistakes += [
                Mistake((at,), "is required", accepted_by(kinds[at])) for at in range(count, len(readers))
            ]
        if mistakes:
            raise MistakesError(mistakes)
        return values if origin is list else tuple(values)

    return read


def _mapping(kind: Any) -> Reader:
    inner = reader_of(kind)

    def read(written: Any) -> Any:
        if not isinstance(written, dict):
            raise RefusedError(f"{shown(written)} is not a mapping", "a mapping")
        mistakes: list[Mistake] = []
        values = {}
        for key, one in written.items():
            try:
                values[_text(key)] = inner(one)
            except RefusedError as error:
                mistakes.append(Mistake((key,), error.reason, error.accepted))
            except MistakesError as error:
                mistakes += [wrong.below(key) for wrong in error.mistakes]
        if mistakes:
            raise MistakesError(mistakes)
        return values

    return read


def shower_of(annotation: Any, marks: Iterable[Any] = ()) -> Reader | None:
    """A function that gives values back with each mark's own; None where there is no mark."""
    kind, _, mark = parts_of(annotation, marks)
    if mark is not None:
        return mark.give
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in _ALTERNATIVES:
        shows = [show for one in arguments if (show := shower_of(one)) is not None]
        return _or_none(shows[0]) if shows else None
    if origin in (tuple, list):
        each = [shower_of(one) for one in arguments if one is not Ellipsis]
        show = each[0]
        return None if show is None else lambda value: type(value)(map(show, value))
    return None
