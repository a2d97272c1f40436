"""Switches with deep buffers and virtual output queues, and what they are built from."""

from __future__ import annotations

from actors.fabric.model import Role, Topology
from actors.kernel.queue import EventQueue
from actors.switch.deep import DeepBuffer, DeepSwitch
from actors.switch.routing.groups import Routes
from emu.scenario.schema import Scenario


def is_deep(scenario: Scenario, topology: Topology, node: int) -> bool:
    """Whether a device is a modular switch."""
    if scenario.credited:  # then every port has its lanes
        return False
    section = scenario.switch.deep_buffer
    here = topology.nodes[node]
    if here.role is not Role.SWITCH:
        return False
    if section.where == "auto":
        return scenario.topology.kind == "llama3" and here.model == "ctsw"
    if section.where == "listed":
        return here.name in section.switches
    return section.where == "spines" and here.tier == 2


def make_deep(
    scenario: Scenario,
    number: int,
    queue: EventQueue,
    buffer: DeepBuffer,
    routes: Routes,
    policy: int,
    seed: int,
) -> DeepSwitch:
    """A modular switch, without its ports."""
    section = scenario.switch.deep_buffer
    return DeepSwitch(
        number,
        queue,
        buffer,
        routes,
        policy,
        seed,
        section.credit_delay_ps,
        section.initial_credit_bytes,
        section.credit_growth,
        section.most_credit_bytes,
    )
