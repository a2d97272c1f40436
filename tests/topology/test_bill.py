"""Does the bill of a fabric count what would be bought, and do parallel links keep uplinks at their rate?"""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.fabric.model import FABRIC
from emu.cli.bill import bill_of
from emu.cli.main import main
from emu.scenario.load import load_text
from emu.scenario.resolve import build_topology


def topology(**keys: Any) -> Any:
    text = json.dumps({"name": "a", "topology": keys})
    return build_topology(load_text(text, "a.yaml", jobless=True).scenario)


def counts(**keys: Any) -> dict[tuple[str, str], int]:
    return {(one.part, one.name): one.number for one in bill_of(topology(**keys)).items}


def test_two_segments_of_hpn_have_the_switches_and_optics_of_its_paper() -> None:
    # 2 segments x 8 rails x 2 ToRs, 128 x 200G down and 60 x 400G up; 2 planes of 60 aggregation switches
    assert counts(kind="hpn", segments_per_pod=2) == {
        ("switch", "tor"): 32,
        ("switch", "agg"): 120,
        ("port", "400Gbps"): 2 * 32 * 60,
        ("port", "200Gbps"): 32 * 128,
        ("nic", "200Gbps"): 2 * 128 * 8 * 2,
        ("optic", "400Gbps"): 2 * 32 * 60,
        ("optic", "200Gbps"): 2 * 32 * 128,
        ("fibre", "400Gbps"): 32 * 60,
        ("fibre", "200Gbps"): 32 * 128,
    }


def test_short_links_are_copper_without_optics() -> None:
    found = counts(kind="ai_zone", racks=2, hosts_per_rack=1, gpus_per_host=4, spines=2, nic_delay="10ns")
    assert sum(count for (part, _), count in found.items() if part == "copper") == 8
    assert sum(count for (part, _), count in found.items() if part == "fibre") == 4
    assert sum(count for (part, _), count in found.items() if part == "optic") == 8


@pytest.mark.parametrize(
    ("keys", "aggs"),
    [
        ({"kind": "hpn", "segments_per_pod": 2, "hosts_per_segment": 4}, "aggs_per_plane"),
        ({"kind": "megascale", "pods": 1, "blocks_per_pod": 2, "hosts_per_block": 4}, "aggs_per_pod"),
        ({"kind": "rail_only", "segments": 2, "hosts_per_segment": 4}, "aggs_per_rail"),
        ({"kind": "dcn_plus", "pods": 1, "segments_per_pod": 2, "hosts_per_segment": 4}, "aggs_per_pod"),
    ],
)
def test_half_the_aggregation_switches_with_twice_the_links_leave_rates_as_they_were(
    keys: dict[str, Any], aggs: str
) -> None:
    fabrics = [
        topology(**keys, **{aggs: 8}, links_per_tor_agg=1),
        topology(**keys, **{aggs: 4}, links_per_tor_agg=2),
    ]
    wide, slim = (sorted(link.rate_bps for link in one.links if link.kind == FABRIC) for one in fabrics)
    assert wide == slim
    aggs_of = [sum(one.nodes[switch].model == "agg" for switch in one.switches) for one in fabrics]
    assert aggs_of[0] == 2 * aggs_of[1] > 0


def test_prices_are_added_up_and_shared_among_the_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, prices = tmp_path / "a.yaml", tmp_path / "prices.yaml"
    fabric = "{kind: ai_zone, racks: 2, hosts_per_rack: 1, gpus_per_host: 4, spines: 2}"
    scenario.write_text(f"name: a\ntopology: {fabric}\n", "utf-8")
    prices.write_text("currency: EUR\nswitches: {rtsw: 1000}\nfibre: 10\n", "utf-8")
    assert main(["topo", str(scenario), "--bill", "--prices", str(prices), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"] == 2 * 1000 + 10 * (8 + 4)
    assert found["per_gpu"] == found["total"] / 8
    assert main(["topo", str(scenario), "--prices", str(prices)]) == 0
    assert "parts without a price are not counted" in capsys.readouterr().out
    prices.write_text("swiches: {rtsw: 1000}\n", "utf-8")
    assert main(["topo", str(scenario), "--prices", str(prices)]) == 2
    assert "prices.yaml:1: swiches: unknown key" in capsys.readouterr().err
