"""Whatever stands in a file, is it a scenario or a ScenarioError, and never anything else?"""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from emu.base.errors import Problem, ScenarioError
from emu.scenario.dump import to_yaml
from emu.scenario.load import load_mapping, load_text
from emu.scenario.resolve import build_topology, resolve
from emu.scenario.set_options import parse_override
from emu.scenario.yaml.document import decode, read_document
from tests.scenario.scenarios import FILES, SMALL, loaded

SCENARIOS: list[Any] = [
    read_document(path.read_text(encoding="utf-8"), path.name)[0].plain()
    for path in FILES
    if path.stem != "flow_table"
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["", "auto", "all", "1e3", "0", "-1ns", "400G", "4KiB", "ai_zone", "flows", "<list>", "kind"]
    ),
)
JUNK = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)


def with_junk(data: st.DataObject, value: Any) -> Any:
    """`value` with something in it replaced, removed or added."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 5)):
        key = data.draw(st.sampled_from(sorted(value)))
        if not data.draw(st.integers(0, 5)):
            return {other: inner for other, inner in value.items() if other != key}
        return value | {key: with_junk(data, value[key])}
    if isinstance(value, tuple) and value and data.draw(st.integers(0, 5)):
        place = data.draw(st.integers(0, len(value) - 1))
        return (*value[:place], with_junk(data, value[place]), *value[place + 1 :])
    return data.draw(JUNK)


def problems_of(read: Callable[[], object]) -> list[Problem]:
    """What a scenario is refused for; nothing if it is read. Any other exception is a failure."""
    try:
        read()
    except ScenarioError as error:
        return list(error.problems)
    return []


@given(st.data())
def test_a_scenario_with_junk_in_it_is_read_or_refused_by_line(data: st.DataObject) -> None:
    mapping = with_junk(data, data.draw(st.sampled_from(SCENARIOS)))
    if not isinstance(mapping, dict):
        return
    problems = problems_of(lambda: load_mapping(mapping))
    assert all(problem.reason and len(str(problem).splitlines()) == 1 for problem in problems)
    if problems:
        return
    scenario = load_mapping(mapping).scenario
    assert load_text(to_yaml(scenario)).scenario == scenario
    unfit = problems_of(lambda: resolve(scenario, build_topology(scenario)))
    assert all(problem.key and len(str(problem).splitlines()) == 1 for problem in unfit)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert problems_of(lambda: load_text(text))


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    assert all(problem.reason for problem in problems_of(lambda: read_document(decode(raw, "file"), "file")))


@given(st.text(max_size=40))
def test_any_assignment_is_made_or_refused(text: str) -> None:
    if problems_of(lambda: parse_override(text)):
        return
    reported = problems_of(lambda: loaded(SMALL, text))
    assert all(problem.file in (f"--set {text}", "file") for problem in reported)
