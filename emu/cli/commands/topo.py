"""`emu topo`: the fabric of a scenario, its paths, and the workers that would host it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actors.fabric.model import Topology
from emu.base.errors import ScenarioError, UsageError
from emu.cli import topo_views as views
from emu.scenario.resolve import build_topology
from emu.scenario.schema import Scenario
from emu.terminal.columns import say
from emu.terminal.scenario_options import load_scenario, overriding, reading
from emu.topology.outline import describe, outline, to_text

if TYPE_CHECKING:
    from emu.devices.pricing.planned_traffic import PlannedTraffic

PATHS = 64


@click.command()
@click.argument("scenario")
@overriding
@click.option("--routes", nargs=2, metavar="SRC DST", help="Print the shortest paths between two NICs.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=PATHS,
    metavar="N",
    help=f"Print at most N paths, 0 for all.  [default: {PATHS}]",
)
@click.option(
    "--placement", metavar="N", help="Print the devices of each of N workers, or by `node`, `device`."
)
@click.option("--nodes", metavar="CPUS", help="With --placement: the CPUs of a cluster's nodes, e.g. 4,4,8.")
@click.option("--buffers", is_flag=True, help="Print the headroom of every port, and the pool it leaves.")
@click.option("--bill", is_flag=True, help="Count switches, ports, NICs, optics, cables and fibres.")
@click.option("--prices", metavar="FILE", help="With --bill: a file of prices; add costs, also for each GPU.")
@click.option("--svg", metavar="FILE", help="Draw the fabric into an SVG file.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; alone, all nodes and links.")
@reading
def command(
    scenario: str,
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    routes: tuple[str, str] | None,
    limit: int,
    placement: str | None,
    nodes: str | None,
    buffers: bool,
    bill: bool,
    prices: str | None,
    svg: str | None,
    as_json: bool,
) -> None:
    """Show tiers, counts, rates and oversubscription of the fabric of SCENARIO, which needs no jobs."""
    if nodes is not None and placement is None:
        raise UsageError("--nodes says where workers live; say how many with --placement")
    loaded = load_scenario(scenario, assignments, seed, variant, jobless=True)
    try:
        topology = build_topology(loaded.scenario)
        shown: list[views.View] = []
        if routes is not None:
            shown.append(views.paths(topology, *routes, limit))
        if placement is not None:
            shown.append(views.placement(topology, placement, nodes, _planned(loaded.scenario)))
        if bill or prices is not None:
            shown.append(views.bill(topology, prices))
        if buffers:
            shown.append(views.buffers(loaded.scenario, topology))
    except ScenarioError as error:
        raise loaded.source.located(error) from error
    if svg is not None:
        _draw(topology, svg)
    if as_json and (shown or svg is None):
        _print_json(shown or [views.everything(topology)])
    elif shown:
        say("\n\n".join(view.text for view in shown))
    elif svg is None:
        figures = [to_text(describe(topology)), *views.round_trip(loaded.scenario, topology)]
        figures += views.room_of_planes(loaded.scenario)
        figures += views.servers(loaded.scenario, topology)
        figures += views.overrides(loaded.scenario, topology)
        say("\n".join([*figures, "", outline(topology)]))


def _planned(scenario: Scenario) -> PlannedTraffic | None:
    """What the jobs of a scenario send, if it has any."""
    from emu.devices.drawing import draw as blueprint_of  # noqa: PLC0415 - only for a placement
    from emu.devices.pricing.planned_traffic import planned_traffic  # noqa: PLC0415 - as above

    if not scenario.jobs:
        return None
    blueprint = blueprint_of(scenario)
    return planned_traffic(blueprint.scenario, blueprint.topology, blueprint.plan)


def _print_json(shown: list[views.View]) -> None:
    """One view as it is, several as a list."""
    values = [view.value for view in shown]
    click.echo(json.dumps(values[0] if len(values) == 1 else values, indent=2))


def _draw(topology: Topology, file: str) -> None:
    """Write the drawing and say where."""
    from emu.topology.svg import draw, to_svg  # noqa: PLC0415 - only for a drawing

    try:
        Path(file).write_text(to_svg(draw(topology)), encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--svg {file}: cannot be written: {reason}") from error
    click.echo(f"drew {file}", err=True)
