"""Does every scenario in scenarios/ say which question it answers, fit its fabric and expect something?"""

from pathlib import Path

import pytest

from emu.scenario.resolve import build_topology, resolve
from tests.scenario.scenarios import FILES, from_file


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_answers_a_question(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?")
    scenario = from_file(path)
    assert scenario.name == path.stem
    assert scenario.description
    assert scenario.expect
    resolve(scenario, build_topology(scenario))


def test_tiny_scenarios_fit_an_actor_for_each_device() -> None:
    tiny = [path for path in FILES if path.stem.startswith("tiny_")]
    assert len(tiny) >= 2
    for path in tiny:
        topology = build_topology(from_file(path))
        assert len(topology.gpus) + len(topology.hosts) + len(topology.nics) + len(topology.switches) <= 16
