"""Effect sizes of faults: what each kind changes in a small run, and by how much.

The size is a closed form of what the fault is told, or a bound; "the digest differs" is no effect.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from actors.switch.ecn import Aqm
from emu import api
from emu.base.errors import ScenarioError
from emu.scenario.faults.kinds import FAULTS
from tests.scenario.plain import plain
from tests.summary.known import known

US = 10**6
PIECES: dict[str, Any] = {"kind": "program", "operations": [{"do": "compute", "time": "200us"}] * 6}
"""1,200 us of computing on each GPU."""
FLOW: dict[str, Any] = {
    "kind": "flows",
    "flows": [{"src": 0, "dst": 1, "size": "8MiB"}],
}
STAR: dict[str, Any] = {"kind": "star", "hosts": 2}


def took_ps(*faults: dict[str, Any], workload: dict[str, Any] = PIECES, **more: Any) -> int:
    """How long the job took on two servers of a GPU each."""
    mapping = plain(
        {
            "name": "effect",
            "topology": STAR,
            "jobs": [{"name": "job", "workload": workload}],
            "faults": list(faults),
        }
    )
    job = api.run(plain(mapping | more), local=True, diagnose=False).summary.jobs["job"]
    assert job.status == "success"
    assert job.start_ps is not None
    assert job.end_ps is not None
    return job.end_ps - job.start_ps


@pytest.mark.parametrize("sms", [0, 2])
@pytest.mark.parametrize(
    ("fault", "takes_us"),
    [
        ({"kind": "gpu_slow", "target": "gpu-0-0", "factor": 3}, 3 * 1200),
        # 250 us at full pace, 100 us of computing in the next 300 us, and the rest.
        ({"kind": "gpu_slow", "target": "gpu-0-0", "factor": 3, "at": "250us", "for": "300us"}, 1400),
        ({"kind": "gpu_slow", "target": "gpu-0-0", "factor": "1/2", "at": "200us"}, 1200),
        ({"kind": "straggler", "target": "host-1", "factor": 3, "at": "250us"}, 250 + 3 * 950),
        ({"kind": "gpu_hung", "target": "gpu-0-0", "at": "250us", "for": "300us"}, 1500),
    ],
)
def test_computing_takes_as_long_as_the_gpu_is_slow(fault: dict[str, Any], takes_us: int, sms: int) -> None:
    assert took_ps(ncclx={"sms_per_channel": sms}) == 1200 * US
    assert took_ps(fault, ncclx={"sms_per_channel": sms}) == takes_us * US


def test_of_two_faults_of_one_gpu_the_newest_rules_and_then_the_older_again() -> None:
    slow = {"kind": "gpu_slow", "target": "gpu-0-0"}
    first = slow | {"factor": 2, "at": "100us", "for": "600us"}
    second = slow | {"factor": 5, "at": "200us", "for": "500us"}
    hung = {"kind": "gpu_hung", "target": "gpu-0-0", "at": "300us", "for": "100us"}
    # Done up to 700 us: 100 + 100 / 2 + 100 / 5 + 0 + 300 / 5.
    assert took_ps(first, second, hung) == (700 + 1200 - 230) * US


def test_a_slow_gpu_is_as_slow_as_the_straggler_of_a_training_job() -> None:
    own = {"layers": 8, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "sequence": 128}
    step = {"kind": "training", "model": "own", "own": own, "peak_tflops": 1, "efficiency": 0.5, "dp": 2}
    reported = took_ps(workload=step | {"micro_batch": 8, "stragglers": [{"rank": 1, "slowdown": 1.25}]})
    fault = {"kind": "gpu_slow", "target": "gpu-1-0", "factor": 1.25}
    assert took_ps(fault, workload=step | {"micro_batch": 8}) == pytest.approx(reported, rel=0.01)
    assert reported > 1.2 * took_ps(workload=step | {"micro_batch": 8})


def test_a_gpu_that_computes_slowly_is_found_by_what_its_host_counted() -> None:
    mapping = plain(
        {
            "name": "slow",
            "topology": {"kind": "star", "hosts": 4},
            "jobs": [{"name": "job", "workload": PIECES}],
            "faults": [{"kind": "gpu_slow", "target": "gpu-2-0", "factor": 1.1}],
        }
    )
    (found,) = api.run(mapping, local=True).summary.diagnosis
    assert (found.cause, found.place) == ("gpu_slow", "gpu-2-0")
    assert "1.10 times as long" in found.sentence


def black_hole(kind: str, local_us: int) -> int:
    """Frames lost where a flow at 100G loses its first hop's uplink, which one depends on the policy."""
    lost = 0
    for spine in (0, 1):
        mapping = plain(
            {
                "name": "black-hole",
                "topology": {
                    "kind": "ai_zone",
                    "racks": 2,
                    "hosts_per_rack": 1,
                    "gpus_per_host": 1,
                    "spines": 2,
                }
                | {"link": "100G"},
                "routing": {"kind": kind, "convergence": "300us", "local_convergence": f"{local_us}us"},
                "transport": {"timeout": 8},
                "run": {"max_time": "3ms"},
                "jobs": [{"name": "job", "workload": FLOW}],
                "faults": [{"kind": "link_down", "target": f"rtsw-0:ctsw-{spine}", "at": "50us"}],
            }
        )
        found = api.run(mapping, local=True, diagnose=False).summary
        lost = max(lost, known(found.faults[0].frames_lost))
    return lost


