"""Is every feature that was configured in vain named, and no other?"""

import re
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.summary import unfired as unfired_rules
from tests.summary.handmade import all_reduce_plan, fabric, record, summary

MS_PS = 10**9
DONE = {"operations": [[0, 0, 0, 100_000_000, 0]]}


def unfired(**changes: Any) -> list[str]:
    topology = fabric()
    records = [
        record(topology, "controller", results=DONE),
        record(
            topology,
            "rtsw-0",
            [("port_transmit_payload_bytes", 2, -1, "", 1), ("pfc_transmit_xoff_frames", 0, 3, "", 1)],
        ),
    ]
    return [one.feature for one in summary(records, [all_reduce_plan()], MS_PS, **changes).never_fired]


def test_run_in_which_everything_fired_has_no_line() -> None:
    assert unfired() == []


def test_pause_that_was_never_sent_is_named() -> None:
    quiet = summary([record(fabric(), "controller", results=DONE)], [all_reduce_plan()])
    assert [one.feature for one in quiet.never_fired] == ["switch.pfc", "routing.kind"]


def test_pfc_that_is_off_is_not_named() -> None:
    quiet = summary(
        [record(fabric(), "controller", results=DONE)],
        [all_reduce_plan()],
        switch={"pfc": {"enabled": False}},
    )
    assert "switch.pfc" not in [one.feature for one in quiet.never_fired]


def test_fault_after_the_end_is_named() -> None:
    fault = {"at": "1ms", "kind": "link_down", "target": "rtsw-0:ctsw-0"}
    assert unfired(faults=[fault]) == ["faults[0]"]
    assert unfired(faults=[fault | {"at": "999us"}]) == []


def test_repair_of_what_is_up_is_named() -> None:
    repair = {"at": "500us", "kind": "link_up", "target": "rtsw-0:ctsw-0"}
    fault = {"at": "100us", "kind": "link_down", "target": "rtsw-0:ctsw-0"}
    assert unfired(faults=[repair]) == ["faults[0]"]
    assert unfired(faults=[fault, repair]) == []


IDLE: dict[str, tuple[dict[str, Any], tuple[str, int, int, str, int]]] = {
    "pause_loss": ({"target": "rtsw-0"}, ("pfc_transmit_xoff_frames", 0, 3, "", 1)),
    "headroom_drift": ({"target": "rtsw-0", "headroom": "0B"}, ("headroom_peak_bytes", 0, 3, "", 1)),
    "alpha_drift": ({"target": "rtsw-0", "alpha": "1"}, ("port_dropped_frames", 0, -1, "no_shared_room", 1)),
    "pfc_drift": ({"target": "rtsw-0/0"}, ("pfc_transmit_xoff_frames", 0, 3, "", 1)),
    "hash_seed_drift": ({"target": "rtsw-0", "seed": 7}, ("port_transmit_payload_bytes", 2, -1, "", 1)),
    "hash_fields_drift": (
        {"target": "rtsw-0", "policy": "ecmp"},
        ("port_transmit_payload_bytes", 3, -1, "", 1),
    ),
    "gpu_slow": ({"target": "gpu-0-0"}, ("gpu_copies", -1, -1, "", 1)),
    "gpu_hung": ({"target": "gpu-0-0"}, ("gpu_copies", -1, -1, "", 1)),
}
"""Keys of a fault, and a counter without which it did nothing."""


@pytest.mark.parametrize("kind", IDLE)
def test_fault_of_what_nothing_used_is_named(kind: str) -> None:
    keys, counter = IDLE[kind]
    faults = [{"at": "1us", "kind": kind} | keys]
    for counters, named in (([], True), ([counter], False)):
        records = [record(fabric(), "controller", results=DONE), record(fabric(), "rtsw-0", counters)]
        found = summary(records, [all_reduce_plan()], MS_PS, faults=faults).never_fired
        assert ("faults[0]" in [one.feature for one in found]) == named


@pytest.mark.parametrize(("pair", "named"), [(0, False), (500, True)])
def test_a_queue_pair_that_a_nic_does_not_have_is_named(pair: int, named: bool) -> None:
    fault = {"at": "10us", "kind": "qp_error", "target": "nic-0-0", "pair": pair}
    result = api.run(
        "scenarios/start/tiny_all_reduce.yaml",
        overrides={"faults": [fault], "expect": []},
        local=True,
        diagnose=False,
    )
    lines = {one.feature: one.reason for one in result.summary.never_fired}
    assert lines.get("faults[0]", "").startswith("nic-0-0 has no such queue pair") == named


