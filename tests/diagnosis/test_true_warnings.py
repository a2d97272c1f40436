"""A warning before the run that counters confirm is a cause, repaired by the value that it names."""

from __future__ import annotations

from typing import Any

import pytest

from emu import api
from emu.devices.run_warnings import run_warnings
from emu.results.summary import Summary
from tests.diagnosis.broken_runs import named

RACKS: dict[str, Any] = {
    "kind": "ai_zone",
    "racks": 4,
    "hosts_per_rack": 4,
    "gpus_per_host": 1,
    "spines": 4,
    "link": "100G",
    "nic_delay": "1us",
    "uplink_delay": "1us",
}
INCAST = {"name": "in", "workload": {"kind": "incast", "fan_in": 12, "size": "1MB", "racks": "any"}}
PAIRS = {"name": "pairs", "workload": {"kind": "permutation", "size": "1MB", "racks": "any"}}
SMALL = {"buffer": {"asic": "none", "pool": "4MB"}}


def mapping(**more: Any) -> dict[str, Any]:
    """Two jobs that meet."""
    return {"name": "foreseen", "topology": RACKS, "jobs": [INCAST, PAIRS]} | more


def warnings(one: dict[str, Any]) -> list[str]:
    """What is warned of before the run."""
    prepared = api.prepare(one)
    return run_warnings(prepared.scenario, prepared.topology, prepared.plan)


def took_ps(summary: Summary, job: str) -> int:
    """How long a job took."""
    row = summary.jobs[job]
    return (row.end_ps or 0) - (row.start_ps or 0)


def lost(summary: Summary, reason: str) -> int:
    """Frames that were dropped for a reason."""
    assert summary.fabric.drops is not None
    return summary.fabric.drops.by_reason.get(reason, 0)


SHORT = {
    "headroom": (SMALL | {"buffer": SMALL["buffer"] | {"headroom": "16KB"}}, "switch.buffer.headroom: auto"),
    "shared": (
        {"buffer": SMALL["buffer"] | {"headroom_pool": "20KB"}},
        "switch.buffer.headroom_pool: {needed}B",
    ),
    "quanta": (SMALL | {"pfc": {"quanta": 40}}, "switch.pfc.quanta: {needed}"),
}


@pytest.mark.parametrize("name", SHORT)
def test_headroom_that_is_warned_of_is_the_cause_where_lossless_frames_were_lost(name: str) -> None:
    """Repaired, nothing is lost, and contention is what is left; not the other way round."""
    switch, repaired = SHORT[name]
    one = mapping(switch=switch)
    (line,) = (line for line in warnings(one) if "lossless classes may drop" in line)
    summary = api.run(one, local=True).summary
    assert lost(summary, "headroom_overrun") > 0
    first = summary.diagnosis[0]
    assert first.cause == "short_headroom"
    assert first.sentence.startswith(line.partition(": lossless classes")[0])
    assert f"{lost(summary, 'headroom_overrun'):,} frames dropped there" in first.sentence
    needed = [word.removesuffix("B") for word in line.replace(";", " ").split() if word.strip("B").isdigit()][
        -1
    ]
    key, _, value = repaired.format(needed=needed).partition(": ")
    assert f"with {key}: {value}, " in first.sentence
    well = api.run(api.load(one, overrides={key: value}), local=True).summary
    assert lost(well, "headroom_overrun") == 0
    gains = {job: took_ps(summary, job) - took_ps(well, job) for job in summary.jobs}
    assert first.back_ps in gains.values()
    assert (first.back_ps or 0) > max(took_ps(summary, job) for job in gains) // 2
    assert {cause for cause, _ in named(summary.diagnosis)[1:]} <= {"contention"}


def test_a_headroom_that_lost_nothing_is_no_cause() -> None:
    flow = {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "1MB"}]}
    one = mapping(switch=SHORT["headroom"][0], jobs=[{"name": "quiet", "workload": flow}])
    assert any("lossless classes may drop" in line for line in warnings(one))
    summary = api.run(one, local=True).summary
    assert lost(summary, "headroom_overrun") == 0
    assert "short_headroom" not in [one.cause for one in summary.diagnosis]


