"""A job that keeps another waiting is a cause: which job, at which ports, and with which share."""

from __future__ import annotations

from typing import Any

import pytest

from emu import api
from emu.results.summary import Summary
from tests.diagnosis.broken_runs import named
from tests.scenario.plain import plain


def beside(*jobs: tuple[str, list[int], str], **more: Any) -> Summary:
    """Jobs of one flow each, from the first to the last of their ranks, on a star at 100G."""
    mapping = plain(
        {
            "name": "contention",
            "topology": {"kind": "star", "hosts": 4, "link": "100G"},
            "jobs": [
                {
                    "name": name,
                    "ranks": ranks,
                    "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": size}]},
                }
                for name, ranks, size in jobs
            ],
        }
    )
    return api.run(plain(mapping | more), local=True).summary


def test_of_two_flows_into_one_port_each_takes_half_of_the_others_time() -> None:
    found = beside(("train", [0, 2], "2MiB"), ("noise", [1, 2], "2MiB")).diagnosis
    assert sorted(named(found)) == [("contention", "noise"), ("contention", "train")]
    for one in found:
        # Twice the time at half the rate: what the other gives back is half.
        assert one.back == pytest.approx(0.5, abs=0.01)
        assert f"they meet at tor-0>nic-2-0 (50% of it {one.place}'s)" in one.sentence


def test_the_larger_takes_more_of_the_smaller_ones_time_than_the_other_way_round() -> None:
    first, second = beside(("train", [0, 2], "1MiB"), ("noise", [1, 2], "4MiB")).diagnosis
    # At half the rate the small one takes twice as long; a fifth of what the large one waits for is the small
    # one's. Latencies are 4 us of 90.
    assert (first.place, second.place) == ("noise", "train")
    assert first.back == pytest.approx(1 / 2, abs=0.02)
    assert second.back == pytest.approx(1 / 5, abs=0.01)
    assert "(80% of it noise's)" in first.sentence


def test_a_neighbour_whose_bytes_are_59_percent_of_the_jobs_makes_it_59_percent_slower() -> None:
    # The port serves both until the neighbour's bytes are through, and is never idle: 1.59 times the time.
    train, noise = 6_000_000, 3_540_000
    found = beside(("train", [0, 2], f"{train}B"), ("noise", [1, 2], f"{noise}B")).diagnosis
    (one,) = [one for one in found if one.place == "noise"]
    assert one.back == pytest.approx(0.59 / 1.59, abs=0.005)
    assert f"tor-0>nic-2-0 ({noise / (train + noise):.0%} of it noise's)" in one.sentence


def test_jobs_that_share_a_nic_meet_there_though_no_switch_holds_a_frame() -> None:
    found = beside(("train", [0, 2], "2MiB"), ("noise", [0, 2], "2MiB")).diagnosis
    assert sorted(named(found)) == [("contention", "noise"), ("contention", "train")]
    for one in found:
        assert one.back == pytest.approx(0.5, abs=0.01)
        assert f"nic-0-0>tor-0 (50% of it {one.place}'s)" in one.sentence


def test_jobs_that_share_no_port_are_not_accused() -> None:
    assert beside(("train", [0, 2], "2MiB"), ("noise", [1, 3], "2MiB")).diagnosis == []


def test_a_fault_is_named_beside_contention() -> None:
    slow = {"kind": "slow_receiver", "target": "nic-2-0", "rate": "20G"}
    found = beside(("train", [0, 2], "2MiB"), ("noise", [1, 2], "2MiB"), faults=[slow]).diagnosis
    assert named(found)[0] == ("slow_receiver", "nic-2-0")
    assert {("contention", "noise"), ("contention", "train")} <= {*named(found)}
