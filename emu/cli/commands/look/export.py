"""`emu export`: a finished run in the format of another tool."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

import click

from actors.fabric.model import FABRIC
from actors.kernel.units import PS_PER_S
from emu.base.errors import UsageError
from emu.counts.exposition import START_S, STRETCH, openmetrics
from emu.results.metrics import algorithm_name, collective_name, size_range
from emu.run_directory.run_directory import write_pieces
from emu.run_directory.sample_rows import COLUMNS, recorded, tidy_rows, write_parquet
from emu.scenario.resolve import build_topology, resolve
from emu.scenario.spans import plane_names, port_labels
from emu.stored_run import stored_run
from emu.summary.jobs import SUCCESS
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


def _state(run: Path, stretch: int) -> Curves:
    """Whom the ports of switches and NICs are connected to, when jobs ran, and their collectives."""
    stored = stored_run(run)
    topology = build_topology(stored.scenario)
    ports: list[tuple[tuple[str, ...], list[tuple[int, int]] | None]] = []
    of_switch = plane_names(topology)
    for number in (*topology.switches, *topology.nics):
        for at, port in enumerate(topology.ports(number)):
            if port.kind == FABRIC:
                ports.append((port_labels(topology, number, at, of_switch), None))
    step_ps = PS_PER_S // (1000 * stretch) + 1  # at least a millisecond of the timeline
    jobs: list[tuple[tuple[str, ...], list[tuple[int, int]] | None]] = []
    summary = json.loads((run / "summary.json").read_text("utf-8")) if (run / "summary.json").exists() else {}
    results = summary.get("jobs", {})
    for name, job in results.items():
        begin_ps, end_ps = int(job.get("start_ps") or 0), job.get("end_ps")
        if end_ps is not None:
            points = {begin_ps: 1, max(int(end_ps) - step_ps, begin_ps): 1, int(end_ps): 0}
            jobs.append(((name,), sorted(points.items())))
    hosts = {
        job.name: len(set(map(topology.host_of, job.gpus))) for job in resolve(stored.scenario, topology).jobs
    }
    return {"port_info": ports, "job_running": jobs} | _collectives(results, hosts, step_ps)


def _collectives(jobs: Mapping[str, Mapping[str, Any]], hosts: Mapping[str, int], step_ps: int) -> Curves:
    """The series of collectives that ended well. `hosts` has how many servers a job is on."""
    keys = (
        "collectives",
        "collective_exec_time_ps",
        "collective_algorithm_bandwidth_bytes_per_second",
        "collective_bus_bandwidth_bytes_per_second",
    )
    found: dict[str, dict[tuple[str, ...], list[tuple[int, int]]]] = {key: {} for key in keys}
    for name, job in jobs.items():
        done = [one for one in job.get("collectives") or () if one["status"] == SUCCESS]
        for one in sorted(done, key=lambda row: int(row["end_ps"])):
            labels = (
                name,
                str(hosts.get(name, 0)),
                str(one["ranks"]),
                collective_name(one["op"]),
                size_range(one["bytes"]),
                algorithm_name(one["algorithm"]),
            )
            end_ps = int(one["end_ps"])
            count = found["collectives"].setdefault(labels, [(0, 0)])[-1][1] + 1
            rates = ((one[rate] or 0) // 8 for rate in ("algbw", "busbw"))
            for key, value in zip(keys, (count, end_ps - one["start_ps"], *rates), strict=True):
                curve = found[key].setdefault(labels, [])
                if curve and curve[-1][0] < end_ps - step_ps:
                    curve.append((end_ps - step_ps, curve[-1][1]))
                if curve and curve[-1][0] == end_ps:
                    curve.pop()
                curve.append((end_ps, value))
    return {key: list(rows.items()) for key, rows in found.items()}


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
