"""Sections of policies, made from the knobs that the policies list.

A policy says in its own file which knobs it has (`actors.kernel.knobs`). `section_of` makes the model of a
section from them: the keys that all policies of a seam share, written out in the seam's base, and one key for
each knob, with its type, range, default and meaning. Built-in policies and `module:Class` go this one way.
Who builds devices hands the section to the policy, as the values of its knobs.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar, Final, Literal

from actors.kernel.knobs import AUTO, MTU, UNITS, Knob, Knobs, knobs_of
from emu.base import units
from emu.base.errors import QuantityError
from emu.base.records import Field, MistakesError, RefusedError
from emu.base.spelling import listed
from emu.scenario.section import Refusal, Section
from emu.scenario.yaml.values import (
    MOST_FRACTION,
    Priority,
    Reading,
    fraction_up_to,
    or_auto,
    rate_between,
    size_between,
    time_between,
)

CLASSES: Final = 8
ACCEPTED: Final = "Knob(name, unit, default, least, most, doc) of actors.kernel.knobs"


class PolicySection(Section, Knobs):
    """Base of the sections that choose a policy: its kind, what all policies of the seam share, its knobs."""

    policy: ClassVar[type[Any]]
    """The class that the kind names."""
    knobs: ClassVar[Mapping[str, Knob]] = {}
    """What the policy lists, by name."""

    kind: str
    """Which policy."""

    def check(self) -> Iterator[Refusal]:
        """Refuse a priority listed twice."""
        yield from super().check()
        for name, knob in self.knobs.items():
            value = getattr(self, knob.attribute)
            if knob.unit == "priorities" and len(dict.fromkeys(value)) != len(value):
                yield Refusal((name,), "a priority is listed twice", "each priority once")

    def misfits(self, mtu_bytes: int) -> Iterator[Refusal]:
        """What of the knobs does not go with packets of this payload."""
        for name, knob in self.knobs.items():
            size_bytes = getattr(self, knob.attribute) if knob.least == MTU else None
            if size_bytes is not None and size_bytes < mtu_bytes:
                reason = f"the {name} of {size_bytes} bytes holds no packet of {mtu_bytes}"
                yield Refusal((name,), reason, "at least `mtu`")


class Policies(Mapping[str, type[PolicySection]]):
    """A table of policies, whose sections are made as each is asked for.

    `policies` maps each kind to the base of its section, its class, and what it is. A class written as
    `module:Class` is loaded with its kind: what a plain RoCE fabric does without (`actors.optional`).
    """

    def __init__(self, policies: Mapping[str, tuple[type[PolicySection], type[Any] | str, str]]) -> None:
        self._policies = policies
        self._made: dict[str, type[PolicySection]] = {}

    def __getitem__(self, kind: str) -> type[PolicySection]:
        if kind not in self._made:
            base, policy, doc = self._policies[kind]
            if isinstance(policy, str):
                module, _, name = policy.partition(":")
                policy = getattr(import_module(module), name)
            self._made[kind] = section_of(base, kind, policy, doc)
        return self._made[kind]

    def __contains__(self, kind: object) -> bool:
        return kind in self._policies

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)


def derives_from(policy: type[Any], *places: str) -> bool:
    """Whether a class is, or derives from, one of these, which are written `module:Class` and not loaded."""
    return any(f"{one.__module__}:{one.__qualname__}" in places for one in policy.__mro__)


def section_of(base: type[PolicySection], kind: str, policy: type[Any], doc: str) -> type[Any]:
    """The model of a kind: what the base has, and the policy's knobs. `doc` says what it is.

    RefusedError where a class, which may be somebody's own, lists knobs that are none.
    """
    try:
        knobs = knobs_of(policy)
    except TypeError as error:
        raise RefusedError(str(error), f"a list of {ACCEPTED}") from error
    taken = [field.alias for field in base.model_fields.values()]
    for name in knobs:
        if name in taken or not name.isidentifier() or name.startswith("_"):
            reason = "is a key of its section already" if name in taken else "is no name"
            raise RefusedError(f"knob {name!r} {reason}", f"a name other than {listed(taken)}")
    root = next(one for one in base.__mro__ if PolicySection in one.__bases__)
    words, plugged = kind.rpartition(":")[2].split("_"), ":" in kind
    title = "".join(word[:1].upper() + word[1:] for word in words) + root.__name__.removesuffix("Section")
    fields: dict[str, tuple[Any, Any]] = {knob.attribute: _field(knob) for knob in knobs.values()}
    fields["kind"] = (str if plugged else Literal[(kind,)], Field(default=kind, description=doc))
    owner = policy if plugged else base
    names: dict[str, Any] = {
        "__module__": owner.__module__,
        "__doc__": doc,
        "__annotations__": {name: annotation for name, (annotation, _) in fields.items()},
        "policy": policy,
        "knobs": knobs,
    }
    made: type[Any] = type(title, (base,), names | {name: default for name, (_, default) in fields.items()})
    if plugged:
        _check_defaults(made)
    return made


def _field(knob: Knob) -> tuple[Any, Any]:
    """The type and the default of a knob."""
    try:
        kind = _type_of(knob)
        default = kind.read(knob.default) if isinstance(kind, Reading) else knob.default
    except (QuantityError, RefusedError) as error:
        raise RefusedError(f"knob {knob.name!r}: {error.reason}", error.accepted or ACCEPTED) from error
    except TypeError as error:
        raise RefusedError(f"knob {knob.name!r} has bounds of another unit", ACCEPTED) from error
    declared = Field(default=default, description=knob.doc)
    return Annotated[Any, kind] if isinstance(kind, Reading) else kind, declared


def _type_of(knob: Knob) -> Any:
    """A `Reading` for what is written with a unit, else the type of the plain value."""
    least, most = knob.least, knob.most
    number = Field(ge=least or 0, le=units.MAX_QUANTITY if most is None else most)
    match knob.unit:
        case tuple(words):
            return Literal[words]
        case "ps":
            reading = time_between(*_range(knob, units.parse_time, 0))
        case "bytes":
            reading = size_between(*_range(knob, units.parse_size, 0))
        case "bps":
            reading = rate_between(*_range(knob, units.parse_rate, 1))
        case "fraction":
            reading = fraction_up_to(MOST_FRACTION if most is None else units.parse_fraction(most))
        case "number":
            return Annotated[int, number]
        case "flag":
            return bool
        case "priorities":
            return Annotated[tuple[Priority, ...], Field(max_length=CLASSES)]
        case "weights":
            of_one = Annotated[int, number]
            return Annotated[tuple[of_one, ...], Field(min_length=CLASSES, max_length=CLASSES)]
        case _:
            raise RefusedError(f"there is no unit {knob.unit!r}", f"{listed(UNITS)}, or a tuple of words")
    return or_auto(reading) if knob.default == AUTO else reading


def _range(knob: Knob, parse: Callable[[object], int], usual: int) -> tuple[int, int | None]:
    """The bounds of a quantity, in its unit."""
    least = usual if knob.least is None else 1 if knob.least == MTU else parse(knob.least)
    return least, None if knob.most is None else parse(knob.most)


def _check_defaults(model: type[PolicySection]) -> None:
    """Refuse defaults that could not be written."""
    plain = {name: knob.default for name, knob in model.knobs.items()}
    try:
        model.model_validate({"kind": model.model_fields["kind"].default, **plain})
    except MistakesError as error:
        name = error.mistakes[0].location[0]
        raise RefusedError(f"the default of knob {name!r} is out of range", ACCEPTED) from error
