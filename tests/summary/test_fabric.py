"""Do counters add up to links, drops, imbalance, and what each fault did?"""

from pathlib import Path
from typing import Any

import pytest

from actors.kernel.device import Series
from emu import api
from emu.base.errors import ScenarioError
from emu.base.units import parse_time
from emu.counts.collected import DeviceRecord, FaultPlan, Sample
from emu.counts.counts import Counts
from emu.results.summary import Flow, Job
from emu.scenario.resolve import build_topology
from emu.summary.fabric import LinkLosses, fabric_of, fault_rows, losses_by_fault, ran_ps
from emu.summary.jobs import flow_times
from tests.fabric.sections import graph, scenario
from tests.scenario.plain import plain
from tests.summary.handmade import Counter, fabric, record
from tests.summary.known import known

MS_PS = 10**9
UP = (2, 3)
"""The ports of a leaf that lead to the spines."""


def test_each_direction_of_a_link_is_what_its_sender_counted() -> None:
    topology = fabric()
    counters: list[Counter] = [
        ("port_transmit_bytes", 2, -1, "", 1_250_000),
        ("port_transmit_payload_bytes", 2, -1, "", 1_200_000),
        ("pfc_paused_ps", 2, 3, "", 250_000_000),
        ("pfc_paused_ps", 2, 6, "", 100_000_000),
    ]
    found = fabric_of(topology, Counts([record(topology, "rtsw-0", counters)]), MS_PS)
    up = next(link for link in found.links if (link.source, link.destination) == ("rtsw-0", "ctsw-0"))
    down = next(link for link in found.links if (link.source, link.destination) == ("ctsw-0", "rtsw-0"))
    # 1.25 MB at 100G take 100 us of 1 ms; the most paused priority was stopped for a quarter of it.
    assert (up.data_bytes, up.wire_bytes, up.utilisation) == (1_200_000, 1_250_000, 0.1)
    assert (up.paused, up.paused_ps) == (0.25, 250_000_000)
    assert (down.wire_bytes, down.utilisation, down.paused_ps) == (0, 0.0, 0)
    assert found.pfc_paused_ps == 350_000_000


def test_links_of_devices_that_did_anything_are_listed_in_both_directions_and_no_host_link() -> None:
    topology = fabric()
    leaves = [record(topology, f"rtsw-{at}", [("port_receive_frames", 0, -1, "", 1)]) for at in range(2)]
    assert fabric_of(topology, Counts([]), MS_PS).links == []
    # Two NICs and two spines; then 4 NICs and 2 leaves x 2 spines.
    for busy, count in ((leaves[:1], 2 + 2), (leaves, 4 + 4)):
        found = fabric_of(topology, Counts(busy), MS_PS)
        assert len(found.links) == 2 * count
        assert not any("host" in link.name or "gpu" in link.name for link in found.links)


def test_congestion_drops_are_kept_apart() -> None:
    topology = fabric()
    records = [
        record(
            topology,
            "rtsw-0",
            [
                ("port_dropped_frames", 0, -1, "no_shared_room", 3),
                ("port_dropped_frames", 1, -1, "headroom_overrun", 2),
                ("port_dropped_frames", 0, -1, "no_route", 7),
                ("port_dropped_frames", 0, -1, "link_down", 0),
            ],
        ),
        record(topology, "nic-0-0", [("port_dropped_frames", 0, -1, "link_down", 5)]),
    ]
    drops = known(fabric_of(topology, Counts(records), MS_PS).drops)
    assert (drops.total, drops.congestion) == (17, 5)
    assert drops.by_reason == {"headroom_overrun": 2, "link_down": 5, "no_route": 7, "no_shared_room": 3}


def test_imbalance_counts_idle_members() -> None:
    topology = fabric()
    records = [
        record(topology, "rtsw-0", [("port_transmit_payload_bytes", UP[0], -1, "", 300)]),
        record(topology, "rtsw-1", [("port_transmit_payload_bytes", port, -1, "", 100) for port in range(4)]),
    ]
    rows = fabric_of(topology, Counts(records), MS_PS).uplinks
    assert [(row.switch, row.members, row.idle, row.max_over_mean, row.data_bytes) for row in rows] == [
        ("rtsw-0", 2, 1, 2.0, 300),
        ("rtsw-1", 2, 0, 1.0, 200),
    ]


def test_imbalance_of_silent_uplinks_is_unknown() -> None:
    topology = fabric()
    one = record(topology, "rtsw-1", [("port_receive_frames", 0, -1, "", 1)])
    rows = fabric_of(topology, Counts([one]), MS_PS).uplinks
    assert [(row.switch, row.max_over_mean) for row in rows] == [("rtsw-1", None)]


