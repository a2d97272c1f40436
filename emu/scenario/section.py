"""The base of all sections: keys, kinds by table, and refusals.

A section is a frozen pydantic model. Four rules hold for each of them:

- Names. A Python attribute carries its unit last (`pool_bytes`, `at_ps`, `link_bps`); the YAML key is the
  same name without it (`pool`, `at`, `link`), because there the value carries the unit.
- Strictness. Unknown keys are refused and nothing is converted silently: "5" is not a number, 1 is not true.
- Null is absent. A known key with nothing after it (`switch:`) is as if it were not there.
- Checks across fields. A section overrides `check` and yields one `Refusal` for each fault, with the key it
  belongs to; they are reported together with all the others.

Sections that come in several kinds (`topology.kind`, `routing.kind`) are declared as tables, name to model,
and `OneOf` turns a table into a field's type. A new kind is a new model and one line in a table.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from emu.base.spelling import listed, shown

UNIT_SUFFIXES: Final = ("_ps", "_ms", "_bytes", "_bps")

Location = tuple[str | int, ...]
"""Where a value sits in a scenario: keys and indices, as YAML writes them."""


class Refusal(NamedTuple):
    """A fault between fields: where it is, relative to the section, why, and what would be accepted."""

    location: Location
    reason: str
    accepted: str = ""


class RefusedError(ValueError):
    """A value that cannot be read. `reason` says why, `accepted` what would have been read."""

    def __init__(self, reason: str, accepted: str = "") -> None:
        super().__init__(reason, accepted)
        self.reason = reason
        self.accepted = accepted


def yaml_name(attribute: str) -> str:
    """The key under which an attribute is written: its name without the unit."""
    for suffix in UNIT_SUFFIXES:
        if attribute.endswith(suffix):
            return attribute.removesuffix(suffix)
    return attribute


def refused(reason: str, accepted: str) -> PydanticCustomError:
    """A validation error that carries `reason` and `accepted` to the report."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason, "accepted": accepted})


def errors_below(location: Location, error: ValidationError) -> Iterator[InitErrorDetails]:
    """The errors of a section that was validated by itself, as errors below its place."""
    for item in error.errors(include_url=False):
        context = dict(item.get("ctx", {}))
        kind = refused(context["reason"], context["accepted"]) if item["type"] == "refused" else item["type"]
        place = (*location, *item["loc"])
        yield InitErrorDetails(type=kind, loc=place, input=item["input"], ctx=context)


def under_kind(kind: str, error: ValidationError) -> ValidationError:
    """The same faults, at locations that name the kind."""
    return ValidationError.from_exception_data(kind, list(errors_below((f"<{kind}>",), error)))


class Section(BaseModel):
    """Base of all sections: frozen, strict, keys without units, faults collected."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=yaml_name,
        allow_inf_nan=False,
        defer_build=True,
    )

    @classmethod
    def defaults(cls) -> Self:
        """The section of which nothing is written, with none of its checks, which all defaults pass.

        To call the class would build what reads it, and most sections of most scenarios are not written.
        """
        section = cls.__new__(cls)
        values = {
            name: field.get_default(call_default_factory=True, validated_data={})
            if field.default_factory
            else field.default
            for name, field in cls.model_fields.items()
        }
        object.__setattr__(section, "__dict__", values)
        object.__setattr__(section, "__pydantic_fields_set__", set())
        object.__setattr__(section, "__pydantic_extra__", None)
        object.__setattr__(section, "__pydantic_private__", None)
        return section

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for field in cls.model_fields.values():
            part = field.annotation
            if isinstance(part, type) and issubclass(part, Section) and not field.metadata:
                field.metadata.append(WhenWritten(part))

    def check(self) -> Iterator[Refusal]:
        """Yield what is wrong between fields that are each right by themselves."""
        yield from ()

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        if not isinstance(value, dict) or None not in value.values():
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {key: below for key, below in value.items() if below is not None or key not in known}

    def errors(self) -> Iterator[InitErrorDetails]:
        """Yield what `check` refuses, as pydantic reports it."""
        for location, reason, accepted in self.check():
            yield InitErrorDetails(type=refused(reason, accepted), loc=location, input=None)

    @model_validator(mode="after")
    def _collect_refusals(self) -> Self:
        errors = list(self.errors())
        if errors:
            raise ValidationError.from_exception_data(type(self).__name__, errors)
        return self


class WhenWritten:
    """The type of a section that is built when it is first written: see `Section.defaults`."""

    def __init__(self, model: type[Section]) -> None:
        self.model = model

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self.model.model_validate)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        del schema
        self.model.model_rebuild()
        # Of one: pydantic names what a union has, and writes a bare schema where it stands.
        return handler(core_schema.union_schema([self.model.__pydantic_core_schema__]))


class PartOf:
    """The type of some keys of a section, kept as they were written.

    What is in it is checked by who puts it into a section of this `model`.
    """

    def __init__(self, model: type[Section]) -> None:
        self.model = model

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler

        def validate(value: object) -> object:
            if value is None:
                return None
            accepted = f"a mapping with {listed(yaml_name(name) for name in self.model.model_fields)}"
            if not isinstance(value, dict):
                raise refused(f"{shown(value)} is not a mapping", accepted)
            if not value:
                raise refused("changes nothing", accepted)
            return value

        return core_schema.no_info_plain_validator_function(validate)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        del schema, handler
        return {"type": "object"}


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


class OneOf:
    """The type of a section that comes in several kinds, distinguished by the value of `key`.

    `table` maps each value of `key` to a model. Without `default`, the key is required.
    In the location of a pydantic error the chosen kind appears as "<kind>", which no key can be.
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
    def accepted(self) -> str:
        """What it takes, in words."""
        return f"a mapping with {self.key}: one of {listed(self.table, 24)}"

    def _tag(self, value: object) -> str | None:
        if not isinstance(value, (dict, Section)):
            return None
        kind = self.chosen(value)
        return f"<{kind}>" if kind else None

    def read(self, value: object) -> Section:
        """The section that a value asks for.

        Only the kind that is asked for is ever built: building all of them takes as long as a short run.
        """
        kind = self.chosen(value) if isinstance(value, (dict, Section)) else ""
        model = self.table.get(kind)
        if model is not None and isinstance(value, (dict, model)):
            try:
                return model.model_validate(value)
            except ValidationError as error:
                raise under_kind(kind, error) from error
        discriminator = f"{type(self).__name__}.key"
        if not kind:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": discriminator})
        expected = ", ".join(f"'<{one}>'" for one in self.table)
        facts = {"discriminator": discriminator, "tag": f"<{kind}>", "expected_tags": expected}
        raise PydanticKnownError("union_tag_invalid", facts)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        for model in self.table.values():
            model.model_rebuild()
        kinds = {f"<{kind}>": model.__pydantic_core_schema__ for kind, model in self.table.items()}
        return dict(handler(core_schema.tagged_union_schema(kinds, discriminator=self._tag)))


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
    def accepted(self) -> str:
        """Either key."""
        return f"a mapping with {' or '.join(self.table)}"