def test_rates_at_which_nothing_broke_are_named_and_counted_as_nothing() -> None:
    drawn = {"kind": "random", "table": "llama3", "acceleration": 1, "within": "1ms"}
    rows = [record(fabric(), "controller", results=DONE)]
    found = summary(rows, [all_reduce_plan()], MS_PS, faults=[drawn])
    (line,) = [one for one in found.never_fired if one.feature == "faults[0]"]
    assert line.reason == "none was drawn: raise acceleration or within"
    assert (found.faults[0].happened, found.faults[0].times) == (False, 0)


def test_halves_of_pfc_are_named_if_nothing_was_paused_or_dropped() -> None:
    off: list[dict[str, Any]] = [
        {"devices": "nic-0-0", "switch": {"pfc": {"enabled": False}}},
        {"devices": "nic-1-0", "switch": {"pfc": {"ignores": ["*"]}}},
    ]
    assert unfired(overrides=off) == []
    quiet = summary(
        [record(fabric(), "controller", results=DONE)],
        [all_reduce_plan()],
        overrides=off,
    )
    named = [one.feature for one in quiet.never_fired]
    asked = ["overrides[0].switch.pfc.enabled", "routing.kind", "overrides[1].switch.pfc"]
    assert named == ["switch.pfc", *asked]


FLOWS = [{"name": "bench", "workload": {"kind": "permutation", "size": "1MiB"}}]
READS = [
    {
        "name": "bench",
        "workload": {"kind": "flows", "verb": "read", "flows": [{"src": 0, "dst": 1, "size": "1MiB"}]},
    }
]
LATE = [{"name": "bench", "start": "1ms", "workload": {"kind": "permutation", "size": "1MiB"}}]
URGENT = [
    {
        "name": "bench",
        "workload": {
            "kind": "program",
            "communicators": [{"name": "urgent", "priority": 1}],
            "operations": [{"do": "all_reduce", "on": "urgent", "size": "1MiB"}],
        },
    }
]
P2P = [{"name": "bench", "workload": {"kind": "collective", "op": "all_to_all", "sizes": ["1MiB"]}}]
QUEUE = [{"priorities": [5]}]
ROUTE = [{"switch": "rtsw-1", "destination": "nic-0-0", "via": "ctsw-0"}]
XOFF = ("pfc_transmit_xoff_frames", 0, 3, "", 1)
NO_ROOM = ("port_dropped_frames", 0, -1, "no_shared_room", 1)
OVERRUN = ("port_dropped_frames", 0, -1, "headroom_overrun", 1)
SENT = ("port_transmit_payload_bytes", 2, -1, "", 1)
DOWN = ("port_link_downed", 2, -1, "", 1)
ARRIVED = ("nic_receive_buffer_peak_bytes", -1, 3, "", 10**5)


def counted(metric: str, value: int = 1) -> tuple[str, int, int, str, int]:
    return (metric, -1, -1, "", value)


def dropped(reason: str) -> tuple[str, int, int, str, int]:
    return ("port_dropped_frames", 0, -1, reason, 1)


