"""`emu replay`: repeat a run with every live change, and check that its digest is the same."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from emu.api import as_loaded, prepare, run_prepared
from emu.engine.outcome import RunOptions
from emu.run_directory.run_directory import RunDirectory
from emu.stored_run import stored_run
from emu.terminal.run_options import placed, result_of
from emu.terminal.scenario_options import forcing
from emu.terminal.terminal import Terminal

PARTED_STATUS = 1


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@placed
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results [runs/NAME-N].")
@forcing
@click.option("--quiet", is_flag=True, help="Print nothing but errors and the verdict.")
def command(run: Path, where: RunOptions, out: Path | None, force: bool, quiet: bool) -> int:
    """Repeat the run in directory RUN: its scenario, and every fault that was injected, at its time.

    With any number of workers the digest is the same. Exit status 0 if it is, 1 if it is not, else as of
    `emu run`.
    """
    before = stored_run(run)
    options = where._replace(end_ps=before.end_ps)
    prepared = prepare(as_loaded(before.scenario))
    changes = "1 change" if len(before.changes) == 1 else f"{len(before.changes)} changes"
    with RunDirectory.create(prepared.scenario.name, out, force=force) as directory:
        terminal = Terminal(prepared.jobs, quiet=quiet)
        terminal.begin(f"{prepared.scenario.name}: {run} again, with {changes} that it was given")
        try:
            result = result_of(partial(run_prepared, prepared, options, terminal, directory))
            terminal.finish(
                result.summary, result.outcome.operations, str(directory.path), f"emu replay {run}"
            )
        finally:
            terminal.close()
    if not result.outcome.digest or result.interrupted:
        terminal.failed(result.outcome.message or result.verdict)
        return result.exit_status
    if not before.digest:
        click.echo(f"{run} did not come to its end: there is no digest to compare with")
        return result.exit_status
    if result.outcome.digest != before.digest:
        terminal.failed(f"the digests differ: emu compare {run} {directory.path} says where")
        return PARTED_STATUS
    click.echo(f"the same, bit for bit: digest {before.digest}")
    return 0
