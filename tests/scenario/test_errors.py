"""Do errors say what, where and what to do, and carry their exit status across processes?"""

import pickle

import pytest

from emu.base import errors
from emu.base.errors import EmuError, Problem, QuantityError, ScenarioError


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (Problem("a.yaml", 3, "seed", "is wrong", "7"), "a.yaml:3: seed: is wrong; accepted: 7"),
        (Problem("a.yaml", 0, "seed", "is wrong"), "a.yaml: seed: is wrong"),
        (Problem("a.yaml", 1, "a\nb", "is \x1b[31m"), "a.yaml:1: a\\nb: is \\x1b[31m"),
        (Problem("a.yaml", 3, "", "is empty", "a mapping"), "a.yaml:3: is empty; accepted: a mapping"),
    ],
)
def test_a_problem_is_one_line(problem: Problem, line: str) -> None:
    assert str(problem) == line


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("UsageError", 2),
        ("ScenarioError", 2),
        ("StallError", 3),
        ("RuntimeFailure", 4),
        ("ProtocolError", 4),
    ],
)
def test_every_kind_of_error_has_its_exit_status(name: str, status: int) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, EmuError)
    assert kind.exit_status == status


@pytest.mark.parametrize(
    "error", [ScenarioError([Problem("a", 1, "b", "c", "d")]), QuantityError("reason", "accepted")]
)
def test_errors_survive_the_way_between_processes(error: EmuError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.exit_status) == (type(error), str(error), error.exit_status)


def test_a_scenario_error_has_one_line_for_each_problem() -> None:
    problems = (Problem("a", 1, "b", "c"), Problem("a", 2, "d", "e"))
    error = ScenarioError(problems)
    assert error.problems == problems
    assert str(error) == "a:1: b: c\na:2: d: e"
