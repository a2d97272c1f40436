"""`emu run`: run a scenario, show it, keep its results, judge its expectations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from emu.api import prepare
from emu.base.errors import UsageError
from emu.engine.outcome import RunOptions
from emu.run_directory.run_directory import RunDirectory
from emu.terminal.run_options import pageless, placed, ray_beside, recovering
from emu.terminal.scenario_options import NO_EXPECT, forcing, load_scenario, overriding, unjudged
from emu.terminal.shown_run import show_run


@click.command()
@click.argument("scenario", required=False)
@overriding
@unjudged
@placed
@click.option(
    "--discovery-port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the list for Prometheus, http://127.0.0.1:PORT/sd [any free port].",
)
@pageless
@recovering
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Continue the broken-off run in DIR from its last snapshot.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the results [runs/NAME-N].")
@forcing
@click.option(
    "--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit XML, for build servers."
)
@click.option("--json", "as_json", is_flag=True, help="Print summary.json, and nothing else.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def command(
    scenario: str | None,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    no_expect: bool,
    where: RunOptions,
    discovery_port: int,
    no_page: bool,
    recovery: Mapping[str, Any],
    resume: Path | None,
    out: Path | None,
    force: bool,
    junit: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run SCENARIO: a file, a name that `emu list` shows, or - for standard input.

    How it is run never changes its answer. Exit status: 0 every job succeeded and all expectations hold, 1 an
    expectation failed or a result is wrong, 2 bad input, 3 the fabric stalled or a job failed (unless an
    expectation asks for that ending, or for the job's status), 4 the runtime failed.
    """
    options = where._replace(discovery_port=discovery_port, **recovery)
    assignments = (*assignments, NO_EXPECT) if no_expect else assignments
    shown: dict[str, Any] = {"junit": junit, "page": not no_page}
    if resume is not None:
        if scenario is not None or assignments or seed is not None or variant or out is not None or force:
            raise UsageError(
                "--resume goes on with a run as it was begun: no SCENARIO, --set, --seed, --variant, "
                "--no-expect, --out, --force"
            )
        from emu.resume import reopen  # noqa: PLC0415 - only of a run that broke off

        with ray_beside(options), reopen(resume) as again:
            options = options._replace(resume_ps=again.from_ps)
            words = ["emu", "run", str(again.directory.path / "scenario.yaml")]
            return show_run(
                again.prepared, again.directory, options, words, as_json, quiet, again.broken, **shown
            )
    if scenario is None:
        raise UsageError("emu run needs a SCENARIO, or --resume with the directory of a run that broke off")
    with ray_beside(options) as drop_ray:
        prepared = prepare(load_scenario(scenario, assignments, seed, variant))
        if prepared.scenario.fidelity == "flow":
            drop_ray()
        words = _repeat(scenario, assignments, seed, variant, options)
        with RunDirectory.create(prepared.scenario.name, out, force=force) as directory:
            return show_run(
                prepared, directory, options, words, as_json, quiet, junit=junit, page=not no_page
            )


def _repeat(
    scenario: str, assignments: Sequence[str], seed: str | None, variant: str, options: RunOptions
) -> list[str]:
    """The command that does it again, in words."""
    words = ["emu", "run", scenario]
    for assignment in assignments:
        words += ["--set", assignment]
    if seed is not None:
        words += ["--seed", seed]
    if variant:
        words += ["--variant", variant]
    if options.local:
        words += ["--local"] if options.parts == 1 else ["--local", "--parts", str(options.parts)]
    elif not options.chooses:
        words += ["--workers", str(options.workers)] if options.workers is not None else []
        words += ["--placement", options.placement] if options.placement != "packed" else []
        words += ["--address", options.address] if options.address is not None else []
    words += ["--block", str(options.block)] if options.block is not None else []
    words += [] if options.trains else ["--no-trains"]
    return words
