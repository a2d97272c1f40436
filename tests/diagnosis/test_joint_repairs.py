"""Faults and neighbours that each suffice: time comes first, and a count never stands for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu import api
from emu.results.summary import Counterfactual, Summary
from emu.views.diagnosis.chaos import MOST_REVERSED, stands
from emu.views.diagnosis.finding import CONTENTION, TIMER_SHORT, Finding
from emu.views.diagnosis.healing import Run, accused
from tests.diagnosis.broken_runs import named

TREE: dict[str, Any] = {
    "name": "two_flaps",
    "seed": 5,
    "topology": {"kind": "fat_tree", "k": 4, "link": "100G", "gpus_per_host": 2},
    "transport": {"timeout": 6},
    "jobs": [
        {
            "name": "train",
            "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["8MiB"], "iterations": 2},
        }
    ],
}
CABLES = [
    {"kind": "link_down", "at": "100us", "for": "600us", "target": "nic-1-0:tor-0-1"},
    {"kind": "link_down", "at": "100us", "for": "600us", "target": "nic-5-1:tor-2-1"},
]
SPINES: dict[str, Any] = {
    "name": "spines",
    "seed": 5,
    "topology": {
        "kind": "ai_zone",
        "racks": 4,
        "hosts_per_rack": 2,
        "gpus_per_host": 2,
        "spines": 4,
        "link": "100G",
    },
    "routing": {"kind": "e_ecmp", "convergence": "20us"},
    "control": {"management_delay": "5us"},
    "jobs": [
        {
            "name": "train",
            "workload": {"kind": "collective", "op": "all_reduce", "sizes": ["8MiB"], "iterations": 3},
        }
    ],
}
REBOOTS = [
    {"kind": "switch_reboot", "at": "300us", "target": f"ctsw-{spine}", "boot_time": "600us"}
    for spine in (0, 1)
]
PLANES: dict[str, Any] = {
    "name": "lost_plane",
    "seed": 7,
    "topology": {
        "kind": "multi_plane",
        "planes": 4,
        "nic_ports": 4,
        "gpus_per_host": 1,
        "hosts": 8,
        "radix": 8,
        "link": "100G",
    },
    "transport": {"kind": "multipath"},
    "jobs": [{"name": "train", "workload": {"kind": "permutation", "size": "16MiB"}}],
}
TORS = [{"kind": "switch_crash", "at": "50us", "target": "tor-2-*"}]


def run(mapping: dict[str, Any], *faults: dict[str, Any]) -> Summary:
    """A run with these faults."""
    return api.run(mapping | {"faults": list(faults)}, local=True).summary


def took_ps(summary: Summary, job: str = "train") -> int:
    """How long a job took."""
    row = summary.jobs[job]
    return (row.end_ps or 0) - (row.start_ps or 0)


@pytest.mark.parametrize(
    ("mapping", "faults", "places"),
    [
        (TREE, CABLES, ["nic-1-0:tor-0-1", "nic-5-1:tor-2-1"]),
        (SPINES, REBOOTS, ["ctsw-0", "ctsw-1"]),
        (PLANES, TORS, ["tor-2-0", "tor-2-1"]),
    ],
    ids=["cables", "spines", "plane"],
)
def test_of_faults_that_each_suffice_all_are_named_with_the_time_that_repairing_all_saves(
    mapping: dict[str, Any], faults: list[dict[str, Any]], places: list[str]
) -> None:
    broken, well = run(mapping, *faults), run(mapping)
    assert took_ps(broken) > 1.05 * took_ps(well)
    assert sorted(one.place for one in broken.diagnosis) == places
    assert {one.back_ps for one in broken.diagnosis} == {took_ps(broken) - took_ps(well)}
    first = broken.diagnosis[0].sentence
    assert all(place in first for place in places)
    assert "train would take" in first


def model(
    costs: Sequence[Sequence[str]], counted: Sequence[str], suspects: Sequence[Finding]
) -> tuple[Run, Any]:
    """A run that is 1,000 longer for each group of which a member is left, and that counts one for each of
    `counted` that is left; and what it comes to with some healed."""

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        gone = {one.place for one in healed}
        late = sum(1000 for group in costs if {*group} - gone)
        alarms = {"ports_down": 2 * len({*counted} - gone)}
        return Counterfactual(healed=[], jobs={"train": 3000 + late}, failed={}, alarms=alarms)

    whole = emulate(())
    assert whole is not None
    del suspects
    return Run(whole.jobs, {}, whole.alarms), emulate


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_member_of_every_group_that_costs_time_is_named_with_time(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 9))
    places = [f"a:{at}" for at in range(count)]
    of = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    groups = [[place for place, group in zip(places, of, strict=True) if group == at] for at in (1, 2, 3)]
    groups = [group for group in groups if group]
    counted = data.draw(st.lists(st.sampled_from(places), unique=True))
    suspects = [Finding("link_flap", place, 900 - at, "") for at, place in enumerate(places)]
    run, emulate = model(groups, counted, suspects)
    found, _, _ = accused(run, suspects, emulate)
    timely = {one.finding.place for one in found if one.gains_time}
    assert timely == {place for group in groups for place in group}
    assert len({one.finding.key for one in found}) == len(found)
    if not groups and counted:
        assert {one.finding.place for one in found} == {*counted}


@given(st.integers(3, 8), st.data())
@settings(max_examples=40, deadline=None)
def test_every_neighbour_is_named_that_a_victim_has_to_lose_to_be_quicker(
    count: int, data: st.DataObject
) -> None:
    names = [f"job-{at}" for at in range(count)]
    guilty = data.draw(st.sets(st.sampled_from(names[1:]), min_size=1))
    suspects = [Finding(CONTENTION, name, 400, "") for name in names]
    times = dict.fromkeys(names, 1000)

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        gone = {one.place for one in healed}
        slower = {names[0]: 1600 if guilty - gone else 1000}
        left = {name: took for name, took in (times | slower).items() if name not in gone}
        return Counterfactual(
            healed=[],
            jobs=left,
            failed=dict.fromkeys(sorted(gone), "disabled"),
            alarms={},
            left_out=" and ".join(sorted(gone)),
        )

    found, _, _ = accused(Run(times | {names[0]: 1600}, {}, {}), suspects, emulate)
    assert {one.finding.place for one in found} == guilty
    assert all(
        one.gain is not None and (one.gain.job, one.gain.after_ps) == (names[0], 1000) for one in found
    )


def test_three_neighbours_that_only_together_leave_a_job_alone_are_named_with_its_time() -> None:
    """`train` is as quick without them as alone; without any one or two of them it is not."""
    incast = {"kind": "incast", "fan_in": 3, "size": "3MiB", "destination": 0}
    ring = {"kind": "collective", "op": "all_reduce", "sizes": ["2MiB"], "iterations": 3}
    ranks = {"n1": [0, 5, 9, 13], "n2": [4, 6, 10, 14], "n3": [8, 2, 7, 15]}
    neighbours = [{"name": name, "ranks": some, "workload": incast} for name, some in ranks.items()]
    train = {"name": "train", "ranks": [0, 4, 8, 12], "workload": ring}
    mapping = {"name": "three", "seed": 1, "topology": SPINES["topology"] | {"spines": 2}}
    beside = run(mapping | {"jobs": [train, *neighbours]})
    alone = run(mapping | {"jobs": [train, *(one | {"enabled": False} for one in neighbours)]})
    assert took_ps(beside) > 1.5 * took_ps(alone)
    assert sorted(named(beside.diagnosis[:3])) == [("contention", name) for name in ranks]
    assert {one.back_ps for one in beside.diagnosis[:3]} == {took_ps(beside) - took_ps(alone)}
    assert "without n1 and n2 and n3, train would take" in beside.diagnosis[0].sentence
    assert "% of it theirs)" in beside.diagnosis[0].sentence


def test_a_timer_that_alone_would_have_let_a_job_end_is_named_beside_the_slow_receiver() -> None:
    """16.384 us beside a receiver at 8G that needs 5.2 ms for 5 MiB: with either as it should be, it ends."""
    slow = {"kind": "slow_receiver", "target": "nic-0-0", "rate": "8G"}
    job = {"name": "train", "workload": {"kind": "incast", "size": "1MiB", "fan_in": 5, "destination": 0}}
    star = {"kind": "star", "hosts": 6, "gpus_per_host": 1, "link": "100G"}
    mapping = {"name": "timer", "topology": star, "jobs": [job]}
    short, patient = {"timeout": 2, "retry_count": 3}, {"timeout": 20, "retry_count": 3}
    broken = run(mapping | {"transport": short}, slow)
    assert broken.jobs["train"].status == "retry_exceeded"
    assert run(mapping | {"transport": short}).jobs["train"].status == "success"
    assert run(mapping | {"transport": patient}, slow).jobs["train"].status == "success"
    assert [one.cause for one in broken.diagnosis] == ["slow_receiver", TIMER_SHORT]
    assert broken.diagnosis[1].sentence.endswith("with transport.timeout 20, train would not fail")


@pytest.mark.parametrize(("reversed_pairs", "holds"), [(2, True), (3, False)])
def test_an_effect_stands_with_two_of_25_pairs_reversed_and_not_with_three(
    reversed_pairs: int, holds: bool
) -> None:
    """The least of the worse values lies below so many of the better ones, of which the median is 100."""
    assert MOST_REVERSED == 2
    better = [100, 100, 100, 130, 130] if reversed_pairs == 2 else [100, 100, 130, 130, 130]
    worse = [120, 150, 150, 150, 150]
    near = {nudge: at for at, nudge in enumerate((100, 200, 300, 400), 1)}
    assert stands(lambda at: worse[near[at]], lambda at: better[near[at]], worse[0], better[0]) == holds
