"""`emu report`: a finished run as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from emu.measure.run_directory.run_directory import write_whole
from emu.report.page import page
from emu.report.recording import read_recording


@click.command()
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="The file  [RUN/report.html].")
def command(run: Path, out: Path | None) -> int:
    """Write the run in directory RUN as one HTML file that needs nothing else.

    A heat map of the fabric with a time slider, jobs, faults and findings on one time axis, series of each
    port, steps by rank. How often `run.sample_every` samples decides how fine it is.
    """
    recording = read_recording(run)
    file = out or run / "report.html"
    write_whole(file, page(recording))
    click.echo(f"wrote {file}")
    return 0
