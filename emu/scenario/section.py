"""The base of all sections: keys, kinds by table, and refusals.

A section is a record (`emu.base.records`). Four rules hold for each of them:

- Names. A Python attribute carries its unit last (`pool_bytes`, `at_ps`, `link_bps`); the YAML key is the
  same name without it (`pool`, `at`, `link`), because there the value carries the unit.
- Strictness. Unknown keys are refused and nothing is converted silently: "5" is not a number, 1 is not true.
- Null is absent. A known key with nothing after it (`switch:`) is as if it were not there.
- Checks across fields. A section overrides `check` and yields one `Refusal` for each fault, with the key it
  belongs to; they are reported together with all the others.

Sections that come in several kinds (`topology.kind`, `routing.kind`) are declared as tables, name to model,
and `OneOf` turns a table into a field's type. A new kind is a new model and one line in a table.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple

from emu.base.records import Location, Mark, Mistake, MistakesError, Record, RefusedError
from emu.base.spelling import closest_name, listed, shown

UNIT_SUFFIXES: Final = ("_ps", "_ms", "_bytes", "_bps")


class Refusal(NamedTuple):
    """A fault between fields: where it is, relative to the section, why, and what would be accepted."""

    location: Location
    reason: str
    accepted: str = ""


def yaml_name(attribute: str) -> str:
    """The key under which an attribute is written: its name without the unit."""
    for suffix in UNIT_SUFFIXES:
        if attribute.endswith(suffix):
            return attribute.removesuffix(suffix)
    return attribute


class Section(Record):
    """Base of all sections: frozen, strict, keys without units, faults collected."""

    nulls_are_absent: ClassVar[bool] = True

    @staticmethod
    def spelling_of(name: str) -> str:
        """The name without its unit."""
        return yaml_name(name)

    def check(self) -> Iterator[Refusal]:
        """Yield what is wrong between fields that are each right by themselves."""
        yield from ()


class PartOf(Mark):
    """The type of some keys of a section, kept as they were written.

    What is in it is checked by who puts it into a section of this `model`.
    """

    def __init__(self, model: type[Section]) -> None:
        self.model = model

    @property
    def accepted(self) -> str:  # type: ignore[override]  # worked out when it is asked for
        """Some of the keys."""
        return f"a mapping with {listed(yaml_name(name) for name in self.model.model_fields)}"

    def take(self, value: object) -> object:
        """The mapping as it is, or None."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise RefusedError(f"{shown(value)} is not a mapping", self.accepted)
        if not value:
            raise RefusedError("changes nothing", self.accepted)
        return value

    def schema(self, described: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """That of the section, of which nothing is required."""
        return described(self.model)


class Kinds(Mapping[str, type[Section]]):
    """A table of kinds whose modules are loaded as each kind is asked for.

    `places` maps each kind to where its model is, `flows:FlowList` of a module of `package`.
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self._package = package
        self._places = places

    def __getitem__(self, kind: str) -> type[Section]:
        module, _, name = self._places[kind].partition(":")
        model: type[Section] = getattr(import_module(f"{self._package}.{module}"), name)
        return model

    def __contains__(self, kind: object) -> bool:
        return kind in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class OneOf(Mark):
    """The type of a section that comes in several kinds, distinguished by the value of `key`.

    `table` maps each value of `key` to a model. Without `default`, the key is required.
    """

    tagged = True
    """Whether the value of `key` says which kind it is."""

    def __init__(self, key: str, table: Mapping[str, type[Section]], default: str = "") -> None:
        self.key = key
        self.table = table
        self.default = default

    def chosen(self, value: object) -> str:
        """The kind that `value`, a mapping or a section, asks for; the default if it names none."""
        found = value.get(self.key) if isinstance(value, dict) else getattr(value, self.key, None)
        return self.default if found is None else str(found)

    def model(self, kind: str) -> type[Section] | None:
        """The model of a kind; None if there is no such kind."""
        return self.table.get(kind)

    def heading(self, kind: str) -> str:
        """How a kind is told from the others, as the reference has it."""
        return f"{self.key}: {kind}"

    @property
    def accepted(self) -> str:  # type: ignore[override]  # worked out when it is asked for
        """What it takes, in words."""
        return f"a mapping with {self.key}: one of {listed(self.table, 24)}"

    def take(self, value: object) -> Section:
        """The section that a value asks for."""
        if not isinstance(value, (dict, Section)):
            raise RefusedError(f"{shown(value)} is not a mapping", self.accepted)
        kind = self.chosen(value)
        model = self.table.get(kind)
        if model is not None and isinstance(value, (dict, model)):
            return model.model_validate(value)
        kinds = listed(self.table, 24)
        if not kind:
            raise MistakesError([Mistake((self.key,), "is required", kinds)])
        near = closest_name(kind, self.table)
        hint = f"; did you mean {near!r}?" if near else ""
        raise MistakesError([Mistake((self.key,), f"there is no {self.key} {shown(kind)}{hint}", kinds)])

    def schema(self, described: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Any of the kinds."""
        return {"oneOf": [described(model) for model in self.table.values()]}


class OneOfKeys(OneOf):
    """The type of a section whose kinds are distinguished by a key that the others do not have.

    `table` maps that key to the model; the first kind is meant where none of the keys is given.
    """

    tagged = False

    def __init__(self, table: Mapping[str, type[Section]]) -> None:
        first, *others = table
        super().__init__(others[-1], table, first)

    def chosen(self, value: object) -> str:
        """The kind whose key is there."""
        keys = (
            value
            if isinstance(value, dict)
            else type(value).model_fields
            if isinstance(value, Section)
            else ()
        )
        return next((kind for kind in self.table if kind in keys), self.default)

    def heading(self, kind: str) -> str:
        """The key is all that tells."""
        return f"with {kind}"

    @property
    def accepted(self) -> str:  # type: ignore[override]  # worked out when it is asked for
        """Either key."""
        return f"a mapping with {' or '.join(self.table)}"
