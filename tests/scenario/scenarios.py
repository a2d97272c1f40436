"""Small scenarios that tests begin from, and what went wrong with them, as a user reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emu.base.errors import ScenarioError
from emu.base.shipped import scenarios_in
from emu.doors.weeks.job_mix import JobMix
from emu.doors.weeks.sections import Campaign
from emu.scenario.load import Loaded, load, load_mapping, load_text
from emu.scenario.resolve import Resolved, build_topology, resolve
from emu.scenario.schema import Scenario
from emu.scenario.section import Section
from emu.scenario.set_options import parse_override

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
EVERYTHING_WRONG = ("jobs[9].ranks=3", "ncclx.chanels=3", "switch.latency=abc")
PAGES_OF_KEYS: dict[str, tuple[str, type[Section]]] = {
    "docs/campaign.md": ("campaign ", Campaign),
    "docs/schedule.md": ("schedule ", JobMix),
}
"""Pages that end with the tables of a file's keys."""
SCENARIO_MARK = "<!-- The rest is written by `make golden`. -->\n\n"
"""In the page of scenarios; pages of single sections are written whole."""


def mark_of(subject: str) -> str:
    """The line after which a page is written by a command."""
    return f"<!-- The rest is written by `emu schema {subject}--markdown`. -->\n"


def before_tables(page: Path) -> str:
    """What people write of a page with keys of a scenario."""
    if page.stem != "scenario":
        return ""
    before, mark, _ = page.read_text(encoding="utf-8").partition(SCENARIO_MARK)
    assert mark, page
    return before + mark


FILES = scenarios_in(ROOT / "scenarios")

SMALL = """\
name: small
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 2, gpus_per_host: 2, spines: 2}
jobs:
  - name: bench
    workload: {kind: collective, op: all_reduce, sizes: [1MiB]}
"""


def scenario(text: str = SMALL, *assignments: str) -> Scenario:
    """The scenario in a text, with `--set` assignments."""
    return loaded(text, *assignments).scenario


def loaded(text: str = SMALL, *assignments: str, directory: Path | None = None) -> Loaded:
    """The same with its source; errors call the text `file`."""
    return load_text(text, "file", directory, [parse_override(one) for one in assignments])


def refusals(text: str = SMALL, *assignments: str, directory: Path | None = None) -> list[str]:
    """What a text is refused for, one line each; nothing if it is not."""
    try:
        loaded(text, *assignments, directory=directory)
    except ScenarioError as error:
        return str(error).splitlines()
    return []


def resolved(text: str = SMALL, *assignments: str) -> Resolved:
    """What a scenario means on its fabric."""
    found = scenario(text, *assignments)
    return resolve(found, build_topology(found))


def unresolvable(text: str = SMALL, *assignments: str) -> list[str]:
    """Why a scenario does not fit its fabric, one line each."""
    found = loaded(text, *assignments)
    try:
        resolve(found.scenario, build_topology(found.scenario))
    except ScenarioError as error:
        return str(found.source.located(error)).splitlines()
    return []


def with_workload(**workload: Any) -> Scenario:
    """The small scenario with another workload."""
    return with_sections(jobs=[{"name": "bench", "workload": workload}])


def with_sections(**sections: Any) -> Scenario:
    """The small scenario with other sections."""
    base = {
        "name": "small",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 2},
        "jobs": [
            {"name": "bench", "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"]}}
        ],
    }
    return load_mapping(base | sections).scenario


def from_file(path: Path) -> Scenario:
    """The scenario in a file."""
    return load(path).scenario
