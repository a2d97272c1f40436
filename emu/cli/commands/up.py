"""`emu up`: run the jobs of a scenario again and again, to be watched and broken."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from emu.api import JOB_FAILED_STATUS, prepare, run_prepared
from emu.cli.live_terminal import LiveTerminal, parse_pace
from emu.cli.recovery_options import recovering
from emu.cli.scenario_options import forcing, load_scenario, overriding
from emu.cli.where_options import placed
from emu.measure.run_directory.junit import junit_text
from emu.measure.run_directory.run_directory import RunDirectory, write_whole
from emu.runtime.live.control_socket import ControlSocket
from emu.runtime.live.stepping import check_unattended
from emu.runtime.outcome import Ending, RunOptions
from emu.runtime.steering import Steering
from emu.scenario.faults.draws import accelerations
from emu.units import format_time


@click.command()
@click.argument("scenario")
@overriding
@click.option(
    "--pace",
    default="1ms/s",
    show_default=True,
    metavar="TIME/s",
    help="Virtual time a second, or max for as fast as it goes.",
)
@click.option("--for", "for_", metavar="TIME", help="End after so much virtual time [run.max_time].")
@placed
@recovering
@click.option(
    "--discovery-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where Prometheus finds the workers: http://127.0.0.1:PORT/sd [any free port].",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results [runs/NAME-N].")
@forcing
@click.option(
    "--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit XML, for build servers."
)
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    scenario: str,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    pace: str,
    for_: str | None,
    where: RunOptions,
    recovery: Mapping[str, Any],
    discovery_port: int,
    out: Path | None,
    force: bool,
    junit: Path | None,
    quiet: bool,
) -> int:
    """Run the jobs of SCENARIO continuously: each begins again when it is done.

    Break it with `emu fault inject`, watch it in Prometheus, end it with Ctrl-C: results are written then,
    and expectations judged. `emu replay` does the same again, bit for bit. Pace never changes an answer. Exit
    status as of `emu run`, but Ctrl-C is an ordinary end, and so is a job that was not done once.
    """
    pace_ps = parse_pace(pace)
    ends = ("run.repeat=true",) if for_ is None else ("run.repeat=true", f"run.max_time={for_}")
    prepared = prepare(load_scenario(scenario, (*assignments, *ends), seed, variant))
    check_unattended(prepared.scenario)
    steering = Steering(prepared.scenario, prepared.topology)
    # In this process nothing is gone back to: a live run is repeated by `emu replay`.
    kept: dict[str, Any] = {"snapshot_every_s": 0.0} if where.local else {}
    options = replace(
        where, pace_ps=pace_ps, steering=steering, discovery_port=discovery_port, **{**recovery, **kept}
    )
    with RunDirectory.create(prepared.scenario.name, out, force=force) as directory:
        socket = ControlSocket(directory.path, steering)
        terminal = LiveTerminal(prepared.jobs, steering, quiet=quiet)
        shown = shlex.quote(str(directory.path))
        speed = f"{format_time(pace_ps)} of virtual time a second" if pace_ps else "as fast as it goes"
        terminal.begin_live(
            prepared.scenario.name,
            (
                f"{len(prepared.topology.gpus)} GPUs, {len(prepared.topology.switches)} switches; {speed}",
                *accelerations(prepared.scenario.faults),
                f"break it: emu fault inject {shown} KIND TARGET (`emu fault kinds`); end it: Ctrl-C",
            ),
        )
        try:
            result = run_prepared(prepared, options, terminal, directory)
            terminal.finish(result.summary, (), str(directory.path), f"emu replay {shown}")
        finally:
            socket.close()
            terminal.close()
    if result.outcome.ending is not Ending.FINISHED:
        terminal.failed(result.outcome.message)
    broken = [one for one in result.lost_jobs() if result.summary.jobs[one].status != "unfinished"]
    early = result.exit_status == JOB_FAILED_STATUS and result.outcome.ending is Ending.FINISHED
    status = 0 if early and not broken else result.exit_status
    if junit is not None:
        write_whole(junit, junit_text(result.summary, status))
    return status
