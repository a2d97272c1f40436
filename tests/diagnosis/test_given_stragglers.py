"""Is a rank that the scenario itself makes slower named as one, though the intended fabric has it too?"""

from typing import Any

import pytest

from emu import api

SMALL = {
    "jobs[0].workload.scale": "1/2000",
    "jobs[0].workload.layers": 4,
    "jobs[0].workload.steps": 1,
    "expect": [],
}


@pytest.mark.parametrize(
    ("stragglers", "named"),
    [
        ([], 0),
        ([{"rank": 3, "slowdown": 1.02}], 0),  # less than what counts as slower
        ([{"rank": 3, "slowdown": 16}], 3),
        ([{"rank": 1, "slowdown": 1.1}, {"rank": 2, "slowdown": 4}, {"rank": 5, "slowdown": 1.2}], 2),
    ],
    ids=["none", "hardly", "one", "several"],
)
def test_a_straggler_of_the_scenario_is_named_with_its_key(
    stragglers: list[dict[str, Any]], named: int
) -> None:
    changes = SMALL | {"jobs[0].workload.stragglers": stragglers}
    prepared = api.prepare(api.load("training_step", changes))
    found = api.run(api.load("training_step", changes), local=True).summary.diagnosis
    given = [one for one in found if one.cause == "given_straggler"]
    assert len(given) == (1 if named else 0)
    for one in given:
        assert one.place == prepared.topology.nodes[prepared.jobs[0].gpus[named]].name
        assert "workload.stragglers" in one.sentence
        slow = [rank for rank in stragglers if rank["slowdown"] >= 1.05]
        assert len(one.evidence) == len(slow)
