"""`emu estimate`: what a run will cost, without running it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

import emu
from emu.base.errors import UsageError
from emu.base.spelling import listed
from emu.base.units import about_size, aligned, counted
from emu.devices.pricing.distribution import Distributed
from emu.devices.pricing.estimate import LEAST, Estimate, about_wall, estimate
from emu.devices.pricing.train_flows import NO_FLOWS, train_flows
from emu.engine.distributing import terms
from emu.preparing import Prepared, prepare
from emu.terminal.columns import say
from emu.terminal.machine_pace import pace
from emu.terminal.scenario_options import load_scenario, overriding, reading


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@overriding
@click.option(
    "--workers",
    type=click.IntRange(1, 65536),
    help="Also the terms of the time on so many workers, a core each.",
)
@click.option(
    "--nodes", type=click.IntRange(1, 65536), default=1, help="Machines that these workers are on  [1]."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
@reading
def command(
    scenarios: tuple[str, ...],
    assignments: tuple[str, ...],
    seed: str | None,
    variant: str,
    workers: int | None,
    nodes: int,
    as_json: bool,
) -> None:
    """Count the packet-hops of each SCENARIO from its plan, with memory and wall time on one worker.

    The time is that of the whole command, of this machine while nothing else runs on it. Flows that go as
    trains of packets, several hops at the price of one, are listed by number. What congestion adds and what
    an early end takes away is not known before the run; at flow level only the least is. Jobs that begin
    again (`run.repeat`) are counted as often as they fit into `run.max_time`.
    The terms on workers are those of docs/scale.md, on the machine that is described there.
    """
    if nodes > (workers or 1):
        raise UsageError(
            f"--nodes {nodes}: a node has at least one worker; accepted: --workers {nodes}, or more"
        )
    found: list[tuple[str, Estimate]] = []
    spread: list[Distributed | None] = []
    for one in scenarios:
        loaded = load_scenario(one, assignments, seed, variant)
        if loaded.scenario.fidelity == "flow":  # a plan of it may take longer than the run
            found.append((loaded.scenario.name, LEAST._replace(wall_s=LEAST.wall_s * pace())))
            spread.append(None)
            continue
        prepared = prepare(loaded)
        found.append((prepared.scenario.name, estimated(prepared, with_trains=True)))
        spread.append(_on_workers(prepared, workers, nodes))
    if as_json:
        rows_of = [
            {"scenario": name, **one._asdict(), **({"on_workers": _plain(terms)} if terms else {})}
            for (name, one), terms in zip(found, spread, strict=True)
        ]
        click.echo(json.dumps(rows_of, indent=2))
        return
    rows = [["scenario", "packet-hops", "memory", f"wall time, {_how()}, idle machine"]]
    rows += [[name, *_reported(one)] for name, one in found]
    click.echo("\n".join(aligned(rows, indent="")))
    for name, cost in found:
        if cost.flows:
            say(f"{name}: {_trains(cost)}")
    if workers is not None:
        say("\n".join(["", *_terms_table([name for name, _ in found], spread)]))


def _on_workers(prepared: Prepared, workers: int | None, nodes: int) -> Distributed | None:
    """The terms on so many workers, if any are asked for; None where nothing is distributed."""
    if workers is None or prepared.cost is None:
        return None
    return terms(prepared.blueprint, prepared.cost, workers, nodes=nodes)


def _plain(one: Distributed) -> dict[str, object]:
    return {**one._asdict(), "wall_s": one.wall_s, "bound": one.bound}


def _terms_table(names: Sequence[str], found: Sequence[Distributed | None]) -> list[str]:
    """A line for each scenario: the terms of its time on workers, in seconds, and the largest."""
    head = [
        "scenario",
        "workers",
        "nodes",
        "not distributed",
        "Ray",
        "packets",
        "crossing",
        "windows",
        "wall time",
    ]
    rows = [[*head, "bound by"]]
    for name, one in zip(names, found, strict=True):
        if one is None:
            rows.append([name, "1", "1", *["-"] * 6, "flow level: one process"])
            continue
        times = (one.alone_s, one.ray_s, one.packets_s, one.crossing_s, one.windows_s, one.wall_s)
        rows.append([name, str(one.workers), str(one.nodes), *map(about_wall, times), one.bound])
    return aligned(rows, indent="")


def estimated(prepared: Prepared, *, with_trains: bool = False) -> Estimate:
    """What a run of this costs one worker here; `with_trains`: which flows go as trains is found out, too."""
    found = _estimated(prepared, with_trains=with_trains)
    return found._replace(wall_s=found.wall_s * pace())


def _estimated(prepared: Prepared, *, with_trains: bool = False) -> Estimate:
    """The same where `PACE_MS` was measured."""
    whole = prepared.scenario, prepared.topology, prepared.plan
    trains = train_flows(*whole) if with_trains else NO_FLOWS
    return estimate(*whole, compiled=emu.is_compiled(), trains=trains)


def _trains(one: Estimate) -> str:
    if not one.in_trains:
        return f"none of {counted(one.flows, 'flow')} goes as trains of packets"
    numbers = listed(str(number) for number in one.in_trains)
    verb = "goes" if len(one.in_trains) == 1 else "go"
    return f"{len(one.in_trains)} of {counted(one.flows, 'flow')} {verb} as trains of packets: {numbers}"


def _reported(one: Estimate) -> list[str]:
    memory, wall = about_size(one.memory_bytes), about_wall(one.wall_s)
    return ["flow level", f">= {memory}", f">= {wall}"] if one.least else [f"{one.hops:,}", memory, wall]


def _how() -> str:
    return "compiled" if emu.is_compiled() else "interpreted"
