"""Is the example of docs/ncclx.md a scenario, and are the knobs it names those of the schema?"""

import re
from pathlib import Path

from actors.ncclx.collectives import ALGORITHMS, OPERATIONS
from emu.scenario.load import load_text
from emu.scenario.sections.host import NvlinkSection, PcieSection
from emu.scenario.sections.ncclx import NcclxSection
from emu.scenario.sections.section import yaml_name

PAGE = Path(__file__).parents[2] / "docs" / "ncclx.md"
COLLECTIVES = Path(__file__).parents[2] / "docs" / "collectives.md"
SERVERS = Path(__file__).parents[2] / "docs" / "servers.md"
DATA_PATH = Path(__file__).parents[2] / "docs" / "data_path.md"


def test_the_example_is_a_scenario() -> None:
    found = re.search(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert load_text(found[1], "ncclx.md").scenario.name == "library"


def test_the_page_of_servers_has_a_scenario_and_every_knob() -> None:
    text = SERVERS.read_text()
    found = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert load_text(found[1], "servers.md").scenario.name == "servers"
    sections = (NvlinkSection, PcieSection)
    knobs = [yaml_name(attribute) for section in sections for attribute in section.model_fields]
    assert [knob for knob in knobs if f"| `{knob}` |" not in text] == []


def test_the_page_of_collectives_has_a_scenario_every_collective_and_every_algorithm() -> None:
    text = COLLECTIVES.read_text()
    found = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert load_text(found[1], "collectives.md").scenario.name == "exchange"
    assert [name for name in (*OPERATIONS, *ALGORITHMS) if f"| `{name}` |" not in text] == []


def test_the_pages_name_every_knob_of_the_section() -> None:
    text = PAGE.read_text() + DATA_PATH.read_text() + COLLECTIVES.read_text()
    knobs = [yaml_name(attribute) for attribute in NcclxSection.model_fields]
    assert [knob for knob in knobs if not re.search(rf"`{knob}\b", text)] == []
