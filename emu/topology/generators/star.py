"""What does a fabric of one switch look like?

All NICs of all servers on one switch, `tor-0`: the smallest fabric with an incast, and what remains of any
other when only one port is in question.
"""

from __future__ import annotations

from actors.fabric.model import Topology, TopologyError
from emu.topology.generators.builder import Assembly, check_counts, check_links
from emu.topology.generators.clos import add_host_links, add_servers


def star(
    *,
    hosts: int,
    gpus_per_host: int = 1,
    link_bps: int,
    nic_delay_ps: int,
    host_link_rate_bps: int,
    host_link_delay_ps: int,
) -> Topology:
    """One switch with every NIC on it. TopologyError names what cannot be built."""
    faults = check_counts(1, {"hosts": hosts, "gpus_per_host": gpus_per_host})
    faults += check_links(
        {"link": link_bps, "host_link_rate": host_link_rate_bps},
        {"nic_delay": nic_delay_ps, "host_link_delay": host_link_delay_ps},
    )
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    servers = add_servers(fabric, hosts, gpus_per_host, lambda _: 0)
    switch = fabric.switch("tor-0", "tor", 1, 0)
    for server in servers:
        for nic in server.nics:
            fabric.link(nic, switch, link_bps, nic_delay_ps)
    add_host_links(fabric, servers, host_link_rate_bps, host_link_delay_ps)
    return fabric.finish("star")
