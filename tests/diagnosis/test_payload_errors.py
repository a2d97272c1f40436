"""Are results that came out wrong reported, though no job became slower?"""

from __future__ import annotations

import pytest

from tests.diagnosis.broken_runs import run_of

FLIPS = [
    {"kind": "bit_flip", "target": "gpu-1-0", "at": f"{at}us", "bit": 4096 * at} for at in range(40, 200, 8)
]


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather"])
def test_wrong_elements_are_a_cause_with_their_count_and_ranks(op: str) -> None:
    job = {
        "name": "train",
        "workload": {"kind": "collective", "op": op, "sizes": ["256KiB"], "iterations": 4},
    }
    summary = run_of(*FLIPS, jobs=[job], payload="real")
    wrong = [one for one in summary.jobs["train"].collectives if one.wrong]
    assert wrong, "the bit is of a buffer that the operation still works on"
    (reported,) = summary.diagnosis
    ranks = {rank for one in wrong for rank in one.wrong_ranks}
    assert reported.cause == "payload_errors"
    assert (reported.place == "train") == (len(ranks) > 1)
    assert f"{sum(one.wrong or 0 for one in wrong)} element" in reported.sentence
    sound = run_of(jobs=[job], payload="real")
    assert [one.cause for one in sound.diagnosis] == []
