"""Does every scenario in scenarios/ say which question it answers, fit its fabric and expect something?"""

from pathlib import Path

import pytest

from emu.base.shipped import scenario_names
from emu.scenario.load import load, load_mapping, load_text
from emu.scenario.resolve import build_topology, resolve
from emu.scenario.set_options import Override
from emu.scenario.traffic_classes import class_warnings
from emu.scenario.yaml.document import read_document
from tests.scenario.scenarios import FILES, from_file

WRONG_CLASSES = ("dscp_map_wrong",)
"""What these scenarios show: RoCE data in a lossy class. No other one warns of it."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_answers_a_question(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?")
    assert from_file(path).name == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sections_given_as_overrides_read_the_same_each_time(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree, _ = read_document(text, path.name)
    assert isinstance(tree.value, dict)
    sections = [Override((key,), node, key) for key, node in tree.value.items() if key != "variants"]
    before = [one.value.plain() for one in sections]
    twice = [load_mapping({}, path.parent, sections).scenario for _ in range(2)]
    assert twice[0] == twice[1] == load_text(text, path.name, path.parent).scenario
    assert [one.value.plain() for one in sections] == before


@pytest.mark.parametrize("name", scenario_names())
def test_every_scenario_and_variant_is_described_fits_its_fabric_and_expects_something(name: str) -> None:
    path, variant = scenario_names()[name]
    scenario = load(path, variant=variant).scenario
    assert "? " in f"{scenario.description} " or not variant
    assert scenario.description
    assert scenario.expect
    topology = build_topology(scenario)
    resolve(scenario, topology)
    assert bool(class_warnings(scenario, topology)) == (name in WRONG_CLASSES)


def test_tiny_scenarios_fit_an_actor_for_each_device() -> None:
    tiny = [path for path in FILES if path.stem.startswith("tiny_")]
    assert len(tiny) >= 2
    for path in tiny:
        topology = build_topology(from_file(path))
        assert len(topology.gpus) + len(topology.hosts) + len(topology.nics) + len(topology.switches) <= 16
