"""Are the packet-hops of a run known before it, and is somebody warned of a long one?"""

import json

import pytest

from emu import api
from emu.build.estimate import about_wall
from emu.cli.commands.estimate import estimated
from emu.cli.main import main
from emu.cli.terminal import time_left

WHOLE = (
    *("tiny_all_reduce", "qp_policies", "tree", "verb_read", "verb_send", "flow_table"),
    *("zero_copy", "nvlink_hierarchical", "step_time", "trace", "program"),
)
SCENARIOS: dict[str, dict[str, str]] = {
    **{name: {} for name in WHOLE},
    "incast": {"jobs[0].workload.size": "64KiB"},
    "checkpoint": {"jobs[0].workload.steps": "2", "jobs[1].workload.size": "256KiB"},
    "dual_tor_least_loaded": {"jobs[0].workload.sizes": "[1MiB]", "faults": "[]"},
    "serving": {"jobs[1].enabled": "false", "jobs[0].workload.requests": "4"},
}
"""Flows, a ring, graphs, NVLink, queue pairs, a trace, a program, training steps, TCP, slices over all NICs
of a server, keys and values; shortened where they are long."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_packet_hops_of_a_scenario_are_known_before_it_runs(name: str) -> None:
    loaded = api.load(name, {**SCENARIOS[name], "expect": "[]"})
    counted = api.run(loaded, local=True, diagnose=False).summary.engine.packet_hops
    assert estimated(api.prepare(loaded)).hops == pytest.approx(counted, rel=0.01)


def test_a_run_of_more_than_ten_minutes_is_announced() -> None:
    """Each host sends 2^29 packets of 4 KiB."""
    large = api.prepare(
        api.load("permutation", {"jobs[0].workload.size": "2TiB", "jobs[0].workload.message": "1GiB"})
    )
    (line,) = estimated(large).warnings()
    assert "packet-hops" in line
    assert estimated(api.prepare(api.load("permutation"))).warnings() == []


def test_figures_are_printed_for_each_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "tiny_all_reduce", "verb_send", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["scenario"] for one in found] == ["tiny_all_reduce", "verb_send"]
    assert main(["estimate", "tiny_all_reduce"]) == 0
    assert "packet-hops" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wall_s", "text"), [(0.84, "0.8 s"), (42, "42 s"), (1000, "17 min"), (18_700, "5.2 h")]
)
def test_times_on_the_wall_are_told_in_the_unit_a_reader_would_use(wall_s: float, text: str) -> None:
    assert about_wall(wall_s) == text


@pytest.mark.parametrize(
    ("done", "spent_s", "text"),
    [
        (0, 5, "0 %"),
        (0.9, 5, "0 %"),
        (1, 1, "1 %, 99 s left"),
        (25, 10, "25 %, 30 s left"),
        (120, 10, "100 %, 0.0 s left"),
    ],
)
def test_time_left_follows_the_pace_so_far(done: float, spent_s: float, text: str) -> None:
    assert time_left(done, 100, spent_s) == text
