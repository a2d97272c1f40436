"""Does the end of a run tell what matters, and nothing that did not happen?"""

import pytest

from emu import api
from emu.base.units import about_rate, about_size, about_time, aligned
from emu.results.summary import Diagnosed, Expectation, FaultEffect, Flow, GroupLoad
from emu.summary.summary_report import (
    balance_lines,
    busiest_links,
    closing_lines,
    expectation_line,
    fault_lines,
    flow_lines,
    most_paused_links,
    verdict_line,
)
from emu.views.reports.summary_html import summary_html
from tests.summary.handmade import all_reduce_plan, fabric, record, summary

HELD = Expectation(value="drops.total", relation="equals", expected=0, actual=0, passed=True, reason="")
MISSED = HELD.model_copy(update={"passed": False, "actual": 1, "reason": "1 is not 0"})
CAUSE = Diagnosed(
    cause="link_down",
    place="a:b",
    score=900,
    since_ps=0,
    sentence="link a:b was down",
    evidence=[],
    back_ps=1_000_000,
    back=0.25,
)
UNMEASURED = CAUSE.model_copy(update={"back_ps": None, "back": None})
DONE = {"operations": [[0, 0, 0, 100_000_000, 0]]}


def test_quantities_are_shown_to_four_digits() -> None:
    assert about_time(1_167_760) == "1.168us"
    assert about_time(0) == "0ps"
    assert about_time(5_431 * 10**6) == "5.431ms"
    assert about_size(6_000_000) == "5.722MiB"
    assert about_size(1023) == "1023B"
    assert about_rate(187_616_324_063) == "187.6Gbps"


def test_columns_are_aligned() -> None:
    assert aligned([("", "data"), ("a -> b", "1B")]) == ["          data", "  a -> b    1B"]


def test_busiest_and_most_paused_links_are_five_and_leave_out_the_idle() -> None:
    topology = fabric()
    records = [
        record(
            topology,
            name,
            [("port_transmit_bytes", port, -1, "", 1000 * (port + 1)) for port in range(4)]
            + [("pfc_paused_ps", 0, 3, "", paused_ps)],
        )
        for name, paused_ps in (("rtsw-0", 5), ("rtsw-1", 7))
    ]
    links = summary(records, [all_reduce_plan()]).fabric.links
    assert [(link.source, link.wire_bytes) for link in busiest_links(links)] == [
        ("rtsw-0", 4000),
        ("rtsw-1", 4000),
        ("rtsw-0", 3000),
        ("rtsw-1", 3000),
        ("rtsw-0", 2000),
    ]
    assert [(link.source, link.paused_ps) for link in most_paused_links(links)] == [
        ("rtsw-1", 7),
        ("rtsw-0", 5),
    ]


def test_fault_says_what_it_did() -> None:
    effects = [
        FaultEffect(
            kind="link_down",
            target="a:b",
            at_ps=10**6,
            until_ps=3 * 10**6,
            happened=True,
            times=1,
            frames_lost=4,
        ),
        FaultEffect(
            kind="link_up", target="a:b", at_ps=10**9, until_ps=None, happened=False, times=0, frames_lost=0
        ),
    ]
    assert fault_lines(effects) == [
        "fault 0: link_down a:b at 1us to 3us: 4 frames lost",
        "fault 1: link_up a:b at 1ms: after the end of the run",
    ]


@pytest.mark.parametrize(
    ("kind", "times", "lost", "reported"),
    [
        ("switch_crash", 1, 0, "0 frames lost"),
        ("link_flap", 3, 7, "3 times, 7 frames lost"),
        ("gpu_slow", 1, 0, "took effect"),
        ("degrade", 2, 0, "2 times"),
    ],
)
def test_frames_lost_are_reported_of_what_takes_links_down(
    kind: str, times: int, lost: int, reported: str
) -> None:
    effect = FaultEffect(
        kind=kind,
        target="x",
        at_ps=634_155_860,
        until_ps=None,
        happened=True,
        times=times,
        frames_lost=lost,
    )
    assert fault_lines([effect]) == [f"fault 0: {kind} x at 634.2us: {reported}"]


