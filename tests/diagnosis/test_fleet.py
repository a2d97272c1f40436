"""A device or link that is configured otherwise than its peers is a cause where that costs something."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from emu import api
from emu.base.shipped import scenario_names
from emu.results.summary import Summary
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology
from emu.views.diagnosis import fleet
from emu.views.diagnosis.view import View
from emu.views.repairs import run_diagnosis as diagnosing
from tests.diagnosis.broken_runs import INCAST, named, run_of

SLOW_MEMORY = {"receive": {"enabled": True, "rate": "8G"}}
LINK = "rtsw-0:ctsw-0"
ODD = "odd_configuration"
FOUR_SPINES = {
    "kind": "ai_zone",
    "racks": 2,
    "hosts_per_rack": 2,
    "gpus_per_host": 2,
    "spines": 4,
    "link": "100G",
}


def took_ps(summary: Summary) -> int:
    """How long the job took."""
    job = summary.jobs["train"]
    return (job.end_ps or 0) - (job.start_ps or 0)


COSTLY: list[tuple[str, dict[str, Any]]] = [
    ("nic-2-0", {"nic": SLOW_MEMORY}),
    ("host-1", {"nic": SLOW_MEMORY}),
    (LINK, {"link": {"rate": "20G"}}),
    ("gpu-1-0", {"gpu": {"copy_rate": "20G"}}),
]


@pytest.mark.parametrize(("place", "parts"), COSTLY)
def test_what_the_fleets_configuration_gives_back_is_the_time_that_the_override_costs(
    place: str, parts: dict[str, Any]
) -> None:
    summary = run_of(overrides=[{"devices": place, **parts}])
    (found,) = summary.diagnosis
    assert (found.cause, found.place) == (ODD, place)
    assert found.back_ps == took_ps(summary) - took_ps(run_of()) > 0
    assert f"with {place} as its peers" in found.sentence


def test_what_shows_there_is_its_evidence() -> None:
    (found,) = run_of(overrides=[{"devices": "nic-2-0", "nic": SLOW_MEMORY}]).diagnosis
    assert "nic-2-0: nic.receive.rate 8Gbps (its peers: 504Gbps)" in found.evidence
    assert any("receive buffer filled" in line for line in found.evidence)


def test_a_switch_of_a_tier_is_compared_with_that_tier() -> None:
    pool = {"devices": "ctsw-1", "switch": {"pfc": {"enabled": False}, "buffer": {"pool": "500KB"}}}
    job = [{"name": "train", "workload": {**INCAST, "size": "4MiB"}}]
    spines = run_of(topology=FOUR_SPINES, overrides=[pool], jobs=job)
    assert [one.healed for one in spines.counterfactuals][:1] == [[f"{ODD} ctsw-1"]]
    either = run_of(overrides=[pool], jobs=job)  # of two that differ each may be the odd one
    assert {f"{ODD} ctsw-0", f"{ODD} ctsw-1"} <= {key for one in either.counterfactuals for key in one.healed}


def test_of_two_peers_that_differ_the_one_that_costs_time_is_named() -> None:
    """The other one, configured like it, would give nothing back."""
    marks = {"ecn": {"enabled": True, "kmin": "2KB", "kmax": "4KB", "pmax": 1}}
    ends = ((0, 4), (1, 5), (2, 4), (3, 5))
    flows = [{"src": source, "dst": target, "size": "1MiB"} for source, target in ends]
    found = run_of(
        topology={**FOUR_SPINES, "racks": 3, "spines": 2},
        overrides=[{"devices": "ctsw-1", "switch": marks}],
        jobs=[{"name": "train", "workload": {"kind": "flows", "flows": flows}}],
        routing={"kind": "ecmp"},
        transport={"congestion_control": {"kind": "dcqcn"}},
        seed=2,
    ).diagnosis
    assert [(one.cause, one.place) for one in found] == [(ODD, "ctsw-1")]


HARMLESS: list[list[dict[str, Any]]] = [
    [{"devices": "nic-1-0", "transport": {"ack_every": 2}}],
    [{"devices": f"nic-{host}-0", "transport": {"ack_every": 2}} for host in range(3)],
]


@pytest.mark.parametrize("overrides", HARMLESS)
def test_a_difference_that_costs_nothing_is_healed_once_and_not_named(
    overrides: list[dict[str, Any]],
) -> None:
    summary = run_of(overrides=overrides)
    assert summary.diagnosis == []
    assert len(summary.counterfactuals) == 1


@pytest.mark.parametrize("devices", ["nic-*", ["nic-0-*", "nic-1-*"]])
def test_what_half_of_the_fleet_has_is_no_difference_from_it(devices: Any) -> None:
    summary = run_of(overrides=[{"devices": devices, "nic": SLOW_MEMORY}])
    assert ODD not in [one.cause for one in summary.diagnosis]
    assert all(ODD not in key for one in summary.counterfactuals for key in one.healed)


def test_beside_a_fault_each_is_named_with_what_it_costs() -> None:
    slow = {"kind": "slow_receiver", "target": "nic-2-0", "rate": "8G", "at": "150us"}
    override = {"devices": LINK, "link": {"rate": "20G"}}
    summary = run_of(slow, overrides=[override])
    assert sorted(named(summary.diagnosis)) == [(ODD, LINK), ("slow_receiver", "nic-2-0")]
    given = {one.cause: one.back_ps for one in summary.diagnosis}
    alone = {ODD: run_of(slow), "slow_receiver": run_of(overrides=[override])}
    first = summary.diagnosis[0].cause
    assert given[first] == took_ps(summary) - took_ps(alone[first])


def test_on_swapped_cables_the_fleets_configuration_leaves_them_swapped() -> None:
    swapped = {"kind": "miscabling", "target": LINK, "swapped_with": "rtsw-1:ctsw-1"}
    override = {"devices": "nic-2-0", "nic": SLOW_MEMORY}
    summary = run_of(swapped, overrides=[override], topology=FOUR_SPINES)
    odd = next(one for one in summary.diagnosis if one.cause == ODD)
    assert odd.back_ps == took_ps(summary) - took_ps(run_of(swapped, topology=FOUR_SPINES))


def test_a_larger_run_says_that_it_was_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosing, "MOST_EVENTS", 1)
    summary = run_of(overrides=[{"devices": LINK, "link": {"rate": "20G"}}])
    assert ODD not in [one.cause for one in summary.diagnosis]
    assert summary.uncompared_events


MAP = {"dscp_to_tc": {26: 3, 46: 6}, "tc_to_queue": {1: 0}}
WATCHDOG = {"watchdog": {"enabled": True, "detection": "400ms"}}
REPEATED = {"buffer": {"pool": "500KB"}, "pfc": WATCHDOG, "qos": MAP, "latency": "300ns"}
ONE_KEY: list[tuple[dict[str, Any], str]] = [
    ({"qos": {**MAP, "dscp_to_tc": {26: 0, 46: 6}}}, "switch.qos.dscp_to_tc.26 0 (its peers: by default)"),
    ({"qos": {**MAP, "dscp_to_tc": {26: 3}}}, "switch.qos.dscp_to_tc.46 by default (its peers: 6)"),
    ({"latency": "400ns"}, "switch.latency 400ns (its peers: 300ns)"),
    ({"pfc": {"enabled": False, **WATCHDOG}}, "switch.pfc.enabled false (its peers: true)"),
    ({"buffer": {"pool": "400KB"}}, "switch.buffer.pool 400KB (its peers: 500KB)"),
]


@pytest.mark.parametrize(("other", "reported"), ONE_KEY)
def test_of_all_that_an_override_repeats_only_what_differs_from_peers_is_named(
    other: dict[str, Any], reported: str
) -> None:
    """A leaf with a whole configuration of its own, as a `config_db` makes one: one key is another."""
    mapping = {
        "name": "one",
        "topology": FOUR_SPINES | {"racks": 3},
        "switch": REPEATED,
        "overrides": [
            {"devices": "rtsw-1", "switch": {**REPEATED, **other}},
            {"devices": "rtsw-2", "switch": REPEATED},
        ],
        "jobs": [{"name": "train", "workload": INCAST}],
    }
    scenario = load_mapping(mapping).scenario
    topology = build_topology(scenario)
    view = SimpleNamespace(scenario=scenario, topology=topology)
    (one,) = fleet.found(cast(View, view))
    assert one.sentence == f"rtsw-1 is configured otherwise than its peers: {reported}"
    assert one.evidence == (f"rtsw-1: {reported}",)


OVERRIDDEN = [
    name for name, (path, _) in scenario_names().items() if "overrides:" in path.read_text(encoding="utf-8")
]
FITTING = {(False, False), (True, True)}
"""Devices of an override of devices, links of one of links."""


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_an_override_is_compared_at_what_it_names_and_with_peers_of_that_network(name: str) -> None:
    """In every scenario of the project. `fnic-*` names NICs and no link `fnic-0:rsw-0`."""
    scenario = api.load(name).scenario
    topology = build_topology(scenario)
    places = fleet.differences(scenario, topology)
    for odd, of in places.items():
        assert {(":" in odd, scenario.overrides[one].link is not None) for one in of} <= FITTING
    view = cast("View", SimpleNamespace(scenario=scenario, topology=topology))
    found = [one.place for one in fleet.found(view)]
    assert set(found) <= set(places)
    assert name not in ("checkpoint_pcie", "checkpoint_pcie_apart") or found == []
