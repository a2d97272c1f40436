"""Fault lists that are too long are refused by their number, before memory grows."""

import tracemalloc
from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.scenario.fault_schedule import MOST_FAULT_EVENTS, MOST_OCCURRENCES
from emu.scenario.faults.base import RecurringFault
from emu.scenario.faults.kinds import FAULTS
from tests.faults.test_live import NEEDS, OTHERS
from tests.faults.test_snapshots import CASES_AND_MORE
from tests.faults.watched import mapping_of

MOST_BYTES = 40_000_000
"""Of what Python allocates for a scenario on this fabric and its refusal."""
MARKS = {"switch": {"ecn": {"enabled": True}}}
AGAIN = {"for": "1us", "every": "2us"}
ELSEWHERE = {"link_flap", "switch_reboot", "row_remap"}
"""Kinds with times of their own, and one that needs an operator."""
RECURRING = [kind for kind, model in FAULTS.table.items() if issubclass(model, RecurringFault)]


def refusal(fault: dict[str, Any], **more: Any) -> str:
    """Why a fault is refused, within so much memory."""
    loaded = api.load(mapping_of([fault]) | more)
    tracemalloc.start()
    try:
        with pytest.raises(ScenarioError) as refused:
            api.prepare(loaded)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    (problem,) = refused.value.problems
    return str(problem)


@pytest.mark.parametrize("kind", [kind for kind in RECURRING if kind not in ELSEWHERE])
def test_what_comes_again_too_often_is_refused_with_the_number(kind: str) -> None:
    keys, _ = (CASES_AND_MORE | OTHERS)[kind]
    reported = refusal({"kind": kind} | keys | AGAIN, **(MARKS | NEEDS.get(kind, {})))
    assert f"{MOST_OCCURRENCES + 1:,} times at each of" in reported
    assert f"accepted: at most {MOST_OCCURRENCES:,}" in reported


def test_flaps_of_every_link_are_counted_with_the_links() -> None:
    flap = {"kind": "link_flap", "for": None, "down": "1us", "up": "1us", "flaps": 65_536}
    reported = refusal(flap | {"target": "*:*"})
    assert "65,536 times at each of 12 places: 786,432 occurrences" in reported


def test_few_faults_of_many_links_are_counted_by_their_events() -> None:
    fabric = {"kind": "ai_zone", "racks": 128, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 8}
    crash = {"kind": "switch_crash", "target": "ctsw-0", "at": "1us", "count": 200}
    reported = refusal(crash | AGAIN, topology=fabric)
    events = 200 * 2 * (2 * 128 + 128 * (128 + 8))
    assert f"200 times at each of 1 places: {events:,} events at devices" in reported
    assert events > MOST_FAULT_EVENTS