@pytest.mark.parametrize("local_us", [20, 100, 300])
def test_a_hash_loses_what_it_sends_to_a_dead_uplink_until_its_switch_has_converged(local_us: int) -> None:
    # 4,194 bytes at 100G, one after the other; up to a round trip of 4 us was in flight.
    sent = local_us * US * 100 // (4194 * 8 * 1000)
    assert sent <= black_hole("e_ecmp", local_us) <= sent + 12


def test_adaptive_loses_what_is_in_flight_when_its_uplink_dies_and_nothing_more() -> None:
    # Data and acknowledgements of one round trip, 4 us at most.
    in_flight = 2 * 4 * US * 100 // (4194 * 8 * 1000)
    assert {black_hole("adaptive", local_us) <= in_flight for local_us in (20, 300)} == {True}


def flow_us(*faults: dict[str, Any], timeout: int = 3) -> tuple[float, str]:
    """How long a flow of 2 MiB takes over one switch at 100G, and how it ends."""
    mapping = plain(
        {
            "name": "effect",
            "topology": STAR | {"link": "100G"},
            "transport": {"timeout": timeout},
            "jobs": [{"name": "job", "workload": FLOW | {"flows": [{"src": 0, "dst": 1, "size": "2MiB"}]}}],
            "faults": list(faults),
        }
    )
    job = api.run(mapping, local=True, diagnose=False).summary.jobs["job"]
    assert job.start_ps is not None
    assert job.end_ps is not None
    return (job.end_ps - job.start_ps) / US, job.status


TIMEOUT_US = 4.096 * 2**3
FRAMES = 512
FRAME_100G_US = 4178 * 8 / 100e3
OUT = {"at": "50us", "for": "100us"}
LONGER: dict[str, tuple[dict[str, Any], float, float]] = {
    "link_down": ({"target": "nic-0-0:tor-0"} | OUT, 100, 100 + TIMEOUT_US),
    "link_flap": (
        {"target": "nic-0-0:tor-0", "at": "50us", "down": "20us", "up": "20us", "flaps": 3},
        3 * 20,
        3 * (20 + TIMEOUT_US),
    ),
    "port_down": ({"target": "tor-0>nic-1-0"} | OUT, 100, 100 + TIMEOUT_US),
    "degrade": (
        {"target": "nic-0-0:tor-0", "rate": "25G"},
        0.999 * 3 * FRAMES * FRAME_100G_US,
        1.001 * 3 * FRAMES * FRAME_100G_US,
    ),
    "delay": ({"target": "nic-0-0:tor-0", "added": "3us"}, 6, 6),
    "pause_storm": ({"target": "tor-0>nic-0-0"} | OUT, 100 - 2 * FRAME_100G_US, 100 + 2 * FRAME_100G_US),
    "switch_crash": ({"target": "tor-0"} | OUT, 100, 100 + TIMEOUT_US),
    "switch_reboot": ({"target": "tor-0", "at": "50us", "boot_time": "100us"}, 100, 100 + TIMEOUT_US),
    "nic_down": ({"target": "nic-1-0"} | OUT, 100, 100 + TIMEOUT_US),
    "nic_port_down": ({"target": "nic-1-0"} | OUT, 100, 100 + TIMEOUT_US),
}
"""Of a flow of 512 packets: the fault, and by how much longer it takes at least and at most, in us."""


