"""`emu report`: a run, two runs or a sweep as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from emu.base.errors import UsageError
from emu.cli.scenario_options import reading
from emu.measure.run_directory.run_directory import write_whole
from emu.report.compared import compared_page
from emu.report.page import page
from emu.report.recording import read_recording
from emu.report.sweep_page import is_sweep, sweep_page


@click.command()
@click.argument("runs", metavar="RUN [RUN]", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="The file  [RUN/report.html].")
@reading
def command(runs: tuple[Path, ...], out: Path | None) -> int:
    """Write a run as one HTML file that needs nothing else; or two, compared; or --out of `emu sweep`.

    A heat map of the fabric with a time slider, jobs, faults and findings on one time axis, series of each
    port, steps by rank. How often `run.sample_every` samples decides how fine it is. Of two runs: where they
    part, both side by side, and the second less the first. Of a sweep: its curves, with every seed.
    """
    if len(runs) > 2:
        raise UsageError(f"{len(runs)} runs; accepted: one run, two runs to compare, or one sweep")
    file = out or runs[-1] / "report.html"
    if len(runs) == 2:
        text = compared_page(*runs)
        file = out or runs[1] / f"report_against_{runs[0].name}.html"
    else:
        text = sweep_page(runs[0]) if is_sweep(runs[0]) else page(read_recording(runs[0]))
    write_whole(file, text)
    click.echo(f"wrote {file}")
    return 0
