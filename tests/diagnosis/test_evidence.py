"""What a run counted of losses, reordering and timers is told, and every sentence holds by its counters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu import api
from emu.results.summary import Counterfactual, Summary
from emu.summary.summary_report import closing_lines
from emu.views.diagnosis.finding import CONTENTION, EVIDENCE, TIMER_SHORT, Finding
from emu.views.diagnosis.healing import Run, accused
from tests.diagnosis.broken_runs import named
from tests.scenario.plain import plain

STAR = {"kind": "star", "hosts": 5, "gpus_per_host": 1, "link": "100G"}


def run(**mapping: Any) -> Summary:
    """A run of a scenario, diagnosed."""
    return api.run(plain({"name": "evidence", "topology": STAR} | mapping), local=True).summary


def incast(size: str) -> list[dict[str, Any]]:
    """Four flows into one port."""
    return [{"name": "train", "workload": {"kind": "incast", "size": size, "fan_in": 4}}]


def flows(name: str, ranks: list[int], *ends: tuple[int, int], **more: Any) -> dict[str, Any]:
    """A job of flows."""
    made = [{"src": source, "dst": target, "size": "512KiB"} for source, target in ends]
    return {"name": name, "ranks": ranks, "workload": {"kind": "flows", "flows": made}} | more


def test_a_timer_below_the_loaded_round_trip_is_a_cause_and_reported_before_the_run() -> None:
    """A first packet waits behind 256 KiB of two others, 21 us, and the timer is 8.192 us."""
    late = flows("late", [2, 4], (0, 1), start="40us")
    load = flows("load", [0, 1, 4], (0, 2), (1, 2))
    summary = run(transport={"timeout": 1, "retry_count": 0}, jobs=[load, late])
    assert summary.jobs["late"].status == "retry_exceeded"
    first = summary.diagnosis[0]
    assert (first.cause, first.place) == (TIMER_SHORT, "nic-2-0")
    assert "1 timer of queue pairs expired after 8.192us though nothing was dropped" in first.sentence
    assert first.sentence.endswith("with transport.timeout 20, late would not fail")
    assert all("no port" not in one.sentence for one in summary.diagnosis)
    assert any(line.startswith("timers: 1 expired, the first of nic-2-0") for line in closing_lines(summary))


def test_what_was_not_done_when_the_comparison_ended_did_not_fail_within_that_time() -> None:
    broke = Run({}, {"train": "stalled"}, {})
    suspect = Finding("link_down", "a:b", 900, "down")

    def emulate(suspects: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        return Counterfactual(
            healed=[], jobs={}, failed={}, alarms={}, under_way=["train"], until_ps=5_000_000
        )

    (one,), _, _ = accused(broke, [suspect], emulate)
    assert one.words() == "with a:b as built, train did not fail within 5us"


def test_a_job_that_was_not_done_when_its_run_ended_has_not_failed() -> None:
    """A live run that somebody ends, or one that comes to no end."""
    stood = Run({}, {"train": "stalled", "broken": "failed"}, {}, ["train"])
    suspect = Finding("link_down", "a:b", 900, "down")

    def emulate(suspects: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        return Counterfactual(healed=[], jobs={"train": 5, "broken": 5}, failed={}, alarms={})

    (one,), _, _ = accused(stood, [suspect], emulate)
    assert one.words() == "with a:b as built, broken would not fail, train would come to an end"


def test_losses_that_are_meant_are_reported_though_nothing_was_compared() -> None:
    spoilt = run(link={"bit_error_rate": 1e-7}, jobs=[flows("train", [0, 1], (0, 1), (1, 0))] * 1)
    if spoilt.fabric.nic_out_of_sequence:
        assert [one.cause for one in spoilt.diagnosis] == ["bit_errors"]
    dropped = run(
        switch={"pfc": {"enabled": False}, "buffer": {"pool": "256KiB"}},
        transport={"timeout": 4},
        jobs=incast("256KiB"),
    )
    assert named(dropped.diagnosis)[0] == ("drops", "tor-0")


NUMBERS = re.compile(r"([0-9,]+) (timer|frame|packet)")


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "lossy",
    [
        {"link": {"bit_error_rate": 2e-7}},
        {"switch": {"pfc": {"enabled": False}, "buffer": {"pool": "256KiB"}}},
        {"transport": {"timeout": 1}},
    ],
    ids=["errors", "drops", "timers"],
)
def test_every_number_in_a_sentence_is_one_that_was_counted(seed: int, lossy: dict[str, Any]) -> None:
    lossy = {"transport": {"timeout": 3}} | lossy
    result = api.run(
        plain({"name": "evidence", "topology": STAR, "seed": seed, "jobs": incast("256KiB")} | lossy),
        local=True,
    )
    counts: dict[str, int] = {}
    timers = 0
    for record in result.outcome.devices:
        for series, value in zip(record.series, record.counters, strict=True):
            counts[series.metric] = counts.get(series.metric, 0) + value
    timers = counts["nic_local_ack_timeout_err"] + counts.get("nic_roce_adp_retrans", 0)
    known = {
        "timer": {timers},
        "frame": {counts["port_dropped_frames"]},
        "packet": {
            counts[f"nic_{name}"] for name in ("duplicate_request", "out_of_sequence", "retransmitted_frames")
        },
    }
    reported = [one.sentence for one in result.summary.diagnosis if one.cause in (TIMER_SHORT, *EVIDENCE)]
    assert (result.summary.fabric.timers is not None) == (timers > 0)
    if result.summary.fabric.timers is not None:
        reported.append(result.summary.fabric.timers.why)
    for sentence in reported:
        for number, noun in NUMBERS.findall(sentence):
            assert int(number.replace(",", "")) in known[noun], sentence


@pytest.mark.parametrize("beyond", [False, True])
def test_a_timer_that_waits_for_what_a_component_delays_is_reported_for_what_it_costs_beyond(
    beyond: bool,
) -> None:
    """The component takes 500 of 1,500, and the timer as much, but not from what the component leaves."""
    timer = Finding(TIMER_SHORT, "nic-0-0", 700, "")
    delay = Finding("delayed_link", "a:b", 840, "")

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        took = 1500 if not healed else 700 if beyond and len(healed) > 1 else 1000
        return Counterfactual(healed=[], jobs={"train": took}, failed={}, alarms={})

    found, _, _ = accused(Run({"train": 1500}, {}, {}), [delay, timer], emulate)
    assert [one.finding.cause for one in found] == ["delayed_link", *[TIMER_SHORT] * beyond]
    assert all(one.beside == (delay,) for one in found[1:])


@given(st.integers(6, 20), st.sets(st.integers(0, 19), max_size=3))
@settings(max_examples=40, deadline=None)
def test_of_many_suspects_those_that_cost_time_are_found_by_groups(count: int, costly: set[int]) -> None:
    """Each of the costly makes the job a half longer; the others make no difference."""
    suspects = [Finding("link_flap", f"a:{at}", 900 - at, "") for at in range(count)]
    costly = {at for at in costly if at < count}
    runs: list[int] = []

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        runs.append(len(healed))
        left = costly - {int(one.place[2:]) for one in healed}
        return Counterfactual(healed=[], jobs={"train": 1000 + 500 * len(left)}, failed={}, alarms={})

    found, beyond, untried = accused(Run({"train": 1000 + 500 * len(costly)}, {}, {}), suspects, emulate)
    assert {one.finding.place for one in found} == {f"a:{at}" for at in costly}
    assert (beyond, untried) == ([], 0)
    if not costly:
        assert runs[0] == count  # all at once


def test_two_neighbours_that_hide_each_other_are_named_together() -> None:
    suspects = [Finding(CONTENTION, name, 400, "") for name in ("train", "left", "right")]

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        gone = {one.place for one in healed}
        jobs = {
            "train": 1000 if {"left", "right"} <= gone else 2210,
            "left": 900 if "train" in gone else 1000,
            "right": 1000,
        }
        return Counterfactual(
            healed=[],
            jobs={name: took for name, took in jobs.items() if name not in gone},
            failed=dict.fromkeys(sorted(gone), "failed"),
            alarms={},
            left_out=" and ".join(sorted(gone)),
        )

    times = {"train": 2210, "left": 1000, "right": 1000}
    found, _, _ = accused(Run(times, {}, {}), suspects, emulate)
    assert (found[0].finding.place, [one.place for one in found[0].beside]) == ("left", ["right"])
    assert found[0].words().startswith("without left and right, train would take 1ns in place of 2.21ns")


@pytest.mark.parametrize("stands", [True, False])
def test_in_a_chaotic_run_a_small_gain_has_to_stand_with_a_nanosecond_more(stands: bool) -> None:
    suspect = Finding("delayed_link", "a:b", 840, "")

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        took = 1000 if healed or (nudge_ns and not stands) else 1064
        return Counterfactual(healed=[], jobs={"train": took}, failed={}, alarms={"nic_out_of_sequence": 9})

    chaotic = Run({"train": 1064}, {}, {"nic_out_of_sequence": 9})
    found, _, _ = accused(chaotic, [suspect], emulate)
    assert len(found) == stands
    steady = Run({"train": 1064}, {}, {"nic_out_of_sequence": 0})
    assert len(accused(steady, [suspect], emulate)[0]) == 1


@pytest.mark.parametrize(
    ("cause", "status", "nearby", "mended"),
    [
        ("gpu_lost", "gpu_lost", "", True),
        ("gpu_lost", "gpu_lost", "retry_exceeded", True),  # of a link
        ("gpu_lost", "gpu_lost", "gpu_lost", False),
        ("host_lost", "host_lost", "retry_exceeded", True),
        ("link_down", "retry_exceeded", "retry_exceeded", False),
        ("link_down", "retry_exceeded", "timed_out", False),
        ("gpu_lost", "retry_exceeded", "timed_out", False),
    ],
)
def test_in_a_chaotic_run_a_job_is_mended_unless_what_is_healed_may_have_failed_it(
    cause: str, status: str, nearby: str, mended: bool
) -> None:
    """With the suspect as built the job ends, and at nearby delays it ends or fails in some way. Without, it
    fails at one of these in another way."""
    suspect = Finding(cause, "gpu-1-0", 970, "")

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        bad = "timed_out" if nudge_ns == 100 else status
        failed = (nearby if nudge_ns else "") if healed else bad
        named = {"train": failed} if failed else {}
        return Counterfactual(healed=[], jobs={}, failed=named, alarms={"nic_out_of_sequence": 9})

    chaotic = Run({}, {"train": status}, {"nic_out_of_sequence": 9})
    assert bool(accused(chaotic, [suspect], emulate)[0]) == mended


@pytest.mark.parametrize("independent", [True, False])
def test_beside_two_that_only_help_together_one_is_accused_that_still_gives_something_back(
    independent: bool,
) -> None:
    """Either of two stops `train`; a timer expired because of them, or slows `other` on its own."""
    first, second = (Finding("gpu_lost", name, 970, "") for name in ("gpu-0-0", "gpu-1-0"))
    timer = Finding(TIMER_SHORT, "nic-0-0", 700, "")

    def emulate(healed: Sequence[Finding], nudge_ns: int = 0) -> Counterfactual | None:
        well = {first, second} <= {*healed}
        late = timer not in healed and (independent or not well)
        jobs = {"other": 2000 if late else 1000} | ({"train": 10} if well else {})
        return Counterfactual(healed=[], jobs=jobs, failed={} if well else {"train": "gpu_lost"}, alarms={})

    found, _, _ = accused(Run({"other": 2000}, {"train": "gpu_lost"}, {}), [first, second, timer], emulate)
    assert [one.finding for one in found] == [first, second, *([timer] if independent else [])]
