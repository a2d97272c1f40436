"""What is said of a few counters and log lines, written by hand, that no run brings about at will?

Two racks of two servers with one GPU each, two spines (`tests.summary.handmade`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from actors.wire.message import STATUS_FLUSHED, STATUS_RETRY_EXCEEDED, STATUS_SUCCESS
from emu.counts.device_state import PAIR_ERROR, Place, Shown
from emu.results.summary import Counterfactual, Job
from emu.views.diagnosis import bad_links, contention, lost_links, pauses
from emu.views.diagnosis.finding import CONTENTION, Finding
from emu.views.diagnosis.healing import Run, accused
from emu.views.diagnosis.impact import slowdown_permille
from emu.views.diagnosis.view import Moves, View
from tests.summary.handmade import all_reduce_plan, fabric, scenario, summary

US = 10**6
TOPOLOGY = fabric()
NIC = TOPOLOGY.node_named("nic-0-0").number
LEAF = TOPOLOGY.node_named("rtsw-0").number
SPINE = TOPOLOGY.node_named("ctsw-1").number
CABLE = next(at for at, end in enumerate(TOPOLOGY.ports(NIC)) if end.peer == LEAF)
UP = next(at for at, end in enumerate(TOPOLOGY.ports(LEAF)) if end.peer == SPINE)
DOWN = TOPOLOGY.ports(LEAF)[UP].peer_port


def view(*shown: Shown) -> View:
    """What an operator sees where devices show this."""
    return View(scenario(), TOPOLOGY, [all_reduce_plan()], summary([]), shown, Moves(), {})


def slowed(since_us: int, *spans_us: tuple[int, int]) -> int | None:
    """By how much the all_reduces of a job that began and ended then became slower."""
    rows = [[0, at, begin * US, end * US, int(STATUS_SUCCESS)] for at, (begin, end) in enumerate(spans_us)]
    seen = view(Shown(TOPOLOGY.controller, {}, {"operations": rows}))
    return slowdown_permille(seen, all_reduce_plan(len(rows)), since_us * US)


def test_what_an_operation_takes_beyond_the_median_before_is_what_the_job_lost() -> None:
    # 200 us and 300 us in place of 100 us twice: 300 us lost of 700, which should have been 400.
    assert slowed(200, (0, 100), (100, 200), (200, 400), (400, 700)) == 750


def test_an_operation_under_way_when_a_fault_begins_belongs_to_what_came_after() -> None:
    # The third began before the fault and took 100 us more than it should: 100 of 300.
    assert slowed(250, (0, 100), (100, 200), (200, 400)) == 333


@pytest.mark.parametrize(("longest_us", "known"), [(110, True), (111, False)])
def test_a_job_whose_times_varied_by_more_than_a_tenth_before_is_no_measure(
    longest_us: int, known: bool
) -> None:
    end = 100 + longest_us
    grown = slowed(end, (0, 100), (100, end), (end, end + 500))
    assert (grown is not None) == known


def causes(nic_errors: Sequence[tuple[int, int]], down_us: int = 50) -> list[str]:
    """What is said where a NIC's cable lost its signal; queue pairs went into error at (us, status)."""
    log = [
        [at * US, int(PAIR_ERROR), pair, 77 + pair, int(status), 0]
        for pair, (at, status) in enumerate(nic_errors)
    ]
    down = [1, down_us * US, -1]
    ends = [Shown(LEAF, {}, {"downs": [[TOPOLOGY.ports(NIC)[CABLE].peer_port, *down]]})]
    seen = view(Shown(NIC, {}, {"downs": [[CABLE, *down]], "log": log}), *ends)
    return [one.cause for one in lost_links.found(seen)]


def test_a_nic_was_reset_if_its_queue_pairs_failed_as_its_cable_lost_the_signal() -> None:
    assert causes([(50, STATUS_FLUSHED)]) == ["nic_reset"]
    assert causes([(51, STATUS_FLUSHED)]) == ["link_down"]


def test_queue_pairs_whose_retries_ran_out_at_that_instant_are_no_reset() -> None:
    assert causes([(50, STATUS_RETRY_EXCEEDED)]) == ["link_down"]


