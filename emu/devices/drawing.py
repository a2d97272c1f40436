"""The blueprint of a run: what is known of it, and checked, before a device is built."""

from typing import NamedTuple

from actors.fabric.model import Topology
from emu.devices.checks import (
    check_connections,
    check_hosts,
    check_payload,
    check_queue_pairs,
    check_transports,
)
from emu.devices.plan import Plan, make_plan
from emu.devices.round_trip import settled
from emu.scenario.resolve import Resolved, build_topology, resolve
from emu.scenario.schema import Scenario


class Blueprint(NamedTuple):
    """What a run consists of, before anything is built."""

    scenario: Scenario
    topology: Topology
    resolved: Resolved
    plan: Plan


def draw(scenario: Scenario) -> Blueprint:
    """The blueprint of a scenario. Raises ScenarioError with everything that does not fit the fabric."""
    topology = build_topology(scenario)
    resolved = resolve(scenario, topology)
    return Blueprint(scenario, topology, resolved, make_plan(scenario, topology, resolved))


def blueprint_of(scenario: Scenario, topology: Topology) -> Blueprint:
    """The blueprint on a fabric that was built already. Raises ScenarioError."""
    resolved = resolve(scenario, topology)
    plan = make_plan(scenario, topology, resolved)
    check_hosts(scenario, topology, plan)
    check_queue_pairs(scenario, topology, plan)
    check_connections(scenario, topology, plan)
    check_transports(scenario, topology, plan)
    for nic in topology.nics if scenario.overrides else topology.nics[:1]:
        settled(scenario, topology, nic)
    if scenario.payload == "real":
        check_payload(scenario, plan)
    return Blueprint(scenario, topology, resolved, plan)
