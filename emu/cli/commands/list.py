"""`emu list`: the scenarios there are."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Final

import click

from emu.errors import ScenarioError, UsageError
from emu.scenario.load import load
from emu.shipped import SCENARIO_DIRECTORY, SCENARIO_SUFFIX, scenario_files

NARROWEST: Final = 40
"""Columns that a description has at least, however narrow the terminal."""


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(directory: Path | None, as_json: bool) -> None:
    """List the scenarios of DIRECTORY with the question each answers.

    Without DIRECTORY: those that `emu run NAME` knows, which are those in ./scenarios and those that come
    with emu.
    """
    if directory is None:
        files = list(scenario_files().values())
    elif directory.is_dir():
        files = sorted(directory.glob(f"*{SCENARIO_SUFFIX}"))
    else:
        raise UsageError(f"{directory}: is not a directory; accepted: a directory of scenarios")
    rows = [_row(path) for path in files]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    named = directory is None or directory == SCENARIO_DIRECTORY
    names = [Path(row["file"]).stem if named else row["file"] for row in rows]
    width = max((len(name) for name in names), default=0)
    columns = max(shutil.get_terminal_size().columns, width + NARROWEST)
    for name, row in zip(names, rows, strict=True):
        first = f"{name:<{width}}  "
        rest = " " * len(first)
        told = row["description"] or "-"
        click.echo(
            textwrap.fill(
                told,
                columns,
                initial_indent=first,
                subsequent_indent=rest,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    if not rows:
        click.echo(f"no scenarios (*{SCENARIO_SUFFIX}) in {directory or SCENARIO_DIRECTORY}")


def _row(path: Path) -> dict[str, str]:
    try:
        scenario = load(path).scenario
    except ScenarioError as error:
        return {"file": str(path), "name": "", "description": f"not valid: {error.problems[0]}"}
    return {"file": str(path), "name": scenario.name, "description": " ".join(scenario.description.split())}
