"""`emu plot`: figures of runs and sweeps as SVG, PNG or PDF."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from emu.views.reports import plot
from emu.views.reports.plot import Figure

Command = Callable[..., Any]

EXAMPLES: Final = """\b
Examples:
  emu plot busbw runs/quickstart-1 --out busbw.svg
  emu plot time runs/incast-1 --series queue_bytes --device 'rtsw-*' \\
      --out queue.png
  emu plot sweep sweeps/alpha --x switch.buffer.alpha \\
      --y fabric.pfc_paused_ps --out alpha.pdf
"""


@click.group(name="plot", epilog=EXAMPLES)
def command() -> None:
    """Draw a figure of runs or of a sweep, with its data beside it as CSV (needs matplotlib)."""


def _drawing(function: Command) -> Command:
    return click.option(
        "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="x.svg, x.png or x.pdf."
    )(function)


def _of_runs(function: Command) -> Command:
    runs = click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
    return runs(_drawing(function))


def _draw(figure: Figure, out: Path) -> int:
    data = plot.draw(figure, out)
    click.echo(f"wrote {out} and {data}")
    return 0


@command.command("busbw")
@_of_runs
def busbw(runs: tuple[Path, ...], out: Path) -> int:
    """Bus bandwidth by size of the collectives of runs."""
    return _draw(plot.busbw(runs), out)


@command.command("flows")
@_of_runs
def flows(runs: tuple[Path, ...], out: Path) -> int:
    """Distribution of the completion times of flows."""
    return _draw(plot.completion(runs), out)


@command.command("slowdown")
@_of_runs
def slowdown(runs: tuple[Path, ...], out: Path) -> int:
    """Slowdown of flows by size: median and 99th percentile."""
    return _draw(plot.slowdown(runs), out)


@command.command("uplinks")
@_of_runs
def uplinks(runs: tuple[Path, ...], out: Path) -> int:
    """Loads of uplinks over the mean of their switch, fullest first."""
    return _draw(plot.uplinks(runs), out)


@command.command("time")
@_of_runs
@click.option("--series", required=True, metavar="NAME", help="A counter, as in ports.csv.")
@click.option("--device", "devices", multiple=True, metavar="PATTERN", help="Devices  [all that counted].")
def time(runs: tuple[Path, ...], out: Path, series: str, devices: tuple[str, ...]) -> int:
    """A counter's rate, or a gauge's value, over time."""
    return _draw(plot.over_time(runs, series, devices), out)


@command.command("sweep")
@click.argument("table", metavar="DIR", type=click.Path(path_type=Path))
@_drawing
@click.option("--x", required=True, metavar="KEY", help="An axis of the sweep.")
@click.option("--y", required=True, metavar="PATH", help="A column that --show named.")
@click.option("--by", metavar="KEY", help="The axis that names lines first.")
def of_sweep(table: Path, out: Path, x: str, y: str, by: str | None) -> int:
    """One column of a sweep against another: medians over seeds, and a band around them.

    Each combination of the other axes is a line.
    """
    return _draw(plot.sweep(table, x, y, by), out)