def test_contention_yields_to_drops_where_a_timer_expired() -> None:
    """Without PFC the incast drops frames of both jobs; either is quicker without the other."""
    switch = {"buffer": {"asic": "none", "pool": "1MB"}, "pfc": {"enabled": False}}
    transport = {"timeout": 6, "congestion_control": {"kind": "dcqcn"}}
    summary = api.run(mapping(switch=switch, transport=transport), local=True).summary
    assert summary.fabric.timers is not None
    causes = [one.cause for one in summary.diagnosis]
    assert causes[0] == "drops"
    assert "contention" in causes
    assert (
        f"{lost(summary, 'no_shared_room'):,} frames dropped for want of room"
        in summary.diagnosis[0].sentence
    )
    assert "expired, the longest after" in summary.diagnosis[0].sentence


KMIN = {"enabled": True, "kmin": "3MB", "kmax": "3MB", "scaled": False}


@pytest.mark.parametrize(("kmin", "warned"), [("3MB", True), ("300KB", False)])
def test_marking_that_begins_above_xoff_is_warned_of(kmin: str, warned: bool) -> None:
    """Alpha 1/8 of a pool of 4 MB: a group alone holds a ninth of what is left of it, and its reserve."""
    switch = SMALL | {"ecn": KMIN | {"kmin": kmin}}
    one = mapping(switch=switch, transport={"congestion_control": {"kind": "dcqcn"}})
    lines = [line for line in warnings(one) if "ECN cannot act before PFC" in line]
    assert bool(lines) == warned
    for line in lines:
        assert line.startswith(
            "switch.ecn.kmin: marking begins at 3000000B, above XOFF of priority group 3 ("
        )
    assert not any(
        "ECN cannot act" in line for line in warnings(mapping(switch=switch))
    )  # no congestion control


def test_a_static_xoff_and_its_reserve_are_what_kmin_is_held_against() -> None:
    """100 KB of the shared pool and 4,096 B of the group's own."""
    for kmin, warned in ((104_096, False), (104_097, True)):
        buffer = SMALL["buffer"] | {"xoff": "100KB"}
        switch = {"buffer": buffer, "ecn": KMIN | {"kmin": f"{kmin}B"}}
        one = mapping(switch=switch, transport={"congestion_control": {"kind": "dcqcn"}})
        assert (
            any("above XOFF of priority group 3 (104096B at most" in line for line in warnings(one)) == warned
        )


def test_late_marking_that_only_paused_is_a_cause_where_the_named_value_saves_time() -> None:
    """A slow cable's flow holds its sender's other flow by pauses; marks would have slowed the one down."""
    flow = {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "2MB"}]}
    jobs = [{"name": name, "ranks": [0, at], "workload": flow} for at, name in ((1, "slow"), (2, "fast"))]
    one = {
        "name": "late",
        "topology": {"kind": "star", "hosts": 3, "gpus_per_host": 1, "link": "100G"},
        "switch": {"buffer": {"asic": "none", "pool": "2MB"}, "ecn": KMIN},
        "transport": {"congestion_control": {"kind": "dcqcn"}},
        "jobs": jobs,
        "faults": [{"kind": "degrade", "target": "nic-1-0:tor-0", "rate": "10G"}],
    }
    (line,) = [line for line in warnings(one) if "ECN cannot act before PFC" in line]
    value = line.rpartition("; ")[2].partition(" would be half of XOFF")[0]
    summary = api.run(one, local=True).summary
    (found,) = [one for one in summary.diagnosis if one.cause == "late_marking"]
    marking = api.run(api.load(one, overrides={"switch.ecn.kmin": value}), local=True).summary
    assert summary.fabric.queue_marked_frames == 0
    assert (marking.fabric.queue_marked_frames or 0) > 0
    assert (
        found.back_ps == took_ps(summary, "fast") - took_ps(marking, "fast") > took_ps(summary, "fast") // 20
    )
    assert f"with switch.ecn.kmin: {value}, fast would take" in found.sentence


def test_a_setting_of_an_override_is_repaired_there() -> None:
    """One switch alone has too little headroom."""
    short = [{"devices": "rtsw-*", "switch": {"buffer": {"headroom": "16KB"}}}]
    one = mapping(switch=SMALL, overrides=short)
    summary = api.run(one, local=True).summary
    assert lost(summary, "headroom_overrun") > 0
    first = summary.diagnosis[0]
    assert first.cause == "short_headroom"
    assert "with overrides[0].switch.buffer.headroom: auto, " in first.sentence
    well = api.run(mapping(switch=SMALL), local=True).summary
    assert first.back_ps in [took_ps(summary, job) - took_ps(well, job) for job in summary.jobs]
