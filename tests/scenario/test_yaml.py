"""Is a file read as YAML 1.2, within bounds, with the line of everything in it?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.base.errors import ScenarioError
from emu.base.spelling import shown_location
from emu.scenario.yaml.document import (
    MAX_FILE_BYTES,
    decode,
    from_plain,
    read_document,
    resolved,
)


def plain(text: str) -> object:
    root, problems = read_document(text, "file")
    assert problems == []
    return root.plain()


def refusals(text: str) -> list[str]:
    """The problems of a text, whether or not it has a tree."""
    try:
        _, problems = read_document(text, "file")
    except ScenarioError as error:
        return [str(problem) for problem in error.problems]
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E+2", -150.0),
        ("10:30", "10:30"),
        ("10:30:01.5", "10:30:01.5"),
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("0777", 777),
        ("0o17", 15),
        ("0xff", 255),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("+12", 12),
        ("~", None),
        ("null", None),
        ("2001-01-01", "2001-01-01"),
        ("=", "="),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("!!int 12", 12),
        ("!!float 12", 12.0),
    ],
)
def test_scalars_are_read_by_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert plain(f"a: {text}") == {"a": value}
    assert type(value) is type(plain(f"[{text}]")[0])  # type: ignore[index]


@pytest.mark.parametrize("text", [".inf", "-.INF", "+.Inf"])
def test_infinities_are_floats(text: str) -> None:
    assert abs(float(str(resolved(text)))) == float("inf")


def test_not_a_number_is_a_float() -> None:
    value = resolved(".nan")
    assert isinstance(value, float)
    assert value != value  # noqa: PLR0124 - what "not a number" means


@given(st.text(st.characters(codec="ascii"), max_size=50))
def test_any_plain_text_is_read_without_an_exception(text: str) -> None:
    resolved(text)


def test_nested_values_keep_their_places() -> None:
    root, _ = read_document("a:\n  - b: 1\n    c: 2\n  - 3\nd: {e: 4}\n", "file")
    places = {
        (): 1,
        ("a",): 1,
        ("a", 0): 2,
        ("a", 0, "b"): 2,
        ("a", 0, "c"): 3,
        ("a", 1): 4,
        ("a", -1): 4,
        ("d", "e"): 5,
        ("d", "missing"): 5,
        ("a", 7, "b"): 1,
    }
    assert {location: root.find(location).line for location in places} == places


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "file: the file is empty; accepted: a mapping, see `emu schema`"),
        ("# nothing\n", "file: the file is empty; accepted: a mapping, see `emu schema`"),
        ("---\n", "file: the file is empty; accepted: a mapping, see `emu schema`"),
        ("a: 1\nb: 2\na: 3\n", "file:3: a: given twice, first in line 1; accepted: one of the two"),
        ("a:\n  b: 1\n  'b': 2\n", "file:3: a.b: given twice, first in line 2; accepted: one of the two"),
        ("- {a: 1, a: 2}\n", "file:1: [0].a: given twice, first in line 1; accepted: one of the two"),
        ("a: &x 1\nb: {<<: *x}\n", "file:2: b.<<: YAML 1.2 has no merge keys"),
        ("a: 1\n---\nb: 2\n", "file:2: a second document begins here; accepted: one scenario per file"),
        ("a: *nobody\n", "file:1: a: *nobody stands for nothing yet"),
        ("a: &x [*x]\n", "file:1: a[0]: *x stands for nothing yet"),
        ("a: !!python/object:os.system 1\n", "file:1: a: the tag 'tag:yaml.org,2002:python/object:os.syste"),
        ("a: !mine [1]\n", "file:1: a: the tag '!mine' is unknown; accepted: no tag"),
        ("a: !!int x\n", "file:1: a: 'x' is not a int"),
        ("? [a]\n: 1\n", "file:1: a key is not a text; accepted: a key like `name`"),
    ],
)
def test_what_yaml_leaves_open_is_refused_with_its_line(text: str, said: str) -> None:
    found = refusals(text)
    assert len(found) == 1
    assert found[0].startswith(said)


@pytest.mark.parametrize(
    "text", ["a: [1, 2\nb: 3\n", "a: 'open\n", "a:\n\t- b\n", "a: b: c\n", "%FOO\n", "a: \0"]
)
def test_what_is_not_yaml_is_one_line(text: str) -> None:
    (said,) = refusals(text)
    assert "not YAML: " in said
    assert "\n" not in said


def test_an_alias_is_a_copy_of_its_own() -> None:
    root, _ = read_document("a: &x {b: 1}\nc: *x\n", "file")
    assert root.plain() == {"a": {"b": 1}, "c": {"b": 1}}
    first, second = root.child("a"), root.child("c")
    assert first is not None
    assert first is not second


def test_aliases_that_expand_without_bound_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (said,) = refusals("\n".join(lines))
    assert said == "file:6: more than 500000 values, with aliases expanded; accepted: less"


def test_nesting_is_bounded_with_and_without_aliases() -> None:
    assert refusals("[" * 33 + "]" * 33) == ["file:1: nested more than 32 deep; accepted: less"]
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 40))]
    assert refusals("\n".join(lines)) == [
        "file:31: nested more than 32 deep, with aliases expanded; accepted: less"
    ]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"name: a\nb: \xff\n", "file:2: byte 0xff is not UTF-8; accepted: text in UTF-8"),
        (b"\xff\xfea\0", "file:1: byte 0xff is not UTF-8; accepted: text in UTF-8"),
        (b" " * (MAX_FILE_BYTES + 1), "file: the file is too large; accepted: at most 16777216 bytes"),
    ],
)
def test_bytes_that_are_not_a_text_are_refused(raw: bytes, said: str) -> None:
    with pytest.raises(ScenarioError) as error:
        decode(raw, "file")
    assert str(error.value) == said


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert decode(b"\xef\xbb\xbfname: a", "file") == "name: a"


def test_a_mapping_from_python_becomes_the_same_tree() -> None:
    root = from_plain({"a": [1, (2.5, None)], "b": {"c": True}}, read_document("x: 1", "m")[0].place)
    assert root.plain() == {"a": (1, (2.5, None)), "b": {"c": True}}
    with pytest.raises(TypeError, match="not set"):
        from_plain({"a": {1}}, root.place)


def test_locations_are_shown_as_a_user_writes_them() -> None:
    assert shown_location(("jobs", 0, "workload", "sizes", 2)) == "jobs[0].workload.sizes[2]"
    assert shown_location(()) == ""