@pytest.mark.parametrize("kind", LONGER)
def test_a_flow_takes_longer_by_what_the_fault_is_reported(kind: str) -> None:
    fault, least_us, most_us = LONGER[kind]
    (well_us, _), (broken_us, status) = flow_us(), flow_us({"kind": kind} | fault)
    assert status == "success"
    assert least_us <= round(broken_us - well_us, 6) <= most_us


def test_a_flow_into_a_slow_receiver_runs_at_its_rate() -> None:
    took_us, _ = flow_us({"kind": "slow_receiver", "target": "nic-1-0", "rate": "10G"})
    assert took_us == pytest.approx(2**21 * 8 / 10e3, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "target", "status", "most_us"),
    [
        ("qp_error", "nic-0-0", "local_qp_operation_error", 1),
        # Seven retries of the default `retry_count`, and the timeout that is the last.
        ("nic_reset", "nic-1-0", "retry_exceeded", 8 * TIMEOUT_US),
        ("host_lost", "host-1", "retry_exceeded", 8 * TIMEOUT_US),
    ],
)
def test_a_job_fails_within_what_its_retries_allow(
    kind: str, target: str, status: str, most_us: float
) -> None:
    fault = {"kind": kind, "target": target, "at": "50us"}
    took_us, reported = flow_us(fault | ({"for": "10ms"} if kind == "nic_reset" else {}))
    assert reported == status
    assert 50 <= took_us <= 50 + most_us + 10


FRAME_WIRE_BYTES = 4178
FRAME_BUFFER_BYTES = 4158
HEADROOM_BYTES = 50 * 1024
SHARED_BYTES = 2**20 - 2 * 2 * HEADROOM_BYTES
"""Of a pool of 1 MiB: two ports have headroom for two classes each."""
STOP = {"kind": "pause_storm", "target": "nic-1-0", "at": "20us", "for": "100us"}
"""The egress of the switch stands still, and what its ingress is sent stays in the buffer."""


def counted(result: api.Result, name: str) -> int:
    """What all devices counted under a metric or a reason."""
    return sum(
        value
        for record in result.outcome.devices
        for series, value in zip(record.series, record.counters, strict=True)
        if name in (series.metric, series.reason)
    )


def dammed(*faults: dict[str, Any], delay_us: float = 0.5, stopped: int = 3) -> api.Result:
    """A flow of 2 MiB at 100G into a switch whose egress a pause of one class stops for 100 us."""
    mapping = plain(
        {
            "name": "dammed",
            "topology": STAR | {"link": "100G"},
            "link": {"delay": f"{round(delay_us * 1000)}ns"},
            "transport": {"timeout": 14},
            "switch": {"buffer": {"pool": "1MiB", "reserve": "0B", "headroom": f"{HEADROOM_BYTES}B"}},
            "jobs": [{"name": "job", "workload": FLOW | {"flows": [{"src": 0, "dst": 1, "size": "2MiB"}]}}],
            "faults": [STOP | {"priorities": [stopped]}, *faults],
        }
    )
    return api.run(mapping, local=True, diagnose=False)


def test_without_headroom_a_port_drops_what_comes_until_its_pause_is_obeyed() -> None:
    drift = {"kind": "headroom_drift", "target": "tor-0", "headroom": "0B"}
    assert counted(dammed(), "headroom_overrun") == 0
    short, long = (counted(dammed(drift, delay_us=us), "headroom_overrun") for us in (0.5, 5))
    assert short >= 2 * 0.5 / FRAME_100G_US
    assert long - short == pytest.approx(2 * 4.5 / FRAME_100G_US, abs=1)


