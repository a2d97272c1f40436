"""Do rates know what a queue pair over many paths takes: on 1, 2, 4 and 8 planes, as long as its packets?

Planes are of 100G: one switch for all eight servers, or ToRs of two servers below two spines, where hashes
collide.
"""

from typing import Any

import pytest

from emu.api import run
from emu.base.errors import ScenarioError
from emu.flow.cross import differences
from emu.results.summary import Summary

PERMUTATION = [(0, 5), (1, 4), (2, 7), (3, 6), (4, 1), (5, 0), (6, 3), (7, 2)]


def flows(*ends: tuple[int, int], size: str) -> dict[str, Any]:
    return {"kind": "flows", "flows": [{"src": src, "dst": dst, "size": size} for src, dst in ends]}


def scenario(ports: int, work: dict[str, Any], radix: int = 16, **more: Any) -> dict[str, Any]:
    """Eight servers whose NIC has a port on each plane."""
    fabric = {"kind": "multi_plane", "planes": ports, "nic_ports": ports, "gpus_per_host": 1, "hosts": 8}
    return {
        "name": "paths",
        "fidelity": "flow",
        "topology": fabric | {"radix": radix, "link": "100G"},
        "transport": {"kind": "multipath"},
        "jobs": [{"name": "f", "workload": work}],
        **more,
    }


def both(given: dict[str, Any]) -> tuple[Summary, Summary]:
    """In packets and by rates."""
    packet, flow = (
        run(given | {"fidelity": one}, local=True, diagnose=False).summary for one in ("packet", "flow")
    )
    return packet, flow


def errors(packet: Summary, flow: Summary) -> list[float]:
    """By how much flows and collectives come out longer."""
    return [one.part for one in differences(packet, flow, by_load=True) if one.what.startswith("f:")]


@pytest.mark.parametrize("ports", [1, 2, 4, 8])
@pytest.mark.parametrize("size", ["4KiB", "512KiB"])
def test_a_flow_alone_takes_what_its_packets_take(ports: int, size: str) -> None:
    """Two tiers. A message of one packet has one port, others all alike."""
    packet, flow = both(scenario(ports, flows((0, 7), size=size), radix=4))
    assert errors(packet, flow) == [0.0]
    if size == "512KiB":
        assert [one.up_bytes for one in flow.fabric.planes] == [2**19 // ports] * ports * (ports > 1)
    assert sum(one.wire_bytes for one in flow.fabric.links) == pytest.approx(
        sum(one.wire_bytes for one in packet.fabric.links), rel=1e-3
    )


def work_of(kind: str, ports: int) -> dict[str, Any]:
    """A permutation, or a ring."""
    if kind == "permutation":
        return flows(*PERMUTATION, size=f"{ports * 128}KiB")
    sizes = [f"{ports * 64}KiB"]
    return {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": sizes}


@pytest.mark.parametrize("ports", [1, 2, 4, 8])
@pytest.mark.parametrize("work", ["permutation", "ring"])
def test_many_are_within_three_percent_of_their_packets(work: str, ports: int) -> None:
    found = errors(*both(scenario(ports, work_of(work, ports))))
    assert found
    assert found == pytest.approx([0.0] * len(found), abs=0.03)


@pytest.mark.parametrize(("radix", "doubted"), [(16, False), (4, True)])
def test_where_paths_of_several_meet_by_hashes_a_doubt_says_so(radix: int, doubted: bool) -> None:
    packet, flow = both(scenario(2, work_of("permutation", 2), radix))
    (doubt,) = flow.engine.doubts
    assert doubt.startswith("bytes are even over ports and equal paths")
    assert ("flows over the same switches" in doubt) == doubted
    assert (min(errors(packet, flow)) < -0.03) == doubted
    assert min(errors(packet, flow)) > -1 / 3


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"faults": [{"kind": "switch_crash", "at": "1us", "target": "tor-1-0"}]}, "faults[0].kind"),
        (
            {"faults": [{"kind": "degrade", "at": "1us", "rate": "50G", "target": "nic-0-0:tor-0-0"}]},
            "faults[0].kind: flow level splits a queue pair evenly over its paths",
        ),
        (
            {"routing": {"kind": "spray", "allow_reordering": True}},
            "routing.kind: a path of multipath keeps its order",
        ),
        ({"link": {"bit_error_rate": 1e-9}}, "link.bit_error_rate: flow level does not have this"),
    ],
    ids=str,
)
def test_what_breaks_paths_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError) as error:
        run(scenario(2, flows((0, 7), size="64KiB"), radix=4, **sections), local=True)
    assert said in str(error.value)
