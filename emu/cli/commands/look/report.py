"""`emu report`: a run, two runs or a sweep as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from emu import api
from emu.terminal.scenario_options import reading
from emu.terminal.terminal import SoFar


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
    with SoFar("reading samples"):
        file = api.report(*runs, out=out)
    click.echo(f"wrote {file}")
    return 0
