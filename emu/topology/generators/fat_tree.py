"""What does a k-ary fat tree look like?

k pods of k/2 ToRs and k/2 aggregation switches, (k/2)^2 core switches, all of k ports of one rate; k/2 NICs
under each ToR, k^3/4 in all. Aggregation switch a of every pod is joined to core switches a x k/2 and the
k/2 - 1 that follow. Between two pods there are (k/2)^2 shortest paths.

A server has one GPU and one NIC unless `gpus_per_host` says otherwise; all NICs of a server hang on one ToR.

Names: `tor-<pod>-<i>`, `agg-<pod>-<a>`, `core-<c>`. A rack is a ToR.

Source: A Scalable, Commodity Data Center Network Architecture (Al-Fares and others, SIGCOMM'08), section 2.2.
"""

from __future__ import annotations

from actors.fabric.model import Fault, Topology, TopologyError
from emu.topology.generators.builder import Assembly, check_counts, check_links
from emu.topology.generators.clos import add_host_links, add_servers, mesh, stripe


def fat_tree(
    *,
    k: int,
    gpus_per_host: int = 1,
    link_bps: int,
    nic_delay_ps: int,
    agg_delay_ps: int,
    core_delay_ps: int,
    host_link_rate_bps: int,
    host_link_delay_ps: int,
) -> Topology:
    """A k-ary fat tree; k is even. TopologyError names what cannot be built."""
    half = k // 2
    faults = check_counts(1, {"gpus_per_host": gpus_per_host})
    if k < 2 or k % 2:
        faults.append(Fault(("k",), f"{k} ports cannot be halved", "an even number of at least 2"))
    elif gpus_per_host >= 1 and half % gpus_per_host:
        reason = f"servers of {gpus_per_host} NICs do not divide the {half} ports of a ToR"
        faults.append(Fault(("gpus_per_host",), reason, f"a divisor of {half}"))
    faults += check_links(
        {"link": link_bps, "host_link_rate": host_link_rate_bps},
        {
            "nic_delay": nic_delay_ps,
            "agg_delay": agg_delay_ps,
            "core_delay": core_delay_ps,
            "host_link_delay": host_link_delay_ps,
        },
    )
    if faults:
        raise TopologyError(faults)

    fabric = Assembly()
    hosts_per_tor = half // gpus_per_host
    racks = k * half
    servers = add_servers(fabric, racks * hosts_per_tor, gpus_per_host, lambda host: host // hosts_per_tor)
    tors = [fabric.switch(f"tor-{rack // half}-{rack % half}", "tor", 1, rack) for rack in range(racks)]
    aggs = [[fabric.switch(f"agg-{pod}-{a}", "agg", 2) for a in range(half)] for pod in range(k)]
    cores = [fabric.switch(f"core-{c}", "core", 3) for c in range(half * half)]
    for index, server in enumerate(servers):
        for nic in server.nics:
            fabric.link(nic, tors[index // hosts_per_tor], link_bps, nic_delay_ps)
    for pod, in_pod in enumerate(aggs):
        mesh(fabric, tors[pod * half : (pod + 1) * half], in_pod, link_bps, agg_delay_ps)
    for in_pod in aggs:
        stripe(fabric, in_pod, cores, half, link_bps, core_delay_ps)
    add_host_links(fabric, servers, host_link_rate_bps, host_link_delay_ps)
    return fabric.finish("fat_tree")
