"""Does every kind that a scenario can name have a scenario that shows it?"""

from collections.abc import Callable, Iterator

import pytest

from emu.base.shipped import scenarios_in
from emu.scenario.faults.kinds import FAULTS
from emu.scenario.load import load
from emu.scenario.schema import Scenario
from emu.scenario.section import OneOf
from emu.scenario.sections.routing import POLICIES
from emu.scenario.sections.topology import TOPOLOGIES
from emu.scenario.workloads.jobs import WORKLOADS
from tests.tidy.tracked import ROOT

SCENARIOS = [load(path).scenario for path in scenarios_in(ROOT / "scenarios")]
SOURCES = "".join(path.read_text(encoding="utf-8") for path in scenarios_in(ROOT / "scenarios"))

KINDS: dict[str, tuple[OneOf, Callable[[Scenario], Iterator[object]]]] = {
    "topology": (TOPOLOGIES, lambda one: iter([one.topology])),
    "routing": (POLICIES, lambda one: iter([one.routing])),
    "workload": (WORKLOADS, lambda one: (job.workload for job in one.jobs)),
    "fault": (FAULTS, lambda one: iter(one.faults)),
}


@pytest.mark.parametrize("what", KINDS)
def test_every_kind_has_a_scenario(what: str) -> None:
    table, sections = KINDS[what]
    shown = {table.chosen(section) for one in SCENARIOS for section in sections(one)}
    # A file's fabric and a table of flows are put in place as the scenario is read.
    lacking = [kind for kind in table.table if kind not in shown and f"kind: {kind}" not in SOURCES]
    assert lacking == []
