"""Are the paths of queue pairs disjoint where their ports are searched for, as switches hash them?"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.devices.disjoint_paths import DisjointPaths
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology

ZONE = {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 1, "spines": 8}
PAIRS = 8


def mapping(ports: str, **routing: Any) -> dict[str, Any]:
    """One flow of eight queue pairs under eight spines."""
    flow = {"src": 0, "dst": 1, "size": "512KiB"}
    workload = {"kind": "flows", "qps": PAIRS, "message": "64KiB", "flows": [flow]}
    return {
        "name": "disjoint",
        "topology": ZONE,
        "routing": routing,
        "transport": {"udp_source_port": ports},
        "jobs": [{"name": "job", "workload": workload}],
    }


HASHES: dict[str, dict[str, Any]] = {
    "e_ecmp": {},
    "ecmp": {"kind": "ecmp"},
    "toeplitz": {"hash": "toeplitz"},
    "crc16": {"hash": "crc16", "fields": ["src", "dst", "udp_source", "ingress_port"]},
}


@pytest.mark.parametrize("name", HASHES)
def test_eight_queue_pairs_fill_eight_spines_alike_and_by_luck_they_do_not(name: str) -> None:
    def spines(ports: str) -> list[int]:
        links = api.run(mapping(ports, **HASHES[name]), local=True, diagnose=False).summary.fabric.links
        return [one.data_bytes for one in links if one.source == "rtsw-0" and one.destination[:4] == "ctsw"]

    assert spines("disjoint") == [64 * 1024] * 8
    assert min(spines("per_qp")) == 0


def test_a_path_that_was_searched_for_is_the_one_that_packets_take() -> None:
    loaded = load_mapping(mapping("per_qp")).scenario
    fabric = build_topology(loaded)
    one = DisjointPaths(loaded, fabric)
    taken = [one.path(fabric.nics[0], 0, fabric.nics[1], port, 77, 3) for port in range(50_000, 50_400)]
    assert {len(path) for path in taken} == {2}
    shares = [sum(path[0] == link for path in taken) for link in {path[0] for path in taken}]
    assert len(shares) == 8
    assert all(25 <= share <= 75 for share in shares)  # 50 each, 3.8 standard errors


@pytest.mark.parametrize("kind", ["spray", "adaptive", "path_pinning"])
def test_where_packets_do_not_follow_a_hash_alone_the_search_is_refused(kind: str) -> None:
    with pytest.raises(ScenarioError, match="cannot be told from their headers"):
        load_mapping(mapping("disjoint", kind=kind))
