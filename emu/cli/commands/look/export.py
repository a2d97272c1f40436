"""`emu export`: a finished run in the format of another tool."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TextIO

import click

from actors.fabric.model import FABRIC
from actors.kernel.counters import Metric, Unit
from actors.kernel.units import PS_PER_S
from emu.base.errors import UsageError
from emu.counts.exposition import LOOK_BACK_S, START_S, STRETCH, openmetrics
from emu.preparing import prepare
from emu.results.metrics import METRIC_OF
from emu.run_directory.comparison import load_summary
from emu.run_directory.run_directory import operations_of, write_pieces
from emu.run_directory.sample_rows import COLUMNS, recorded, tidy_rows, write_parquet
from emu.scenario.resolve import build_topology, resolve
from emu.scenario.spans import plane_names, port_labels
from emu.stored_run import stored_run
from emu.summary.series import Came, State, Turn, came, turns
from emu.terminal.scenario_options import positive_time_ps, reading
from emu.views.perfetto.perfetto_tracks import Parts, timeline

Command = Callable[..., Any]


@click.group(name="export")
def command() -> None:
    """Write the run in a directory for another tool."""


def _exporting(function: Command) -> Command:
    """Add the argument RUN and the option `--out`."""
    function = click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write to this file, not to standard output.",
    )(function)
    return click.argument("run", metavar="RUN", type=click.Path(path_type=Path))(function)


def _choosing(function: Command) -> Command:
    """Add the options that choose samples."""
    for option in (
        click.option("--every", metavar="TIME", help="The first sample in each so long  [all]."),
        click.option(
            "--device", "devices", multiple=True, metavar="PATTERN", help="Devices  [all]. Can be repeated."
        ),
        click.option(
            "--series",
            multiple=True,
            metavar="PATTERN",
            help="Counters, as in ports.csv  [all that were kept]. Can be repeated.",
        ),
    ):
        function = option(function)
    return function


OPENMETRICS: Final = """\b
Example:
  emu export openmetrics runs/quickstart-1 --out run.om
  promtool tsdb create-blocks-from openmetrics run.om data/
  prometheus --storage.tsdb.path=data/ --storage.tsdb.retention.time=100y
"""


@command.command("openmetrics", epilog=OPENMETRICS)
@_exporting
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
def to_openmetrics(run: Path, out: Path | None, start: int, stretch: int) -> int:
    """Write the samples of RUN for Prometheus.

    They have virtual timestamps.
    At the default stretch 1 us of the run is 1 s in Prometheus, and the run begins on 1 January 2000.
    """
    names, reader = recorded(run)
    state = _state(run, stretch)
    with _target(out) as target:
        lines = openmetrics(names, reader.series, reader, start_s=start, stretch=stretch, state=state)
        target.writelines(lines)
    return 0


Curves = dict[str, list[tuple[tuple[str, ...], list[tuple[int, int]] | None]]]


TURNS: Final = ("job_operations", "job_running", "job_failed", "collectives", "faults", "faults_active")
"""Series that hold a value until they take another."""
CAME: Final = (
    "job_step_time_ps",
    "job_mfu_ppm",
    "collective_exec_time_ps",
    "collective_algorithm_bandwidth_bytes_per_second",
    "collective_bus_bandwidth_bytes_per_second",
)
"""Series of what the last operation came to."""


def _state(run: Path, stretch: int) -> Curves:
    """Whom the ports of switches and NICs are connected to, and how jobs, collectives and faults stood: as
    the metrics page had it, and by the functions that judge expectations."""
    stored = stored_run(run)
    prepared = prepare(stored.loaded())
    topology = prepared.topology
    ports: list[tuple[tuple[str, ...], list[tuple[int, int]] | None]] = []
    of_switch = plane_names(topology)
    for number in (*topology.switches, *topology.nics):
        for at, port in enumerate(topology.ports(number)):
            if port.kind == FABRIC:
                ports.append((port_labels(topology, number, at, of_switch), None))
    found: Curves = {"port_info": ports}
    operations = operations_of(run)
    if not (run / "summary.json").exists() or operations is None:
        return found
    summary = load_summary(run)
    hosts = {job.name: len(set(map(topology.host_of, job.gpus))) for job in prepared.resolved.jobs}
    jobs = {name: job for name, job in summary.jobs.items() if name in hosts}
    plans = [plan for plan in prepared.jobs if plan.name in jobs]
    faults = stored.faults(topology)
    state = State(jobs, plans, operations, faults, stored.scenario.run.repeat)
    step_ps = PS_PER_S // (1000 * stretch) + 1  # at least a millisecond of the timeline
    for key in TURNS:
        found[key] = _curves(key, turns(key, state), hosts, step_ps, summary.virtual_ps)
    for key in CAME:
        found[key] = _curves(key, came(key, state), hosts, step_ps, summary.virtual_ps)
    return found


def _curves(
    key: str, rows: Sequence[Turn | Came], hosts: Mapping[str, int], step_ps: int, end_ps: int
) -> list[tuple[tuple[str, ...], list[tuple[int, int]] | None]]:
    """A curve for each line: its value where it changes, just before that, and often enough between."""
    metric = METRIC_OF[key]
    curves: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for time_ps, given, value in rows:
        labels = dict(given)
        if "n_nodes" in metric.labels:
            labels["n_nodes"] = str(hosts.get(labels["comm_name"], 0))
        curve = curves.setdefault(tuple(labels[name] for name in metric.labels), [])
        if curve and curve[-1][0] < time_ps - step_ps:
            curve.append((time_ps - step_ps, curve[-1][1]))
        if curve and curve[-1][0] >= time_ps:
            curve.pop()
        curve.append((time_ps, _as_on_the_page(metric, value)))
    often_ps = LOOK_BACK_S * 1000 * step_ps
    return [(labels, list(_held(curve, often_ps, end_ps))) for labels, curve in curves.items()]


def _held(curve: Sequence[tuple[int, int]], often_ps: int, end_ps: int) -> Iterator[tuple[int, int]]:
    """A curve up to the end of the run, with no gap so long that Prometheus would forget the value."""
    for (time_ps, value), (next_ps, _) in pairwise([*curve, (end_ps, 0)]):
        yield from ((at_ps, value) for at_ps in range(time_ps, next_ps, often_ps))
        if time_ps >= next_ps:
            yield time_ps, value


def _as_on_the_page(metric: Metric, value: int | Fraction) -> int:
    """A value in the unit that the metrics page counts in."""
    if metric.unit is Unit.BYTES_PER_SECOND:
        return int(value) // 8
    return round(value * 10**6) if metric.unit is Unit.PPM else int(value)


CSV: Final = """\b
Examples:
  emu export csv runs/quickstart-1 --series queue_bytes --device 'rtsw-*' --out queues.csv
  emu export csv runs/quickstart-1 --series 'port_transmit_*' --every 100us
