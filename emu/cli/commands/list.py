"""`emu list`: the scenarios there are."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import click

from emu.base.errors import ScenarioError, UsageError
from emu.base.shipped import SCENARIO_SUFFIX, scenario_groups, scenario_names, scenarios_in, variant_names
from emu.base.spelling import did_you_mean
from emu.base.units import counted
from emu.scenario.load import load
from emu.terminal.scenario_options import reading

FIRST_SENTENCE: Final = re.compile(r"(?<=[.?]) ")
NARROWEST: Final = 40
"""Columns that a question has at least, however narrow the terminal."""


@click.command()
@click.argument("which", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reading
def command(which: str | None, as_json: bool) -> None:
    """List the groups of scenarios; or those of WHICH, with the question each answers.

    WHICH is a group, a directory, or a part or pattern of names: routing, ./mine, tuner, "story_*". The
    scenarios that `emu run NAME` knows are those in ./scenarios and those that come with emu.
    """
    if which is None and not as_json:
        groups = scenario_groups()
        _print_table((f"{group} ({len(files)})", ", ".join(files)) for group, files in groups.items())
        total = sum(map(len, groups.values()))
        click.echo(f"\n{counted(total, 'scenario')}; `emu list GROUP` tells which question each answers")
        return
    rows = [_row(*found) for found in (scenario_names().items() if which is None else _chosen(which))]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _print_table((row["run"], row["question"] or "-") for row in rows)
    else:
        click.echo(f"no scenarios (*{SCENARIO_SUFFIX}) in {which}")


def _chosen(which: str) -> Iterable[tuple[str, tuple[Path, str]]]:
    """Those of a group, of a directory, or whose names fit. Raises UsageError if there is nothing."""
    groups = scenario_groups()
    if which in groups:
        return groups[which].items()
    if Path(which).is_dir():
        return [
            (shown, (path, variant))
            for path in scenarios_in(Path(which))
            for shown, variant in _of_file(path)
        ]
    names = scenario_names()
    fitting = [(name, found) for name, found in names.items() if which in name or fnmatchcase(name, which)]
    if not fitting:
        hint = did_you_mean(which, [*groups, *names])
        reason = f"is no group, no directory and no part of a scenario's name{hint}"
        raise UsageError(f"{which}: {reason}; accepted: {', '.join(groups)}, a directory, or a part of names")
    return fitting


def _of_file(path: Path) -> list[tuple[str, str]]:
    """What to run of a file: itself, and its variants."""
    variants = variant_names(path).values()
    return [(str(path), ""), *((f"{path} --variant {variant}", variant) for variant in variants)]


def _print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Two columns, the second wrapped to fit the terminal."""
    table = list(rows)
    width = max((len(name) for name, _ in table), default=0)
    columns = max(shutil.get_terminal_size().columns, width + NARROWEST)
    for name, reported in table:
        first = f"{name:<{width}}  "
        click.echo(
            textwrap.fill(
                reported,
                columns,
                initial_indent=first,
                subsequent_indent=" " * len(first),
                break_long_words=False,
                break_on_hyphens=False,
            )
        )


def _row(run: str, found: tuple[Path, str]) -> dict[str, str]:
    """The line that describes a scenario: its first comment, or of a variant how its description begins."""
    path, variant = found
    row = {"run": run, "file": str(path), "variant": variant}
    try:
        scenario = load(path, variant=variant).scenario
    except ScenarioError as error:
        reported = f"not valid: {error.problems[0]}"
        return {**row, "name": "", "question": reported, "description": reported}
    description = " ".join(scenario.description.split())
    first = path.read_text("utf-8").partition("\n")[0]
    commented = first.startswith("# ") and not variant
    question = first.removeprefix("# ") if commented else FIRST_SENTENCE.split(description)[0]
    return {**row, "name": scenario.name, "question": question, "description": description}
