"""Does every scenario in scenarios/ say which question it answers, fit its fabric and expect something?"""

from pathlib import Path

import pytest

from emu.scenario.load import load
from emu.scenario.resolve import build_topology, resolve
from emu.shipped import scenario_names
from tests.scenario.scenarios import FILES, from_file


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_answers_a_question(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?")
    assert from_file(path).name == path.stem


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_and_variant_is_described_fits_its_fabric_and_expects_something(name: str) -> None:
    path, variant = scenario_names()[name]
    scenario = load(path, variant=variant).scenario
    assert "? " in f"{scenario.description} " or not variant
    assert scenario.description
    assert scenario.expect
    resolve(scenario, build_topology(scenario))


def test_tiny_scenarios_fit_an_actor_for_each_device() -> None:
    tiny = [path for path in FILES if path.stem.startswith("tiny_")]
    assert len(tiny) >= 2
    for path in tiny:
        topology = build_topology(from_file(path))
        assert len(topology.gpus) + len(topology.hosts) + len(topology.nics) + len(topology.switches) <= 16
