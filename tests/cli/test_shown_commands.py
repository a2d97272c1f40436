"""Is every command that a page shows one that `emu` takes, on a scenario and with keys that exist?

Nothing is run: a command line is read as `emu` reads it, and where it names a scenario and sets keys, that
scenario is loaded with them.
"""

import re
import shlex
from pathlib import Path

import click
import pytest

from emu.base.shipped import CAMPAIGNS, JOB_MIXES, scenario_named
from emu.cli.commands.sweep import _paths
from emu.cli.main import cli
from emu.doors.weeks.campaign_reading import read_campaign, read_mix
from emu.scenario.load import load
from emu.scenario.set_options import combinations, overrides_of, parse_axis
from emu.sweeps.subjects import kind_of
from emu.terminal.scenario_options import file_named, load_scenario
from tests.tutorials.pages import PAGES as EXECUTED

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.stem not in EXECUTED),
    *sorted((ROOT / "deploy").rglob("*.*")),
]
SHOWN = re.compile(
    r"^(?:#? {4,}|\$ |)(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?emu (.+)$"
    r"|(?:-- |entrypoint: )emu ([^`\n]+)"
    r"|`(?:[A-Z_]+=\S+ )*emu ([a-z]+ [^`]+)`",
    re.MULTILINE,
)
OF_A_RUN = ("run", "up", "topo", "validate", "slowdown")
PLACEHOLDERS = {"FILE", "NAME", "RUN", "DIR", "S", "N", "SCENARIO"}


def shown(in_prose: bool = False) -> list[tuple[str, str]]:
    """(page, command line without `emu`) of every line that is a command, or of those within a sentence."""
    found = []
    for page in PAGES:
        if page.suffix in (".md", ".yaml", ".yml"):
            text = page.read_text("utf-8").replace("\\\n", " ")
            for own, other, said in SHOWN.findall(text):
                line = said.replace("\n", " ") if in_prose else own or other
                found += [(page.name, line)] if line else []
    return found


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory in which what the pages name is found: the scenarios, and a wheel."""
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "roce_emu-1-py3-none-any.whl").touch()
    (tmp_path / "gke.set").write_text("# of a fit\nncclx.launch=8us\n")
    monkeypatch.chdir(tmp_path)


def read(line: str) -> click.Context:
    """The command line as `emu` reads it. Raises click.ClickException, or EmuError."""
    words = []
    for word in shlex.split(line, comments=True):
        matched = [str(path) for path in Path().glob(word)] if "*" in word and "/" in word else []
        words += matched or [word]
    context = click.Context(cli)
    command: click.Command = cli
    while isinstance(command, click.Group) and not words[0].startswith("--"):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"there is no command {name}"
        command = found
        context = click.Context(command, info_name=name)
    assert command.name is not None
    return command.make_context(str(context.info_name), words)


def test_there_are_commands_to_read() -> None:
    commands = {line.split()[0] for _, line in shown()}
    assert commands >= {"run", "up", "fork", "fault", "replay", "perf", "sweep", "export", "slowdown"}


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(("page", "line"), shown(), ids=lambda value: value[:60])
def test_a_command_that_is_shown_is_one_that_is_taken(page: str, line: str) -> None:
    check(read(line))


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(("page", "line"), shown(in_prose=True), ids=lambda value: value[:60])
def test_a_command_within_a_sentence_is_one_that_is_taken(page: str, line: str) -> None:
    try:
        check(read(line))
    except click.exceptions.Exit:
        assert "--help" in line
    except click.MissingParameter:
        """A sentence may name a command and its options, and not what they are for."""


def check(given: click.Context) -> None:
    """The scenario that a command names is there, and has the keys that are set."""
    scenario = given.params.get("scenario")
    assignments = given.params.get("assignments", ())
    if scenario is None or scenario in PLACEHOLDERS:
        return
    if "/" not in scenario and scenario.endswith(".yaml"):
        scenario = Path(scenario).stem  # shown for another working directory
    scenario = scenario.removeprefix("/home/ray/")
    if given.info_name in OF_A_RUN:
        load_scenario(scenario, assignments, given.params.get("seed"))
    elif given.info_name == "sweep" and (kind := kind_of(scenario)):
        axes = [parse_axis(text) for text in assignments]
        folder, read = (CAMPAIGNS, read_campaign) if kind == "campaign" else (JOB_MIXES, read_mix)
        for values in combinations(axes):
            read(file_named(scenario, folder, kind), overrides_of(axes, values))
    elif given.info_name == "sweep":
        axes = [parse_axis(text) for text in assignments]
        _paths(given.params["shows"])
        for values in combinations(axes):
            path, variant = scenario_named(scenario)
            load(path, overrides_of(axes, values), variant)
