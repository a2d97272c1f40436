"""Is every file in its room, and named for what it is?"""

import ast
import re
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.tidy import map_of_modules, sizes_of_wings
from tests.tidy.tracked import PACKAGES, python_files, text_of, tracked_files, tree_of

TOP_LEVEL = {
    *(".ci", ".git-blame-ignore-revs", ".gitignore", "actors", "deploy", "docs", "emu", "scenarios", "tests"),
    *(
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "MANIFEST.in",
        "README.md",
        "SECURITY.md",
        "constraints.txt",
        "constraints-docs.txt",
        "constraints-release.txt",
        "constraints-torch.txt",
        "mkdocs.yml",
        "pyproject.toml",
        "setup.py",
    ),
}
ROOMS = {
    "emu": {
        *(
            "accept",
            "base",
            "campaign",
            "cli",
            "cluster",
            "counts",
            "devices",
            "doors",
            "engine",
            "examples",
            "fit",
            "flow",
            "pytorch",
            "reproduce",
            "results",
            "run_directory",
            "scenario",
            "summary",
            "terminal",
            "sweeps",
            "topology",
            "views",
            "workload",
        ),
    },
    "actors": {
        *(
            "compiled",
            "control",
            "fabric",
            "flow",
            "gpu",
            "host",
            "kernel",
            "ncclx",
            "nic",
            "optional",
            "port",
            "switch",
            "wire",
        ),
    },
}
MOST_MODULES = 24
"""In one folder."""
OF_FEATURES = ("emu/scenario/sections", "emu/scenario/workloads", "emu/cli/commands")
"""Rooms whose modules are called as what they configure or show, which others are about."""
ONE_IDEA_ON_TWO_STOREYS = {"errors", "knobs", "units"}
"""Names of modules that `emu` and `actors` share: what the tool has of it, on top of what the world has."""
MAY_KNOW_THE_MACHINE = {
    *(
        "actors.compiled",
        "emu.api",
        "emu.base",
        "emu.doors.weeks",
        "emu.cli",
        "emu.flow",
        "emu.counts",
        "emu.run_directory",
        "emu.summary",
        "emu.terminal",
        "emu.views",
        "emu.doors.pytorch",
    ),
    *(
        "emu.doors.accept",
        "emu.cluster",
        "emu.doors",
        "emu.doors.fit",
        "emu.doors.reproduce",
        "emu.engine",
        "emu.sweeps",
    ),
}
"""Rooms that may import a clock, a socket or Ray; no other may."""
LOOSE_WORDS = {"manager", "handler", "helper", "helpers", "info", "util", "utils", "misc", "common"}
"""Words that say nothing about what a thing does, wherever they stand in a name."""
LOOSE_NAMES = {"data", "process", "stuff", "do_it"}
"""Names that say nothing when they stand alone."""


