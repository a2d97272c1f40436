"""What an operator sees of a drifted configuration in series, while it lasts and once it is over.

`test_kinds` looks at the configuration itself; here it has to do something. Each drift lasts from 20 us to
60 us, as there, and its sign is a counter that stands still on the same fabric without it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.faults.watched import FLOWS, US, Broken

INCAST: dict[str, Any] = {
    "kind": "incast",
    "size": "4MiB",
    "fan_in": 5,
    "destination": 0,
}
SMALL: dict[str, Any] = {"switch": {"buffer": {"pool": "2MiB"}}}
SCARCELY_MARKING: dict[str, Any] = {
    "switch": {"ecn": {"enabled": True, "kmin": "8MB", "kmax": "16MB"}},
    "transport": {"timeout": 3, "congestion_control": {"kind": "dcqcn"}},
}
Look = Callable[[Broken], int]
SIGNS: dict[str, tuple[dict[str, Any], dict[str, Any], Look]] = {
    "headroom_drift": (
        {"target": "rtsw-0", "headroom": "0B"},
        SMALL | {"workload": INCAST},
        lambda one: one.counted("port_dropped_frames", "rtsw-0", reason="headroom_overrun"),
    ),
    "alpha_drift": (
        {"target": "rtsw-0", "alpha": "1/256"},
        {"switch": {"buffer": {"pool": "64MiB"}}},
        lambda one: one.counted("pfc_transmit_transitions", "rtsw-0"),
    ),
    "ecn_drift": (
        {"target": "rtsw-0", "kmin": "1KB", "kmax": "2KB"},
        SCARCELY_MARKING,
        lambda one: one.counted("queue_marked_frames", "rtsw-0"),
    ),
    "pfc_drift": (
        {"target": "rtsw-0>nic-0-0"},
        SMALL,
        lambda one: one.counted("port_dropped_frames", "rtsw-0", "nic-0-0", reason="no_shared_room"),
    ),
    "dscp_drift": (
        {"target": "rtsw-0", "dscp": 24, "queue": 1},
        SMALL,
        lambda one: one.counted("port_dropped_frames", "rtsw-0", reason="no_shared_room"),
    ),
}
"""Keys of the fault and of the scenario, and what is counted because of it."""


@pytest.mark.parametrize("kind", SIGNS)
def test_a_drift_is_counted_while_it_lasts_and_not_before_or_afterwards(kind: str) -> None:
    keys, more, look = SIGNS[kind]
    drifted = Broken({"kind": kind} | keys, **more)
    counts = []
    for us in (19, 62, 90):
        drifted.to(us)
        counts.append(look(drifted))
    assert counts[0] == 0
    assert counts[1] >= 4
    assert counts[2] == counts[1]
    well = Broken({"kind": kind, "at": "1s"} | keys, **more)
    well.to(90)
    assert look(well) == 0


def test_a_port_without_pfc_tells_nobody_to_stop() -> None:
    drifted = Broken({"kind": "pfc_drift", "target": "rtsw-0>nic-0-0"}, **SMALL)
    reported = []
    for us in (20, 60, 90):
        drifted.to(us)
        reported.append(drifted.counted("pfc_transmit_xoff_frames", "rtsw-0", "nic-0-0"))
    assert reported[0] == reported[1] < reported[2]


def test_what_a_wrong_map_moves_waits_in_another_queue() -> None:
    drifted = Broken({"kind": "dscp_drift", "target": "rtsw-0", "dscp": 24, "queue": 1}, **SMALL)
    drifted.to(19)
    assert drifted.counted("queue_peak_bytes", "rtsw-0", priority=1) == 0
    drifted.to(45)
    assert drifted.counted("queue_bytes", "rtsw-0", priority=1) > 100_000
    assert drifted.counted("queue_bytes", "rtsw-0", priority=3) == 0
    drifted.to(90)
    assert drifted.counted("queue_bytes", "rtsw-0", priority=3) > 100_000


def sent_towards(one: Broken, times_us: tuple[int, ...]) -> list[tuple[int, int]]:
    """Payload that rtsw-0 sent to each of the two spines from one time to the next."""
    totals = []
    for us in times_us:
        one.to(us)
        totals.append(
            [one.counted("port_transmit_payload_bytes", "rtsw-0", peer) for peer in ("ctsw-0", "ctsw-1")]
        )
    return [(after[0] - before[0], after[1] - before[1]) for before, after in pairwise(totals)]


def flow(qps: int) -> dict[str, Any]:
    """One flow from one leaf to the other."""
    return {"kind": "flows", "qps": qps, "flows": [{"src": 0, "dst": 4, "size": "8MiB"}]}


def test_a_flow_takes_another_path_while_a_hash_seed_differs() -> None:
    drifted = Broken({"kind": "hash_seed_drift", "target": "rtsw-0", "seed": 77}, workload=flow(1))
    before, during, after = sent_towards(drifted, (1, 20, 60, 90))
    assert before[0] == 0 < before[1]
    assert during[1] == 0 < during[0]
    assert after[0] == 0 < after[1]


def test_queue_pairs_spread_otherwise_while_hash_fields_differ() -> None:
    drifted = Broken({"kind": "hash_fields_drift", "target": "rtsw-0", "policy": "ecmp"}, workload=flow(16))
    before, during, after = (
        spine_0 * 100 // (spine_0 + spine_1)
        for spine_0, spine_1 in sent_towards(drifted, (1, 20, 30, 60, 75, 90))[::2]
    )
    assert abs(before - after) <= 2
    assert abs(during - before) >= 15


def test_a_modular_spine_with_a_small_credit_window_sends_at_a_fraction_of_its_rate() -> None:
    drifted = Broken(
        {"kind": "credit_drift", "target": "ctsw-0", "initial_credit": "4KiB", "most_credit": "8KiB"},
        switch={"deep_buffer": {"where": "spines"}},
    )
    sent = []
    for us in (30, 40, 60, 90, 130):
        drifted.to(us)
        sent.append(drifted.counted("port_transmit_payload_bytes", "ctsw-0"))
    # What was granted before the drift is sent still; 100 Gbit/s are 250,000 bytes in 20 us.
    assert sent[2] - sent[1] < 50_000
    assert sent[4] - sent[3] > 400_000


@pytest.mark.parametrize("forwarding", ["store_and_forward", "cut_through"])
def test_no_frame_is_later_than_what_was_added_whatever_its_size(forwarding: str) -> None:
    both_ways = FLOWS | {"flows": [*FLOWS["flows"], {"src": 4, "dst": 0, "size": "2MiB"}]}
    delay = {"kind": "delay", "target": "rtsw-0:ctsw-0", "added": "300ns"}
    one = Broken(delay, workload=both_ways, switch={"forwarding": forwarding})
    for us in (60, 90):
        one.run.advance(us * US)  # What waits for its tail is in flight and received, so it is not counted.
        for ends in (("rtsw-0", "ctsw-0"), ("ctsw-0", "rtsw-0")):
            way = one.port(*ends).added_delay
            assert way.late_frames > 20
            assert int(way.latest_ps) == 300_000
            # Once it is over those that follow catch up, where there is a gap between two.
            exact = int(way.late_frames) * 300_000
            assert way.late_ps == exact if us == 60 else way.late_ps <= exact