def unheard(sent: int, heard: int, overruns: int = 0, down: bool = False) -> list[str]:
    """What is said where a spine sent a leaf so many pauses, and the leaf heard so many."""
    spine: dict[Place, int] = {("pfc_transmit_xoff_frames", DOWN, 3, ""): sent}
    if overruns:
        spine["port_dropped_frames", DOWN, -1, "headroom_overrun"] = overruns
    spine["ingress_peak_bytes", DOWN, 3, ""] = 10**6
    leaf: dict[Place, int] = {("pfc_receive_xoff_frames", UP, 3, ""): heard} if heard else {}
    downs = {"downs": [[UP, 1, 5 * US, 6 * US]]} if down else {}
    return [one.cause for one in pauses.found(view(Shown(SPINE, spine, {}), Shown(LEAF, leaf, downs)))]


def test_pauses_that_a_port_did_not_hear_are_reported_unless_they_may_be_on_their_way() -> None:
    assert unheard(100, 10) == ["pause_loss"]
    assert unheard(100, 100) == []
    assert unheard(100, 99) == []
    assert unheard(100, 99, overruns=1) == ["pause_loss"]


def test_pauses_that_a_dead_link_lost_are_not_reported_as_lost() -> None:
    assert unheard(100, 10, down=True) == []


def degraded(meant: bool) -> list[str]:
    """What is said of a link on which frames arrive with a wrong FCS."""
    name = "rtsw-0:ctsw-1"
    given = [{"devices": name, "link": {"bit_error_rate": "1/1000000"}}] if meant else []
    shown = Shown(SPINE, {("port_dropped_frames", DOWN, -1, "corrupt"): 9}, {})
    seen = View(scenario(overrides=given), TOPOLOGY, [all_reduce_plan()], summary([]), [shown], Moves(), {})
    return [one.place for one in bad_links.found(seen)]


def test_a_link_that_was_meant_to_have_bit_errors_is_not_blamed_for_them() -> None:
    assert degraded(meant=False) == ["rtsw-0:ctsw-1"]
    assert degraded(meant=True) == []


@pytest.mark.parametrize(("held_bytes", "reported"), [(0, []), (1, ["bench", "beside"])])
def test_jobs_that_ran_together_met_where_a_port_held_more_than_four_frames(
    held_bytes: int, reported: list[str]
) -> None:
    # A frame of the largest: 4,096 bytes of payload, and 100 for headers and the wire.
    shown = Shown(LEAF, {("queue_peak_bytes", UP, 3, ""): 4 * (4096 + 100) + held_bytes}, {})
    nothing: dict[str, Any] = {"collectives": [], "flows": [], "training": None}
    job = Job(ranks=4, status="success", start_ps=0, end_ps=US, failures=[], suspects=[], **nothing)
    jobs = {"bench": job, "beside": job}
    plans = [all_reduce_plan()._replace(job=at, name=name) for at, name in enumerate(jobs)]
    ran = summary([]).model_copy(update={"jobs": jobs})
    seen = View(scenario(), TOPOLOGY, plans, ran, [shown], Moves(), {})
    assert [one.place for one in contention.found(seen)] == reported


def named_of(took_ps: dict[str, int], alarms: int, alarms_without: int) -> list[str]:
    """Who is accused of a train's 100 us and of timeouts, where healing a link, or leaving out a job beside
    it, leaves a time of `took_ps` and so many timeouts.
    """

    def emulate(suspects: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual:
        jobs = [one.place for one in suspects if one.cause == CONTENTION]
        return Counterfactual(
            healed=[],
            jobs={"train": min(took_ps[one.place] for one in suspects)},
            failed={},
            alarms={"nic_local_ack_timeout_err": alarms_without if jobs else alarms},
            left_out=" and ".join(jobs),
        )

    run = Run({"train": 100}, {}, {"nic_local_ack_timeout_err": alarms})
    suspects = [Finding("link_flap", "link", 900, ""), Finding(CONTENTION, "beside", 400, "")]
    return [one.finding.place for one in accused(run, suspects, emulate)[0]]


def test_no_job_is_accused_beside_a_component_that_explains_the_time() -> None:
    assert named_of({"link": 100, "beside": 50}, 0, 0) == ["beside"]
    assert named_of({"link": 50, "beside": 50}, 0, 0) == ["link"]


def test_alarms_that_a_job_takes_with_it_as_it_is_left_out_do_not_accuse_it() -> None:
    assert named_of({"link": 100, "beside": 100}, 9, 0) == []