def test_groups_that_do_not_lead_up_are_listed_where_they_carried_payload() -> None:
    cables = [("nic-0", "left"), ("nic-1", "right"), ("left", "right"), ("left", "right"), ("left", "right")]
    topology = build_topology(scenario(graph(cables)))
    counters: list[Counter] = [
        ("port_transmit_payload_bytes", port, -1, "", port * 1000) for port in (0, 1, 2)
    ]
    found = fabric_of(topology, Counts([record(topology, "left", counters)]), MS_PS)
    (row,) = found.groups
    assert (row.switch, row.members, row.idle) == ("left", 3, 1)
    assert (row.loads, row.towards) == ([1000, 2000, 0], ["right"] * 3)
    assert (row.data_bytes, row.max_over_mean) == (3000, 2.0)
    assert found.uplinks == []


def test_uplinks_are_no_other_group() -> None:
    topology = fabric()
    counters: list[Counter] = [("port_transmit_payload_bytes", port, -1, "", 1000) for port in UP]
    found = fabric_of(topology, Counts([record(topology, "rtsw-0", counters)]), MS_PS)
    assert found.groups == []


def test_peak_buffer_names_its_switch() -> None:
    topology = fabric()
    records = [
        record(topology, "rtsw-0", [("buffer_peak_bytes", -1, -1, "", 100)]),
        record(topology, "rtsw-1", [("buffer_peak_bytes", -1, -1, "", 900)]),
    ]
    found = fabric_of(topology, Counts(records), MS_PS)
    assert (found.buffer_peak_bytes, found.buffer_peak_switch) == (900, "rtsw-1")


LOST = Series("port_dropped_frames", 2, -1, "link_down")


def losses(at_end: int, *sampled: tuple[int, int]) -> LinkLosses:
    """Losses of rtsw-0:ctsw-0, counted by rtsw-0 at the end and at sampled times."""
    topology = fabric()
    leaf = topology.node_named("rtsw-0").number
    last = DeviceRecord(leaf, (), 0, 0, 0, series=[LOST], counters=[at_end])
    samples = [Sample(at_ps, {leaf: [lost]}) for at_ps, lost in sampled]
    spine = topology.node_named("ctsw-0").number
    other = DeviceRecord(spine, (), 0, 0, 0, series=[], counters=[])
    return LinkLosses(topology, [last, other], samples)


def down(at_ps: int, until_ps: int | None = None) -> FaultPlan:
    links = fabric().links_named("rtsw-0:ctsw-0")
    return FaultPlan("link_down", "rtsw-0:ctsw-0", at_ps, until_ps, links)


def test_single_fault_has_all_losses_of_its_link() -> None:
    (effect,) = fault_rows([down(300, 500)], losses(12), 1000)
    assert (effect.frames_lost, effect.happened, effect.at_ps, effect.until_ps) == (12, True, 300, 500)


def test_fault_after_the_end_did_nothing() -> None:
    (effect,) = fault_rows([down(300)], losses(0), 300)
    assert (effect.frames_lost, effect.happened) == (0, False)


def test_sample_between_two_faults_tells_their_losses_apart() -> None:
    faults = [down(100, 200), down(400, 500)]
    assert losses_by_fault(faults, losses(12, (300, 5))) == [5, 7]


def test_without_a_sample_between_them_the_earlier_fault_has_all() -> None:
    faults = [down(100, 200), down(400, 500), down(600, 700)]
    assert losses_by_fault(faults, losses(12, (150, 1), (550, 9))) == [9, 0, 3]


def test_faults_are_kept_apart_in_whatever_order_they_are_written() -> None:
    faults = [down(400, 500), down(100, 200)]
    assert losses_by_fault(faults, losses(12, (300, 5))) == [7, 5]


def test_losses_of_a_device_that_was_lost_with_its_worker_are_left_out() -> None:
    assert losses_by_fault([down(300, 500)], LinkLosses(fabric(), [], [])) == [0]


def test_a_counter_that_stayed_at_zero_is_named_and_takes_no_room() -> None:
    topology = fabric()
    counters: list[Counter] = [
        ("port_dropped_frames", 0, -1, "no_route", 0),
        ("pfc_transmit_xoff_frames", 0, 3, "", 0),
        ("pfc_transmit_xoff_frames", 1, 3, "", 2),
    ]
    counts = Counts([record(topology, "rtsw-0", counters)])
    assert counts.of_reason == {"no_route": 0}
    assert counts.of_metric == {"port_dropped_frames": 0, "pfc_transmit_xoff_frames": 2}
    number = topology.node_named("rtsw-0").number
    assert counts.counters(number) == {("pfc_transmit_xoff_frames", 1, 3, ""): 2}
    assert counts.ports("pfc_transmit_xoff_frames") == [(number, 1)]
    assert counts.ports("port_dropped_frames") == []