def test_expectation_shows_the_value_in_the_unit_it_was_asked_in() -> None:
    good = Expectation(
        value="jobs.a.collectives[0].busbw",
        relation="at_least",
        expected="6.25GB/s",
        actual=51_500_000_000,
        passed=True,
        reason="",
    )
    bad = good.model_copy(update={"passed": False, "reason": "5GB/s is less than 6.25GB/s"})
    assert expectation_line(good) == "PASS jobs.a.collectives[0].busbw at_least 6.25GB/s: is 6.438GB/s"
    span = good.model_copy(update={"relation": "between", "expected": "6.25GB/s and 7.5GB/s"})
    assert expectation_line(span).endswith("between 6.25GB/s and 7.5GB/s: is 6.438GB/s")
    assert (
        expectation_line(bad)
        == "FAIL jobs.a.collectives[0].busbw at_least 6.25GB/s: 5GB/s is less than 6.25GB/s"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "DONE hand: no expectations"),
        ({"expectations": [HELD]}, "PASS hand: 1 expectation met"),
        ({"expectations": [HELD, MISSED]}, "FAIL hand: 1 of 2 expectations failed"),
        ({"ending": "stalled"}, "FAIL hand: the run stalled"),
        (
            {"expectations": [HELD], "diagnosis": [CAUSE]},
            "PASS hand: 1 expectation met; cause: link_down at a:b, 1us (25.0%) back",
        ),
        (
            {
                "expectations": [MISSED],
                "diagnosis": [CAUSE.model_copy(update={"back_ps": None, "back": None})],
            },
            "FAIL hand: 1 of 1 expectation failed; cause: link_down at a:b",
        ),
    ],
)
def test_the_first_line_after_a_run_is_its_verdict(changes: dict[str, object], said: str) -> None:
    topology = fabric()
    whole = summary([record(topology, "controller", [], DONE)], [all_reduce_plan()])
    named = {"scenario": whole.scenario.model_copy(update={"name": "hand"}), "expectations": []}
    told = whole.model_copy(update={**named, **changes})
    assert verdict_line(told) == said
    assert closing_lines(told)[0] == said


def test_flows_are_one_line_a_job() -> None:
    def flow(number: int, delivered_ps: int | None) -> Flow:
        return Flow(
            flow=number,
            source="a",
            destination="b",
            bytes=2**20,
            start_ps=0,
            delivered_ps=delivered_ps,
            completed_ps=None,
            throughput_bps=None,
            status="success" if delivered_ps else "unfinished",
        )

    flows = [flow(0, 10**6), flow(1, 3 * 10**6), flow(2, 2 * 10**6), flow(3, None)]
    assert flow_lines("bench", flows) == [
        "# bench: 3 of 4 flows delivered, 1MiB each; first at 1us, median 2us, last 3us"
    ]


def test_of_many_groups_the_most_uneven_are_shown_and_the_others_counted() -> None:
    def group(at: int) -> GroupLoad:
        return GroupLoad(
            switch=f"rtsw-{at}",
            members=2,
            idle=0,
            data_bytes=200,
            max_over_mean=1 + at / 100,
            towards=["a", "b"],
            loads=[100 + at, 100 - at],
        )

    lines = balance_lines("uplinks", [group(at) for at in range(40)])
    assert lines[1].split("   ")[0].strip() == "rtsw-16 1.16 (0 of 2 idle)"
    assert lines[12].endswith("rtsw-39 1.39 (0 of 2 idle)")
    assert lines[13:] == [
        "  16 more at 1.15 or below; all are in summary.json",
        "  most uneven rtsw-39: most to a 139B, least to b 61B",
    ]


def test_closing_lines_have_a_line_for_each_story() -> None:
    topology = fabric()
    records = [
        record(topology, "controller", results=DONE),
        record(
            topology,
            "rtsw-0",
            [("port_transmit_bytes", 2, -1, "", 5000), ("port_transmit_payload_bytes", 2, -1, "", 4096)],
        ),
    ]
    one = summary(
        records,
        [all_reduce_plan()],
        expect=[{"value": "drops.total", "equals": 0}, {"value": "pfc_transmit_xoff_frames", "at_least": 1}],
    )
    text = "\n".join(closing_lines(one))
    assert "busiest links" in text
    assert "most paused links" not in text
    assert "rtsw-0 2.00 (1 of 2 idle)" in text
    assert "never fired: switch.pfc" in text
    assert "PASS drops.total equals 0: is 0" in text
    assert "FAIL pfc_transmit_xoff_frames at_least 1: 0 is less than 1" in text
    assert text.endswith("digest " + "d" * 64)


def test_nics_that_carried_nothing_are_counted_under_the_table() -> None:
    """One channel in the ranks' order leaves each server by one NIC and enters it by another."""
    given = {
        "name": "idle",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 4, "spines": 1},
        "ncclx": {"channels": 1, "protocol": "simple"},
        "jobs": [
            {
                "name": "bench",
                "workload": {
                    "kind": "collective",
                    "op": "all_reduce",
                    "algorithm": "ring",
                    "sizes": ["64KiB"],
                },
            }
        ],
    }
    reported = api.run(given, local=True).summary
    idle = "2 of 4 NICs of host-0 carried nothing: nic-0-1, nic-0-2; 1 other server has idle NICs too"
    assert reported.jobs["bench"].idle_nics == idle
    assert f"# bench: {idle}" in closing_lines(reported)
    assert idle in summary_html(reported, "ended")
    spread = api.run(
        given, local=True, overrides={"ncclx.channels": 4, "jobs[0].workload.sizes": ["1MiB"]}
    ).summary
    assert spread.jobs["bench"].idle_nics == ""
    inside = api.run(given, local=True, overrides={"jobs[0].ranks": 4}).summary
    assert inside.jobs["bench"].idle_nics == ""
