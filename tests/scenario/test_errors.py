"""Do errors say what, where and what to do, and carry their exit status across processes?"""

import pickle

import pytest

from emu import preparing
from emu.base import errors
from emu.base.errors import EmuError, Problem, QuantityError, ScenarioError
from emu.scenario.load import load_mapping


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"storage": {"servers": 4}}, r"storage: unknown key; there is frontend\.storage"),
        ({"metadata": {}}, r"metadata: unknown key; there is frontend\.metadata"),
        ({"faults": [{"kind": "server_down", "target": "host-0", "at": 0}]}, "did you mean 'host_lost'"),
        ({"faults": [{"kind": "node_lost", "target": "host-0", "at": 0}]}, "did you mean 'host_lost'"),
        ({"faults": [{"kind": "accelerator_slow", "target": "host-0", "at": 0}]}, "did you mean 'gpu_slow'"),
        ({"faults": [{"kind": "link_dwn", "target": "host-0", "at": 0}]}, "did you mean 'link_down'"),
    ],
)
def test_words_of_elsewhere_lead_to_ours(changes: dict[str, object], said: str) -> None:
    given = {"name": "wrong", "topology": {"kind": "star", "hosts": 2}, "jobs": []} | changes
    with pytest.raises(ScenarioError, match=said):
        load_mapping(given)


def test_what_devices_cannot_be_is_refused_before_the_plan_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of many clients takes most of the time of `emu validate`."""
    monkeypatch.setattr(preparing, "blueprint_of", lambda *_: pytest.fail("the plan was made"))
    given = {
        "name": "small",
        "topology": {"kind": "llama3", "pods": 1, "racks_per_pod": 2, "hosts_per_rack": 2},
        "switch": {"buffer": {"pool": "1MB"}},
        "jobs": [{"name": "one", "workload": {"kind": "permutation", "size": "4KiB"}}],
    }
    with pytest.raises(ScenarioError, match="leave no shared pool"):
        preparing.prepare(load_mapping(given))
