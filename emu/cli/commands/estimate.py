"""`emu estimate`: what a run will cost, without running it."""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Final

import click

import emu
from emu.base.spelling import listed
from emu.base.units import about_size, aligned, counted
from emu.build.pricing.estimate import LEAST, LONG_S, PACE_MS, Estimate, about_wall, estimate
from emu.build.pricing.train_flows import NO_FLOWS, train_flows
from emu.cli.columns import say
from emu.cli.scenario_options import load_scenario, overriding, reading
from emu.preparing import Prepared, prepare

MOST_PACE: Final = 100
"""No machine takes so many times as long as the one where `PACE_MS` was measured."""


@click.command()
@click.argument("scenarios", nargs=-1, required=True, metavar="SCENARIO...")
@overriding
@click.option("--json", "as_json", is_flag=True, help="Print JSON with plain numbers.")
@reading
def command(
    scenarios: tuple[str, ...], assignments: tuple[str, ...], seed: str | None, variant: str, as_json: bool
) -> None:
    """Count the packet-hops of each SCENARIO from its plan, with memory and wall time on one worker.

    The time is that of the whole command, of this machine while nothing else runs on it. Flows that go as
    trains of packets, several hops at the price of one, are listed by number. What congestion adds and what
    an early end takes away is not known before the run; at flow level only the least is. Jobs that begin
    again (`run.repeat`) are counted as often as they fit into `run.max_time`.
    """
    found: list[tuple[str, Estimate]] = []
    for one in scenarios:
        loaded = load_scenario(one, assignments, seed, variant)
        if loaded.scenario.fidelity == "flow":  # a plan of it may take longer than the run
            found.append((loaded.scenario.name, LEAST._replace(wall_s=LEAST.wall_s * _pace())))
            continue
        prepared = prepare(loaded)
        found.append((prepared.scenario.name, estimated(prepared, with_trains=True)))
    if as_json:
        click.echo(json.dumps([{"scenario": name, **one._asdict()} for name, one in found], indent=2))
        return
    rows = [["scenario", "packet-hops", "memory", f"wall time, {_how()}, idle machine"]]
    rows += [[name, *_reported(one)] for name, one in found]
    click.echo("\n".join(aligned(rows, indent="")))
    for name, cost in found:
        if cost.flows:
            say(f"{name}: {_trains(cost)}")


def estimated(prepared: Prepared, *, with_trains: bool = False) -> Estimate:
    """What a run of this costs one worker here; `with_trains`: which flows go as trains is found out, too."""
    found = _estimated(prepared, with_trains=with_trains)
    return found._replace(wall_s=found.wall_s * _pace())


def _estimated(prepared: Prepared, *, with_trains: bool = False) -> Estimate:
    """The same where `PACE_MS` was measured."""
    whole = prepared.scenario, prepared.topology, prepared.plan
    trains = train_flows(*whole) if with_trains else NO_FLOWS
    return estimate(*whole, compiled=emu.is_compiled(), trains=trains)


@cache
def _pace() -> float:
    """The time that is spent here on what took `PACE_MS`, by that: the best of five rounds."""
    return min(_round_ms() for _ in range(5)) / PACE_MS


def _round_ms() -> float:
    begun_s = time.process_time()
    known: dict[int, tuple[int, int]] = {}
    for number in range(20_000):
        key = number * 7919 % 5003
        value = known.get(key)
        known[key] = (key, number) if value is None else (value[0], number)
    return (time.process_time() - begun_s) * 1000


def _trains(one: Estimate) -> str:
    if not one.in_trains:
        return f"none of {counted(one.flows, 'flow')} goes as trains of packets"
    numbers = listed(str(number) for number in one.in_trains)
    verb = "goes" if len(one.in_trains) == 1 else "go"
    return f"{len(one.in_trains)} of {counted(one.flows, 'flow')} {verb} as trains of packets: {numbers}"


def _reported(one: Estimate) -> list[str]:
    memory, wall = about_size(one.memory_bytes), about_wall(one.wall_s)
    return ["flow level", f">= {memory}", f">= {wall}"] if one.least else [f"{one.hops:,}", memory, wall]


def costs(prepared: Prepared) -> list[str]:
    """What is worth knowing of a run at packet level before it begins. At flow level it is not counted: that
    would often take longer than the run.
    """
    if prepared.scenario.fidelity == "flow":
        return []
    found = _estimated(prepared)
    if found.wall_s * MOST_PACE <= LONG_S:  # which is nearly every run, and to measure takes 15 ms
        return []
    return found._replace(wall_s=found.wall_s * _pace()).warnings()


def _how() -> str:
    return "compiled" if emu.is_compiled() else "interpreted"
