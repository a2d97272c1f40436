"""`emu diagnose`: what a run suffered from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from emu.base.errors import UsageError
from emu.summary.summary_report import change_lines, diagnosis_lines
from emu.terminal.columns import say
from emu.terminal.scenario_options import reading
from emu.terminal.terminal import SoFar
from emu.views.repairs.run_diagnosis import diagnose_directory

NOTHING_FOUND = (
    "no effect found: no job failed or became slower, and nothing was alarmed that a cause explains"
)


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--baseline",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="The directory of a run in which all was well: impact is measured against it.",
)
@click.option(
    "--emulate",
    is_flag=True,
    help="Emulate the intended fabric now, however long that takes, and measure the impact against it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@reading
def command(run: Path, baseline: Path | None, emulate: bool, as_json: bool) -> int:
    """Name the causes of a slow or failed run in directory RUN, the likeliest first, with evidence.

    It uses what an operator sees (series, logs and running configuration of
    devices, neighbours, times of jobs), not the faults of the scenario.
    """
    if emulate and baseline is not None:
        raise UsageError("--baseline and --emulate are measures of their own; give one")
    with SoFar(f"diagnosing {run}"):
        summary, found = diagnose_directory(run, baseline, emulate=emulate)
    if as_json:
        click.echo(json.dumps([one.model_dump(mode="json") for one in found], indent=2))
        return 0
    uncompared = summary.uncompared_events if baseline is None and not emulate else None
    lines = diagnosis_lines(found, uncompared, evidence=True)
    lines = lines if found else [NOTHING_FOUND, *lines]
    for line in [*lines, *change_lines(summary.changes)]:
        say(line)
    return 0