@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(1)])
def test_a_port_that_is_stopped_fills_alpha_to_one_and_alpha_of_the_pool(alpha: Fraction) -> None:
    drift = {"kind": "alpha_drift", "target": "tor-0", "alpha": str(alpha)}
    built, drifted = (counted(one, "ingress_peak_bytes") for one in (dammed(), dammed(drift)))
    # Built with 1/8. What comes until the pause is obeyed goes to headroom, and is the same.
    more_bytes = float(SHARED_BYTES * (alpha / (1 + alpha) - Fraction(1, 9)))
    assert drifted - built == pytest.approx(more_bytes, abs=2 * FRAME_BUFFER_BYTES)


LOSSY: dict[str, tuple[dict[str, Any], int]] = {
    "pfc_drift": ({"target": "tor-0>nic-0-0"}, 3),
    "dscp_drift": ({"target": "tor-0", "dscp": 24, "queue": 0}, 0),
}
"""What makes a class lossy, and the class whose pauses stop it then."""


@pytest.mark.parametrize("kind", LOSSY)
def test_a_class_that_a_drift_made_lossy_drops_what_its_share_of_the_pool_does_not_hold(kind: str) -> None:
    keys, stopped = LOSSY[kind]
    drift = {"kind": kind} | keys
    assert counted(dammed(), "no_shared_room") == 0
    comes, held = 100 / FRAME_100G_US, SHARED_BYTES / 9 / FRAME_BUFFER_BYTES
    assert counted(dammed(drift, stopped=stopped), "no_shared_room") == pytest.approx(comes - held, abs=3)


def test_packets_that_another_class_took_in_heed_its_pauses_and_no_longer_those_of_their_own() -> None:
    drift = {"kind": "dscp_drift", "target": "tor-0", "dscp": 24, "queue": 0}
    took_us = []
    for result in (dammed(), dammed(drift), dammed(stopped=0)):
        job = result.summary.jobs["job"]
        took_us.append(((job.end_ps or 0) - (job.start_ps or 0)) / US)
    stopped_us, drifted_us, free_us = took_us
    assert drifted_us == free_us
    assert stopped_us - free_us == pytest.approx(100, abs=2 * FRAME_100G_US)


@pytest.mark.parametrize("frames", [10, 100])
def test_of_two_senders_that_meet_the_frames_that_find_a_queue_of_kmin_are_marked(frames: int) -> None:
    drift = {"kind": "ecn_drift", "target": "tor-0", "pmax": 1}
    drift |= dict.fromkeys(("kmin", "kmax"), f"{frames * FRAME_WIRE_BYTES}B")
    mapping: dict[str, Any] = plain(
        {
            "name": "meeting",
            "topology": {"kind": "star", "hosts": 3, "link": "100G"},
            "switch": {"ecn": {"enabled": True, "kmin": "2MB", "kmax": "4MB"}},
            # Whose slowest rate is that of the link answers no mark.
            "transport": {"congestion_control": {"kind": "dcqcn", "least": "100G"}},
            "jobs": [{"name": "job", "workload": {"kind": "incast", "fan_in": 2, "size": "512KiB"}}],
        }
    )
    assert counted(api.run(mapping, local=True, diagnose=False), "queue_marked_frames") == 0
    # 128 frames of each: the queue grows by one while one leaves, up to 128, and then shrinks by one.
    marked = counted(
        api.run(mapping | {"faults": [drift]}, local=True, diagnose=False), "queue_marked_frames"
    )
    assert marked == pytest.approx(2 * (128 - frames), abs=2)


def test_switches_of_two_tiers_that_hash_with_one_seed_leave_every_second_path_idle() -> None:
    fabric = {"kind": "fat_tree", "k": 4, "gpus_per_host": 1, "link": "100G"}
    flows = [{"src": rank, "dst": (rank + 4) % 16, "size": "256KiB"} for rank in range(16)]
    mapping: dict[str, Any] = plain(
        {
            "name": "polarised",
            "topology": fabric,
            "routing": {"kind": "ecmp"},
            "jobs": [{"name": "job", "workload": {"kind": "flows", "qps": 16, "flows": flows}}],
        }
    )
    drift = [{"kind": "hash_seed_drift", "target": tier, "seed": 7} for tier in ("tor-*", "agg-*")]
    for faults, polarised in ((drift[:1], False), (drift, True)):
        uplinks = api.run(mapping | {"faults": faults}, local=True, diagnose=False).summary.fabric.uplinks
        upper = [row.max_over_mean for row in uplinks if row.switch.startswith("agg")]
        assert len(upper) == 8
        assert (min(one or 0 for one in upper) == 2) == polarised


