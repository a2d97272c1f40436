"""`emu compare`: whether two runs give the same answer, and where they part."""

from __future__ import annotations

import json
from pathlib import Path

import click

from emu.base.units import aligned
from emu.run_directory.comparison import (
    load_run,
    main_numbers,
    parting,
    parting_lines,
)
from emu.terminal.columns import say

PARTED_STATUS = 1


@click.command()
@click.argument("one", metavar="A", type=click.Path(path_type=Path))
@click.argument("other", metavar="B", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(one: Path, other: Path, as_json: bool) -> int:
    """Compare the runs in directories A and B (or their summary.json files).

    Exit status 0 if both have the same digest, 1 if they part, 2 if one cannot be read.
    """
    first, second = load_run(one), load_run(other)
    found = parting(first, second)
    numbers = main_numbers(first.summary, second.summary)
    if as_json:
        reported = {
            "same": found is None,
            "digests": [first.summary.digest, second.summary.digest],
            "parting": None if found is None else found._asdict(),
            "numbers": {row.name: [row.one, row.other] for row in numbers},
        }
        click.echo(json.dumps(reported, indent=2))
    else:
        for line in parting_lines(first, second):
            say(line)
        rows = [("", "A", "B", "B/A")]
        for row in numbers:
            shown = ["" if value is None else row.show(value) for value in (row.one, row.other)]
            ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
            rows.append((row.name, shown[0], shown[1], ratio))
        click.echo()
        for line in aligned(rows, indent=""):
            say(line)
    return 0 if found is None else PARTED_STATUS