LINE_RATE: dict[str, Any] = {
    "name": "full",
    "topology": {"kind": "star", "hosts": 2, "link": "100G"},
    "host": {"nic_link_delay": "auto"},
    "jobs": [{"name": "job", "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "2MiB"}]}}],
}
WIRE_PS = (512 * 4178 + 16) * 80
"""Of 512 full frames at 100G, the first with the header of an RDMA WRITE."""


@pytest.mark.parametrize("delay", ["5us", "100us", "1ms"])
def test_a_link_that_is_full_while_the_job_runs_is_shown_as_full(delay: str) -> None:
    summary = api.run(LINE_RATE | {"control": {"management_delay": delay}}, local=True).summary
    job = summary.jobs["job"]
    took_ps = (job.end_ps or 0) - (job.start_ps or 0)
    up = next(one for one in summary.fabric.links if one.source == "nic-0-0")
    assert summary.fabric.ran_ps == took_ps < summary.virtual_ps
    assert up.utilisation == round(WIRE_PS / took_ps, 6) > 0.97
    (tier,) = summary.fabric.tiers
    # One of two links, in each direction.
    assert tier.up_utilisation == pytest.approx(up.utilisation / 2, rel=0.03)
    assert tier.up_bps == tier.down_bps == 2**21 * 8 * 10**12 // took_ps


def test_a_paused_share_is_of_the_time_in_which_the_job_ran() -> None:
    storm = {"kind": "pause_storm", "target": "tor-0>nic-0-0", "at": "220us", "for": "60us"}
    summary = api.run(LINE_RATE | {"faults": [storm]}, local=True).summary
    up = next(one for one in summary.fabric.links if one.source == "nic-0-0")
    assert up.paused == pytest.approx(60e6 / (summary.fabric.ran_ps or 1), rel=0.01)
    (tier,) = summary.fabric.tiers
    assert (tier.up_xoff_frames, tier.down_xoff_frames) == (0, 2)


def test_jobs_that_overlap_count_once_and_the_time_between_them_does_not() -> None:
    def job(begin: int | None, end: int | None, status: str = "success") -> Job:
        return Job.model_construct(start_ps=begin, end_ps=end, status=status)

    jobs = [job(100, 300), job(200, 400), job(250, 260), job(600, 700)]
    assert ran_ps(jobs, 1000, repeat=False) == 300 + 100
    assert ran_ps(jobs, 1000, repeat=True) == 900
    assert ran_ps([*jobs, job(650, 660, "retry_exceeded")], 1000, repeat=False) == 300 + 400
    assert ran_ps([job(None, None, "unfinished")], 1000, repeat=False) == 1000
    assert ran_ps([job(None, None, "disabled")], 1000, repeat=False) == 0


def test_percentiles_of_flows_are_those_of_the_rank_that_covers_them() -> None:
    flows = [Flow.model_construct(start_ps=7, delivered_ps=7 + ps) for ps in range(1000, 0, -1)]
    found = flow_times([*flows, Flow.model_construct(start_ps=7, delivered_ps=None)])
    assert found is not None
    assert list(found.model_dump().values()) == [1000, 500, 900, 990, 999, 1000]
    assert flow_times([]) is None


STEADY: dict[str, Any] = {
    "name": "steady",
    "topology": {"kind": "star", "hosts": 2, "link": "400G"},
    "jobs": [{"name": "job", "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "4MiB"}]}}],
}


@pytest.mark.parametrize("span", [{"at": "20us", "for": "40us"}, {"at": "33333ns", "for": "33333ns"}])
def test_a_span_has_the_rates_of_its_time_alone(span: dict[str, str], tmp_path: Path) -> None:
    mapping = plain(STEADY | {"run": {"span": span}})
    result = api.run(mapping, local=True, diagnose=False, out=tmp_path / "run")
    # A run that is resumed behind the span takes its begin from there.
    assert b"port_transmit_payload_bytes" in (tmp_path / "run/samples.jsonl").read_bytes()
    found = result.summary.fabric.span
    assert found is not None
    at_ps, for_ps = parse_time(span["at"]), parse_time(span["for"])
    assert (found.from_ps, found.until_ps) == (at_ps, at_ps + for_ps)
    # A flow at line rate: packets of 4,096 B, 4,178 B on the wire. One may be counted at either end.
    packet = 4178 * 20 / for_ps
    (tier,) = found.tiers
    for rate_bps in (tier.up_bps or 0, tier.down_bps or 0, found.delivered_bps):
        assert rate_bps / 400e9 == pytest.approx(4096 / 4178, abs=packet)
    # Both hosts have a link, and ACKs of 86 B take the other way.
    assert tier.up_utilisation == pytest.approx((1 + 86 / 4178) / 2, abs=packet)
    whole = result.summary.fabric.tiers[0]
    assert (whole.up_utilisation or 0) < (tier.up_utilisation or 0)
    assert api.run(plain(STEADY), local=True, diagnose=False).outcome.digest == result.outcome.digest


def test_a_span_ends_with_the_run_and_one_behind_it_never_fired() -> None:
    late, never = (
        api.run(
            plain(STEADY | {"run": {"span": {"at": at, "for": "1s"}}}), local=True, diagnose=False
        ).summary
        for at in ("60us", "1s")
    )
    assert late.fabric.span is not None
    assert late.fabric.span.until_ps == late.virtual_ps
    assert never.fabric.span is None
    assert "run.span" in [one.feature for one in never.never_fired]
    with pytest.raises(
        ScenarioError, match=r"run.span.at: .*the run ends at 1ms .*accepted: an earlier time"
    ):
        api.load(plain(STEADY | {"run": {"span": {"at": "2ms", "for": "1us"}, "max_time": "1ms"}}))