Row = tuple[str, dict[str, Any], str, list[tuple[str, int, int, str, int]], dict[str, Any] | None]
LINES: list[Row] = [
    (
        "switch.deep_buffer",
        {"switch": {"deep_buffer": {"where": "all"}}},
        "no packet crossed",
        [counted("credit_grants")],
        None,
    ),
    (
        "switch.forwarding",
        {"switch": {"forwarding": "cut_through"}},
        "waited for its tail",
        [counted("cut_through_frames")],
        None,
    ),
    ("switch.qos", {"nic": {"dscp": {3: 26}}}, "no map moved", [counted("qos_moved_frames")], None),
    ("nic.ttl", {"nic": {"ttl": 9}}, "outlived its TTL", [dropped("ttl")], None),
    ("switch.static_routes[0]", {"switch": {"static_routes": ROUTE}}, "sent no data", [], None),
    (
        "link.bit_error_rate",
        {"link": {"bit_error_rate": "1/100000000"}},
        "no frame was spoilt",
        [dropped("corrupt")],
        None,
    ),
    (
        "link.down_debounce",
        {"link": {"down_debounce": "1us"}},
        "no link lost",
        [DOWN, dropped("link_down")],
        None,
    ),
    (
        "link.up_debounce",
        {"link": {"up_debounce": "1us"}},
        "no link lost",
        [DOWN, dropped("link_down")],
        None,
    ),
    ("routing.paths", {"routing": {"paths": "shortest"}}, "taken out of use", [DOWN], None),
    ("routing.bgp", {"routing": {"bgp": {"enabled": True}}}, "taken out of use", [DOWN], None),
    (
        "routing.resilient_buckets",
        {"routing": {"kind": "ecmp", "resilient_buckets": 8}},
        "taken out of use",
        [DOWN],
        None,
    ),
    (
        "link.flow_control",
        {"link": {"flow_control": "credits"}},
        "ran out of credits",
        [counted("port_transmit_wait_ps")],
        None,
    ),
    ("switch.pfc", {}, "no pause was sent", [XOFF], None),
    (
        "overrides[0].switch.pfc.enabled",
        {"overrides": [{"devices": "nic-0-0", "switch": {"pfc": {"enabled": False}}}]},
        "nothing was paused",
        [XOFF, NO_ROOM, OVERRUN],
        None,
    ),
    (
        "overrides[0].switch.pfc",
        {"overrides": [{"devices": "nic-1-0", "switch": {"pfc": {"ignores": ["*"]}}}]},
        "no pause was sent",
        [XOFF],
        None,
    ),
    (
        "switch.pfc.watchdog",
        {"switch": {"pfc": {"watchdog": {"enabled": True}}}},
        "frames waiting",
        [("pfc_watchdog_storms", 0, 3, "", 1)],
        None,
    ),
    (
        "switch.ecn",
        {"switch": {"ecn": {"enabled": True}}},
        "no frame was marked",
        [("queue_marked_frames", 2, 3, "", 1), dropped("aqm")],
        None,
    ),
    ("nic.receive", {"nic": {"receive": {"enabled": True}}}, "on its way to memory", [ARRIVED], None),
    ("routing.kind", {}, "no packet had a choice", [SENT], None),
    (
        "switch.buffer.headroom",
        {"switch": {"buffer": {"headroom": "100KB"}}},
        "into headroom",
        [("headroom_peak_bytes", 0, 3, "", 1)],
        None,
    ),
    (
        "switch.buffer.headroom_pool",
        {"switch": {"buffer": {"headroom_pool": "1MB"}}},
        "into headroom",
        [counted("headroom_pool_peak_bytes")],
        None,
    ),
    (
        "switch.buffer.profiles[0]",
        {"switch": {"buffer": {"profiles": QUEUE}}},
        "had to wait",
        [("ingress_peak_bytes", 0, 5, "", 1)],
        None,
    ),
    (
        "switch.buffer.xoff",
        {"switch": {"buffer": {"xoff": "1MB"}}},
        "nothing was paused",
        [XOFF, NO_ROOM, OVERRUN],
        None,
    ),
    (
        "switch.buffer.egress_limit",
        {"switch": {"buffer": {"egress_limit": "1MB"}}},
        "came to its limit",
        [dropped("egress_limit")],
        None,
    ),
    (
        "switch.buffer.egress_alpha",
        {"switch": {"buffer": {"egress_alpha": 1}}},
        "came to its limit",
        [dropped("egress_limit")],
        None,
    ),
    (
        "switch.ecn.profiles[0]",
        {"switch": {"ecn": {"enabled": True, "profiles": QUEUE}}},
        "no frame was marked",
        [("queue_marked_frames", 2, 5, "", 1)],
        None,
    ),
    (
        "transport.timeout",
        {"transport": {"timeout": 8}},
        "waited for the whole timeout",
        [counted("nic_local_ack_timeout_err")],
        {"transport": {"timeout": 0}},
    ),
    (
        "transport.retry_count",
        {"transport": {"retry_count": 3}},
        "waited for the whole timeout",
        [counted("nic_local_ack_timeout_err")],
        None,
    ),
    ("transport.kind", {"transport": {"kind": "multipath"}}, "had one path", [SENT], None),
    (
        "transport.paths.probe",
        {"transport": {"kind": "multipath", "paths": {"probe": "50us"}}},
        "no path was given up",
        [counted("nic_paths_failed")],
        {"transport": {"kind": "multipath"}},
    ),
    (
        "transport.udp_source_port",
        {"transport": {"udp_source_port": "disjoint"}},
        "no packet had a choice",
        [SENT],
        None,
    ),
    (
        "nic.corrupt_every",
        {"nic": {"corrupt_every": 100}},
        "no NIC got",
        [counted("nic_rx_icrc_encapsulated")],
        None,
    ),
    ("nic.bond", {"nic": {"bond": "first"}}, "leave its port", [counted("nic_bond_failovers")], None),
    (
        "transport.recovery",
        {"transport": {"recovery": {"kind": "selective_repeat"}}},
        "out of order or sent again",
        [counted("nic_out_of_sequence"), counted("nic_retransmitted_frames")],
        {"transport": {"recovery": {"kind": "go_back_n"}}},
    ),
    (
        "transport.adaptive_retransmission",
        {"transport": {"adaptive_retransmission": {"enabled": True}}},
        "overdue",
        [counted("nic_roce_adp_retrans")],
        None,
    ),
    (
        "transport.receive_queue",
        {"transport": {"receive_queue": {"depth": 4}}},
        "found a receive",
        [counted("nic_out_of_buffer")],
        None,
    ),
    (
        "transport.rnr_timer",
        {"transport": {"rnr_timer": 3}},
        "never run out",
        [],
        {"transport": {"rnr_timer": 3, "receive_queue": {"depth": 4}}},
    ),
    (
        "transport.rnr_retry",
        {"transport": {"rnr_retry": 3}},
        "never run out",
        [],
        {"transport": {"rnr_retry": 3, "receive_queue": {"depth": 4}}},
    ),
    (
        "transport.max_rd_atomic",
        {"transport": {"max_rd_atomic": 3}},
        "posts READs",
        [],
        {"transport": {"max_rd_atomic": 3}, "jobs": READS},
    ),
    (
        "transport.congestion_control",
        {"transport": {"congestion_control": {"kind": "dcqcn"}}},
        "no CNP",
        [counted("nic_rp_cnp_handled")],
        None,
    ),
    (
        "transport.congestion_control",
        {"transport": {"congestion_control": {"kind": "swift"}}},
        "no packet waited",
        [counted("buffer_peak_bytes")],
        None,
    ),
    (
        "ncclx.outstanding",
        {"ncclx": {"outstanding": {"rack": "64KiB"}}},
        "waited for a limit",
        [counted("host_held_slices")],
        None,
    ),
    (
        "ncclx.qp_policy",
        {"ncclx": {"qp_policy": "least_loaded", "qps_per_connection": 2}},
        "next in turn",
        [counted("host_diverted_slices")],
        None,
    ),
    (
        "ncclx.dqplb",
        {"ncclx": {"dqplb": {"most_outstanding": 3}}},
        "qp_policy is round_robin",
        [],
        {"ncclx": {"qp_policy": "dqplb", "dqplb": {"most_outstanding": 3}}},
    ),
    (
        "ncclx.p2p_chunk",
        {"ncclx": {"p2p_chunk": "64KiB"}},
        "sends and receives",
        [],
        {"ncclx": {"p2p_chunk": "64KiB"}, "jobs": P2P},
    ),
    (
        "ncclx.zero_copy",
        {"ncclx": {"zero_copy": True}},
        "without the GPU",
        [counted("host_direct_slices")],
        None,
    ),
    ("ncclx.watchdog", {"ncclx": {"watchdog": "1ms"}}, "over in time", [], None),
    (
        "nic.context_cache",
        {"nic": {"context_cache": {"entries": 8}}},
        "more queue pairs",
        [counted("nic_context_misses", 9)],
        None,
    ),
    (
        "host.pcie",
        {"host": {"pcie": {"enabled": True}}},
        "waited for PCIe",
        [counted("nic_pcie_wait_ps"), ARRIVED],
        None,
    ),
    (
        "host.nvlink",
        {"host": {"nvlink": {"rate": "7200G"}}},
        "over NVLink",
        [counted("nvlink_transfers")],
        {"host": {"nvlink": {"enabled": False}}},
    ),
    (
        "ncclx.sms_per_channel",
        {"ncclx": {"sms_per_channel": 1}},
        "no computing was slowed",
        [counted("host_slower_compute_ps")],
        None,
    ),
    ("ncclx", {"jobs": FLOWS, "ncclx": {"channels": 2}}, "no job runs a collective", [], {"jobs": FLOWS}),
    ("payload", {"jobs": FLOWS, "payload": "real"}, "no job runs a collective", [], {"payload": "real"}),
    (
        "jobs[0].workload.communicators",
        {"jobs": URGENT},
        "passed one of a lower",
        [counted("gpu_overtaken_copies"), counted("host_overtaken_calls")],
        None,
    ),
    ("jobs[0]", {"jobs": LATE}, "before bench began", [], {"jobs": FLOWS}),
    ("run.capture[0]", {"run": {"capture": [{"ports": "rtsw-0"}]}}, "no frame passed", [], None),
    (
        "run.span",
        {"run": {"span": {"at": "2ms", "for": "1ms"}}},
        "before it began",
        [],
        {"run": {"span": {"at": "1us", "for": "1us"}}},
    ),
]
"""Of every line: its feature, what configures it, words of its reason, counters each of which contradicts
that, and a scenario in which it is not to be said."""


