"""Do NICs that a cable joins, without a switch, carry what goes between them, and is all else refused?"""

from typing import Any

import pytest

from emu import api
from emu.base.errors import ScenarioError


def cabled(gpus: int, ports: int = 1) -> dict[str, Any]:
    """Two servers whose NICs are joined pair by pair by cables of 200G, without a switch."""
    nodes: list[dict[str, Any]] = []
    for server in "ab":
        nodes.append({"name": f"host-{server}", "role": "host"})
        for place in range(gpus):
            own = {"host": f"host-{server}"}
            nodes.append({"name": f"gpu-{server}{place}", "role": "gpu", **own})
            nodes.append({"name": f"nic-{server}{place}", "role": "nic", **own})
    cable = {"rate": "200G", "delay": "5ns"}
    links = [{"a": f"nic-a{at}", "b": f"nic-b{at}", **cable} for at in range(gpus) for _ in range(ports)]
    return {"kind": "graph", "nodes": nodes, "links": links}


def over_cables(topology: dict[str, Any], fidelity: str = "packet", **ncclx: Any) -> float:
    """Bus bandwidth in bit/s of a ring all_reduce of 8 MiB."""
    call = {"kind": "collective", "op": "all_reduce", "algorithm": "ring", "sizes": ["8MiB"]}
    given = {
        "name": "cables",
        "fidelity": fidelity,
        "topology": topology,
        "gpu": {"channel_rate": "450GB/s"},
        "ncclx": {"protocol": "simple", **ncclx},
        "jobs": [{"name": "pair", "workload": call}],
    }
    (row,) = api.run(given, local=True, diagnose=False).summary.jobs["pair"].collectives
    assert row.status == "success"
    assert row.busbw is not None
    return row.busbw


@pytest.mark.parametrize(("gpus", "ports"), [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("fidelity", ["packet", "flow"])
def test_two_servers_that_cables_join_have_the_rate_of_their_cables(
    gpus: int, ports: int, fidelity: str
) -> None:
    """No more than their payload, and most of it: 4,096 of 4,178 B of each packet, with an ACK of 86 B."""
    line_bps = 200e9 * gpus * ports * 4096 / (4178 + 86)
    assert 0.8 * line_bps < over_cables(cabled(gpus, ports), fidelity) < 1.02 * line_bps


def test_who_sends_to_a_nic_at_the_end_of_another_cable_is_refused() -> None:
    """A ring on an odd number of channels changes rails between servers."""
    with pytest.raises(
        ScenarioError, match="nic-a0 sends to nic-b1, and the fabric has no path between them"
    ):
        over_cables(cabled(2), channels=3)
