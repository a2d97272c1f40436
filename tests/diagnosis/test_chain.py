"""Where a run came to no end, one sentence leads from a rank down to what holds everything up."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from emu import api
from emu.views.diagnosis.wait_chain import MOST_PORTS
from tests.diagnosis.broken_runs import run_of, said_of

PATIENT: dict[str, Any] = {"transport": {"timeout": 20, "retry_count": 3}}
"""Nobody's retries run out before the run has stalled."""
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "a pause, from rank to queue pair to port to who says stop": (
        {"kind": "pause_storm", "target": "ctsw-0>rtsw-1"},
        {},
        [
            "train rank 0 waits in operation 2 for data from rank 7 on nic-0-0",
            "of nic-3-1 has 32 packets that nic-0-0 has not acknowledged, 32 of them sent",
            "rtsw-1>ctsw-0 holds frames, told to stop by ctsw-0",
            "ctsw-0 is held up by nobody: the root",
        ],
    ),
    "a clear-to-send that cannot leave, with pauses": (
        {"kind": "link_down", "target": "nic-2-0:rtsw-1"},
        {},
        [
            "rank 4 waits in operation 2 for data from rank 3 on nic-2-0",
            "what rank 4 sent there, clear-to-sends among it, did not arrive",
            "of nic-2-0 has 4 packets that nic-1-1 has not acknowledged, 0 of them sent",
            "nic-2-0>rtsw-1 holds frames and its link is down",
        ],
    ),
    "a clear-to-send that cannot leave, with credits": (
        {"kind": "link_down", "target": "nic-2-0:rtsw-1"},
        {"link": {"flow_control": "credits"}},
        ["clear-to-sends among it, did not arrive", "nic-2-0>rtsw-1 holds frames and its link is down"],
    ),
    "a modular spine that holds what it may not send": (
        {"kind": "pause_storm", "target": "rtsw-1"},
        {"switch": {"buffer": {"pool": "2MiB"}, "deep_buffer": {"where": "spines"}}},
        ["ctsw-0>rtsw-1 holds frames, told to stop by rtsw-1", "rtsw-1 is held up by nobody: the root"],
    ),
    "a circle of ranks, cut at the suspect's server": (
        {"kind": "gpu_hung", "target": "gpu-1-0"},
        {},
        ["train rank 3 waits in operation 2 for data from rank 2", "rank 2 is one of host-1"],
    ),
    "a rank that is not there": (
        {"kind": "host_lost", "target": "host-1"},
        {},
        ["host-1 went dark", "train rank 4 waits in operation 2 for data from rank 3", "waits for nobody"],
    ),
}


@cache
def between_operations() -> str:
    """When operation 1 is over and nobody has asked for operation 2: nothing is under way."""
    _, before, after, *_ = run_of().jobs["train"].collectives
    return f"{((before.end_ps or 0) + (after.start_ps or 0)) // 2}ps"


@pytest.mark.parametrize("case", CASES)
def test_the_sentence_says_who_waits_for_whom(case: str) -> None:
    fault, more, words = CASES[case]
    fault = {"at": between_operations()} | fault
    faults = [fault]
    if fault["target"] == "rtsw-1":
        faults = [fault | {"target": f"rtsw-1>ctsw-{spine}"} for spine in (0, 1)]
    sentence = said_of(*faults, **(PATIENT | more))[0].sentence
    places = [sentence.find(part) for part in words]
    assert -1 not in places, sentence
    assert places == sorted(places), sentence
    assert sentence.count(" holds frames") <= MOST_PORTS


@pytest.mark.parametrize(("control", "words"), [("pfc", "a deadlock of pauses"), ("credits", "of credits")])
def test_a_circle_is_named_whole_with_a_queue_pair_that_waits_behind_it(control: str, words: str) -> None:
    overrides = {"link.flow_control": control} if control == "credits" else {}
    found = api.run("scenarios/switch/ring_deadlock.yaml", overrides=overrides, local=True).summary.diagnosis
    assert [one.cause for one in found] == ["deadlock"]
    assert words in found[0].sentence
    assert "ring-0 -> ring-1 -> ring-2 -> ring-3 -> ring-4 -> ring-0" in found[0].sentence
    assert any("queue pair" in line and "in a circle through" in line for line in found[0].evidence)


@pytest.mark.parametrize(
    "workload",
    [
        {"kind": "permutation", "size": "64MiB"},
        {"kind": "incast", "size": "16MiB", "fan_in": 5, "destination": 0},
        {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"], "iterations": 1000},
    ],
)
@pytest.mark.parametrize("max_time", ["7us", "100us", "103us", "501200ns"])
def test_what_is_in_flight_when_a_run_is_out_of_time_is_not_stuck(
    workload: dict[str, Any], max_time: str
) -> None:
    run = run_of(jobs=[{"name": "train", "workload": workload}], run={"max_time": max_time})
    assert run.ending == "time_limit"
    assert run.diagnosis == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"kind": "pause_storm", "target": "ctsw-0>rtsw-1"}, "rtsw-1>ctsw-0 holds frames, told to stop"),
        ({"kind": "link_down", "target": "nic-2-0:rtsw-1"}, "nic-2-0>rtsw-1 holds frames and its link"),
    ],
)
def test_what_has_waited_when_a_run_is_out_of_time_is_reported(fault: dict[str, Any], words: str) -> None:
    (first, *_) = said_of(fault | {"at": between_operations()}, **PATIENT, run={"max_time": "900us"})
    assert words in first.sentence
