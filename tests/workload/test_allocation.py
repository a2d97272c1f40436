"""Does a job get the free GPUs that its placement means?"""

import pytest

from emu.api import Prepared, prepare
from emu.base.errors import ScenarioError

LLAMA3 = {
    "kind": "llama3",
    "pods": 2,
    "racks_per_pod": 2,
    "hosts_per_rack": 2,
    "gpus_per_host": 2,
    "ctsws_per_pod": 2,
    "atsws": 2,
}


def placed(*jobs: tuple[object, str]) -> list[list[int]]:
    """The GPUs, counted from 0, of jobs with these ranks and placements, in two pods of two racks of four."""
    prepared: Prepared = prepare(
        {
            "name": "placed",
            "topology": LLAMA3,
            "jobs": [
                {
                    "name": f"job-{index}",
                    "ranks": ranks,
                    "placement": placement,
                    "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["1KiB"]},
                }
                for index, (ranks, placement) in enumerate(jobs)
            ],
        }
    )
    place = {gpu: index for index, gpu in enumerate(prepared.topology.gpus)}
    return [[place[gpu] for gpu in job.gpus] for job in prepared.resolved.jobs]


def test_contiguous_jobs_follow_one_another() -> None:
    assert placed((3, "contiguous"), (4, "contiguous")) == [[0, 1, 2], [3, 4, 5, 6]]


def test_scattered_takes_one_from_each_rack_in_turn() -> None:
    assert placed((6, "scattered"), (4, "scattered")) == [[0, 4, 8, 12, 1, 5], [2, 6, 9, 13]]


def test_listed_gpus_are_taken_and_numbered_ones_are_shared() -> None:
    assert placed((3, "contiguous"), ([1, 2], "numbered"), (2, "numbered")) == [[0, 3, 4], [1, 2], [0, 1]]


def test_min_cut_stays_in_the_smallest_part_with_room() -> None:
    assert placed((2, "min_cut"), (4, "min_cut"), (2, "min_cut")) == [[0, 1], [4, 5, 6, 7], [2, 3]]


def test_min_cut_leaves_a_pod_only_when_no_pod_has_room() -> None:
    first, second, third = placed((6, "min_cut"), (8, "min_cut"), (2, "min_cut"))
    assert first == [0, 1, 2, 3, 4, 5]
    assert second == [8, 9, 10, 11, 12, 13, 14, 15]
    assert third == [6, 7]
    assert placed((6, "min_cut"), (10, "min_cut"))[1] == [8, 9, 10, 11, 12, 13, 14, 15, 6, 7]


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        (((9, "contiguous"), (8, "min_cut")), "8 ranks, but 7 of 16 GPUs are free"),
        ((("all", "scattered"),), "accepted: a number as `ranks`"),
        (((2, "min_cutt"),), "did you mean 'min_cut'"),
    ],
)
def test_what_cannot_be_placed_is_named(jobs: tuple[tuple[object, str], ...], reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        placed(*jobs)
