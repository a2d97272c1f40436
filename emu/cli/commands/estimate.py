"""`emu estimate`: what a run will cost, without running it."""

from __future__ import annotations

import json

import click

import emu
from emu.build.estimate import Estimate, about_wall, estimate
from emu.cli.scenario_options import load_scenario, overriding
from emu.preparing import Prepared, prepare
from emu.units import about_size, aligned


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@overriding
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
def command(
    scenarios: tuple[str, ...], assignments: tuple[str, ...], seed: str | None, variant: str, as_json: bool
) -> None:
    """Count the packet-hops of each SCENARIO from its plan, with memory and wall time on one worker.

    What congestion adds and what an early end takes away is not known before the run.
    """
    found = [
        (prepared.scenario.name, estimated(prepared))
        for prepared in (prepare(load_scenario(one, assignments, seed, variant)) for one in scenarios)
    ]
    if as_json:
        click.echo(json.dumps([{"scenario": name, **one._asdict()} for name, one in found], indent=2))
        return
    rows = [["scenario", "packet-hops", "memory", f"wall time, {_how()}"]]
    rows += [
        [name, f"{one.hops:,}", about_size(one.memory_bytes), about_wall(one.wall_s)] for name, one in found
    ]
    click.echo("\n".join(aligned(rows, indent="")))


def estimated(prepared: Prepared) -> Estimate:
    """What a run of this costs one worker here."""
    return estimate(prepared.scenario, prepared.topology, prepared.plan, compiled=emu.is_compiled())


def costs(prepared: Prepared) -> list[str]:
    """What is worth knowing of a run at packet level before it begins. At flow level it is not counted: that
    would often take longer than the run.
    """
    return [] if prepared.scenario.fidelity == "flow" else estimated(prepared).warnings()


def _how() -> str:
    return "compiled" if emu.is_compiled() else "interpreted"
