"""`emu validate`: check a scenario without running it."""

from __future__ import annotations

import click

from actors.fabric.model import Topology
from emu.base.errors import Problem, ScenarioError
from emu.base.shipped import scenario_named
from emu.base.units import counted
from emu.devices.buffer_sizes import pool_notes
from emu.devices.run_warnings import run_warnings
from emu.preparing import prepare
from emu.scenario.dump import to_yaml
from emu.scenario.load import Loaded
from emu.terminal.columns import say_whole
from emu.terminal.scenario_options import load_scenario, overriding, reading


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@overriding
@click.option("--effective", is_flag=True, help="Print each scenario with every default spelled out.")
@reading
def command(
    scenarios: tuple[str, ...], assignments: tuple[str, ...], seed: str | None, variant: str, effective: bool
) -> None:
    """Check scenarios, on their fabric too, and report every problem.

    A scenario's variants are checked with it, unless one is chosen. A problem is one line: file:line: key:
    reason; accepted: what would be.
    """
    problems: list[Problem] = []
    for given in scenarios:
        wanted = [variant]
        while wanted:
            chosen = wanted.pop(0)
            try:
                loaded = load_scenario(given, assignments, seed, chosen)
                if not chosen and not effective and not scenario_named(given)[1]:
                    wanted += loaded.variants
                prepared = prepare(loaded)
            except ScenarioError as error:
                problems.extend(problem for problem in error.problems if problem not in problems)
            else:
                if effective:
                    click.echo(to_yaml(loaded.scenario))
                else:
                    say_whole(described(loaded, prepared.topology))
                notes = (*prepared.notes, *pool_notes(loaded.scenario, prepared.topology))
                for line in notes if not effective else ():
                    say_whole(f"{loaded.source.file}: note: {line}")
                warnings = run_warnings(loaded.scenario, prepared.topology, prepared.plan)
                for line in warnings if not effective else ():
                    say_whole(f"{loaded.source.file}: warning: {line}")
    if problems:
        raise ScenarioError(problems)


def described(loaded: Loaded, topology: Topology) -> str:
    """One line on what a valid scenario holds."""
    scenario = loaded.scenario
    parts = [
        counted(len(topology.gpus), "GPU"),
        counted(len(topology.switches), "switch"),
        counted(len(scenario.jobs), "job"),
        counted(len(scenario.faults), "fault"),
        counted(len(scenario.expect), "expectation"),
    ]
    if scenario.overrides:
        parts.append(counted(len(scenario.overrides), "override"))
    return f"{loaded.source.file}: valid: {scenario.name}, {', '.join(parts)}"