def words(name: str) -> list[str]:
    """The words of an identifier, lower case: `PauseFrame2` -> pause, frame2."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def test_top_level_holds_only_what_belongs_there() -> None:
    assert {name.split("/")[0] for name in tracked_files()} <= TOP_LEVEL


@pytest.mark.parametrize("package", PACKAGES)
def test_every_directory_of_a_package_is_a_room(package: str) -> None:
    rooms = {name.split("/")[1] for name in python_files(package) if name.count("/") > 1}
    assert rooms <= ROOMS[package]


def test_every_room_has_its_place_in_the_order_of_imports() -> None:
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layered = {name for line in contracts[0]["layers"] for name in re.findall(r"[a-z_.]+", line)}
    clockless = {name for contract in contracts for name in contract.get("source_modules", ())}
    rooms = {".".join(name.split("/")[:2]) for name in python_files(*PACKAGES) if name.count("/") > 1}
    assert rooms <= layered, "name the room in the layers of [tool.importlinter]"
    assert rooms - MAY_KNOW_THE_MACHINE <= clockless, "name the room in a 'forbidden' contract there too"


def imports() -> dict[str, set[str]]:
    """Module of the packages to the modules of theirs that it imports: anywhere, for types alone too."""
    names = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name
        for name in python_files(*PACKAGES)
    }
    found: dict[str, set[str]] = {module: set() for module in names}
    for module, name in names.items():
        for node in ast.walk(tree_of(name)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}:{node.lineno}: name the module in full"
                whole = [f"{node.module}.{one.name}" for one in node.names]
                found[module].update(one if one in names else str(node.module) for one in whole)
            elif isinstance(node, ast.Import):
                found[module].update(one.name for one in node.names)
    return {module: (found[module] & names.keys()) - {module} for module in names}


def test_no_modules_import_each_other_in_a_circle_not_even_for_types() -> None:
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as circle:
        pytest.fail("merge them, or give what they share a module below both: " + " -> ".join(circle.args[1]))


def test_the_emulated_world_imports_nothing_of_the_tool_not_even_for_types() -> None:
    found = {module: {one for one in used if one.startswith("emu")} for module, used in imports().items()}
    assert {module: used for module, used in found.items() if used and module.startswith("actors")} == {}


def test_every_room_is_a_package() -> None:
    directories = {name.rpartition("/")[0] for name in python_files(*PACKAGES)}
    assert [d for d in sorted(directories) if f"{d}/__init__.py" not in tracked_files()] == []


def test_no_folder_holds_more_than_a_reader_can_keep_in_mind() -> None:
    folders = Counter(name.rpartition("/")[0] for name in python_files(*PACKAGES))
    assert {folder: count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_no_name_of_a_module_stands_for_two_ideas() -> None:
    """A section of the scenario is called as what it configures, a command as what it shows or breaks, and
    the table of each door is its `door`."""
    named: dict[str, list[str]] = {}
    for name in python_files(*PACKAGES):
        room, _, stem = name.removesuffix(".py").rpartition("/")
        if (
            stem not in ("__init__", "door")
            and not room.startswith(OF_FEATURES)
            and not room.endswith("/commands")
        ):
            named.setdefault(stem, []).append(name)
    twice = {stem: names for stem, names in named.items() if len(names) > 1}
    assert {stem: names for stem, names in twice.items() if stem not in ONE_IDEA_ON_TWO_STOREYS} == {}
    assert twice.keys() == ONE_IDEA_ON_TWO_STOREYS, "name here what is still there twice, and no more"


def test_every_module_says_what_it_answers() -> None:
    assert [name for name in python_files() if not ast.get_docstring(tree_of(name))] == []


def test_the_map_of_the_modules_is_what_make_golden_writes() -> None:
    assert text_of(map_of_modules.PAGE) == map_of_modules.page(), "run `make golden`"


def test_the_sizes_of_the_wings_are_near_those_of_the_page() -> None:
    """Near: each commit changes them, and a table that says so to the line would be in every conflict."""
    _, _, rest = text_of(sizes_of_wings.PAGE).partition(sizes_of_wings.MARK)
    rows = re.findall(r"^\| (\S+) \| \d+ \| ([\d,]+) \| [\d,]+ \|$", rest, re.MULTILINE)
    said = {wing: int(statements.replace(",", "")) for wing, statements in rows}
    found = {wing: statements for wing, (_, statements, _) in sizes_of_wings.sizes().items()}
    assert said.keys() == found.keys() | {"all"}
    off = {wing: (said[wing], now) for wing, now in found.items() if abs(said[wing] - now) > 0.1 * now}
    assert off == {}, "run `make golden`"


def test_a_first_line_of_the_tool_is_a_statement_that_an_index_can_use() -> None:
    assert [name for name in python_files(*PACKAGES) if "?" in map_of_modules.first_paragraph(name)] == []


def test_names_say_what_a_thing_does() -> None:
    loose = []
    for name in python_files():
        stem = name.rpartition("/")[2].removesuffix(".py")
        defined = [
            node.name
            for node in ast.walk(tree_of(name))
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        loose += [
            f"{name}: {given}"
            for given in (stem, *defined)
            if given.lower() in LOOSE_NAMES or LOOSE_WORDS.intersection(words(given))
        ]
    assert loose == []


def test_tests_are_in_the_room_they_test() -> None:
    stray = [name for name in python_files("tests") if name.count("/") < 2]
    programs = [f"tests/{name}.py" for name in ("digests", "mutants", "near", "pictures", "regenerate")]
    assert stray == ["tests/conftest.py", *programs]