def lines_of(changes: dict[str, Any], counters: list[tuple[str, int, int, str, int]]) -> dict[str, str]:
    """The reasons of a run in which one switch counted this and nothing else happened."""
    rows = [record(fabric(), "controller", results=DONE), record(fabric(), "rtsw-0", counters)]
    found = summary(rows, [all_reduce_plan()], MS_PS, **changes).never_fired
    return {one.feature: one.reason for one in found}


@pytest.mark.parametrize("row", LINES, ids=[row[0] for row in LINES])
def test_a_line_is_there_only_while_no_counter_contradicts_it(row: Row) -> None:
    feature, changes, words, contradictions, other = row
    assert words in lines_of(changes, []).get(feature, "")
    for counter in contradictions:
        assert feature not in lines_of(changes, [counter]), counter
    if other is not None:
        assert feature not in lines_of(other, [])


def test_the_table_has_every_line_that_is_ever_written() -> None:
    source = Path(unfired_rules.__file__).read_text(encoding="utf-8")
    written = set(re.findall(r'feature(?:=f?| = )"([^"]+)"', source))
    keys = {"link.{key}": "link.down_debounce", "transport.{knob}": "transport.timeout"}
    keys |= {"transport.paths.{knob}": "transport.paths.probe"}
    keys |= {"switch.buffer.{key}": "switch.buffer.egress_limit"}
    named = {keys.get(one, one.replace("{at}", "0").replace("{number}", "0")) for one in written}
    of_faults_and_overrides = {"faults[0]", "overrides[0].{rule.feature}"}
    assert named - of_faults_and_overrides == named & {row[0] for row in LINES}


