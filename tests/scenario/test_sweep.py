"""Which runs does a sweep make, and what does it refuse?"""

import pytest

from emu.base.errors import ScenarioError, UsageError
from emu.scenario.set_options import Axis, check_axes, combinations, parse_axis, split_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("[1MiB,2MiB],[4MiB]", ["[1MiB,2MiB]", "[4MiB]"]),
        (
            "{kind: spray, order: random},{kind: ecmp}",
            ["{kind: spray, order: random}", "{kind: ecmp}"],
        ),
        ("[{a: [1,2]},3],4", ["[{a: [1,2]},3]", "4"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ("it's,so", ["it's", "so"]),
        ('["]",2],3', ['["]",2]', "3"]),
    ],
)
def test_commas_within_brackets_braces_and_quotes_part_nothing(text: str, values: list[str]) -> None:
    assert split_values(text) == values


def test_the_last_axis_turns_fastest() -> None:
    axes = [parse_axis("a=1,2"), parse_axis("b=x, y")]
    assert axes == [Axis("a", ("1", "2")), Axis("b", ("x", "y"))]
    assert list(combinations(axes)) == [("1", "x"), ("1", "y"), ("2", "x"), ("2", "y")]


def test_no_axis_is_one_run() -> None:
    assert list(combinations([])) == [()]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a", "sets nothing"),
        ("=1,2", "sets nothing"),
        ("a=1,,2", "an empty value between commas"),
        ("a=1,2,1", "a value is given twice"),
    ],
)
def test_what_is_no_axis_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_axis(text)


def test_a_key_that_is_no_path_is_refused_before_anything_runs() -> None:
    with pytest.raises(ScenarioError, match="is not a path"):
        parse_axis("a..b=1,2")


def test_axes_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(UsageError, match="a: is given twice"):
        check_axes([Axis("a", ("1",)), Axis("a", ("2",))], 1)
    with pytest.raises(UsageError, match="both choose seeds"):
        check_axes([Axis("seed", ("1", "2"))], 2)
    many = Axis("a", tuple(str(number) for number in range(101)))
    with pytest.raises(UsageError, match="10201 runs are too many"):
        check_axes([many, many._replace(key="b")], 1)
