"""Does the bill of a fabric count what would be bought, and do parallel links keep uplinks at their rate?"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from actors.fabric.model import FABRIC, TopologyError
from actors.fabric.paths import count_paths
from emu.cli.bill import bill_of
from emu.cli.main import main
from emu.scenario.load import load_text
from emu.scenario.resolve import build_topology
from tests.topology.fabrics import fabric_of

_PODS = {"kind": "llama3", "pods": 2, "racks_per_pod": 4, "ctsws_per_pod": 8, "atsws": 8}


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
        ({"kind": "ai_zone", "racks": 3, "hosts_per_rack": 2}, "spines uplinks_per_leaf_spine"),
        (_PODS | {"pods": 1}, "ctsws_per_pod links_per_rtsw_ctsw"),
        (_PODS, "atsws links_per_ctsw_atsw"),
    ],
)
def test_half_the_upper_switches_with_twice_the_links_leave_rates_and_cables_as_they_were(
    keys: dict[str, Any], aggs: str
) -> None:
    uppers, _, links = aggs.partition(" ")
    fabrics = [topology(**keys | {uppers: many, links or "links_per_tor_agg": 8 // many}) for many in (8, 4)]
    wide, slim = (sorted(link.rate_bps for link in one.links if link.kind == FABRIC) for one in fabrics)
    assert wide == slim
    bills = [
        Counter({(one.part, one.name): one.number for one in bill_of(fabric).items}) for fabric in fabrics
    ]
    fewer = {key: count for key, count in (bills[0] - bills[1]).items() if key[0] == "switch"}
    assert [2 * count for count in fewer.values()] == [bills[0][key] for key in fewer]
    assert len(fewer) == 1
    assert bills[0] - bills[1] == fewer


@pytest.mark.parametrize(("p", "q"), [(1, 1), (2, 1), (1, 4), (4, 2)])
def test_a_fat_tree_of_parallel_links_has_switches_of_k_ports_and_as_many_fewer_of_them(
    p: int, q: int
) -> None:
    k = 8
    fabric = topology(kind="fat_tree", k=k, links_per_tor_agg=p, links_per_agg_core=q)
    pods, tors, cores = k // q, k // (2 * p), k * k // (4 * p * q)
    assert len(fabric.nics) == k**3 // (4 * p * q)
    found = counts(kind="fat_tree", k=k, links_per_tor_agg=p, links_per_agg_core=q)
    switches = {"tor": pods * tors, "agg": pods * tors, "core": cores}
    assert {name: number for (part, name), number in found.items() if part == "switch"} == switches
    assert found["port", "400Gbps"] == k * sum(switches.values())
    assert all(len(fabric.ports(switch)) == k for switch in fabric.switches)
    first, last = fabric.nics[0], fabric.nics[-1]
    # k/2 links up from the ToR and from the aggregation switch, then q and p links down to the same ToR
    assert count_paths(fabric, first, last) == (k // 2) ** 2 * q * p


@pytest.mark.parametrize(
    ("tiers", "p", "q"), [(2, 1, 1), (2, 2, 1), (2, 4, 1), (3, 2, 1), (3, 1, 4), (3, 4, 2)]
)
def test_planes_of_parallel_links_have_switches_of_all_ports_and_as_many_fewer_of_them(
    tiers: int, p: int, q: int
) -> None:
    radix, planes = 8, 2
    keys = {"kind": "multi_plane", "planes": planes, "gpus_per_host": planes, "tiers": tiers, "radix": radix}
    keys |= {"links_per_tor_agg": p, "links_per_agg_core": q}
    fabric, found = topology(**keys), counts(**keys)
    tors = radix // p if tiers == 2 else radix // q * (radix // (2 * p))
    switches = {"tor": tors, "agg": tors // 2, "core": 0} if tiers == 2 else {"tor": tors, "agg": tors}
    switches |= {"core": radix * radix // (4 * p * q)} if tiers == 3 else {}
    assert len(fabric.nics) == planes * tors * radix // 2
    assert {name: found.get(("switch", name), 0) for name in switches} == {
        name: planes * number for name, number in switches.items()
    }
    assert all(len(fabric.ports(switch)) == radix for switch in fabric.switches)
    # as in a fat tree, within the plane of both
    ways = radix // 2 * p if tiers == 2 else (radix // 2) ** 2 * q * p
    assert count_paths(fabric, fabric.nics[0], fabric.nics[-planes]) == ways


@pytest.mark.parametrize("kind", ["fat_tree", "multi_plane"])
@pytest.mark.parametrize("key", ["links_per_tor_agg", "links_per_agg_core"])
def test_parallel_links_that_do_not_divide_the_ports_upwards_are_refused(key: str, kind: str) -> None:
    ports = {"k": 8} if kind == "fat_tree" else {"radix": 8, "tiers": 3}
    with pytest.raises(
        TopologyError, match=f"{key}: 3 parallel links do not divide the 4 ports .*a divisor of 4"
    ):
        fabric_of(kind=kind, **ports, **{key: 3})


def test_two_tiers_have_no_links_to_a_core() -> None:
    with pytest.raises(TopologyError, match=r"links_per_agg_core: two tiers have no core.*1, or tiers: 3"):
        fabric_of(kind="multi_plane", radix=8, links_per_agg_core=2)


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
