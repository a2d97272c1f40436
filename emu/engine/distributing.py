"""Whether a run goes over workers where nobody has said so.

One process, unless workers would end it at least 20 % sooner (`emu.devices.pricing.distribution`). The choice
is a function of the scenario, of the cores that this process may use, of whether the packet path is compiled,
and of constants in the tree: never of a timing or of the load of the machine. Where no upper figure of a
run's length is known, it is one process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from actors.kernel.event import NEVER_PS
from emu.devices.drawing import Blueprint
from emu.devices.pricing.distribution import RAY_S, SOONER, Distributed, distributed
from emu.devices.pricing.estimate import Estimate, about_wall
from emu.engine.blueprint import spread
from emu.engine.outcome import RunOptions
from emu.engine.sync.placement import expected_loads

ASKED: Final = "asked for"
_WORDS: Final = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


class Choice(NamedTuple):
    """So many workers, 1 for one process, and why."""

    workers: int
    why: str
    instead: int = 0
    """How many workers were compared with one process."""


def settled(options: RunOptions, blueprint: Blueprint, cost: Estimate | None, cores: int) -> RunOptions:
    """The options with one process or workers chosen, where they leave that open. `cost` is of a compiled
    run or not, as this process runs; None where it is not known.
    """
    if not options.chooses:
        return options if options.why else options._replace(why=ASKED)
    live = options.steering is not None or options.pace_ps > 0
    choice = Choice(1, "a live run has no known end") if live else choice_of(blueprint, cost, cores)
    where = {"local": True} if choice.workers == 1 else {"workers": choice.workers}
    return options._replace(chooses=False, why=choice.why, instead=choice.instead, **where)


def choice_of(blueprint: Blueprint, cost: Estimate | None, cores: int) -> Choice:
    """One process or workers, for a run that nobody steers."""
    scenario = blueprint.scenario
    if scenario.fidelity == "flow":
        return Choice(1, "a run at flow level is in one process")
    if scenario.run.repeat or any(job.attended for job in scenario.jobs):
        return Choice(1, "a run whose jobs repeat or wait to be told has no known end")
    if cost is None or cost.least:
        return Choice(1, "no upper figure of its length is known")
    if cores < 2:
        return Choice(1, "this process may use one core")
    best = min(on_workers(blueprint, cost, cores), key=lambda one: one.wall_s, default=None)
    if best is None:
        return Choice(1, "the fabric has too few devices for two workers")
    name = _WORDS.get(best.workers, str(best.workers))
    if best.wall_s > SOONER * cost.wall_s:
        times = f"{about_wall(best.wall_s)} instead of {about_wall(cost.wall_s)}"
        return Choice(1, f"{name} workers would take about {times}", best.workers)
    times = f"{about_wall(best.wall_s)} instead of {about_wall(cost.wall_s)}"
    return Choice(best.workers, f"{name} workers take about {times}", best.workers)


def on_workers(blueprint: Blueprint, cost: Estimate, cores: int) -> Iterator[Distributed]:
    """The terms for two workers, four, eight and so on, up to a worker for each core."""
    counts = sorted({*(1 << bit for bit in range(1, cores.bit_length())), cores} - {1})
    most = len(blueprint.topology.nodes) - 1
    for workers in counts if cost.wall_s > RAY_S else counts[:1]:
        if workers <= most:
            yield terms(blueprint, cost, workers, cores)


def terms(blueprint: Blueprint, cost: Estimate, workers: int, cores: int = 0, nodes: int = 1) -> Distributed:
    """The terms for so many workers, packed. Raises UsageError if the fabric has fewer devices."""
    topology = blueprint.topology
    plan = spread(blueprint, workers)
    loads = [0] * workers
    for node, load in enumerate(expected_loads(topology)):
        loads[plan.assignment[node]] += load
    ways = [way for row in plan.lookahead for way in row if 0 < way < NEVER_PS]
    share = max(loads) / max(sum(loads), 1)
    devices = len(topology.nodes) - 1
    return distributed(
        cost, len(topology.nics), devices, workers, share, min(ways, default=int(NEVER_PS)), cores, nodes
    )
