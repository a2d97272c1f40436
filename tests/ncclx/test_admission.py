"""Do clear-to-sends keep what is under way below every XOFF, and what does a gather pay for it?"""

from functools import cache
from typing import Any

from emu import api
from emu.results.summary import Summary
from tests.summary.known import known

SENDERS, SLOTS = 15, 4
POOL_BYTES = 8_000_000


@cache
def ran(name: str, buffsize: str = "", uplink: str = "300G") -> Summary:
    changes: dict[str, Any] = {"expect": [], "topology.uplink": uplink}
    if buffsize:
        changes["ncclx.buffsize"] = buffsize
    return api.run(f"admission_{name}", overrides=changes, local=True, diagnose=False).summary


def took_ps(summary: Summary) -> int:
    (row,) = summary.jobs["gather"].collectives
    assert row.start_ps is not None
    assert row.end_ps is not None
    return row.end_ps - row.start_ps


def pausing(summary: Summary) -> set[str]:
    """Devices that stopped the other end of one of their links."""
    return {link.destination for link in summary.fabric.links if link.paused_ps}


def test_below_the_smallest_xoff_nothing_is_ever_paused() -> None:
    under_way = SENDERS * SLOTS * 12 * 1024
    # With all of it in one pool, XOFF is alpha (1/8) of the rest.
    assert under_way < (POOL_BYTES - under_way) // 8
    assert ran("gated").fabric.pfc_transmit_xoff_frames == 0
    assert known(ran("gated").drops).total == 0


def test_twice_past_xoff_pauses_appear() -> None:
    under_way = SENDERS * SLOTS * 32 * 1024
    assert under_way > 2 * (POOL_BYTES - under_way) // 8
    assert known(ran("gated", "128KiB").fabric.pfc_transmit_xoff_frames) > 0
    assert "rtsw-0" in pausing(ran("gated", "128KiB"))


def test_blind_writes_pause_two_tiers_up_and_hold_up_a_flow_that_goes_elsewhere() -> None:
    blind = ran("blind")
    # The receiver's leaf pauses the spine, and the spine the other senders' leaf.
    assert {"rtsw-0", "ctsw-0"} <= pausing(blind)
    stopped = {link.source for link in blind.fabric.links if link.paused_ps and link.destination == "ctsw-0"}
    assert stopped == {"rtsw-1"}
    alone, held_up = (ran(name).jobs["bystander"].flows[0].throughput_bps for name in ("gated", "blind"))
    assert alone is not None
    assert held_up is not None
    assert alone > 4 * held_up


def test_a_gather_whose_senders_ask_ends_no_later() -> None:
    assert took_ps(ran("gated")) < took_ps(ran("blind"))


def test_behind_wide_uplinks_it_costs_the_first_clear_to_send_and_the_others_acknowledgements() -> None:
    # The first CTS: doorbell and completion of 251.25 ns, four links of 500 ns and 166 B (20 ps a byte, 5 in
    # the middle), three switches and a NIC. Then, for each slice of 12 KiB, on the receiver's link the ACK
    # of its CTS (86 B) and the headers of a message of its own (20 B).
    scenario = api.load("admission_gated").scenario
    latencies = 3 * scenario.switch.latency_ps + scenario.nic.latency_ps
    first_ps = 2 * 251_250 + 4 * 500_000 + 166 * (20 + 5 + 5 + 20) + latencies
    slices = SENDERS * -(-640 * 1024 // (12 * 1024))
    gated, blind = (ran(name, uplink="400G") for name in ("gated", "blind"))
    assert took_ps(blind) < took_ps(gated) <= took_ps(blind) + first_ps + slices * (86 + 20) * 20
