"""Does a share of links, switches or NICs hit as many as it says, spread over the fabric?"""

import pytest

from actors.fabric.model import TopologyError
from emu.scenario.faults.targets import spots_of
from emu.scenario.load import load_mapping
from emu.scenario.resolve import build_topology

WORK = {"kind": "collective", "op": "barrier", "sizes": ["4B"]}
FABRIC = {"kind": "ai_zone", "racks": 10, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 10}
TOPOLOGY = build_topology(
    load_mapping({"name": "a", "topology": FABRIC, "jobs": [{"name": "a", "workload": WORK}]}).scenario
)


@pytest.mark.parametrize(
    ("share", "count"),
    [("1%", 1), ("2%", 2), ("2.5%", 2), ("10%", 10), ("33%", 33), ("100%", 100), ("0.1%", 1)],
)
def test_so_many_links_of_a_hundred_are_hit_and_no_two_alike(share: str, count: int) -> None:
    found = spots_of(f"{share} of rtsw:ctsw", "link", TOPOLOGY)
    assert len(found) == len(set(found)) == count
    assert found == spots_of(f"{share} of rtsw:ctsw", "link", TOPOLOGY)
    leaves = {TOPOLOGY.links[one.links[0]].name.split(":")[0] for one in found}
    assert len(leaves) == min(count, 10)


def test_shares_are_of_devices_patterns_and_ports_as_well() -> None:
    assert len(spots_of("20% of ctsw", "switch", TOPOLOGY)) == 2
    assert len(spots_of("50% of rtsw-0:ctsw-*", "link", TOPOLOGY)) == 5
    assert len(spots_of("10% of nic", "nic", TOPOLOGY)) == 2


@pytest.mark.parametrize("text", ["0% of rtsw:ctsw", "101% of rtsw:ctsw", "5% of rtws:ctsw", "5% rtsw:ctsw"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(TopologyError):
        spots_of(text, "link", TOPOLOGY)
