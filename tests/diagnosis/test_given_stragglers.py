"""Is a rank that the scenario itself makes slower named as one, though the intended fabric has it too?"""

from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.views.repairs.run_diagnosis import diagnose_directory

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


BESIDE_STORAGE = {
    "jobs[0].workload.steps": 2,
    "jobs[0].workload.stragglers": [{"rank": 5, "slowdown": 12}],
    "jobs[1].workload.size": "512KB",
    "faults": [{"kind": "slow_receiver", "target": "fnic-store-0", "rate": "1G"}],
    "expect": [],
}


def test_a_straggler_comes_before_a_receiver_of_storage_that_only_a_checkpoint_waits_for(
    tmp_path: Path,
) -> None:
    """Of its own job the receiver costs a larger share. Nobody waits for that job; training is slower."""
    out = tmp_path / "run"
    summary = api.run(api.load("checkpoint", BESIDE_STORAGE), local=True, out=out).summary
    equal = {**BESIDE_STORAGE, "jobs[0].workload.stragglers": []}
    without = api.run(api.load("checkpoint", equal), local=True, diagnose=False).summary
    found = [(one.cause, one.place) for one in summary.diagnosis]
    assert found == [("given_straggler", "gpu-2-1"), ("slow_receiver", "fnic-store-0")]
    first, second = summary.diagnosis
    ends = [one.jobs["train"].end_ps or 0 for one in (summary, without)]
    assert first.back_ps == ends[0] - ends[1] > 0
    assert (first.back or 0) < (second.back or 0)
    assert "with gpu-2-1 as fast as the other ranks, train would take" in first.sentence
    for emulate in (False, True):
        again = diagnose_directory(out, emulate=emulate)[1]
        assert [(one.cause, one.place) for one in again] == found
