"""Are the JSON Schema and the page in docs/ true of what is accepted?"""

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from emu.base.shipped import CAMPAIGNS, JOB_MIXES, files_of
from emu.scenario.dump import to_mapping
from emu.scenario.faults.kinds import FAULTS
from emu.scenario.load import load_text
from emu.scenario.reference import EXPLAINED, json_schema, markdown_pages, markdown_tables
from emu.scenario.schema import Scenario
from emu.scenario.section import Section
from emu.scenario.yaml.document import read_document
from tests.scenario.scenarios import (
    FILES,
    PAGES_OF_KEYS,
    ROOT,
    SMALL,
    before_tables,
    from_file,
    mark_of,
    refusals,
)

jsonschema: Any = import_module("jsonschema")
"""Comes with Ray; has no types of its own."""
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def wrong(value: object) -> list[str]:
    """What the JSON Schema holds against a value, by path."""
    return [error.json_path for error in VALIDATOR.iter_errors(value)]


def listed(value: object) -> object:
    """With lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: listed(item) for key, item in value.items()}
    return [listed(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("page", PAGES_OF_KEYS)
def test_the_schema_is_a_schema_and_accepts_the_files_that_come_with_emu(page: str) -> None:
    schema = json_schema(PAGES_OF_KEYS[page][1])
    jsonschema.Draft202012Validator.check_schema(schema)
    folder = {"docs/campaign.md": CAMPAIGNS, "docs/schedule.md": JOB_MIXES}.get(page)
    for path in files_of(folder).values() if folder else ():
        tree, _ = read_document(path.read_text("utf-8"), str(path))
        jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(tree.plain())))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_accepts_every_scenario_as_written_and_as_dumped(path: Path) -> None:
    tree, _ = read_document(path.read_text(encoding="utf-8"), path.name)
    assert wrong(listed(tree.plain())) == []
    assert wrong(to_mapping(from_file(path))) == []


@pytest.mark.parametrize(
    ("assignment", "path"),
    [
        (("topology", "racks", "2"), "$.topology"),
        (("topology", "link", "400"), "$.topology"),
        (("transport", "mtu", 1500), "$.transport.mtu"),
        (("transport", "timout", 8), "$.transport"),
        (("switch", "latency", "5"), "$.switch.latency"),
        (("routing", "kind", "sprayed"), "$.routing"),
        (("run", "max_time", 0), "$.run.max_time"),
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(assignment: tuple[str, str, object], path: str) -> None:
    section, key, value = assignment
    tree, _ = read_document(SMALL, "small")
    plain = listed(tree.plain())
    assert isinstance(plain, dict)
    plain.setdefault(section, {})[key] = value
    assert wrong(plain) == [path]
    shown = f"'{value}'" if isinstance(value, str) else value
    assert len(refusals(SMALL, f"{section}.{key}={shown}")) == 1


def test_a_section_without_its_kind_is_read_as_the_default_kind() -> None:
    tree, _ = read_document(SMALL + "routing: {seed: equal}\n", "small")
    assert wrong(listed(tree.plain())) == []
    assert load_text(SMALL + "routing: {seed: equal}\n").scenario.routing.kind == "e_ecmp"


@pytest.mark.parametrize("model", [Scenario, *(model for _, model in PAGES_OF_KEYS.values())])
def test_every_property_of_the_schema_is_described_on_one_line(model: type[Section]) -> None:
    schema = json_schema(model)
    for definition in (schema, *schema["$defs"].values()):
        assert definition["description"]
        for name, described in definition["properties"].items():
            assert described["description"], name
            assert "\n" not in described["description"]
            assert described.get("default", "auto") is not None, name


@pytest.mark.parametrize("page", PAGES_OF_KEYS)
def test_the_tables_of_the_page_are_those_of_the_models(page: str) -> None:
    subject, model = PAGES_OF_KEYS[page]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.partition(mark_of(subject))[2] == "\n" + markdown_tables(model)


def test_each_section_of_a_scenario_has_a_page_and_they_hold_all_tables_between_them() -> None:
    pages = markdown_pages()
    written = {path.stem for path in (ROOT / "docs").glob("keys_*.md")}
    assert written == {f"keys_{name}" for name in EXPLAINED} == set(pages) - {"scenario"}
    for name, text in pages.items():
        page = ROOT / f"docs/{name}.md"
        assert page.read_text(encoding="utf-8") == before_tables(page) + text
    every = {line for line in markdown_tables().splitlines() if line.startswith("| `")}
    kept = re.sub(r"\[(`\w+`)\]\(keys_\w+\.md\)", r"\1", "\n".join(pages.values())).splitlines()
    assert len(every) > 500
    assert every <= set(kept)


def test_the_page_prints_a_key_that_kinds_share_once_and_names_every_key_of_every_kind() -> None:
    sections = [block for block in markdown_tables().split("### ") if block.startswith("`faults[]`")]
    lines = sections[0].splitlines()
    assert sum(line.startswith("| others | `every` |") for line in lines) == 1
    assert (
        len({line for line in lines if line.startswith("|")}) == sum(line[:2] == "| " for line in lines) + 2
    )
    for kind, model in FAULTS.table.items():
        assert isinstance(model, type)
        (row,) = (line for line in lines if line.startswith(f"| `kind: {kind}` |"))
        named = re.findall(r"`(\w+)`", row.rpartition(" | ")[2])
        keys = [field.alias or name for name, field in model.model_fields.items()]
        assert named == [key for key in keys if key != "kind"]


def test_the_scenarios_on_the_pages_are_valid() -> None:
    pages = [ROOT / f"docs/{page}.md" for page in ("scenario", "expectations")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        text = block if block.startswith("name:") else SMALL + block
        assert refusals(text) == [], block


def test_the_errors_on_the_page_are_the_errors_reported() -> None:
    text = (ROOT / "docs/scenario.md").read_text(encoding="utf-8")
    (wrong_one,) = re.findall(r"```yaml-wrong\n(.*?)```", text, re.DOTALL)
    (reported,) = re.findall(r"```text-errors\n(.*?)```", text, re.DOTALL)
    assert refusals(wrong_one) == reported.replace("small.yaml:", "file:").splitlines()
