"""`emu reproduce`: published figures beside ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from emu.base.errors import UsageError
from emu.base.spelling import did_you_mean
from emu.doors.reproduce.published import ROWS
from emu.doors.reproduce.reproduced import closing, draw, plain, reproduce, table
from emu.many_runs import Machines
from emu.terminal.columns import say
from emu.terminal.run_options import side_by_side
from emu.terminal.terminal import Paced

EXAMPLES: Final = """\b
Examples:
  emu reproduce --quick
  emu reproduce P1 P5 --pictures figures
"""


@click.command(epilog=EXAMPLES)
@click.argument("names", nargs=-1, metavar="[P1 ...]")
@click.option("--quick", is_flag=True, help="Leave out rows that take minutes.")
@side_by_side
@click.option(
    "--pictures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Draw each curve, with its data as CSV (needs matplotlib).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
@click.option("--quiet", is_flag=True, help="Print only failures on standard error.")
def command(
    names: tuple[str, ...], quick: bool, machines: Machines, pictures: Path | None, as_json: bool, quiet: bool
) -> int:
    """Run the cases of published figures, and print ours beside them, with verdict and reason.

    Figures that are fitted, or come out by construction, are named under their row and counted apart.

    Without names, all rows. Exit status: 1 if a figure is outside its band, else 0.
    """
    known = [row.name for row in ROWS]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; accepted: {', '.join(known)}"
            raise UsageError(f"there is no row {name!r}{hint}")
    wanted = [row for row in ROWS if not names or row.name in names]
    done = reproduce(
        [row for row in wanted if not (quick and row.long)],
        machines,
        Paced(quiet),
    )
    if as_json:
        click.echo(json.dumps(plain(done), indent=2))
    else:
        say("\n".join([*table(done), "", *closing(done)]))
    for path in draw(done, pictures) if pictures is not None else ():
        click.echo(f"drew {path}", err=True)
    return int(any(one.verdict == "outside" for row in done for one in row.figures))
