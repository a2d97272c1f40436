"""`emu export`: a finished run in the format of another tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from emu.errors import UsageError
from emu.measure.prometheus.exposition import START_S, STRETCH, openmetrics
from emu.measure.run_directory.samples import SampleReader, read_digests

EXAMPLE: Final = """\b
Example:
  emu export openmetrics runs/quickstart-1 --out run.om
  promtool tsdb create-blocks-from openmetrics run.om data/
  prometheus --storage.tsdb.path=data/ --storage.tsdb.retention.time=100y
"""


@click.command(epilog=EXAMPLE)
@click.argument("form", metavar="openmetrics", type=click.Choice(["openmetrics"]))
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write to this file, not to standard output.")
@click.option(
    "--start",
    type=click.IntRange(0),
    default=START_S,
    show_default="2000-01-01T00:00:00Z",
    help="Unix time of the run's beginning.",
)
@click.option(
    "--stretch",
    type=click.IntRange(1),
    default=STRETCH,
    show_default=True,
    help="Seconds of the timeline for one second of virtual time.",
)
def command(form: str, run: Path, out: Path | None, start: int, stretch: int) -> int:
    """Write the samples of the run in directory RUN with virtual timestamps, for Prometheus.

    At the default stretch 1 us of the run is 1 s in Prometheus, and the run begins on 1 January 2000.
    """
    del form
    samples_file, digests_file = run / "samples.jsonl", run / "digests.jsonl"
    for file in (samples_file, digests_file):
        if not file.is_file():
            raise UsageError(f"{file}: not found; accepted: the directory of a run that `emu run` wrote")
    names = dict(read_digests(digests_file).devices)
    reader = SampleReader(samples_file)
    lines = openmetrics(names, reader.series, reader, start_s=start, stretch=stretch)
    if out is None:
        sys.stdout.writelines(lines)
        return 0
    try:
        with out.open("w", encoding="ascii") as target:
            target.writelines(lines)
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror}") from error
    return 0
