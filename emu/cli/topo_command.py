"""`emu topo`: what does a scenario's fabric look like, and which ways lead through it?"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from emu.api import prepare
from emu.cli.scenario_options import load_scenario, overriding
from emu.errors import UsageError
from emu.topology.model import Role, Topology, TopologyError, format_address
from emu.topology.paths import path_set, path_text
from emu.topology.render import describe, to_text


@click.command()
@click.argument("scenario")
@overriding
@click.option("--routes", nargs=2, metavar="SRC DST", help="Print every shortest path between two NICs.")
@click.option("--json", "as_json", is_flag=True, help="Print all nodes and links as JSON.")
def command(
    scenario: str,
    assignments: tuple[str, ...],
    seed: str | None,
    routes: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Show tiers, counts, rates and oversubscription of the fabric of SCENARIO."""
    topology = prepare(load_scenario(scenario, assignments, seed)).topology
    if routes is not None:
        paths = _paths(topology, *routes)
        click.echo(json.dumps(paths, indent=2) if as_json else "\n".join(" ".join(path) for path in paths))
    elif as_json:
        click.echo(json.dumps(_listed(topology), indent=2))
    else:
        click.echo(to_text(describe(topology)))


def _paths(topology: Topology, source: str, target: str) -> list[list[str]]:
    """The devices on every shortest path between two NICs."""
    ends = []
    for name in (source, target):
        try:
            node = topology.node_named(name)
        except TopologyError as error:
            raise UsageError(f"--routes {name}: {error}") from error
        if node.role is not Role.NIC:
            raise UsageError(f"--routes {name}: is a {node.role}; accepted: the name of a NIC")
        ends.append(node.number)
    if ends[0] == ends[1]:
        raise UsageError(f"--routes {source} {target}: is one NIC; accepted: two different ones")
    return [path_text(topology, ends[0], path).split() for path in path_set(topology, ends[0], ends[1])]


def _listed(topology: Topology) -> dict[str, object]:
    """Nodes, with the addresses of NICs, and links, by number."""
    nodes = []
    for node in topology.nodes:
        listed = asdict(node)
        if node.role is Role.NIC:
            listed["address"] = format_address(topology.address_of(node.number))
        nodes.append(listed)
    return {"kind": topology.kind, "nodes": nodes, "links": [asdict(link) for link in topology.links]}
