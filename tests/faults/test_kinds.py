"""Every kind of fault: what is to be seen while it lasts, and once it is over.

Each hits a fabric of two leaves and two spines from 20 us to 60 us, under flows between the leaves that take
longer than that; one looks at 45 us and at 90 us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors.gpu.gpu import Gpu
from actors.nic.nic import Nic
from actors.nic.queue_pair.queue_pair import ERROR, INITIALISED, READY, READY_TO_RECEIVE, RESET
from actors.optional.deep import DeepSwitch
from actors.port.port import Port
from actors.switch.switch import Switch
from actors.wire.message import STATUS_GPU_LOST, STATUS_HOST_LOST
from emu import api
from emu.scenario.faults.kinds import FAULTS
from tests.faults.watched import FLOWS, RING, US, Broken


def held_in(nic: Nic) -> int:
    """What waits in a NIC for memory, of the class of data."""
    return 0 if nic.receive is None else int(nic.receive.groups[3].held_bytes)


def held_back_ps(port: Port) -> int:
    """What a port adds to the flight of a frame."""
    return 0 if port.added_delay is None else int(port.added_delay.added_ps)


def queue_of(switch: Switch, dscp: int) -> int | None:
    """The queue of a DSCP, where a switch goes by them."""
    return None if switch.classes is None else int(switch.classes.queue_of[dscp])


Look = Callable[[Broken], object]
CASES: dict[str, tuple[dict[str, Any], Look, object, object]] = {
    "link_down": (
        {"target": "rtsw-0:ctsw-0"},
        lambda one: (
            one.port("rtsw-0", "ctsw-0").up,
            one.port("ctsw-0", "rtsw-0").up,
            len(one.device("rtsw-1").down),
        ),
        (False, False, 1),
        (True, True, 0),
    ),
    "link_flap": (
        {"target": "rtsw-0:ctsw-0", "for": None, "down": "2us", "up": "8us", "flaps": 4},
        lambda one: one.counted("port_link_downed", "ctsw-0", "rtsw-0"),
        3,
        4,
    ),
    "degrade": (
        {"target": "rtsw-0:ctsw-0", "sender": "rtsw-0", "rate": "25G"},
        lambda one: (one.port("rtsw-0", "ctsw-0").rate_bps, one.port("ctsw-0", "rtsw-0").rate_bps),
        (25 * 10**9, 100 * 10**9),
        (100 * 10**9, 100 * 10**9),
    ),
    "delay": (
        {"target": "rtsw-*:ctsw-*", "added": "3us", "jitter": "100ns"},
        lambda one: held_back_ps(one.port("ctsw-0", "rtsw-1")),
        3 * US,
        0,
    ),
    "port_down": (
        {"target": "rtsw-1>ctsw-1"},
        lambda one: (one.port("ctsw-1", "rtsw-1").up, len(one.device("rtsw-0").down)),
        (False, 1),
        (True, 0),
    ),
    "pause_storm": (
        {"target": "nic-2-0"},
        lambda one: one.port("rtsw-1", "nic-2-0").blocked,
        1 << 3 | 1 << 6,
        0,
    ),
    "switch_crash": (
        {"target": "ctsw-1"},
        lambda one: ([port.up for port in one.device("ctsw-1").ports], one.device("rtsw-0").down != []),
        ([False, False], True),
        ([True, True], False),
    ),
    "switch_reboot": (
        {"target": "ctsw-1", "for": None, "boot_time": "40us"},
        lambda one: [port.up for port in one.device("ctsw-1").ports],
        [False, False],
        [True, True],
    ),
    "nic_down": (
        {"target": "nic-0-0"},
        lambda one: [port.up for port in one.device("nic-0-0").ports()],
        [False],
        [True],
    ),
    "nic_port_down": (
        {"target": "nic-0-0", "port": 0},
        lambda one: [port.up for port in one.device("nic-0-0").ports()],
        [False],
        [True],
    ),
    "slow_receiver": (
        {"target": "nic-2-0", "rate": "5G"},
        lambda one: held_in(one.device("nic-2-0")) > 10_000,
        True,
        False,
    ),
    "headroom_drift": (
        {"target": "rtsw-0", "headroom": "4KiB"},
        lambda one: one.device("rtsw-0").buffer.group_at(3).headroom_bytes == 4096,
        True,
        False,
    ),
    "alpha_drift": (
        {"target": "rtsw-0", "alpha": "1/64"},
        lambda one: one.device("rtsw-0").buffer.alpha_fixed,
        1024,
        8192,
    ),
    "ecn_drift": (
        {"target": "rtsw-0", "kmin": "1KB", "kmax": "2KB"},
        lambda one: one.port("rtsw-0", "ctsw-0").aqms[3].kmax_bytes == 2000,
        True,
        False,
    ),
    "pfc_drift": (
        {"target": "rtsw-0>nic-0-0"},
        lambda one: (
            one.device("rtsw-0").buffer.group_at(3).lossless,
            one.port("rtsw-0", "nic-0-0").pfc.silent,
        ),
        (False, True),
        (True, False),
    ),
    "dscp_drift": (
        {"target": "rtsw-0", "dscp": 24, "queue": 1},
        lambda one: (
            None if one.device("rtsw-0").classes is None else one.device("rtsw-0").classes.queue_of[24]
        ),
        1,
        3,
    ),
    "hash_seed_drift": (
        {"target": "rtsw-0", "seed": 12345},
        lambda one: one.device("rtsw-0").hash_seed == 12345,
        True,
        False,
    ),
    "hash_fields_drift": (
        {"target": "rtsw-0", "policy": "ecmp"},
        lambda one: one.device("rtsw-0").policy,
        0,
        1,
    ),
}
"""Keys, what to look at, and what is to be seen while it lasts and afterwards."""
ELSEWHERE = {
    "link_up",
    "pause_loss",
    "miscabling",
    "switch_drain",
    "nic_reset",
    "qp_error",
    "gpu_slow",
    "gpu_hung",
    "gpu_lost",
    "row_remap",
    "bit_flip",
    "host_lost",
    "straggler",
    "credit_drift",
    "random",
}
"""Kinds with a test of their own below."""


def test_no_kind_is_forgotten() -> None:
    assert CASES.keys() | ELSEWHERE == FAULTS.table.keys()


@pytest.mark.parametrize("kind", CASES)
def test_it_shows_while_it_lasts_and_not_afterwards(kind: str) -> None:
    keys, look, during, after = CASES[kind]
    fault = {"kind": kind} | keys
    one = Broken(fault, switch={"ecn": {"enabled": True}})
    one.to(19)
    before = look(one)
    one.to(45)
    assert look(one) == during
    assert before != during
    one.to(90)
    assert look(one) == after


def test_a_repair_ends_whatever_took_the_link_down() -> None:
    one = Broken(
        {"kind": "link_down", "target": "rtsw-0:ctsw-0", "for": None},
        {"kind": "switch_crash", "target": "ctsw-0", "for": None},
        {"kind": "link_up", "target": "rtsw-0:ctsw-0", "at": "50us", "for": None},
    )
    one.to(49)
    assert not one.port("rtsw-0", "ctsw-0").up
    one.to(60)
    assert one.port("rtsw-0", "ctsw-0").up
    assert not one.port("rtsw-1", "ctsw-0").up
    assert len(one.device("rtsw-0").down) == 1


def test_a_link_is_down_while_anything_holds_it() -> None:
    one = Broken(
        {"kind": "link_down", "target": "rtsw-0:ctsw-0"},
        {"kind": "port_down", "target": "ctsw-0>rtsw-0", "at": "40us", "for": "40us"},
    )
    one.to(70)
    assert not one.port("rtsw-0", "ctsw-0").up
    one.to(90)
    assert one.port("rtsw-0", "ctsw-0").up


def test_the_newest_of_two_drifts_rules_and_then_the_older_again() -> None:
    one = Broken(
        {"kind": "degrade", "target": "rtsw-0:ctsw-0", "rate": "40G", "for": "60us"},
        {"kind": "degrade", "target": "rtsw-0:ctsw-0", "rate": "10G", "at": "30us", "for": "20us"},
    )
    rates = []
    for us in (25, 40, 60, 90):
        one.to(us)
        rates.append(one.port("rtsw-0", "ctsw-0").rate_bps // 10**9)
    assert rates == [40, 10, 40, 100]


def test_frames_take_longer_by_what_was_added() -> None:
    delay = {"kind": "delay", "target": "rtsw-*:ctsw-*", "added": "3us"}
    late, well = Broken(delay), Broken(delay | {"at": "1s"})
    for one in (late, well):
        one.to(45)
    assert max(well.flights_ps("rtsw-1")) < 2 * US
    assert max(late.flights_ps("rtsw-1")) > 3 * US


def test_frames_are_spoilt_on_their_way_from_the_sender_only() -> None:
    one = Broken({"kind": "degrade", "target": "rtsw-0:ctsw-*", "sender": "rtsw-0", "loss": "1/10"})
    one.to(65)
    found = {name: sum(port.corrupted for port in one.device(name).ports) for name in ("ctsw-0", "rtsw-0")}
    assert found["ctsw-0"] > 0
    assert found["rtsw-0"] == 0
    one.to(90)
    assert sum(port.corrupted for port in one.device("ctsw-0").ports) == found["ctsw-0"]


def test_whoever_does_not_hear_pauses_overruns_its_peer() -> None:
    slow = {"kind": "slow_receiver", "target": "nic-2-0", "rate": "1G", "for": None}
    hears = Broken(slow)
    deaf = Broken(slow, {"kind": "pause_loss", "target": "rtsw-1>nic-2-0", "for": "150us"})
    for one in (hears, deaf):
        one.to(160)
    assert hears.port("rtsw-1", "nic-2-0").blocked == 1 << 3
    assert (deaf.port("rtsw-1", "nic-2-0").blocked, deaf.port("rtsw-1", "nic-2-0").pfc.missed > 0) == (
        0,
        True,
    )
    deaf.to(300)
    assert deaf.port("rtsw-1", "nic-2-0").blocked == 1 << 3


def test_nothing_new_goes_through_a_drained_switch_and_nothing_is_lost() -> None:
    one = Broken({"kind": "switch_drain", "target": "ctsw-0"})
    counts = []
    for us in (18, 45, 59, 90):
        one.to(us)
        counts.append(int(one.device("ctsw-0").data_frames_received()))
    assert 0 < counts[0] < counts[1] == counts[2] < counts[3]
    assert all(port.lost_link_down == 0 for port in one.device("ctsw-0").ports)


@pytest.mark.parametrize(("kind", "keys", "hit"), [("nic_reset", {}, 8), ("qp_error", {"pair": 3}, 1)])
def test_a_queue_pair_in_error_comes_back_by_way_of_reset(kind: str, keys: dict[str, Any], hit: int) -> None:
    one = Broken({"kind": kind, "target": "nic-0-0"} | keys)
    one.to(45)
    nic = one.device("nic-0-0")
    assert isinstance(nic, Nic)
    lost = [pair for pair in nic.pairs if pair.state == ERROR]
    assert len(lost) == hit
    assert all(pair.head is None for pair in lost)
    one.to(90)
    assert all(port.up for port in nic.ports())
    for state in (RESET, INITIALISED, READY_TO_RECEIVE, READY):
        assert nic.modify(lost[0], state, 0, 90 * US) == 0
    assert lost[0].state == READY


@pytest.mark.parametrize(("kind", "target"), [("gpu_slow", "gpu-1-0"), ("straggler", "host-1")])
def test_what_is_slow_copies_less_while_it_is(kind: str, target: str) -> None:
    slow = Broken({"kind": kind, "target": target, "factor": 1000, "for": "300us"}, workload=RING)
    well = Broken({"kind": kind, "target": target, "at": "1s"}, workload=RING)
    copied = []
    for one in (slow, well):
        one.to(300)
        copied.append(int(one.device("gpu-1-0").progress))
    assert copied[0] < copied[1]
    slow.to(400)
    assert slow.device("gpu-1-0").slowness == 1000


def test_a_gpu_that_hangs_goes_on_with_what_it_was_asked_for() -> None:
    one = Broken({"kind": "gpu_hung", "target": "gpu-1-0"}, workload=RING)
    copied = []
    for us in (30, 59, 200):
        one.to(us)
        gpu = one.device("gpu-1-0")
        assert isinstance(gpu, Gpu)
        copied.append(int(gpu.progress))
    assert copied[0] == copied[1] < copied[2]
    assert one.status() == 0


def test_the_rank_of_a_lost_gpu_fails_at_once() -> None:
    one = Broken({"kind": "gpu_lost", "target": "gpu-1-0"}, workload=RING)
    one.to(19)
    assert one.status() == 0
    one.to(200)
    assert one.status() == STATUS_GPU_LOST
    assert not one.device("gpu-1-0").lost


def test_the_ranks_of_a_host_that_comes_back_report_that_they_were_lost() -> None:
    one = Broken({"kind": "host_lost", "target": "host-0"}, workload=RING, transport={"timeout": 14})
    one.to(45)
    assert (one.status(), one.device("host-0").lost) == (0, True)
    assert [port.up for port in one.device("nic-0-1").ports()] == [False]
    one.to(300)
    assert (one.status(), one.device("host-0").lost) == (STATUS_HOST_LOST, False)


def test_the_credit_window_of_a_modular_switch_drifts_and_comes_back() -> None:
    deep = {"deep_buffer": {"where": "spines"}}
    drift = {"kind": "credit_drift", "target": "ctsw-0", "initial_credit": "4KiB", "most_credit": "8KiB"}
    one = Broken(drift, switch=deep)
    windows = []
    for us in (19, 45, 90):
        one.to(us)
        switch = one.device("ctsw-0")
        assert isinstance(switch, DeepSwitch)
        windows.append(int(switch.most_credit_bytes))
    assert windows == [1 << 20, 8192, 1 << 20]


def test_cables_that_are_swapped_lead_elsewhere_from_the_start() -> None:
    swap = {
        "kind": "miscabling",
        "target": "rtsw-0:ctsw-0",
        "swapped_with": "rtsw-1:ctsw-1",
        "at": None,
        "for": None,
    }
    mapping = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 2, "gpus_per_host": 2, "spines": 4}
    one = Broken(swap, topology=mapping)
    names = [
        one.topology.nodes[end.peer].name
        for end in one.topology.ports(one.topology.node_named("rtsw-0").number)
    ]
    assert names == ["nic-0-0", "nic-0-1", "nic-1-0", "nic-1-1", "ctsw-1", "ctsw-1", "ctsw-2", "ctsw-3"]


def test_the_rate_at_which_things_break_by_themselves_is_the_one_that_was_asked_for() -> None:
    drawn = {
        "kind": "random",
        "at": "0s",
        "for": None,
        "acceleration": 3_600_000,
        "within": "1s",
        "classes": [{"fails": "link_down", "target": "rtsw:ctsw", "per_hour": "1/4", "for": "1us"}],
    }
    mapping: dict[str, Any] = {"faults": [{key: value for key, value in drawn.items() if value is not None}]}
    mapping |= {
        "name": "drawn",
        "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 2},
        "jobs": [{"name": "job", "workload": FLOWS | {"flows": [{"src": 0, "dst": 1, "size": "1KiB"}]}}],
    }
    prepared = api.prepare(mapping)
    # Four links, a quarter an hour, 1000 hours in a second: 1000 expected, and a deviation of 32.
    assert 850 < len(prepared.resolved.faults) < 1150
    assert all(fault.end_ps == fault.begin_ps + US for fault in prepared.resolved.faults)
