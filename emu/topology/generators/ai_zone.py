"""AI Zone: Meta's two-stage Clos of RTSW leaves and modular CTSW spines.

A two-stage Clos: a leaf (RTSW) in every rack, spines (CTSW) above, every leaf joined to every spine by the
same number of parallel links. A rack holds servers, a server one host, its GPUs and as many NICs (GPU:NIC
1:1), each NIC with one port on the rack's leaf.

Names count as the field counts: `host-<h>`, `gpu-<h>-<i>`, `nic-<h>-<i>`, `rtsw-<rack>`, `ctsw-<s>`. Node
numbers go server by server (host, GPUs, NICs), then leaves, then spines, then the controller: adding spines
renumbers no server.

Source: "RDMA over Ethernet for Distributed AI Training at Meta Scale" (SIGCOMM'24), section 3; uplinks are
provisioned there at 1:1, later above it (16 -> 18 uplinks; twice the uplink capacity), which is what
`spines`, `uplinks_per_leaf_spine` and the two rates express.

Not modelled here: the aggregation layer above zones (`llama3` has it), racks that differ.
"""

from __future__ import annotations

from actors.fabric.model import Topology, TopologyError
from emu.topology.generators.builder import (
    Assembly,
    Cables,
    add_host_links,
    add_servers,
    check_counts,
    mesh,
)


def ai_zone(
    *,
    racks: int,
    hosts_per_rack: int,
    gpus_per_host: int,
    spines: int,
    uplinks_per_leaf_spine: int = 1,
    uplink_bps: int,
    uplink_delay_ps: int,
    **given: int,
) -> Topology:
    """An AI Zone. TopologyError names every argument that is out of range; one rack may do without spines."""
    cables = Cables(**given)
    faults = check_counts(
        1,
        {
            "racks": racks,
            "hosts_per_rack": hosts_per_rack,
            "gpus_per_host": gpus_per_host,
            "uplinks_per_leaf_spine": uplinks_per_leaf_spine,
        },
    )
    faults += check_counts(0 if racks == 1 else 1, {"spines": spines})
    faults += cables.faults({"uplink_delay": uplink_delay_ps}, {"uplink": uplink_bps})
    if faults:
        raise TopologyError(faults)

    zone = Assembly()
    servers = add_servers(zone, racks * hosts_per_rack, gpus_per_host, hosts_per_rack)
    leaves = [zone.switch(f"rtsw-{rack}", "rtsw", 1, rack) for rack in range(racks)]
    tops = [zone.switch(f"ctsw-{spine}", "ctsw", 2) for spine in range(spines)]
    for index, server in enumerate(servers):
        for nic in server.nics:
            zone.link(nic, leaves[index // hosts_per_rack], cables.link_bps, cables.nic_delay_ps)
    mesh(zone, leaves, tops, uplink_bps, uplink_delay_ps, uplinks_per_leaf_spine)
    add_host_links(zone, servers, cables)
    return zone.finish("ai_zone")
