"""Does a lossless ring whose buffers wait for each other stop, and say who waits for whom?"""

from __future__ import annotations

from pathlib import Path

from emu.engine.outcome import Ending, RunOptions
from emu.launch import run_scenario
from emu.scenario.load import load
from emu.scenario.resolve import build_topology

RING = Path(__file__).parents[2] / "scenarios/switch/ring_deadlock.yaml"


def test_a_ring_of_switches_stops_and_names_the_circle() -> None:
    scenario = load(RING).scenario
    outcome = run_scenario(scenario, build_topology(scenario), RunOptions(local=True, parts=2))
    assert outcome.ending is Ending.STALLED
    assert outcome.exit_status == 3
    assert "a circle of pauses: ring-0 -> ring-1 -> ring-2 -> ring-3 -> ring-4 -> ring-0" in outcome.message
