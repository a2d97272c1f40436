"""A run that stalls says who waits for whom, wherever its devices live."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.engine.outcome import Ending, Outcome, RunOptions
from emu.engine.waiting import MOST_SHOWN, Wait, circle_of, explain
from emu.launch import run_scenario
from tests.engine.spread_runs import plan_of

NODES = st.integers(0, 6)


@given(st.lists(st.tuples(NODES, NODES), max_size=14))
def test_circle_is_found_if_and_only_if_there_is_one(edges: list[tuple[int, int]]) -> None:
    circle = circle_of(edges)
    # Warshall, as a second opinion: who comes back to itself is on a circle.
    reach = [[(a, b) in edges for b in range(7)] for a in range(7)]
    for middle in range(7):
        for a in range(7):
            for b in range(7):
                reach[a][b] = reach[a][b] or (reach[a][middle] and reach[middle][b])
    assert bool(circle) == any(reach[a][a] for a in range(7))
    for device, following in zip(circle, [*circle[1:], *circle[:1]], strict=True):
        assert (device, following) in edges
    assert circle == [] or circle[0] == min(circle)


def test_circle_of_pauses_is_named_first_and_the_rest_is_bounded() -> None:
    topology = plan_of("tiny_flap", 1).topology
    names = [node.name for node in topology.nodes]
    waits = [Wait(3, 5, "port 0 is told to hold priority 3", True), Wait(5, 3, "port 2 is told so too", True)]
    waits += [Wait(1, -1, "a long story", False)] * 20
    lines = explain(waits, topology)
    assert lines[0] == f"a circle of pauses: {names[3]} -> {names[5]} -> {names[3]}"
    assert lines[1] == f"{names[3]} waits for {names[5]}: port 0 is told to hold priority 3"
    assert lines[-1] == "and 14 more"
    assert len(lines) == MOST_SHOWN + 2


def stalled(name: str, parts: int, **overrides: object) -> Outcome:
    plan = plan_of(name, 1, {key.replace("__", "."): value for key, value in overrides.items()})
    return run_scenario(plan.scenario, plan.topology, RunOptions(local=True, parts=parts, metrics=False))


LOST_FOR_EVER = {
    "faults": [{"at": "20us", "kind": "link_down", "target": "nic-0-0:rtsw-0"}],
    "transport__timeout": 0,
    "run__stall_after": "1ms",
    "expect": [],
}


@pytest.mark.parametrize("parts", [1, 3])
def test_flow_whose_link_is_gone_for_ever_is_named_at_the_stall(parts: int) -> None:
    outcome = stalled("tiny_flap", parts, **LOST_FOR_EVER)
    assert (outcome.ending, outcome.exit_status) == (Ending.STALLED, 3)
    assert outcome.virtual_ps % 10**9 == 0
    first, *lines = outcome.message.splitlines()
    assert first == "the fabric stalled: at 1ms a job was unfinished and nothing moved (stall_after 1ms)"
    assert any(line.startswith("nic-0-0 waits for nic-1-0: queue pair ") for line in lines)
    assert outcome.message == stalled("tiny_flap", 1, **LOST_FOR_EVER).message
    assert outcome.digest == stalled("tiny_flap", 1, **LOST_FOR_EVER).digest


def test_collective_whose_link_is_gone_for_ever_names_ranks_and_channels() -> None:
    outcome = stalled("tiny_all_reduce", 2, **LOST_FOR_EVER)
    assert outcome.ending is Ending.STALLED
    assert "of job 0, operation 0: channel 0 waits for " in outcome.message