"""


@command.command("csv", epilog=CSV)
@_exporting
@_choosing
def to_csv(
    run: Path, out: Path | None, series: tuple[str, ...], devices: tuple[str, ...], every: str | None
) -> int:
    """Write the samples of RUN as CSV.

    A row for each time and counter, of the run in directory RUN.
    Columns: virtual_ps, device, port, priority, reason, series, value. A counter that stayed 0 is left out.
    """
    names, reader = recorded(run)
    every_ps = positive_time_ps("--every", every) if every is not None else 0
    rows = tidy_rows(reader, names, series, devices, every_ps)
    with _target(out) as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return 0


PARQUET: Final = """\b
Example:
  emu export parquet runs/quickstart-1 --series queue_bytes --out queues.parquet
"""


@command.command("parquet", epilog=PARQUET)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file.")
@_choosing
def to_parquet(
    run: Path, out: Path, series: tuple[str, ...], devices: tuple[str, ...], every: str | None
) -> int:
    """Write the samples of RUN as parquet.

    Rows and columns are those of `emu export csv`, with nulls for what does not apply. Needs pyarrow.
    """
    names, reader = recorded(run)
    every_ps = positive_time_ps("--every", every) if every is not None else 0
    write_parquet(out, tidy_rows(reader, names, series, devices, every_ps))
    click.echo(f"wrote {out}")
    return 0


PERFETTO: Final = """\b
Examples:
  emu export perfetto runs/quickstart-1 --out run.perfetto
  emu export perfetto runs/quickstart-1 --device 'rtsw-*' --stretch 1000 --out run.perfetto
"""


@command.command("perfetto", epilog=PERFETTO)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The trace.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="PATTERN",
    help="Switches and NICs to show  [all]. Can be repeated.",
)
@click.option(
    "--stretch",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Time of the timeline for a time of the run; with 1000 its nanoseconds are picoseconds.",
)
@reading
def to_perfetto(run: Path, out: Path, devices: tuple[str, ...], stretch: int) -> int:
    """Write RUN as a timeline that ui.perfetto.dev opens.

    Jobs, faults, ranks, NICs and ports each have a track. Slices of channels, waits, packets sent again and
    pauses are there if the scenario has `run.event_log`.
    """
    stored = stored_run(run)
    topology = build_topology(stored.scenario)
    jobs = resolve(stored.scenario, topology).jobs
    names = [job.name for job in jobs]

    def parts(job: int, rank: int) -> Parts:
        script = jobs[job].script
        return {} if script is None or script.memberships else script.parts_of(rank)

    write_pieces(out, timeline(run, topology, stored.breaking(topology), names, devices, stretch, parts))
    click.echo(f"wrote {out}")
    return 0


@contextmanager
def _target(out: Path | None) -> Iterator[TextIO]:
    if out is None:
        yield sys.stdout
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as target:
            yield target
    except OSError as error:
        raise UsageError(f"{out}: cannot be written: {error.strerror}") from error
