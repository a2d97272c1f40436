"""Are the names on the boxes, on the page of the switch, those of keys, and what it writes a scenario?"""

from __future__ import annotations

import re

import pytest

from emu.scenario.load import load_text
from emu.scenario.reference import parts
from emu.scenario.yaml.problems import fields
from tests.tidy.tracked import ROOT

PAGE = (ROOT / "docs/switch.md").read_text(encoding="utf-8")
KNOWN = {
    f"{part.heading.partition(' (')[0].replace('[]', '')}.{key}"
    for part in parts()
    for key in fields(part.model)
}


def named_keys() -> list[str]:
    """The keys of the table of names on the boxes, in full."""
    table = PAGE.partition("## Names on the boxes")[2].partition("##")[0]
    found = []
    for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE):
        first, *more = re.findall(r"`([a-z_.]+)`", row)
        section = first.rpartition(".")[0]
        keys = [first, *(f"{section}.{name}" for name in more)]
        found += [key if key.startswith("routing.") else f"switch.{key}" for key in keys]
    return found


@pytest.mark.parametrize("key", named_keys())
def test_a_key_that_has_a_name_on_the_boxes_is_one(key: str) -> None:
    assert key in KNOWN


BASE = """
name: page
topology: {kind: ai_zone, racks: 3, hosts_per_rack: 2, gpus_per_host: 1, spines: 2}
jobs: [{name: a, workload: {kind: permutation, size: 1KiB}}]
"""


@pytest.mark.parametrize("block", re.findall(r"```yaml(?:-file)?\n(.*?)```", PAGE, re.DOTALL))
def test_what_the_page_writes_is_a_scenario(block: str) -> None:
    loaded = load_text(BASE + block, directory=ROOT / "scenarios/switch")
    assert loaded.scenario.name == "page"
