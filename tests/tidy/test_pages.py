"""Does everything that a page points to exist: pages, headings, files, targets of make, options?"""

import re
from collections.abc import Iterator

import click
import pytest

from emu.cli.main import cli
from tests.tidy.tracked import ROOT, text_of, tracked_files

PAGES = [name for name in tracked_files() if name.endswith(".md")]
OF_OTHERS = {
    *("docker", "git", "kubectl", "pip", "promtool", "prometheus", "ray"),
    *("RAY_AUTH_MODE=token ray", "RAY_worker_niceness=0 ray", "emu-env/bin/pip", "python3"),
}
"""How command lines begin whose options are not ours."""
RECIPES = "emu/doors/foreign/training_recipe.py"
"""Reads the options of Megatron, torchrun and Slurm, and so names those that pages may name."""
FILES = ("docs/", "deploy/", "emu/", "actors/", "scenarios/", "tests/")


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """What a link may name within a page: its headings, as a viewer of Markdown names them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def options(command: click.Command = cli) -> Iterator[str]:
    """Every option of `emu` and its commands."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from options(found)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    there = {*tracked_files(), *(name.rpartition("/")[0] for name in tracked_files())}
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        target = str(((ROOT / page).parent / path).resolve().relative_to(ROOT)) if path else page
        if target not in there or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_is_there(page: str) -> None:
    named = {name for name in re.findall(r"`([\w./-]+)`", text_of(page)) if name.startswith(FILES)}
    there = {*tracked_files(), *(f"{name.rpartition('/')[0]}/" for name in tracked_files())}
    assert sorted(name for name in named if name not in there and f"{name}/" not in there) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_target_of_make_exists(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z]+)", text_of(page), re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES)
def test_every_option_that_is_named_is_one_of_emu(page: str) -> None:
    ours = {*options(), "--help", "--version", "--bucket-mb"}  # the last of the script of `emu new torch`
    ours |= {f"--{name}" for name in re.findall(r"[a-z]+(?:-[a-z]+)*", text_of(RECIPES))}
    lines = [
        line for line in text_of(page).splitlines() if not any(f"{other} " in line for other in OF_OTHERS)
    ]
    named = {name for line in lines for name in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line)}
    assert sorted(named - ours) == []