def test_without_the_qp_field_all_queue_pairs_of_a_source_port_take_one_of_four_paths() -> None:
    mapping: dict[str, Any] = plain(
        {
            "name": "fields",
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 4},
            "transport": {"udp_source_port": "per_pair"},
            "jobs": [{"name": "job", "workload": FLOW | {"qps": 64}}],
        }
    )
    drift = {"kind": "hash_fields_drift", "target": "rtsw-0", "policy": "ecmp"}
    built, drifted = (
        api.run(mapping | {"faults": faults}, local=True, diagnose=False)
        .summary.fabric.uplinks[0]
        .max_over_mean
        for faults in ([], [drift])
    )
    # Of 64 dealt among four, 16 and three standard deviations of 3.5 are 1.65 times the mean.
    assert built is not None
    assert built < 1.65
    assert drifted == 4


@pytest.mark.parametrize("window_kib", [32, 64])
def test_a_flow_crosses_a_modular_switch_at_a_window_of_credit_each_credit_delay(window_kib: int) -> None:
    window = {"initial_credit": f"{window_kib}KiB", "most_credit": f"{window_kib}KiB"}
    mapping: dict[str, Any] = plain(
        {
            "name": "window",
            "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 1},
            "switch": {"deep_buffer": {"where": "spines", "credit_delay": "10us", "credit_quantum": "4KiB"}},
            "jobs": [{"name": "job", "workload": FLOW | {"flows": [{"src": 0, "dst": 1, "size": "2MiB"}]}}],
        }
    )
    drift = {"kind": "credit_drift", "target": "ctsw-0"} | window
    jobs = [
        api.run(mapping | {"faults": one}, local=True, diagnose=False).summary.jobs["job"]
        for one in ([], [drift])
    ]
    built_us, drifted_us = (((job.end_ps or 0) - (job.start_ps or 0)) / US for job in jobs)
    bound_us = FRAMES * FRAME_WIRE_BYTES / (window_kib * 1024) * 10
    assert built_us < bound_us < drifted_us < bound_us / 0.75


def test_thresholds_of_red_do_not_drift_where_an_override_gives_a_switch_another_aqm() -> None:
    own = {
        "devices": "tor-0",
        "switch": {"ecn": {"kind": "tests.faults.test_effects:Unmarked", "enabled": True}},
    }
    drift = {"kind": "ecn_drift", "target": "tor-0", "kmin": "1KB", "kmax": "2KB"}
    with pytest.raises(ScenarioError, match="its thresholds are those of RED"):
        took_ps(drift, workload=FLOW, switch={"ecn": {"enabled": True}}, overrides=[own])


class Unmarked(Aqm):
    """An AQM that marks nothing."""


ELSEWHERE = {
    "gpu_slow": "above",
    "gpu_hung": "above",
    "straggler": "above",
    "slow_receiver": "above",
    "qp_error": "above",
    "nic_reset": "above",
    "host_lost": "above",
    "link_up": "tests/faults/test_kinds.py",
    "pause_loss": "tests/faults/test_kinds.py",
    "switch_drain": "tests/faults/test_kinds.py",
    "gpu_lost": "tests/faults/test_kinds.py",
    "row_remap": "tests/control/test_operator.py",
    "miscabling": "tests/faults/test_kinds.py",
    "random": "tests/faults/test_draws.py",
    "bit_flip": "tests/ncclx/test_payload.py",
    "headroom_drift": "above",
    "alpha_drift": "above",
    "ecn_drift": "above",
    "pfc_drift": "above",
    "dscp_drift": "above",
    "hash_seed_drift": "above",
    "hash_fields_drift": "above",
    "credit_drift": "above",
}
"""Kinds whose effect is measured by a test of their own."""


def test_every_kind_says_what_to_expect_of_it_and_has_its_place_here() -> None:
    assert LONGER.keys() | ELSEWHERE.keys() == FAULTS.table.keys()
    assert not LONGER.keys() & ELSEWHERE.keys()
    assert all(getattr(one, "effect", "") for one in FAULTS.table.values())
