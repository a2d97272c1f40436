"""Do the policies compare on one job as Meta reports? `scenarios/routing/policies.yaml`, varied.

Source: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM 2024), section 3.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import emu
from emu import api
from emu.results.summary import Summary
from tests.summary.known import known

JOB = Path(__file__).parents[2] / "scenarios/routing/policies.yaml"
FRAGMENTED = (0, 4, 2, 8, 1, 5, 3, 9)
"""Rack 0 whole; of two others one host of two. Both hosts of rack 0 send to the same slices."""
ONE_UPLINK_DOWN = ({"at": "1us", "kind": "link_down", "target": "rtsw-0:ctsw-0"},)

pytestmark = pytest.mark.skipif(not emu.is_compiled(), reason="each run takes several seconds interpreted")


@cache
def run(policy: str, gap: str = "", fragmented: bool = False, broken: bool = False, qps: int = 16) -> Summary:
    routing: dict[str, Any] = {"kind": policy, "convergence": "20us"}
    overrides: dict[str, Any] = {
        "routing": {**routing, "gap": gap} if gap else routing,
        "ncclx.qps_per_connection": qps,
    }
    if fragmented:
        overrides["jobs[0].ranks"] = list(FRAGMENTED)
    if broken:
        overrides["faults"] = list(ONE_UPLINK_DOWN)
    return api.run(JOB, overrides=overrides, local=True, diagnose=False).summary


def busbw(summary: Summary) -> int:
    """Of the last operation, when the controller has had its time."""
    rate = summary.jobs["train"].collectives[-1].busbw
    assert rate is not None
    return rate


def test_pinning_is_full_rate_with_whole_racks() -> None:
    """Full rate: what packets sprayed over all uplinks reach, where nothing else is in the way."""
    assert busbw(run("path_pinning")) == pytest.approx(busbw(run("spray")), rel=0.01)


def test_pinning_loses_more_than_30_percent_with_one_of_two_hosts_active() -> None:
    assert busbw(run("path_pinning", fragmented=True)) < 0.7 * busbw(run("path_pinning"))
    assert busbw(run("e_ecmp", fragmented=True)) > busbw(run("path_pinning", fragmented=True))


def test_queue_pairs_help_only_if_the_switch_hashes_them() -> None:
    assert busbw(run("e_ecmp")) > 1.1 * busbw(run("ecmp"))


@pytest.mark.parametrize("fragmented", [False, True])
def test_engineering_leads_while_capacity_lasts_and_not_after(fragmented: bool) -> None:
    engineered, hashed = (run(name, fragmented=fragmented) for name in ("traffic_engineering", "e_ecmp"))
    assert busbw(engineered) > 1.1 * busbw(hashed)
    engineered, hashed = (
        run(name, fragmented=fragmented, broken=True) for name in ("traffic_engineering", "e_ecmp")
    )
    assert busbw(engineered) < busbw(hashed)


def test_larger_flowlet_gaps_reorder_less() -> None:
    counts = [
        known(run("flowlet", gap=gap, qps=1).fabric.nic_out_of_sequence)
        for gap in ("4us", "16us", "64us", "256us")
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 10 * counts[2] >= counts[3] == 0
