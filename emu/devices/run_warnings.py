"""Warnings before a run, of all families: what is accepted, and will probably not do what was meant."""

from __future__ import annotations

from actors.fabric.model import Topology
from emu.devices.buffer_sizes import headroom_warnings, late_marking_foreseen
from emu.devices.nics import control_warnings, receive_warnings
from emu.devices.plan import Plan
from emu.devices.storage_warnings import storage_warnings
from emu.scenario.profiles import generation_warnings
from emu.scenario.schema import Scenario
from emu.scenario.traffic_classes import class_warnings


def run_warnings(scenario: Scenario, topology: Topology, plan: Plan) -> list[str]:
    """A line each, as `emu validate` and `emu run` print them."""
    return [
        *class_warnings(scenario, topology),
        *_gpu_warnings(scenario),
        *storage_warnings(scenario, topology, plan),
        *headroom_warnings(scenario, topology),
        *receive_warnings(scenario, topology),
        *(one.line for one in late_marking_foreseen(scenario, topology)),
        *control_warnings(scenario, topology),
    ]


def _gpu_warnings(scenario: Scenario) -> list[str]:
    """What is set alone of the constants of a GPU."""
    gpu, tuner = scenario.gpu, scenario.ncclx.tuner
    nvlink_bps = tuner.nvlink_rate_bps or scenario.host.nvlink.rate_bps
    return list(generation_warnings(gpu.model, tuner.gpu, nvlink_bps, gpu.channel_rate_bps))
