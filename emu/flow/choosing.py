"""`fidelity: auto`: packets or rates, by the scenario alone.

Packets are taken as long as they are few, and wherever queues decide: flows, and jobs that meet on the back
end. What counts is packet-hops, as `emu estimate` counts them, and never a clock, the machine, the build or
the number of workers, so that a scenario has one answer.
"""

from __future__ import annotations

from typing import Final

from actors.fabric.model import Topology
from emu.base.errors import ScenarioError
from emu.devices.plan import Plan
from emu.devices.pricing.estimate import packet_hops
from emu.flow.refusals import check_flow_level
from emu.scenario.faults.events import Fault
from emu.scenario.schema import Scenario

MOST_HOPS: Final = 20_000_000
"""That are still run in packets: 20 s or so, compiled."""


def choose(
    scenario: Scenario, topology: Topology, plan: Plan, faults: tuple[Fault, ...]
) -> tuple[Scenario, str]:
    """The scenario with the fidelity that it gets, and a line that says why."""
    hops = packet_hops(scenario, topology, plan, MOST_HOPS)
    if hops <= MOST_HOPS:
        return _chosen(scenario, "packet", f"{hops:,} packet-hops, of at most {MOST_HOPS:,}")
    reason = _packets_alone(scenario, topology, plan, faults)
    if reason:
        return _chosen(scenario, "packet", f"more than {MOST_HOPS:,} packet-hops, but {reason}")
    return _chosen(scenario, "flow", f"more than {MOST_HOPS:,} packet-hops")


def _chosen(scenario: Scenario, fidelity: str, why: str) -> tuple[Scenario, str]:
    return scenario.model_copy(update={"fidelity": fidelity}), f"fidelity: auto is {fidelity}: {why}"


def _packets_alone(scenario: Scenario, topology: Topology, plan: Plan, faults: tuple[Fault, ...]) -> str:
    """Why only packets will do; nothing if rates will."""
    works = [work for work in plan.jobs if work.enabled and not work.clients]
    flows = next((work.name for work in works if work.flows), None)
    if flows is not None:
        return f"queues decide on the flows of {flows}"
    if len(works) > 1:
        return f"{works[0].name} and {works[1].name} meet in queues"
    try:
        check_flow_level(scenario, topology, plan, faults)
    except ScenarioError as error:
        first = error.problems[0]
        return f"{first.key}: {first.reason}"
    return "" if scenario.operator is None else "operator: rates have no heartbeats"
