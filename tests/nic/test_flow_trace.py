"""Do traces of queue pairs show what the wire and the published rules of the controls say?"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError

PAIR: dict[str, Any] = {
    "name": "pair",
    "topology": {"kind": "ai_zone", "racks": 1, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 1},
    "link": {"rate": "400G", "delay": "500ns"},
    "switch": {"latency": "300ns"},
    "nic": {"latency": "200ns"},
    "transport": {"mtu": 4096},
    "run": {"trace": {"flows": "nic-0-0:nic-1-0"}},
    "jobs": [{"name": "one", "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "1MiB"}]}}],
}
PS_PER_BYTE = 20
ETHERNET_BYTES = 14 + 4 + 20
"""Header, FCS, preamble and gap."""
DATA_BYTES = ETHERNET_BYTES + 20 + 8 + 12 + 4096 + 4
RETH_BYTES = 16
ACK_BYTES = ETHERNET_BYTES + 20 + 8 + 12 + 4 + 4
TRIP_PS = 2 * (DATA_BYTES + ACK_BYTES) * PS_PER_BYTE + 4 * 500_000 + 2 * (300_000 + 200_000)


def traced(tmp_path: Path, scenario: Any, overrides: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    result = api.run(scenario, overrides=overrides, local=True, out=tmp_path / "run", force=True)
    rows: list[dict[str, Any]] = result.frame("trace").to_dict("records")
    return rows


def test_round_trip_of_an_idle_way_is_its_closed_form(tmp_path: Path) -> None:
    rows = traced(tmp_path, PAIR)
    trips = {row["rtt_ps"] for row in rows if row["rtt_ps"] == row["rtt_ps"]}
    first_ps = RETH_BYTES * PS_PER_BYTE
    """The first packet is longer by its RETH, on both links; at line rate the others wait for it once."""
    assert trips == {TRIP_PS + 2 * first_ps, TRIP_PS + first_ps}
    assert {(row["source"], row["destination"]) for row in rows} == {("nic-0-0", "nic-1-0")}
    assert rows[-1]["sent_bytes"] == 1 << 20
    assert rows[-1]["sent_packets"] == 256
    assert rows[-1]["retransmissions"] == 0
    assert max(row["in_flight_packets"] for row in rows) == TRIP_PS // (DATA_BYTES * PS_PER_BYTE) + 1


def test_rows_come_once_an_interval_and_a_nic_keeps_so_many(tmp_path: Path) -> None:
    rows = traced(tmp_path, PAIR, {"run.trace.every": "3us"})
    intervals = [row["virtual_ps"] // 3_000_000 for row in rows]
    assert intervals == sorted(set(intervals))
    assert intervals == list(range(intervals[-1] + 1)), "it is never idle"
    assert len(traced(tmp_path, PAIR, {"run.trace.most_rows": 5})) == 5


def test_alpha_of_dcqcn_falls_by_its_gain_and_cnps_cut_the_rate_by_half_of_it(tmp_path: Path) -> None:
    rows = traced(tmp_path, "dcqcn", {"run.trace": {"flows": "*"}, "expect": [], "run.max_time": "120us"})
    assert rows[0]["alpha"] == 1
    cuts = [
        after["rate_bps"] / before["rate_bps"]
        for before, after in pairwise(rows)
        if before["queue_pair"] == after["queue_pair"] and after["rate_bps"] < before["rate_bps"]
    ]
    assert cuts[0] == pytest.approx(0.5, abs=1e-3), "the first CNP meets an alpha of 1"


@pytest.mark.parametrize("pattern", ["nic-9-9", "nic-0-0:nic-7-0", "rtsw-0"])
def test_a_pattern_that_fits_no_nic_is_refused(pattern: str) -> None:
    with pytest.raises(ScenarioError, match="is no NIC, and no pair of NICs"):
        api.run(PAIR, overrides={"run.trace.flows": pattern}, local=True)
