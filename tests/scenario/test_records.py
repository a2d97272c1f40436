"""Records take what their JSON Schema takes, say all that is wrong at once, and give back what they took.

What a type accepts is judged by jsonschema, which knows nothing of ours.
"""

import json
import math
from importlib import import_module
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.base.json_schema import json_schema_of
from emu.base.records import Field, MistakesError, Record
from emu.results.summary_part import Part

jsonschema: Any = import_module("jsonschema")


class Inner(Record):
    """A record in a record."""

    depth: Annotated[int, Field(ge=1, lt=9)]
    """How deep."""
    note: Annotated[str, Field(min_length=1, max_length=3)] | None = None


class Outer(Record):
    """Every type that a field may have."""

    whole: int = 0
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    flag: bool = False
    text: str = ""
    word: Literal["ring", "tree"] = "ring"
    words: Literal["a", "b"] | Literal["c"] | None = None  # noqa: PYI030 - as kinds of operations are
    scalar: int | float | str | bool | None = None
    few: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1, max_length=2)] = (1,)
    two: tuple[bool, str] = (True, "")
    names: list[str] = Field(default_factory=list)
    table: dict[str, float | None] = Field(default_factory=dict)
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    source: str = Field(default="here", key="from")


VALIDATOR = jsonschema.Draft202012Validator(json_schema_of(Outer))
SCALARS = [None, False, True, -3, 0, 1, 2, 8, 9, 12, 0.5, 1.5, "", "a", "ring", "tree", "abcd"]
PLAIN = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["depth", "note", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = [field.alias for field in Outer.model_fields.values()]


def mistaken(written: dict[str, Any]) -> set[str | int]:
    """The keys that are refused."""
    try:
        Outer.model_validate(written)
    except MistakesError as error:
        return {one.location[0] for one in error.mistakes}
    return set()


@given(st.dictionaries(st.sampled_from([*KEYS, "unknown"]), PLAIN, max_size=3))
def test_a_record_takes_what_its_schema_takes_and_gives_it_back(written: dict[str, Any]) -> None:
    wrong = {one.path[0] if one.path else "unknown" for one in VALIDATOR.iter_errors(written)}
    assert mistaken(written) == wrong
    if wrong:
        return
    record = Outer.model_validate(written)
    plain = record.model_dump(mode="json", by_alias=True)
    assert {key: plain[key] for key in written} == written
    assert json.loads(record.json_text()) == plain
    assert json.loads(json.dumps(plain, indent=2)) == json.loads(record.json_text())
    assert Outer.model_validate(plain) == record
    assert hash(record.inner) == hash(Outer.model_validate(plain).inner)


def test_json_is_what_the_standard_library_writes() -> None:
    inner = Inner.model_validate({"depth": 3, "note": '\u00e9\n"'})
    outer = Outer.model_validate({"inner": inner, "table": {"a": 1, "b": None}, "names": [], "share": 1e-6})
    plain = outer.model_dump(mode="json", by_alias=True)
    assert outer.json_text() == json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def test_everything_wrong_is_said_at_once_in_the_order_of_the_fields() -> None:
    written = {"zzz": 1, "inners": [{"depth": 0}, {}, {"depth": 1, "odd": 2}], "few": [], "whole": True}
    with pytest.raises(MistakesError) as refused:
        Outer.model_validate(written)
    assert [one.location for one in refused.value.mistakes] == [
        ("whole",),
        ("few",),
        ("inners", 0, "depth"),
        ("inners", 1, "depth"),
        ("inners", 2, "odd"),
        ("zzz",),
    ]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 10**400, "\ud800"], ids=repr)
def test_what_no_file_can_hold_is_refused(wrong: object) -> None:
    key = "text" if isinstance(wrong, str) else "table"
    with pytest.raises(MistakesError):
        Outer.model_validate({key: wrong if key == "text" else {"a": wrong}})


def test_a_field_of_a_type_that_nobody_reads_is_refused_as_its_class_is_used() -> None:
    class Odd(Record):
        value: complex = 0j

    with pytest.raises(TypeError, match="complex"):
        Odd()


def test_a_default_may_follow_the_fields_before_it() -> None:
    class Pair(Record):
        one: int
        other: int = Field(default_from=lambda known: known["one"] + 1)

    alone, both = Pair.model_validate({"one": 3}), Pair.model_validate({"one": 3, "other": 7})
    assert (alone.other, both.model_fields_set) == (4, {"one", "other"})
    assert alone.model_copy(update={"other": 7}) == both != alone


def test_a_part_has_every_value_and_no_other() -> None:
    class Row(Part):
        count: int
        share: float | None
        by: dict[str, float] = Field(default_factory=dict)

    assert repr(Row(count=1, share=1, by={"a": 2})) == "Row(count=1, share=1.0, by={'a': 2.0})"
    with pytest.raises(TypeError, match="share"):
        Row(count=1)  # type: ignore[call-arg]  # what the rule is about
    with pytest.raises(TypeError, match="shares"):
        Row(count=1, share=None, shares=2)  # type: ignore[call-arg]  # the same
