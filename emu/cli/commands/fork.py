"""`emu fork`: go on from a moment of a run under another condition."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from emu.engine.outcome import RunOptions
from emu.resume import fork
from emu.scenario.set_options import parse_override
from emu.terminal.run_options import placed
from emu.terminal.scenario_options import forcing, positive_time_ps
from emu.terminal.shown_run import show_run

REPEAT: Final = "emu fork"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--at", "at", required=True, metavar="TIME", help="The virtual time of the change.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="What is different from then on, like switch.ecn.kmax=400KiB. Can be repeated.",
)
@placed
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results [runs/NAME-N].")
@forcing
@click.option("--json", "as_json", is_flag=True, help="Print summary.json, and nothing else.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    directory: Path,
    at: str,
    assignments: tuple[str, ...],
    where: RunOptions,
    out: Path | None,
    force: bool,
    **shown: Any,
) -> int:
    """Continue the run in DIRECTORY from a virtual time on, with some values changed, in a new directory.

    It begins at the run's last snapshot before that time (`emu run --snapshot-at TIME` keeps one there), so
    what came before is paid for once. What may change is what a device reads from its configuration: the
    command names the keys when it refuses one.
    """
    at_ps = positive_time_ps("--at", at)
    changes = [parse_override(text) for text in assignments]
    options = where._replace(metrics=False)
    with fork(directory, at_ps, changes, out, options, force=force) as again:
        words = [REPEAT, str(directory), "--at", at, *(f"--set {one}" for one in assignments)]
        return show_run(again.prepared, again.directory, where._replace(resume_ps=at_ps), words, **shown)