def test_reasons_have_what_was_counted_in_place_of_what_fired() -> None:
    waited = ("queue_peak_bytes", 2, 4, "", 8_500_000)
    held = ("ingress_peak_bytes", 0, 3, "", 4096)
    lines = lines_of({"switch": {"ecn": {"enabled": True}}}, [waited, held, NO_ROOM])
    assert lines["switch.ecn"] == (
        "no frame was marked; its queues (3) held 0B at most, and queue 4, which does not mark, 8.106MiB,"
        " because no frame was ECN-capable (transport.congestion_control.kind: none)"
    )
    assert lines["switch.pfc"] == (
        "no pause was sent; lossless priority groups (3, 6) held 4KiB at most,"
        " and 1 frame of lossy ones dropped"
    )


@pytest.mark.parametrize(
    ("control", "why"),
    [
        ("none", ", because no frame was ECN-capable (transport.congestion_control.kind: none)"),
        ("swift", ", because no frame was ECN-capable (transport.congestion_control.kind: swift)"),
        ("dcqcn", ""),
    ],
)
def test_that_no_frame_was_marked_carries_that_none_was_ecn_capable(control: str, why: str) -> None:
    transport = {"congestion_control": {"kind": control}}
    lines = lines_of({"switch": {"ecn": {"enabled": True}}, "transport": transport}, [])
    assert lines["switch.ecn"] == f"no frame was marked; its queues (3) held 0B at most{why}"
