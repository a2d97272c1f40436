"""`emu fit`: knobs of a scenario fitted to measurements of a real cluster."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Final, Literal

import click

from emu.base.errors import UsageError
from emu.base.units import parse_size
from emu.doors.fit.fit_report import overlay, plain, report
from emu.doors.fit.fitting import fit
from emu.doors.fit.log_runs import Model
from emu.doors.fit.read_counters import read_counters
from emu.doors.fit.read_logs import check_alike, of_size, read_log
from emu.many_runs import Machines
from emu.scenario.set_options import parse_override
from emu.terminal.columns import say
from emu.terminal.run_options import side_by_side
from emu.terminal.scenario_options import load_scenario, overriding
from emu.workload.perf_scan import parse_size as size_of_scan

EXAMPLES: Final = """\b
Examples:
  emu fit scenarios/fit/gke_b200.log fit_gke_b200 -o gke.set
  emu run my_scenario.yaml --set @gke.set
  emu fit all_reduce.log ib_write_lat.log cluster.yaml --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("files", nargs=-1, required=True, metavar="LOG... FILE")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the fitted knobs there, for --set @."
)
@click.option(
    "--op", "operation", default="", metavar="NAME", help="The collective of a log that does not say."
)
@click.option(
    "--column",
    type=click.Choice(["in-place", "out-of-place"]),
    default="in-place",
    help="Which times of nccl-tests  [in-place].",
)
@click.option(
    "--counters",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Counters of the NICs; twice: before and after.",
)
@click.option(
    "--largest", default="1GiB", metavar="SIZE", help="Leave out sizes above it, as 64M or 64MiB  [1GiB]."
)
@side_by_side
@overriding
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
@click.option("--quiet", is_flag=True, help="Print no progress on standard error.")
def command(
    files: tuple[str, ...],
    output: Path | None,
    operation: str,
    column: Literal["in-place", "out-of-place"],
    counters: tuple[Path, ...],
    largest: str,
    machines: Machines,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit knobs of a scenario to logs of nccl-tests and perftest, and predict the sizes kept back.

    FILE is the scenario: its fabric and all that is known of the servers; its jobs, faults and expectations
    are not used. Every second size of a LOG is fitted to, the others are predicted.
    """
    if len(files) < 2:
        raise UsageError("emu fit takes logs and a scenario; accepted: emu fit LOG... FILE")
    if output is not None and output.exists():
        raise UsageError(f"{output}: exists and is not replaced; accepted: the name of a new file")
    *names, scenario = files
    most_bytes = size_of_scan(largest, "--largest") if largest[-1:] in "kKmMgG" else parse_size(largest)
    logs = [of_size(read_log(Path(name), operation, column), most_bytes) for name in names]
    check_alike(logs)
    counted = read_counters(counters)
    load_scenario(scenario, assignments, seed, variant, jobless=True)
    overrides = [parse_override(text) for text in assignments]
    if seed is not None:
        overrides.append(parse_override(f"seed={seed}", "--seed"))
    model = Model(scenario, overrides, variant, machines)
    done = fit(model, logs, (lambda _: None) if quiet else partial(click.echo, err=True), counted)
    click.echo(json.dumps(plain(done), indent=2)) if as_json else say("\n".join(report(done)))
    if output is not None:
        try:
            with output.open("x", encoding="utf-8") as opened:
                opened.write(overlay(done))
        except OSError as error:
            raise UsageError(f"{output}: cannot be written: {error.strerror}") from error
        click.echo(f"written: {output}; use it with --set @{output}", err=True)
