"""Are the examples of the pages on the collective library and on servers scenarios?"""

import re

import pytest

from emu.scenario.load import load_text
from tests.tidy.tracked import text_of


@pytest.mark.parametrize(
    ("page", "name"), [("ncclx", "library"), ("servers", "servers"), ("collectives", "exchange")]
)
def test_the_example_is_a_scenario(page: str, name: str) -> None:
    found = re.search(r"^```yaml\n(.*?)^```$", text_of(f"docs/{page}.md"), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert load_text(found[1], page).scenario.name == name
