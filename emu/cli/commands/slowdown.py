"""`emu slowdown`: run the jobs of a scenario together and each by itself: what they cost one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from emu.api import prepare, run_prepared
from emu.cli.scenario_options import NO_EXPECT, load_scenario, overriding
from emu.cli.where_options import placed_here, session_of
from emu.errors import UsageError
from emu.measure.summary.summary import Summary
from emu.measure.tables.slowdown_table import costs, json_text, shared_links, text
from emu.runtime.outcome import RunOptions


@click.command()
@click.argument("scenario")
@overriding
@placed_here
@click.option("--json", "as_json", is_flag=True, help="Print JSON, every shared link listed.")
@click.option("--quiet", is_flag=True, help="Say nothing on standard error but what went wrong.")
def command(
    scenario: str,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    where: RunOptions,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run SCENARIO's jobs together, then each by itself, and print each job's slowdown and the shared links.

    A job that does not run keeps its queue pairs, so the others have the same paths. Faults happen in every
    run; `expect` is not judged. Exit status: the worst of the runs', as of `emu run`.
    """
    options = replace(where, metrics=False)
    names = [
        job.name for job in load_scenario(scenario, assignments, seed, variant).scenario.jobs if job.enabled
    ]
    if len(names) < 2:
        raise UsageError(f"{scenario} has one job; accepted: a scenario with two jobs or more")
    alone: dict[str, Summary] = {}
    worst = 0

    def run(chosen: Sequence[str], said: str) -> Summary:
        nonlocal worst
        loaded = load_scenario(scenario, [*assignments, NO_EXPECT], seed, variant)
        changes = [
            f"jobs[{index}].enabled=false"
            for index, job in enumerate(loaded.scenario.jobs)
            if job.name not in chosen
        ]
        result = run_prepared(
            prepare(load_scenario(scenario, [*assignments, NO_EXPECT, *changes], seed, variant)), options
        )
        worst = max(worst, result.exit_status)
        if result.outcome.message:
            click.echo(f"emu: {said}: {result.outcome.message}", err=True)
        elif not quiet:
            click.echo(f"{said}: {result.outcome.ending.value}", err=True)
        return result.summary

    with session_of(where):
        together = run(names, "together")
        for name in names:
            alone[name] = run([name], f"{name} alone")
    jobs, links = costs(together, alone), shared_links(alone)
    click.echo(json_text(jobs, links) if as_json else "\n".join(text(jobs, links)), nl=not as_json)
    return worst
